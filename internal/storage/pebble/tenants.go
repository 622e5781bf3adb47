package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// directory is the store in the role of store.Tenants.
type directory struct {
	*core

	committer *committer
	due       *dueItems
}

// Tenants lists the tenants. See store.Store.
func (s *directory) Tenants(context.Context) ([]j17.Tenant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	var names []j17.Tenant
	for name, t := range s.tenants {
		if t.number != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Extent returns how far a tenant's events reach. See store.Store.
func (s *feeds) Extent(_ context.Context, t j17.Tenant) (store.Extent, error) {
	if err := store.ValidTenant(t); err != nil {
		return store.Extent{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.Extent{}, store.ErrClosed
	}
	known := s.tenants[t]
	if known == nil {
		return store.Extent{}, nil
	}
	return store.Extent{Events: known.events, Last: known.last, Life: uint64(known.number)}, nil
}

// extent returns how far the tenant's events reach as of the reader's view, whatever notes follow them.
func (r reader) extent() (extent store.Extent, err error) {
	if r.tenant == 0 {
		return store.Extent{}, nil
	}
	state, err := getState(r.snapshot, r.tenant)
	if err != nil {
		return store.Extent{}, err
	}

	// The last position may be that of a note.
	prefix := appendPrefix(nil, r.tenant, kindFeed)
	it, err := r.iterate(prefix, after(prefix))
	if err != nil {
		return store.Extent{}, err
	}
	defer closeIter(it, &err, "the feed")
	extent.Events, extent.Life = state.Events, uint64(r.tenant)
	for ok := it.Last(); ok; ok = it.Prev() {
		value, err := it.ValueAndErr()
		if err != nil {
			return store.Extent{}, fault("the feed", err)
		}
		if record.IsNote(value) {
			continue
		}
		if extent.Last, ok = feedPosition(it.Key()); !ok {
			return store.Extent{}, corruption(errFormat, "the feed of tenant number %d", r.tenant)
		}
		break
	}
	return extent, nil
}

// DropTenant removes everything of one tenant. See store.Store.
func (s *directory) DropTenant(ctx context.Context, name j17.Tenant) error {
	if err := store.ValidTenant(name); err != nil {
		return err
	}
	return s.queue.Do(ctx, queue.Always, func(b *batch) error {
		t := b.tenant(name)
		if !t.listed {
			return nil
		}
		b.remove(appendTenantKey(nil, name))
		b.removeAll(t.next.Number)
		// Store the number of the next change: that of its last one may be the greatest, and none is used twice.
		b.put(
			appendPrefix(b.key[:0], storeNumber, kindChange),
			binary.BigEndian.AppendUint64(b.value[:0], b.store.nextChange),
		)
		b.dropped = append(b.dropped, t)
		return nil
	})
}

// removeAll stages the removal of all that is stored under a tenant's number.
func (b *batch) removeAll(number uint32) {
	lower, upper := allOf(number)
	must(b.writes.DeleteRange(lower, upper, nil))
}

// tenantLocked returns a tenant, and makes one if the name is new. It needs mu.
func (s *core) tenantLocked(name j17.Tenant) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name, next: stateOf(name, 0)}
		s.tenants[name] = t
	}
	return t
}

// tenant returns a tenant that has a number, under which data may be staged.
func (b *batch) tenant(name j17.Tenant) *tenant {
	b.store.mu.Lock()
	t := b.store.tenantLocked(name)
	b.store.mu.Unlock()
	if t.next.Number == 0 {
		t.next.Number = b.allocate()
	}
	return t
}

// allocate returns a new tenant number.
func (b *batch) allocate() uint32 {
	b.store.nextNumber++
	return b.store.nextNumber - 1
}

// loadTenants reads the directory and the state of each tenant.
func (s *directory) loadTenants() (err error) {
	lower := appendPrefix(nil, storeNumber, kindTenant)
	it, err := newIter(s.db, lower, after(lower))
	if err != nil {
		return err
	}
	defer closeIter(it, &err, "the directory of tenants")
	for it.First(); it.Valid(); it.Next() {
		name := j17.Tenant(it.Key()[len(lower):])
		number, err := parseNumber(it.Value())
		if err != nil || number == storeNumber || number >= s.committer.nextNumber {
			return corruption(errFormat, "the directory of tenants, at %q", name)
		}
		state, err := getState(s.db, number)
		if err != nil {
			return err
		}
		state.Name, state.Number = name, number
		t := &tenant{
			name: name, next: state, listed: true,
			number: number, last: state.Last, events: state.Events, change: state.change,
		}
		s.tenants[name] = t
		works, err := loadDue(s.db, t, number)
		if err != nil {
			return err
		}
		for _, w := range works {
			s.due.noteDue(w)
		}
	}
	return nil
}

// loadChanges puts the tenants in the order of their last changes.
func (s *directory) loadChanges() error {
	v, closer, err := s.db.Get(appendPrefix(nil, storeNumber, kindChange))
	switch {
	case errors.Is(err, pebble.ErrNotFound):
	case err != nil:
		return fault("the number of changes", err)
	default:
		if len(v) == timeBytes {
			s.committer.nextChange = binary.BigEndian.Uint64(v)
		}
		if err := closer.Close(); err != nil {
			return fault("the number of changes", err)
		}
	}
	s.changes.load(slices.Collect(maps.Values(s.tenants)), s.committer.nextChange)
	s.committer.nextChange = s.changes.latest
	return nil
}

func getState(from pebble.Reader, number uint32) (tenantState, error) {
	where := fmt.Sprintf("the state of tenant number %d", number)
	v, closer, err := from.Get(appendPrefix(nil, number, kindState))
	if err != nil {
		return tenantState{}, fault(where, err)
	}
	state, err := parseStateRecord(v)
	if err = errors.Join(err, closer.Close()); err != nil {
		return tenantState{}, corruption(err, "%s", where)
	}
	return state, nil
}

// dropPending removes what unfinished loads have left.
func (s *directory) dropPending() (err error) {
	lower := appendPrefix(nil, storeNumber, kindPending)
	it, err := newIter(s.db, lower, after(lower))
	if err != nil {
		return err
	}
	defer closeIter(it, &err, "the list of loads")
	b := s.db.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	for it.First(); it.Valid(); it.Next() {
		number, err := parseNumber(it.Key()[len(lower):])
		if err != nil {
			return corruption(err, "the list of loads")
		}
		from, to := allOf(number)
		must(b.DeleteRange(from, to, nil))
		must(b.Delete(it.Key(), nil))
	}
	if b.Empty() {
		return nil
	}
	return s.db.Apply(b, pebble.Sync)
}
