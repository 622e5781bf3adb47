package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/storage/store"
)

// changes has the tenants in the order of the last changes of their feeds, as far as this store knows. Each start
// continues with greater numbers than all before, and gives every tenant a new one: readers that follow changes are
// told of each tenant again. It is guarded by core.mu.
type changes struct {
	// order is ascending. An entry whose number is not that of its tenant is outdated.
	order  []change
	latest uint64
	// grown, if not nil, is closed at the next change, due when the next item with a due time is written.
	grown, due chan struct{}
}

type change struct {
	tenant *tenant
	number uint64
}

func (c change) outdated() bool { return c.tenant.number != c.number }

// startShift is the number of bits of a change's number below the number of the start.
const startShift = 40

const selectLast = `SELECT nm.name, nm.t, x.ms, x.n FROM names nm JOIN tenants x ON x.t = nm.t WHERE x.ms > 0 ORDER BY nm.t`

// open counts the start, and initializes the order with the tenants that have events.
func (c *changes) open(ctx context.Context, s *core) error {
	return s.read(ctx, "the tenants", func(conn reading) error {
		var starts int64
		err := conn.QueryRow(ctx, `UPDATE cluster SET starts = starts + 1 RETURNING starts`).Scan(&starts)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.start = starts
		c.latest, c.order = uint64(starts)<<startShift, nil
		s.mu.Unlock()
		if s.o.Shared {
			if err := s.beside.load(ctx, conn); err != nil {
				return err
			}
		}
		rows, err := conn.Query(ctx, selectLast)
		if err != nil {
			return err
		}
		var name []byte
		var life uint32
		var last j17.StreamID
		var seq int64
		_, err = pgx.ForEachRow(rows, []any{&name, &life, &last.Ms, &seq}, func() error {
			last.Seq = uint32(seq)
			c.observe(s, j17.Tenant(name), life, last)
			return nil
		})
		return err
	})
}

// observe records the end of a tenant's feed in the database, unless a later one is known.
func (c *changes) observe(s *core, name j17.Tenant, life uint32, last j17.StreamID) {
	t := s.tenant(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.advance(t, life, last)
}

// advance is observe for a caller that holds core.mu. Later tenants of a name have greater numbers, here life.
func (c *changes) advance(t *tenant, life uint32, last j17.StreamID) {
	if life < t.life || life == t.life && last.Compare(t.last) <= 0 {
		return
	}
	if t.life, t.last = life, last; last.IsZero() {
		t.number = 0
	} else {
		c.note(t)
	}
}

// changeOf returns the number of the latest change of a tenant that this process knows of.
func (c *core) changeOf(name j17.Tenant) uint64 {
	t := c.tenant(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.number
}

// note records that a tenant has changed. The caller holds core.mu.
func (c *changes) note(t *tenant) {
	c.latest++
	t.number = c.latest
	c.order = append(c.order, change{t, c.latest})
	const outdatedMost = 1024
	if len(c.order) > outdatedMost && len(c.order)%outdatedMost == 0 {
		c.order = slices.DeleteFunc(c.order, change.outdated)
	}
	wake(&c.grown)
	wake(&t.changed)
}

// wake closes a channel and sets it to nil, unless it is nil.
func wake(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

// publish records what a batch has changed, and wakes the callers that wait for it.
func (c *changes) publish(b *batch, stale map[*tenant]bool) {
	b.lane.mu.Lock()
	defer b.lane.mu.Unlock()
	for _, t := range b.units.Tenants() {
		switch {
		case stale[t]:
		case !t.named:
			// It was removed.
			t.last, t.number = j17.StreamID{}, 0
			t.leaves.Forget()
			wake(&t.changed)
		default:
			b.lane.leaves.Add(&t.leaves, t.added, t.was.Last, t.was.Events)
			c.advance(t, t.was.Number, t.was.Last)
		}
	}
	if b.w.hasDue() {
		wake(&c.due)
	}
}

// close ends all waits.
func (c *changes) close(s *core) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wake(&c.grown)
	wake(&c.due)
	for _, t := range s.tenants {
		wake(&t.changed)
	}
}

// noteDue records that items with a due time may have been written.
func (c *changes) noteDue(s *core) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wake(&c.due)
}

// dueWritten returns a channel that is closed when the next item with a due time is written.
func (c *changes) dueWritten(s *core) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.due == nil {
		c.due = make(chan struct{})
	}
	return c.due
}

// known returns the number of a change if this start has given it, and otherwise 0: what the caller has seen then is
// not known. The caller holds core.mu.
func (c *changes) known(number uint64) uint64 {
	if number>>startShift != c.latest>>startShift {
		return 0
	}
	return number
}

// await waits until a channel is closed. The error is that of ctx, or store.ErrClosed.
func (c *core) await(ctx context.Context, until <-chan struct{}) error {
	c.beside.waiting.Add(1)
	defer c.beside.waiting.Add(-1)
	select {
	case <-until:
		return c.unlessClosed(nil)
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ending.Done():
		return store.ErrClosed
	}
}

// Changed is part of store.Feed.
func (f *feeds) Changed(ctx context.Context, since uint64, limit int) ([]store.Change, error) {
	if f.o.Shared {
		if err := f.beside.ask(ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isClosed() {
		return nil, store.ErrClosed
	}
	since = f.changes.known(since)
	from, _ := slices.BinarySearchFunc(
		f.changes.order, since+1, func(c change, number uint64) int { return cmp.Compare(c.number, number) },
	)
	var list []store.Change
	for _, c := range f.changes.order[from:] {
		if len(list) >= limit {
			break
		}
		if !c.outdated() {
			list = append(list, store.Change{Tenant: c.tenant.name, Number: c.number})
		}
	}
	return list, nil
}

// AwaitChange is part of store.Feed.
func (f *feeds) AwaitChange(ctx context.Context, since uint64) error {
	for {
		f.mu.Lock()
		if f.isClosed() {
			f.mu.Unlock()
			return store.ErrClosed
		}
		if order := f.changes.order; len(order) > 0 && order[len(order)-1].number > f.changes.known(since) {
			f.mu.Unlock()
			return nil
		}
		if f.changes.grown == nil {
			f.changes.grown = make(chan struct{})
		}
		grown := f.changes.grown
		f.mu.Unlock()
		if err := f.await(ctx, grown); err != nil {
			return err
		}
	}
}

// AwaitFeed is part of store.Feed.
func (f *feeds) AwaitFeed(ctx context.Context, name j17.Tenant, after j17.StreamID) error {
	if err := store.ValidTenant(name); err != nil {
		return err
	}
	t := f.tenant(name)
	if f.o.Shared {
		if err := f.beside.look(ctx, t, after); err != nil {
			return err
		}
	}
	for {
		f.mu.Lock()
		if f.isClosed() {
			f.mu.Unlock()
			return store.ErrClosed
		}
		if t.last.Compare(after) > 0 {
			f.mu.Unlock()
			return nil
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		f.mu.Unlock()
		if err := f.await(ctx, changed); err != nil {
			return err
		}
	}
}

// Rewrites is part of store.Feed.
func (f *feeds) Rewrites() uint64 { return f.rewritten() }
