package httpapi

import (
	"iter"
	"net/http"
	"strconv"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/core/fold"
)

// readHandlers read aggregates: their ids, states and events.
type readHandlers struct {
	engine *engine.Engine
}

// routes read aggregates.
func (h *readHandlers) routes() []route {
	return []route{
		{dataSite, get, "/{type}", read, need{}, "", h.listOrSingleton, operation{
			id: "listIDs", about: "List the ids of an aggregate type, or get the states of a singleton", query: counted(),
			gives: either{wire.IDs{}, wire.Singleton{}},
		}},
		{dataSite, get, "/{type}/{id}", read, need{}, "", h.aggregate, operation{
			id: "getState", about: "Get the state of an aggregate, now or in the past", query: moments(),
			gives: wire.State{},
		}},
		{dataSite, get, "/{type}/{id}/length", read, need{}, "", h.length, operation{
			id: "getLength", about: "Count the events of an aggregate", gives: wire.Length{},
		}},
		{dataSite, get, "/{type}/{id}/events", read, need{}, "", h.events, operation{
			id: "listEvents", about: "List the events of an aggregate", query: countedEvents(),
			gives: either{wire.Events{}, linesOf{wire.Event{}}}, headers: nextHeader(),
		}},
	}
}

// listOrSingleton is GET /{type}: the ids of an aggregate type, or the states of a declared singleton by type.
func (h *readHandlers) listOrSingleton(c *call, w http.ResponseWriter) error {
	// A name that is a singleton's is not also that of a type.
	name := c.request.PathValue("type")
	if !h.engine.HasType(c.tenant, name) {
		states, ok, err := h.engine.Singleton(c.request.Context(), c.tenant, name)
		if err != nil {
			return err
		}
		if ok {
			for given := range c.query {
				return unknownParameter(given, nil)
			}
			return h.singleton(c, w, states)
		}
	}

	ids, more, err := h.engine.IDs(c.request.Context(), c.tenant, name, c.query["start"], c.query.number("count", defaultCount))
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
	next := ""
	if more {
		next = ids[len(ids)-1]
	}
	return c.page(w, append(appendNext(append(b, ']'), next), '}'))
}

func (*readHandlers) singleton(c *call, w http.ResponseWriter, states []fold.State) error {
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
	return c.page(w, append(b, `}}}`...))
}

func (h *readHandlers) aggregate(c *call, w http.ResponseWriter) error {
	r := c.request
	o := engine.LoadOptions{Replay: c.query.isSet("synchronous"), Until: c.moment("at")}
	if _, ok := c.query["length"]; ok {
		o.Length = new(uint64(c.query.number("length", 0)))
	}
	s, err := h.load(c, r.PathValue("type"), r.PathValue("id"), o)
	if err != nil {
		return err
	}
	if known, err := c.known(w, s.EntityTag); known || err != nil {
		return err
	}
	c.show(w.Header(), "Content-Type", typeJSON)
	const head, most = `{"ok":true,"data":`, 128 // of what stands around a state without names
	if len(s.JSON) <= smallAnswer {
		b := append(make([]byte, 0, len(s.JSON)+most), head...)
		c.write(w, http.StatusOK, appendAbout(append(b, s.JSON...), &s))
	} else {
		c.write(w, http.StatusOK, []byte(head), s.JSON, appendAbout(make([]byte, 0, most), &s))
	}
	return nil
}

// appendAbout appends what stands behind a state.
func appendAbout(b []byte, s *fold.State) []byte {
	b = append(b, `,"metadata":{"length":`...)
	b = strconv.AppendUint(b, s.Length, 10)
	if s.Names != (j17.Names{}) {
		b = append(b, `,"id":`...)
		b = value.AppendString(b, s.Key.ID)
		b = appendNames(b, s.Names)
	}
	return append(b, `}}`...)
}

// load reads a state for which there is room among the replies.
func (h *readHandlers) load(c *call, typ, id string, o engine.LoadOptions) (fold.State, error) {
	for waited := false; ; waited = true {
		s, err := h.engine.Load(c.request.Context(), c.tenant, typ, id, o)
		c.slot.Give() // what follows takes as long as the client likes
		size := int64(len(s.JSON))
		if err != nil || waited || size <= unaccounted || c.tryTake(c.api.resources.replies, size) {
			return s, err
		}
		s = fold.State{} // or it would be in memory while it waits
		if err := c.take(c.api.resources.replies, size, "such a reply"); err != nil {
			return s, err
		}
	}
}

func (h *readHandlers) length(c *call, w http.ResponseWriter) error {
	r := c.request
	n, err := h.engine.Length(r.Context(), c.tenant, r.PathValue("type"), r.PathValue("id"))
	if err != nil {
		return err
	}
	b := strconv.AppendUint([]byte(`{"ok":true,"length":`), n, 10)
	return c.page(w, append(b, '}'))
}

// events is GET /{type}/{id}/events: a page of the stream, each event as its canonical bytes.
func (h *readHandlers) events(c *call, w http.ResponseWriter) error {
	r := c.request
	page := &eventPage{c: c, after: c.query.streamID("start"), count: c.query.number("count", defaultCount), lines: acceptsLines(r.Header)}
	page.read = func(after j17.StreamID, count int) (iter.Seq2[*j17.Event, error], error) {
		return h.engine.Events(r.Context(), c.tenant, r.PathValue("type"), r.PathValue("id"), after, count)
	}
	if err := page.measure(); err != nil {
		return err
	}
	return page.write(w)
}
