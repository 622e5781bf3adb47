package projection

import (
	"context"
	"slices"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/derived/index"
)

// number returns the number of the plan's index among those of the definition.
func (p *plan) number() int { return numberOf(p.index) }

// numberOf returns the number of the index at a position in the definition: allRows comes before them.
func numberOf(place int) int { return place + 1 }

// allRows is the number of the index that has every row once.
const allRows = 0

// lookup returns the plan as a query of the index: a lane for each reading of the equalities, with the ranges of the
// next field in order.
func (p *plan) lookup() index.Query {
	all := index.All(p.number(), len(p.fields))
	lanes := [][]value.Value{nil}
	for _, c := range p.equal {
		var longer [][]value.Value
		for _, lane := range lanes {
			for _, v := range c.values {
				longer = append(longer, append(slices.Clone(lane), v))
			}
		}
		lanes = longer
	}
	q := index.Query{Backward: p.query.backward}
	for _, lane := range lanes {
		q.Lanes = append(q.Lanes, p.next.ranges(all.Equal(lane...)))
	}
	return q
}

// single returns the plan as one query of the index; ok is false for several words, which take several queries.
func (p *plan) single() (q index.Query, ok bool) {
	switch asked := p.words(); len(asked) {
	case 0:
		return p.lookup(), asked == nil
	case 1:
		return index.WordQuery(p.number(), asked[0]), true
	default:
		return q, false
	}
}

// ranges returns the parts of a range that meet a condition on its next field; nil means no condition.
func (c *condition) ranges(of index.Range) []index.Range {
	switch {
	case c == nil:
		return []index.Range{of}
	case c.never:
		return nil
	case c.op == prefix:
		return []index.Range{of.Prefix(c.text)}
	case c.isRange():
		return []index.Range{of.Between(index.Bound{Value: c.low.value, Exclusive: c.low.open}, index.Bound{
			Value: c.high.value, Exclusive: c.high.open,
		})}
	}
	ranges := make([]index.Range, len(c.values))
	for i, v := range c.values {
		ranges[i] = of.Between(index.Bound{Value: v}, index.Bound{Value: v})
	}
	return ranges
}

// view opens the index of a projection, at the reading's position or a later one.
func (s *Service) view(ctx context.Context, r *reading, d *definition) (*index.View, error) {
	return s.lookups.indexAt(ctx, r, s.rowIndex(r, d), r.m.At())
}

// pages returns a function that reads up to limit rows after a place, page after page, in the order of the plan. About
// most rows are wanted in total, after the place where the first page begins.
func (p *plan) pages(
	b *work.Budget, view *index.View, begin string, most int,
) func(after string, limit int) ([]found, error) {
	var next func(after string, limit int) ([]index.Hit, error)
	switch asked := p.words(); {
	case asked == nil:
		next = view.Search(b, p.lookup(), begin, most).Next
	case len(asked) == 1:
		next = view.SearchWord(b, p.number(), asked[0], begin, most).Next
	default:
		next = func(after string, limit int) ([]index.Hit, error) {
			return view.Words(b, p.number(), asked, after, limit)
		}
	}
	nulls := p.asksNulls()
	return func(after string, limit int) ([]found, error) {
		hits, err := next(after, limit)
		some := make([]found, len(hits))
		for i := range hits {
			some[i] = found{
				id: hits[i].ID, place: hits[i].Cursor,
				nulls: nulls && index.AllNull(hits[i].Cursor, len(p.fields)-len(p.equal)),
			}
		}
		return some, indexNotReady(err)
	}
}

// words returns the words that the plan looks for, nil if it does not look for words.
func (p *plan) words() []string {
	if p.next == nil || p.next.op != words {
		return nil
	}
	return append([]string{}, index.AskedWords(p.next.text)...)
}

// asksNulls reports whether rows whose fields are null meet all equalities of the plan.
func (p *plan) asksNulls() bool {
	return !slices.ContainsFunc(p.equal, func(c *condition) bool {
		return !slices.ContainsFunc(c.values, func(v value.Value) bool { return v.Kind() == value.Null })
	})
}

// fitting checks a row that was found where all fields of its index are null. If the reason is that it has too many
// entries, the result has an error instead of data.
func (g *page) fitting(v *Value) (*Value, error) {
	data, err := g.parsed(v)
	if err != nil {
		return nil, err
	}
	return g.unlessOverfull(v, data)
}

// parsing is the cost of parsing a byte of a row's data, relative to reading it.
const parsing = 8

// parsed parses the data of a row, at the cost of the page.
func (g *page) parsed(v *Value) (value.Value, error) {
	g.budget.Renew(maxListWork)
	defer func() { g.work += g.budget.Spent() }()
	if !g.budget.SpendBytes(parsing * len(v.Data)) {
		return value.Value{}, g.budget.Err()
	}
	return value.ParseStored(string(v.Data))
}

// unlessOverfull returns a row unchanged or, if it has too many entries, with that error instead of data. The check is
// charged to the page; a row for which it is too much work has that error.
func (g *page) unlessOverfull(v *Value, data value.Value) (*Value, error) {
	g.budget.Renew(maxListWork)
	err := overfullWithin(g.budget, g.d, data)
	g.work += g.budget.Spent()
	switch {
	case err == nil:
		return v, nil
	case Permanent(err):
		return v.failed(err), nil
	}
	return nil, err
}

// failed returns the value with an error instead of data.
func (v *Value) failed(err error) *Value {
	return &Value{
		Key: v.Key, Names: v.Names, Computed: v.Computed, At: v.At, Sources: v.Sources, Versions: v.Versions,
		Sets: v.Sets, Err: err,
	}
}

// countIn counts the rows of the plan.
func (p *plan) countIn(b *work.Budget, view *index.View) (n uint64, err error) {
	switch {
	case p.index == byID:
		n, err = view.Count(b, index.Query{Lanes: [][]index.Range{{index.All(allRows, 0)}}})
	case p.words() != nil:
		n, err = view.CountWords(b, p.number(), p.words())
	default:
		n, err = view.Count(b, p.lookup())
	}
	return n, indexNotReady(err)
}
