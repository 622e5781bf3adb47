package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"j17"
	"j17/internal/control"
)

// controlRoutes is the table of the control plane's own routes.
func (a *API) controlRoutes() []route {
	row := func(method, pattern string, handle func(*call, http.ResponseWriter) error) route {
		if method != http.MethodGet {
			handle = bare(handle)
		}
		return route{controlSite, method, "/api/" + pattern, operator, handle}
	}
	return []route{
		{controlSite, http.MethodPost, "/api/login", open, bare((*call).login)},
		{controlSite, http.MethodPost, "/api/setup", open, bare((*call).setup)},
		row(http.MethodPost, "logout", (*call).logout),
		row(http.MethodGet, "me", (*call).me),
		row(http.MethodPost, "me/password", audited("operator.set_password", (*call).changePassword)),

		row(http.MethodGet, "operators", (*call).listOperators),
		row(http.MethodPost, "operators", audited("operator.create", (*call).createOperator)),
		row(http.MethodGet, "operators/{id}", (*call).getOperator),
		row(http.MethodPatch, "operators/{id}", audited("operator.set_role", (*call).changeOperator)),
		row(http.MethodDelete, "operators/{id}", audited("operator.delete", (*call).deleteOperator)),
		row(http.MethodPost, "operators/{id}/password", audited("operator.set_password", (*call).resetPassword)),
		row(http.MethodPost, "operators/{id}/revoke_tokens", audited("operator.revoke_tokens", (*call).revokeTokens)),
		row(http.MethodPut, "operators/{id}/grants/{instance}", audited("operator.grant", (*call).grant)),
		row(http.MethodDelete, "operators/{id}/grants/{instance}", audited("operator.withdraw", (*call).withdraw)),
		row(http.MethodPost, "signing_keys/rotate", audited("signing_key.rotate", (*call).rotateSigningKey)),

		row(http.MethodGet, "instances", (*call).listInstances),
		row(http.MethodPost, "instances", audited("instance.create", (*call).createInstance)),
		row(http.MethodGet, "instances/{id}", (*call).getInstance),
		row(http.MethodPatch, "instances/{id}", audited("instance.change", (*call).changeInstance)),
		row(http.MethodDelete, "instances/{id}", audited("instance.delete", (*call).deleteInstance)),
		row(http.MethodGet, "instances/{id}/operators", (*call).instanceOperators),
		row(http.MethodGet, "instances/{id}/usage", (*call).getUsage),
		row(http.MethodGet, "plans", (*call).listPlans),

		row(http.MethodGet, "instances/{id}/keys", (*call).listKeys),
		row(http.MethodPost, "instances/{id}/keys", audited("key.create", (*call).createKey)),
		row(http.MethodGet, "keys/{id}", (*call).getKey),
		row(http.MethodPost, "keys/{id}/rotate", audited("key.rotate", (*call).rotateKey)),
		row(http.MethodPost, "keys/{id}/schedule_revocation", audited("key.schedule_revocation", (*call).scheduleRevocation)),
		row(http.MethodDelete, "keys/{id}", audited("key.revoke", (*call).revokeKey)),

		row(http.MethodGet, "audit", (*call).listAudit),
		row(http.MethodGet, "audit/export", (*call).exportAudit),
		row(http.MethodGet, "instances/{id}/audit", (*call).listAudit),
		row(http.MethodGet, "instances/{id}/audit/export", (*call).exportAudit),
		row(http.MethodGet, "errors/{error_id}", (*call).getFault),
	}
}

// bare refuses parameters, which no change takes.
func bare(handle func(*call, http.ResponseWriter) error) func(*call, http.ResponseWriter) error {
	return func(c *call, w http.ResponseWriter) error {
		if err := noParameters(c.request); err != nil {
			return err
		}
		return handle(c, w)
	}
}

// login is POST /api/login.
func (c *call) login(w http.ResponseWriter) error {
	var body struct {
		Email    *string `json:"email"`
		Password *string `json:"password"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if err := required(given{"email", body.Email != nil}, given{"password", body.Password != nil}); err != nil {
		return err
	}
	s, err := c.api.Auth.Login(c.request.Context(), *body.Email, *body.Password, c.clientAddress())
	if err != nil {
		c.loginFailed(*body.Email, err)
		return err
	}
	c.principal = j17.Principal{Kind: j17.Operator, ID: s.Operator.ID, Role: string(s.Operator.Role)}
	if err := c.api.Registry.Audit.Add(c.acting(), control.Record{Action: "operator.login", Target: s.Operator.ID}); err != nil {
		c.notAudited("operator.login", err) // A full disk must not keep out who comes to make room.
	}
	return c.answer(w, http.StatusOK, nil,
		member{"token", s.Token}, member{"expires_at", s.ExpiresAt}, member{"operator", c.operatorRow(s.Operator)})
}

// loginFailed records an attempt to log in that failed.
func (c *call) loginFailed(email string, err error) {
	code := j17.CodeOf(err)
	c.api.Logger.LogAttrs(c.request.Context(), slog.LevelWarn, "login failed",
		slog.String("address", c.clientAddress().String()), slog.String("code", string(code)), slog.String("request_id", c.requestID))
	if code != j17.CodeUnauthorized {
		return // The password was not looked at.
	}
	if err := c.api.Registry.Audit.AddFailedLogin(context.WithoutCancel(c.acting()), email, code); err != nil {
		c.notAudited("operator.login", err)
	}
}

// setup is POST /api/setup.
func (c *call) setup(w http.ResponseWriter) error {
	var body struct {
		Token    *string `json:"token"`
		Email    *string `json:"email"`
		Password *string `json:"password"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if err := required(given{"token", body.Token != nil}, given{"email", body.Email != nil}, given{"password", body.Password != nil}); err != nil {
		return err
	}
	op, err := c.api.Auth.Setup(c.acting(), *body.Token, *body.Email, *body.Password, c.clientAddress())
	if err != nil {
		c.api.Logger.LogAttrs(c.request.Context(), slog.LevelWarn, "setup failed",
			slog.String("address", c.clientAddress().String()), slog.String("code", string(j17.CodeOf(err))), slog.String("request_id", c.requestID))
		return err
	}
	return c.answer(w, http.StatusCreated, nil, member{"operator", c.operatorRow(op)})
}

// logout is POST /api/logout.
func (c *call) logout(w http.ResponseWriter) error {
	token, err := bearer(c.request)
	if err != nil {
		return err
	}
	if err := c.api.Auth.Logout(c.acting(), token); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

// me is GET /api/me.
func (c *call) me(w http.ResponseWriter) error {
	if err := noParameters(c.request); err != nil {
		return err
	}
	op, ok := c.api.Registry.Operators.ByID(c.principal.ID)
	if !ok {
		return j17.Errorf(j17.CodeUnauthorized, "Invalid token")
	}
	return c.answer(w, http.StatusOK, c.operatorRow(op))
}

// changePassword is POST /api/me/password.
func (c *call) changePassword(w http.ResponseWriter) error {
	var body struct {
		Current *string `json:"current_password"`
		New     *string `json:"new_password"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if err := required(given{"current_password", body.Current != nil}, given{"new_password", body.New != nil}); err != nil {
		return err
	}
	err := c.api.Auth.ChangePassword(c.acting(), c.principal.ID, *body.Current, *body.New, c.clientAddress())
	if e, ok := errors.AsType[*j17.Error](err); ok && e.Path == "password" {
		return e.At("new_password")
	}
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

// rotateSigningKey is POST /api/signing_keys/rotate.
func (c *call) rotateSigningKey(w http.ResponseWriter) error {
	if err := c.needRight("", control.RightManage); err != nil {
		return err
	}
	var body struct {
		Revoke bool `json:"revoke"`
	}
	if err := c.decodeOptional(w, &body); err != nil {
		return err
	}
	if err := c.api.Registry.Secrets.RotateSigningKey(c.acting(), body.Revoke); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

// acting returns the request's context with who acts, for the audit log.
func (c *call) acting() context.Context {
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

// audited makes the log tell of attempts at an action that came to nothing. What succeeds is recorded where it happens.
func audited(action string, handle func(*call, http.ResponseWriter) error) func(*call, http.ResponseWriter) error {
	return func(c *call, w http.ResponseWriter) error {
		err := handle(c, w)
		if err != nil {
			c.recordFailure(control.Record{Action: action, Target: c.request.PathValue("id")}, err)
		}
		return err
	}
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
	if err := c.api.Registry.Audit.Add(context.WithoutCancel(c.acting()), rec); err != nil {
		c.notAudited(rec.Action, err)
	}
}

func (c *call) notAudited(action string, err error) {
	c.api.Logger.LogAttrs(c.request.Context(), slog.LevelWarn, "an attempt could not be added to the audit log",
		slog.String("action", action), slog.String("request_id", c.requestID), slog.Any("error", err))
}

// needRight reports whether the operator who asks has a right in an instance, "" for the server. An instance that they may
// not even see does not exist for them.
func (c *call) needRight(instance string, right control.Right) error {
	if instance == "" {
		if c.principal.Kind == j17.Operator && c.api.Registry.Operators.May(c.principal.ID, "", right) {
			return nil
		}
		return j17.Errorf(j17.CodeForbidden, "Only platform admins may do this.")
	}
	if _, ok := c.api.Registry.Instances.ByID(instance); !ok || !c.api.Registry.Operators.May(c.principal.ID, instance, control.RightView) {
		return j17.Errorf(j17.CodeNotFound, "There is no instance with this id. Ids of instances start with 'ins_'; GET /api/instances lists them.")
	}
	return c.authorizeOperator(instance, right)
}

// decodeOptional reads a small JSON object like decode, and nothing where there is no body.
func (c *call) decodeOptional(w http.ResponseWriter, into any) error {
	if c.request.ContentLength == 0 {
		return nil
	}
	return c.decode(w, into)
}

// timeParameter reads a time as RFC 3339 or as a date, which means its beginning in UTC.
func timeParameter(p map[string]string, name string) (time.Time, error) {
	v, ok := p[name]
	if !ok {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, v); err == nil {
			return t, nil
		}
	}
	return time.Time{}, j17.Errorf(j17.CodeInvalidParameter, "%s must be a date such as 2026-11-21 or a time such as 2026-11-21T08:00:00Z", name).At(name)
}
