package httpapi

import (
	"mime"
	"net/http"
	"strings"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/plane/auth"
	"j17/internal/plane/control"
)

// sessionHandlers begin and end the sessions of operators in browsers.
type sessionHandlers struct {
	auth     *auth.Authenticator
	registry *control.Registry
	// public is the path that a proxy puts in front of all others, without a slash at its end.
	public string
}

// routes are those of the session that a request's cookie names, and of all sessions of its operator.
func (h *sessionHandlers) routes() []route {
	own := need{in: oneself}
	return []route{
		{controlSite, post, "/api/sessions", open, need{}, "", h.begin, operation{
			id: "beginSession", about: "Sign in in a browser: with a password, or with a code that works once",
			body: wire.NewSession{}, gives: wire.SessionBegun{}, made: true,
		}},
		{controlSite, get, "/api/session", open, need{}, "", h.show, operation{
			id: "getSession", about: "Get who is signed in, with their rights; null where nobody is", gives: wire.SessionShown{},
		}},
		{controlSite, remove, "/api/session", open, need{}, "", h.end, operation{
			id: "endSession", about: "Sign out",
		}},
		{controlSite, get, "/api/me/sessions", operator, own, "", h.list, operation{
			id: "listMySessions", about: "List your own sessions", gives: wire.Sessions{},
		}},
		{controlSite, remove, "/api/me/sessions/{session}", operator, own, "operator.end_session", h.endOne, operation{
			id: "endMySession", about: "End one of your own sessions",
		}},
		{controlSite, post, "/api/me/login_codes", operator, own, "operator.create_login_code", h.createCode, operation{
			id: "createLoginCode", about: "Create a code that signs in once, within an hour", gives: wire.LoginCode{}, made: true,
		}},
	}
}

// The cookie of a session. Over TLS its name has a prefix for which browsers demand that no other host has set it.
const (
	sessionCookie       = "j17_session"
	secureSessionCookie = "__Host-" + sessionCookie
)

// cookieName is the name of the session's cookie where the client has sent the request to.
func (c *call) cookieName() string {
	if c.encrypted() {
		return secureSessionCookie
	}
	return sessionCookie
}

// setCookie makes the client keep the token of a session until it expires, or forget it where the token is "".
func (c *call) setCookie(w http.ResponseWriter, token string, lifetime time.Duration) {
	cookie := &http.Cookie{ //nolint:gosec // Secure is set wherever the connection allows it
		Name: c.cookieName(), Value: token, Path: "/", MaxAge: int(lifetime / time.Second), HttpOnly: true,
		Secure: c.encrypted(), SameSite: http.SameSiteStrictMode,
	}
	if token == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// sessionToken is the token of the session's cookie, "" where the request has none. With more than one of that name the
// first counts, as in net/http.
func (c *call) sessionToken() string {
	cookie, err := c.request.Cookie(c.cookieName())
	if err != nil {
		return ""
	}
	return cookie.Value
}

// sameOrigin reports whether a request that is authenticated by a cookie comes from a page of this very host. Reads may
// also come from the address bar.
func (c *call) sameOrigin() error {
	r := c.request
	site, said := r.Header.Get("Sec-Fetch-Site"), len(r.Header["Sec-Fetch-Site"]) > 0
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	typed := len(r.Header["Content-Type"]) > 0 || r.Method != http.MethodDelete
	switch {
	case reads && (site == "cross-site" || site == "same-site"):
	case reads:
		return nil
	case said && site != "same-origin", !said && r.Header.Get("Origin") != c.origin():
	case typed && !isJSON(r.Header.Get("Content-Type")):
		return j17.Errorf(j17.CodeForbiddenOrigin, "A request with the cookie of a session has to have the Content-Type application/json.").At("Content-Type")
	default:
		return nil
	}
	return j17.Errorf(j17.CodeForbiddenOrigin, "This request does not come from a page of this host: it has neither 'Sec-Fetch-Site: same-origin' nor this host's Origin. Sessions are for the dashboard's own pages; a program sends the token of POST /api/login.")
}

// isJSON reports whether a media type is that of JSON, or of lines of it.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || media == "application/x-ndjson")
}

// bySession reports whether a request is authenticated by a session cookie: below /api/ of the control host, and
// without any other credential.
func (c *call) bySession() bool {
	return c.control && len(c.request.Header["Authorization"]) == 0 && strings.HasPrefix(c.request.URL.Path, "/api/") &&
		c.sessionToken() != ""
}

// session authenticates the caller by the session cookie.
func (g *guard) session(c *call) error {
	if err := c.sameOrigin(); err != nil {
		return err
	}
	s, p, err := g.auth.Session(c.request.Context(), c.sessionToken())
	c.principal, c.session = p, s.ID
	return err
}

func (h *sessionHandlers) begin(c *call, w http.ResponseWriter) error {
	if err := c.sameOrigin(); err != nil {
		return err
	}
	var body wire.NewSession
	if err := c.decode(w, &body); err != nil {
		return err
	}

	// By a code, or by a password.
	var token string
	var s control.Session
	var op control.Operator
	var err error
	switch {
	case body.Code != "" && (body.Email != "" || body.Password != ""):
		return j17.Errorf(j17.CodeInvalidField, "Send a code, or an email and a password, and not both.").At("code")
	case body.Code == "" && body.Email == "":
		return j17.Errorf(j17.CodeMissingField, "'email' is missing. Send an email and a password, or a code.").At("email")
	case body.Code == "" && body.Password == "":
		return j17.Errorf(j17.CodeMissingField, "'password' is missing. Send an email and a password, or a code.").At("password")
	case body.Code != "":
		token, s, op, err = h.auth.RedeemCode(c.request.Context(), body.Code, c.clientAddress())
	default:
		token, s, op, err = h.auth.BeginSession(c.request.Context(), body.Email, body.Password, c.clientAddress())
	}
	if err != nil {
		c.api.accounts.loginFailed(c, body.Email, err)
		return err
	}

	c.principal = j17.Principal{Kind: j17.Operator, ID: op.ID, Role: string(op.Role)}
	if err := h.registry.Audit.Add(c.actorContext(), control.Record{
		Action: "operator.login", Target: op.ID, Details: map[string]string{"session": s.ID},
	}); err != nil {
		c.notAudited("operator.login", err) // as for a token
	}
	c.setCookie(w, token, control.SessionLifetime)
	return c.answer(w, http.StatusCreated, wire.SessionBegun{Operator: op.Wire(), ExpiresAt: s.ExpiresAt})
}

func (h *sessionHandlers) show(c *call, w http.ResponseWriter) error {
	w.Header().Set("Cache-Control", "no-store")
	if err := c.sameOrigin(); err != nil {
		return err
	}
	s, p, err := h.auth.Session(c.request.Context(), c.sessionToken())
	op, ok := h.registry.Operators.ByID(p.ID)
	if err != nil || !ok {
		return c.answer(w, http.StatusOK, wire.SessionShown{})
	}
	server, instances := h.registry.Operators.RightsOf(op)
	rights := wire.Rights{Server: rightNames(server), Instances: map[string][]string{}}
	for in, of := range instances {
		rights.Instances[in] = rightNames(of)
	}
	return c.answer(w, http.StatusOK, wire.SessionShown{
		Operator: &wire.OperatorRights{Operator: op.Wire(), Rights: rights}, ExpiresAt: s.ExpiresAt,
	})
}

func rightNames(rights []control.Right) []string {
	all := make([]string, len(rights))
	for i, r := range rights {
		all[i] = string(r)
	}
	return all
}

// end is DELETE /api/session. A missing session is no error: there is none afterwards either.
func (h *sessionHandlers) end(c *call, w http.ResponseWriter) error {
	if token := c.sessionToken(); token != "" {
		if err := c.sameOrigin(); err != nil {
			return err
		}
		if s, p, err := h.auth.Session(c.request.Context(), token); err == nil {
			c.principal = p
			if err := h.signOut(c, s.ID); err != nil {
				return err
			}
		}
	}
	c.setCookie(w, "", 0)
	return c.answer(w, http.StatusOK, nil)
}

// signOut ends the session of the caller.
func (h *sessionHandlers) signOut(c *call, id string) error {
	if err := h.registry.Sessions.End(c.actorContext(), c.principal.ID, id); err != nil &&
		j17.CodeOf(err) != j17.CodeNotFound {
		return err
	}
	c.record("operator.logout", c.principal.ID, map[string]string{"session": id})
	return nil
}

func (h *sessionHandlers) list(c *call, w http.ResponseWriter) error {
	all := []wire.Session{}
	for _, s := range h.registry.Sessions.List(c.principal.ID) {
		all = append(all, wire.Session{
			ID: s.ID, CreatedAt: s.CreatedAt, UsedAt: s.UsedAt, ExpiresAt: s.ExpiresAt, Address: s.Address,
			Current: s.ID == c.session,
		})
	}
	return c.answer(w, http.StatusOK, wire.Sessions{Sessions: all})
}

func (h *sessionHandlers) endOne(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("session")
	if err := h.registry.Sessions.End(c.actorContext(), c.principal.ID, id); err != nil {
		return err
	}
	c.record("operator.end_session", c.principal.ID, map[string]string{"session": id})
	return c.answer(w, http.StatusOK, nil)
}

func (h *sessionHandlers) createCode(c *call, w http.ResponseWriter) error {
	op, ok := h.registry.Operators.ByID(c.principal.ID)
	if !ok {
		return j17.Errorf(j17.CodeUnauthorized, "Invalid token")
	}
	code, expires, err := h.registry.Sessions.NewLoginCode(c.actorContext(), op)
	if err != nil {
		return err
	}
	c.record("operator.create_login_code", op.ID, nil)
	return c.answer(w, http.StatusCreated, wire.LoginCode{
		Code: code, Link: strings.TrimSuffix(c.origin(), "/") + h.public + "/ui/#login=" + code, ExpiresAt: expires,
	})
}
