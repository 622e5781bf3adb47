package generation

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"j17"
	"j17/internal/storage/store"
)

// item is a record as it is stored.
type item struct {
	At     []byte   `json:"at"`
	Passed uint64   `json:"passed"`
	Since  []byte   `json:"since"`
	Life   uint64   `json:"life"`
	Events uint64   `json:"events,omitempty"`
	Failed uint64   `json:"failed,omitempty"`
	First  []string `json:"first,omitempty"`

	Counts []count `json:"counts,omitempty"`
}

// count is the number of stored events of one kind.
type count struct {
	kind

	Events uint64 `json:"events"`
}

// failure is an event that has failed, as it is stored.
type failure struct {
	StreamID string `json:"stream_id"`
	Key      string `json:"key"`
	Cause    string `json:"cause"`
	Pointer  string `json:"pointer"`
	Path     string `json:"path,omitempty"`
	Message  string `json:"message"`
}

// load reads what is stored of the readings and numbers of a plan. What is not stored begins with the first event.
func (p *pass) load(ctx context.Context) error {
	for _, of := range p.plan.sorted() {
		if err := p.loadType(ctx, of); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) loadType(ctx context.Context, of *typePlan) error {
	// The readings. Those that are no longer used are removed when there are many.
	used := map[string]*reading{}
	for _, r := range of.readings {
		used[r.key()] = r
	}
	var unused []*store.Item
	for it, err := range store.Items(ctx, p.s.Store, p.t, trials, store.Prefix(of.name+"/"), maxReadings) {
		if err != nil {
			return err
		}
		if r := used[it.Key]; r != nil {
			if err := r.read(it, p.extent); err != nil {
				return err
			}
		} else if !p.deployed[it.Key] {
			unused = append(unused, it)
		}
	}
	if len(unused) > maxReadings {
		for _, it := range unused {
			if err := p.s.remove(ctx, p.t, it, p.fences...); err != nil {
				return err
			}
		}
	}

	// The numbers, also where nobody needs them if they can be kept without looking at more.
	need := of.counted != nil
	of.counted = nil
	c := &counted{of: map[kind]uint64{}}
	switch stored, err := p.s.Store.Get(ctx, p.t, counts, of.name); {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return err
	default:
		if err := c.load(&stored, p.extent); err != nil {
			return err
		}
	}
	if need || slices.ContainsFunc(of.sorted(), func(r *reading) bool { return r.at.Compare(c.at) <= 0 }) {
		of.counted = c
	}
	return nil
}

// read reads what is stored of a reading.
func (r *reading) read(stored *store.Item, now store.Extent) error {
	it, err := store.Decode[item](trials, stored)
	if err != nil {
		return err
	}
	if err := r.record.read(&it, stored, now); err != nil || r.at.IsZero() {
		return err
	}
	r.events, r.failed = it.Events, it.Failed
	for _, text := range it.First {
		at, err := j17.ParseStreamID(text)
		if err != nil {
			return &store.CorruptionError{Where: string(trials) + "/" + stored.Key, Err: err}
		}
		r.first = append(r.first, at)
	}
	return nil
}

// load reads the stored numbers of an aggregate type.
func (c *counted) load(stored *store.Item, now store.Extent) error {
	it, err := store.Decode[item](counts, stored)
	if err != nil {
		return err
	}
	if err := c.read(&it, stored, now); err != nil || c.at.IsZero() {
		return err
	}
	for _, n := range it.Counts {
		c.of[n.kind] = n.Events
	}
	return nil
}

// read reads how far a record has come. One of another life of the environment begins again.
func (r *record) read(it *item, stored *store.Item, now store.Extent) (err error) {
	*r = record{rev: stored.Rev}
	if it.Life != now.Life {
		return nil
	}
	r.passed, r.life = it.Passed, it.Life
	if r.at, _, err = store.ReadStamp(it.At); err == nil {
		r.since, _, err = store.ReadStamp(it.Since)
	}
	return err
}

// item returns the record as it is stored.
func (r *record) item() item {
	it := item{
		At: store.AppendStamp(nil, r.at), Passed: r.passed, Since: store.AppendStamp(nil, r.since), Life: r.life,
		Events: r.events, Failed: r.failed,
	}
	for _, at := range r.first {
		it.First = append(it.First, at.String())
	}
	return it
}

// put returns the write that stores a record, unless others have changed it.
func (r *record) put(space store.Space, key string, it item) store.Side {
	b, _ := json.Marshal(it) //nolint:errchkjson // texts and numbers: it cannot fail
	return store.Side{Op: store.Put, Space: space, Key: key, Value: b}.On(r.rev)
}

// sides returns the writes that store the progress.
func (p *pass) sides() []store.Side {
	sides := slices.Clone(p.pending)
	for _, of := range p.plan.sorted() {
		if c := of.counted; c != nil && c.changed {
			it := c.item()
			for k, n := range c.of {
				it.Counts = append(it.Counts, count{k, n})
			}
			slices.SortFunc(it.Counts, func(a, b count) int { return a.compare(b.kind) })
			sides = append(sides, c.put(counts, of.name, it))
		}
		for _, r := range of.sorted() {
			if r.changed {
				sides = append(sides, r.put(trials, r.key(), r.item()))
			}
		}
	}
	return sides
}

// flush stores the progress.
func (p *pass) flush(ctx context.Context) error {
	sides := p.sides()
	if len(sides) == 0 {
		return nil
	}
	if err := p.s.Store.Write(ctx, p.t, sides, p.fences...); err != nil {
		return err
	}
	p.pending, p.unwritten = nil, 0

	// The next write is conditional on the revisions that this one leaves.
	of := func(space store.Space, key string, r *record) error {
		if !r.changed {
			return nil
		}
		stored, err := p.s.Store.Get(ctx, p.t, space, key)
		r.rev, r.changed = stored.Rev, false
		return err
	}
	for _, typ := range p.plan.sorted() {
		if typ.counted != nil {
			if err := of(counts, typ.name, &typ.counted.record); err != nil {
				return err
			}
		}
		for _, r := range typ.readings {
			if err := of(trials, r.key(), &r.record); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes what is stored of a reading.
func (s *Service) remove(ctx context.Context, t j17.Tenant, stored *store.Item, fences ...store.Fence) error {
	if err := s.Store.Clear(ctx, t, failures, store.Prefix(stored.Key+"/")); err != nil {
		return err
	}
	return s.Store.Write(ctx, t, []store.Side{
		{Op: store.Delete, Space: trials, Key: stored.Key, Cond: store.IfRev, Rev: stored.Rev},
	}, fences...)
}

// reset removes all that is stored of an aggregate type: it is tried and counted again from the first event on.
func (s *Service) reset(ctx context.Context, t j17.Tenant, typ string) error {
	sides := []store.Side{{Op: store.Delete, Space: counts, Key: typ}}
	for it, err := range store.Items(ctx, s.Store, t, trials, store.Prefix(typ+"/"), maxReadings) {
		if err != nil {
			return err
		}
		sides = append(sides, store.Side{Op: store.Delete, Space: trials, Key: it.Key})
	}
	if err := s.Store.Clear(ctx, t, failures, store.Prefix(typ+"/")); err != nil {
		return err
	}
	return s.Store.Write(ctx, t, sides)
}

// failed returns the stored failures of a reading, at most a number of them, in the order of their positions.
func (s *Service) failed(ctx context.Context, t j17.Tenant, r *reading, most int) (all []failure, err error) {
	for it, err := range store.Items(ctx, s.Store, t, failures, store.Prefix(r.key()+"/"), min(most, 1000)) {
		if err != nil {
			return nil, err
		}
		f, err := store.Decode[failure](failures, it)
		if err != nil {
			return nil, err
		}
		if all = append(all, f); len(all) >= most {
			break
		}
	}
	return all, nil
}
