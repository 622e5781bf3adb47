package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/clock"
	"j17/internal/engine"
	"j17/internal/place"
	"j17/internal/projection"
	"j17/internal/tail"
	"j17/internal/value"
	"j17/internal/wire"
)

// livePace is how long a live view waits after it was sent something: what changes meanwhile is sent as what it has come to.
const livePace = 50 * time.Millisecond

// liveView is what a client sees as it changes.
type liveView interface {
	// look returns what is to be sent now that something has changed, nothing where the client sees no difference, and whether there is
	// more of it. A view looks first with nothing changed, and then sees everything for the first time.
	look(ctx context.Context, changed tail.Changes) (events []liveEvent, more bool, err error)
	// madeOf returns the aggregates that the view is made of, and the types of which any may come to be one of them, as of the latest look.
	madeOf() (keys []j17.Key, types []string)
	// position is that of the latest look.
	position() j17.StreamID
}

// liveEvent is one that is sent: its name, and its data in parts.
type liveEvent struct {
	name  string
	parts [][]byte
}

func (ev *liveEvent) size() (size int) {
	for _, part := range ev.parts {
		size += len(part)
	}
	return size
}

// streamedView are the parameters of a live view; its own stand beside them.
func streamedView() []parameter { return streamed(parameter{kind: further}) }

// follow answers with a view as it changes, until the client goes, takes nothing, or has no right to it any more, or the server stops.
func (c *call) follow(w http.ResponseWriter, v liveView) error {
	// What is wrong with the request is an error.
	if last := c.request.Header.Get(headerLastEvent); last != "" {
		if _, err := j17.ParsePosition(last); err != nil {
			return j17.Errorf(j17.CodeInvalidHeader, "Last-Event-ID must be the id of an event of the stream, such as 1706789012345-0").At("last-event-id")
		}
	}
	ctx := c.request.Context()
	s, err := c.api.streams.open(c, w, c.duration("heartbeat", defaultHeartbeat))
	if err != nil {
		return err
	}
	defer s.close()
	l := &living{stream: s, view: v}
	if l.watch, err = c.api.Tail.Watch(ctx, c.tenant); err != nil {
		return engine.StorageError(err)
	}
	defer l.watch.Close()

	// So is what is wrong with what is there at first.
	l.follow()
	events, more, err := l.look(ctx, tail.Changes{})
	if err != nil {
		return err
	}
	c.startStream(s.w)
	if c.request.Method == http.MethodHead {
		return nil
	}
	s.pending, l.begun = true, true // the headers go out at once
	l.run(ctx, events, more)
	return nil
}

// living is a live view on its way to a client.
type living struct {
	*stream
	view  liveView
	watch *tail.Watch
	keys  []j17.Key
	types []string
	// sent is when something was sent last. begun tells that the answer has begun.
	sent  time.Time
	begun bool
}

// look lets the view look, in one of the places that there are for streams that read the store. It keeps the place until there is memory for
// what it has found, so that what waits for memory is bounded too. A view that gets none ends: it takes for sent what it has found.
func (l *living) look(ctx context.Context, changed tail.Changes) ([]liveEvent, bool, error) {
	c := l.call
	defer c.slot.Renew()
	got, err := c.api.room.looks.Take(ctx, string(c.tenant), 1)
	if err != nil {
		return nil, false, err
	}
	defer c.api.room.looks.Give(string(c.tenant), got)
	events, more, err := l.view.look(ctx, changed)
	size := 0
	for i := range events {
		size += events[i].size()
	}
	if err != nil || size <= pieceBytes {
		return events, more, err
	}
	if err := c.take(c.api.room.streams, int64(size), "such a view"); err != nil {
		if l.begun {
			l.end()
		}
		return nil, false, err
	}
	l.hold(true)
	return events, more, nil
}

// follow makes the watch follow what the view is made of. It reports true where that may have changed since the view has looked.
func (l *living) follow() bool {
	keys, types := l.view.madeOf()
	if slices.Equal(keys, l.keys) && slices.Equal(types, l.types) {
		return false
	}
	l.keys, l.types = keys, types
	return l.watch.Follow(keys, types).Compare(l.view.position()) > 0
}

// run sends what there is and then what changes.
func (l *living) run(ctx context.Context, events []liveEvent, more bool) {
	for changed := (tail.Changes{}); ; {
		if !l.send(events) {
			return
		}
		if !more && !l.follow() {
			var ok bool
			if changed, ok = l.await(ctx); !ok {
				return
			}
		}
		var err error
		events, more, err = l.look(ctx, changed)
		for err != nil {
			if StatusOf(j17.CodeOf(err)) != http.StatusServiceUnavailable {
				l.fail(ctx, err)
				return
			}

			// It was not its turn: everything may have changed until it is.
			if l.pause(ctx, l.now().Add(time.Second)) != nil || l.ended() {
				return
			}
			if l.due(l.now()) && l.beat(l.told) != nil {
				return
			}
			events, more, err = l.look(ctx, tail.Changes{All: true})
		}
		changed = tail.Changes{}
	}
}

// send sends events. It reports false at the end of the stream.
func (l *living) send(events []liveEvent) bool {
	if len(events) == 0 {
		return !l.ended()
	}
	defer func() {
		l.call.release()
		l.hold(false)
	}()
	at := l.view.position()
	for i := range events {
		l.event(&events[i], at)
	}
	l.sent = l.now()
	l.all.sent.Add(uint64(len(events)))
	return l.flush() == nil && !l.ended()
}

// fail tells the client why the view cannot be followed any more, as the answer to a request would.
func (l *living) fail(ctx context.Context, err error) {
	if ctx.Err() != nil || l.ended() {
		return // the end of the stream, whatever the view has made of it
	}
	_, body := l.call.problem(err)
	l.put([]byte("event: error\ndata: "))
	l.put(l.call.redactedProblem(body))
	l.put([]byte("\n\n"))
	_ = l.flush() // the stream is at its end
}

// event writes an event of a view as of a position.
func (s *stream) event(ev *liveEvent, at j17.StreamID) {
	s.told, s.placed = at, true
	head := append(append(s.frame[:0], "event: "...), ev.name...)
	head = append(at.AppendPosition(append(head, "\nid: "...)), "\ndata: "...)
	s.put(head)
	for _, part := range ev.parts {
		s.put(part)
	}
	s.put([]byte("\n\n"))
	s.frame = nil
}

// await waits until something has changed that the view is made of, at its pace, and keeps the client posted that the stream lives. It
// reports false at the end of the stream.
func (l *living) await(ctx context.Context) (tail.Changes, bool) {
	if l.pending && l.flush() != nil {
		return tail.Changes{}, false
	}
	seen := l.view.position()
	for {
		select {
		case <-l.watch.Ready():
			// What has come with it, and what comes until the view is to be sent again.
			if l.pause(ctx, l.sent.Add(livePace)) != nil {
				return tail.Changes{}, false
			}
			changed, err := l.watch.Take()
			if err != nil {
				return changed, false
			}
			if seen = changed.At; changed.All || len(changed.Keys) > 0 {
				return changed, true
			}
		case <-ctx.Done():
			return tail.Changes{}, false
		case <-l.pulse:
		}
		if l.ended() {
			return tail.Changes{}, false
		}
		if l.due(l.now()) {
			if l.beat(maxPosition(seen, l.told)) != nil {
				return tail.Changes{}, false
			}
		}
	}
}

// beat shows the client that the stream lives, and how far it has come.
func (l *living) beat(at j17.StreamID) error {
	l.put([]byte(":\n"))
	if at.IsZero() {
		l.put([]byte("\n"))
	} else {
		l.position(at)
	}
	return l.flush()
}

func maxPosition(a, b j17.StreamID) j17.StreamID {
	if a.Compare(b) < 0 {
		return b
	}
	return a
}

// pause waits until a time that is near.
func (*living) pause(ctx context.Context, until time.Time) error {
	return clock.System{}.Wait(ctx, until)
}

// liveProjection is what a projection yields.
type liveProjection struct {
	call *call
	ask  projection.Ask
	// tag is that of the data that was sent, with what made it impossible to compute.
	tag    string
	at     j17.StreamID
	keys   []j17.Key
	types  []string
	looked bool
}

// projectionStream is GET /_projections/{name}/{id}/stream: what a projection yields, as it changes.
func (c *call) projectionStream(w http.ResponseWriter) error {
	r := c.request
	ask := projection.Ask{Name: r.PathValue("name"), ID: r.PathValue("id"), Params: c.further, Takes: namesOf(streamedView())}
	return c.follow(w, &liveProjection{call: c, ask: ask})
}

func (l *liveProjection) madeOf() ([]j17.Key, []string) { return l.keys, l.types }
func (l *liveProjection) position() j17.StreamID        { return l.at }

func (l *liveProjection) look(ctx context.Context, _ tail.Changes) ([]liveEvent, bool, error) {
	v, err := l.call.api.Projections.Read(ctx, l.call.tenant, &l.ask)
	if v != nil && v.Value != nil {
		l.at, l.keys, l.types = v.Position, v.Sources, setTypes(v.Value)
	}
	failed, ok := errors.AsType[*j17.Error](err)
	switch {
	case err == nil:
	case !l.looked, !ok, !projection.Lasting(err):
		return nil, false, err
	}
	l.looked = true

	// What was sent already is not sent again.
	var tag string
	if err == nil {
		tag = v.Tag
	} else {
		tag = string(failed.Code) + failed.Message
	}
	if tag == l.tag {
		return nil, false, nil
	}
	l.tag = tag
	if err == nil {
		return []liveEvent{{"value", [][]byte{[]byte(`{"data":`), v.Data, appendMetadata(nil, v)}}}, false, nil
	}
	raw, err := marshal(wire.RowError{Code: failed.Code, Error: l.call.api.Registry.Faults.Redact(failed.Message)})
	return []liveEvent{{"value", [][]byte{[]byte(`{"error":`), raw, []byte(`}`)}}}, false, err
}

const (
	// maxLiveRows is how many rows a live list may have.
	maxLiveRows = 1000
	// longerLooks is how many times as much as for a page is looked at for one that follows a place: what is to be shown has to be found as a whole.
	longerLooks = 4
)

// liveList is all rows of a live list as of a position.
type liveList struct {
	ids []string
	// geos are the places that rows of one aggregate are told apart by, "" where nothing tells.
	geos  []string
	rows  [][]byte
	types []string
	at    j17.StreamID
	// whole tells that there are no more rows, early that there may be, since too much would have to be looked at for them.
	whole, early bool
}

func (l *liveList) add(id, geo string, row []byte) {
	l.ids, l.geos, l.rows = append(l.ids, id), append(l.geos, geo), append(l.rows, row)
}

// liveRows are rows that come, change and go. Of those that the client has, it keeps ids and digests.
type liveRows struct {
	read func(ctx context.Context) (*liveList, error)
	// less says how to ask for fewer of them.
	less   string
	sent   []liveRow
	at     j17.StreamID
	types  []string
	looked bool
}

// liveRow is what is kept of a row: enough to see that it has changed.
type liveRow struct {
	id, geo string
	digest  [12]byte
}

func (l *liveRows) madeOf() ([]j17.Key, []string) { return nil, l.types }
func (l *liveRows) position() j17.StreamID        { return l.at }

func (l *liveRows) look(ctx context.Context, _ tail.Changes) (events []liveEvent, _ bool, err error) {
	list, err := l.read(ctx)
	switch {
	case err != nil:
		return nil, false, err
	case list.early:
		return nil, false, j17.Errorf(j17.CodeProjectionLimit, "Too many places would have to be compared to follow what is asked for: ask for a smaller radius or area.")
	case !list.whole:
		e := j17.Errorf(j17.CodeProjectionLimit, "The list has more rows than can be followed, %d of 8 MiB together. %s", maxLiveRows, l.less)
		e.Details = map[string]int{"limit": maxLiveRows}
		return nil, false, e
	}
	l.at, l.types = list.at, list.types

	// What has gone, and what has come or changed. Whoever has several places has a row of each: when one of these is not there any more, all go,
	// and those that are there come again.
	there, had, now := make([]liveRow, len(list.ids)), map[string][]liveRow{}, map[string][]liveRow{}
	for _, row := range l.sent {
		had[row.id] = append(had[row.id], row)
	}
	for i, id := range list.ids {
		sum := sha256.Sum256(list.rows[i])
		there[i] = liveRow{strings.Clone(id), list.geos[i], [12]byte(sum[:12])}
		now[id] = append(now[id], there[i])
	}
	gone := map[string]bool{}
	for id, before := range had {
		after := now[id]
		changes := len(before) == 1 && len(after) == 1 // where nothing tells rows apart, this is the same one
		gone[id] = len(before) > len(after) || slices.ContainsFunc(before, func(was liveRow) bool {
			return !slices.ContainsFunc(after, func(is liveRow) bool { return was == is || was.geo == is.geo && (is.geo != "" || changes) })
		})
	}
	for _, id := range slices.Sorted(maps.Keys(had)) {
		if gone[id] {
			events = append(events, liveEvent{"gone", [][]byte{append(value.AppendString([]byte(`{"id":`), id), '}')}})
		}
	}
	var rows []liveEvent
	for i, id := range list.ids {
		if gone[id] || !slices.Contains(had[id], there[i]) {
			rows = append(rows, liveEvent{"row", [][]byte{list.rows[i]}})
		}
	}
	events = append(events, rows...)
	l.sent = there
	if !l.looked {
		l.looked = true
		events = append(events, liveEvent{"ready", [][]byte{[]byte("{}")}})
	}
	return events, false, nil
}

// placesStream answers with what a question about places finds, as it comes, changes and goes.
func placesStream(read func(*call, *place.Ask) error) handler {
	return func(c *call, w http.ResponseWriter) error {
		a := &place.Ask{Type: c.request.PathValue("type"), Count: maxLiveRows, Longer: longerLooks}
		if err := read(c, a); err != nil {
			return err
		}
		_, said := c.query["data"]
		a.Bare = said && !c.isSet("data")
		return c.follow(w, &liveRows{less: "Ask for a smaller radius or area.", read: func(ctx context.Context) (*liveList, error) {
			page, err := c.api.Places.Page(ctx, c.tenant, a)
			if err != nil {
				return nil, err
			}
			l := &liveList{whole: page.Next == "", early: page.Early, at: page.Position, types: []string{a.Type}}
			for i := range page.Rows {
				raw, err := c.appendPlace(nil, a, &page.Rows[i])
				if err != nil {
					return nil, err
				}
				l.add(page.Rows[i].ID, page.Rows[i].Geo, raw)
			}
			return l, nil
		}})
	}
}

// streamedPlaces are the parameters of a live question about places.
func streamedPlaces(of []parameter) []parameter {
	return streamed(slices.DeleteFunc(of, func(p parameter) bool { return p.name == "count" || p.name == "start" })...)
}

// setTypes are the aggregate types that queries of a value have looked in.
func setTypes(v *projection.Value) (types []string) {
	for i := range v.Sets {
		types = append(types, v.Sets[i].Query.AggregateType)
	}
	slices.Sort(types)
	return slices.Compact(types)
}
