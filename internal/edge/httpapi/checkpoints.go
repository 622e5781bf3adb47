package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"j17/internal/base/wire"
	"j17/internal/plane/control"
)

// checkpointRows are the rows of checkpoints in the administration of an environment.
func checkpointRows() []route {
	inspect, operate, audit := need{control.RightInspect, instance}, need{control.RightOperate, instance}, need{control.RightAudit, instance}
	return []route{
		// Of states.
		{0, get, "checkpoints", operator, inspect, "", (*call).listCheckpoints, operation{
			id: "listCheckpoints", about: "The checkpoints of states, the newest first", query: paged(),
			gives: rows{"checkpoints", wire.Checkpoint{}},
		}},
		{0, post, "checkpoints", operator, operate, "checkpoint.create", (*call).createCheckpoint, operation{
			id: "createCheckpoint", about: "Keep the states of an aggregate, of a type or of the environment",
			body: wire.NewCheckpoint{}, optional: true, gives: wire.CheckpointMade{}, made: true,
			accepted: wire.CheckpointMade{},
		}},
		{0, get, "checkpoints/{checkpoint}", operator, inspect, "", (*call).getCheckpoint, operation{
			id: "getCheckpoint", about: "A checkpoint of states", gives: wire.CheckpointMade{},
		}},
		{0, post, "checkpoints/{checkpoint}/restore", operator, operate, "checkpoint.restore", (*call).restoreCheckpoint, operation{
			id: "restoreCheckpoint", about: "Make the states of a checkpoint a base for replays", body: struct{}{},
			optional: true, gives: wire.CheckpointRestored{},
		}},
		{0, remove, "checkpoints/{checkpoint}", operator, operate, "checkpoint.delete", (*call).deleteCheckpoint, operation{
			id: "deleteCheckpoint", about: "Delete a checkpoint of states, or cancel one that is being made",
			gives: wire.CheckpointMade{},
		}},

		// Of logs.
		{0, get, "root-checkpoints", operator, audit, "", (*call).listRootCheckpoints, operation{
			id: "listRootCheckpoints", about: "The roots of the log that were noted, the newest first", query: paged(),
			gives: rows{"root_checkpoints", wire.RootCheckpoint{}},
		}},
		{0, post, "root-checkpoints", operator, operate, "root_checkpoint.create", (*call).createRootCheckpoint, operation{
			id: "createRootCheckpoint", about: "Note the root of the log", body: wire.NewRootCheckpoint{},
			optional: true, gives: wire.RootCheckpointMade{}, made: true,
		}},
		{0, get, "root-checkpoints/latest", operator, audit, "", (*call).latestRootCheckpoint, operation{
			id: "getLatestRootCheckpoint", about: "The root that was noted last", gives: wire.RootCheckpointMade{},
		}},
		{0, get, "root-checkpoints/{checkpoint}", operator, audit, "", (*call).getRootCheckpoint, operation{
			id: "getRootCheckpoint", about: "A root that was noted", gives: wire.RootCheckpointMade{},
		}},
		{0, remove, "root-checkpoints/{checkpoint}", operator, operate, "root_checkpoint.delete", (*call).deleteRootCheckpoint, operation{
			id: "deleteRootCheckpoint", about: "Delete a root that was noted", gives: wire.RootCheckpointMade{},
		}},
		{0, get, "root-checkpoint-settings", operator, audit, "", (*call).getRootCheckpointSettings, operation{
			id: "getRootCheckpointSettings", about: "When roots are noted by themselves",
			gives: wire.RootCheckpointSettingsShown{},
		}},
		{0, put, "root-checkpoint-settings", operator, operate, "root_checkpoint.set", (*call).setRootCheckpointSettings, operation{
			id: "setRootCheckpointSettings", about: "Change when roots are noted by themselves",
			body: wire.RootCheckpointSettingsChange{}, gives: wire.RootCheckpointSettingsShown{},
		}},
	}
}

// listCheckpoints is GET checkpoints.
func (c *call) listCheckpoints(w http.ResponseWriter) error {
	l := c.listing()
	page, err := c.api.Checkpoints.List(c.request.Context(), c.tenant, l.offset, l.limit+1)
	if err != nil {
		return err
	}
	return list(c, w, "checkpoints", l, page)
}

// createCheckpoint is POST checkpoints. It lasts as long as it takes to fold the states; who goes away gives it up.
func (c *call) createCheckpoint(w http.ResponseWriter) error {
	var ask wire.NewCheckpoint
	if err := c.decodeOptional(w, &ask); err != nil {
		return err
	}
	if ask.Wait != nil && !*ask.Wait {
		begun, err := c.api.Checkpoints.Start(context.WithoutCancel(c.request.Context()), c.tenant, ask)
		if err != nil {
			return err
		}
		c.checkpointed("checkpoint.create", begun.ID, map[string]string{"scope": begun.Scope, "position": begun.Position})
		return c.answer(w, http.StatusAccepted, wire.CheckpointMade{Checkpoint: begun})
	}
	c.allowTime(w, transferTime)
	made, err := c.api.Checkpoints.Create(c.request.Context(), c.tenant, ask)
	if err != nil {
		return err
	}
	c.checkpointed("checkpoint.create", made.ID, map[string]string{
		"scope": made.Scope, "position": made.Position, "aggregates": strconv.FormatUint(made.Aggregates, 10), "state_hash": made.StateHash,
	})
	return c.answer(w, http.StatusCreated, wire.CheckpointMade{Checkpoint: made})
}

// getCheckpoint is GET checkpoints/{checkpoint}.
func (c *call) getCheckpoint(w http.ResponseWriter) error {
	found, err := c.api.Checkpoints.Get(c.request.Context(), c.tenant, c.request.PathValue("checkpoint"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.CheckpointMade{Checkpoint: found})
}

// restoreCheckpoint is POST checkpoints/{checkpoint}/restore.
func (c *call) restoreCheckpoint(w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	c.allowTime(w, transferTime)
	n, from, err := c.api.Checkpoints.Restore(c.request.Context(), c.tenant, c.request.PathValue("checkpoint"))
	if err != nil {
		return err
	}
	c.checkpointed("checkpoint.restore", from.ID, map[string]string{"position": from.Position, "aggregates": strconv.FormatUint(n, 10)})
	return c.answer(w, http.StatusOK, wire.CheckpointRestored{Restored: n, Checkpoint: from})
}

// deleteCheckpoint is DELETE checkpoints/{checkpoint}.
func (c *call) deleteCheckpoint(w http.ResponseWriter) error {
	gone, err := c.api.Checkpoints.Delete(c.request.Context(), c.tenant, c.request.PathValue("checkpoint"))
	if err != nil {
		return err
	}
	c.checkpointed("checkpoint.delete", gone.ID, map[string]string{"position": gone.Position, "state_hash": gone.StateHash})
	return c.answer(w, http.StatusOK, wire.CheckpointMade{Checkpoint: gone})
}

// listRootCheckpoints is GET root-checkpoints.
func (c *call) listRootCheckpoints(w http.ResponseWriter) error {
	l := c.listing()
	page, err := c.api.Checkpoints.Roots(c.request.Context(), c.tenant, l.offset, l.limit+1)
	if err != nil {
		return err
	}
	return list(c, w, "root_checkpoints", l, page)
}

// createRootCheckpoint is POST root-checkpoints.
func (c *call) createRootCheckpoint(w http.ResponseWriter) error {
	var ask wire.NewRootCheckpoint
	if err := c.decodeOptional(w, &ask); err != nil {
		return err
	}
	made, err := c.api.Checkpoints.RootOf(c.request.Context(), c.tenant, ask)
	if err != nil {
		return err
	}
	c.checkpointed("root_checkpoint.create", made.ID, rootDetails(&made))
	return c.answer(w, http.StatusCreated, wire.RootCheckpointMade{RootCheckpoint: made})
}

// rootDetails are what the audit log says of a root checkpoint.
func rootDetails(r *wire.RootCheckpoint) map[string]string {
	return map[string]string{"position": r.Position, "size": strconv.FormatUint(r.Size, 10), "root": r.Root}
}

// latestRootCheckpoint is GET root-checkpoints/latest.
func (c *call) latestRootCheckpoint(w http.ResponseWriter) error {
	found, err := c.api.Checkpoints.LatestRoot(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.RootCheckpointMade{RootCheckpoint: found})
}

// getRootCheckpoint is GET root-checkpoints/{checkpoint}.
func (c *call) getRootCheckpoint(w http.ResponseWriter) error {
	found, err := c.api.Checkpoints.GetRoot(c.request.Context(), c.tenant, c.request.PathValue("checkpoint"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.RootCheckpointMade{RootCheckpoint: found})
}

// deleteRootCheckpoint is DELETE root-checkpoints/{checkpoint}.
func (c *call) deleteRootCheckpoint(w http.ResponseWriter) error {
	gone, err := c.api.Checkpoints.DeleteRoot(c.request.Context(), c.tenant, c.request.PathValue("checkpoint"))
	if err != nil {
		return err
	}
	c.checkpointed("root_checkpoint.delete", gone.ID, rootDetails(&gone))
	return c.answer(w, http.StatusOK, wire.RootCheckpointMade{RootCheckpoint: gone})
}

// getRootCheckpointSettings is GET root-checkpoint-settings.
func (c *call) getRootCheckpointSettings(w http.ResponseWriter) error {
	set, err := c.api.Checkpoints.Settings(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.RootCheckpointSettingsShown{Settings: set})
}

// setRootCheckpointSettings is PUT root-checkpoint-settings.
func (c *call) setRootCheckpointSettings(w http.ResponseWriter) error {
	var change wire.RootCheckpointSettingsChange
	if err := c.decodeChange(w, &change); err != nil {
		return err
	}
	set, err := c.api.Checkpoints.Set(c.request.Context(), c.tenant, change)
	if err != nil {
		return err
	}
	c.checkpointed("root_checkpoint.set", "", map[string]string{
		"enabled": strconv.FormatBool(set.Enabled), "every_events": strconv.FormatUint(set.EveryEvents, 10),
		"every_hours": strconv.FormatUint(set.EveryHours, 10), "keep": strconv.FormatUint(set.Keep, 10),
	})
	return c.answer(w, http.StatusOK, wire.RootCheckpointSettingsShown{Settings: set})
}

// checkpointed records what was done with a checkpoint.
func (c *call) checkpointed(action, id string, details map[string]string) {
	rec := control.Record{Action: action, Instance: c.instance, Environment: c.env, Target: id, Details: details}
	if err := c.api.Registry.Audit.Add(context.WithoutCancel(c.actorContext()), rec); err != nil {
		c.notAudited(action, err)
	}
}
