// Package index keeps the rows of an environment in order, by values that the declaration of an index gives for each of
// them, and finds them as of one position. It knows nothing of what rows are: a Definition computes them.
//
// A definition's first build (build.go) goes through all aggregates of its type. From there a subscription of the feed
// (upkeep.go) finds what each event can change, by what the rows were made from, and commits the new entries together
// with its checkpoint. So an index is always as of one position, and a View (view.go) that waits for a position is
// exact. Entries are side items whose keys have the order of values (entry.go). What a build has made is a slot:
// another build of the same index has its own, and takes over when it has caught up.
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
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

// Row is a row as it is at a position.
type Row struct {
	// ID is that of the aggregate.
	ID string
	// Entries are where it stands; a row that is not there has none.
	Entries []Entry
	// Sources is what it was made from beside the aggregate itself, also what was not there.
	Sources []j17.Key
}

// Definition says what is in an index.
type Definition struct {
	// ID tells indexes of an environment apart: another one is another index. It has to change with everything that
	// decides entries.
	ID string
	// Type is the one whose aggregates are rows. Types are further ones whose events can change rows: those of sources.
	// Where rows are made from other rows, Types includes Type.
	Type  string
	Types []string
	// Rows returns rows as they are at a position, one for each id in the same order. An error is tried again: that a
	// row cannot be computed is none, but something to give entries for.
	Rows func(ctx context.Context, t j17.Tenant, at j17.StreamID, ids []string) ([]Row, error)
	// Learn, if not nil, is called with events before the rows that they change are computed, so that what these are
	// made from need not be read again. They follow each other in the feed, all of the types that count, and were read
	// when events had been rewritten so often, by the store's count. They are valid until it returns. Its errors count
	// like those of Rows.
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
	// Clock tells how late events are handled, and when indexes are looked through; it is the store's.
	Clock  clock.Clock
	Worker *worker.Kit
	Logger *slog.Logger
	// Scrub is the time between two looks through all indexes; 0 means six hours.
	Scrub time.Duration
}

// Service keeps indexes and looks things up in them. It is safe for concurrent use, and so are several of them over one
// store.
type Service struct {
	o      Options
	counts counters
	limits limits

	mu sync.Mutex
	// known are the definitions by tenant and ID, slots the indexes that slots are of.
	known map[place]*Definition
	slots map[place]string
	// idle are the slots whose subscriptions rest because the definition was not known.
	idle map[place]bool
	// reached is up to where slots show all events though nothing was written for the last ones.
	reached map[place]reach
	// resetting is held while all indexes of an environment are thrown away, resets has when that was done.
	resetting sync.Mutex
	resets    map[j17.Tenant]time.Time
	// large has a place for each question that holds many ids in memory.
	large *work.Pool
	// waiters are those that wait for slots to get on, deferrals the slots whose upkeep is deferred.
	waiters   *waiters
	deferrals *deferrals

	// bulking is held while many events are processed together; bulk is what was processed last if it is not done.
	// begun is when somebody who has begun has found no turn, in nanoseconds.
	bulking sync.Mutex
	bulk    *bulk
	begun   atomic.Int64
}

// place is an index or a slot of a tenant.
type place struct {
	tenant j17.Tenant
	name   string
}

// reach says that a slot, as it is in a revision, shows all events up to a position. It says nothing of any other
// revision: another process that has taken the upkeep over may have gone on from an earlier position.
type reach struct {
	rev uint64
	at  j17.StreamID
}

type counters struct {
	rows, writes, batches, views, waited, late, differences atomic.Uint64
	fanouts                                                 atomic.Int64
}

// Stats counts what a service has done since it was made.
type Stats struct {
	// Rows counts the rows that were computed because of events, Writes those of side items, Batches the parts of feeds
	// that were handled.
	Rows, Writes, Batches uint64
	// Views counts the views that were opened, Waited those that had to wait for events, Late the ones that did so in
	// vain.
	Views, Waited, Late uint64
	// Differences counts the indexes that were found not to be as they should.
	Differences uint64
	// Fanouts is the number of changes of many rows that are under way.
	Fanouts int64
	// Lag is for how long the event has waited that waits longest for an index to show it, of those that this process
	// keeps.
	Lag time.Duration
}

// kind is what the subscriptions and the builds of indexes are called.
const kind = "index"

// New returns a service and registers its kinds of subscriptions and builds.
func New(o Options) *Service {
	if o.Scrub <= 0 {
		o.Scrub = scrubEvery
	}
	large := int64(max(runtime.NumCPU(), 2))
	s := &Service{
		o: o, known: map[place]*Definition{}, slots: map[place]string{}, idle: map[place]bool{},
		reached: map[place]reach{}, resets: map[j17.Tenant]time.Time{},
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

// get is a getter of what is stored now.
func (s *Service) get(ctx context.Context, t j17.Tenant) getter {
	return func(space store.Space, key string) (store.Item, error) { return s.o.Store.Get(ctx, t, space, key) }
}

// Ensure makes a definition known to this process, and begins to build the index if it is not there.
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
			// The removal of the previous one may be about to forget what is known of it.
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

// learn makes a definition known to this process as another one than it was, so that who is about to forget that one
// does not forget this.
func (s *Service) learn(t j17.Tenant, d *Definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[place{t, d.ID}] = new(*d)
}

// knows returns what is known of an index, nil for nothing.
func (s *Service) knows(t j17.Tenant, id string) *Definition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[place{t, id}]
}

// follow lets a slot that is read follow the feed, where a crash has ended its subscription and nothing else.
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

// conflict reports whether somebody else was faster.
func conflict(err error) bool {
	_, is := errors.AsType[*store.SideConflict](err)
	return is
}

// Know makes a definition known to this process, without a look at the index. It costs next to nothing where it is
// known already; what has waited for it goes on.
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
		_ = s.o.Feed.Wake(ctx, t, kind, slot) // else it goes on by itself, a little later
	}
}

// definition returns what is known of the index that a slot is of.
func (s *Service) definition(t j17.Tenant, sl *slot) *Definition {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[place{t, sl.name}] = sl.ID
	return s.known[place{t, sl.ID}]
}

// rest notes that a subscription waits for a definition. It reports false where it has come meanwhile.
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

// starting returns the writes that begin to build an index into a new slot, as of a position that has all notes.
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

// present returns where the feed ends now, with its notes: a reader that begins here does not see earlier rewrites.
func (s *Service) present(ctx context.Context, t j17.Tenant) (j17.StreamID, error) {
	m, err := s.o.Store.Moment(ctx, t)
	if err != nil {
		return j17.StreamID{}, err
	}
	defer m.Close()
	return m.Position(), nil
}

// removalPrefix begins the names of removals.
const removalPrefix = "index/"

// Rebuild builds an index again. What is there serves until the new one has caught up. It does nothing while a build
// runs; store.ErrNotFound means that there is no such index, or that its definition is not known here.
func (s *Service) Rebuild(ctx context.Context, t j17.Tenant, id string) error {
	_, err := s.rebuild(ctx, t, id, "")
	return err
}

// rebuild is Rebuild. A slot that is unfit to be read, "" for none, is dropped at once, whatever is under way; it
// reports whether that was done. Where the slot is not of the index, or no longer, it does nothing.
func (s *Service) rebuild(ctx context.Context, t j17.Tenant, id, unfit string) (dropped bool, err error) {
	d := s.knows(t, id)
	if d == nil {
		return false, store.ErrNotFound
	}
	for {
		// What there is, and whether it is being built already.
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

		// What is in the way goes, and the build begins unless a suitable one runs. A faster process has changed the
		// head, which is examined again.
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

// clear returns the writes that remove what is in the way of a build, and takes it out of a head: a build that has
// ended badly, and what is unfit to be read.
func (s *Service) clear(
	ctx context.Context, t j17.Tenant, h *head, unfit string, running bool,
) (sides []store.Side, err error) {
	var names []string
	if unfit != "" && unfit == h.Serving && unfit == h.Building && running {
		// It has just taken over. What it was to remove at its end goes with it.
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

// Remove removes an index, with what is being built of it; removing what is not there is no fault. Its entries go in
// the background.
func (s *Service) Remove(ctx context.Context, t j17.Tenant, id string) error {
	for {
		d := s.knows(t, id)
		h, err := s.head(ctx, t, id)
		if err != nil || h.rev == 0 {
			return err
		}
		names := []string{h.Serving, h.Building}
		if h.Building != "" && h.Building == h.Serving {
			// Where it has just taken over, what it was to remove at its end goes with it.
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

// forget releases what is known of an index that was removed, unless somebody has begun it again meanwhile and knows
// another definition than was known before.
func (s *Service) forget(t j17.Tenant, id string, d *Definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[place{t, id}] != d {
		return
	}
	delete(s.known, place{t, id})
	for at, of := range s.slots {
		if at.tenant == t && of == id {
			delete(s.slots, at)
			delete(s.idle, at)
			delete(s.reached, at)
			s.deferrals.drop(at.tenant, at.name)
		}
	}
}

// Forget releases what is known of the indexes of a tenant that is gone.
func (s *Service) Forget(t j17.Tenant) {
	s.resetting.Lock()
	delete(s.resets, t)
	s.resetting.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	of := func(at place) bool { return at.tenant == t }
	maps.DeleteFunc(s.known, func(at place, _ *Definition) bool { return of(at) })
	maps.DeleteFunc(s.slots, func(at place, _ string) bool { return of(at) })
	maps.DeleteFunc(s.idle, func(at place, _ bool) bool { return of(at) })
	maps.DeleteFunc(s.reached, func(at place, _ reach) bool { return of(at) })
	s.deferrals.forget(t)
}

// Status is how an index is.
type Status struct {
	ID string
	// Ready reports that it can be read.
	Ready bool
	// Rows, Entries and Bytes are how many rows are there, and what is stored of them.
	Rows, Entries, Bytes uint64
	// Position is that of the last event that the rows show, or that does not concern them; Lag the number of events
	// behind it.
	Position j17.StreamID
	Lag      uint64
	// Build is how far the last build is, nil if that is no longer known; Fanout how far a change of many rows is that
	// is under way, else nil.
	Build  *build.Status
	Fanout *build.Status
}

// Status tells how an index is; store.ErrNotFound if there is none.
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

	// The numbers are those of what is read, or else of what is being built.
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
		if *into, err = s.number(ctx, t, sl.name+"/"+name); err != nil {
			return status, err
		}
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

// status returns how far a change of many rows is, nil for none.
func (f *fanout) status() *build.Status {
	if f == nil {
		return nil
	}
	return &build.Status{State: build.Running, Done: f.Done, Total: max(f.Total, f.Done)}
}

// buildOf returns how far the last build of an index is, nil where that is not known.
func (s *Service) buildOf(ctx context.Context, t j17.Tenant, h *head) (*build.Status, error) {
	if h.Building == "" {
		return nil, nil
	}
	status, err := s.o.Build.Status(ctx, t, kind, h.Building)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return &status, err
}

// number reads one of the numbers of a slot.
func (s *Service) number(ctx context.Context, t j17.Tenant, key string) (uint64, error) {
	it, err := s.o.Store.Get(ctx, t, countSpace, key)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(it.Value), 10, 64)
}

func decimal(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// List tells how all indexes of a tenant are, in the order of their IDs.
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

// Await waits until no build of an index is running, and tells how it is; with the context's error if that ends before.
func (s *Service) Await(ctx context.Context, t j17.Tenant, id string) (Status, error) {
	h, err := s.head(ctx, t, id)
	if err == nil && h.Building != "" {
		if _, err = s.o.Build.Await(ctx, t, kind, h.Building); errors.Is(err, store.ErrNotFound) {
			err = nil
		}
	}
	status, failed := s.Status(context.WithoutCancel(ctx), t, id)
	return status, errors.Join(err, failed)
}

// reach notes that a slot as it was read shows all events up to a position, though nothing was written.
func (s *Service) reach(t j17.Tenant, sl *slot, at j17.StreamID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached[place{t, sl.name}] = reach{sl.rev, at}
}
