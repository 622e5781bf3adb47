package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/value"
)

// maxSmallBody bounds the bodies of requests that carry no events.
const maxSmallBody = 16 << 10

func parseQuery(raw string) (url.Values, error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, j17.Errorf(j17.CodeInvalidParameter, "The query string is malformed")
	}
	return q, nil
}

// root is GET /: what this server is.
func (c *call) root(w http.ResponseWriter) error {
	b := append([]byte(`{"ok":true,"service":"j17","version":`), strconv.Quote(c.api.Version)...)
	return c.reply(w, http.StatusOK, append(b, '}'))
}

// live is GET /livez: the process answers.
func (c *call) live(w http.ResponseWriter) error {
	return c.reply(w, http.StatusOK, []byte(`{"ok":true}`))
}

// ready is GET /readyz: the server takes writes.
func (c *call) ready(w http.ResponseWriter) error {
	select {
	case <-c.api.draining:
		return j17.Errorf(j17.CodeUnavailable, "The server is shutting down")
	default:
	}
	if s := c.api.Store.Status(); !s.Writable {
		return j17.Errorf(j17.CodeUnavailable, "The server takes no writes: %s", s.Reason)
	}
	return c.live(w)
}

// login is POST /api/login on the control host.
func (c *call) login(w http.ResponseWriter) error {
	var body struct {
		Email    *string `json:"email"`
		Password *string `json:"password"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if body.Email == nil || body.Password == nil {
		return j17.Errorf(j17.CodeMissingField, "'email' and 'password' must be given as strings")
	}
	s, err := c.api.Auth.Login(c.request.Context(), *body.Email, *body.Password, c.clientAddress())
	if err != nil {
		return err
	}
	raw, err := json.Marshal(struct {
		OK        bool   `json:"ok"`
		Token     string `json:"token"`
		ExpiresAt int64  `json:"expires_at"`
	}{true, s.Token, s.ExpiresAt})
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return c.reply(w, http.StatusOK, raw)
}

// maxAdvance bounds one move of a development server's clock.
const maxAdvance = 10 * 365 * 24 * time.Hour

// advanceClock is POST /_dev/clock/advance on a development server.
func (c *call) advanceClock(w http.ResponseWriter) error {
	var body struct {
		By string `json:"by"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	by, err := time.ParseDuration(body.By)
	if err != nil || by < 0 || by > maxAdvance {
		return j17.Errorf(j17.CodeInvalidField, "'by' must be a duration such as \"90s\", \"25h\" or \"1h30m\"; the clock moves forward only, by ten years at most").At("by")
	}
	now, err := c.api.AdvanceClock(by)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(struct {
		OK  bool      `json:"ok"`
		Now time.Time `json:"now"`
	}{true, now})
	if err != nil {
		return err
	}
	return c.reply(w, http.StatusOK, raw)
}

// decode reads a small JSON object with known members only.
func (c *call) decode(w http.ResponseWriter, into any) error {
	raw, err := c.readBody(w, maxSmallBody)
	if err != nil {
		return err
	}
	if _, err := value.ParseString(raw); err != nil {
		return invalidJSON(err)
	}
	d := json.NewDecoder(strings.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			return j17.Errorf(j17.CodeInvalidField, "'%s' must not be a %s", wrong.Field, wrong.Value).At(wrong.Field)
		}
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return j17.Errorf(j17.CodeUnknownField, "Unknown field %s", name)
		}
		return j17.Errorf(j17.CodeInvalidField, "The request body must be a JSON object")
	}
	return nil
}
