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
	// read reads what there is to see at this moment, for this stream and all others that ask the same question.
	read(ctx context.Context) (*liveState, error)
	// show updates what the client sees to what was read, and returns what to send: nothing where the client sees no
	// difference, and everything the first time.
	show(state *liveState) ([]liveEvent, error)
}

// liveState is what a view shows as of a position. It is not changed.
type liveState struct {
	at j17.StreamID
	// keys are the aggregates that the view is made of, types the aggregate types of which any aggregate may become
	// part of it.
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

// follow answers with a view as it changes, until the client leaves, stops reading or loses the right to it, or the
// server stops.
func (all *streams) follow(c *call, w http.ResponseWriter, v liveView) error {
	// A fault of the request is answered as an error.
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

	// So is a fault of the first read.
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
	s.placed = true                 // there is no position to send
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
	// keys and types are what the watch follows, as of the position of what is shown; seen is how far it has looked.
	keys     []j17.Key
	types    []string
	at, seen j17.StreamID
	// have is what the watch had reported when the shown state was read, need what it has reported since.
	have, need uint64
	// begun reports that the answer has begun.
	begun bool
}

// show updates what the client sees to what was read, and returns what to send. A view that gets no memory for sending
// ends, since the difference counts as sent once it was found.
func (l *living) show(state *liveState) ([]liveEvent, error) {
	events, err := l.view.show(state)
	if err != nil {
		return nil, err
	}
	if state.failed == nil || len(state.keys) > 0 { // else it is not known what the view is made of now
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

// follow makes the watch follow what the view is made of. Where some of it may have changed since it was read, it is
// read again.
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
		default: // no turn was free
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

// fail tells the client why the view can no longer be followed, in the form of an error's answer.
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

// await waits until something that the view is made of has changed, and sends heartbeats meanwhile. It reports false at
// the end of the stream.
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
