package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// If the time of an item's entry in the order of due times is the end of a lease, the entry's value is the time at
// which the item was due before it was claimed. Else the value is empty.

// claimMark returns the value of an entry in the order of due times.
func claimMark(claimed int64) []byte {
	if claimed == 0 {
		return nil
	}
	return appendTime(nil, claimed)
}

// parseClaim returns when the item of an entry with a value was due before it was claimed, 0 if it is not claimed.
func parseClaim(v []byte) (claimed int64, err error) {
	if len(v) == 0 {
		return 0, nil
	}
	if len(v) == timeBytes {
		claimed = int64(binary.BigEndian.Uint64(v))
	}
	if claimed <= 0 {
		return 0, corruption(errFormat, "the claim of a due item")
	}
	return claimed, nil
}

// releasedAtOnce is how many claims are given back in one batch.
const releasedAtOnce = 1000

// ReleaseClaims gives back the claims of processes that have ended: all claims, since no other process can have the
// folder open. See store.Store.
func (s *dueItems) ReleaseClaims(ctx context.Context) (released int, err error) {
	// Find the tenants with due work. No lease ends later than the bound, even if the clock was set back since.
	bound := s.guard.latest().Add(store.MaxLease).UnixNano()
	type place struct {
		tenant j17.Tenant
		space  store.Space
		from   int64
	}
	var places []place
	s.mu.Lock()
	for space, o := range s.due {
		for _, e := range o.entries {
			if e.at <= bound {
				places = append(places, place{e.tenant.name, space, e.at})
			}
		}
	}
	s.mu.Unlock()

	// Damage in one place does not keep other claims from being released.
	for _, p := range places {
		for from := p.from; from != 0; {
			var n int
			n, from, err = s.releaseSome(ctx, p.tenant, p.space, from, bound)
			if isDamage(err) {
				s.tellDamaged(p.space, []error{err})
				break
			}
			if err != nil {
				return released, err
			}
			released += n
		}
	}
	return released, nil
}

// releaseSome gives back the first claims of a tenant in a space whose leases end at a time or later. It returns the
// time to continue at, 0 if those were all.
func (s *dueItems) releaseSome(
	ctx context.Context, t j17.Tenant, space store.Space, from, bound int64,
) (n int, next int64, err error) {
	entries, next, err := s.claimed(t, space, from, bound)
	if err != nil || len(entries) == 0 {
		return 0, 0, err
	}
	err = s.queue.Do(ctx, queue.Freeing, func(b *batch) error {
		n = 0
		for _, entry := range entries {
			released, err := b.release(b.tenant(t), space, entry)
			if err != nil {
				return err
			}
			if released {
				n++
			}
		}
		return nil
	})
	return n, next, err
}

// claimed returns the entries of claimed items in the order of due times, from a time on and up to a bound: some, and
// those that have the same time as the last of them.
func (s *dueItems) claimed(
	t j17.Tenant, space store.Space, from, bound int64,
) (entries [][]byte, next int64, err error) {
	r, err := s.read(t)
	if err != nil {
		return nil, 0, err
	}
	defer r.close()
	it, err := r.iterate(appendDueTime(nil, r.tenant, space, from), appendDueTime(nil, r.tenant, space, bound+1))
	if err != nil {
		return nil, 0, err
	}
	defer closeIter(it, &err, "due work")
	before := len(appendSpace(nil, r.tenant, kindDue, space))
	last := int64(0)
	for it.First(); it.Valid(); it.Next() {
		if len(it.Key()) <= before+timeBytes {
			return nil, 0, corruption(errFormat, "due work of tenant %s in space %s", t, space)
		}
		due := int64(binary.BigEndian.Uint64(it.Key()[before:]))
		if len(entries) >= releasedAtOnce && due != last {
			return entries, due, nil
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, 0, fault("due work", err)
		}
		if len(v) > 0 {
			entries, last = append(entries, bytes.Clone(it.Key())), due
		}
	}
	return entries, 0, nil
}

// release makes a claimed item due again when it was before it was claimed. It returns false if the item is no longer
// claimed, or is damaged.
func (b *batch) release(t *tenant, space store.Space, entry []byte) (bool, error) {
	v, closer, err := b.store.db.Get(entry)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fault("due work", err)
	}
	claimed, err := parseClaim(v)
	if err = errors.Join(err, closer.Close()); err != nil || claimed == 0 {
		return false, err
	}
	key, meta, value, err := getDue(&b.store.sealing, b.store.db, t.next.Number, space, entry)
	if isDamage(err) {
		b.store.due.tellDamaged(space, []error{err})
		return false, nil
	}
	if err != nil {
		return false, err
	}
	b.units.Put(
		t, space, key, &unit.Item{Meta: meta.Meta, Value: value}, unit.Times{Expires: meta.Expires, Due: claimed},
		value,
	)
	return true, nil
}
