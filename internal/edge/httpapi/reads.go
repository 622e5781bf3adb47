package httpapi

import (
	"iter"
	"net/http"
	"strconv"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/core/engine"
	"j17/internal/core/fold"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
)

// readHandlers read aggregates: their ids, states and events.
type readHandlers struct {
	engine   *engine.Engine
	registry *control.Registry
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

// adminRoutes are the same for operators, below the administration of the environment.
func (h *readHandlers) adminRoutes() []route {
	look := need{control.RightRead, instance}
	return []route{
		{0, get, "aggregates", operator, look, "", h.types, operation{
			id: "listAggregateTypes", about: "List the aggregate types of the spec, and those of earlier ones that have aggregates", gives: wire.AggregateTypes{},
		}},
		{0, get, "aggregates/{type}", operator, look, "", h.list, operation{
			id: "listAggregates", about: "List the aggregates of a type", query: prefixed(), gives: wire.Aggregates{},
		}},
		{0, get, "aggregates/{type}/{id}", operator, look, "", h.aggregate, operation{
			id: "getAggregate", about: "Get the state of an aggregate, now or in the past", query: moments(), gives: wire.State{},
		}},
		{0, get, "aggregates/{type}/{id}/length", operator, look, "", h.length, operation{
			id: "getAggregateLength", about: "Count the events of an aggregate", gives: wire.Length{},
		}},
		{0, get, "aggregates/{type}/{id}/events", operator, look, "", h.events, operation{
			id: "listAggregateEvents", about: "List the events of an aggregate", query: countedEvents(),
			gives: either{wire.Events{}, linesOf{wire.Event{}}}, headers: nextHeader(),
		}},
	}
}

// types is GET aggregates: the types of the spec in its order, behind them those of earlier ones that have aggregates.
func (h *readHandlers) types(c *call, w http.ResponseWriter) error {
	ctx := c.request.Context()
	rows := []wire.AggregateType{}
	seen := map[string]bool{}
	take := func(root value.Value, declared bool) error {
		for _, t := range spec.TypesOf(root) {
			if seen[t.Name] {
				continue
			}
			if !declared {
				if known, err := h.engine.KnowsType(ctx, c.tenant, t.Name); err != nil || !known {
					return err
				}
			}
			seen[t.Name] = true
			rows = append(rows, wire.AggregateType{Type: t.Name, Declared: declared, Events: t.Events})
		}
		return nil
	}

	if deployed := h.engine.Spec(c.tenant); deployed != nil {
		if err := take(deployed.Root(), true); err != nil {
			return err
		}
	}

	// Earlier versions, from the newest on, as long as that takes little.
	versions, err := h.registry.Specs.History(ctx, c.instance, c.env, 1, allEvents)
	if err != nil {
		return err
	}
	b := work.New(ctx, work.Command)
	for _, v := range versions {
		s, err := h.registry.Specs.Version(ctx, c.instance, c.env, v.Version)
		if err != nil {
			return err
		}
		if !b.SpendBytes(8 * len(s.Source)) {
			break
		}
		root, err := value.Parse(s.Source)
		if err == nil {
			err = take(root, false)
		}
		if err != nil {
			return err
		}
	}

	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].Type
	}
	counts, err := h.engine.Counts(ctx, c.tenant, names)
	if err != nil {
		return err
	}
	for i, n := range counts {
		rows[i].Count, rows[i].More = n.Count, n.More
	}
	return c.answer(w, http.StatusOK, wire.AggregateTypes{Types: rows})
}

// list is GET aggregates/{type}: by id, those whose ids, handles or public ids begin with a text.
func (h *readHandlers) list(c *call, w http.ResponseWriter) error {
	count := c.query.number("count", defaultCount)
	found, next, err := h.engine.Aggregates(
		c.request.Context(), c.tenant, c.request.PathValue("type"), c.query["prefix"], c.query["start"], count,
	)
	if err != nil {
		return err
	}
	rows := make([]wire.AggregateRow, len(found))
	for i, a := range found {
		rows[i] = wire.AggregateRow{
			ID: a.ID, Handle: a.Names.Handle, PublicID: a.Names.PublicID, Length: a.Length, UpdatedAt: a.UpdatedAt,
		}
	}
	answer := wire.Aggregates{Aggregates: rows}
	if next != "" {
		answer.Next = &next
	}
	return c.answer(w, http.StatusOK, answer)
}

// listOrSingleton is GET /{type}: the ids of an aggregate type, or the states of a declared singleton by type.
func (h *readHandlers) listOrSingleton(c *call, w http.ResponseWriter) error {
	// A singleton's name is never also that of a type.
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

	ids, more, err := h.engine.IDs(
		c.request.Context(), c.tenant, name, c.query["start"], c.query.number("count", defaultCount),
	)
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

// appendAbout appends what follows the data of a state.
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
	page := &eventPage{
		c: c, after: c.query.streamID("start"), count: c.query.number("count", defaultCount),
		lines: acceptsLines(r.Header),
	}
	page.read = func(after j17.StreamID, count int) (iter.Seq2[*j17.Event, error], error) {
		events := h.engine.Events
		if c.query.stored() {
			events = h.engine.StoredEvents
		}
		return events(r.Context(), c.tenant, r.PathValue("type"), r.PathValue("id"), after, count)
	}
	if err := page.measure(); err != nil {
		return err
	}
	return page.write(w)
}
