// Package place keeps the places of aggregates, and finds aggregates by them. The place that an event gives depends on
// the event alone, so its entries are written in the event's own commit (Derive): places are never behind. Events older
// than the spec's declaration of places are processed in the background (build.go). Queries see one moment of the store
// (near.go, area.go).
//
// Each kind of place of an aggregate type, as the spec defines it, has a slot. A changed definition gets a new slot,
// and the contents of the old one are removed.
//
// The decisions behind it are in docs/internals/derived.md.
package place

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/derived/build"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// The side spaces of an environment.
const (
	// slots has an item for each kind of place of an aggregate type, under "type/name".
	slots store.Space = "place.slots"
	// places has the record of each aggregate that ever had a place, under "type:id/slot"; cells its entries.
	places store.Space = "places"
	// cells has entries, without values: "slot/cell/point/id" for points, "slot/cell//id" for areas.
	cells store.Space = "place.cells"
	// resets has one item, which counts how often slots were discarded with their contents, because they could not be
	// read.
	resets store.Space = "place.resets"
)

// maxSlots exceeds the number of kinds of places that a spec can have.
const maxSlots = 100_000

// Storage is what places need of a store.
type Storage interface {
	store.Sides
	store.Aggregates
	store.Moments
	store.Emptying
	// Rewrites is part of store.Feed.
	Rewrites() uint64
}

// Options configures a Service. All fields are required, but Scrub.
type Options struct {
	Store  Storage
	Builds *build.Service
	// Engine calls Derive and Mend of the code that made it.
	Engine *engine.Engine
	Clock  clock.Clock
	Logger *slog.Logger
	// Scrub is the interval between checks of all places; 0 means six hours.
	Scrub time.Duration
}

// Service keeps and finds places. It is safe for concurrent use, and so are several of them over one store.
type Service struct {
	Options
	// few is how many points are sorted: above that, with a million aggregates, reading about as many records finds a
	// page. enough is how many entries and records are read before a mark is passed on, most how many without one.
	// crowd is how many groups of points are held at a time.
	few, enough, most, crowd int

	known *build.Adoption[*known]
	// latest has the last known slots, a *known by j17.Tenant: slots that can no longer be read keep their IDs, which
	// writers may be about to use.
	latest sync.Map
	// replaced is when this process last had places rebuilt, a time.Time by j17.Tenant.
	replaced sync.Map
	// staying is the state of aggregates whose events are replaced in parts, a *staying by j17.Tenant.
	staying     sync.Map
	comparisons *build.Comparisons
	counts      struct {
		written, queries, scanned, rebuilt atomic.Uint64
	}
}

// Stats has the counters of a service since it was made.
type Stats struct {
	// Written counts the places written, Queries the pages requested, and Scanned the entries and records read for
	// them.
	Written, Queries, Scanned uint64
	// Rebuilt counts how often places differed from the events, and were rebuilt.
	Rebuilt uint64
}

// New returns a service, and adds its kinds of builds to Options.Builds.
func New(o Options) *Service {
	s := &Service{
		Options: o, few: 8000, enough: 20_000, most: mostEntries, crowd: crowd,
		comparisons: build.NewComparisons(mostVerified, 1),
	}
	s.known = build.NewAdoption(o.Engine, s.adopt)
	o.Builds.Handle(build.Kind{Name: filling, Page: s.fill})
	o.Builds.Handle(build.Kind{Name: emptying, Page: s.empty})
	return s
}

// Stats returns the counters.
func (s *Service) Stats() Stats {
	return Stats{
		Written: s.counts.written.Load(), Queries: s.counts.queries.Load(), Scanned: s.counts.scanned.Load(),
		Rebuilt: s.counts.rebuilt.Load(),
	}
}

// slot is where the places of a kind are stored.
type slot struct {
	ID          string `json:"slot"`
	Fingerprint []byte `json:"fingerprint"`
	// Built reports that there are older events, which a build processes.
	Built bool `json:"built,omitempty"`
	// Rebuilt counts how often its contents were damaged, discarded and begun again.
	Rebuilt uint64 `json:"rebuilt,omitempty"`
	// Resets is how often slots had been discarded when this one was made, which distinguishes it from earlier ones.
	Resets uint64 `json:"resets,omitempty"`

	typ   string
	place *spec.Place
	// stored is its stored form.
	stored []byte
	// ready reports that all older events have been processed.
	ready atomic.Bool
}

// Forget drops the cached slots of a tenant that is gone.
func (s *Service) Forget(t j17.Tenant) {
	s.known.Forget(t)
	s.latest.Delete(t)
	s.replaced.Delete(t)
	s.staying.Delete(t)
}

// known has the slots of a tenant's deployed spec. The set of slots does not change without a deployment. Their
// contents may have been begun again meanwhile, which readers check (Kinds.current).
type known struct {
	decider *decider.Decider
	// slots are those of each aggregate type, in the order of the names of their geo types.
	slots map[string][]*slot
	// resets is how often slots have been discarded, rev the revision of the item that counts it, 0 if there is none.
	resets, rev uint64
}

// adopt returns the slots of a spec, and stores those that are missing.
func (s *Service) adopt(ctx context.Context, t j17.Tenant, d *decider.Decider, fences []store.Fence) (*known, error) {
	k, sides, err := s.slotsFor(ctx, t, d, false)
	if damage, is := errors.AsType[damagedSlots](err); is {
		reset, failed := s.reset(ctx, t, damage)
		if failed != nil {
			return nil, failed
		}
		k, sides, err = s.slotsFor(ctx, t, d, reset)
	}
	if err == nil && len(sides) > 0 {
		err = s.Store.Write(ctx, t, sides, fences...)
	}
	if err == nil {
		s.latest.Store(t, k)
	}
	return k, err
}

// keptSlot is a stored slot with its revision.
type keptSlot struct {
	*slot

	rev uint64
}

// kept returns all stored slots by name.
func (s *Service) kept(ctx context.Context, t j17.Tenant) (map[string]keptSlot, error) {
	items, err := s.Store.Scan(ctx, t, slots, store.Range{}, maxSlots)
	if err != nil {
		return nil, err
	}
	all := make(map[string]keptSlot, len(items))
	for i := range items {
		sl, err := readSlot(&items[i])
		if err != nil {
			return nil, err
		}
		all[items[i].Key] = keptSlot{sl, items[i].Rev}
	}
	return all, nil
}

// slotsFor returns the slots that a spec needs, and the writes after which exactly these exist. reset reports that all
// slots were discarded just now. The error is a damagedSlots if slots cannot be read.
func (s *Service) slotsFor(
	ctx context.Context, t j17.Tenant, d *decider.Decider, reset bool,
) (*known, []store.Side, error) {
	before, err := s.countResets(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	have, err := s.kept(ctx, t)
	if _, damaged := errors.AsType[*store.CorruptionError](err); damaged {
		err = damagedSlots{err, before}
	}
	if err != nil {
		return nil, nil, err
	}

	// Existing and new slots.
	k := &known{decider: d, slots: map[string][]*slot{}, resets: before.n, rev: before.rev}
	former := s.former(t, k)
	var sides []store.Side
	for name, typ := range d.Types {
		for _, p := range typ.Places {
			key := name + "/" + p.Type.Name
			kept, is := have[key]
			delete(have, key)
			if is {
				if string(kept.Fingerprint) == string(p.Fingerprint[:]) {
					kept.typ, kept.place = name, p
					k.slots[name] = append(k.slots[name], kept.slot)
					continue
				}
				sides = append(sides, s.leave(t, name, kept.slot)...)
			}
			fresh := &slot{
				ID: strings.ToLower(rand.Text()[:16]), Fingerprint: p.Fingerprint[:], Resets: before.n, typ: name,
				place: p,
			}
			if reset {
				fresh.Rebuilt = 1
			}
			if was := former.slotOf(name, p.Type); was != nil && !is &&
				string(was.Fingerprint) == string(fresh.Fingerprint) {
				fresh.ID, fresh.Rebuilt = was.ID, was.Rebuilt+1
				sides = append(sides, s.Builds.Forget(emptying, was.ID)...)
			}
			first, err := s.Store.Streams(ctx, t, name, "", 1)
			if err != nil {
				return nil, nil, err
			}
			if fresh.Built = len(first) > 0; fresh.Built {
				sides = append(sides, s.Builds.Start(filling, &build.Job{
					Tenant: t, Name: fresh.ID, Types: []string{name},
				})...)
			}
			sides = append(sides, fresh.put().On(kept.rev))
			k.slots[name] = append(k.slots[name], fresh)
		}
	}

	// Slots that are no longer needed.
	for key, old := range have {
		name, _, _ := strings.Cut(key, "/")
		sides = append(sides, store.Side{Op: store.Delete, Space: slots, Key: key, Cond: store.IfRev, Rev: old.rev})
		sides = append(sides, s.leave(t, name, old.slot)...)
	}
	return k, sides, nil
}

// leave returns the writes that begin to remove the contents of a slot.
func (s *Service) leave(t j17.Tenant, aggregateType string, old *slot) []store.Side {
	return append(s.Builds.Forget(filling, old.ID), s.Builds.Start(emptying, &build.Job{
		Tenant: t, Name: old.ID, Types: []string{aggregateType},
	})...)
}

var errNameless = errors.New("it has no name")

func readSlot(item *store.Item) (*slot, error) {
	kept := &slot{stored: item.Value}
	err := json.Unmarshal(item.Value, kept)
	if err == nil && kept.ID == "" {
		err = errNameless
	}
	if err != nil {
		return nil, &store.CorruptionError{Where: "the slot of places " + item.Key, Err: err}
	}
	return kept, nil
}

// name returns the key of the slot's item.
func (sl *slot) name() string { return sl.typ + "/" + sl.place.Type.Name }

// put returns the write that stores the slot.
func (sl *slot) put() store.Side {
	sl.stored, _ = json.Marshal(struct { //nolint:errchkjson // texts and numbers: it cannot fail
		ID          string `json:"slot"`
		Fingerprint []byte `json:"fingerprint"`
		Built       bool   `json:"built,omitempty"`
		Rebuilt     uint64 `json:"rebuilt,omitempty"`
		Resets      uint64 `json:"resets,omitempty"`
	}{sl.ID, sl.Fingerprint, sl.Built, sl.Rebuilt, sl.Resets})
	return store.Side{Op: store.Put, Space: slots, Key: sl.name(), Value: sl.stored}
}

// slotOf returns the slot of a geo type in an aggregate type, nil if there is none.
func (k *known) slotOf(aggregateType string, g *spec.GeoType) *slot {
	if k == nil {
		return nil
	}
	for _, sl := range k.slots[aggregateType] {
		if sl.place.Type.Name == g.Name {
			return sl
		}
	}
	return nil
}

// Derive returns the records for events: of all events that one unit has of an aggregate, the last place counts. It is
// one of an engine's Derived.
func (s *Service) Derive(ctx context.Context, e *part.Entering) ([]store.Side, error) {
	k, err := s.known.Of(ctx, e.Tenant, e.Decider, e.Fences)
	if err != nil || len(k.slots) == 0 {
		return nil, err
	}
	var sides []store.Side
	var at map[string]int
	for i := range e.Events {
		o := &e.Events[i]
		if o.Place == nil {
			continue
		}
		sl := k.slotOf(o.Key.Type, o.Spec.Geo.Type)
		if sl == nil {
			continue
		}
		side := sl.record(o.Key.ID, o.Place)
		side.Stream = i + 1
		if len(e.Events) > 1 {
			if n, ok := at[side.Key]; ok {
				sides[n] = side
				continue
			}
			if at == nil {
				at = map[string]int{}
			}
			at[side.Key] = len(sides)
		}
		sides = append(sides, side)
	}
	if n := uint64(len(sides)); n > 0 {
		e.WhenStored(func() { s.counts.written.Add(n) })
		// Another server may discard the slots without knowing their IDs.
		e.Require(
			store.Fence{Space: resets, Key: resetKey, Rev: k.rev}, func() { s.known.Forget(e.Tenant) },
		)
	}
	return sides, nil
}

// Adopt makes sure that the slots of a tenant's deployed spec exist, and begins the builds that this takes.
func (s *Service) Adopt(ctx context.Context, t j17.Tenant) error {
	_, _, err := s.known.Present(ctx, t)
	return err
}

// Await waits until the builds of a tenant's places, or the context, have ended.
func (s *Service) Await(ctx context.Context, t j17.Tenant) error {
	k, _, err := s.known.Present(context.WithoutCancel(ctx), t)
	if err != nil {
		return err
	}
	for _, list := range k.slots {
		for _, sl := range list {
			if !sl.Built || sl.ready.Load() {
				continue
			}
			if _, err := s.Builds.Await(ctx, t, filling, sl.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// check returns an error of CodeIndexNotReady while older events of a slot are being processed.
func (s *Service) check(ctx context.Context, t j17.Tenant, sl *slot) error {
	if !sl.Built || sl.ready.Load() {
		return nil
	}
	status, err := s.Builds.Status(ctx, t, filling, sl.ID)
	if err != nil {
		return store.UserError(err)
	}
	if status.State == build.Done {
		sl.ready.Store(true)
		return nil
	}
	return notReady(sl.typ, sl.Rebuilt > 0, status)
}

// Kinds are the places of one shape that the aggregates of a type have.
type Kinds struct {
	s      *Service
	tenant j17.Tenant
	slots  []*slot
}

// Kinds returns the places of a shape, spec.Point or spec.Polygon, that the aggregates of a type have. Errors are of
// CodeUnknownType, CodeNoGeo if the type has none, and CodeIndexNotReady.
func (s *Service) Kinds(ctx context.Context, t j17.Tenant, aggregateType, shape string) (*Kinds, error) {
	k, _, err := s.known.Present(ctx, t)
	if err != nil {
		return nil, err
	}
	if _, err := k.decider.AggregateType(aggregateType); err != nil {
		return nil, err
	}
	kinds := &Kinds{s: s, tenant: t}
	for _, sl := range k.slots[aggregateType] {
		if sl.place.Type.Shape != shape {
			continue
		}
		if err := s.check(ctx, t, sl); err != nil {
			return nil, err
		}
		kinds.slots = append(kinds.slots, sl)
	}
	if kinds.slots == nil {
		what := "points"
		if shape == spec.Polygon {
			what = "areas"
		}
		return nil, j17.Errorf(j17.CodeNoGeo, "Aggregates of type '%s' have no %s: no event of theirs has a \"geo\" with such a place in the spec.", aggregateType, what)
	}
	return kinds, nil
}

// Found is an aggregate that has a place.
type Found struct {
	// ID is "" for a mark alone: everything before it was searched, and there may be more after it.
	ID string
	// Geo is the name of the geo type, Properties are those that it names, missing if it names none.
	Geo        string
	Properties value.Value
	Location   decider.Location
	// Distance is the distance in metres, for queries near a point.
	Distance float64
	// Mark is its place in the order of results.
	Mark Mark
}

// Mark is a place in the order of results. Aggregates after it are neither skipped nor repeated, as long as they do not
// move.
type Mark struct {
	Distance float64
	ID       string
	// Slot distinguishes the places of one aggregate.
	Slot string
}

// compare orders marks by distance, then by ID. Marks without distances are in the order of IDs.
func (m Mark) compare(o Mark) int {
	return cmp.Or(cmp.Compare(m.Distance, o.Distance), strings.Compare(m.ID, o.ID), strings.Compare(m.Slot, o.Slot))
}
