package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/base/wire"
	"j17/internal/plane/control"
)

// auditQuery is which records are asked for, of those that the operator may see.
func (c *call) auditQuery() control.AuditQuery {
	q := control.AuditQuery{
		Instance: cmp.Or(c.instance, c.query["instance"]), // also one that is deleted: the log outlives it
		Actor:    c.query["actor"], Action: c.query["action"], Target: c.query["target"], Outcome: control.Outcome(c.query["outcome"]),
		From: c.day("from"), To: c.day("to"), Start: c.query["start"],
	}
	if c.instance == "" && !c.may("", control.RightAudit) {
		q.Visible = func(instance string) bool { return c.may(instance, control.RightAudit) }
	}
	return q
}

// listAudit is GET /api/audit and GET /api/instances/{id}/audit: the newest records first.
func (c *call) listAudit(w http.ResponseWriter) error {
	records, next, err := c.api.Registry.Audit.List(c.request.Context(), c.auditQuery(), c.number("limit", defaultCount))
	if err != nil {
		return err
	}
	answer := wire.Records{Records: make([]wire.Record, len(records))}
	for i := range records {
		answer.Records[i] = recordShape(&records[i])
	}
	if next != "" {
		answer.Next = &next
	}
	return c.answer(w, http.StatusOK, answer)
}

// recordShape is a record of the audit log as people see it.
func recordShape(r *control.Record) wire.Record {
	return wire.Record{
		ID: r.ID, At: r.At, Action: r.Action, Actor: actorShape(r.Actor), Instance: r.Instance, Environment: r.Environment, Target: r.Target,
		Outcome: string(r.Outcome), Code: r.Code, RequestID: r.RequestID, Details: r.Details,
	}
}

func actorShape(a control.Actor) wire.Actor {
	return wire.Actor{Kind: string(a.Kind), ID: a.ID, Email: a.Email, Address: a.Address}
}

// exportAudit is GET /api/audit/export and GET /api/instances/{id}/audit/export: one record a line, the newest first.
func (c *call) exportAudit(w http.ResponseWriter) error {
	for rec, err := range c.api.Registry.Audit.Export(c.request.Context(), c.auditQuery()) {
		if err == nil {
			var line []byte
			if line, err = marshal(recordShape(&rec)); err == nil {
				c.startLines(w)
				if c.request.Method == http.MethodHead {
					return nil // that there is a first record is all there is to say
				}
				var n int
				n, err = w.Write(append(line, '\n'))
				c.bytes += int64(n)
			}
		}
		if err != nil && c.status == 0 {
			return err
		}
		if err != nil {
			panic(http.ErrAbortHandler) // The answer has begun: only breaking it off tells that it is not whole.
		}
	}
	c.startLines(w)
	return nil
}

// getFault is GET /api/errors/{error_id} and the administration's GET errors/{error_id}, which knows the errors of its
// environment only.
func (c *call) getFault(w http.ResponseWriter) error {
	f, err := c.api.Registry.Faults.ByID(c.request.Context(), c.request.PathValue("error_id"))
	if c.instance == "" && j17.CodeOf(err) == j17.CodeNotFound {
		if f := c.faultElsewhere(); f != nil {
			return c.answer(w, http.StatusOK, wire.Failed{Failure: *f})
		}
	}
	if err == nil && c.instance != "" && (f.Instance != c.instance || f.Environment != c.env) {
		err = j17.Errorf(j17.CodeNotFound, "Nothing is known about an error with this id in this environment.")
	}
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.Failed{Failure: wire.Fault(f)})
}

// faultElsewhere asks all workers for the error that the path names; nil where none knows it.
func (c *call) faultElsewhere() *wire.Fault {
	if c.api.Cluster == nil || c.api.Cluster.Node != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.request.Context(), replicaTime)
	defer cancel()
	nodes := c.api.Registry.Nodes.All()
	found := make(chan *wire.Fault, len(nodes))
	for _, n := range nodes {
		go func() {
			var body struct {
				Failure *wire.Fault `json:"failure"`
			}
			err := panics.Logged(ctx, c.api.Logger, "asking a node for a fault", func() error {
				resp, err := c.askNode(ctx, http.MethodGet, n, "/internal/control/errors/"+url.PathEscape(c.request.PathValue("error_id")))
				if err != nil {
					return err
				}
				defer func() { _ = resp.Body.Close() }() // read as far as it matters
				if resp.StatusCode != http.StatusOK {
					return nil
				}
				return json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxSmallBody)).Decode(&body)
			})
			if err != nil {
				body.Failure = nil
			}
			found <- body.Failure
		}()
	}
	for range nodes {
		if f := <-found; f != nil {
			return f
		}
	}
	return nil
}

// faultOfWorker is GET /internal/control/errors/{error_id}.
func (c *call) faultOfWorker(w http.ResponseWriter) error {
	f, err := c.api.Registry.Faults.ByID(c.request.Context(), c.request.PathValue("error_id"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.Failed{Failure: wire.Fault(f)})
}

// faultPattern is the route of one failed request of an environment.
const faultPattern = "errors/{error_id}"

// faultHere reports whether it was this server that failed, and not the worker that has the environment.
func (c *call) faultHere() bool {
	f, err := c.api.Registry.Faults.ByID(c.request.Context(), c.request.PathValue("error_id"))
	return err == nil && f.Instance == c.instance && f.Environment == c.env
}

// keptPath is the path of a request as it is kept of a failure. What stands behind the name of a projection is the id of an aggregate
// only where the projection is for each of a type. Elsewhere it is a value that events are looked for by: it belongs to no stream, and
// no erasure could find it.
func (c *call) keptPath() string {
	path := c.request.URL.Path
	name, id, ok := strings.Cut(strings.TrimPrefix(path, viewPrefix), "/")
	if !ok || !strings.HasPrefix(path, viewPrefix) || id == "_count" || id == "_stream" {
		return path
	}
	if c.api.Projections != nil {
		if named, err := c.api.Projections.IsNamed(c.request.Context(), c.tenant, name); err == nil && named {
			return path
		}
	}
	path = viewPrefix + name + "/{id}"
	if strings.HasSuffix(c.route, "/stream") {
		path += "/stream"
	}
	return path
}

// loggedPath is the path of a request as it is logged, where no erasure looks for anything: as it is kept of a failure, and where an identifier is
// none, which may be anything that somebody takes for one, the pattern of the route.
func (c *call) loggedPath() string {
	if c.failure != nil && c.failure.Code == j17.CodeInvalidIdentifier {
		return c.route
	}
	return c.keptPath()
}

// reportFault keeps what there is to know about a request that failed through the server's fault.
func (c *call) reportFault(id, path string, e *j17.Error, err error, stack string) {
	said := *e
	said.Err = nil
	f := control.Fault{
		ID: id, Code: e.Code, Status: StatusOf(e.Code), Message: j17.Record(&said), Stack: stack,
		Method: c.request.Method, Route: c.route, Path: path, Instance: c.instance, Environment: c.env,
		Principal: c.principal.ID, RequestID: c.requestID, CorrelationID: c.correlationID, Version: c.api.Version,
	}
	if e.IsPlain() {
		f.Message = e.Message
	}
	if cause := j17.Record(err); cause != f.Message {
		f.Cause = cause
	}
	c.api.Registry.Faults.Report(f)
}
