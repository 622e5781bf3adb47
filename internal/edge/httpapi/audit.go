package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"

	"j17"
	"j17/internal/plane/control"
)

// actorContext returns the request's context with who acts, for the audit log.
func (c *call) actorContext() context.Context {
	a := control.Actor{Kind: control.ActorNobody, Address: c.clientAddress().String()}
	switch c.principal.Kind {
	case j17.Operator:
		a.Kind, a.ID = control.ActorOperator, c.principal.ID
		if op, ok := c.api.Registry.Operators.ByID(c.principal.ID); ok {
			a.Email = op.Email
		}
	case j17.Node:
		a.Kind = control.ActorNode
		if c.actor.Kind != "" {
			a = c.actor
		}
	case j17.Anonymous, j17.APIKey:
	}
	return control.WithActor(c.request.Context(), a, c.requestID)
}

// recordFailure adds an attempt to the audit log, unless it was malformed or one of many like it. Should that fail too, there is nothing to add to
// the error itself.
func (c *call) recordFailure(rec control.Record, err error) {
	rec.Code, rec.Outcome = j17.CodeOf(err), control.Refused
	rec.Target = c.api.Registry.Faults.Redact(rec.Target) // which may be a token, pasted where its id belongs
	switch status := StatusOf(rec.Code); {
	case status >= http.StatusInternalServerError:
		rec.Outcome = control.Failed
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusTooManyRequests:
		return
	}
	if _, ok := c.api.Registry.Instances.ByID(rec.Target); ok {
		rec.Instance = rec.Target
	} else if key, ok := c.api.Registry.Keys.ByID(rec.Target); ok {
		rec.Instance, rec.Environment = key.Instance, key.Environment
	}
	silent, ok := c.api.attempts.admit(attempt{c.principal.ID, rec.Action, rec.Code}, c.api.Clock.Now())
	if !ok {
		return
	}
	rec.Details = withSilent(rec.Details, silent)
	if err := c.api.Registry.Audit.Add(context.WithoutCancel(c.actorContext()), rec); err != nil {
		c.notAudited(rec.Action, err)
	}
}

func (c *call) notAudited(action string, err error) {
	c.api.Logger.LogAttrs(c.request.Context(), slog.LevelWarn, "an attempt could not be added to the audit log",
		slog.String("action", action), slog.String("request_id", c.requestID), slog.Any("error", err))
}

// attempted makes the audit log tell of an attempt at an action that came to nothing; "" is none. The dry run of a deployment is
// no attempt.
func (c *call) attempted(action string, err error) {
	if action == "" {
		return
	}
	if strings.HasPrefix(action, "spec.") && c.triesOnly() {
		return
	}
	rec := control.Record{Action: action, Target: c.request.PathValue("id")}
	if rec.Target == "" {
		rec.Target = cmp.Or(c.request.PathValue("name"), c.request.PathValue("scheduled_id"))
		rec.Instance, rec.Environment = c.instance, c.env
	}
	c.recordFailure(rec, err)
}
