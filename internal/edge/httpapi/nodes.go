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

// pollChanges is POST /internal/control/changes: a worker tells that it is there, and waits for what it does not have.
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

// maxPoll bounds what a worker may say: the uses of all keys there can be.
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

// specOfHeadnode is GET /internal/control/specs/{instance}/{env}/{version}.
func (h *nodeHandlers) specOfHeadnode(c *call, w http.ResponseWriter) error {
	version, err := strconv.Atoi(c.request.PathValue("version"))
	if err != nil {
		return j17.Errorf(j17.CodeNotFound, "Versions of specs are numbered from 1 on.")
	}
	s, err := h.registry.Specs.Version(c.request.Context(), c.request.PathValue("instance"), j17.Environment(c.request.PathValue("env")), version)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, control.SpecAnswer{Spec: s})
}

// auditOfWorker is POST /internal/control/audit.
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

// listNodes is GET /api/nodes.
func (h *nodeHandlers) listNodes(c *call, w http.ResponseWriter) error {
	l := c.listing()
	load := map[string]int{}
	for _, i := range h.registry.Instances.All() {
		load[i.Node]++
	}
	rows := make([]wire.Node, 0)
	for _, n := range h.registry.Nodes.All() {
		row := wire.Node{Name: n.Name, PublicURL: n.PublicURL, InternalURL: n.InternalURL, Version: n.Version, Instances: load[n.Name]}
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
