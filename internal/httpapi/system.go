package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/control"
	"j17/internal/engine"
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

// maxAdvance bounds one move of a development server's clock.
const maxAdvance = 10 * 365 * 24 * time.Hour

// advanceClock is POST /_dev/clock/advance on a development server.
func (c *call) advanceClock(w http.ResponseWriter) error {
	if err := c.needRight("", control.RightManage); err != nil {
		return err
	}
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
			if plain, err := strconv.Unquote(name); err == nil {
				name = plain
			}
			return engine.UnknownField("", name, members(reflect.TypeOf(into).Elem()))
		}
		return j17.Errorf(j17.CodeInvalidField, "The request body must be a JSON object")
	}
	return nil
}

// members returns what the members of a struct are called in JSON.
func members(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}
