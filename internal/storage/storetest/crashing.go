package storetest

import (
	"context"
	"sync"

	"j17"
	"j17/internal/storage/store"
)

// Crashing is a store whose process ends after some writes, so that tests can examine what a crash after each write
// leaves. The process that follows uses the store itself.
type Crashing struct {
	store.Store
	mu   sync.Mutex
	left int
	late bool
	died chan struct{}
}

// NewCrashing returns s for a process that ends after left more writes, and never if left is below zero. The write
// after the last one is stored if late is set; the process gets an error in either case.
func NewCrashing(s store.Store, left int, late bool) *Crashing {
	return &Crashing{Store: s, left: left, late: late, died: make(chan struct{})}
}

// Died is closed when the process has ended.
func (m *Crashing) Died() <-chan struct{} { return m.died }

// IsDead reports whether the process has ended.
func (m *Crashing) IsDead() bool {
	select {
	case <-m.died:
		return true
	default:
		return false
	}
}

// End ends the process now.
func (m *Crashing) End() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.IsDead() {
		close(m.died)
	}
}

// write counts a write.
func (m *Crashing) write(do func() error) error {
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
func (m *Crashing) Append(ctx context.Context, t j17.Tenant, units []store.Append) (results []store.Result, err error) {
	err = m.write(func() (err error) { results, err = m.Store.Append(ctx, t, units); return err })
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Write is part of store.Store.
func (m *Crashing) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return m.write(func() error { return m.Store.Write(ctx, t, side, fences...) })
}

// WriteFreeing is part of store.Store.
func (m *Crashing) WriteFreeing(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return m.write(func() error { return m.Store.WriteFreeing(ctx, t, side, fences...) })
}

// ClaimDue is part of store.Store.
func (m *Crashing) ClaimDue(ctx context.Context, t j17.Tenant, c store.Claim) (items []store.Item, err error) {
	err = m.write(func() (err error) { items, err = m.Store.ClaimDue(ctx, t, c); return err })
	if err != nil {
		return nil, err
	}
	return items, nil
}

// BulkWrite is part of store.Store.
func (m *Crashing) BulkWrite(ctx context.Context, t j17.Tenant) (p store.BulkWrite, err error) {
	err = m.write(func() (err error) { p, err = m.Store.BulkWrite(ctx, t); return err })
	if err != nil {
		return nil, err
	}
	return crashingBulkWrite{p, m}, nil
}

// crashingBulkWrite is a bulk write of a store that a process may no longer reach.
type crashingBulkWrite struct {
	store.BulkWrite
	m *Crashing
}

// Write is part of store.BulkWrite.
func (p crashingBulkWrite) Write(ctx context.Context, side []store.Side, fences ...store.Fence) error {
	return p.m.write(func() error { return p.BulkWrite.Write(ctx, side, fences...) })
}
