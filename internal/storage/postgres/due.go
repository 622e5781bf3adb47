package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// dueItems is the part of the store that returns items when they are due.
type dueItems struct {
	*core

	mu sync.Mutex
	// told has the texts of the errors that were logged.
	told map[string]bool
}

// dueWhere is the condition of items of a space that are live and have a due time.
const dueWhere = ` FROM items i WHERE i.space = $1 AND i.due IS NOT NULL AND (i.expires IS NULL OR i.expires > $2)
AND ` + itemLives

// NextDue is part of store.Sides.
func (d *dueItems) NextDue(ctx context.Context, space store.Space) (time.Time, error) {
	number, err := d.spaces.number(ctx, space)
	if err != nil || number == noSpace {
		return time.Time{}, d.unlessClosed(err)
	}
	var next int64
	err = d.read(ctx, "due work", func(conn reading) error {
		next = 0
		rows, err := conn.Query(
			ctx, `SELECT i.due`+dueWhere+` AND EXISTS (SELECT 1 FROM names nm WHERE nm.t = i.t) ORDER BY i.due LIMIT 1`,
			number, d.clock.Now().UnixNano(),
		)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&next}, func() error { return nil })
		return err
	})
	return fromNanos(next), err
}

// unlessClosed returns err, or store.ErrClosed if it is nil and the store is closed.
func (c *core) unlessClosed(err error) error {
	if err == nil && c.isClosed() {
		return store.ErrClosed
	}
	return err
}

// DueTenants is part of store.Sides.
func (d *dueItems) DueTenants(ctx context.Context, space store.Space, limit int) (list []j17.Tenant, err error) {
	number, err := d.spaces.number(ctx, space)
	if err != nil || number == noSpace {
		return nil, d.unlessClosed(err)
	}
	now := d.clock.Now().UnixNano()
	err = d.read(ctx, "due work", func(conn reading) error {
		rows, err := conn.Query(
			ctx, `SELECT nm.name FROM (SELECT i.t, min(i.due) AS due`+dueWhere+` AND i.due <= $2 GROUP BY i.t) d
			JOIN names nm ON nm.t = d.t ORDER BY d.due, nm.name LIMIT $3`,
			number, now, limit,
		)
		if err != nil {
			return err
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		list = make([]j17.Tenant, len(names))
		for i := range names {
			list[i] = j17.Tenant(names[i])
		}
		return err
	})
	return list, err
}

// CountDue is part of store.Sides.
func (d *dueItems) CountDue(
	ctx context.Context, t j17.Tenant, space store.Space, before time.Time, limit int,
) (n int, first time.Time, err error) {
	if err := d.admits(t); err != nil {
		return 0, time.Time{}, err
	}
	number, err := d.spaces.number(ctx, space)
	if err != nil || number == noSpace {
		return 0, time.Time{}, err
	}
	err = d.read(ctx, "due work", func(conn reading) error {
		n, first = 0, time.Time{}
		rows, err := conn.Query(
			ctx, `SELECT i.due`+dueWhere+` AND i.t = (SELECT t FROM names WHERE name = $3) ORDER BY i.due LIMIT $4`,
			number, d.clock.Now().UnixNano(), []byte(t), max(limit, 1),
		)
		if err != nil {
			return err
		}
		var due int64
		_, err = pgx.ForEachRow(rows, []any{&due}, func() error {
			at := fromNanos(due)
			if first.IsZero() && limit > 0 {
				first = at
			}
			if at.Before(before) && n < limit {
				n++
			}
			return nil
		})
		return err
	})
	return n, first, err
}

// AwaitDue is part of store.Sides.
func (d *dueItems) AwaitDue(ctx context.Context, space store.Space, before time.Time) error {
	for {
		written := d.changes.dueWritten(d.core)
		next, err := d.NextDue(ctx, space)
		if err != nil {
			return err
		}
		if !next.IsZero() && (before.IsZero() || next.Before(before)) {
			return nil
		}
		if err := d.await(ctx, written); err != nil {
			return err
		}
	}
}

// selectDue selects due items of a tenant.
const selectDue = `SELECT i.key, ` + itemColumns + `, i.value` + dueWhere + ` AND i.due <= $2 AND i.t = $3
ORDER BY i.due, i.key LIMIT $4`

// ClaimDue is part of store.Sides.
func (d *dueItems) ClaimDue(ctx context.Context, t j17.Tenant, c store.Claim) (items []store.Item, err error) {
	if err := store.ValidTenant(t); err != nil {
		return nil, err
	}
	if c.Lease < 0 || c.Lease > store.MaxLease {
		return nil, fmt.Errorf("%w: a lease of %s", store.ErrInvalid, c.Lease)
	}
	number, err := d.spaces.number(ctx, c.Space)
	if err != nil || number == noSpace || c.Limit <= 0 {
		return nil, d.unlessClosed(err)
	}
	need := queue.Ordinary
	if c.Freeing {
		need = queue.Freeing
	}
	err = d.queue.DoFor(ctx, t, need, func(b *batch) error {
		items = nil
		of := d.tenant(t)
		if !of.named {
			return nil
		}
		rows, err := b.lane.conn.Query(
			b.lane.ending, selectDue, number, b.units.Now(), int32(of.next.Number), c.Limit,
		)
		if err != nil {
			return b.lane.failed("due work", err)
		}
		found, err := d.collect(rows, c.Space)
		if err != nil {
			return b.lane.failed("due work", err)
		}
		for i := range found {
			items = append(items, b.claim(of, &c, &found[i]))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return items, nil
}

// dueItem is an item that is due.
type dueItem struct {
	namedItem

	plain []byte
}

// collect reads due items. Damaged ones are logged and skipped.
func (d *dueItems) collect(rows pgx.Rows, space store.Space) (list []dueItem, err error) {
	var key []byte
	var rev, sum int64
	var i storedItem
	_, err = pgx.ForEachRow(rows, append([]any{&key}, i.targets(&rev, &sum)...), func() error {
		i.Rev = uint64(rev)
		one := dueItem{namedItem: namedItem{i, string(key)}}
		i.value = nil
		var err error
		if int64(sumOf(one.value)) != sum {
			err = damagedItem(space, one.key)
		}
		var item store.Item
		if err == nil {
			item, err = d.itemOf(space, one.key, &one.storedItem)
		}
		if err != nil {
			d.tell(space, err)
			return nil
		}
		one.plain = item.Value
		list = append(list, one)
		return nil
	})
	return list, err
}

// claim leases one item.
func (b *batch) claim(t *tenant, c *store.Claim, i *dueItem) store.Item {
	item := &unit.Item{Meta: i.Meta, Value: i.plain}
	until := b.units.Now() + int64(c.Lease)
	b.units.Put(
		t, c.Space, i.key, item,
		unit.Times{Expires: i.Expires, Due: until, Claimed: cmp.Or(i.claimed, i.Due)}, i.plain,
	)
	return store.Item{
		Key: i.key, Value: i.plain, Rev: item.Rev, Expires: fromNanos(item.Expires), Due: fromNanos(item.Due),
	}
}

// maxTold bounds how many logged errors are remembered.
const maxTold = 1000

// tell logs an error of damage once.
func (d *dueItems) tell(space store.Space, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told[err.Error()] {
		return
	}
	if d.told == nil || len(d.told) >= maxTold {
		d.told = map[string]bool{}
	}
	d.told[err.Error()] = true
	d.logger.Error("a due item is damaged and is passed over", slog.String("space", string(space)), slog.Any("error", err))
}

// releasedAtOnce is how many claims of a tenant are released in one batch.
const releasedAtOnce = 1000

// ReleaseClaims is part of store.Health.
func (d *dueItems) ReleaseClaims(ctx context.Context) (released int, err error) {
	for {
		// Tenants with claims of other stores.
		var tenants []j17.Tenant
		err := d.read(ctx, "claims", func(conn reading) error {
			rows, err := conn.Query(
				ctx, `SELECT DISTINCT nm.name FROM items i JOIN names nm ON nm.t = i.t
				WHERE i.claimed IS NOT NULL AND i.due > 0 AND i.holder <> $1 LIMIT 100`, d.living(),
			)
			if err != nil {
				return err
			}
			names, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
			tenants = tenants[:0]
			for _, name := range names {
				tenants = append(tenants, j17.Tenant(name))
			}
			return err
		})
		if err != nil || len(tenants) == 0 {
			return released, err
		}
		before := released
		for _, t := range tenants {
			n, err := d.releaseSome(ctx, t)
			if err != nil {
				return released, err
			}
			released += n
		}
		if released == before {
			return released, nil // what is left is damaged
		}
	}
}

// living returns the holder whose claims are not released, 0 for none: ReleaseClaims is called before any work begins,
// so in a schema that is not shared all claims are those of stores that have ended.
func (d *dueItems) living() int64 {
	if d.o.Shared {
		return d.holder()
	}
	return 0
}

// selectClaims selects items of a tenant that other stores have claimed.
const selectClaims = `SELECT i.space, i.key, ` + itemColumns + `, i.value FROM items i WHERE i.t = $1
AND i.claimed IS NOT NULL AND i.due > 0 AND i.holder <> $2 AND ` + itemLives + ` LIMIT $3`

// releaseSome releases claims of a tenant, and returns their number.
func (d *dueItems) releaseSome(ctx context.Context, t j17.Tenant) (n int, err error) {
	err = d.queue.DoFor(ctx, t, queue.Freeing, func(b *batch) error {
		n = 0
		of := d.tenant(t)
		if !of.named {
			return nil
		}
		rows, err := b.lane.conn.Query(b.lane.ending, selectClaims, int32(of.next.Number), d.living(), releasedAtOnce)
		if err != nil {
			return b.lane.failed("claims", err)
		}
		var number int16
		var key []byte
		var rev, sum int64
		var i storedItem
		_, err = pgx.ForEachRow(rows, append([]any{&number, &key}, i.targets(&rev, &sum)...), func() error {
			i.Rev = uint64(rev)
			value, space := i.value, d.spaces.name(number)
			i.value = nil
			err := error(nil)
			if int64(sumOf(value)) != sum {
				err = damagedItem(space, string(key))
			} else if i.sealed {
				value, err = d.sealing.Open(space, string(key), value)
			}
			if err != nil {
				d.tell(space, err)
				return nil
			}
			times := unit.Times{Expires: i.Expires, Due: i.claimed}
			b.units.Put(of, space, string(key), &unit.Item{Meta: i.Meta, Value: value}, times, value)
			n++
			return nil
		})
		return b.lane.failed("claims", err)
	})
	return n, err
}
