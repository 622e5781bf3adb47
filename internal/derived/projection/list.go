package projection

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/work"
	"j17/internal/derived/index"
	"j17/internal/derived/place"
	"j17/internal/storage/store"
)

// ListAsk is the request for a page of a list.
type ListAsk struct {
	Name string
	// Filters are the parameters that are fields, with their operators; Order is nil if none was given.
	Filters map[string]string
	Order   *string
	// Near, if not nil, asks for the rows around a point, by distance; its After is ignored.
	Near *place.Near
	// Count is the maximum number of rows of a page, Start the Next of the previous page.
	Count int
	Start string
}

// List is a page of a list: all its rows as of one position.
type List struct {
	Rows []Row
	// Next is where the next page starts, "" for the last page. Early reports that the page was ended by work, and not
	// by its rows.
	Next     string
	Early    bool
	Position j17.StreamID
	// Types are the aggregate types that rows are computed from.
	Types []string
	// last is the mark of the aggregate last looked at around a point.
	last string
}

// Row is a row of a list.
type Row struct {
	ID string
	j17.Names
	// Distance is the distance in metres, in a list around a point, and Geo the kind of the row's place.
	Distance float64
	Geo      string
	// Data is the row's value as JSON, Tag its entity tag. If it could not be computed, Err is the reason.
	Data []byte
	Tag  string
	Err  error
}

// Limits of a page beside its number of rows. A page that reaches one ends early, with at least one row.
const (
	// maxListBytes is the maximum size of the data of a page's rows.
	maxListBytes = 8 << 20
	// maxListSources is how many aggregates are read for them.
	maxListSources = 50_000
	// maxListWork is the maximum cost of computing them, in units of package work, without folding states.
	maxListWork = work.Replay
	// firstRows and mostRows are how many rows are computed together: a few at first, to learn their size.
	firstRows, mostRows = 64, 256
)

// List returns a page of a projection's rows: by id, or by an index, which is brought up to date first.
func (s *Service) List(ctx context.Context, t j17.Tenant, ask ListAsk) (*List, error) {
	list := s.list
	if ask.Near != nil {
		list = s.listNear
	}
	return settled(ctx, func() (*List, error) { return list(ctx, t, &ask) })
}

func (s *Service) list(ctx context.Context, t j17.Tenant, ask *ListAsk) (*List, error) {
	if l, err := s.listAhead(ctx, t, ask); l != nil || err != nil {
		return l, err
	}
	r, d, p, err := s.planned(ctx, t, ask)
	if err != nil {
		return nil, err
	}
	list := p.identity(d)
	after, err := placeOf(list, ask.Start)
	if err != nil {
		return nil, err
	}
	g := &page{s: s, d: d, list: list, count: ask.Count}
	if p.index == byID {
		g.at = r
		return g.fill(
			ctx, after, func(after string, limit int) ([]found, error) { return s.rowsByID(ctx, r, d, after, limit) },
		)
	}

	// Rows are computed as of the position of the index.
	view, err := s.view(ctx, r, d)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	if g.at, err = s.as(r, view.Position()); err != nil {
		return nil, err
	}
	return g.fill(ctx, after, p.pages(work.New(ctx, work.Replay), view, after, ask.Count+1))
}

// listAhead is list for the case that the same projections are in force, and the same slot of their index serves, as
// the last time: everything up to the first entries is then read together. It returns nil if that is not so, or if it
// finds an error that list tells better.
func (s *Service) listAhead(ctx context.Context, t j17.Tenant, ask *ListAsk) (*List, error) {
	// What is wanted, under the projections in force the last time.
	in := s.readings.sets.of(t)
	if in == nil {
		return nil, nil //nolint:nilnil // stated
	}
	r, err := s.readings.known(t, j17.StreamID{}, in.posted.rev)
	if r == nil || err != nil || r.in.all[ask.Name] == nil || !r.in.all[ask.Name].IsNamed() {
		return nil, nil //nolint:nilnil // stated
	}
	in, d := r.in, r.in.all[ask.Name]
	p, err := planFor(d, ask.Filters, ask.Order)
	if err != nil || p.index == byID {
		return nil, nil //nolint:nilnil // stated
	}
	query, ok := p.single()
	list := p.identity(d)
	after, err := placeOf(list, ask.Start)
	if err != nil || !ok {
		return nil, nil //nolint:nilnil // stated
	}
	of := s.rowIndex(r, d)
	s.indexes.Know(ctx, t, of)
	ahead := s.indexes.Ahead(t, of.ID, query, after, ask.Count+1)
	if ahead == nil {
		return nil, nil //nolint:nilnil // stated
	}

	// It is read together with what says which projections are in force.
	wanted := ahead.Wanted
	wanted.Items = append(slices.Clip(wanted.Items), postedItem())
	found, err := s.store.ReadTogether(ctx, t, wanted)
	if _, damaged := errors.AsType[*store.CorruptionError](err); damaged {
		return nil, nil //nolint:nilnil // stated
	}
	if err != nil {
		return nil, store.UserError(err)
	}
	was := r.m.Decider()
	r, err = s.readings.known(t, found.Position, found.Items[len(wanted.Items)-1].Rev)
	if r == nil || err != nil || r.in != in || r.m.Decider() != was {
		return nil, err
	}

	// The page.
	view, err := ahead.Open(ctx, &found)
	if view == nil {
		return nil, indexNotReady(err)
	}
	defer view.Close()
	g := &page{s: s, at: r, d: d, list: list, count: ask.Count}
	l, err := g.fill(ctx, after, p.pages(work.New(ctx, work.Replay), view, after, ask.Count+1))
	if errors.Is(err, index.ErrMoved) {
		return nil, nil //nolint:nilnil // stated
	}
	return l, err
}

// planned reads the request and plans how it is served.
func (s *Service) planned(ctx context.Context, t j17.Tenant, ask *ListAsk) (*reading, *definition, plan, error) {
	r, err := s.readings.now(ctx, t)
	if err != nil {
		return nil, nil, plan{}, err
	}
	d, err := r.rowsOf(ask.Name)
	if err != nil {
		return nil, nil, plan{}, err
	}
	p, err := planFor(d, ask.Filters, ask.Order)
	return r, d, p, err
}

// Count returns how many rows a list has.
func (s *Service) Count(ctx context.Context, t j17.Tenant, name string, filters map[string]string) (uint64, error) {
	return settled(ctx, func() (uint64, error) { return s.count(ctx, t, name, filters) })
}

func (s *Service) count(ctx context.Context, t j17.Tenant, name string, filters map[string]string) (uint64, error) {
	r, err := s.readings.now(ctx, t)
	if err != nil {
		return 0, err
	}
	d, err := r.rowsOf(name)
	if err != nil {
		return 0, err
	}
	p, err := planFor(d, filters, nil)
	if err != nil {
		return 0, err
	}
	if p.index == byID && len(d.Indexes) == 0 {
		return s.countStreams(ctx, r, d.ForEach)
	}
	view, err := s.view(ctx, r, d)
	if err != nil {
		return 0, err
	}
	defer view.Close()
	return p.countIn(work.New(ctx, work.Replay), view)
}

// rowsOf returns a projection of the named form.
func (r *reading) rowsOf(name string) (*definition, error) {
	d, err := r.definition(name)
	if err != nil {
		return nil, err
	}
	if !d.IsNamed() {
		return nil, j17.Errorf(j17.CodeNotFound, "The projection '%s' has no rows: it is not for each aggregate of a type. Read it with its parameters, at /_projections/%s.", d.Name, d.Name)
	}
	return d, nil
}

// planFor reads the filters of a list and plans how it is served.
func planFor(d *definition, filters map[string]string, order *string) (plan, error) {
	q, err := readQuery(d.Indexes, filters, order)
	if err != nil {
		return plan{}, err
	}
	return planQuery(d.Projection, q)
}

// identity identifies the list that a plan produces. Cursors of other lists are invalid for it, even if an index of the
// same fields has other values in them.
func (p *plan) identity(d *definition) string {
	by := ""
	if p.index != byID {
		by = hex.EncodeToString(d.IndexFingerprint[:])
	}
	return d.Name + " " + by + " " + strconv.Itoa(len(p.fields)) + " " + strconv.Quote(
		strings.Join(p.fields, " "),
	) + " " + p.query.canonical()
}

// as returns a reading at another position with the same projections and the same spec.
func (s *Service) as(r *reading, at j17.StreamID) (*reading, error) {
	if at == r.m.At() {
		return r, nil
	}
	m, err := s.engine.Moment(r.t, at)
	if err != nil {
		return nil, err
	}
	if m.Decider() != r.m.Decider() {
		return nil, errRedeployed
	}
	return r.as(m), nil
}

// found is a row of a list, with its place in it. nulls reports that it was found where all fields of its index are
// null.
type found struct {
	id, place string
	nulls     bool
}

// page is a page that is being filled.
type page struct {
	s     *Service
	at    *reading
	d     *definition
	list  string
	count int
	// bytes and sources are the size of the rows so far and the number of their sources, work is their cost.
	bytes, sources int
	work           int64
	// budget is reused for groups of rows, one after the other.
	budget *work.Budget
}

// fill computes the rows of a page: scan returns up to limit places of rows after a given one, fewer only at the end.
func (g *page) fill(
	ctx context.Context, after string, scan func(after string, limit int) ([]found, error),
) (*List, error) {
	l := &List{Position: g.at.m.At(), Types: g.d.Types()}
	for step := firstRows; ; {
		limit := min(g.count-len(l.Rows), step)
		some, err := scan(after, limit+1)
		if err != nil {
			return nil, err
		}
		more := len(some) > limit
		full, err := g.add(ctx, l, some[:min(len(some), limit)], &after)
		if err != nil {
			return nil, err
		}
		switch {
		case !more && !full:
			return l, nil
		case full || len(l.Rows) >= g.count || g.work >= maxListWork && len(l.Rows) > 0:
			l.Next = cursorTo(g.list, after)
			return l, nil
		}
		step = g.nextStep(len(l.Rows))
	}
}

// nextStep returns how many rows to compute next.
func (g *page) nextStep(rows int) int {
	step := mostRows
	if rows > 0 {
		step = min(step, (maxListBytes-g.bytes)/(1+g.bytes/rows), (maxListSources-g.sources)/(1+g.sources/rows))
	}
	return max(step, 1)
}

// add computes rows and adds them to the page, and moves after behind the last of them. It reports true if a limit of
// the page leaves some of them, or all further ones, to the next page.
func (g *page) add(ctx context.Context, l *List, some []found, after *string) (full bool, err error) {
	ids := make([]string, len(some))
	for i := range some {
		ids[i] = some[i].id
	}
	values, err := g.values(ctx, ids)
	if err != nil {
		return false, err
	}
	for i, computed := 0, g.work; i < len(values); i++ {
		v := values[i]
		if j17.CodeOf(v.Err) == j17.CodeAggregateNotFound {
			*after = some[i].place // it began after the position
			continue
		}
		if v.Err != nil && !Permanent(v.Err) {
			return false, v.Err
		}
		if some[i].nulls && v.Err == nil {
			if len(l.Rows) > 0 && g.work-computed >= maxListWork {
				return true, nil
			}
			if v, err = g.fitting(v); err != nil {
				return false, err
			}
		}
		g.bytes += len(v.Data)
		g.sources += len(v.Sources)
		if len(l.Rows) > 0 && (g.bytes > maxListBytes || g.sources > maxListSources) {
			return true, nil
		}
		l.Rows = append(l.Rows, Row{ID: ids[i], Names: v.Names, Data: v.Data, Tag: v.Tag, Err: v.Err})
		*after = some[i].place
	}
	return len(values) < len(some), nil
}

// values computes rows, as many as the page has work left for, but at least one. Rows that are too much work together
// are computed fewer at a time, so that the content of a row does not depend on the others.
func (g *page) values(ctx context.Context, ids []string) (values []*Value, err error) {
	if g.budget == nil {
		g.budget = work.New(ctx, maxWork)
	}
	for step := len(ids); len(values) < len(ids) && (len(values) == 0 || g.work < maxListWork); {
		left := ids[len(values):]
		some := left[:min(step, len(left))]
		g.budget.Renew(maxWork)
		more, err := g.s.values.rows(ctx, g.budget, g.at, g.d, some)
		g.work += g.budget.Spent()
		if err != nil && (j17.CodeOf(err) != j17.CodeWorkLimit || len(some) == 1) {
			return nil, err
		}
		if err != nil {
			more = nil
		} else if at := slices.IndexFunc(more, worn); at >= 0 && crowded(g.budget, len(some)) {
			more = more[:at]
		}
		values, step = append(values, more...), chunkSteps*step
		if len(more) == 0 {
			step = max(1, len(some)/chunkSteps)
		}
	}
	return values, nil
}

// worn reports whether a value failed for lack of work.
func worn(v *Value) bool { return j17.CodeOf(v.Err) == j17.CodeWorkLimit }

// crowded reports whether several rows together have used up a budget, which might suffice for one of them.
func crowded(b *work.Budget, rows int) bool {
	return rows > 1 && j17.CodeOf(b.Err()) == j17.CodeWorkLimit
}

// rowsByID returns up to limit aggregates of the projection's type after a given one, in the order of IDs. They include
// those that began after the reading's position.
func (s *Service) rowsByID(ctx context.Context, r *reading, d *definition, after string, limit int) ([]found, error) {
	ids, err := s.store.Streams(ctx, r.t, d.ForEach, after, limit)
	if err != nil {
		return nil, store.UserError(err)
	}
	some := make([]found, len(ids))
	for i, id := range ids {
		some[i] = found{id: id, place: id}
	}
	return some, nil
}

// streamsAtOnce is how many streams are counted at a time.
const streamsAtOnce = 10_000

// countStreams counts the aggregates of a type as of the reading's position. Streams never end, so only those that have
// begun since have to be left out; the feed has these.
func (s *Service) countStreams(ctx context.Context, r *reading, aggregateType string) (count uint64, err error) {
	b := work.New(ctx, work.Replay)
	begun, at := map[string]struct{}{}, r.m.At()
	for after := ""; ; {
		ids, err := s.store.Streams(ctx, r.t, aggregateType, after, streamsAtOnce)
		if err != nil {
			return 0, store.UserError(err)
		}
		for ev, err := range s.store.ReadFeed(ctx, r.t, at, int(^uint(0)>>1)) {
			if err != nil {
				return 0, store.UserError(err)
			}
			if !b.SpendBytes(len(ev.Raw)) {
				return 0, b.Err()
			}
			if at = ev.StreamID; ev.Version == 1 && ev.Key.Type == aggregateType {
				begun[ev.Key.ID] = struct{}{}
			}
		}
		if !b.Spend(len(ids)) {
			return 0, b.Err()
		}
		for _, id := range ids {
			if _, late := begun[id]; !late {
				count++
			}
		}
		if len(ids) < streamsAtOnce {
			return count, nil
		}
		after = ids[len(ids)-1]
	}
}

// Permanent reports whether an error is one of the row as it is: computing the row again gives the same error. Its
// fields then count as null.
func Permanent(err error) bool {
	switch j17.CodeOf(err) { //nolint:exhaustive // the others pass, or are of the server
	case j17.CodeCustomCodeFailed, j17.CodeProjectionLimit, j17.CodeWorkLimit, j17.CodeCorruption,
		j17.CodeHandlerRejected, j17.CodeInvalidOperand, j17.CodeImplicationFailed, j17.CodeImplicationLimit,
		j17.CodeUpcastFailed:
		return true
	default:
		return false
	}
}

// errRedeployed reports that another spec was deployed, or other projections posted, during a read: it begins again.
var errRedeployed = errors.New("projection: other projections have come into force meanwhile")

// settled repeats a read until nothing is deployed during it.
func settled[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for {
		v, err := read()
		if !errors.Is(err, errRedeployed) || ctx.Err() != nil {
			return v, err
		}
	}
}
