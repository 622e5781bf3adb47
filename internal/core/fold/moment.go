package fold

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// Moment provides the aggregates of an environment as of one position of its feed, under the spec that was deployed
// when it was made. Streams only grow, so it holds no resources and blocks no writer. It is safe for concurrent use.
type Moment struct {
	l      *Loader
	tenant j17.Tenant
	d      *decider.Decider
	// present is false for a spec that is not the deployed one: states folded for it are not cached.
	present bool
	// at is the position; events later than until, if not nil, are left out.
	at    j17.StreamID
	until *int64
}

// Moment returns the moment of a position, for instance that of a store.Moment, under the spec deployed to a tenant:
// all events up to the position, and none after it.
func (l *Loader) Moment(t j17.Tenant, d *decider.Decider, at j17.StreamID) *Moment {
	return &Moment{l: l, tenant: t, d: d, present: true, at: at}
}

// Until returns the same moment without events later than a Unix second.
func (m *Moment) Until(second int64) *Moment {
	earlier := *m
	earlier.until = &second
	return &earlier
}

// Moved returns the moment of another position under the same spec, whatever is deployed now.
func (m *Moment) Moved(at j17.StreamID) *Moment {
	return &Moment{l: m.l, tenant: m.tenant, d: m.d, present: m.present, at: at}
}

// Under returns the same moment under another spec, which need not be deployed. States folded for it are not cached.
func (m *Moment) Under(d *decider.Decider) *Moment {
	other := *m
	other.d, other.present = d, false
	return &other
}

// At returns the position.
func (m *Moment) At() j17.StreamID { return m.at }

// Decider returns the decider of the moment's states: the one that was deployed, or that was passed to Under.
func (m *Moment) Decider() *decider.Decider { return m.d }

// Names returns the names of an aggregate.
func (m *Moment) Names(ctx context.Context, key j17.Key) (j17.Names, error) {
	if typ := m.d.Types[key.Type]; typ == nil || !decider.Named(typ) {
		return j17.Names{}, nil
	}
	return m.l.names(ctx, m.tenant, m.d, key)
}

// Version identifies the events that a state was folded from.
type Version struct {
	Length, Generation uint64
}

// Versions returns the version of each aggregate at the moment; the zero Version if it has no events or its type is not
// declared.
func (m *Moment) Versions(ctx context.Context, keys []j17.Key) ([]Version, error) {
	parts, err := m.parts(ctx, keys)
	versions := make([]Version, len(parts))
	for i := range parts {
		versions[i] = parts[i].Version
	}
	return versions, err
}

// prefix is the part of a stream that belongs to a moment. past reports that the stream goes on after it.
type prefix struct {
	Version
	past bool
}

// partsAt is parts for the keys at some indexes.
func (m *Moment) partsAt(ctx context.Context, keys []j17.Key, places []int) ([]prefix, error) {
	if len(places) == 0 {
		return nil, nil
	}
	some := make([]j17.Key, len(places))
	for n, i := range places {
		some[n] = keys[i]
	}
	found, err := m.parts(ctx, some)
	if err != nil {
		return nil, err
	}
	parts := make([]prefix, len(keys))
	for n, i := range places {
		parts[i] = found[n]
	}
	return parts, nil
}

func (m *Moment) parts(ctx context.Context, keys []j17.Key) ([]prefix, error) {
	heads, err := m.l.store.Heads(ctx, m.tenant, keys)
	if err != nil {
		return nil, store.UserError(err)
	}
	parts := make([]prefix, len(keys))
	for i, key := range keys {
		if m.d.Types[key.Type] == nil || heads[i].Length == 0 {
			continue
		}
		if parts[i], err = m.part(ctx, key, heads[i]); err != nil {
			return nil, store.UserError(err)
		}
	}
	return parts, nil
}

// part returns the part of a stream that belongs to the moment. Mostly that is all of it.
func (m *Moment) part(ctx context.Context, key j17.Key, head store.Head) (prefix, error) {
	length := head.Length
	if head.Last.Compare(m.at) > 0 {
		next, err := m.l.store.VersionAfter(ctx, m.tenant, key, m.at)
		if err != nil {
			return prefix{}, err
		}
		length = next - 1
	}
	if m.until != nil && head.LastTime > *m.until {
		var err error
		if length, err = m.l.LengthAt(ctx, m.tenant, key, length, *m.until); err != nil {
			return prefix{}, err
		}
	}
	if length == 0 {
		return prefix{}, nil
	}
	return prefix{Version: Version{Length: length, Generation: head.Generation}, past: length < head.Length}, nil
}

// Loaded is an aggregate as it is at a moment.
type Loaded struct {
	State
	// Version is zero if the aggregate has no events at the moment; Data is missing then.
	Version Version
	// Created is the timestamp of the first event.
	Created int64
}

// Load returns aggregates as they are at the moment, without their names. Keys must be canonical and distinct.
// Aggregates are folded in parallel, with replay from the first event, whatever is cached. If some cannot be folded,
// the error is that of the first one in the order of keys, as a *LoadError.
func (m *Moment) Load(ctx context.Context, keys []j17.Key, replay bool) ([]Loaded, error) {
	rewrites := m.l.store.Rewrites()
	loaded := make([]Loaded, len(keys))
	m.l.counts.reads.Add(uint64(len(keys)))

	// Short aggregates that are not cached are read together.
	rest, unknown := make([]int, 0, len(keys)), []int(nil)
	for i, key := range keys {
		loaded[i].Key = key
		switch {
		case m.d.Types[key.Type] == nil:
		case replay || m.l.cache.get(StateKey{m.tenant, key}) != nil:
			rest = append(rest, i)
		default:
			unknown = append(unknown, i)
		}
	}
	left := m.foldBatch(ctx, keys, unknown, rewrites, loaded)
	rest = append(rest, left...)

	// Take cached states of the others if they are up to date with the heads.
	parts, err := m.partsAt(ctx, keys, rest)
	if err != nil {
		return nil, err
	}
	rest = slices.DeleteFunc(rest, func(i int) bool {
		if parts[i].Length == 0 || replay {
			return parts[i].Length == 0
		}
		known := m.l.Cached(StateKey{m.tenant, keys[i]}, m.d.Program(keys[i].Type), parts[i].Version, true)
		if known != nil {
			m.l.counts.hits.Add(1)
			loaded[i].take(known, parts[i])
		}
		return known != nil
	})

	// For several short aggregates that have new events, reading all their events together is cheaper than looking up
	// the new ones of each.
	if !replay {
		rest = m.foldGrown(ctx, keys, rest, left, parts, rewrites, loaded)
	}

	// Fold the rest, with one goroutine per processor.
	errs := make([]error, len(keys))
	work := make(chan int, len(rest))
	for _, i := range rest {
		work <- i
	}
	close(work)
	fold := func() {
		for i := range work {
			errs[i] = m.fold(ctx, keys[i], parts[i], replay, &loaded[i])
		}
	}
	var folding panics.Parts
	for range min(len(rest), runtime.GOMAXPROCS(0)) - 1 {
		folding.Go(fold)
	}
	folding.Do(fold)
	folding.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, &LoadError{Key: keys[i], Err: store.UserError(err)}
		}
	}
	return loaded, nil
}

// fold folds one aggregate up to the moment.
func (m *Moment) fold(ctx context.Context, key j17.Key, p prefix, replay bool, into *Loaded) error {
	past := p.past || !m.present // states for a spec that is not deployed are not cached
	f, err := m.l.State(ctx, m.tenant, m.d.Program(key.Type), key, p.Version, past, replay)
	if err == nil && f.Length != p.Length { // somebody has written meanwhile
		f, err = m.l.State(ctx, m.tenant, m.d.Program(key.Type), key, p.Version, true, replay)
	}
	if err != nil {
		return err
	}
	into.take(f, p)
	return nil
}

func (l *Loaded) take(f *decider.State, p prefix) {
	l.Data, l.JSON, l.Length, l.Version, l.Created = f.Data, f.JSON, f.Length, Version{p.Length, f.Generation},
		f.Created
}

// LoadError names an aggregate that could not be folded.
type LoadError struct {
	Key j17.Key
	Err error
}

// Error is that of the fold.
func (e *LoadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *LoadError) Unwrap() error { return e.Err }

// LengthAt returns how many of the stream's first events have timestamps up to until. Timestamps never decrease, so it
// uses a binary search.
func (l *Loader) LengthAt(ctx context.Context, t j17.Tenant, key j17.Key, length uint64, until int64) (uint64, error) {
	low, high := uint64(0), length // events up to low are in, those after high are out
	for low < high {
		middle := low + (high-low+1)/2
		at, err := l.timeOf(ctx, t, key, middle)
		if err != nil {
			return 0, err
		}
		if at <= until {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low, nil
}

func (l *Loader) timeOf(ctx context.Context, t j17.Tenant, key j17.Key, version uint64) (int64, error) {
	for ev, err := range l.store.ReadStream(ctx, t, key, version, version) {
		if err != nil {
			return 0, err
		}
		return ev.Timestamp, nil
	}
	return 0, &store.CorruptionError{Where: key.String(), Err: errors.New("an event is missing")}
}
