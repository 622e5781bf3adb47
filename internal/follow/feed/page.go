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

// The maximum size of a page. It is below what a store looks up at a time for a new reader, 256 KiB including what
// precedes the bytes of events: a larger page would make it look up as much again for a few events.
const (
	pageEvents = 1024
	pageBytes  = 224 << 10
)

// page is a copy of some consecutive entries of a feed.
type page struct {
	entries []store.Entry
	leaves  [][sha256.Size]byte
	// events are the events among the entries.
	events []*j17.Event
	// after is the position that the entries follow, end that of the last one. last reports that nothing followed them;
	// seen is the number of changes before the page was read, rewrites the store's count of rewrites, users the number
	// of readers at work on it.
	after, end j17.StreamID
	last       bool
	seen       uint64
	rewrites   uint64
	users      atomic.Int32

	// bytes and copies are the free parts of the memory for the events.
	bytes  []byte
	copies []j17.Event
	size   int
}

// The memory for the events of a page is allocated in parts, each twice as large as the one before: a page may be full
// or have one event.
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

	// Memory for the event.
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

// readPage reads a page after a position.
func (s *Subscriptions) readPage(ctx context.Context, t j17.Tenant, after j17.StreamID) (p *page, err error) {
	err = s.readPages(ctx, t, after, pageEvents, func(read *page) bool {
		p = read
		return false
	})
	return p, err
}

// readPages reads the feed after a position page by page, while hand reports true, up to a number of entries. If it
// stops at that number, the last page is not marked as last.
func (s *Subscriptions) readPages(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int, hand func(*page) (more bool),
) error {
	// Rewrites are counted before a page is read, so its events are not older than that.
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

// ahead reads a feed continuously for readers with a large backlog. While they work on a page the next one is prepared,
// and the store, for which this is one long iteration, looks up more events at a time.
type ahead struct {
	// after is the position that the next page follows, seen the number of changes before the first page was read, used
	// the time when the last page was taken.
	after j17.StreamID
	seen  uint64
	used  time.Time
	pages chan *page
	cut   context.CancelFunc
}

// aheadTime is how long a page that was read ahead waits for a reader. Nothing is read ahead for a reader that takes
// half as long for a page.
const aheadTime = time.Second

// mostAhead is the number of tenants that a set reads ahead for at a time. Each takes up to a MiB: what the store has
// looked up, and a page.
const mostAhead = 16

// aheadEntries is how many entries one iteration of the store covers while a feed is read ahead. The larger the number,
// the more the store looks up at a time, while the other subscriptions of the tenant and the upkeep of the lease wait.
const aheadEntries = 128 << 10

// readAhead begins to read ahead after a position. It returns nil if mostAhead tenants are read ahead for already.
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
			more = more && err == nil // a caller that finds no page reads one, and gets the error
		}
	}()
	return a
}

// end stops the reading and waits for its end.
func (a *ahead) end() {
	a.cut()
	for range a.pages {
		continue // discards pages read ahead
	}
}

// next returns the next page, nil if there is none. The time that it waits for the page does not count as the reader's.
func (a *ahead) next(clk clock.Clock) *page {
	p := <-a.pages
	if p != nil {
		p.seen, a.after, a.used = a.seen, p.end, clk.Now()
	}
	return p
}

// pageAt returns the page after a position. far reports that much follows, probably. A page that others are at work on
// is shared.
func (h *holding) pageAt(at j17.StreamID, seen uint64, far bool) (*page, error) {
	if p := h.page; p != nil && p.after == at && p.users.Load() > 0 && h.current(p) && (!p.last || p.seen == seen) {
		return p, nil
	}
	h.page = nil

	// Pages read ahead, unless some of their events may have been erased since.
	if far && h.ahead == nil {
		h.ahead = h.s.readAhead(h.work, h.tenant, at, seen)
	}
	if h.ahead != nil && h.ahead.after == at {
		p := h.ahead.next(h.s.o.Clock)
		if p == nil || p.last || !h.current(p) {
			h.endAhead()
		}
		if p != nil && len(p.entries) > 0 && h.current(p) {
			// an empty page only shows where the feed ended when it was read
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

// current reports whether nothing was rewritten since the page was read.
func (h *holding) current(p *page) bool { return p.rewrites == h.s.o.Store.Rewrites() }

// endAhead releases the pages read ahead.
func (h *holding) endAhead() {
	if h.ahead != nil {
		h.ahead.end()
		h.ahead = nil
		h.s.ahead.Add(-1)
	}
}
