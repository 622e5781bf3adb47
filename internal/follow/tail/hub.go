package tail

import (
	"context"
	"slices"
	"sync"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/core/upcast"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Bounds on the entries kept for readers that were woken and have not taken them yet.
const (
	// mostKept is how many bytes of events a hub keeps, mostEntries how many events.
	mostKept    = 1 << 20
	mostEntries = 4096
	// mostKeptOfAll is how many bytes all hubs keep together.
	mostKeptOfAll = 64 << 20
)

// readAtOnce is how many events of a feed a hub reads before it wakes readers.
const readAtOnce = 512

// hub follows the feed of one environment for all of its readers.
type hub struct {
	tail    *Tail
	tenant  j17.Tenant
	readers int // under Tail.mu
	// following is the context of the hub's work, stop ends it; started is closed when the hub's starting position is
	// known.
	following context.Context //nolint:containedctx // it lives as long as the hub, which no single call does
	stop      context.CancelFunc
	started   chan struct{}

	mu sync.Mutex
	// at is the hub's position: the events up to here that a group selects have been put into its line.
	at     j17.StreamID
	err    error
	groups map[Filter]*group
	// masks counts the groups by the members that their filters use, except those in wide, whose filters have sets.
	masks map[mask]int
	wide  wideGroups
	// entries are kept for readers; the first one has the number first.
	entries []entry
	first   uint64
	bytes   int
	// version is that of the entries.
	version version

	// watches are notified of changes: byKey and byType have them by what they follow, stirred those with something to
	// take.
	watches map[*Watch]struct{}
	byKey   map[j17.Key][]*Watch
	byType  map[string][]*Watch
	stirred []*Watch
	// told is the number of their last notification.
	told uint64
}

// entry is an event kept for readers. Its bytes are released once waiting is 0.
type entry struct {
	id  j17.StreamID
	raw []byte
	// stored are the bytes as they are stored, nil where raw is; err says why the event cannot be read otherwise.
	stored  []byte
	err     error
	waiting int
}

func (e *entry) size() int { return len(e.raw) + len(e.stored) }

// group is the readers with the same filter, and the line of the numbers of entries that it selects.
type group struct {
	test    test
	readers []*Reader
	line    []uint64
	// begin is the index of the line's first element, counted since the group was made.
	begin uint64
	woken bool
}

func (g *group) end() uint64 { return g.begin + uint64(len(g.line)) }

// mask is the set of a filter's used members: one bit for each.
type mask uint8

const (
	ofType mask = 1 << iota
	ofEvent
	ofActor
	ofTarget
	ofKey
	ofStored
)

func (f *Filter) mask() (m mask) {
	for bit, asked := range map[mask]bool{
		ofType: f.Type != "", ofEvent: f.Event != "", ofActor: f.Actor != "", ofTarget: f.Target != "",
		ofKey: f.Key != (j17.Key{}), ofStored: f.Stored,
	} {
		if asked {
			m |= bit
		}
	}
	return m
}

// only returns the filter without the members outside a mask.
func (f Filter) only(m mask) Filter {
	if m&ofType == 0 {
		f.Type = ""
	}
	if m&ofEvent == 0 {
		f.Event = ""
	}
	if m&ofActor == 0 {
		f.Actor = ""
	}
	if m&ofTarget == 0 {
		f.Target = ""
	}
	if m&ofKey == 0 {
		f.Key = j17.Key{}
	}
	f.Stored = m&ofStored != 0
	return f
}

// enter returns the hub of an environment, which follows its feed until all readers that have entered have left.
func (t *Tail) enter(ctx context.Context, tenant j17.Tenant) (*hub, error) {
	t.mu.Lock()
	h := t.hubs[tenant]
	first := h == nil
	if first {
		following, stop := context.WithCancel(context.WithoutCancel(ctx))
		h = &hub{
			tail: t, tenant: tenant, following: following, stop: stop, started: make(chan struct{}),
			groups: map[Filter]*group{}, masks: map[mask]int{},
			watches: map[*Watch]struct{}{}, byKey: map[j17.Key][]*Watch{}, byType: map[string][]*Watch{},
			wide: newWideGroups(),
		}
		t.hubs[tenant] = h
	}
	h.readers++
	t.mu.Unlock()

	// The first reader starts the hub for all. The start does not end with that reader's context.
	if first {
		h.start()
	}
	var err error
	select {
	case <-h.started:
		h.mu.Lock()
		err = h.err
		h.mu.Unlock()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		h.leave()
		return nil, err
	}
	return h, nil
}

// start begins to follow the feed from its present end.
func (h *hub) start() {
	defer close(h.started)
	rewrites := h.tail.store.Rewrites()
	var at j17.StreamID
	err := panics.Caught(func() (err error) {
		at, err = h.tail.Head(h.following, h.tenant)
		return err
	})
	if err != nil {
		h.fail(err)
		return
	}
	h.mu.Lock()
	h.at, h.version.rewrites = at, rewrites
	h.mu.Unlock()
	go h.follow(at)
}

// leave ends the use by a reader. A hub without readers is removed.
func (h *hub) leave() {
	h.tail.mu.Lock()
	h.readers--
	last := h.readers == 0
	if last && h.tail.hubs[h.tenant] == h {
		delete(h.tail.hubs, h.tenant)
	}
	h.tail.mu.Unlock()
	if last {
		h.stop()
		h.mu.Lock()
		h.drop(len(h.entries))
		h.mu.Unlock()
	}
}

// follow reads the feed after a position until the hub is stopped or the store fails; all readers then get the error.
func (h *hub) follow(at j17.StreamID) {
	for {
		err := panics.Caught(func() error {
			err := h.tail.store.AwaitFeed(h.following, h.tenant, at)
			if err == nil {
				at, err = h.read(h.following, at)
			}
			return err
		})
		if err != nil {
			h.fail(err)
			return
		}
	}
}

// read distributes the events of the feed after a position, up to a bound, and returns the position reached.
func (h *hub) read(ctx context.Context, at j17.StreamID) (j17.StreamID, error) {
	var woken []*group
	var failed error
	of := version{h.tail.store.Rewrites(), h.tail.shown.Spec(h.tenant)}
	for e, err := range h.tail.store.ReadChanges(ctx, h.tenant, at, readAtOnce) {
		if err != nil {
			failed = err
			break
		}
		shown, err := e.Event, error(nil)
		if e.Event != nil {
			shown, err = h.tail.shown.Show(ctx, h.tenant, e.Event)
			if err != nil && upcast.Failure(err) == nil {
				failed = err
				break
			}
		}
		if e.Event == nil {
			at = e.Note.Position
		} else {
			at = e.Event.StreamID
		}
		woken = h.put(&e, seen{shown, err, at}, of, woken)
	}

	h.mu.Lock()
	h.wake()
	h.mu.Unlock()
	h.rouse(ctx, woken)
	return at, failed
}

// version is what entries depend on: the store's count of rewrites, and the spec under which they are shown.
type version struct {
	rewrites uint64
	spec     *spec.Compiled
}

// outdate drops all entries if they are of another version. h.mu is held.
func (h *hub) outdate(now version) {
	if h.version != now {
		h.drop(len(h.entries))
		h.version = now
	}
}

// seen is what a hub has found at a position: the event as it is shown, nil for a note, and why it cannot be read.
type seen struct {
	event *j17.Event
	err   error
	at    j17.StreamID
}

// put adds an event to the lines of the groups that select it, and adds these groups to woken.
func (h *hub) put(e *store.Entry, s seen, of version, woken []*group) []*group {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = s.at
	h.outdate(of)
	shown := s.event
	if e.Event == nil {
		for _, rewritten := range e.Note.Streams {
			h.note(rewritten.Key)
		}
		return woken
	}
	h.note(e.Event.Key)

	// The groups are found by the members that filters use, not one by one.
	full := filterOf(shown, h.masks)
	number, waiting := h.first+uint64(len(h.entries)), 0
	let := func(g *group) {
		g.trim(h.first)
		g.line = append(g.line, number)
		waiting += len(g.readers)
		if !g.woken {
			g.woken = true
			woken = append(woken, g)
		}
	}
	under := full
	under.Event = shown.AsStored().Type
	for m := range h.masks {
		if g := h.groups[full.only(m)]; g != nil {
			let(g)
		}
		if g := h.groups[under.only(m)]; g != nil && m&ofEvent != 0 && under.Event != full.Event {
			let(g)
		}
	}
	h.wide.each(&store.Entry{Event: shown, Tags: e.Tags}, let)
	if waiting == 0 {
		return woken
	}

	// The event is kept for them; if that exceeds the bounds, the oldest entries are dropped.
	kept := entry{id: s.at, raw: slices.Clone(shown.Raw), err: s.err, waiting: waiting}
	if shown.Stored != nil {
		kept.stored = slices.Clone(shown.Stored.Raw)
	}
	h.entries = append(h.entries, kept)
	h.bytes += kept.size()
	all := h.tail.kept.Add(int64(kept.size()))
	for len(h.entries) > 0 && (h.bytes > mostKept || len(h.entries) > mostEntries || all > mostKeptOfAll) {
		all -= int64(h.drop(1))
	}
	return woken
}

// filterOf returns the filter that has all members of an event that any of the masks uses.
func filterOf(ev *j17.Event, masks map[mask]int) Filter {
	f := Filter{Type: ev.Key.Type, Event: ev.Type, Key: ev.Key}
	for m := range masks {
		if m&(ofActor|ofTarget) == 0 {
			continue
		}
		for _, tag := range j17.MetadataTags(ev.AsStored().Metadata) {
			switch tag[0] {
			case 'a':
				f.Actor = tag
			case 't':
				f.Target = tag
			}
		}
		break
	}
	return f
}

// trim drops the entries of the line that are no longer kept.
func (g *group) trim(first uint64) {
	n := 0
	for n < len(g.line) && g.line[n] < first {
		n++
	}
	g.begin += uint64(n)
	if n == len(g.line) {
		g.line = nil
		return
	}
	g.line = g.line[n:]
}

// drop drops the first n entries, even if readers wait for them, and returns their size in bytes.
func (h *hub) drop(n int) (size int) {
	for i := range n {
		size += h.entries[i].size()
		h.entries[i] = entry{}
	}
	h.first += uint64(n)
	if h.entries = h.entries[n:]; len(h.entries) == 0 {
		h.entries = nil
	}
	h.bytes -= size
	h.tail.kept.Add(int64(-size))
	return size
}

// passed records that a reader no longer waits for the entry with a number, which is still kept.
func (h *hub) passed(number uint64) {
	e := &h.entries[number-h.first]
	if e.waiting--; e.waiting > 0 {
		return
	}
	h.bytes -= e.size()
	h.tail.kept.Add(int64(-e.size()))
	e.raw, e.stored = nil, nil
	done := 0
	for done < len(h.entries) && h.entries[done].waiting == 0 {
		done++
	}
	h.drop(done)
}

// fail ends the hub: its readers get the error, and later readers get another hub.
func (h *hub) fail(err error) {
	h.tail.mu.Lock()
	if h.tail.hubs[h.tenant] == h {
		delete(h.tail.hubs, h.tenant)
	}
	h.tail.mu.Unlock()

	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	for _, g := range h.groups {
		for _, r := range g.readers {
			r.wake()
		}
	}
	for w := range h.watches {
		w.signal()
	}
}
