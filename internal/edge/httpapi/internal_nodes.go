package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
)

// Cluster says what part of several servers this one is.
type Cluster struct {
	// Node is the name of this worker; "" where this is the headnode.
	Node string
	// Transport reaches the other nodes.
	Transport http.RoundTripper
}

// headerActor tells a worker for whom the headnode asks: a control.Actor as JSON in base64. It counts only with the node
// secret.
const headerActor = "X-J17-Actor"

// replicaTime is how long a change waits for the workers that are connected.
const replicaTime = 2 * time.Second

// badSecrets is the number of wrong node secrets that an address may send a minute before it is not listened to any more.
const badSecrets = 60

// pollChanges is POST /internal/control/changes: a worker tells that it is there, and waits for what it does not have.
func (c *call) pollChanges(w http.ResponseWriter) error {
	// The worker is there, with what it has counted.
	var p control.Poll
	if err := c.decodeLarge(w, &p, maxPoll); err != nil {
		return err
	}
	p.Node.Writable = p.Writable
	if err := c.api.Registry.Nodes.Register(c.actorContext(), p.Node); err != nil {
		return err
	}
	c.api.Registry.Keys.NoteUses(p.KeyUses)

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

	rep, err := c.api.Registry.Replication.Next(ctx, p.Node.Name, p.Position)
	if err != nil {
		return err
	}

	if c.request.Context().Err() != nil {
		c.api.Registry.Replication.Disconnected(p.Node.Name)
	}
	return c.answer(w, http.StatusOK, rep)
}

// maxPoll bounds what a worker may say: the uses of all keys there can be.
const maxPoll = 64 << 20

// putSpecOfWorker is POST /internal/control/specs: the last step of a deployment on a worker.
func (c *call) putSpecOfWorker(w http.ResponseWriter) error {
	var p control.SpecPut
	if err := c.decodeLarge(w, &p, 2*maxSpecBody); err != nil {
		return err
	}
	if compiled, _ := spec.Compile(p.Deployment.Source); compiled == nil {
		return j17.Errorf(j17.CodeInvalidSpec, "The headnode does not accept the spec that the worker has accepted. Bring both to the same version.")
	}
	ctx := control.WithActor(c.request.Context(), p.Actor, p.RequestID)
	s, err := c.api.Registry.Specs.Put(ctx, p.Deployment)
	if err != nil {
		return err
	}
	s.Source = nil // which the worker has
	return c.answer(w, http.StatusOK, control.SpecAnswer{Spec: s})
}

// specOfHeadnode is GET /internal/control/specs/{instance}/{env}/{version}.
func (c *call) specOfHeadnode(w http.ResponseWriter) error {
	version, err := strconv.Atoi(c.request.PathValue("version"))
	if err != nil {
		return j17.Errorf(j17.CodeNotFound, "Versions of specs are numbered from 1 on.")
	}
	s, err := c.api.Registry.Specs.Version(c.request.Context(), c.request.PathValue("instance"), j17.Environment(c.request.PathValue("env")), version)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, control.SpecAnswer{Spec: s})
}

// auditOfWorker is POST /internal/control/audit.
func (c *call) auditOfWorker(w http.ResponseWriter) error {
	var rec control.Record
	if err := c.decodeLarge(w, &rec, 1<<20); err != nil {
		return err
	}
	if err := c.api.Registry.Audit.Add(c.request.Context(), rec); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

// listNodes is GET /api/nodes.
func (c *call) listNodes(w http.ResponseWriter) error {
	l := c.listing()
	load := map[string]int{}
	for _, i := range c.api.Registry.Instances.All() {
		load[i.Node]++
	}
	rows := make([]wire.Node, 0)
	for _, n := range c.api.Registry.Nodes.All() {
		row := wire.Node{Name: n.Name, PublicURL: n.PublicURL, InternalURL: n.InternalURL, Version: n.Version, Instances: load[n.Name]}
		if !n.SeenAt.IsZero() {
			seen := n.SeenAt.UTC().Truncate(time.Second)
			row.SeenAt, row.Writable = &seen, &n.Writable
		}
		rows = append(rows, row)
	}
	return list(c, w, "nodes", l, portion(rows, l))
}

// onThisNode reports whether this server has an instance. Where another one has it, the error says which.
func (c *call) onThisNode(i control.Instance) error {
	cluster := c.api.Cluster
	if cluster == nil || cluster.Node != "" && cluster.Node == i.Node {
		return nil
	}
	n, ok := c.api.Registry.Nodes.ByName(i.Node)
	if !ok {
		return j17.Errorf(j17.CodeUnavailable, "No worker has this instance yet. Start a worker for this headnode.")
	}
	e := j17.Errorf(j17.CodeMisdirected, "The instance is on another node. Send the request there, to the same host name.")
	e.Details = struct {
		URL string `json:"url"`
	}{n.PublicURL}
	return e
}

// headnodeOnly is the refusal of a worker to be the control plane.
func (a *API) headnodeOnly() error {
	if a.Cluster == nil || a.Cluster.Node == "" {
		return nil
	}
	return j17.Errorf(j17.CodeMisdirected, "This is a worker. The control plane is on the headnode.")
}

// awaitReplicas lets workers catch up with a change before its maker is told that it is done, and notes which have not.
func (c *call) awaitReplicas() {
	reads := c.request.Method == http.MethodGet || c.request.Method == http.MethodHead
	if !c.control || reads || c.awaited || c.api.Cluster == nil || c.api.Cluster.Node != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.request.Context()), replicaTime)
	defer cancel()
	c.awaited = true
	if c.behind = c.api.Registry.Replication.AwaitReplicas(ctx); c.behind != nil {
		c.api.Logger.LogAttrs(ctx, slog.LevelWarn, "a change has not reached all workers yet",
			slog.Any("behind", c.behind), slog.String("route", c.route), slog.String("request_id", c.requestID))
	}
}

// actFor takes over for whom the headnode asks, and under which id.
func (c *call) actFor() {
	values := c.request.Header[headerActor]
	if len(values) != 1 {
		return
	}
	raw, err := base64.StdEncoding.DecodeString(values[0])
	if err != nil {
		return
	}
	var a control.Actor
	if json.Unmarshal(raw, &a) == nil {
		c.actor, c.principal.ID = a, a.ID
	}
	if id, err := uuid.Parse(c.request.Header.Get(headerRequestID)); err == nil {
		c.requestID = id.String()
	}
}
