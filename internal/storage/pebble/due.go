package pebble

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// dueItems is the part of the store that hands out items when they are due.
type dueItems struct {
	*core

	// due has an order for each space with work. It is guarded by mu.
	due map[store.Space]*dueOrder
	// damages is the damage of due work that was logged.
	damages damages
}

// dueWork records that a tenant has work in a space, none of it due earlier than at, in Unix nanoseconds.
type dueWork struct {
	tenant *tenant
	space  store.Space
	at     int64
}

// dueEntry is what is known of a tenant's work in a space. at is a lower bound: finished work is noticed only at the
// next look-up.
type dueEntry struct {
	tenant *tenant
	at     int64
	// writes counts the items that were given a due time, so that a look-up notices items that came meanwhile.
	writes uint64
	// place is the index of the entry in the heap.
	place int
	// damaged reports that the log has said that the tenant's work cannot be read.
	damaged bool
}

// dueOrder is a heap of the tenants that have work in a space, by its time: tenants without work cost nothing. It is
// guarded by core.mu.
type dueOrder struct {
	entries []*dueEntry
	of      map[*tenant]*dueEntry
	// changed, if not nil, is closed when there is more work.
	changed chan struct{}
}

// Len is part of heap.Interface.
func (o *dueOrder) Len() int { return len(o.entries) }

// Less is part of heap.Interface.
func (o *dueOrder) Less(i, j int) bool { return o.entries[i].at < o.entries[j].at }

// Swap is part of heap.Interface.
func (o *dueOrder) Swap(i, j int) {
	o.entries[i], o.entries[j] = o.entries[j], o.entries[i]
	o.entries[i].place, o.entries[j].place = i, j
}

// Push is part of heap.Interface.
func (o *dueOrder) Push(x any) {
	e, _ := x.(*dueEntry)
	e.place = len(o.entries)
	o.entries = append(o.entries, e)
}

// Pop is part of heap.Interface.
func (o *dueOrder) Pop() any {
	last := len(o.entries) - 1
	e := o.entries[last]
	o.entries[last] = nil
	o.entries = o.entries[:last]
	return e
}

// dueLocked returns the order of a space. The caller holds mu.
func (s *dueItems) dueLocked(space store.Space) *dueOrder {
	o := s.due[space]
	if o == nil {
		o = &dueOrder{of: map[*tenant]*dueEntry{}}
		s.due[space] = o
	}
	return o
}

// noteDue records that there is work. The caller holds mu.
func (s *dueItems) noteDue(w dueWork) {
	o := s.dueLocked(w.space)
	e := o.of[w.tenant]
	if e == nil {
		e = &dueEntry{tenant: w.tenant, at: w.at}
		o.of[w.tenant] = e
		heap.Push(o, e)
	} else if w.at < e.at {
		e.at = w.at
		heap.Fix(o, e.place)
	}
	e.writes++
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// first returns the entry with the earliest time that is not in but, nil if there is none. The caller holds mu.
func (o *dueOrder) first(but map[*dueEntry]bool) (first *dueEntry) {
	if len(but) == 0 && len(o.entries) > 0 {
		return o.entries[0]
	}
	for _, e := range o.entries {
		if !but[e] && (first == nil || e.at < first.at) {
			first = e
		}
	}
	return first
}

// NextDue returns when the next item of a space is due. See store.Store.
func (s *dueItems) NextDue(_ context.Context, space store.Space) (time.Time, error) {
	var damaged map[*dueEntry]bool
	for {
		s.mu.Lock()
		o := s.dueLocked(space)
		first := o.first(damaged)
		if first == nil || s.closed {
			defer s.mu.Unlock()
			if s.closed {
				return time.Time{}, store.ErrClosed
			}
			return time.Time{}, nil
		}
		at := first.at
		s.mu.Unlock()

		found, err := s.lookDue(space, o, first)
		switch {
		case err != nil && s.passOver(space, first, err):
			if damaged == nil {
				damaged = map[*dueEntry]bool{}
			}
			damaged[first] = true
		case err != nil || found == at:
			return fromNanos(found), err
		}
	}
}

// passOver reports whether an error means that the work of one tenant is damaged, which must not stop the work of
// others. It logs the error the first time.
func (s *dueItems) passOver(space store.Space, e *dueEntry, err error) bool {
	if !isDamage(err) {
		return false
	}
	s.mu.Lock()
	told := e.damaged
	e.damaged = true
	s.mu.Unlock()
	if !told {
		s.logger.Error("due work of a tenant is damaged, it is left alone", slog.String("tenant", string(e.tenant.name)),
			slog.String("space", string(space)), slog.Any("error", err))
	}
	return true
}

// lookDue brings an entry up to date and returns when the tenant's first work is due, 0 when it has none.
func (s *dueItems) lookDue(space store.Space, o *dueOrder, e *dueEntry) (int64, error) {
	s.mu.Lock()
	writes, number, from := e.writes, e.tenant.number, e.at
	v, err := s.acquireLocked()
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	r := reader{view: v, store: s.core, tenant: number}
	defer r.close()
	at, err := s.firstDue(r, space, from, s.clock.Now().UnixNano())
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.writes != writes || o.of[e.tenant] != e:
		// The result may be outdated; the entry is still a lower bound.
	case at == 0:
		heap.Remove(o, e.place)
		delete(o.of, e.tenant)
	case at != e.at:
		e.at = at
		heap.Fix(o, e.place)
	}
	return at, nil
}

// firstDue returns the due time of the first live item of a space, 0 when there is none. It starts at from, before
// which there is none, so that the remains of finished work are not read repeatedly. Damaged items are skipped, and are
// an error if there are no others.
func (s *dueItems) firstDue(r reader, space store.Space, from, now int64) (at int64, err error) {
	if r.tenant == 0 || strings.IndexByte(string(space), 0) >= 0 {
		return 0, nil
	}
	bounds := keyRange{appendDueTime(nil, r.tenant, space, from), after(appendSpace(nil, r.tenant, kindDue, space))}
	it, err := r.iterate(bounds.lower, bounds.upper)
	if err != nil {
		return 0, err
	}
	defer closeIter(it, &err, "due work")
	defer func() { r.store.stale.thin(it, footing{}, bounds, false) }()
	var damaged []error
	for it.First(); it.Valid(); it.Next() {
		_, item, _, err := getDue(&r.store.sealing, r.snapshot, r.tenant, space, it.Key())
		switch {
		case isDamage(err):
			damaged = append(damaged, err)
		case err != nil:
			return 0, err
		case item.Live(now):
			s.tellDamaged(space, damaged)
			return item.Due, nil
		}
	}
	if len(damaged) > 0 {
		return 0, damaged[0]
	}
	return 0, nil
}

// CountDue counts the due items of a tenant. See store.Store.
func (s *dueItems) CountDue(
	_ context.Context, t j17.Tenant, space store.Space, before time.Time, limit int,
) (n int, first time.Time, err error) {
	if strings.IndexByte(string(space), 0) >= 0 {
		return 0, time.Time{}, nil
	}
	r, err := s.read(t)
	if err != nil {
		return 0, time.Time{}, err
	}
	defer r.close()
	if r.tenant == 0 {
		return 0, time.Time{}, nil
	}
	bounds := keyRange{appendDueTime(nil, r.tenant, space, 0), after(appendSpace(nil, r.tenant, kindDue, space))}
	it, err := r.iterate(bounds.lower, bounds.upper)
	if err != nil {
		return 0, time.Time{}, err
	}
	defer closeIter(it, &err, "due work")
	now := s.clock.Now().UnixNano()
	for it.First(); it.Valid() && n < limit; it.Next() {
		_, item, _, err := getDue(&r.store.sealing, r.snapshot, r.tenant, space, it.Key())
		if isDamage(err) || err == nil && !item.Live(now) {
			continue
		}
		if err != nil {
			return n, first, err
		}
		at := fromNanos(item.Due)
		if first.IsZero() {
			first = at
		}
		if !at.Before(before) {
			break
		}
		n++
	}
	return n, first, nil
}

func isDamage(err error) bool {
	_, damage := errors.AsType[*store.CorruptionError](err)
	return damage
}

// damages is the damage that was logged, since every search for due work meets it again.
type damages struct {
	mu   sync.Mutex
	told map[string]bool
}

// maxTold bounds how many logged errors are remembered.
const maxTold = 1000

// tell reports whether damage has to be logged because it has not been yet. If there is very much damage, it may be
// logged again.
func (d *damages) tell(err error) bool {
	text := err.Error()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told[text] {
		return false
	}
	if d.told == nil || len(d.told) >= maxTold {
		d.told = map[string]bool{}
	}
	d.told[text] = true
	return true
}

// tellDamaged logs damaged items, each of them once. They do not keep others from being claimed.
func (s *dueItems) tellDamaged(space store.Space, damaged []error) {
	for _, err := range damaged {
		if !s.damages.tell(err) {
			continue
		}
		s.logger.Error("a due item is damaged and is passed over", slog.String("space", string(space)), slog.Any("error", err))
	}
}

// DueTenants returns the tenants that have due work. See store.Store.
func (s *dueItems) DueTenants(_ context.Context, space store.Space, limit int) ([]j17.Tenant, error) {
	now := s.clock.Now().UnixNano()
	s.mu.Lock()
	o := s.dueLocked(space)
	s.mu.Unlock()
	type found struct {
		name j17.Tenant
		at   int64
	}
	var tenants []found
	looked := map[*tenant]bool{}

	// Memory has for each tenant a bound that is never too late. Each tenant that may have due work is looked up, since
	// work may have been done or moved since. If that leaves too few, more entries are taken.
	for many := limit; len(tenants) < limit; many *= 4 {
		s.mu.Lock()
		candidates := o.earliest(many, now)
		s.mu.Unlock()
		for _, t := range candidates {
			if looked[t] || len(tenants) >= limit {
				continue
			}
			looked[t] = true
			s.mu.Lock()
			e := o.of[t]
			s.mu.Unlock()
			if e == nil {
				continue
			}
			at, err := s.lookDue(space, o, e)
			if err != nil && !s.passOver(space, e, err) {
				return nil, err
			}
			if at != 0 && at <= now {
				tenants = append(tenants, found{t.name, at})
			}
		}
		if len(candidates) < many {
			break
		}
	}

	slices.SortStableFunc(tenants, func(a, b found) int { return cmp.Compare(a.at, b.at) })
	names := make([]j17.Tenant, len(tenants))
	for i := range tenants {
		names[i] = tenants[i].name
	}
	return names, nil
}

// earliest returns the tenants of up to many entries that are not later than now, the earliest first. The caller holds
// mu. The cost depends on their number and not on that of all entries: no entry of the heap has an earlier one below
// it.
func (o *dueOrder) earliest(many int, now int64) (first []*tenant) {
	next := places{order: o}
	add := func(place int) {
		if place < len(o.entries) && o.entries[place].at <= now {
			heap.Push(&next, place)
		}
	}
	for add(0); len(next.of) > 0 && len(first) < many; {
		place, _ := heap.Pop(&next).(int)
		first = append(first, o.entries[place].tenant)
		add(2*place + 1)
		add(2*place + 2)
	}
	return first
}

// places is a heap of indexes of entries in a dueOrder, by the times of the entries.
type places struct {
	order *dueOrder
	of    []int
}

// Len is part of heap.Interface.
func (p *places) Len() int { return len(p.of) }

// Less is part of heap.Interface.
func (p *places) Less(i, j int) bool { return p.order.Less(p.of[i], p.of[j]) }

// Swap is part of heap.Interface.
func (p *places) Swap(i, j int) { p.of[i], p.of[j] = p.of[j], p.of[i] }

// Push is part of heap.Interface.
func (p *places) Push(x any) {
	place, _ := x.(int)
	p.of = append(p.of, place)
}

// Pop is part of heap.Interface.
func (p *places) Pop() any {
	last := len(p.of) - 1
	place := p.of[last]
	p.of = p.of[:last]
	return place
}

// AwaitDue blocks until there is work that is due before a moment. See store.Store.
func (s *dueItems) AwaitDue(ctx context.Context, space store.Space, before time.Time) error {
	for {
		s.mu.Lock()
		o := s.dueLocked(space)
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		changed := o.changed
		s.mu.Unlock()
		next, err := s.NextDue(ctx, space)
		if err != nil {
			return err
		}
		if !next.IsZero() && (before.IsZero() || next.Before(before)) {
			return nil
		}
		if err := s.await(ctx, changed); err != nil {
			return err
		}
	}
}

// await blocks until a channel is closed.
func (s *core) await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-s.life.Done():
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loadDue finds the first work of each space of a tenant.
func loadDue(from pebble.Reader, t *tenant, number uint32) (works []dueWork, err error) {
	prefix := appendPrefix(nil, number, kindDue)
	it, err := newIter(from, prefix, after(prefix))
	if err != nil {
		return nil, err
	}
	defer closeIter(it, &err, "due work")
	for ok := it.First(); ok; {
		name, rest, found := bytes.Cut(it.Key()[len(prefix):], []byte{0})
		if !found || len(rest) <= timeBytes {
			return nil, corruption(errFormat, "due work of tenant %s", t.name)
		}
		space := store.Space(name)
		works = append(works, dueWork{t, space, int64(binary.BigEndian.Uint64(rest))})
		ok = it.SeekGE(after(appendSpace(nil, number, kindDue, space)))
	}
	return works, nil
}

// ClaimDue leases items that are due. See store.Store.
func (s *dueItems) ClaimDue(ctx context.Context, t j17.Tenant, c store.Claim) (items []store.Item, err error) {
	if c.Lease < 0 || c.Lease > store.MaxLease {
		return nil, fmt.Errorf("%w: a lease of %s", store.ErrInvalid, c.Lease)
	}
	from, due, err := s.dueFrom(t, c.Space)
	if err != nil || !due || c.Limit <= 0 {
		return nil, err
	}
	need := queue.Ordinary
	if c.Freeing {
		need = queue.Freeing
	}
	err = s.queue.Do(ctx, need, func(b *batch) error {
		items, err = b.claim(b.tenant(t), &c, from)
		return err
	})
	if err != nil {
		return nil, err
	}
	return items, nil
}

// dueFrom returns when the first work of a tenant is due, and whether a claim would find any, so that polling costs no
// write.
func (s *dueItems) dueFrom(t j17.Tenant, space store.Space) (at int64, due bool, err error) {
	if err := store.ValidTenant(t); err != nil {
		return 0, false, err
	}
	s.mu.Lock()
	o := s.dueLocked(space)
	e := o.of[s.tenants[t]]
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return 0, false, store.ErrClosed
	case e == nil:
		return 0, false, nil
	}
	at, err = s.lookDue(space, o, e)
	return at, err == nil && at != 0 && at <= s.clock.Now().UnixNano(), err
}

// claim leases due items, up to the claim's limit. Nothing is due before from.
func (b *batch) claim(t *tenant, c *store.Claim, from int64) (items []store.Item, err error) {
	space := c.Space
	it, err := newIter(
		b.store.db, appendDueTime(nil, t.next.Number, space, from),
		appendDueTime(nil, t.next.Number, space, b.units.Now()+1),
	)
	if err != nil {
		return nil, err
	}
	defer closeIter(it, &err, "due work")
	until := b.units.Now() + int64(c.Lease)
	for it.First(); it.Valid() && len(items) < c.Limit; it.Next() {
		key, meta, value, err := getDue(&b.store.sealing, b.store.db, t.next.Number, space, it.Key())
		if isDamage(err) {
			b.store.due.tellDamaged(space, []error{err})
			continue
		}
		if err != nil {
			return nil, err
		}
		item := &unit.Item{Meta: meta.Meta, Value: value}
		if !item.Live(b.units.Now()) {
			continue
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, fault("due work", err)
		}
		claimed, err := parseClaim(v)
		if err != nil {
			b.store.due.tellDamaged(space, []error{err})
		}
		b.units.Put(
			t, space, key, item, unit.Times{Expires: item.Expires, Due: until, Claimed: cmp.Or(claimed, item.Due)},
			value,
		)
		items = append(items, itemMeta{Meta: item.Meta}.item(key, value))
	}
	return items, nil
}

// getDue returns the item of an entry of the index by time, with a copy of its value.
func getDue(
	s *record.Sealing, from pebble.Reader, tenant uint32, space store.Space, entry []byte,
) (key string, meta itemMeta, value []byte, err error) {
	rest := entry[len(appendSpace(nil, tenant, kindDue, space)):]
	if len(rest) <= timeBytes {
		return "", itemMeta{}, nil, corruption(errFormat, "due work of tenant number %d in space %s", tenant, space)
	}
	key = string(rest[timeBytes:])
	where := fmt.Sprintf("due item %s/%s of tenant number %d", space, key, tenant)

	v, closer, err := from.Get(appendItemKey(nil, tenant, space, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return "", itemMeta{}, nil, corruption(err, "%s", where)
	}
	if err != nil {
		return "", itemMeta{}, nil, fault(where, err)
	}
	meta, value, err = parseItem(s, space, key, v)
	value = append([]byte(nil), value...)
	if err = errors.Join(err, closer.Close()); err != nil {
		return "", itemMeta{}, nil, corruption(err, "%s", where)
	}

	if want := appendDueKey(nil, tenant, space, meta.Due, key); string(want) != string(entry) {
		return "", itemMeta{}, nil, corruption(errors.New("the entry is not that of the item"), "%s", where)
	}
	return key, meta, value, nil
}
