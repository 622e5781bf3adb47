package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/plane/auth"
	"j17/internal/plane/control"
)

// accountHandlers let operators in and show them their own accounts.
type accountHandlers struct {
	auth     *auth.Authenticator
	registry *control.Registry
}

// routes are those of the caller.
func (h *accountHandlers) routes() []route {
	own := need{in: oneself}
	return []route{
		{controlSite, get, "/setup", open, need{}, "", h.setupPage, operation{
			id: "getSetupPage", about: "Get the form that creates the first operator", gives: file{"text/html"},
		}},
		{controlSite, post, "/api/setup", open, need{}, "", h.setup, operation{
			id: "setup", about: "Create the first operator", body: wire.Setup{}, gives: wire.SetUp{}, made: true,
		}},
		{controlSite, post, "/api/login", open, need{}, "", h.login, operation{
			id: "login", about: "Log in and get a token", body: wire.Login{}, gives: wire.LoggedIn{},
		}},
		{controlSite, post, "/api/logout", operator, own, "", h.logout, operation{
			id: "logout", about: "Invalidate the token",
		}},
		{controlSite, get, "/api/me", operator, own, "", h.me, operation{
			id: "getMe", about: "Get the operator who sends the request", gives: wire.Operator{},
		}},
		{controlSite, post, "/api/me/password", operator, own, "operator.set_password", h.changePassword, operation{
			id: "changePassword", about: "Change your own password", body: wire.OwnPassword{},
		}},
	}
}

func (h *accountHandlers) login(c *call, w http.ResponseWriter) error {
	var body wire.Login
	if err := c.decode(w, &body); err != nil {
		return err
	}
	s, err := h.auth.Login(c.request.Context(), body.Email, body.Password, c.clientAddress())
	if err != nil {
		h.loginFailed(c, body.Email, err)
		return err
	}
	c.principal = j17.Principal{Kind: j17.Operator, ID: s.Operator.ID, Role: string(s.Operator.Role)}
	if err := h.registry.Audit.Add(c.actorContext(), control.Record{
		Action: "operator.login", Target: s.Operator.ID,
	}); err != nil {
		c.notAudited("operator.login", err) // A full disk must not keep operators out who want to make room.
	}
	return c.answer(w, http.StatusOK, wire.LoggedIn{
		Token: s.Token, ExpiresAt: s.ExpiresAt, Operator: s.Operator.Wire(),
	})
}

// loginFailed records an attempt to log in that failed.
func (h *accountHandlers) loginFailed(c *call, email string, err error) {
	code := j17.CodeOf(err)
	c.api.Logger.LogAttrs(c.request.Context(), slog.LevelWarn, "login failed",
		slog.String("address", c.clientAddress().String()), slog.String("code", string(code)),
		slog.String("request_id", c.requestID))
	if code != j17.CodeUnauthorized {
		return // The password was not looked at.
	}
	if err := h.registry.Audit.AddFailedLogin(context.WithoutCancel(c.actorContext()), email, code); err != nil {
		c.notAudited("operator.login", err)
	}
}

func (h *accountHandlers) setup(c *call, w http.ResponseWriter) error {
	var body wire.Setup
	if err := c.decode(w, &body); err != nil {
		return err
	}
	op, err := h.auth.Setup(c.actorContext(), body.Token, body.Email, body.Password, c.clientAddress())
	if err != nil {
		c.api.Logger.LogAttrs(c.request.Context(), slog.LevelWarn, "setup failed",
			slog.String("address", c.clientAddress().String()), slog.String("code", string(j17.CodeOf(err))),
			slog.String("request_id", c.requestID))
		return err
	}
	return c.answer(w, http.StatusCreated, wire.SetUp{Operator: op.Wire()})
}

func (h *accountHandlers) logout(c *call, w http.ResponseWriter) error {
	if c.session != "" { // by a cookie: then there is no token
		return c.api.sessions.end(c, w)
	}
	token, err := bearer(c.request)
	if err != nil {
		return err
	}
	if err := h.auth.Logout(c.actorContext(), token); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

func (h *accountHandlers) me(c *call, w http.ResponseWriter) error {
	op, ok := h.registry.Operators.ByID(c.principal.ID)
	if !ok {
		return j17.Errorf(j17.CodeUnauthorized, "Invalid token")
	}
	return c.answer(w, http.StatusOK, op.Wire())
}

func (h *accountHandlers) changePassword(c *call, w http.ResponseWriter) error {
	var body wire.OwnPassword
	if err := c.decode(w, &body); err != nil {
		return err
	}
	err := h.auth.ChangePassword(c.actorContext(), c.principal.ID, body.Current, body.New, c.clientAddress())
	if e, ok := errors.AsType[*j17.Error](err); ok && e.Path == "password" {
		return e.At("new_password")
	}
	return c.done(w, http.StatusOK, nil, err)
}

func (h *operatorHandlers) rotateSigningKey(c *call, w http.ResponseWriter) error {
	var body wire.KeyRotation
	if err := c.decodeOptional(w, &body); err != nil {
		return err
	}
	if err := h.registry.Secrets.RotateSigningKey(c.actorContext(), body.Revoke); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}
