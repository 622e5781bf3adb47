// Package unique records which aggregate holds each value that must be unique. The values that an event takes for its
// aggregate, or gives back, are written in the event's own commit, on the condition that nothing looked at (Look) has
// changed. A set of values that a deployment adds or changes is filled from the feed before the deployment is stored
// (fill.go, deploy.go), beside the set in force.
//
// Values are kept as digests. Each set has a generation of its own: a set that changes gets a new one, and the contents
// of the old one are removed.
//
// The decisions behind it are in docs/internals/derived.md.
package unique

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/derived/build"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// The side spaces of an environment.
const (
	// values maps "generation/digest" to the key of the aggregate that holds the value; held maps "type:id/generation"
	// to the digest. An empty item means no holder, or no value.
	values store.Space = "unique.value"
	held   store.Space = "unique.held"
	// waiting maps "generation/digest/position" to an aggregate whose value was first taken by another one; only sets
	// that are being filled have such items. The held item of a waiting aggregate has the position behind the digest.
	waiting store.Space = "unique.waiting"
	// sets has an item for each generation that is in force, under its ID; fillings has an item for each filling under
	// way.
	sets     store.Space = "unique.sets"
	fillings store.Space = "unique.fillings"
)

// maxGenerations exceeds the number of sets that a spec can have.
const maxGenerations = 100_000

// Storage is what unique values need of a store.
type Storage interface {
	store.Sides
	store.Aggregates
	store.Feed
}

// Options configures a Service. All fields are required.
type Options struct {
	Store  Storage
	Builds *build.Service
	// Engine gets Look from the code that made it.
	Engine *engine.Engine
	Logger *slog.Logger
}

// Service records the holders of unique values. It is safe for concurrent use.
type Service struct {
	Options
	// pageEvents is how many elements of the feed a page of a filling reads at most; pageItems is the number of changed
	// items at which a page is written.
	pageEvents, pageItems int
	// maxLooked bounds what a trial looks at.
	maxLooked uint64

	known *build.Adoption[known]
	// deciders has the decider of each spec that sets are filled for, by the ID of the filling's first generation.
	deciders sync.Map // of *decider.Decider by string
}

// New returns a service, and adds its kind of builds to Options.Builds.
func New(o Options) *Service {
	s := &Service{Options: o, pageEvents: 10_000, pageItems: 2_000, maxLooked: maxLooked}
	s.known = build.NewAdoption(o.Engine, s.of)
	o.Builds.Handle(build.Kind{Name: emptying, Page: s.empty})
	return s
}

// generation is where the values of a set are kept.
type generation struct {
	ID          string `json:"id"`
	Type        string `json:"type"`
	Name        string `json:"name"`
	Fingerprint []byte `json:"fingerprint"`

	set *spec.UniqueSet
	rev uint64
}

// of reports whether the generation is that of a set as the spec has it.
func (g *generation) of(aggregateType string, set *spec.UniqueSet) bool {
	return g.Type == aggregateType && g.Name == set.Name && string(g.Fingerprint) == string(set.Fingerprint[:])
}

// put returns the write that puts the generation into force.
func (g *generation) put() store.Side {
	b, _ := json.Marshal(g) //nolint:errchkjson // texts: it cannot fail
	return store.Side{Op: store.Put, Space: sets, Key: g.ID, Value: b, Cond: store.IfAbsent}
}

// valueKey, heldKey and linePrefix are the keys of items of the generation.
func (g *generation) valueKey(digest [32]byte) string {
	return g.ID + "/" + base64.RawURLEncoding.EncodeToString(digest[:])
}

func (g *generation) heldKey(key j17.Key) string { return key.String() + "/" + g.ID }

func (g *generation) linePrefix(digest [32]byte) string { return g.valueKey(digest) + "/" }

// present returns the generations that are in force.
func (s *Service) present(ctx context.Context, t j17.Tenant) ([]*generation, error) {
	items, err := s.Store.Scan(ctx, t, sets, store.Range{}, maxGenerations)
	if err != nil {
		return nil, err
	}
	all := make([]*generation, len(items))
	for i := range items {
		if all[i], err = readGeneration(&items[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func readGeneration(item *store.Item) (*generation, error) {
	g := &generation{rev: item.Rev}
	if err := json.Unmarshal(item.Value, g); err != nil || g.ID != item.Key {
		return nil, &store.CorruptionError{Where: "the unique set " + item.Key, Err: errors.Join(errRecord, err)}
	}
	return g, nil
}

// Forget releases the cached generations of a tenant that is gone.
func (s *Service) Forget(t j17.Tenant) { s.known.Forget(t) }

// known has the generations of the spec deployed to a tenant. It is immutable.
type known map[*spec.UniqueSet]*generation

// of returns the generations of a spec. A missing generation is an error of CodeIndexNotReady, or a conflict if the
// fences no longer hold.
func (s *Service) of(ctx context.Context, t j17.Tenant, d *decider.Decider, fences []store.Fence) (known, error) {
	all, err := s.present(ctx, t)
	if err != nil {
		return nil, err
	}
	k := known{}
	for name, typ := range d.Types {
		for _, set := range typ.Unique {
			i := slices.IndexFunc(all, func(g *generation) bool { return g.of(name, set) })
			if i >= 0 {
				k[set] = all[i]
				continue
			}
			for _, f := range fences {
				item, err := s.get(ctx, t, f.Space, f.Key)
				if err == nil && item.Rev != f.Rev {
					err = &store.SideConflict{Space: f.Space, Key: f.Key, Rev: item.Rev}
				}
				if err != nil {
					return nil, err
				}
			}
			return nil, j17.Errorf(j17.CodeIndexNotReady, "Who holds values of the unique set '%s' of '%s' is not known yet. Try again in a moment.", set.Name, name)
		}
	}
	return k, nil
}

// holding is the decoded value of an item of held.
type holding struct {
	digest [32]byte
	// waits is the position of the event that took the value while another aggregate held it; zero if the value is
	// held.
	waits j17.StreamID
}

// readHolding decodes an item of held; it returns nil for an empty one.
func readHolding(item *store.Item) (*holding, error) {
	h := &holding{}
	switch n := len(item.Value); {
	case n == 0:
		return nil, nil
	case n >= len(h.digest):
		copy(h.digest[:], item.Value)
		if n == len(h.digest) {
			return h, nil
		}
		var rest []byte
		var err error
		if h.waits, rest, err = store.ReadStamp(item.Value[len(h.digest):]); err == nil && len(rest) == 0 {
			return h, nil
		}
	}
	return nil, &store.CorruptionError{Where: "the unique value of " + item.Key, Err: errRecord}
}

var errRecord = errors.New("unique: a record is damaged")

// value encodes the holding as the value of an item of held.
func (h *holding) value() []byte {
	if h.waits == (j17.StreamID{}) {
		return h.digest[:]
	}
	return store.AppendStamp(h.digest[:len(h.digest):len(h.digest)], h.waits)
}

// readHolder decodes an item of values; it returns the zero Key if there is no holder.
func readHolder(item *store.Item) (j17.Key, error) {
	if len(item.Value) == 0 {
		return j17.Key{}, nil
	}
	key, ok := j17.ParseKey(string(item.Value))
	if !ok {
		return key, &store.CorruptionError{Where: "the holder of " + item.Key, Err: errRecord}
	}
	return key, nil
}

// get returns an item; its revision is 0 if it does not exist.
func (s *Service) get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	item, err := s.Store.Get(ctx, t, space, key)
	if errors.Is(err, store.ErrNotFound) {
		return store.Item{Key: key}, nil
	}
	return item, err
}

// Look returns a view of the holders for the decision of one command, which notes what it has read. It is one of an
// engine's options.
func (s *Service) Look(t j17.Tenant, d *decider.Decider, fences []store.Fence) part.Holding {
	return &look{s: s, t: t, d: d, fences: fences} // most commands ask nothing
}

// look notes what was read of holders while a command was decided.
type look struct {
	s      *Service
	t      j17.Tenant
	d      *decider.Decider
	fences []store.Fence
	k      known

	values map[valueOf]seen[j17.Key]
	held   map[heldOf]seen[*[32]byte]
}

type valueOf struct {
	set    *spec.UniqueSet
	digest [32]byte
}

type heldOf struct {
	set *spec.UniqueSet
	key j17.Key
}

// seen is what an item said, and the value that it must still have when the decision is stored. The comparison is by
// value, so it does not matter who wrote the item, or how often.
type seen[T any] struct {
	was   T
	value string
}

// generation returns the generation of a set, nil if the fences no longer hold.
func (l *look) generation(ctx context.Context, set *spec.UniqueSet) (*generation, error) {
	if l.k == nil {
		k, err := l.s.known.Of(ctx, l.t, l.d, l.fences)
		if k == nil {
			return nil, err
		}
		l.k, l.values, l.held = k, map[valueOf]seen[j17.Key]{}, map[heldOf]seen[*[32]byte]{}
	}
	return l.k[set], nil
}

// Holder returns the aggregate that holds a value.
func (l *look) Holder(ctx context.Context, set *spec.UniqueSet, digest [32]byte) (j17.Key, error) {
	g, err := l.generation(ctx, set)
	if g == nil {
		return j17.Key{}, store.UserError(err)
	}
	item, err := l.s.get(ctx, l.t, values, g.valueKey(digest))
	if err != nil {
		return j17.Key{}, store.UserError(err)
	}
	key, err := readHolder(&item)
	if own, looked := l.held[heldOf{set, key}]; looked && (own.was == nil || *own.was != digest) {
		// The holder gives the value back by an earlier write that is not stored yet, or has taken it since its own
		// holding was read. It must not stand in its own way: the decision is stored only if nobody holds the value
		// then.
		key, item.Value = j17.Key{}, nil
	}
	l.values[valueOf{set, digest}] = seen[j17.Key]{key, string(item.Value)}
	return key, store.UserError(err)
}

// Held returns the value that an aggregate holds. A value that it waits for does not count.
func (l *look) Held(ctx context.Context, set *spec.UniqueSet, key j17.Key) (digest [32]byte, ok bool, err error) {
	g, err := l.generation(ctx, set)
	if g == nil {
		return digest, false, store.UserError(err)
	}
	item, err := l.s.get(ctx, l.t, held, g.heldKey(key))
	if err != nil {
		return digest, false, store.UserError(err)
	}
	h, err := readHolding(&item)
	if err != nil {
		return digest, false, store.UserError(err)
	}
	if h == nil || h.waits != (j17.StreamID{}) {
		l.held[heldOf{set, key}] = seen[*[32]byte]{nil, string(item.Value)}
		return digest, false, nil
	}
	l.held[heldOf{set, key}] = seen[*[32]byte]{&h.digest, string(item.Value)}
	return h.digest, true, nil
}

// Saw receives the value that an aggregate holds by writes that are not stored yet, nil for none.
func (l *look) Saw(ctx context.Context, set *spec.UniqueSet, key j17.Key, own *[32]byte) error {
	g, err := l.generation(ctx, set)
	if g == nil {
		return store.UserError(err)
	}
	value := ""
	if own != nil {
		value = string(own[:])
	}
	l.held[heldOf{set, key}] = seen[*[32]byte]{own, value}
	return nil
}

// Effects returns the writes that record the holders after a decision, and fences on what was only looked at.
func (l *look) Effects(after *decider.Values) (e part.Effects) {
	if l.k == nil {
		return e // nothing was looked at, or all of it is refused
	}
	for set, digest := range after.Values() {
		holder, _ := after.Holder(set, digest)
		before, asked := l.values[valueOf{set, digest}]
		at := l.k[set].valueKey(digest)
		if asked && holder == before.was {
			e.Fences = append(e.Fences, store.Fence{Space: values, Key: at, ByValue: true, Value: before.value})
			continue
		}
		side := store.Side{Op: store.Delete, Space: values, Key: at}
		if holder != (j17.Key{}) {
			side.Op, side.Value = store.Put, []byte(holder.String())
		}
		if asked { // unasked, it is given back by its holder: the condition on held covers that
			side = before.condition(side)
		}
		e.Side = append(e.Side, side)
	}
	for set, key := range after.Keepers() {
		own, _ := after.Held(set, key)
		before := l.held[heldOf{set, key}]
		at := l.k[set].heldKey(key)
		if own == nil && before.was == nil || own != nil && before.was != nil && *own == *before.was {
			e.Fences = append(e.Fences, store.Fence{Space: held, Key: at, ByValue: true, Value: before.value})
			continue
		}
		side := store.Side{Op: store.Delete, Space: held, Key: at}
		if own != nil {
			side.Op, side.Value = store.Put, own[:]
		}
		e.Side = append(e.Side, before.condition(side))
	}
	return e
}

// Exchanged returns the writes that record the exchange of an aggregate's value, in an environment that is being
// loaded.
func (l *look) Exchanged(
	ctx context.Context, key j17.Key, x *decider.Exchange, own *[32]byte,
) (sides []store.Side, err error) {
	g, err := l.generation(ctx, x.Set)
	if g == nil {
		return nil, store.UserError(err)
	}
	mine := store.Side{Op: store.Delete, Space: held, Key: g.heldKey(key)}
	if own != nil {
		sides = append(sides, store.Side{Op: store.Delete, Space: values, Key: g.valueKey(*own)})
	}
	if x.Of != nil {
		mine.Op, mine.Value = store.Put, x.Value[:]
		sides = append(sides, store.Side{
			Op: store.Put, Space: values, Key: g.valueKey(x.Value), Value: []byte(key.String()),
		})
	}
	return append(sides, mine), nil
}

// condition makes a write conditional on the value that was seen.
func (s seen[T]) condition(side store.Side) store.Side {
	side.Cond, side.Was = store.IfValue, s.value
	return side
}
