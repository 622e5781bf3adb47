package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
)

// nodeHandlers answer other nodes of the same server, and list them.
type nodeHandlers struct {
	registry *control.Registry
}

// routes list the workers.
func (h *nodeHandlers) routes() []route {
	return []route{
		{controlSite, get, "/api/nodes", operator, need{control.RightView, aServer}, "", h.listNodes, operation{
			id: "listNodes", about: "List the workers", query: paged(), gives: rows{"nodes", wire.Node{}},
		}},
	}
}

// nodeRoutes are the routes by which workers ask the headnode, and the headnode asks workers.
func (a *API) nodeRoutes() []route {
	const prefix = "/internal/control/"
	switch {
	case a.Cluster == nil:
		return nil
	case a.Cluster.Node == "":
		return []route{
			{internalSite, post, prefix + "changes", node, need{}, "", a.nodes.pollChanges, operation{
				id: "pollChanges", about: "Wait for changes of the registry", body: control.Poll{},
				gives: control.Update{},
			}},
			{internalSite, post, prefix + "specs", node, need{}, "", a.nodes.putSpecOfWorker, operation{
				id: "putSpec", about: "Store a spec that a worker has accepted", body: control.SpecPut{},
				gives: control.SpecAnswer{},
			}},
			{
				internalSite, get, prefix + "specs/{instance}/{env}/{version}", node,
				need{},
				"", a.nodes.specOfHeadnode,
				operation{
					id: "getSpecForWorker", about: "Get a version of a spec", gives: control.SpecAnswer{},
				},
			},
			{internalSite, post, prefix + "audit", node, need{}, "", a.nodes.auditOfWorker, operation{
				id: "addRecord", about: "Add a record to the audit log", body: control.Record{},
			}},
		}
	default:
		const path = prefix + "instances/{instance_}/"
		return []route{
			{internalSite, post, path + "spec", node, need{in: instance}, "spec.deploy", a.specs.deploySpec, operation{
				id: "deployOnWorker", about: "Deploy a spec, or test a deployment", query: preparing(deploying()...),
				body: file{typeJSON}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{},
				accepted: wire.SpecPrepared{}, headers: specTag(),
			}},
			{
				internalSite, post, path + "spec/rollback", node,
				need{in: instance},
				"spec.rollback",
				a.specs.rollBackSpec,
				operation{
					id: "rollBackOnWorker", about: "Roll back to an earlier version of the spec", query: trying(),
					body: wire.Rollback{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{},
					headers: specTag(),
				},
			},
			{
				internalSite, post, path + "spec/promote", node,
				need{in: instance},
				"spec.promote", a.specs.promoteSpec,
				operation{
					id: "promoteOnWorker", about: "Copy a spec from one environment to another", query: trying(),
					body: wire.Promotion{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{},
					headers: specTag(),
				},
			},
			{
				internalSite, get, path + "projections", node,
				need{in: instance},
				"", a.derived.listProjections,
				operation{
					id: "listProjectionsOfWorker", about: "List the projections of an environment", query: inEnvironment(paged()...),
					gives: wire.Projections{},
				},
			},
			{
				internalSite, get, path + "backup_settings", node,
				need{in: instance},
				"", a.backups.getBackupSettings,
				operation{
					id: "getBackupSettingsOfWorker", about: "Get the backup settings of an instance",
					gives: wire.BackupSettingsShown{},
				},
			},
			{
				internalSite, put, path + "backup_settings", node,
				need{in: instance},
				"backup_settings.change",
				a.backups.changeBackupSettings,
				operation{
					id: "changeBackupSettingsOfWorker", about: "Change the backup settings of an instance",
					query: tryingPlace(), body: wire.BackupSettingsChange{}, gives: wire.BackupSettingsShown{},
				},
			},
			{internalSite, get, path + "usage", node, need{in: instance}, "", a.instances.usageDays, operation{
				id: "getUsageOfWorker", about: "Get the usage of an instance, by day", query: span(),
				gives: wire.Days{},
			}},
			{internalSite, get, path + "month", node, need{in: instance}, "", a.instances.usageMonth, operation{
				id: "getMonthOfWorker", about: "Get the usage of an instance against its plan", gives: wire.Used{},
			}},
			{internalSite, get, prefix + faultPattern, node, need{}, "", a.audits.faultOfWorker, operation{
				id: "getErrorOfWorker", about: "Get the error of a failed request", gives: wire.Failed{},
			}},
			{internalSite, get, prefix + "scrub", node, need{}, "", a.scrubs.getScrub, operation{
				id: "getScrubOfWorker", about: "Get the progress and the findings of a worker's search for damage",
				gives: wire.ScrubShown{},
			}},
			{internalSite, post, prefix + "scrub", node, need{}, "", a.scrubs.beginScrubOfWorker, operation{
				id: "beginScrubOfWorker", about: "Start a search for damage on a worker", body: struct{}{},
				optional: true,
				gives:    wire.ScrubShown{},
			}},
		}
	}
}

// pollChanges is POST /internal/control/changes: a worker reports that it is there, and waits for changes that it does
// not have.
func (h *nodeHandlers) pollChanges(c *call, w http.ResponseWriter) error {
	// The worker is there, with what it has counted.
	var p control.Poll
	if err := c.decodeLarge(w, &p, maxPoll); err != nil {
		return err
	}
	p.Node.Writable = p.Writable
	if err := h.registry.Nodes.Register(c.actorContext(), p.Node); err != nil {
		return err
	}
	h.registry.Keys.NoteUses(p.KeyUses)

	// It is held until there is something, or the server stops.
	c.allowTime(w, 2*control.PollTime)
	ctx, cancel := context.WithTimeout(c.request.Context(), control.PollTime)
	defer cancel()
	if p.AtOnce {
		cancel()
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-c.api.draining:
			cancel()
		case <-stop:
		}
	}()

	rep, err := h.registry.Replication.Next(ctx, p.Node.Name, p.Position)
	if err != nil {
		return err
	}

	if c.request.Context().Err() != nil {
		h.registry.Replication.Disconnected(p.Node.Name)
	}
	return c.answer(w, http.StatusOK, rep)
}

// maxPoll bounds what a worker may report: the uses of as many keys as there can be.
const maxPoll = 64 << 20

// putSpecOfWorker is POST /internal/control/specs: the last step of a deployment on a worker.
func (h *nodeHandlers) putSpecOfWorker(c *call, w http.ResponseWriter) error {
	var p control.SpecPut
	if err := c.decodeLarge(w, &p, 2*maxSpecBody); err != nil {
		return err
	}
	if compiled, _ := spec.Compile(p.Deployment.Source); compiled == nil {
		return j17.Errorf(j17.CodeInvalidSpec, "The headnode does not accept the spec that the worker has accepted. Bring both to the same version.")
	}
	ctx := control.WithActor(c.request.Context(), p.Actor, p.RequestID)
	s, err := h.registry.Specs.Put(ctx, p.Deployment)
	if err != nil {
		return err
	}
	s.Source = nil // which the worker has
	return c.answer(w, http.StatusOK, control.SpecAnswer{Spec: s})
}

func (h *nodeHandlers) specOfHeadnode(c *call, w http.ResponseWriter) error {
	version, err := strconv.Atoi(c.request.PathValue("version"))
	if err != nil {
		return j17.Errorf(j17.CodeNotFound, "Versions of specs are numbered from 1 on.")
	}
	s, err := h.registry.Specs.Version(
		c.request.Context(), c.request.PathValue("instance"), j17.Environment(c.request.PathValue("env")), version,
	)
	return c.done(w, http.StatusOK, control.SpecAnswer{Spec: s}, err)
}

func (h *nodeHandlers) auditOfWorker(c *call, w http.ResponseWriter) error {
	var rec control.Record
	if err := c.decodeLarge(w, &rec, 1<<20); err != nil {
		return err
	}
	if err := h.registry.Audit.Add(c.request.Context(), rec); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

func (h *nodeHandlers) listNodes(c *call, w http.ResponseWriter) error {
	l := c.listing()
	load := map[string]int{}
	for _, i := range h.registry.Instances.All() {
		load[i.Node]++
	}
	rows := make([]wire.Node, 0)
	for _, n := range h.registry.Nodes.All() {
		row := wire.Node{
			Name: n.Name, PublicURL: n.PublicURL, InternalURL: n.InternalURL, Version: n.Version,
			Instances: load[n.Name],
		}
		if !n.SeenAt.IsZero() {
			seen := n.SeenAt.UTC().Truncate(time.Second)
			row.SeenAt, row.Writable = &seen, &n.Writable
		}
		rows = append(rows, row)
	}
	return list(c, w, "nodes", l, portion(rows, l), nil)
}

// headnodeOnly is the refusal of a worker to be the control plane.
func (a *API) headnodeOnly() error {
	if a.Cluster == nil || a.Cluster.Node == "" {
		return nil
	}
	return j17.Errorf(j17.CodeMisdirected, "This is a worker. The control plane is on the headnode.")
}
