package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"j17"
	"j17/internal/base/work"
	"j17/internal/follow/tail"
	"j17/internal/storage/store"
)

// liveView is what a client sees as it changes.
type liveView interface {
	// read reads what there is to see at this moment, for this stream and all others that ask the same.
	read(ctx context.Context) (*liveState, error)
	// show makes what was read what the client sees, and returns what is to be sent of it: nothing where the client
	// sees no difference, and everything the first time.
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

// follow answers with a view as it changes, until the client goes, takes nothing, or has no right to it any more, or
// the server stops.
func (all *streams) follow(c *call, w http.ResponseWriter, v liveView) error {
	// What is wrong with the request is an error.
	if last := c.request.Header.Get(headerLastEvent); last != "" {
		if _, err := j17.ParsePosition(last); err != nil {
			return j17.Errorf(j17.CodeInvalidHeader, "Last-Event-ID must be the id of an event of the stream, such as 1706789012345-0").At("last-event-id")
		}
	}
	ctx := c.request.Context()
	s, err := all.open(c, w, c.query.duration("heartbeat", defaultHeartbeat))
	if err != nil {
		return err
	}
	defer s.close()
	l := &living{stream: s, view: v}
	if l.watch, err = all.api.Tail.Watch(ctx, c.tenant); err != nil {
		return store.UserError(err)
	}
	defer l.watch.Close()
	of, q := all.passes.asks(c)
	defer all.passes.leave(of, q)
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
	s.placed = true                 // no position is one to tell
	l.run(ctx, events)
	return nil
}

// living is a live view on its way to a client.
type living struct {
	*stream
	view  liveView
	watch *tail.Watch
	// question is what it has in common with other streams, reserved what is charged for the pass that it is about to
	// make.
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

// show makes what was read what the client sees, and returns what is to be sent. A view that gets no memory for that
// ends: it takes for sent what it has found.
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
	if err := l.call.take(l.call.api.resources.streams, int64(size), "such a view"); err != nil {
		if l.begun {
			l.end()
		}
		return nil, err
	}
	l.hold(true)
	return events, nil
}

// follow makes the watch follow what the view is made of. Where something of that may have changed since it was read,
// it is to be read again.
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
	for l.update(events) {
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
			alive = l.wait(ctx, again.Done())
			over()
			if !alive {
				return
			}
		}
	}
}

// update sends events. It reports false at the end of the stream.
func (l *living) update(events []liveEvent) bool {
	if len(events) == 0 {
		return !l.ended()
	}
	defer func() {
		l.call.release()
		l.hold(false)
	}()
	for i := range events {
		l.event(events[i].name, l.at, events[i].parts...)
	}
	l.send()
	l.frame = nil // most views change seldom
	l.all.sent.Add(uint64(len(events)))
	return l.flush() == nil && !l.ended()
}

// fail tells the client why the view cannot be followed any more, as the answer to a request would.
func (l *living) fail(ctx context.Context, err error) {
	if ctx.Err() != nil || l.ended() {
		return // the end of the stream, whatever the view has made of it
	}
	_, body := l.call.api.faults.problem(l.call, err)
	l.put([]byte("event: error\ndata: "))
	l.put(l.call.api.faults.redactedProblem(body))
	l.put([]byte("\n\n"))
	_ = l.flush() // the stream is at its end
}

// await waits until something has changed that the view is made of, and keeps the client posted that the stream lives.
// It reports false at the end of the stream.
func (l *living) await(ctx context.Context) bool {
	if l.pending && l.flush() != nil {
		return false
	}
	for l.need <= l.have {
		if !l.wait(ctx, l.watch.Ready()) {
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

func maxPosition(a, b j17.StreamID) j17.StreamID {
	if a.Compare(b) < 0 {
		return b
	}
	return a
}
