package storetest

import (
	"context"
	"sync"

	"j17"
	"j17/internal/storage/store"
)

// Mortal is a store that its process no longer reaches after some writes: what a crash leaves behind can be looked at
// write by write. Who goes on takes the store itself.
type Mortal struct {
	store.Store
	mu   sync.Mutex
	left int
	late bool
	died chan struct{}
}

// NewMortal returns s for a process that ends after left more writes, and never if left is below zero. The write after
// the last one is stored if late is set; the process does not hear of it.
func NewMortal(s store.Store, left int, late bool) *Mortal {
	return &Mortal{Store: s, left: left, late: late, died: make(chan struct{})}
}

// Died is closed when the process has ended.
func (m *Mortal) Died() <-chan struct{} { return m.died }

// IsDead reports whether the process has ended.
func (m *Mortal) IsDead() bool {
	select {
	case <-m.died:
		return true
	default:
		return false
	}
}

// End ends the process now.
func (m *Mortal) End() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.IsDead() {
		close(m.died)
	}
}

// write counts a write.
func (m *Mortal) write(do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.IsDead():
		return store.ErrClosed
	case m.left == 0:
		close(m.died)
		if m.late {
			_ = do()
		}
		return store.ErrClosed
	case m.left > 0:
		m.left--
	}
	return do()
}

// Append is part of store.Store.
func (m *Mortal) Append(ctx context.Context, t j17.Tenant, units []store.Append) (results []store.Result, err error) {
	err = m.write(func() (err error) { results, err = m.Store.Append(ctx, t, units); return err })
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Write is part of store.Store.
func (m *Mortal) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return m.write(func() error { return m.Store.Write(ctx, t, side, fences...) })
}

// WriteFreeing is part of store.Store.
func (m *Mortal) WriteFreeing(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return m.write(func() error { return m.Store.WriteFreeing(ctx, t, side, fences...) })
}

// ClaimDue is part of store.Store.
func (m *Mortal) ClaimDue(ctx context.Context, t j17.Tenant, c store.Claim) (items []store.Item, err error) {
	err = m.write(func() (err error) { items, err = m.Store.ClaimDue(ctx, t, c); return err })
	if err != nil {
		return nil, err
	}
	return items, nil
}

// Pile is part of store.Store.
func (m *Mortal) Pile(ctx context.Context, t j17.Tenant) (p store.Pile, err error) {
	err = m.write(func() (err error) { p, err = m.Store.Pile(ctx, t); return err })
	if err != nil {
		return nil, err
	}
	return mortalPile{p, m}, nil
}

// mortalPile is a pile of a store that a process may no longer reach.
type mortalPile struct {
	store.Pile
	m *Mortal
}

// Write is part of store.Pile.
func (p mortalPile) Write(ctx context.Context, side []store.Side, fences ...store.Fence) error {
	return p.m.write(func() error { return p.Pile.Write(ctx, side, fences...) })
}
