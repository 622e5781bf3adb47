package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/engine"
	"j17/internal/spec/diag"
	"j17/internal/value"
)

// Page sizes of lists.
const (
	defaultCount = 100
	maxCount     = 1000
)

// parameters reads the query of a request, in which only known names may stand: a misspelt one would be ignored and
// answer something else than was asked.
func parameters(r *http.Request, known ...string) (map[string]string, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	found := make(map[string]string, len(query))
	for name, values := range query {
		if !slices.Contains(known, name) {
			e := j17.Errorf(j17.CodeInvalidParameter, "Unknown query parameter; known here: %s", orNone(known))
			if near := diag.Nearest(name, known); near != "" {
				e.Message = "Unknown query parameter; did you mean '" + near + "'?"
			}
			return nil, e.At(safe(name))
		}
		if len(values) > 1 {
			return nil, j17.Errorf(j17.CodeInvalidParameter, "The query parameter is given more than once").At(name)
		}
		found[name] = values[0]
	}
	return found, nil
}

func noParameters(r *http.Request) error {
	_, err := parameters(r)
	return err
}

func orNone(known []string) string {
	if len(known) == 0 {
		return "none"
	}
	return strings.Join(known, ", ")
}

// safe is a name from outside that may stand in an answer.
func safe(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "?")
}

// listOrSingleton is GET /{type}: the ids of an aggregate type, or the states of a declared singleton by type.
func (c *call) listOrSingleton(w http.ResponseWriter) error {
	name := c.request.PathValue("type")
	if !c.api.Engine.HasType(c.tenant, name) {
		states, ok, err := c.api.Engine.Singleton(c.request.Context(), c.tenant, name)
		if err == nil && ok {
			if err = noParameters(c.request); err == nil {
				return c.singleton(w, states)
			}
		}
		if err != nil {
			return err
		}
	}
	p, err := parameters(c.request, "start", "count")
	if err != nil {
		return err
	}
	count, err := countOf(p)
	if err != nil {
		return err
	}
	ids, more, err := c.api.Engine.IDs(c.request.Context(), c.tenant, name, p["start"], count)
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, 64+40*len(ids)), `{"ok":true,"ids":[`...)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = value.AppendString(b, id)
	}
	b = append(b, `],"next":`...)
	if more {
		b = value.AppendString(b, ids[len(ids)-1])
	} else {
		b = append(b, "null"...)
	}
	return c.page(w, typeJSON, append(b, '}'))
}

func (c *call) singleton(w http.ResponseWriter, states []engine.State) error {
	b := []byte(`{"ok":true,"data":{`)
	for i, s := range states {
		if i > 0 {
			b = append(b, ',')
		}
		b = value.AppendString(b, s.Key.Type)
		b = append(b, ':')
		b = append(b, s.JSON...)
	}
	b = append(b, `},"metadata":{"lengths":{`...)
	for i, s := range states {
		if i > 0 {
			b = append(b, ',')
		}
		b = value.AppendString(b, s.Key.Type)
		b = append(b, ':')
		b = strconv.AppendUint(b, s.Length, 10)
	}
	return c.page(w, typeJSON, append(b, `}}}`...))
}

// aggregate is GET /{type}/{id}.
func (c *call) aggregate(w http.ResponseWriter) error {
	r := c.request
	p, err := parameters(r, "at", "length", "synchronous")
	if err != nil {
		return err
	}
	var o engine.LoadOptions
	if s, ok := p["at"]; ok {
		at, err := strconv.ParseInt(s, 10, 64)
		if err != nil || at < 0 {
			return j17.Errorf(j17.CodeInvalidParameter, "'at' must be a time in whole Unix seconds, such as 1705312800").At("at")
		}
		o.Until = &at
	}
	if s, ok := p["length"]; ok {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return j17.Errorf(j17.CodeInvalidParameter, "'length' must be a number of events, 1 or more").At("length")
		}
		o.Length = &n
	}
	switch s, ok := p["synchronous"]; {
	case !ok, s == "false", s == "0":
	case s == "", s == "true", s == "1":
		o.Replay = true
	default:
		return j17.Errorf(j17.CodeInvalidParameter, "'synchronous' must be true or false").At("synchronous")
	}
	s, err := c.load(r.PathValue("type"), r.PathValue("id"), o)
	if err != nil {
		return err
	}
	if known, err := c.known(w, s.EntityTag); known || err != nil {
		return err
	}
	b := append(make([]byte, 0, 128), `,"metadata":{"length":`...)
	b = strconv.AppendUint(b, s.Length, 10)
	if s.Names != (j17.Names{}) {
		b = append(b, `,"id":`...)
		b = value.AppendString(b, s.Key.ID)
		b = appendNames(b, s.Names)
	}
	w.Header()["Content-Type"] = []string{typeJSON}
	c.write(w, http.StatusOK, []byte(`{"ok":true,"data":`), s.JSON, append(b, `}}`...))
	return nil
}

// load reads a state for which there is room among the replies.
func (c *call) load(typ, id string, o engine.LoadOptions) (engine.State, error) {
	for waited := false; ; waited = true {
		s, err := c.api.Engine.Load(c.request.Context(), c.tenant, typ, id, o)
		c.slot.Give() // what follows takes as long as the client likes
		size := int64(len(s.JSON))
		if err != nil || waited || size <= unaccounted || c.tryTake(c.api.room.replies, size) {
			return s, err
		}
		s = engine.State{} // or it would be in memory while it waits
		if err := c.take(c.api.room.replies, size, "such a reply"); err != nil {
			return s, err
		}
	}
}

// known sets the entity tag of what is read. If the client has that already, it answers so and reports true.
func (c *call) known(w http.ResponseWriter, tag string) (bool, error) {
	tags, err := entityTags(c.request.Header, "If-None-Match")
	if err != nil {
		return false, err
	}
	h := w.Header()
	h["Etag"] = []string{tag}
	h["Cache-Control"] = []string{"private, no-cache"}
	for _, t := range tags {
		if t == "*" || strings.TrimPrefix(t, "W/") == tag {
			c.status = http.StatusNotModified
			w.WriteHeader(http.StatusNotModified)
			return true, nil
		}
	}
	return false, nil
}

// page answers a read whose entity tag is a digest of what it answers.
func (c *call) page(w http.ResponseWriter, contentType string, body []byte) error {
	sum := sha256.Sum256(body)
	if known, err := c.known(w, `"`+hex.EncodeToString(sum[:8])+`"`); known || err != nil {
		return err
	}
	w.Header()["Content-Type"] = []string{contentType}
	c.write(w, http.StatusOK, body)
	return nil
}

// Content types of pages.
const (
	typeJSON  = "application/json"
	typeLines = "application/x-ndjson"
)

// length is GET /{type}/{id}/length.
func (c *call) length(w http.ResponseWriter) error {
	r := c.request
	if err := noParameters(r); err != nil {
		return err
	}
	n, err := c.api.Engine.Length(r.Context(), c.tenant, r.PathValue("type"), r.PathValue("id"))
	if err != nil {
		return err
	}
	b := strconv.AppendUint([]byte(`{"ok":true,"length":`), n, 10)
	return c.page(w, typeJSON, append(b, '}'))
}

// events is GET /{type}/{id}/events: a page of the stream, each event as its canonical bytes.
func (c *call) events(w http.ResponseWriter) error {
	r := c.request
	p, err := parameters(r, "start", "count")
	if err != nil {
		return err
	}
	count, err := countOf(p)
	if err != nil {
		return err
	}
	var after j17.StreamID
	if s, ok := p["start"]; ok {
		if after, err = j17.ParseStreamID(s); err != nil {
			return j17.Errorf(j17.CodeInvalidParameter, "'start' must be the stream_id of an event, such as 1706789012345-0").At("start")
		}
	}
	page := &eventPage{
		c: c, typ: r.PathValue("type"), id: r.PathValue("id"), after: after, count: count, lines: acceptsLines(r.Header),
	}
	if err := page.measure(); err != nil {
		return err
	}
	return page.write(w)
}

// acceptsLines reports whether the client asks for one event a line.
func acceptsLines(h http.Header) bool {
	for _, v := range h["Accept"] {
		for part := range strings.SplitSeq(v, ",") {
			media, _, _ := strings.Cut(part, ";")
			if strings.TrimSpace(media) == typeLines {
				return true
			}
		}
	}
	return false
}

func countOf(p map[string]string) (int, error) {
	s, ok := p["count"]
	if !ok {
		return defaultCount, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxCount {
		return 0, j17.Errorf(j17.CodeInvalidParameter, "'count' must be a number from 1 to %d", maxCount).At("count")
	}
	return n, nil
}
