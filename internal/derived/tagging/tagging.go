// Package tagging sees to it that all events have the tags that the spec declares. New events are written with theirs; when a deployment
// adds, changes or drops tags, older events get those that they should have in the background (build.go). Until that is done, nothing is
// found by the tags that have changed: who asks for one is told to come again.
package tagging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// space has one item, stateKey: which tags events have, and how far older ones are. It is due while there is something to do. It holds no
// data of streams.
const space store.Space = "tagging"

const stateKey = "tags"

// Storage is what tagging needs of a store.
type Storage interface {
	store.Feed
	store.Sides
	store.Retagging
}

// Options configures a Service. All fields are required.
type Options struct {
	Store  Storage
	Clock  clock.Clock
	Worker *worker.Kit
	Logger *slog.Logger
	// Engine is asked by the builds, and is given Derive and Tagged by whoever made it.
	Engine *engine.Engine
}

// Service tags older events. It is safe for concurrent use, and so are several of them over one store.
type Service struct {
	Options
	builds *worker.Queue
	known  sync.Map // of *known by j17.Tenant
	events atomic.Uint64
	ended  atomic.Uint64
}

// New returns a service that does nothing before Run.
func New(o Options) *Service {
	s := &Service{Options: o}
	s.builds = o.Worker.Queue(worker.Work{Name: "tagging", Store: o.Store, Space: space, Do: s.turn, Lease: lease, AtOnce: 2, Each: 1})
	return s
}

// Run tags events until the context ends.
func (s *Service) Run(ctx context.Context) error { return s.builds.Run(ctx) }

// Settle does all that can be done now.
func (s *Service) Settle(ctx context.Context) error { return s.builds.Settle(ctx) }

// NextDue returns when something is to be done next, the zero time for nothing.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.builds.NextDue(ctx) }

// Stats counts what a service has done since it was made: older events that builds have looked at, and builds that have come to their end.
type Stats struct{ Events, Ended uint64 }

// Stats returns what the service has done.
func (s *Service) Stats() Stats { return Stats{s.events.Load(), s.ended.Load()} }

// Declared is a tag that what is deployed declares.
type Declared struct {
	Name string
	// Types are the aggregate types with events that have it.
	Types []string
	// Ready tells that all events have it that should. Until then Done of Total events were looked at.
	Ready       bool
	Done, Total uint64
}

// Tags returns the tags that what is deployed to a tenant declares, by their names; none where nothing is deployed.
func (s *Service) Tags(ctx context.Context, t j17.Tenant) ([]Declared, error) {
	d, fences, err := s.Engine.Deployed(t)
	if j17.CodeOf(err) == j17.CodeNoSpec {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err := s.of(ctx, t, d, fences); err != nil {
		return nil, engine.StorageError(err)
	}
	st, _, err := s.load(ctx, t)
	if err != nil {
		return nil, engine.StorageError(err)
	}
	all := make([]Declared, 0, len(d.TagNames))
	for _, name := range slices.Sorted(maps.Keys(d.TagNames)) {
		tag := Declared{Name: name, Types: d.TagNames[name].Types, Ready: !slices.Contains(st.Pending, name)}
		if !tag.Ready {
			tag.Done, tag.Total = st.Done, st.Total
		}
		all = append(all, tag)
	}
	return all, nil
}

// Forget lets go of what is known of the tags of a tenant that is gone.
func (s *Service) Forget(t j17.Tenant) { s.known.Delete(t) }

// known is what is known of the tags of what is deployed to a tenant.
type known struct {
	decider *decider.Decider
	// ready tells that all events have them.
	ready atomic.Bool
}

// state is which tags the events of a tenant have.
type state struct {
	// Names are the declared tags, Pending those of them, and of others that nobody declares any more, that older events do not all have,
	// or still have.
	Names   map[string]declared `json:"names"`
	Pending []string            `json:"pending,omitempty"`
	// Types are the aggregate types whose events are gone through, from Reached to End. Done of Total events were looked at.
	Types   []string `json:"types,omitempty"`
	Reached string   `json:"reached,omitempty"`
	End     string   `json:"end,omitempty"`
	Done    uint64   `json:"done,omitempty"`
	Total   uint64   `json:"total,omitempty"`
}

// declared is a tag as some spec declares it.
type declared struct {
	Fingerprint []byte   `json:"fingerprint"`
	Types       []string `json:"types"`
}

// declaredBy returns the tags of a spec.
func declaredBy(d *decider.Decider) map[string]declared {
	names := make(map[string]declared, len(d.TagNames))
	for name, tag := range d.TagNames {
		names[name] = declared{tag.Fingerprint[:], tag.Types}
	}
	return names
}

// of reports whether the state is that of a spec's tags.
func (st *state) of(names map[string]declared) bool {
	return maps.EqualFunc(st.Names, names, func(a, b declared) bool { return bytes.Equal(a.Fingerprint, b.Fingerprint) })
}

// side is the write that stores the state.
func (st *state) side(due time.Time) store.Side {
	return store.Side{Op: store.Put, Space: space, Key: stateKey, Value: st.encode(), Due: due}
}

func (st *state) encode() []byte {
	b, _ := json.Marshal(st) //nolint:errchkjson // texts and numbers: it cannot fail
	return b
}

func readState(value []byte) (*state, error) {
	_, raw, err := worker.ReadAttempts(value)
	st := &state{}
	if err == nil {
		err = json.Unmarshal(raw, st)
	}
	if err != nil {
		return nil, &store.CorruptionError{Where: string(space) + "/" + stateKey, Err: err}
	}
	return st, nil
}

// load reads the state of a tenant; rev is 0 where there is none.
func (s *Service) load(ctx context.Context, t j17.Tenant) (st *state, rev uint64, err error) {
	it, err := s.Store.Get(ctx, t, space, stateKey)
	if errors.Is(err, store.ErrNotFound) {
		return &state{}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	st, err = readState(it.Value)
	return st, it.Rev, err
}

// of returns what is known of the tags of what is deployed, which is written down before anything else is stored with it: so that no event
// is missed, however often the spec goes back and forth.
func (s *Service) of(ctx context.Context, t j17.Tenant, d *decider.Decider, fences []store.Fence) (*known, error) {
	if found, ok := s.known.Load(t); ok {
		if k, _ := found.(*known); k.decider == d {
			return k, nil
		}
	}
	for {
		err := s.adopt(ctx, t, d, fences)
		if conflict, ok := errors.AsType[*store.SideConflict](err); ok {
			if slices.ContainsFunc(fences, func(f store.Fence) bool { return f.Space == conflict.Space && f.Key == conflict.Key }) {
				return &known{decider: d}, nil // something else is deployed, and whatever follows from this is refused
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		k := &known{decider: d}
		s.known.Store(t, k)
		return k, nil
	}
}

// adopt makes the tags of a spec those that events have, and begins the build that it takes.
func (s *Service) adopt(ctx context.Context, t j17.Tenant, d *decider.Decider, fences []store.Fence) error {
	st, rev, err := s.load(ctx, t)
	if err != nil {
		return err
	}
	names := declaredBy(d)
	if st.of(names) {
		return nil
	}

	// What has changed, with what an earlier build has not come to.
	types := st.Types
	change := func(name string, tag declared) {
		if !slices.Contains(st.Pending, name) {
			st.Pending = append(st.Pending, name)
		}
		types = append(types, tag.Types...)
	}
	for name, tag := range st.Names {
		if !bytes.Equal(names[name].Fingerprint, tag.Fingerprint) {
			change(name, tag)
		}
	}
	for name, tag := range names {
		if !bytes.Equal(st.Names[name].Fingerprint, tag.Fingerprint) {
			change(name, tag)
		}
	}
	if rev == 0 {
		// Nobody knows which tags events have, as after a restoration: types may have lost theirs before.
		types = slices.Collect(maps.Keys(d.Types))
	}
	slices.Sort(st.Pending)
	slices.Sort(types)

	// All events up to now may be without it. Those that come are not.
	extent, err := s.Store.Extent(ctx, t)
	if err != nil {
		return err
	}
	next := state{Names: names}
	var due time.Time
	if extent.Events > 0 {
		next.Pending, next.Types, next.End, next.Total = st.Pending, slices.Compact(types), extent.Last.String(), extent.Events
		due = s.Clock.Now()
	}
	side := next.side(due)
	if side.Cond = store.IfAbsent; rev > 0 {
		side.Cond, side.Rev = store.IfRev, rev
	}
	return s.Store.Write(ctx, t, []store.Side{side}, fences...)
}

// Derive makes sure that the tags of what is deployed are known before anything is stored with it. It is one of an engine's Derived.
func (s *Service) Derive(ctx context.Context, e *part.Entering) ([]store.Side, error) {
	_, err := s.of(ctx, e.Tenant, e.Decider, e.Fences)
	return nil, err
}

// Adopt makes sure that the tags of what is deployed to a tenant are known, and begins the build that it takes.
func (s *Service) Adopt(ctx context.Context, t j17.Tenant) error {
	d, fences, err := s.Engine.Deployed(t)
	if err != nil {
		return err
	}
	_, err = s.of(ctx, t, d, fences)
	return engine.StorageError(err)
}

// progress is the details of the error of tags that older events do not all have yet.
type progress struct {
	Tags  []string `json:"tags"`
	Done  uint64   `json:"done"`
	Total uint64   `json:"total"`
}

// Tagged is an engine's: it is an error of CodeIndexNotReady while events do not all have the tags of some names.
func (s *Service) Tagged(ctx context.Context, t j17.Tenant, d *decider.Decider, fences []store.Fence, names []string) error {
	k, err := s.of(ctx, t, d, fences)
	if err != nil || k.ready.Load() {
		return err
	}
	st, _, err := s.load(ctx, t)
	if err != nil {
		return err
	}
	if len(st.Pending) == 0 && st.of(declaredBy(d)) {
		k.ready.Store(true)
		return nil
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(st.Pending, name) })
	if len(missing) == 0 {
		return nil
	}
	out := j17.Errorf(j17.CodeIndexNotReady, "Older events are being given the tag '%s': %d of %d events are done. Try again in a moment.", missing[0], st.Done, st.Total)
	out.Details = progress{missing, st.Done, st.Total}
	return out
}

// awaitEvery is how often a build is looked at that somebody waits for.
const awaitEvery = 20 * time.Millisecond

// Await waits until all events of a tenant have their tags, or the context ends.
func (s *Service) Await(ctx context.Context, t j17.Tenant) error {
	machine := clock.System{}
	for {
		st, _, err := s.load(ctx, t)
		if err != nil || len(st.Pending) == 0 {
			return err
		}
		if err := machine.Wait(ctx, machine.Now().Add(awaitEvery)); err != nil {
			return err
		}
	}
}
