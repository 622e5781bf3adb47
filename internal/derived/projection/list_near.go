package projection

import (
	"context"
	"math"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/derived/place"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

const (
	// nearStep is how many aggregates around a point are looked at together at most, maxNear how many for a page.
	nearStep = 64
	maxNear  = 5000
)

// listNear returns a page of a list around a point, as of the position of one moment of the store.
func (s *Service) listNear(ctx context.Context, t j17.Tenant, ask *ListAsk) (*List, error) {
	r, d, p, err := s.planned(ctx, t, ask)
	if err != nil {
		return nil, err
	}
	switch {
	case ask.Order != nil:
		return nil, j17.Errorf(j17.CodeInvalidParameter, "Rows that are near a point come by their distance: leave 'order' out").At("order")
	case p.next != nil:
		return nil, unservable(d.Indexes, p.next.field, "What is near a point can be filtered by equal values only")
	}
	kinds, err := s.places.Kinds(ctx, t, d.ForEach, spec.Point)
	if err != nil {
		return nil, err
	}
	sm, err := s.store.Moment(ctx, t)
	if err != nil {
		return nil, store.UserError(err)
	}
	defer sm.Close()
	if r, err = s.as(r, sm.Position()); err != nil {
		return nil, err
	}

	// The place to continue at.
	g := &page{s: s, at: r, d: d, list: p.identity(d) + " near " + strconv.FormatFloat(
		ask.Near.Center.Lat, 'g', -1, 64,
	) + " " + strconv.FormatFloat(ask.Near.Center.Lng, 'g', -1, 64) + " " + strconv.FormatFloat(
		ask.Near.Radius, 'g', -1, 64,
	), count: ask.Count}
	after, err := placeOf(g.list, ask.Start)
	if err != nil {
		return nil, err
	}
	query := *ask.Near
	if query.After, err = markOf(after); err != nil {
		return nil, err
	}
	steps, err := fieldSteps(&p)
	if err != nil {
		return nil, err
	}

	// A few aggregates at a time are computed and filtered, fewer if they are large.
	l := &List{Position: r.m.At(), Types: d.Types()}
	looked, step, batch := 0, firstRows, make([]place.Found, 0, nearStep)
	for found, err := range kinds.Nearby(ctx, sm, query) {
		if err != nil {
			return nil, err
		}
		if found.ID != "" {
			batch = append(batch, found)
		}
		if looked++; len(batch) < step && found.ID != "" {
			continue
		}
		full, err := g.addNear(ctx, l, &p, steps, batch)
		if err != nil || full {
			return l, err
		}
		if batch = batch[:0]; looked >= maxNear || g.work >= maxListWork || found.ID == "" {
			l.Next, l.Early = cursorTo(g.list, textOfMark(found.Mark)), true
			return l, nil
		}
		step = min(nearStep, g.nextStep(looked))
	}
	_, err = g.addNear(ctx, l, &p, steps, batch)
	return l, err
}

// addNear adds the aggregates of a batch that the filters select to the page. It reports true if the page is full, or
// has reached its limits of work, and there is more.
func (g *page) addNear(
	ctx context.Context, l *List, p *plan, steps [][]value.Step, batch []place.Found,
) (full bool, err error) {
	ids := make([]string, len(batch))
	for i := range batch {
		ids[i] = batch[i].ID
	}
	values, err := g.values(ctx, ids)
	if err != nil {
		return false, err
	}
	for i, computed := 0, g.work; i < len(values); i++ {
		v := values[i]
		if j17.CodeOf(v.Err) == j17.CodeAggregateNotFound {
			continue
		}
		if v.Err != nil && !Permanent(v.Err) {
			return false, v.Err
		}

		// Rows left out by filters were read as well.
		if g.sources += len(v.Sources); l.last != "" && (g.sources > maxListSources || g.work-computed >= maxListWork) {
			l.Next, l.Early = cursorTo(g.list, l.last), len(p.equal) > 0
			return true, nil
		}
		behind := l.last
		l.last = textOfMark(batch[i].Mark)
		if v, err = g.filtered(p, v, steps); err != nil {
			return false, err
		}
		if v == nil {
			continue
		}
		if g.bytes += len(v.Data); len(l.Rows) == g.count || len(l.Rows) > 0 && g.bytes > maxListBytes {
			l.Next = cursorTo(g.list, behind)
			return true, nil
		}
		l.Rows = append(l.Rows, Row{
			ID: ids[i], Names: v.Names, Data: v.Data, Tag: v.Tag, Err: v.Err, Distance: batch[i].Distance,
			Geo: batch[i].Geo,
		})
	}
	if full = len(values) < len(batch); full {
		l.Next, l.Early = cursorTo(g.list, textOfMark(batch[len(values)-1].Mark)), true
	}
	return full, nil
}

// fieldSteps returns the paths to the fields of the plan's equalities in the data of a row.
func fieldSteps(p *plan) ([][]value.Step, error) {
	steps := make([][]value.Step, len(p.equal))
	for i, c := range p.equal {
		path, err := jsonpath.ParseState(c.field)
		if err != nil {
			return nil, err // the projection was deployed with valid steps
		}
		steps[i] = path.Steps
	}
	return steps, nil
}

// filtered returns a row if the equalities of the plan select it, else nil. If the row cannot be computed, or has too
// many entries, its fields count as null; in the latter case it has an error instead of data, as when an index finds
// it.
func (g *page) filtered(p *plan, v *Value, steps [][]value.Step) (*Value, error) {
	if len(p.equal) == 0 {
		return v, nil
	}
	var data value.Value
	if v.Err == nil {
		var err error
		if data, err = g.parsed(v); err != nil {
			return nil, err
		}
	}

	// Counting entries takes longer than comparing, and can only select a row if nulls are asked for.
	passes := p.holds(data, steps)
	if v.Err == nil && (passes || p.asksNulls()) {
		var err error
		if v, err = g.unlessOverfull(v, data); err != nil {
			return nil, err
		}
		if v.Err != nil {
			passes = p.asksNulls()
		}
	}
	if !passes {
		return nil, nil //nolint:nilnil // it is documented
	}
	return v, nil
}

// holds reports whether the data of a row meet the equalities of the plan; steps are the paths to their fields.
func (p *plan) holds(data value.Value, steps [][]value.Step) bool {
	for i, c := range p.equal {
		if !c.holds(data.At(steps[i])) {
			return false
		}
	}
	return true
}

// textOfMark encodes a place around a point.
func textOfMark(m place.Mark) string {
	return strconv.FormatUint(math.Float64bits(m.Distance), 16) + " " + m.Slot + " " + m.ID
}

// markOf decodes textOfMark, the zero Mark for "".
func markOf(text string) (m place.Mark, err error) {
	if text == "" {
		return m, nil
	}
	parts := strings.SplitN(text, " ", 3)
	bits, err := strconv.ParseUint(parts[0], 16, 64)
	if m.Distance = math.Float64frombits(bits); err != nil || len(parts) < 3 || math.IsNaN(m.Distance) {
		return place.Mark{}, j17.Errorf(j17.CodeInvalidParameter, "'start' is not the 'next' of a page of this list. Start again without it.").At("start")
	}
	m.Slot, m.ID = parts[1], parts[2]
	return m, nil
}
