package projection

import (
	"cmp"
	"context"

	"j17"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

const (
	// maxPriced is how many rows of each index are computed to determine its price, pricedAtOnce how many of them
	// together.
	maxPriced    = 10_000
	pricedAtOnce = 256
	// widerBy is the factor by which a step has more rows than the one before.
	widerBy = 4
	// maxCounted is how many streams are counted for that.
	maxCounted = 10_000_000
	// countedAtOnce is how many of them at a time.
	countedAtOnce = 10_000
)

// pricing is the budget for the prices of one dry run, over all of its indexes.
type pricing struct{ rows, entries, bytes uint64 }

// newPricing returns a pricing for some seconds of work. It suffices for an index of ten thousand rows with twenty
// entries each.
func newPricing() *pricing { return &pricing{rows: 5 * maxPriced, entries: 200_000, bytes: 64 << 20} }

// share returns an equal share of the pricing for each of a number of remaining users. The unused part of a share is
// left for later ones.
func (p *pricing) share(of int) pricing {
	n := uint64(max(of, 1))
	return pricing{p.rows / n, p.entries / n, p.bytes / n}
}

// spend deducts what was computed. The last rows may exceed the pricing.
func (p *pricing) spend(made pricing) {
	p.rows -= min(made.rows, p.rows)
	p.entries -= min(made.entries, p.entries)
	p.bytes -= min(made.bytes, p.bytes)
}

// next returns how many rows the next step of an index has, given what was computed so far, 0 to stop. The first step
// has one row, the others as many as there is room for if they are like those before.
func (p *pricing) next(made pricing, last int) int {
	if made.rows == 0 {
		return 1
	}
	left := *p
	left.spend(made)
	n := min(left.rows, pricedAtOnce, uint64(last)*widerBy, maxPriced-min(made.rows, maxPriced))
	return int(min(n, left.entries*made.rows/max(made.entries, 1), left.bytes*made.rows/max(made.bytes, 1)))
}

// cost adds up the prices of a definition's indexes. It computes rows of them within its share of the pricing.
func (t *dryRun) cost(ctx context.Context, room pricing) error {
	t.price.Exact = true
	all := t.s.needs(t.after, t.is)
	for i, x := range all {
		made, err := t.costOf(ctx, x, room.share(len(all)-i))
		if err != nil {
			return err
		}
		room.spend(made)
		t.pricing.spend(made)
	}
	return nil
}

// costOf computes rows of an index as a build would, and extrapolates the cost of all.
func (t *dryRun) costOf(ctx context.Context, x *index.Definition, room pricing) (made pricing, err error) {
	// Some rows, or all of them if they are few. A row that does not exist takes room as well.
	began := t.s.clock.Now()
	var rows uint64
	after, more := "", true
	for step := room.next(made, 0); more && step > 0; step = room.next(made, step) {
		ids, err := t.s.store.Streams(ctx, t.before.t, x.Type, after, step)
		if err != nil {
			return made, store.UserError(err)
		}
		if more = len(ids) == step; len(ids) == 0 {
			break
		}
		some, err := t.rowsOf(ctx, x, ids)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return made, store.UserError(err)
		}
		r, e, b := index.Cost(some)
		rows, made = rows+r, pricing{made.rows + uint64(len(ids)), made.entries + e, made.bytes + b}
		for i := range some {
			t.depends(some[i].Sources)
		}
		after = ids[len(ids)-1]
	}
	seconds := t.s.clock.Now().Sub(began).Seconds()

	// The number of all streams.
	all := made.rows
	for more && all < maxCounted {
		ids, err := t.s.store.Streams(ctx, t.before.t, x.Type, after, countedAtOnce)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return made, store.UserError(err)
		}
		all += uint64(len(ids))
		if more = len(ids) == countedAtOnce; more {
			after = ids[len(ids)-1]
		}
	}
	t.price.Exact = t.price.Exact && all == made.rows
	scale := 1.0
	if made.rows > 0 {
		scale = float64(all) / float64(made.rows)
	}
	t.price.Rows += scaled(rows, scale)
	t.price.Entries += scaled(made.entries, scale)
	t.price.Bytes += scaled(made.bytes, scale)
	t.price.Seconds += seconds * scale
	return made, nil
}

// rowsOf computes rows of an index, fewer at a time if they are too much work together. A row that is too much work by
// itself is left out.
func (t *dryRun) rowsOf(ctx context.Context, x *index.Definition, ids []string) ([]index.Row, error) {
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

// depends records the sources of a row of an index.
func (t *dryRun) depends(sources []j17.Key) {
	for _, key := range sources {
		t.indexed[key]++
	}
}

func scaled(n uint64, by float64) uint64 { return uint64(float64(n)*by + 0.5) }
