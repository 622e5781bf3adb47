package build

import (
	"context"
	"encoding/json"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// Range is the side items of a space with keys in a range.
type Range struct {
	Space store.Space
	Keys  store.Range
	// Plain reports that all of them are plain items, which are cleared at once.
	Plain bool
}

// removal is the remaining work of a removal.
type removal struct {
	Ranges []removed `json:"ranges"`
}

type removed struct {
	Space store.Space `json:"space"`
	From  string      `json:"from,omitempty"`
	// To may not be valid UTF-8.
	To    []byte `json:"to,omitempty"`
	Plain bool   `json:"plain,omitempty"`
}

const (
	// chunk is how many items are removed in one commit, chunks how many such commits a pass has.
	chunk  = 500
	chunks = 40
)

// Remove returns the write that begins the removal of ranges, into which nothing may be written from then on. It
// commits with the writes that make their items useless. The items are removed in the background, even while the disk
// is full. The name identifies the removal within the tenant.
func (s *Service) Remove(name string, ranges ...Range) store.Side {
	r := removal{Ranges: make([]removed, len(ranges))}
	for i := range ranges {
		r.Ranges[i] = removed{ranges[i].Space, ranges[i].Keys.From, []byte(ranges[i].Keys.To), ranges[i].Plain}
	}
	return store.Side{Op: store.Put, Space: removalSpace, Key: name, Value: encode(r), Due: s.o.Clock.Now()}
}

// remove is one pass of a removal.
func (s *Service) remove(ctx context.Context, c *worker.Claim) error {
	var r removal
	if err := json.Unmarshal(c.Value, &r); err != nil {
		return err
	}
	for range chunks {
		if len(r.Ranges) == 0 {
			break
		}
		first := &r.Ranges[0]
		if first.Plain {
			if err := s.o.Store.Clear(ctx, c.Tenant, first.Space, store.Range{
				From: first.From, To: string(first.To),
			}); err != nil {
				return err
			}
			r.Ranges = r.Ranges[1:]
			continue
		}
		items, err := s.o.Store.Scan(
			ctx, c.Tenant, first.Space, store.Range{From: first.From, To: string(first.To)}, chunk,
		)
		if err != nil {
			return err
		}
		sides := make([]store.Side, len(items))
		for i := range items {
			sides[i] = store.Side{Op: store.Delete, Space: first.Space, Key: items[i].Key}
			first.From = items[i].Key
		}
		if len(sides) > 0 {
			if err := s.o.Store.WriteFreeing(ctx, c.Tenant, sides); err != nil {
				return err
			}
			s.counts.removed.Add(uint64(len(sides)))
		}
		if len(items) < chunk {
			r.Ranges = r.Ranges[1:]
		}
	}
	end := c.Remove()
	if len(r.Ranges) > 0 {
		end = c.Replace(encode(r), s.o.Clock.Now())
	}
	return s.o.Store.WriteFreeing(ctx, c.Tenant, []store.Side{end})
}

// AwaitRemovals waits until a tenant has no removals left whose names begin with a prefix; with the context's error if
// that ends first.
func (s *Service) AwaitRemovals(ctx context.Context, t j17.Tenant, prefix string) error {
	machine := clock.System{}
	for {
		left, err := s.o.Store.Count(ctx, t, removalSpace, store.Prefix(prefix), 1)
		if err != nil || left == 0 {
			return err
		}
		if err := machine.Wait(ctx, machine.Now().Add(awaitEvery)); err != nil {
			return err
		}
	}
}
