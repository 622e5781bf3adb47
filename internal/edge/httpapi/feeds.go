package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/core/engine"
	"j17/internal/follow/tail"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

// feedHandlers read the feed of an environment, by the page and as streams.
type feedHandlers struct {
	engine   *engine.Engine
	registry *control.Registry
	store    Storage
	tail     *tail.Tail
	pageWork int64
}

// routes read events as they come.
func (h *feedHandlers) routes() []route {
	return []route{
		{dataSite, get, "/{type}/{id}/events/stream", read, need{}, "", h.aggregateStream, operation{
			id: "streamEvents", about: "Stream the events of an aggregate", query: streamed(filtered()[0],
				generationParameter()),
			gives: file{typeStream},
		}},
		{dataSite, get, "/_events", read, need{}, "", h.feed, operation{
			id: "listFeed", about: "Read the events of the environment", query: fed(),
			gives: either{wire.FeedPage{}, linesOf{wire.Event{}}}, headers: feedHeaders(),
		}},
		{dataSite, get, "/_events/stream", read, need{}, "", h.feedStream, operation{
			id: "streamFeed", about: "Stream the events of the environment",
			query: streamed(append(filtered(), sinceParameter())...),
			gives: file{typeStream},
		}},
	}
}

// adminRoutes are the same for operators, below the administration of the environment.
func (h *feedHandlers) adminRoutes() []route {
	look := need{control.RightRead, instance}
	return []route{
		{0, get, "aggregates/{type}/{id}/events/stream", operator, look, "", h.aggregateStream, operation{
			id: "streamAggregateEvents", about: "Stream the events of an aggregate", query: streamed(filtered()[0],
				generationParameter()),
			gives: file{typeStream},
		}},
		{0, get, "events", operator, look, "", h.feed, operation{
			id: "listEventsOfEnvironment", about: "Read the events of the environment, from a position on or the newest first", query: fed(),
			gives: either{wire.FeedPage{}, linesOf{wire.Event{}}}, headers: feedHeaders(),
		}},
		{0, get, "events/stream", operator, look, "", h.feedStream, operation{
			id: "streamEventsOfEnvironment", about: "Stream the events of the environment",
			query: streamed(append(filtered(), sinceParameter())...),
			gives: file{typeStream},
		}},
		{0, get, "events/{position}", operator, look, "", h.event, operation{
			id: "getEvent", about: "Get an event, with the version of its aggregate that it made",
			query: []parameter{generationParameter()}, gives: wire.EventShown{},
		}},
	}
}

// begin is the position behind which to begin: that of the parameter after, or the one in front of the first event
// since a time.
func (c *call) begin() (j17.StreamID, error) {
	since := c.moment("since")
	if since == nil {
		return c.query.streamID("after"), nil
	}
	if _, both := c.query["after"]; both {
		return j17.StreamID{}, j17.Errorf(j17.CodeInvalidParameter, "'since' and 'after' both say where to begin. Send one of them.").At("since")
	}
	if *since <= 0 {
		return j17.StreamID{}, nil
	}
	return j17.StreamID{Ms: *since*1000 - 1, Seq: ^uint32(0)}, nil
}

// backwards is GET events with before: a page with the newest event first.
func (h *feedHandlers) backwards(c *call, w http.ResponseWriter, given string) error {
	for _, other := range []string{"after", "since", "wait"} {
		if _, both := c.query[other]; both {
			return j17.Errorf(j17.CodeInvalidParameter, "'before' asks for the newest event first, and '%s' for the order of time. Send one of them.", other).At("before")
		}
	}
	f, err := h.filter(c)
	if err != nil {
		return err
	}
	ctx := c.request.Context()
	head, err := h.tail.Head(ctx, c.tenant)
	if err != nil {
		return store.UserError(err)
	}
	before := head.Next()
	if given != "now" {
		before = c.query.streamID("before")
	}
	page, err := h.tail.Before(
		ctx, c.tenant, f, before, c.query.number("count", defaultCount), work.New(ctx, h.pageWork),
	)
	if err != nil {
		return store.UserError(err)
	}

	// The same form as that of a page in the order of time.
	lines, next := acceptsLines(c.request.Header), ""
	if page.More {
		next = page.Next.PositionText()
	}
	w.Header().Add("Vary", "Accept")
	var b []byte
	if !lines {
		b = append(b, `{"ok":true,"events":[`...)
	}
	for i, ev := range page.Events {
		if i > 0 && !lines {
			b = append(b, ',')
		}
		b = append(b, ev.Raw...)
		if lines {
			b = append(b, '\n')
		}
	}
	c.slot.Give()
	if lines {
		if next != "" {
			c.show(w.Header(), headerNext, next)
		}
		w.Header().Set(headerPosition, head.PositionText())
		c.show(w.Header(), "Content-Type", typeLines)
		c.write(w, http.StatusOK, b)
		return nil
	}
	b = append(appendNext(append(b, ']'), next), `,"position":"`...)
	return c.page(w, append(append(b, head.PositionText()...), `"}`...))
}

// event is GET events/{position}.
func (h *feedHandlers) event(c *call, w http.ResponseWriter) error {
	ctx := c.request.Context()
	missing := j17.Errorf(j17.CodeNotFound, "There is no event with this stream_id. GET events lists those that there are.")
	at, err := j17.ParseStreamID(c.request.PathValue("position"))
	if err != nil {
		return missing
	}
	var found *j17.Event
	for ev, err := range h.store.ReadFeed(ctx, c.tenant, at.Previous(), 1) {
		if err != nil {
			return store.UserError(err)
		}
		if ev.StreamID == at {
			found = ev.Clone()
		}
	}
	if found == nil {
		return missing
	}

	if !c.query.stored() {
		if found, err = h.engine.Shown().Show(ctx, c.tenant, found); err != nil {
			return err
		}
	}

	// Its neighbours within the aggregate.
	shown := wire.EventShown{Event: found.Raw, Length: found.Version}
	for ev, err := range h.store.ReadStream(ctx, c.tenant, found.Key, max(1, found.Version-1), found.Version+1) {
		if err != nil {
			return store.UserError(err)
		}
		switch position := ev.StreamID.String(); {
		case ev.Version < found.Version:
			shown.Previous = &position
		case ev.Version > found.Version:
			shown.Next = &position
		}
	}
	return c.answer(w, http.StatusOK, shown)
}

// allEvents is for walks that end only with their budget or when their reader has enough.
const allEvents = 1 << 30

// feed is GET /_events: a page of the events of the environment.
func (h *feedHandlers) feed(c *call, w http.ResponseWriter) error {
	if before, ok := c.query["before"]; ok {
		return h.backwards(c, w, before)
	}
	after, err := c.begin()
	if err != nil {
		return err
	}
	for wait := c.query.duration("wait", 0); ; wait = 0 {
		f, err := h.filter(c)
		if err != nil {
			return err
		}
		retagged, err := h.retagged(c)
		if err != nil {
			return err
		}
		page, err := h.awaitPage(c, w, f, after, wait, retagged)
		if err != nil {
			return err
		}
		if !retagged() {
			return page.write(w)
		}
		// A deployment changed the tags in between, so that the page mixes the tags of two specs: it is looked for
		// again, as if asked for now.
	}
}

// awaitPage returns a page of the events that a filter lets through. Where there is none it waits for one, but not
// beyond a deployment that changes which events have the tags.
func (h *feedHandlers) awaitPage(
	c *call, w http.ResponseWriter, f tail.Filter, after j17.StreamID, wait time.Duration, retagged func() bool,
) (*eventPage, error) {
	page := h.feedPage(c, f, after, retagged)
	if err := page.measure(); err != nil {
		return nil, err
	}
	if wait == 0 || page.events > 0 || page.more || c.request.Method == http.MethodHead {
		return page, nil
	}
	at, err := h.awaitEvent(c, w, f, page.last, wait, retagged)
	if err != nil {
		return nil, err
	}
	page = h.feedPage(c, f, at, retagged)
	return page, page.measure()
}

// aggregateType reads the parameter type, "" for none: a type of the spec, or of an earlier one of which there are
// events.
func (h *feedHandlers) aggregateType(c *call) (string, error) {
	name := c.query["type"]
	if name == "" {
		return "", nil
	}
	known, err := h.engine.KnowsType(c.request.Context(), c.tenant, name)
	if err != nil {
		return "", err
	}
	if !known {
		return "", j17.Errorf(j17.CodeInvalidParameter, "There is no aggregate type '%s', and no event of one", j17.Printable(name)).At("type")
	}
	return name, nil
}

// filter reads the parameters of a filter.
func (h *feedHandlers) filter(c *call) (f tail.Filter, err error) {
	if f.Type, err = h.aggregateType(c); err != nil {
		return f, err
	}
	if f.Event = c.query["event"]; f.Event != "" {
		known, err := h.knowsEvent(c, f.Event)
		if err != nil {
			return f, err
		}
		if !known {
			return f, j17.Errorf(j17.CodeInvalidParameter, "There is no event type of that name in the spec, nor was there one in an earlier version.").At("event")
		}
	}
	if f.Actor, err = h.agentTag(c, "actor", j17.ActorTag); err != nil {
		return f, err
	}
	if f.Target, err = h.agentTag(c, "target", j17.TargetTag); err != nil {
		return f, err
	}
	if f.Types, err = h.types(c); err != nil {
		return f, err
	}
	f.Stored = c.query.stored()
	f.Tags, err = h.tags(c)
	if id, ok := c.query["correlation"]; ok {
		f.Tags = f.Tags.With(j17.CorrelationTag(id))
	}
	return f, err
}

// types reads the parameter of patterns of event types.
func (h *feedHandlers) types(c *call) (tail.Types, error) {
	given, ok := c.query["types"]
	if !ok {
		return "", nil
	}
	patterns := wire.SplitList(given)
	for _, text := range patterns {
		if err := h.checkPattern(c, text); err != nil {
			return "", err
		}
	}
	return tail.NewTypes(patterns), nil
}

// checkPattern checks that what a pattern names is in the spec, or was in an earlier version.
func (h *feedHandlers) checkPattern(c *call, text string) error {
	p, known, err := h.engine.Pattern(c.request.Context(), c.tenant, text)
	if err == nil || !known {
		return ofParameter(err, "types")
	}
	if stored, failed := h.hadEvent(c, p.EventType, true); failed != nil || stored {
		return failed
	}
	return ofParameter(err, "types")
}

// tags reads the parameter of tags.
func (h *feedHandlers) tags(c *call) (tail.Tags, error) {
	given, ok := c.query["tags"]
	if !ok {
		return "", nil
	}
	tags, err := h.engine.Tags(c.request.Context(), c.tenant, wire.SplitList(given))
	return tail.NewTags(tags), ofParameter(err, "tags")
}

// ofParameter turns an error about a body into one about a parameter.
func ofParameter(err error, name string) error {
	if e, ok := errors.AsType[*j17.Error](err); ok && e.Code == j17.CodeInvalidField {
		return j17.Errorf(j17.CodeInvalidParameter, "%s", e.Message).At(name)
	}
	return err
}

// agentTag reads the parameter of an actor or a target; "" without it.
func (h *feedHandlers) agentTag(c *call, name string, tag func(j17.Agent) string) (string, error) {
	given, ok := c.query[name]
	if !ok {
		return "", nil
	}
	key, _ := j17.ParseKey(given) // checked
	agent, err := h.engine.Agent(c.tenant, j17.Agent(key))
	if e, ok := errors.AsType[*j17.Error](err); ok && e.Code == j17.CodeInvalidIdentifier {
		return "", j17.Errorf(j17.CodeInvalidParameter, "%s", e.Message).At(name)
	}
	return tag(agent), err
}

// knowsEvent reports whether the spec has an event type, or an earlier version of it may have had it. The markers of
// erased events need no spec.
func (h *feedHandlers) knowsEvent(c *call, name string) (bool, error) {
	if name == ident.WasTombstoned || h.engine.HasEvent(c.tenant, name) {
		return true, nil
	}
	return h.hadEvent(c, name, false)
}

// hadEvent reports whether a version of the spec may have had an event type, so that events of that type may be stored.
// It looks for the name in the text of those versions, from the newest on, as long as that takes little; earlier leaves
// out the newest one.
func (h *feedHandlers) hadEvent(c *call, name string, earlier bool) (bool, error) {
	ctx := c.request.Context()
	versions, err := h.registry.Specs.History(ctx, c.instance, c.env, 1, allEvents)
	if err != nil {
		return false, err
	}
	if earlier && len(versions) > 0 {
		versions = versions[1:]
	}
	quoted := value.AppendString(nil, name)
	b := work.New(ctx, work.Command)
	for i := range versions {
		s, err := h.registry.Specs.Version(ctx, c.instance, c.env, versions[i].Version)
		if err != nil {
			return false, err
		}
		if !b.SpendBytes(len(s.Source)) || bytes.Contains(s.Source, quoted) {
			break
		}
		if i == len(versions)-1 {
			return false, nil
		}
	}
	return len(versions) > 0, nil
}

// feedPage returns a page of the events that a filter lets through.
func (h *feedHandlers) feedPage(c *call, f tail.Filter, after j17.StreamID, retagged func() bool) *eventPage {
	p := &eventPage{
		c: c, after: after, count: c.query.number("count", defaultCount), lines: acceptsLines(c.request.Header),
		ofFeed: true, outdated: retagged,
	}
	p.read = func(after j17.StreamID, count int) (iter.Seq2[*j17.Event, error], error) {
		p.walk = h.tail.Walk(c.tenant, f, after)
		limit := count
		if f.Passes() {
			limit = allEvents
		}
		b := work.New(c.request.Context(), h.pageWork)
		return failing(p.walk.Events(c.request.Context(), limit, b)), nil
	}
	return p
}

// failing gives errors of the store the form in which clients see them.
func failing(events iter.Seq2[*j17.Event, error]) iter.Seq2[*j17.Event, error] {
	return func(yield func(*j17.Event, error) bool) {
		for ev, err := range events {
			if !yield(ev, store.UserError(err)) {
				return
			}
		}
	}
}

// awaitEvent waits until there is an event that a filter lets through, and returns how far it has looked: up to the
// event, or as far as there was none when the time was over or a deployment changed the tags.
func (h *feedHandlers) awaitEvent(
	c *call, w http.ResponseWriter, f tail.Filter, after j17.StreamID, wait time.Duration, retagged func() bool,
) (j17.StreamID, error) {
	c.slot.Renew()
	c.allowTime(w, wait+readGrace)
	s, err := c.api.streams.open(c, w, 0)
	if err != nil {
		return after, err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(c.request.Context(), wait)
	defer cancel()
	reader, err := h.tail.Open(ctx, c.tenant, f, after)
	if err != nil {
		return after, store.UserError(err)
	}
	defer reader.Close()

	// An event that is too large for the piece counts as found.
	var p tail.Piece
	for {
		err := h.takePiece(ctx, c, reader, &p, 0)
		switch {
		case p.Needs > 0 || s.ended() || retagged():
			return reader.Position(), nil
		case err != nil && ctx.Err() == nil:
			return after, err
		case p.More:
			continue
		}
		select {
		case <-reader.Ready():
		case <-s.pulse:
		case <-ctx.Done():
			if c.request.Context().Err() != nil {
				return after, c.request.Context().Err()
			}
			return reader.Position(), nil
		}
	}
}

// readGrace is how long a page may take beside the time that it waits.
const readGrace = time.Minute

// takePiece takes from a reader. While that reads the store, it has one of the places that there are for it.
func (*feedHandlers) takePiece(ctx context.Context, c *call, r *tail.Reader, p *tail.Piece, most int) error {
	defer c.slot.Renew()
	if r.Behind() {
		got, err := c.api.resources.looks.Take(ctx, string(c.tenant), 1)
		if err != nil {
			return err
		}
		defer c.api.resources.looks.Give(string(c.tenant), got)
	}
	return store.UserError(r.Take(ctx, p, most))
}

// feedStream is GET /_events/stream: the events of the environment as they come.
func (h *feedHandlers) feedStream(c *call, w http.ResponseWriter) error {
	f, err := h.filter(c)
	if err != nil {
		return err
	}
	return h.stream(c, w, f)
}

// aggregateStream is GET /{type}/{id}/events/stream: those of one aggregate.
func (h *feedHandlers) aggregateStream(c *call, w http.ResponseWriter) error {
	r := c.request
	key, err := h.engine.Key(r.Context(), c.tenant, r.PathValue("type"), r.PathValue("id"))
	if err != nil {
		return err
	}
	return h.stream(c, w, tail.Filter{Key: key, Stored: c.query.stored()})
}

const (
	defaultHeartbeat = 15 * time.Second
	// pieceBytes is how much of a stream is in memory at a time. It is accounted for if an event alone has more.
	pieceBytes = 16 << 10
)

// streamFrom returns the position after which a stream begins: that of the last event that the client received, or the
// parameter, or the present end.
func (h *feedHandlers) streamFrom(c *call) (j17.StreamID, error) {
	if last := c.request.Header.Get(headerLastEvent); last != "" {
		id, err := j17.ParsePosition(last)
		if err != nil {
			return id, j17.Errorf(j17.CodeInvalidHeader, "Last-Event-ID must be the id of an event of the stream, such as 1706789012345-0").At("last-event-id")
		}
		return id, nil
	}
	_, after := c.query["after"]
	if _, since := c.query["since"]; after || since {
		return c.begin()
	}
	head, err := h.tail.Head(c.request.Context(), c.tenant)
	return head, store.UserError(err)
}

// stream answers with events as they come, until the client leaves, stops reading or loses the right to them, or the
// server stops.
func (h *feedHandlers) stream(c *call, w http.ResponseWriter, f tail.Filter) error {
	after, err := h.streamFrom(c)
	if err != nil {
		return err
	}
	if c.request.Method == http.MethodHead {
		c.startStream(w)
		return nil
	}
	s, err := c.api.streams.open(c, w, c.query.duration("heartbeat", defaultHeartbeat))
	if err != nil {
		return err
	}
	defer s.close()
	ctx := c.request.Context()
	retagged, err := h.retagged(c)
	if err != nil {
		return err
	}
	reader, err := h.tail.Open(ctx, c.tenant, f, after)
	if err != nil {
		return store.UserError(err)
	}
	defer reader.Close()

	// A fault of the first piece is still answered as an error.
	var p tail.Piece
	if err := h.takePiece(ctx, c, reader, &p, pieceBytes); err != nil {
		return err
	}
	c.startStream(s.w)
	s.pending = true // the headers go out at once
	if _, asked := c.query["after"]; !asked || !after.IsZero() {
		s.position(after) // also before the first event: a client that reconnects goes on from here
	}
	for {
		if retagged() {
			return nil // before anything is sent that has the tags of another spec
		}
		s.events(p.Events)
		if len(p.Events) == 0 && s.due(s.now()) {
			s.beat(reader.Position()) // the reader goes through many events that the client does not want
		}
		if err := s.flush(); err != nil || s.ended() {
			return nil
		}
		c.release()
		s.hold(false)
		if p.Needs > 0 {
			err = c.take(c.api.resources.streams, int64(p.Needs), "such an event")
			s.hold(err == nil)
		} else if !p.More {
			p, s.frame = tail.Piece{}, nil // or their memory would be kept for nothing
			if !s.sleep(ctx, reader.Ready(), func() (j17.StreamID, bool) { return reader.Position(), !retagged() }) {
				return nil
			}
		}
		if err == nil {
			err = h.takePiece(ctx, c, reader, &p, max(pieceBytes, p.Needs))
		}
		if err != nil && j17.CodeOf(err) != j17.CodeBusy {
			return nil
		}
		if err != nil {
			p, err = tail.Piece{More: true, Needs: p.Needs}, nil // no turn was free
		}
	}
}

// retagged returns a function that reports whether other events have the tags that the caller asks for than at the time
// of the call. The error is that of reading the tags again, which may have changed since the parameters were read.
func (h *feedHandlers) retagged(c *call) (func() bool, error) {
	text, ok := c.query["tags"]
	if !ok {
		return func() bool { return false }, nil
	}
	given := wire.SplitList(text)
	before := h.engine.TagsDeclared(c.tenant, given)
	_, err := h.tags(c) // they may have changed since the parameters were read
	return func() bool { return h.engine.TagsDeclared(c.tenant, given) != before }, err
}

// feedDetails are the details of a refused stream.
type feedDetails struct {
	// Limit is how many streams there may be, Of whose they are: "api-key", "environment" or "server".
	Limit int    `json:"limit"`
	Of    string `json:"of"`
}

func tooManyStreams(limit int, of, whose string) error {
	e := j17.Errorf(j17.CodeTooManyStreams, "There are %s streams open already, which is as many as %s may have. Close those that nobody reads.", strconv.Itoa(limit), whose)
	e.Details = feedDetails{limit, of}
	return e
}

// durationFault says what a duration has to be.
func durationFault(p *parameter) string {
	return fmt.Sprintf("a duration from %ds to %ds, such as %ds", p.least, p.most, (p.least+p.most)/2)
}
