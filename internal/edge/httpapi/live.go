package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/core/engine"
	"j17/internal/derived/place"
	"j17/internal/derived/projection"
	"j17/internal/follow/tail"
)

// liveView is what a client sees as it changes.
type liveView interface {
	// read reads what there is to see at this moment, for this stream and all others that ask the same.
	read(ctx context.Context) (*liveState, error)
	// show makes what was read what the client sees, and returns what is to be sent of it: nothing where the client sees no difference, and everything the
	// first time.
	show(state *liveState) ([]liveEvent, error)
}

// liveState is what a view shows as of a position. It is not changed.
type liveState struct {
	at j17.StreamID
	// keys are the aggregates that it is made of, types those of which any may come to be one of them.
	keys  []j17.Key
	types []string
	// list are the rows of a list; events what a value is sent as, tag its entity tag, and failed why there is none.
	list   *liveList
	events []liveEvent
	tag    string
	failed error
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
	of, q := s.all.passes.asks(c)
	defer s.all.passes.leave(of, q)
	l.question = q

	// So is what is wrong with what is there at first.
	l.have = l.watch.Told()
	state, cost, err := l.read(ctx)
	if err != nil {
		return err
	}
	q.learn(cost)
	events, err := l.show(state)
	if err != nil {
		return err
	}
	c.startStream(s.w)
	if c.request.Method == http.MethodHead {
		return nil
	}
	s.pending, l.begun = true, true // the headers go out at once
	l.run(ctx, events)
	return nil
}

// living is a live view on its way to a client.
type living struct {
	*stream
	view  liveView
	watch *tail.Watch
	// question is what it has in common with other streams, reserved what is charged for the pass that it is about to make.
	question *question
	reserved int64
	// keys and types are what the watch follows, at the position of what is shown, seen how far was looked.
	keys     []j17.Key
	types    []string
	at, seen j17.StreamID
	// have is what had been told when that was read which is shown, need what has been told since.
	have, need uint64
	// begun tells that the answer has begun.
	begun bool
}

// show makes what was read what the client sees, and returns what is to be sent. A view that gets no memory for that ends: it takes for sent what it
// has found.
func (l *living) show(state *liveState) ([]liveEvent, error) {
	events, err := l.view.show(state)
	if err != nil {
		return nil, err
	}
	if state.failed == nil || len(state.keys) > 0 { // else it is not known what it is made of now
		l.at, l.seen = state.at, maxPosition(l.seen, state.at)
		l.follow(state)
	}
	size := 0
	for i := range events {
		size += events[i].size()
	}
	l.pace.charge(l.now(), lookUnits+int64(size)/work.BytesPerUnit)
	if size <= pieceBytes {
		return events, nil
	}
	if err := l.call.take(l.call.api.room.streams, int64(size), "such a view"); err != nil {
		if l.begun {
			l.end()
		}
		return nil, err
	}
	l.hold(true)
	return events, nil
}

// follow makes the watch follow what the view is made of. Where something of that may have changed since it was read, it is to be read again.
func (l *living) follow(state *liveState) {
	if slices.Equal(state.keys, l.keys) && slices.Equal(state.types, l.types) {
		return
	}
	l.keys, l.types = state.keys, state.types
	if l.watch.Follow(l.keys, l.types).Compare(state.at) > 0 {
		l.need = max(l.need, l.watch.Told(), l.have+1)
	}
}

// run sends what there is and then what changes.
func (l *living) run(ctx context.Context, events []liveEvent) {
	for l.send(events) {
		if l.need <= l.have && !l.await(ctx) {
			return
		}
		r, alive := l.next(ctx)
		if !alive {
			return
		}
		err := r.err
		events = nil
		if err == nil {
			l.have = r.turn
			events, err = l.show(r.state)
		}
		switch {
		case err == nil:
		case StatusOf(j17.CodeOf(err)) != http.StatusServiceUnavailable:
			l.fail(ctx, err)
			return
		default: // it was not its turn
			l.need = max(l.need, l.have+1)
			again, over := context.WithTimeout(ctx, time.Second)
			alive = l.sleep(ctx, again.Done())
			over()
			if !alive {
				return
			}
		}
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
	for i := range events {
		l.event(&events[i], l.at)
	}
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

// await waits until something has changed that the view is made of, and keeps the client posted that the stream lives. It reports false at the end of the
// stream.
func (l *living) await(ctx context.Context) bool {
	if l.pending && l.flush() != nil {
		return false
	}
	for l.need <= l.have {
		if !l.sleep(ctx, l.watch.Ready()) {
			return false
		}
		changed, err := l.watch.Take()
		if err != nil {
			return false
		}
		if changed.All || len(changed.Keys) > 0 {
			l.need = changed.Told
		} else {
			l.seen = changed.At
		}
	}
	return true
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

// liveProjection is what a projection yields.
type liveProjection struct {
	call *call
	ask  projection.Ask
	// tag is that of the data that was sent, with what made it impossible to compute.
	tag    string
	looked bool
}

// projectionStream is GET /_projections/{name}/{id}/stream: what a projection yields, as it changes.
func (c *call) projectionStream(w http.ResponseWriter) error {
	r := c.request
	ask := projection.Ask{Name: r.PathValue("name"), ID: r.PathValue("id"), Params: c.further, Takes: namesOf(streamedView())}
	return c.follow(w, &liveProjection{call: c, ask: ask})
}

func (l *liveProjection) read(ctx context.Context) (*liveState, error) {
	v, err := l.call.api.Projections.Read(ctx, l.call.tenant, &l.ask)
	state := &liveState{}
	if v != nil && v.Value != nil {
		state.at, state.keys, state.types = v.Position, v.Sources, setTypes(v.Value)
	}
	if err == nil {
		state.tag = v.Tag
		state.events = []liveEvent{{"value", [][]byte{[]byte(`{"data":`), v.Data, appendMetadata(nil, v)}}}
		return state, nil
	}

	// What cannot be computed is shown.
	failed, ok := errors.AsType[*j17.Error](err)
	if !ok || !projection.Lasting(err) {
		return nil, err
	}
	state.failed, state.tag = err, string(failed.Code)+failed.Message
	raw, err := marshal(wire.RowError{Code: failed.Code, Error: l.call.api.Registry.Faults.Redact(failed.Message)})
	state.events = []liveEvent{{"value", [][]byte{[]byte(`{"error":`), raw, []byte(`}`)}}}
	return state, err
}

func (l *liveProjection) show(state *liveState) ([]liveEvent, error) {
	if state.failed != nil && !l.looked {
		return nil, state.failed
	}
	l.looked = true
	if state.tag == l.tag {
		return nil, nil // what was sent already is not sent again
	}
	l.tag = state.tag
	return state.events, nil
}

const (
	// maxLiveRows is how many rows a live list may have.
	maxLiveRows = 1000
	// longerLooks is how many times as much as for a page is looked at for one that follows a place: what is to be shown has to be found as a whole.
	longerLooks = 4
)

// liveRows are rows that come, change and go.
type liveRows struct {
	of func(ctx context.Context) (*liveState, error)
	// less says how to ask for fewer of them.
	less string
	// compared counts the rows that were compared with those of before.
	compared *atomic.Uint64
	// sent are those that the client has, nil at first.
	sent *rowSet
}

func (l *liveRows) read(ctx context.Context) (*liveState, error) {
	state, err := l.of(ctx)
	if err != nil {
		return nil, err
	}
	switch list := state.list; {
	case list.early:
		return nil, j17.Errorf(j17.CodeProjectionLimit, "Too many places would have to be compared to follow what is asked for: ask for a smaller radius or area.")
	case !list.whole:
		e := j17.Errorf(j17.CodeProjectionLimit, "The list has more rows than can be followed, %d of 8 MiB together. %s", maxLiveRows, l.less)
		e.Details = map[string]int{"limit": maxLiveRows}
		return nil, e
	}
	return state, nil
}

func (l *liveRows) show(state *liveState) ([]liveEvent, error) {
	events, err := state.list.eventsSince(l.sent, l.compared)
	if err != nil {
		return nil, err
	}
	if l.sent == nil {
		events = append(slices.Clip(events), liveEvent{"ready", [][]byte{[]byte("{}")}})
	}
	l.sent = &state.list.rowSet
	return events, nil
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
		return c.follow(w, c.liveRows("Ask for a smaller radius or area.", func(ctx context.Context) (*liveState, error) {
			page, err := c.api.Places.Page(ctx, c.tenant, a)
			if err != nil {
				return nil, err
			}
			raws := make([][]byte, len(page.Rows))
			l := &liveList{whole: page.Next == "", early: page.Early, data: func(n int) ([][]byte, error) { return [][]byte{raws[n]}, nil }}
			for i := range page.Rows {
				if raws[i], err = c.appendPlace(nil, a, &page.Rows[i]); err != nil {
					return nil, err
				}
				l.add(page.Rows[i].ID, page.Rows[i].Geo, raws[i])
			}
			return &liveState{at: page.Position, types: []string{a.Type}, list: l}, nil
		}))
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
