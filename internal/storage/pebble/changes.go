package pebble

import (
	"cmp"
	"context"
	"slices"

	"j17/internal/storage/store"
)

// changes is the tenants in the order in which their feeds have changed last. It is guarded by core.mu.
type changes struct {
	// order is ascending. An entry whose number is not that of its tenant is outdated.
	order []change
	// latest is the greatest number.
	latest uint64
	// grown, if not nil, is closed at the next change.
	grown chan struct{}
}

type change struct {
	tenant *tenant
	number uint64
}

// note takes down that a tenant has changed. known is how many tenants there are.
func (c *changes) note(t *tenant, number uint64, known int) {
	t.change, c.latest = number, number
	c.order = append(c.order, change{t, number})
	if len(c.order) > 2*known+keptScratch {
		c.order = slices.DeleteFunc(c.order, change.outdated)
	}
	if c.grown != nil {
		close(c.grown)
		c.grown = nil
	}
}

func (c change) outdated() bool { return c.tenant.change != c.number }

// load begins with the tenants that a folder holds.
func (c *changes) load(tenants []*tenant, latest uint64) {
	c.latest = latest
	for _, t := range tenants {
		if t.change != 0 {
			c.order = append(c.order, change{t, t.change})
			c.latest = max(c.latest, t.change)
		}
	}
	slices.SortFunc(c.order, func(a, b change) int { return cmp.Compare(a.number, b.number) })
}

// Changed returns tenants whose feeds have changed. See store.Store.
func (s *feeds) Changed(_ context.Context, since uint64, limit int) ([]store.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	from, _ := slices.BinarySearchFunc(
		s.changes.order, since+1, func(c change, number uint64) int { return cmp.Compare(c.number, number) },
	)
	var list []store.Change
	for _, c := range s.changes.order[from:] {
		if len(list) >= limit {
			break
		}
		if !c.outdated() {
			list = append(list, store.Change{Tenant: c.tenant.name, Number: c.number})
		}
	}
	return list, nil
}

// AwaitChange blocks until a feed has changed. See store.Store.
func (s *feeds) AwaitChange(ctx context.Context, since uint64) error {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return store.ErrClosed
		}
		if s.changes.latest > since {
			s.mu.Unlock()
			return nil
		}
		if s.changes.grown == nil {
			s.changes.grown = make(chan struct{})
		}
		grown := s.changes.grown
		s.mu.Unlock()
		if err := s.await(ctx, grown); err != nil {
			return err
		}
	}
}
