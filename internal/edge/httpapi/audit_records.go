package httpapi

import (
	"context"
	"log/slog"

	"j17"
	"j17/internal/plane/control"
)

// actorContext returns the request's context with the actor, for the audit log.
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

// record adds what was done to the audit log, with the environment that the request is about.
func (c *call) record(action, target string, details map[string]string) {
	c.addRecord(control.Record{
		Action: action, Instance: c.instance, Environment: c.env, Target: target, Details: details,
	})
}

// addRecord adds a record to the audit log, even if the client has gone. A failure is only logged: what was done is
// done.
func (c *call) addRecord(rec control.Record) {
	if err := c.api.Registry.Audit.Add(context.WithoutCancel(c.actorContext()), rec); err != nil {
		c.notAudited(rec.Action, err)
	}
}

// notAudited logs that the audit log lacks a record.
func (c *call) notAudited(action string, err error) {
	c.api.Logger.LogAttrs(c.request.Context(), slog.LevelWarn, "an attempt could not be added to the audit log",
		slog.String("action", action), slog.String("request_id", c.requestID), slog.Any("error", err))
}
