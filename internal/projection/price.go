package projection

import (
	"context"

	"j17"
	"j17/internal/engine"
	"j17/internal/index"
)

const (
	// maxPriced is how many rows of each index are made to tell what it costs, pricedAtOnce how many of them together.
	maxPriced    = 10_000
	pricedAtOnce = 256
	// maxCounted is how many streams are counted for that.
	maxCounted = 10_000_000
	// countedAtOnce is how many of them at a time.
	countedAtOnce = 10_000
)

// cost adds up what the indexes of a definition cost.
func (t *trial) cost(ctx context.Context) error {
	t.price.Exact = true
	for _, x := range t.s.needs(t.after, t.is) {
		if err := t.costOf(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// costOf makes rows of an index as a build would, and infers from them what all would cost.
func (t *trial) costOf(ctx context.Context, x *index.Definition) error {
	// Some rows, all of them if there are not too many.
	began := t.s.clock.Now()
	var made, rows, entries, bytes uint64
	after, more := "", true
	for more && made < maxPriced {
		ids, err := t.s.store.Streams(ctx, t.before.t, x.Type, after, pricedAtOnce)
		if err != nil {
			return engine.StorageError(err)
		}
		if more = len(ids) == pricedAtOnce; len(ids) == 0 {
			break
		}
		some, err := t.rowsOf(ctx, x, ids)
		if err != nil {
			return engine.StorageError(err)
		}
		r, e, b := index.Cost(some)
		made, rows, entries, bytes = made+uint64(len(ids)), rows+r, entries+e, bytes+b
		for i := range some {
			t.depends(some[i].Sources)
		}
		after = ids[len(ids)-1]
	}
	seconds := t.s.clock.Now().Sub(began).Seconds()

	// All streams there are.
	all := made
	for more && all < maxCounted {
		ids, err := t.s.store.Streams(ctx, t.before.t, x.Type, after, countedAtOnce)
		if err != nil {
			return engine.StorageError(err)
		}
		all += uint64(len(ids))
		if more = len(ids) == countedAtOnce; more {
			after = ids[len(ids)-1]
		}
	}
	t.price.Exact = t.price.Exact && all == made
	scale := 1.0
	if made > 0 {
		scale = float64(all) / float64(made)
	}
	t.price.Rows += scaled(rows, scale)
	t.price.Entries += scaled(entries, scale)
	t.price.Bytes += scaled(bytes, scale)
	t.price.Seconds += seconds * scale
	return nil
}

// rowsOf makes rows of an index, fewer at a time where they are too much together. A row that is too much by itself is left out.
func (t *trial) rowsOf(ctx context.Context, x *index.Definition, ids []string) ([]index.Row, error) {
	rows, err := x.Rows(ctx, t.before.t, t.after.m.At(), ids)
	switch middle := len(ids) / 2; {
	case err == nil || j17.CodeOf(err) != j17.CodeWorkLimit:
		return rows, err
	case middle == 0:
		return nil, nil
	default:
		first, err := t.rowsOf(ctx, x, ids[:middle])
		if err != nil {
			return nil, err
		}
		rest, err := t.rowsOf(ctx, x, ids[middle:])
		return append(first, rest...), err
	}
}

// depends notes what a row of an index was made of.
func (t *trial) depends(sources []j17.Key) {
	for _, key := range sources {
		t.indexed[key]++
	}
}

func scaled(n uint64, by float64) uint64 { return uint64(float64(n)*by + 0.5) }
