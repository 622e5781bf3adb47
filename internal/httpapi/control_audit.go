package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"j17"
	"j17/internal/control"
)

// auditQuery reads which records are asked for, and checks that the operator may see them.
func (c *call) auditQuery(more ...string) (control.AuditQuery, map[string]string, error) {
	var q control.AuditQuery
	registry, who := c.api.Registry, c.principal.ID
	known := append([]string{"actor", "action", "target", "outcome", "from", "to"}, more...)
	q.Instance = c.request.PathValue("id")
	if q.Instance == "" {
		known = append(known, "instance")
	} else if err := c.needRight(q.Instance, control.RightAudit); err != nil {
		return q, nil, err
	}
	p, err := parameters(c.request, known...)
	if err != nil {
		return q, nil, err
	}
	if q.Instance == "" {
		q.Instance = p["instance"] // also one that is deleted: the log outlives it
		if !registry.Operators.May(who, "", control.RightAudit) {
			q.Visible = func(instance string) bool { return registry.Operators.May(who, instance, control.RightAudit) }
			op, _ := registry.Operators.ByID(who)
			if !slices.ContainsFunc(op.Instances, q.Visible) {
				return q, nil, j17.Errorf(j17.CodeForbidden, "This needs the right 'audit', which you have for no instance. Ask a platform admin for it.")
			}
		}
	}
	q.Actor, q.Action, q.Target, q.Outcome = p["actor"], p["action"], p["target"], control.Outcome(p["outcome"])
	if q.From, err = timeParameter(p, "from"); err != nil {
		return q, nil, err
	}
	q.To, err = timeParameter(p, "to")
	return q, p, err
}

// listAudit is GET /api/audit and GET /api/instances/{id}/audit: the newest records first.
func (c *call) listAudit(w http.ResponseWriter) error {
	q, p, err := c.auditQuery("limit", "start")
	if err != nil {
		return err
	}
	limit := defaultCount
	if v, ok := p["limit"]; ok {
		if limit, err = strconv.Atoi(v); err != nil || limit < 1 || limit > maxCount {
			return j17.Errorf(j17.CodeInvalidParameter, "limit must be a whole number from 1 to %d", maxCount).At("limit")
		}
	}
	q.Start = p["start"]
	records, next, err := c.api.Registry.Audit.List(c.request.Context(), q, limit)
	if err != nil {
		return err
	}
	if records == nil {
		records = []control.Record{}
	}
	var cursor *string
	if next != "" {
		cursor = &next
	}
	return c.answer(w, http.StatusOK, nil, member{"records", records}, member{"next", cursor})
}

// exportAudit is GET /api/audit/export and GET /api/instances/{id}/audit/export: one record a line, the newest first.
func (c *call) exportAudit(w http.ResponseWriter) error {
	q, _, err := c.auditQuery()
	if err != nil {
		return err
	}
	for rec, err := range c.api.Registry.Audit.Export(c.request.Context(), q) {
		if err == nil {
			var line []byte
			if line, err = marshal(rec); err == nil {
				c.startLines(w)
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

// startLines begins an answer of JSON lines.
func (c *call) startLines(w http.ResponseWriter) {
	if c.status != 0 {
		return
	}
	c.status = http.StatusOK
	h := w.Header()
	h.Set("Content-Type", typeLines)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}

// getFault is GET /api/errors/{error_id} and the administration's GET errors/{error_id}, which knows the errors of its
// environment only.
func (c *call) getFault(w http.ResponseWriter) error {
	if c.instance == "" {
		if err := c.needRight("", control.RightOperate); err != nil {
			return err
		}
	}
	if err := noParameters(c.request); err != nil {
		return err
	}
	f, err := c.api.Registry.Faults.ByID(c.request.Context(), c.request.PathValue("error_id"))
	if c.instance == "" && j17.CodeOf(err) == j17.CodeNotFound {
		if raw := c.faultElsewhere(); raw != nil {
			return c.answer(w, http.StatusOK, nil, member{"failure", raw})
		}
	}
	if err == nil && c.instance != "" && (f.Instance != c.instance || f.Environment != c.env) {
		err = j17.Errorf(j17.CodeNotFound, "Nothing is known about an error with this id in this environment.")
	}
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil, member{"failure", f})
}

// faultElsewhere asks all workers for the error that the path names; nil where none knows it.
func (c *call) faultElsewhere() json.RawMessage {
	if c.api.Cluster == nil || c.api.Cluster.Node != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.request.Context(), replicaTime)
	defer cancel()
	nodes := c.api.Registry.Nodes.All()
	found := make(chan json.RawMessage, len(nodes))
	for _, n := range nodes {
		go func() {
			var body struct {
				Failure json.RawMessage `json:"failure"`
			}
			resp, err := c.askNode(ctx, n, "/internal/control/errors/"+url.PathEscape(c.request.PathValue("error_id")))
			if err == nil {
				if resp.StatusCode != http.StatusOK || json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxSmallBody)).Decode(&body) != nil {
					body.Failure = nil
				}
				_ = resp.Body.Close() // read as far as it matters
			}
			found <- body.Failure
		}()
	}
	for range nodes {
		if raw := <-found; raw != nil {
			return raw
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
	return c.answer(w, http.StatusOK, nil, member{"failure", f})
}

// faultPattern is the route of one failed request of an environment.
const faultPattern = "errors/{error_id}"

// faultHere reports whether it was this server that failed, and not the worker that has the environment.
func (c *call) faultHere() bool {
	f, err := c.api.Registry.Faults.ByID(c.request.Context(), c.request.PathValue("error_id"))
	return err == nil && f.Instance == c.instance && f.Environment == c.env
}

// reportFault keeps what there is to know about a request that failed through the server's fault.
func (c *call) reportFault(id string, e *j17.Error, err error, stack string) {
	f := control.Fault{
		ID: id, Code: e.Code, Status: StatusOf(e.Code), Message: e.Message, Stack: stack,
		Method: c.request.Method, Route: c.route, Path: c.request.URL.Path, Instance: c.instance, Environment: c.env,
		Principal: c.principal.ID, RequestID: c.requestID, CorrelationID: c.correlationID, Version: c.api.Version,
	}
	if cause := err.Error(); cause != e.Message {
		f.Cause = cause
	}
	c.api.Registry.Faults.Report(f)
}
