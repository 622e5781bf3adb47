package feed

import (
	"context"
	"crypto/sha256"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/panics"
	"j17/internal/storage/store"
)

// How much of a feed is handed out at a time. It is less than what a store looks up at a time for a new reader, 256 KiB
// with what precedes the bytes of events: beyond that, it would look up as much again for a few events.
const (
	pageEvents = 1024
	pageBytes  = 224 << 10
)

// page is a copy of some entries that follow each other in a feed.
type page struct {
	entries []store.Entry
	leaves  [][sha256.Size]byte
	// events are those among the entries.
	events []*j17.Event
	// after is the position that the entries follow, end that of the last one. last reports that nothing followed them,
	// seen is the number of changes before it was read, rewrites how often events had been rewritten, users the number
	// of readers that are at work on it.
	after, end j17.StreamID
	last       bool
	seen       uint64
	rewrites   uint64
	users      atomic.Int32

	// bytes and copies are what is left of the memory for the events.
	bytes  []byte
	copies []j17.Event
	size   int
}

// The memory for the events of a page is taken in parts, each twice as large as the one before: a page may be full or
// have one event.
const (
	firstBytes, mostBytes   = 4 << 10, 64 << 10
	firstEvents, mostEvents = 8, 256
)

// add adds a copy of an entry. It reports whether the page is full.
func (p *page) add(e store.Entry) (full bool) {
	if e.Event == nil {
		p.entries = append(p.entries, e)
		p.leaves = append(p.leaves, [sha256.Size]byte{})
		p.end = e.Note.Position
		return len(p.entries) >= pageEvents
	}

	// Memory for it.
	if need := len(e.Event.Raw); cap(p.bytes)-len(p.bytes) < need {
		p.bytes = make([]byte, 0, max(need, min(max(2*cap(p.bytes), firstBytes), mostBytes)))
	}
	if len(p.copies) == cap(p.copies) {
		p.copies = make([]j17.Event, 0, min(max(2*cap(p.copies), firstEvents), mostEvents))
	}
	p.copies = p.copies[:len(p.copies)+1]
	own := &p.copies[len(p.copies)-1]

	p.bytes = e.Event.CopyTo(own, p.bytes)
	p.entries = append(p.entries, store.Entry{Event: own})
	p.leaves = append(p.leaves, own.Leaf())
	p.events = append(p.events, own)
	p.end = own.StreamID
	p.size += len(own.Raw)
	return len(p.entries) >= pageEvents || p.size >= pageBytes
}

// readPage reads what follows a position.
func (s *Subscriptions) readPage(ctx context.Context, t j17.Tenant, after j17.StreamID) (p *page, err error) {
	err = s.readPages(ctx, t, after, pageEvents, func(read *page) bool {
		p = read
		return false
	})
	return p, err
}

// readPages reads what follows a position page by page, as far as hand reports true, and up to a number of entries.
// Where these have come the last page does not say that it is the last one.
func (s *Subscriptions) readPages(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int, hand func(*page) (more bool),
) error {
	// Rewrites are counted before a page is read: what it has is not older than that.
	p, read := &page{after: after, end: after, rewrites: s.o.Store.Rewrites()}, 0
	for e, err := range s.o.Store.ReadChanges(ctx, t, after, limit) {
		if err != nil {
			return err
		}
		if read++; !p.add(e) {
			continue
		}
		if !hand(p) {
			return nil
		}
		p = &page{after: p.end, end: p.end, rewrites: s.o.Store.Rewrites()}
	}
	if p.last = read < limit; p.last || len(p.entries) > 0 {
		hand(p)
	}
	return nil
}

// ahead reads a feed on and on for readers that have much of it before them. While they are at work on a page the next
// one is made, and the store, for which this is one long iteration, looks up more events at a time.
type ahead struct {
	// after is what the next page follows, seen the number of changes before the first one was read, used when the last
	// one was taken.
	after j17.StreamID
	seen  uint64
	used  time.Time
	pages chan *page
	cut   context.CancelFunc
}

// aheadTime is how long a page that was read ahead waits for a reader. A reader that takes half as long for a page
// reads nothing ahead.
const aheadTime = time.Second

// mostAhead is how many tenants a set reads ahead for at a time. Each takes up to a MiB: what the store has looked up,
// and a page.
const mostAhead = 16

// aheadEntries is how many entries are asked of the store at a time while a feed is read ahead. It looks up the more at
// a time the more are asked for, and the other subscriptions of the tenant wait for it, and the upkeep of the lease.
const aheadEntries = 128 << 10

// readAhead begins to read what follows a position. It returns nil where that is done for enough others.
func (s *Subscriptions) readAhead(ctx context.Context, t j17.Tenant, after j17.StreamID, seen uint64) *ahead {
	if s.ahead.Add(1) > mostAhead {
		s.ahead.Add(-1)
		return nil
	}
	a := &ahead{after: after, seen: seen, used: s.o.Clock.Now(), pages: make(chan *page)}
	ctx, a.cut = context.WithCancel(ctx)
	go func() {
		defer close(a.pages)
		for more := true; more; {
			more = false
			err := panics.Logged(ctx, s.o.Logger, "reading a feed ahead", func() error {
				return s.readPages(ctx, t, after, s.aheadEntries, func(p *page) bool {
					select {
					case a.pages <- p:
						after, more = p.end, !p.last
					case <-ctx.Done():
						more = false
					}
					return more
				})
			})
			more = more && err == nil // who finds no page reads one, and sees the error
		}
	}()
	return a
}

// end ends the reading and waits for it.
func (a *ahead) end() {
	a.cut()
	for range a.pages {
		continue // what was read ahead is not wanted
	}
}

// next returns the next page, nil if there is none. It may take a while until it is there, which is not the reader's
// time.
func (a *ahead) next(clk clock.Clock) *page {
	p := <-a.pages
	if p != nil {
		p.seen, a.after, a.used = a.seen, p.end, clk.Now()
	}
	return p
}

// pageAt returns what follows a position. far reports that it is probably much. A page that others are at work on is
// shared.
func (h *holding) pageAt(at j17.StreamID, seen uint64, far bool) (*page, error) {
	if p := h.page; p != nil && p.after == at && p.users.Load() > 0 && h.current(p) && (!p.last || p.seen == seen) {
		return p, nil
	}
	h.page = nil

	// What was read ahead, unless some of it may have been erased since.
	if far && h.ahead == nil {
		h.ahead = h.s.readAhead(h.work, h.tenant, at, seen)
	}
	if h.ahead != nil && h.ahead.after == at {
		p := h.ahead.next(h.s.o.Clock)
		if p == nil || p.last || !h.current(p) {
			h.endAhead()
		}
		if p != nil && len(p.entries) > 0 && h.current(p) { // an empty one tells where the feed ended when it was made
			h.page = p
			return p, nil
		}
	}

	p, err := h.s.readPage(h.work, h.tenant, at)
	if err == nil {
		p.seen = seen
		h.page = p
	}
	return p, err
}

// current reports whether a page has its events as they are now.
func (h *holding) current(p *page) bool { return p.rewrites == h.s.o.Store.Rewrites() }

// endAhead releases what was read ahead.
func (h *holding) endAhead() {
	if h.ahead != nil {
		h.ahead.end()
		h.ahead = nil
		h.s.ahead.Add(-1)
	}
}
