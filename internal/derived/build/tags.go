package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// tagSpace has one item, tagStateKey: the tags that events have, and the progress of tagging older ones. It is due
// while a build runs. It holds no data of streams.
const tagSpace store.Space = "tagging"

const tagStateKey = "tags"

// TaggerStorage is what a Tagger needs of a store.
type TaggerStorage interface {
	store.Feed
	store.Sides
	store.Retagging
}

// TaggerOptions configures a Tagger. All fields are required.
type TaggerOptions struct {
	Store TaggerStorage
	// Builds runs the builds.
	Builds *Service
	// Engine is used by the builds, and gets Derive and Tagged from the code that made it.
	Engine *engine.Engine
}

// Tagger gives all events the tags that the spec declares. New events are written with their tags; when a deployment
// adds, changes or drops tags, older events are updated in the background (tags_build.go). Until that is done, a search
// by a changed tag is refused with CodeIndexNotReady. A Tagger is safe for concurrent use, and so are several of them
// over one store.
type Tagger struct {
	TaggerOptions
	known  *Adoption[*deployedTags]
	events atomic.Uint64
	ended  atomic.Uint64
}

// NewTagger returns a tagger, and adds its builds to those of TaggerOptions.Builds, which must not run yet.
func NewTagger(o TaggerOptions) *Tagger {
	s := &Tagger{TaggerOptions: o}
	s.known = NewAdoption(o.Engine, s.adopt)
	o.Builds.work = append(o.Builds.work, o.Builds.o.Worker.Queue(worker.Work{
		Name: "tagging", Store: o.Store, Space: tagSpace, Do: s.runPass, Lease: tagLease, AtOnce: 2, Each: 1,
	}))
	return s
}

// TaggerStats counts, since the tagger was made, the older events that builds have looked at, and the builds that have
// ended.
type TaggerStats struct{ Events, Ended uint64 }

// Stats returns the counters.
func (s *Tagger) Stats() TaggerStats { return TaggerStats{s.events.Load(), s.ended.Load()} }

// Tags returns the tags that the deployed spec declares, sorted by name; none if nothing is deployed.
func (s *Tagger) Tags(ctx context.Context, t j17.Tenant) ([]wire.DeclaredTag, error) {
	all := []wire.DeclaredTag{}
	k, _, err := s.known.Present(ctx, t)
	if j17.CodeOf(err) == j17.CodeNoSpec {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	st, _, err := s.load(ctx, t)
	if err != nil {
		return nil, store.UserError(err)
	}
	for _, name := range slices.Sorted(maps.Keys(k.decider.TagNames)) {
		tag := wire.DeclaredTag{Name: name, AggregateTypes: k.decider.TagNames[name].Types, Status: StatusReady}
		if slices.Contains(st.Pending, name) {
			tag.Status = StatusBuilding
			tag.Build = (&Status{State: Running, Done: st.Done, Total: st.Total}).Wire()
		}
		all = append(all, tag)
	}
	return all, nil
}

// Forget drops the cached tags of a tenant that is gone.
func (s *Tagger) Forget(t j17.Tenant) { s.known.Forget(t) }

// deployedTags is the cached state of the tags of a deployed spec.
type deployedTags struct {
	decider *decider.Decider
	// ready reports whether all events have them.
	ready atomic.Bool
}

// tagState records which tags the events of a tenant have.
type tagState struct {
	// Names are the declared tags. Pending are the tags, declared or no longer declared, that older events do not all
	// have, or still have.
	Names   map[string]tagDefinition `json:"names"`
	Pending []string                 `json:"pending,omitempty"`
	// Types are the aggregate types whose events are processed, from Reached to End. Done of Total events were looked
	// at.
	Types   []string `json:"types,omitempty"`
	Reached string   `json:"reached,omitempty"`
	End     string   `json:"end,omitempty"`
	Done    uint64   `json:"done,omitempty"`
	Total   uint64   `json:"total,omitempty"`
}

// tagDefinition is a tag as a spec declares it.
type tagDefinition struct {
	Fingerprint []byte   `json:"fingerprint"`
	Types       []string `json:"types"`
}

// tagDefinitions returns the tags of a spec.
func tagDefinitions(d *decider.Decider) map[string]tagDefinition {
	names := make(map[string]tagDefinition, len(d.TagNames))
	for name, tag := range d.TagNames {
		names[name] = tagDefinition{tag.Fingerprint[:], tag.Types}
	}
	return names
}

// of reports whether the state has exactly the tags of a spec.
func (st *tagState) of(names map[string]tagDefinition) bool {
	return maps.EqualFunc(
		st.Names, names, func(a, b tagDefinition) bool { return bytes.Equal(a.Fingerprint, b.Fingerprint) },
	)
}

// side returns the write that stores the state.
func (st *tagState) side(due time.Time) store.Side {
	return store.Side{Op: store.Put, Space: tagSpace, Key: tagStateKey, Value: st.encode(), Due: due}
}

func (st *tagState) encode() []byte {
	b, _ := json.Marshal(st) //nolint:errchkjson // texts and numbers: it cannot fail
	return b
}

func readTagState(value []byte) (*tagState, error) {
	st, err := worker.Decode[tagState](tagSpace, tagStateKey, value)
	return &st, err
}

// load reads the state of a tenant; rev is 0 if there is none.
func (s *Tagger) load(ctx context.Context, t j17.Tenant) (st *tagState, rev uint64, err error) {
	it, err := s.Store.Get(ctx, t, tagSpace, tagStateKey)
	if errors.Is(err, store.ErrNotFound) {
		return &tagState{}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	st, err = readTagState(it.Value)
	return st, it.Rev, err
}

// adopt records the tags of a spec as those of events, and begins the build that this takes.
func (s *Tagger) adopt(
	ctx context.Context, t j17.Tenant, d *decider.Decider, fences []store.Fence,
) (*deployedTags, error) {
	k, names := &deployedTags{decider: d}, tagDefinitions(d)
	st, rev, err := s.load(ctx, t)
	if err != nil || st.of(names) {
		return k, err
	}

	// The changed tags, with those that an earlier build has left pending.
	types := st.Types
	change := func(name string, tag tagDefinition) {
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
		// It is unknown which tags events have, as after a restoration: types may have lost theirs before.
		types = slices.Collect(maps.Keys(d.Types))
	}
	slices.Sort(st.Pending)
	slices.Sort(types)

	// All present events may lack the tags. New events have them.
	extent, err := s.Store.Extent(ctx, t)
	if err != nil {
		return nil, err
	}
	next := tagState{Names: names}
	var due time.Time
	if extent.Events > 0 {
		next.Pending, next.Types, next.End, next.Total = st.Pending, slices.Compact(types), extent.Last.String(),
			extent.Events
		due = s.Builds.o.Clock.Now()
	}
	return k, s.Store.Write(ctx, t, []store.Side{next.side(due).On(rev)}, fences...)
}

// Derive makes sure that the tags of the deployed spec are recorded before anything is stored under it. It is one of an
// engine's Derived.
func (s *Tagger) Derive(ctx context.Context, e *part.Entering) ([]store.Side, error) {
	_, err := s.known.Of(ctx, e.Tenant, e.Decider, e.Fences)
	return nil, err
}

// Adopt makes sure that the tags of a tenant's deployed spec are recorded, and begins the build that this takes.
func (s *Tagger) Adopt(ctx context.Context, t j17.Tenant) error {
	_, _, err := s.known.Present(ctx, t)
	return err
}

// tagProgress has the details of the error for tags that older events do not all have yet.
type tagProgress struct {
	Tags []string `json:"tags"`
	Progress
}

// Tagged returns an error of CodeIndexNotReady while events do not all have the named tags. It is one of an engine's
// options.
func (s *Tagger) Tagged(
	ctx context.Context, t j17.Tenant, d *decider.Decider, fences []store.Fence, names []string,
) error {
	k, err := s.known.Of(ctx, t, d, fences)
	if err != nil || k.ready.Load() {
		return err
	}
	st, _, err := s.load(ctx, t)
	if err != nil {
		return err
	}
	if len(st.Pending) == 0 && st.of(tagDefinitions(d)) {
		k.ready.Store(true)
		return nil
	}
	missing := slices.DeleteFunc(
		slices.Clone(names), func(name string) bool { return !slices.Contains(st.Pending, name) },
	)
	if len(missing) == 0 {
		return nil
	}
	out := j17.Errorf(j17.CodeIndexNotReady, "Older events are being given the tag '%s': %d of %d events are done. Try again in a moment.", missing[0], st.Done, st.Total)
	out.Details = tagProgress{missing, Progress{st.Done, st.Total}}
	return out
}

// tagAwaitEvery is how often Await checks a build.
const tagAwaitEvery = 20 * time.Millisecond

// Await waits until all events of a tenant have their tags, or the context ends.
func (s *Tagger) Await(ctx context.Context, t j17.Tenant) error {
	machine := clock.System{}
	for {
		st, _, err := s.load(ctx, t)
		if err != nil || len(st.Pending) == 0 {
			return err
		}
		if err := machine.Wait(ctx, machine.Now().Add(tagAwaitEvery)); err != nil {
			return err
		}
	}
}
