// Package index keeps the rows of an environment in order, by values that the declaration of an index gives for each of
// them, and finds them as of one position. It knows nothing about the content of rows: a Definition computes them.
//
// A definition's first build (build.go) goes through all aggregates of its type. From there a subscription of the feed
// (upkeep.go) uses the recorded sources of rows to find what each event can change, and commits the new entries
// together with its checkpoint. So an index is always as of one position, and a View (view.go) that waits for a
// position is exact. Entries are side items whose keys sort like their values (entry.go). The result of one build is a
// slot: another build of the same index has its own slot, and takes over when it has caught up.
//
// The decisions behind it are in docs/internals/derived.md.
package index

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/work"
	"j17/internal/derived/build"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

// Row is the content of a row at a position.
type Row struct {
	// ID is the ID of the aggregate.
	ID string
	// Entries are its places in indexes; a row that does not exist has none.
	Entries []Entry
	// Sources are the aggregates that it was computed from, other than its own, including those that did not exist.
	Sources []j17.Key
}

// Definition says what is in an index.
type Definition struct {
	// ID identifies the index within its environment. It has to change with everything that affects entries.
	ID string
	// Type is the aggregate type whose aggregates are rows. Types are further ones whose events can change rows: those
	// of sources. Where rows are computed from other rows, Types includes Type.
	Type  string
	Types []string
	// Rows returns rows as they are at a position, one for each ID in the same order. After an error it is called
	// again, so a row that cannot be computed is not an error: it has to get entries.
	Rows func(ctx context.Context, t j17.Tenant, at j17.StreamID, ids []string) ([]Row, error)
	// Learn, if not nil, is called with events before the rows that they change are computed, so that the sources of
	// these need not be read again. The events are consecutive ones of the types that count; rewrites is the store's
	// count of rewrites when they were read. They are valid until Learn returns. Its errors count like those of Rows.
	Learn func(ctx context.Context, t j17.Tenant, events []*j17.Event, rewrites uint64) error
}

// types returns all types whose events count.
func (d *Definition) types() []string { return append([]string{d.Type}, d.Types...) }

// Storage is what indexes need of a store.
type Storage interface {
	store.Sides
	store.Aggregates
	store.Feed
	store.Moments
	store.Emptying
	store.Compaction
}

// Options configures a Service. All fields but Scrub are required.
type Options struct {
	Store Storage
	Feed  *feed.Subscriptions
	Build *build.Service
	// Clock gives the times for lags, deferrals and scrubs; it is the store's.
	Clock  clock.Clock
	Logger *slog.Logger
	// Scrub is the interval between two checks of all indexes; 0 means six hours.
	Scrub time.Duration
}

// Service keeps indexes and searches them. It is safe for concurrent use, and so are several services over one store.
type Service struct {
	o      Options
	counts counters
	limits limits

	mu sync.Mutex
	// known has the definitions by tenant and ID, slots the ID of the index that each slot belongs to.
	known map[place]*Definition
	slots map[place]string
	// serving has the slot that was last seen to serve, by tenant and ID.
	serving map[place]string
	// idle has the slots whose subscriptions rest because the definition was not known.
	idle map[place]bool
	// reached has the positions up to which slots show all events although nothing was written for the last ones.
	reached map[place]reach
	// resetting is held while all indexes of an environment are thrown away; resets has the time of the last reset, a
	// time.Time by j17.Tenant.
	resetting sync.Mutex
	resets    sync.Map
	// large has a place for each query that holds many IDs in memory.
	large *work.Pool
	// waiters has the readers that wait for slots to advance, deferrals the state of deferred upkeep.
	waiters   *waiters
	deferrals *deferrals

	// bulking is held while many events are processed together; bulk is the last such work if it is not finished. begun
	// is when work that was already begun last failed to get bulking, in nanoseconds.
	bulking sync.Mutex
	bulk    *bulk
	begun   atomic.Int64
}

// place is an index or a slot of a tenant.
type place struct {
	tenant j17.Tenant
	name   string
}

// reach records that a slot at a revision shows all events up to a position. It does not apply to any other revision:
// another process that has taken the upkeep over may have continued from an earlier position.
type reach struct {
	rev uint64
	at  j17.StreamID
}

type counters struct {
	rows, writes, batches, views, waited, late, differences atomic.Uint64
	fanouts                                                 atomic.Int64
}

// Stats has the counters of a service since it was made.
type Stats struct {
	// Rows counts the rows computed because of events, Writes the writes of side items, Batches the batches of feeds
	// that were handled.
	Rows, Writes, Batches uint64
	// Views counts the views that were opened, Waited those that had to wait for events, Late those whose wait timed
	// out.
	Views, Waited, Late uint64
	// Differences counts the indexes found to differ from what events give.
	Differences uint64
	// Fanouts is the number of changes of many rows under way.
	Fanouts int64
	// Lag is how long the oldest event not shown by an index has waited, over the slots that this process keeps up to
	// date.
	Lag time.Duration
}

// kind names the subscriptions and the builds of indexes.
const kind = "index"

// New returns a service and registers its kinds of subscriptions and builds.
func New(o Options) *Service {
	large := int64(max(runtime.NumCPU(), 2))
	s := &Service{
		o: o, known: map[place]*Definition{}, slots: map[place]string{}, idle: map[place]bool{},
		reached: map[place]reach{}, serving: map[place]string{},
		large:  work.NewPool(large, large/2),
		limits: usual(),
	}
	s.waiters = &waiters{clock: o.Clock, slots: map[place]*slotWaiters{}}
	s.deferrals = &deferrals{
		clock: o.Clock, feed: o.Feed, limits: &s.limits, slots: map[place]*deferral{}, waiting: map[place]time.Time{},
	}
	o.Feed.Handle(feed.Kind{
		Name: kind, Types: s.types, Notes: true, Do: s.hand, Batch: maxBatch, Rest: s.deferrals.mayDefer,
	})
	o.Build.Handle(build.Kind{Name: kind, Page: s.page, Done: s.built, PageSize: buildPage, Sorted: true})
	return s
}

// Stats returns the counters.
func (s *Service) Stats() Stats {
	c := &s.counts
	stats := Stats{
		Rows: c.rows.Load(), Writes: c.writes.Load(), Batches: c.batches.Load(), Views: c.views.Load(),
		Waited: c.waited.Load(),
		Late:   c.late.Load(), Differences: c.differences.Load(), Fanouts: c.fanouts.Load(),
	}
	stats.Lag = s.deferrals.lag()
	return stats
}

// get returns a getter of the present items.
func (s *Service) get(ctx context.Context, t j17.Tenant) getter {
	return func(space store.Space, key string) (store.Item, error) { return s.o.Store.Get(ctx, t, space, key) }
}

// Ensure makes a definition known to this process, and begins to build the index if it does not exist.
func (s *Service) Ensure(ctx context.Context, t j17.Tenant, d *Definition) (Status, error) {
	s.Know(ctx, t, d)
	for {
		h, err := s.head(ctx, t, d.ID)
		if err != nil {
			return Status{}, err
		}
		if h.rev == 0 {
			if err = s.begin(ctx, t, d, &h); conflict(err) {
				continue
			}
			// A removal of the previous index may be about to forget the definition.
			s.learn(t, d)
		}
		if err != nil {
			return Status{}, err
		}
		if err := s.follow(ctx, t, h.Serving); err != nil {
			return Status{}, err
		}
		status, err := s.Status(ctx, t, d.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue // it was removed meanwhile
		}
		return status, err
	}
}

// learn stores a copy of a definition, so that a concurrent forget of the previous one does not remove it.
func (s *Service) learn(t j17.Tenant, d *Definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[place{t, d.ID}] = new(*d)
}

// knows returns the definition of an index, nil if it is not known.
func (s *Service) knows(t j17.Tenant, id string) *Definition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[place{t, id}]
}

// follow subscribes a serving slot to the feed, in case a crash has ended its subscription and nothing else.
func (s *Service) follow(ctx context.Context, t j17.Tenant, name string) error {
	if name == "" {
		return nil
	}
	sl, err := s.slot(ctx, t, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.o.Feed.Subscribe(ctx, t, kind, name, feed.After(sl.after()))
}

// conflict reports whether a concurrent write was faster.
func conflict(err error) bool {
	_, is := errors.AsType[*store.SideConflict](err)
	return is
}

// Know makes a definition known to this process, without looking at the index, and wakes the slots that rest for it. It
// costs next to nothing if the definition is known already.
func (s *Service) Know(ctx context.Context, t j17.Tenant, d *Definition) {
	s.mu.Lock()
	if s.known[place{t, d.ID}] != nil {
		s.mu.Unlock()
		return
	}
	s.known[place{t, d.ID}] = d
	var wake []string
	for at := range s.idle {
		if at.tenant == t && s.slots[at] == d.ID {
			delete(s.idle, at)
			wake = append(wake, at.name)
		}
	}
	s.mu.Unlock()
	for _, slot := range wake {
		_ = s.o.Feed.Wake(ctx, t, kind, slot) // if this fails, the slot continues by itself a little later
	}
}

// definition returns the definition of the index that a slot belongs to, nil if it is not known.
func (s *Service) definition(t j17.Tenant, sl *slot) *Definition {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[place{t, sl.name}] = sl.ID
	return s.known[place{t, sl.ID}]
}

// rest notes that a subscription waits for a definition. It reports false if the definition is known by now.
func (s *Service) rest(t j17.Tenant, sl *slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[place{t, sl.ID}] != nil {
		return false
	}
	s.idle[place{t, sl.name}] = true
	return true
}

// nameBytes is the length of a slot's name.
const nameBytes = 10

// begin begins to build an index into a new slot.
func (s *Service) begin(ctx context.Context, t j17.Tenant, d *Definition, h *head) error {
	sides, err := s.starting(ctx, t, d, h)
	if err != nil {
		return err
	}
	return s.o.Store.Write(ctx, t, sides)
}

// starting returns the writes that begin to build an index into a new slot, as of a position that includes all notes.
func (s *Service) starting(ctx context.Context, t j17.Tenant, d *Definition, h *head) ([]store.Side, error) {
	at, err := s.present(ctx, t)
	if err != nil {
		return nil, err
	}
	sl := &slot{
		name: strings.ToLower(rand.Text()[:nameBytes]), ID: d.ID, Types: d.types(), After: writePosition(at),
		Old: h.Serving,
	}
	h.Building = sl.name
	return append(
		s.o.Build.Start(kind, &build.Job{Tenant: t, Name: sl.name, Types: []string{d.Type}, At: at}),
		h.put(d.ID), sl.put(),
	), nil
}

// present returns the present end of the feed, including notes: a reader that begins here does not see earlier
// rewrites.
func (s *Service) present(ctx context.Context, t j17.Tenant) (j17.StreamID, error) {
	found, err := s.o.Store.ReadTogether(ctx, t, store.Wanted{})
	return found.Position, err
}

// removalPrefix is the prefix of the names of removals.
const removalPrefix = "index/"

// Rebuild builds an index again. The serving slot stays in use until the new one has caught up. Rebuild does nothing
// while a build runs; store.ErrNotFound means that there is no such index, or that its definition is not known here.
func (s *Service) Rebuild(ctx context.Context, t j17.Tenant, id string) error {
	_, err := s.rebuild(ctx, t, id, "")
	return err
}

// rebuild is Rebuild, and also drops a slot that is unfit to be read, "" for none, even while a build runs; it reports
// whether it dropped the slot. It does nothing if the unfit slot does not belong to the index, or no longer does.
func (s *Service) rebuild(ctx context.Context, t j17.Tenant, id, unfit string) (dropped bool, err error) {
	d := s.knows(t, id)
	if d == nil {
		return false, store.ErrNotFound
	}
	for {
		// The head, and whether a build runs already.
		h, err := s.head(ctx, t, id)
		if err != nil {
			return false, err
		}
		if h.rev == 0 {
			return false, store.ErrNotFound
		}
		status, err := s.buildOf(ctx, t, &h)
		if err != nil {
			return false, err
		}
		running := status != nil && status.State == build.Running
		if unfit == "" && running || unfit != "" && unfit != h.Serving && unfit != h.Building {
			return false, nil
		}

		// Slots in the way are dropped, and the build begins unless a suitable one runs. After a conflict the head is
		// read again.
		sides, err := s.clear(ctx, t, &h, unfit, running)
		if err != nil {
			return false, err
		}
		if h.Building != "" && running {
			sides = append(sides, h.put(id))
		} else {
			begun, err := s.starting(ctx, t, d, &h)
			if err != nil {
				return false, err
			}
			sides = append(sides, begun...)
		}
		if err = s.o.Store.Write(ctx, t, sides); !conflict(err) {
			return err == nil && unfit != "", err
		}
	}
}

// clear returns the writes that drop the slots in the way of a build, and removes them from a head: that of a failed or
// canceled build, and one that is unfit to be read.
func (s *Service) clear(
	ctx context.Context, t j17.Tenant, h *head, unfit string, running bool,
) (sides []store.Side, err error) {
	var names []string
	if unfit != "" && unfit == h.Serving && unfit == h.Building && running {
		// The slot has just taken over. The old slot, which it was to remove at its end, goes with it.
		sl, err := s.slot(ctx, t, unfit)
		if err == nil {
			names = append(names, sl.Old)
		} else if !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
	}
	if h.Building == unfit || h.Building != h.Serving && !running {
		names = append(names, h.Building)
		h.Building = ""
	}
	if h.Serving == unfit {
		names = append(names, h.Serving)
		h.Serving = ""
	}
	for _, name := range slices.Compact(names) {
		gone, err := s.drop(ctx, t, name)
		if err != nil {
			return nil, err
		}
		sides = append(sides, gone...)
	}
	return sides, nil
}

// Cancel ends a build; store.ErrNotFound if none runs.
func (s *Service) Cancel(ctx context.Context, t j17.Tenant, id string) error {
	for {
		h, err := s.head(ctx, t, id)
		if err != nil {
			return err
		}
		if h.Building == "" || h.Building == h.Serving {
			return store.ErrNotFound
		}
		err = s.o.Build.Cancel(ctx, t, kind, h.Building, store.Fence{Space: headSpace, Key: id, Rev: h.rev})
		if conflict(err) {
			continue // it may have taken over meanwhile
		}
		if err == nil {
			s.waiters.wake(t, h.Building)
		}
		return err
	}
}

// drop returns the writes that remove a slot. Its subscription ends first.
func (s *Service) drop(ctx context.Context, t j17.Tenant, name string) ([]store.Side, error) {
	if name == "" {
		return nil, nil
	}
	if err := s.o.Feed.Unsubscribe(ctx, t, kind, name); err != nil {
		return nil, err
	}
	s.deferrals.drop(t, name)
	sides := append(s.o.Build.Forget(kind, name), store.Side{Op: store.Delete, Space: slotSpace, Key: name})
	keys := store.Prefix(name + "/")
	return append(sides, s.o.Build.Remove(
		removalPrefix+name, build.Range{Space: entrySpace, Keys: keys, Plain: true},
		build.Range{Space: rowSpace, Keys: keys, Plain: true},
		build.Range{Space: sourceSpace, Keys: keys, Plain: true}, build.Range{Space: countSpace, Keys: keys},
	)), nil
}

// Remove removes an index and its running build; it does nothing if there is no index. The entries are removed in the
// background.
func (s *Service) Remove(ctx context.Context, t j17.Tenant, id string) error {
	for {
		d := s.knows(t, id)
		h, err := s.head(ctx, t, id)
		if err != nil || h.rev == 0 {
			return err
		}
		names := []string{h.Serving, h.Building}
		if h.Building != "" && h.Building == h.Serving {
			// If the build has just taken over, the old slot, which it was to remove at its end, goes with it.
			sl, err := s.slot(ctx, t, h.Building)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			if err == nil {
				names[1] = sl.Old
			}
		}
		var sides []store.Side
		for _, name := range names {
			gone, err := s.drop(ctx, t, name)
			if err != nil {
				return err
			}
			sides = append(sides, gone...)
		}
		sides = append(sides, store.Side{Op: store.Delete, Space: headSpace, Key: id, Cond: store.IfRev, Rev: h.rev})
		err = s.o.Store.Write(ctx, t, sides)
		if conflict(err) {
			continue
		}
		if err == nil {
			s.forget(t, id, d)
			s.waiters.wake(t, h.Serving)
			s.waiters.wake(t, h.Building)
		}
		return err
	}
}

// forget releases the cached state of a removed index, unless it has been begun again with another definition.
func (s *Service) forget(t j17.Tenant, id string, d *Definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[place{t, id}] != d {
		return
	}
	delete(s.known, place{t, id})
	delete(s.serving, place{t, id})
	for at, of := range s.slots {
		if at.tenant == t && of == id {
			delete(s.slots, at)
			delete(s.idle, at)
			delete(s.reached, at)
			s.deferrals.drop(at.tenant, at.name)
		}
	}
}

// Forget releases the cached state of the indexes of a tenant that is gone.
func (s *Service) Forget(t j17.Tenant) {
	s.resets.Delete(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	of := func(at place) bool { return at.tenant == t }
	maps.DeleteFunc(s.known, func(at place, _ *Definition) bool { return of(at) })
	maps.DeleteFunc(s.slots, func(at place, _ string) bool { return of(at) })
	maps.DeleteFunc(s.serving, func(at place, _ string) bool { return of(at) })
	maps.DeleteFunc(s.idle, func(at place, _ bool) bool { return of(at) })
	maps.DeleteFunc(s.reached, func(at place, _ reach) bool { return of(at) })
	s.deferrals.forget(t)
}

// Status is the state of an index.
type Status struct {
	ID string
	// Ready reports whether it can be read.
	Ready bool
	// Rows and Entries are the numbers of rows and entries, Bytes the size of what is stored for them.
	Rows, Entries, Bytes uint64
	// Position is that of the last event that the rows show, or that does not concern them; Lag is the number of events
	// behind it.
	Position j17.StreamID
	Lag      uint64
	// Build is the progress of the last build, nil if it is no longer known; Fanout is the progress of a change of many
	// rows, nil if none is under way.
	Build  *build.Status
	Fanout *build.Status
}

// Status returns the state of an index; store.ErrNotFound if there is none.
func (s *Service) Status(ctx context.Context, t j17.Tenant, id string) (Status, error) {
	h, err := s.head(ctx, t, id)
	if err != nil {
		return Status{}, err
	}
	if h.rev == 0 {
		return Status{}, store.ErrNotFound
	}
	status := Status{ID: id, Ready: h.Serving != ""}
	if status.Build, err = s.buildOf(ctx, t, &h); err != nil {
		return status, err
	}

	// The numbers are those of the serving slot, or else of the one being built.
	name := h.Serving
	if name == "" {
		name = h.Building
	}
	sl, err := s.slot(ctx, t, name)
	if errors.Is(err, store.ErrNotFound) {
		return status, nil // it is being replaced, or has just been removed
	}
	if err != nil {
		return status, err
	}
	status.Position, status.Fanout = sl.after(), sl.Fanout.status()
	for name, into := range map[string]*uint64{
		countRows: &status.Rows, countEntries: &status.Entries, countBytes: &status.Bytes,
	} {
		n, err := store.Counter(ctx, s.o.Store, t, countSpace, sl.name+"/"+name)
		if err != nil {
			return status, err
		}
		*into = uint64(n)
	}
	feeding, err := s.o.Feed.Status(ctx, t, kind, sl.name)
	if errors.Is(err, store.ErrNotFound) {
		return status, nil // it is not built yet
	}
	if status.Lag = feeding.Lag; feeding.After.Compare(status.Position) > 0 && sl.Fanout == nil {
		status.Position = feeding.After
	}
	return status, err
}

// status returns the progress of a change of many rows, nil for none.
func (f *fanout) status() *build.Status {
	if f == nil {
		return nil
	}
	return &build.Status{State: build.Running, Done: f.Done, Total: max(f.Total, f.Done)}
}

// buildOf returns the progress of the last build of an index, nil if it is not known.
func (s *Service) buildOf(ctx context.Context, t j17.Tenant, h *head) (*build.Status, error) {
	if h.Building == "" {
		return nil, nil
	}
	status, err := s.o.Build.Status(ctx, t, kind, h.Building)
	if err != nil || status.State == "" {
		return nil, err
	}
	return &status, nil
}

func decimal(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// List returns the states of all indexes of a tenant, in the order of their IDs.
func (s *Service) List(ctx context.Context, t j17.Tenant) (all []Status, err error) {
	const page = 100
	for keys := (store.Range{}); ; {
		items, err := s.o.Store.Scan(ctx, t, headSpace, keys, page)
		if err = s.reset(ctx, t, keptDamage(err)); errors.Is(err, store.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range items {
			status, err := s.Status(ctx, t, items[i].Key)
			if errors.Is(err, store.ErrNotFound) {
				continue // it was removed just now
			}
			if err != nil {
				return nil, err
			}
			all = append(all, status)
			keys = keys.After(items[i].Key)
		}
		if len(items) < page {
			return all, nil
		}
		keys = keys.After(items[len(items)-1].Key)
	}
}

// Await waits until no build of an index is running, and returns the index's state; with the context's error if that
// ends first.
func (s *Service) Await(ctx context.Context, t j17.Tenant, id string) (Status, error) {
	h, err := s.head(ctx, t, id)
	if err == nil && h.Building != "" {
		_, err = s.o.Build.Await(ctx, t, kind, h.Building)
	}
	status, failed := s.Status(context.WithoutCancel(ctx), t, id)
	return status, errors.Join(err, failed)
}

// reach notes that a slot, as it was read, shows all events up to a position although nothing was written.
func (s *Service) reach(t j17.Tenant, sl *slot, at j17.StreamID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached[place{t, sl.name}] = reach{sl.rev, at}
}
