package projection

import (
	"cmp"
	"context"

	"j17"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

const (
	// maxPriced is how many rows of each index are made to tell what it costs, pricedAtOnce how many of them together.
	maxPriced    = 10_000
	pricedAtOnce = 256
	// widerBy is how many times more rows are made together than in the step before.
	widerBy = 4
	// maxCounted is how many streams are counted for that.
	maxCounted = 10_000_000
	// countedAtOnce is how many of them at a time.
	countedAtOnce = 10_000
)

// pricing is what may be made for the prices of one dry run, of all of its indexes together.
type pricing struct{ rows, entries, bytes uint64 }

// newPricing is for some seconds of work. An index of ten thousand rows with twenty entries each is made whole.
func newPricing() *pricing { return &pricing{rows: 5 * maxPriced, entries: 200_000, bytes: 64 << 20} }

// share is an equal part for each of some that follow. What one does not use of it goes to those after it.
func (p *pricing) share(of int) pricing {
	n := uint64(max(of, 1))
	return pricing{p.rows / n, p.entries / n, p.bytes / n}
}

// spend takes what was made. The last rows may be more than there was room for.
func (p *pricing) spend(made pricing) {
	p.rows -= min(made.rows, p.rows)
	p.entries -= min(made.entries, p.entries)
	p.bytes -= min(made.bytes, p.bytes)
}

// next is how many rows are made in the next step of an index when so much was made of it, 0 where it is enough. The
// first step has one row, the others as many as there is room for when they are like those before.
func (p *pricing) next(made pricing, last int) int {
	if made.rows == 0 {
		return 1
	}
	left := *p
	left.spend(made)
	n := min(left.rows, pricedAtOnce, uint64(last)*widerBy, maxPriced-min(made.rows, maxPriced))
	return int(min(n, left.entries*made.rows/max(made.entries, 1), left.bytes*made.rows/max(made.bytes, 1)))
}

// cost adds up what the indexes of a definition cost. It makes rows of them as far as its part of the pricing goes.
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

// costOf makes rows of an index as a build would, and infers from them what all would cost.
func (t *dryRun) costOf(ctx context.Context, x *index.Definition, room pricing) (made pricing, err error) {
	// Some rows, all of them if that is not too much. A row that is not there takes room as well.
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

	// All streams there are.
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

// rowsOf makes rows of an index, fewer at a time where they are too much together. A row that is too much by itself is
// left out.
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

// depends notes what a row of an index was made of.
func (t *dryRun) depends(sources []j17.Key) {
	for _, key := range sources {
		t.indexed[key]++
	}
}

func scaled(n uint64, by float64) uint64 { return uint64(float64(n)*by + 0.5) }
