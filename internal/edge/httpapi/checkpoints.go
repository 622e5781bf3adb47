package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"j17/internal/base/wire"
	"j17/internal/custody/checkpoint"
	"j17/internal/plane/control"
)

// checkpointHandlers administer checkpoints of states and of logs.
type checkpointHandlers struct {
	checkpoints *checkpoint.Service
}

// routes are the rows of checkpoints in the administration of an environment.
func (h *checkpointHandlers) routes() []route {
	inspect, operate, audit := need{control.RightInspect, instance}, need{control.RightOperate, instance},
		need{control.RightAudit, instance}
	return []route{
		// Of states.
		{0, get, "checkpoints", operator, inspect, "", h.listCheckpoints, operation{
			id: "listCheckpoints", about: "List the checkpoints of states, newest first", query: paged(),
			gives: rows{"checkpoints", wire.Checkpoint{}},
		}},
		{0, post, "checkpoints", operator, operate, "checkpoint.create", h.createCheckpoint, operation{
			id: "createCheckpoint", about: "Create a checkpoint of the states of an aggregate, a type or the environment",
			body: wire.NewCheckpoint{}, optional: true, gives: wire.CheckpointMade{}, made: true,
			accepted: wire.CheckpointMade{},
		}},
		{0, get, "checkpoints/{checkpoint}", operator, inspect, "", h.getCheckpoint, operation{
			id: "getCheckpoint", about: "Get a checkpoint of states", gives: wire.CheckpointMade{},
		}},
		{
			0, post, "checkpoints/{checkpoint}/restore", operator, operate, "checkpoint.restore", h.restoreCheckpoint,
			operation{
				id: "restoreCheckpoint", about: "Make the states of a checkpoint the base of replays", body: struct{}{},
				optional: true, gives: wire.CheckpointRestored{},
			},
		},
		{0, remove, "checkpoints/{checkpoint}", operator, operate, "checkpoint.delete", h.deleteCheckpoint, operation{
			id: "deleteCheckpoint", about: "Delete a checkpoint of states, or cancel one that is being made",
			gives: wire.CheckpointMade{},
		}},

		// Of logs.
		{0, get, "root-checkpoints", operator, audit, "", h.listRootCheckpoints, operation{
			id: "listRootCheckpoints", about: "List the recorded roots of the log, newest first", query: paged(),
			gives: rows{"root_checkpoints", wire.RootCheckpoint{}},
		}},
		{0, post, "root-checkpoints", operator, operate, "root_checkpoint.create", h.createRootCheckpoint, operation{
			id: "createRootCheckpoint", about: "Record the root of the log", body: wire.NewRootCheckpoint{},
			optional: true, gives: wire.RootCheckpointMade{}, made: true,
		}},
		{0, get, "root-checkpoints/latest", operator, audit, "", h.latestRootCheckpoint, operation{
			id: "getLatestRootCheckpoint", about: "Get the latest recorded root", gives: wire.RootCheckpointMade{},
		}},
		{0, get, "root-checkpoints/{checkpoint}", operator, audit, "", h.getRootCheckpoint, operation{
			id: "getRootCheckpoint", about: "Get a recorded root", gives: wire.RootCheckpointMade{},
		}},
		{
			0, remove, "root-checkpoints/{checkpoint}", operator, operate, "root_checkpoint.delete",
			h.deleteRootCheckpoint,
			operation{
				id: "deleteRootCheckpoint", about: "Delete a recorded root", gives: wire.RootCheckpointMade{},
			},
		},
		{0, get, "root-checkpoint-settings", operator, audit, "", h.getRootCheckpointSettings, operation{
			id: "getRootCheckpointSettings", about: "Get when roots are recorded automatically",
			gives: wire.RootCheckpointSettingsShown{},
		}},
		{
			0, put, "root-checkpoint-settings", operator, operate, "root_checkpoint.set", h.setRootCheckpointSettings,
			operation{
				id: "setRootCheckpointSettings", about: "Change when roots are recorded automatically",
				body: wire.RootCheckpointSettingsChange{}, gives: wire.RootCheckpointSettingsShown{},
			},
		},
	}
}

func (h *checkpointHandlers) listCheckpoints(c *call, w http.ResponseWriter) error {
	l := c.listing()
	page, err := h.checkpoints.List(c.request.Context(), c.tenant, l.offset, l.limit+1)
	return list(c, w, "checkpoints", l, page, err)
}

// createCheckpoint is POST checkpoints. It lasts as long as folding the states takes; if the client leaves, it is given
// up.
func (h *checkpointHandlers) createCheckpoint(c *call, w http.ResponseWriter) error {
	var ask wire.NewCheckpoint
	if err := c.decodeOptional(w, &ask); err != nil {
		return err
	}
	if ask.Wait != nil && !*ask.Wait {
		begun, err := h.checkpoints.Start(context.WithoutCancel(c.request.Context()), c.tenant, ask)
		if err != nil {
			return err
		}
		c.record("checkpoint.create", begun.ID, map[string]string{"scope": begun.Scope, "position": begun.Position})
		return c.answer(w, http.StatusAccepted, wire.CheckpointMade{Checkpoint: begun})
	}
	c.allowTime(w, transferTime)
	made, err := h.checkpoints.Create(c.request.Context(), c.tenant, ask)
	if err != nil {
		return err
	}
	c.record("checkpoint.create", made.ID, map[string]string{
		"scope": made.Scope, "position": made.Position, "aggregates": strconv.FormatUint(made.Aggregates, 10),
		"state_hash": made.StateHash,
	})
	return c.answer(w, http.StatusCreated, wire.CheckpointMade{Checkpoint: made})
}

func (h *checkpointHandlers) getCheckpoint(c *call, w http.ResponseWriter) error {
	found, err := h.checkpoints.Get(c.request.Context(), c.tenant, c.request.PathValue("checkpoint"))
	return c.done(w, http.StatusOK, wire.CheckpointMade{Checkpoint: found}, err)
}

func (h *checkpointHandlers) restoreCheckpoint(c *call, w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	c.allowTime(w, transferTime)
	n, from, err := h.checkpoints.Restore(c.request.Context(), c.tenant, c.request.PathValue("checkpoint"))
	if err != nil {
		return err
	}
	c.record("checkpoint.restore", from.ID, map[string]string{
		"position": from.Position, "aggregates": strconv.FormatUint(n, 10),
	})
	return c.answer(w, http.StatusOK, wire.CheckpointRestored{Restored: n, Checkpoint: from})
}

func (h *checkpointHandlers) deleteCheckpoint(c *call, w http.ResponseWriter) error {
	gone, err := h.checkpoints.Delete(c.request.Context(), c.tenant, c.request.PathValue("checkpoint"))
	if err != nil {
		return err
	}
	c.record("checkpoint.delete", gone.ID, map[string]string{"position": gone.Position, "state_hash": gone.StateHash})
	return c.answer(w, http.StatusOK, wire.CheckpointMade{Checkpoint: gone})
}

func (h *checkpointHandlers) listRootCheckpoints(c *call, w http.ResponseWriter) error {
	l := c.listing()
	page, err := h.checkpoints.Roots(c.request.Context(), c.tenant, l.offset, l.limit+1)
	return list(c, w, "root_checkpoints", l, page, err)
}

func (h *checkpointHandlers) createRootCheckpoint(c *call, w http.ResponseWriter) error {
	var ask wire.NewRootCheckpoint
	if err := c.decodeOptional(w, &ask); err != nil {
		return err
	}
	made, err := h.checkpoints.RootOf(c.request.Context(), c.tenant, ask)
	if err != nil {
		return err
	}
	c.record("root_checkpoint.create", made.ID, rootDetails(&made))
	return c.answer(w, http.StatusCreated, wire.RootCheckpointMade{RootCheckpoint: made})
}

// rootDetails are what the audit log says of a root checkpoint.
func rootDetails(r *wire.RootCheckpoint) map[string]string {
	return map[string]string{"position": r.Position, "size": strconv.FormatUint(r.Size, 10), "root": r.Root}
}

func (h *checkpointHandlers) latestRootCheckpoint(c *call, w http.ResponseWriter) error {
	found, err := h.checkpoints.LatestRoot(c.request.Context(), c.tenant)
	return c.done(w, http.StatusOK, wire.RootCheckpointMade{RootCheckpoint: found}, err)
}

func (h *checkpointHandlers) getRootCheckpoint(c *call, w http.ResponseWriter) error {
	found, err := h.checkpoints.GetRoot(c.request.Context(), c.tenant, c.request.PathValue("checkpoint"))
	return c.done(w, http.StatusOK, wire.RootCheckpointMade{RootCheckpoint: found}, err)
}

func (h *checkpointHandlers) deleteRootCheckpoint(c *call, w http.ResponseWriter) error {
	gone, err := h.checkpoints.DeleteRoot(c.request.Context(), c.tenant, c.request.PathValue("checkpoint"))
	if err != nil {
		return err
	}
	c.record("root_checkpoint.delete", gone.ID, rootDetails(&gone))
	return c.answer(w, http.StatusOK, wire.RootCheckpointMade{RootCheckpoint: gone})
}

func (h *checkpointHandlers) getRootCheckpointSettings(c *call, w http.ResponseWriter) error {
	set, err := h.checkpoints.Settings(c.request.Context(), c.tenant)
	return c.done(w, http.StatusOK, wire.RootCheckpointSettingsShown{Settings: set}, err)
}

func (h *checkpointHandlers) setRootCheckpointSettings(c *call, w http.ResponseWriter) error {
	var change wire.RootCheckpointSettingsChange
	if err := c.decodeChange(w, &change); err != nil {
		return err
	}
	set, err := h.checkpoints.Set(c.request.Context(), c.tenant, change)
	if err != nil {
		return err
	}
	c.record("root_checkpoint.set", "", map[string]string{
		"enabled": strconv.FormatBool(set.Enabled), "every_events": strconv.FormatUint(set.EveryEvents, 10),
		"every_hours": strconv.FormatUint(set.EveryHours, 10), "keep": strconv.FormatUint(set.Keep, 10),
	})
	return c.answer(w, http.StatusOK, wire.RootCheckpointSettingsShown{Settings: set})
}
