package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
)

// sides is the store in the role of store.Sides, except for due items.
type sides struct {
	*core
	*appender

	lookups *lookups
}

// itemOf returns a stored item in its public form, with its value opened if it is sealed.
func (c *core) itemOf(space store.Space, key string, i *storedItem) (store.Item, error) {
	value := i.value
	if i.sealed {
		var err error
		if value, err = c.sealing.Open(space, key, value); err != nil {
			return store.Item{}, corruption(err, "side item %s/%s", space, key)
		}
	}
	return store.Item{
		Key: key, Value: value, Rev: i.Rev, Expires: fromNanos(i.Expires), Due: fromNanos(i.Due),
	}, nil
}

// fromNanos is the inverse of unit.Nanos.
func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// GetEach is part of store.Sides.
func (s *sides) GetEach(
	ctx context.Context, t j17.Tenant, space store.Space, keys []string, do func(i int, value []byte) error,
) error {
	if len(keys) == 0 {
		return nil
	}
	items, err := s.lookups.items(ctx, t, space, keys...)
	if err != nil {
		return err
	}
	for i, item := range items {
		if item == nil {
			continue
		}
		if err := do(i, item.Value); err != nil {
			return err
		}
	}
	return nil
}

// itemQuery selects live items of a space whose keys are in a range. A bound restricts an index scan only if the
// statement has it as a plain condition, so each form of a range has its own statement.
type itemQuery struct {
	where string
	order string
	args  []any
}

// liveItems is what all statements of itemQuery have in common.
const liveItems = ` FROM items i WHERE i.t = (SELECT t FROM names WHERE name = $1) AND i.space = $2
AND (i.expires IS NULL OR i.expires > $3) AND ` + itemLives + ` AND i.key >= $4`

// itemQuery returns the statement for a range. ok is false if no item can be in it.
func (c *core) itemQuery(
	ctx context.Context, t j17.Tenant, space store.Space, keys store.Range,
) (q itemQuery, ok bool, err error) {
	number, err := c.spaces.number(ctx, space)
	if err != nil || number == noSpace || keys.To != "" && keys.To <= keys.From {
		return q, false, err
	}
	q.args = []any{[]byte(t), number, c.clock.Now().UnixNano(), []byte(keys.From)}
	q.where, q.order = liveItems, " ORDER BY i.key"
	if keys.To != "" {
		q.where += " AND i.key < $5"
		q.args = append(q.args, []byte(keys.To))
	}
	if keys.Backward {
		q.order += " DESC"
	}
	return q, true, nil
}

// limit returns the number of the parameter for a limit, and adds its value.
func (q *itemQuery) limit(limit int) string {
	q.args = append(q.args, limit)
	return fmt.Sprintf(" LIMIT $%d", len(q.args))
}

// scanItems returns live items of a space whose keys are in a range.
func (c *core) scanItems(
	ctx context.Context, conn reading, t j17.Tenant, space store.Space, keys store.Range, limit int,
) (items []store.Item, err error) {
	q, ok, err := c.itemQuery(ctx, t, space, keys)
	if err != nil || !ok || limit <= 0 {
		return nil, err
	}
	sql := "SELECT i.key, " + itemColumns + ", i.value" + q.where + q.order + q.limit(limit)
	rows, err := conn.Query(ctx, sql, q.args...)
	if err != nil {
		return nil, err
	}
	stored, _, err := collectItems(rows, space)
	if err != nil {
		return nil, err
	}
	return c.itemsOf(space, stored)
}

// itemsOf returns stored items in their public form.
func (c *core) itemsOf(space store.Space, stored []namedItem) (items []store.Item, err error) {
	items = make([]store.Item, len(stored))
	for i := range stored {
		if items[i], err = c.itemOf(space, stored[i].key, &stored[i].storedItem); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// namedItem is a stored item with its key.
type namedItem struct {
	storedItem

	key string
}

// collectItems reads rows of items of a space, and returns the size of their keys and values as they are stored.
func collectItems(rows pgx.Rows, space store.Space) (items []namedItem, size int, err error) {
	var key []byte
	var rev, sum int64
	var i storedItem
	_, err = pgx.ForEachRow(rows, append([]any{&key}, i.targets(&rev, &sum)...), func() error {
		i.Rev = uint64(rev)
		if int64(sumOf(i.value)) != sum {
			return damagedItem(space, string(key))
		}
		size += len(key) + len(i.value)
		items = append(items, namedItem{i, string(key)})
		i.value = nil
		return nil
	})
	return items, size, err
}

const (
	// A page ends with the item at which its keys and values reach pageBytes.
	pageBytes = store.PageBytes
	// The first page of an iteration has at most firstRows rows, since many callers need few. Each further one may have
	// rowsGrow times as many, up to mostRows.
	firstRows, rowsGrow, mostRows = 64, 4, 4096
)

// pageOfItems returns the first live items of a space whose keys are in a range, up to rows of them, and whether there
// may be more.
func (c *core) pageOfItems(
	ctx context.Context, conn reading, t j17.Tenant, space store.Space, keys store.Range, rows int,
) (items []namedItem, more bool, err error) {
	q, ok, err := c.itemQuery(ctx, t, space, keys)
	if err != nil || !ok {
		return nil, false, err
	}
	found, err := conn.Query(ctx, q.page(rows), q.args...)
	if err != nil {
		return nil, false, err
	}
	items, size, err := collectItems(found, space)
	return items, len(items) == rows || size >= pageBytes, err
}

// page returns the statement for a page. Its rows have the columns of scanItems.
func (q *itemQuery) page(rows int) string {
	return `SELECT key, rev, expires, due, claimed, sealed, sum, value FROM (
		SELECT i.key, i.rev, coalesce(i.expires, 0) AS expires, coalesce(i.due, 0) AS due,
			coalesce(i.claimed, 0) AS claimed, i.sealed, i.sum, i.value,
			sum(length(i.key) + length(i.value)) OVER (` + q.order + ` ROWS UNBOUNDED PRECEDING)
				- length(i.key) - length(i.value) AS before` + q.where + q.order + q.limit(rows) + `
	) p WHERE before < ` + strconv.Itoa(pageBytes)
}

// countItems counts live items of a space whose keys are in a range, up to a limit.
func (c *core) countItems(
	ctx context.Context, conn reading, t j17.Tenant, space store.Space, keys store.Range, limit int,
) (n int, err error) {
	q, ok, err := c.itemQuery(ctx, t, space, keys)
	if err != nil || !ok || limit <= 0 {
		return 0, err
	}
	sql := "SELECT count(*) FROM (SELECT 1" + q.where + q.limit(limit) + ") l"
	err = conn.QueryRow(ctx, sql, q.args...).Scan(&n)
	return n, err
}

// damagedItem returns the error of an item whose value does not have the stored checksum.
func damagedItem(space store.Space, key string) error {
	return ofItem(space, key, corruption(errSum, "side item %s/%s", space, key))
}

// Scan is part of store.Sides.
func (s *sides) Scan(
	ctx context.Context, t j17.Tenant, space store.Space, keys store.Range, limit int,
) (items []store.Item, err error) {
	if err := s.admits(t); err != nil {
		return nil, err
	}
	err = s.read(ctx, "side items", func(conn reading) (err error) {
		items, err = s.scanItems(ctx, conn, t, space, keys, limit)
		return err
	})
	return items, err
}

// Count is part of store.Sides.
func (s *sides) Count(
	ctx context.Context, t j17.Tenant, space store.Space, keys store.Range, limit int,
) (n int, err error) {
	if err := s.admits(t); err != nil {
		return 0, err
	}
	err = s.read(ctx, "side items", func(conn reading) (err error) {
		n, err = s.countItems(ctx, conn, t, space, keys, limit)
		return err
	})
	return n, err
}

// Write is part of store.Sides.
func (s *sides) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return s.writeSides(ctx, t, store.Append{Fences: fences, Side: side})
}

// WriteFreeing is part of store.Sides.
func (s *sides) WriteFreeing(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return s.writeSides(ctx, t, store.Append{Fences: fences, Side: side, Freeing: true})
}

// writeSides appends a unit of side writes.
func (s *sides) writeSides(ctx context.Context, t j17.Tenant, u store.Append) error {
	results, err := s.Append(ctx, t, []store.Append{u})
	if err != nil {
		return err
	}
	if results[0].Outcome == store.Conflict {
		return &results[0].Sides[0]
	}
	return nil
}

// Clear is part of store.Sides.
func (s *sides) Clear(ctx context.Context, t j17.Tenant, space store.Space, keys store.Range) error {
	if err := store.ValidTenant(t); err != nil {
		return err
	}
	number, err := s.spaces.number(ctx, space)
	if err != nil || number == noSpace || keys.To != "" && keys.To <= keys.From {
		return err
	}
	return s.queue.DoFor(ctx, t, queue.Freeing, func(b *batch) error {
		of := s.tenant(t)
		if of.named {
			b.clear(of, number, keys)
		}
		return nil
	})
}

// clear removes the items of a space whose keys are in a range, from the cache too.
func (b *batch) clear(t *tenant, space int16, keys store.Range) {
	b.units.Touch(t)
	t.epoch++
	r := clearedRange{t: int32(t.next.Number), space: space, from: []byte(keys.From), rev: int64(t.next.Rev)}
	if keys.To != "" {
		r.to = []byte(keys.To)
	}
	b.w.cleared = append(b.w.cleared, r)
}

// Empty is part of store.Emptying.
func (s *sides) Empty(
	ctx context.Context, t j17.Tenant, spaces []store.Space, side []store.Side, fences ...store.Fence,
) error {
	u := store.Append{Fences: fences, Side: side, Freeing: true}
	if err := store.ValidAppend(t, []store.Append{u}); err != nil {
		return err
	}
	for i := range side {
		if slices.Contains(spaces, side[i].Space) {
			return fmt.Errorf("%w: an item is written to the space '%s', which is emptied", store.ErrInvalid, side[i].Space)
		}
	}
	var r store.Result
	err := s.queue.DoFor(ctx, t, queue.Freeing, func(b *batch) error {
		of := s.tenant(t)
		if err := b.prepareUnit(of, &u); err != nil {
			return err
		}
		r = store.Result{}
		if err := b.units.Decide(of, &u, &r); err != nil || r.Outcome != store.Committed {
			return err
		}
		for _, space := range spaces {
			if number, known := s.spaces.known(space); known && of.named {
				b.clear(of, number, store.Range{})
			}
		}
		return nil
	})
	if err == nil && r.Outcome == store.Conflict {
		return &r.Sides[0]
	}
	return err
}
