package httpapi

import (
	"cmp"
	"net/http"

	"j17/internal/base/wire"
	"j17/internal/plane/control"
)

// auditHandlers show what was done and what went wrong.
type auditHandlers struct {
	registry *control.Registry
}

// routes show what was done and what went wrong.
func (h *auditHandlers) routes() []route {
	all, one := need{control.RightAudit, someInstance}, need{control.RightAudit, instance}
	return []route{
		{controlSite, get, "/api/audit", operator, all, "", h.listAudit, operation{
			id: "listRecords", about: "List the records of the audit log, newest first",
			query: append(audited(), anyInstance(), limited(), cursor()), gives: wire.Records{},
		}},
		{controlSite, get, "/api/audit/export", operator, all, "", h.exportAudit, operation{
			id: "exportRecords", about: "Export the audit log, one record per line", query: append(audited(), anyInstance()),
			gives: linesOf{wire.Record{}},
		}},
		{controlSite, get, "/api/instances/{id}/audit", operator, one, "", h.listAudit, operation{
			id: "listInstanceRecords", about: "List the records of the audit log of an instance",
			query: append(audited(), limited(), cursor()), gives: wire.Records{},
		}},
		{controlSite, get, "/api/instances/{id}/audit/export", operator, one, "", h.exportAudit, operation{
			id: "exportInstanceRecords", about: "Export the audit log of an instance, one record per line", query: audited(),
			gives: linesOf{wire.Record{}},
		}},
		{
			controlSite, get, "/api/" + faultPattern, operator,
			need{control.RightOperate, aServer},
			"", h.getFault,
			operation{
				id: "getError", about: "Get the error of a failed request", gives: wire.Failed{},
			},
		},
	}
}

// adminRoutes show what went wrong.
func (h *auditHandlers) adminRoutes() []route {
	inspect := need{control.RightInspect, instance}
	return []route{
		{0, get, faultPattern, operator, inspect, "", h.getFault, operation{
			id: "getEnvironmentError", about: "Get the error of a failed request", gives: wire.Failed{},
		}},
	}
}

// auditQuery is which records are asked for, of those that the operator may see.
func (*auditHandlers) auditQuery(c *call) control.AuditQuery {
	q := control.AuditQuery{
		Instance: cmp.Or(c.instance, c.query["instance"]), // also a deleted one: the log outlives it
		Actor:    c.query["actor"], Action: c.query["action"], Target: c.query["target"],
		Outcome: control.Outcome(c.query["outcome"]),
		From:    c.query.day("from"), To: c.query.day("to"), Start: c.query["start"],
	}
	if c.instance == "" && !c.api.guard.may(c, "", control.RightAudit) {
		q.Visible = func(instance string) bool { return c.api.guard.may(c, instance, control.RightAudit) }
	}
	return q
}

// listAudit is GET /api/audit and GET /api/instances/{id}/audit: the newest records first.
func (h *auditHandlers) listAudit(c *call, w http.ResponseWriter) error {
	records, next, err := h.registry.Audit.List(
		c.request.Context(), h.auditQuery(c), c.query.number("limit", defaultCount),
	)
	return page(c, w, "records", wire.Each(records, (*control.Record).Wire), next, err)
}

// exportAudit is GET /api/audit/export and GET /api/instances/{id}/audit/export: one record a line, the newest first.
func (h *auditHandlers) exportAudit(c *call, w http.ResponseWriter) error {
	for rec, err := range h.registry.Audit.Export(c.request.Context(), h.auditQuery(c)) {
		if err == nil {
			var line []byte
			if line, err = marshal(rec.Wire()); err == nil {
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
			panic(http.ErrAbortHandler) // The answer has begun: only breaking it off shows that it is incomplete.
		}
	}
	c.startLines(w)
	return nil
}
