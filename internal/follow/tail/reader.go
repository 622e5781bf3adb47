package tail

import (
	"context"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
)

// Event is an event handed out by a Reader. Raw has its canonical bytes, and is shared by all readers.
type Event struct {
	ID  j17.StreamID
	Raw []byte
}

// Reader hands out the events of an environment that a filter selects, as they come. It is for one goroutine, except
// for Wake.
type Reader struct {
	hub    *hub
	filter Filter
	ready  chan struct{}
	// position is the reader's position.
	position j17.StreamID
	// limit is how many events it looks at in the store at a time.
	limit int

	// The rest is guarded by hub.mu: the reader's group, nil while it is in none; its place in the group's line, which
	// has everything after the position from; and its index among the readers of the group.
	group *group
	next  uint64
	from  j17.StreamID
	place int
	// batch is the batch that the reader was woken with, until it has come.
	batch  *batch
	closed bool
}

// The bounds of limit, which adapts to how many events fill a piece.
const (
	leastLooks = 16
	firstLooks = 64
	mostLooks  = 64 << 10
)

// Open returns a reader that begins after a position. It must be closed.
func (t *Tail) Open(ctx context.Context, tenant j17.Tenant, f Filter, after j17.StreamID) (*Reader, error) {
	h, err := t.enter(ctx, tenant)
	if err != nil {
		return nil, err
	}
	r := &Reader{hub: h, filter: f, ready: make(chan struct{}, 1), position: after, limit: firstLooks}
	h.mu.Lock()
	h.join(r)
	h.mu.Unlock()
	return r, nil
}

// Close ends the reader.
func (r *Reader) Close() {
	r.hub.mu.Lock()
	r.closed = true
	r.came()
	r.hub.part(r)
	r.hub.mu.Unlock()
	r.hub.leave()
}

// Ready returns a channel that receives when there may be something to take.
func (r *Reader) Ready() <-chan struct{} { return r.ready }

func (r *Reader) wake() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// Position returns the reader's position: it has handed out everything up to there.
func (r *Reader) Position() j17.StreamID {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.advance()
	return r.position
}

// advance moves a reader that has taken everything to the hub's position. hub.mu is held.
func (r *Reader) advance() {
	if at := r.hub.at; r.next == r.group.end() && r.position.Compare(r.from) >= 0 && at.Compare(r.position) > 0 {
		r.position = at
	}
}

// Piece has the events handed out by one Take.
type Piece struct {
	Events []Event
	// Needs, if not 0, is the size of the next event, which exceeds the requested size.
	Needs int
	// More reports that there is more already: Ready may not receive for it.
	More bool
	buf  []byte
}

// Take fills a piece, whose memory it reuses, with events of at most most bytes together; with none if there is nothing
// new. Reads of the store are charged to a budget of their own, which takes turns in the name of ctx.
func (r *Reader) Take(ctx context.Context, p *Piece, most int) error {
	clear(p.Events)
	p.Events, p.Needs, p.More = p.Events[:0], 0, false
	for {
		behind, err := r.takeKept(p, most)
		if err != nil || !behind {
			return err
		}
		if err := r.catchUp(ctx, p, most); err != nil {
			return err
		}
		if len(p.Events) > 0 || p.Needs > 0 || r.position.Compare(r.since()) < 0 {
			p.More = true
			return nil
		}
	}
}

// Behind reports whether Take will read the store.
func (r *Reader) Behind() bool {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return r.lost() || r.position.Compare(r.from) < 0
}

// lost reports whether entries were dropped that the reader has not taken. hub.mu is held.
func (r *Reader) lost() bool {
	g := r.group
	return r.next < g.end() && (r.next < g.begin || g.line[r.next-g.begin] < r.hub.first)
}

// since returns the position after which the group's line has everything for the reader.
func (r *Reader) since() j17.StreamID {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return r.from
}

// takeKept takes entries of the group's line. behind reports that the reader has not reached the beginning of the line
// yet.
func (r *Reader) takeKept(p *Piece, most int) (behind bool, err error) {
	h := r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	r.came()
	if h.err != nil {
		return false, h.err
	}

	// Entries no longer kept have to be read from the store.
	h.outdate(version{h.tail.store.Rewrites(), h.tail.shown.Spec(h.tenant)})
	if r.lost() {
		h.part(r)
		h.join(r)
	}
	if r.position.Compare(r.from) < 0 {
		return true, nil
	}

	// As much of the rest as there is room for.
	size := 0
	for ; r.next < r.group.end(); r.next++ {
		number := r.group.line[r.next-r.group.begin]
		e := &h.entries[number-h.first]
		if e.id.Compare(r.position) > 0 {
			raw := e.raw
			switch {
			case r.filter.Stored && e.stored != nil:
				raw = e.stored
			case e.err != nil && !r.filter.Stored && size > 0:
				p.More = true
				return false, nil
			case e.err != nil && !r.filter.Stored:
				return false, e.err
			}
			if size+len(raw) > most {
				if p.More = size > 0; !p.More {
					p.Needs = len(raw)
				}
				return false, nil
			}
			size += len(raw)
			p.Events = append(p.Events, Event{e.id, raw})
			r.position = e.id
		}
		h.passed(number)
	}
	r.advance()
	return false, nil
}

// catchUp takes events from the store.
func (r *Reader) catchUp(ctx context.Context, p *Piece, most int) error {
	w := r.hub.tail.Walk(r.hub.tenant, r.filter, r.position)
	b := work.New(ctx, work.Command)
	p.buf = p.buf[:0]
	filled, seen := false, 0
	for ev, err := range w.Events(ctx, r.limit, b) {
		if upcast.Failure(err) != nil && len(p.Events) > 0 {
			break // the next piece is the error
		}
		if err != nil {
			return err
		}
		if len(p.buf)+len(ev.Raw) > most {
			if filled = true; len(p.buf) == 0 {
				p.Needs = len(ev.Raw)
			}
			break
		}
		seen++
		p.buf = append(p.buf, ev.Raw...)
		p.Events = append(p.Events, Event{ID: ev.StreamID, Raw: p.buf[len(p.buf)-len(ev.Raw):]})
	}
	r.position = w.Position()

	// The next limit is the number of events that fills a piece, or more if few of them were selected.
	switch {
	case filled:
		r.limit = max(leastLooks, r.limit/2)
	case !w.Ended():
		r.limit = min(mostLooks, r.limit*2)
	}
	return nil
}

// join adds a reader to the group of its filter: from here on the line has everything for it. h.mu is held.
func (h *hub) join(r *Reader) {
	g := h.groups[r.filter]
	if g == nil {
		g = &group{test: newTest(r.filter)}
		h.groups[r.filter] = g
		if r.filter.wide() {
			h.wide.add(g)
		} else {
			h.masks[r.filter.mask()]++
		}
	}
	r.group, r.place, r.next, r.from = g, len(g.readers), g.end(), h.at
	g.readers = append(g.readers, r)
}

// part removes a reader from its group. h.mu is held.
func (h *hub) part(r *Reader) {
	g := r.group
	for i := max(r.next, g.begin); i < g.end(); i++ {
		if number := g.line[i-g.begin]; number >= h.first {
			h.passed(number)
		}
	}
	last := len(g.readers) - 1
	g.readers[r.place] = g.readers[last]
	g.readers[r.place].place = r.place
	g.readers[last] = nil
	if g.readers = g.readers[:last]; last > 0 {
		return
	}
	delete(h.groups, r.filter)
	switch m := r.filter.mask(); {
	case r.filter.wide():
		h.wide.remove(g)
	case h.masks[m] > 1:
		h.masks[m]--
	default:
		delete(h.masks, m)
	}
}
