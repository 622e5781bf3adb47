package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
)

const (
	// sweepEvery is the time between two searches for expired data.
	sweepEvery = time.Minute
	// sweepLimit is the number of items that are removed in one batch.
	sweepLimit = 1000
)

// sweeper removes expired items and commands.
type sweeper struct {
	*core

	directory *directory
}

// sweepLoop removes expired data from time to time. Reads do not see it anyway.
func (s *sweeper) sweepLoop() {
	for s.clock.Wait(s.life, s.clock.Now().Add(sweepEvery)) == nil {
		s.disk.descriptors.fill()
		if s.guard.check() != nil {
			continue
		}
		s.sweep(s.life)
	}
}

// sweep removes everything that has expired. A failure for one tenant does not keep it from the others.
func (s *sweeper) sweep(ctx context.Context) {
	// This fails only if the store is closed.
	names, _ := s.directory.Tenants(ctx)
	for _, name := range names {
		var from []byte
		for more := true; more; {
			var err error
			if from, err = s.sweepTenant(ctx, name, from); err != nil {
				if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
					return
				}
				s.logger.ErrorContext(
					ctx, "expired items could not be removed", slog.String("tenant", string(name)),
					slog.Any("error", err),
				)
				break
			}
			more = from != nil
		}
	}
}

// sweepTenant removes some expired data, from an entry in the order of expiry on, nil for the first. It returns the
// entry to continue at, nil if there is no more.
func (s *sweeper) sweepTenant(ctx context.Context, name j17.Tenant, from []byte) (next []byte, err error) {
	found, err := s.expired(name, from)
	if err != nil || !found {
		return nil, err
	}
	err = s.queue.Do(ctx, queue.Freeing, func(b *batch) error {
		next, err = b.removeExpired(b.tenant(name), from)
		return err
	})
	return next, err
}

// expired reports whether something of a tenant has expired, from an entry in the order of expiry on.
func (s *sweeper) expired(name j17.Tenant, from []byte) (found bool, err error) {
	r, err := s.read(name)
	if err != nil {
		return false, err
	}
	defer r.close()
	bounds := expiredBefore(r.tenant, from, s.clock.Now().UnixNano())
	it, err := r.iterate(bounds.lower, bounds.upper)
	if err != nil {
		return false, err
	}
	defer closeIter(it, &err, "the order of expiry")
	found = it.First()
	s.stale.thin(it, footing{}, bounds, false)
	return found, nil
}

// expiredBefore returns the range of expired entries in the order of expiry, from an entry on unless that is another
// tenant's.
func expiredBefore(tenant uint32, from []byte, now int64) keyRange {
	lower := appendPrefix(nil, tenant, kindExpiry)
	upper := appendTime(slices.Clip(lower), now+1)
	if bytes.HasPrefix(from, lower) {
		lower = from
	}
	return keyRange{lower, upper}
}

// hasAny reports whether there is a key in [lower, upper).
func hasAny(from pebble.Reader, lower, upper []byte) (found bool, err error) {
	it, err := newIter(from, lower, upper)
	if err != nil {
		return false, err
	}
	defer closeIter(it, &err, "an index")
	return it.First(), nil
}

// removeExpired removes some expired data, from an entry on, and returns the entry to continue at, nil if there is no
// more, so that removed entries need not be stepped over again.
func (b *batch) removeExpired(t *tenant, from []byte) (next []byte, err error) {
	prefix := appendPrefix(nil, t.next.Number, kindExpiry)
	bounds := expiredBefore(t.next.Number, from, b.units.Now())
	it, err := newIter(b.store.db, bounds.lower, bounds.upper)
	if err != nil {
		return nil, err
	}
	defer closeIter(it, &err, "the order of expiry")
	n := 0
	for it.First(); it.Valid(); it.Next() {
		if n++; n > sweepLimit {
			return bytes.Clone(it.Key()), nil
		}
		if err := b.removeEntry(t, it.Key()[len(prefix):]); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// removeEntry stages the removal of an expiry entry, given without its prefix, and of the data that it refers to.
func (b *batch) removeEntry(t *tenant, entry []byte) error {
	if len(entry) <= timeBytes {
		return corruption(errFormat, "the order of expiry of tenant %s", t.name)
	}

	// The entry has the time and the key.
	expires := int64(binary.BigEndian.Uint64(entry))
	kind, rest := entry[timeBytes], entry[timeBytes+1:]
	b.units.Touch(t)
	switch kind {
	case kindItem:
		space, key, ok := strings.Cut(string(rest), "\x00")
		if !ok {
			return corruption(errFormat, "the order of expiry of tenant %s", t.name)
		}
		item, err := b.units.Item(t, store.Space(space), key)
		if err != nil {
			return err
		}
		if item.Rev == 0 || item.Expires != expires {
			// The entry belongs to no item, so only the entry is removed. What it belonged to is no longer known.
			b.store.logger.Error("an entry in the order of expiry has no item and is removed",
				slog.String("tenant", string(t.name)), slog.String("space", space))
			b.remove(append(appendTime(appendPrefix(nil, t.next.Number, kindExpiry), expires), entry[timeBytes:]...))
			return nil
		}
		b.removeItem(t.next.Number, store.Space(space), key, item.Meta)
	case kindCommand:
		b.key = append(appendPrefix(b.key[:0], t.next.Number, kindCommand), rest...)
		b.remove(b.key)
		b.replaceExpiry(t.next.Number, expires, 0)
	default:
		return corruption(errFormat, "the order of expiry of tenant %s", t.name)
	}
	return nil
}
