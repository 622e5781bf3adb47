package projection

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/core/trial"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

const (
	// triedAtOnce is how many rows a dry run computes together.
	triedAtOnce = 32
	// maxTriedSources is the number of aggregates read at which a dry run stops.
	maxTriedSources = 200_000
)

// Try reports what a definition would make of the present rows, at most most of them, and what it would cost; nothing
// changes. Its errors are those of PostDefinition.
func (s *Service) Try(ctx context.Context, t j17.Tenant, p Posting, most int) (wire.ProjectionDryRun, error) {
	r, err := s.readings.now(ctx, t)
	if err != nil {
		return wire.ProjectionDryRun{}, err
	}
	next, found, err := s.admit(&p, r.in.compiled)
	if err != nil {
		return wire.ProjectionDryRun{}, err
	}
	made, _ := spec.CompileProjection(next.Definition, r.in.compiled)
	before := r.in.all[next.Name]
	answer := wire.ProjectionDryRun{
		DryRun: true, Name: next.Name, Created: before == nil, Warnings: diag.FieldErrors(found),
	}
	trial := dryRun{
		s: s, before: r, was: before, after: r, is: &definition{Projection: made, posted: next}, pricing: newPricing(),
	}
	defer s.letGo(ctx, r, trial.is)
	err = trial.run(ctx, most, trial.pricing.share(1))
	answer.Replay, answer.Price = trial.replay, trial.price
	return answer, err
}

// letGo removes the indexes that reads of tried definitions have begun, unless others need them. While one of them is
// being built, all stay: the next trial finds them further on, and the next change of the environment's projections
// removes them.
func (s *Service) letGo(ctx context.Context, r *reading, tried ...*definition) {
	if s.indexes == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	begun := false
	for _, d := range tried {
		for _, q := range d.Queries() {
			status, err := s.indexes.Status(ctx, r.t, s.lookups.queryIndex(r.m, q).ID)
			if err == nil && !status.Ready {
				return
			}
			begun = begun || err == nil
		}
	}
	if !begun {
		return
	}
	if err := s.adopt(ctx, r.t); err != nil {
		s.logger.LogAttrs(ctx, slog.LevelWarn, "an index that was built for a dry run could not be removed; the next deployment removes it",
			slog.String("tenant", string(r.t)), slog.Any("error", err))
	}
}

// try is TrySpec for a dry run of a deployment; it does nothing if nothing is deployed.
func (s *Service) try(
	ctx context.Context, t j17.Tenant, after *decider.Decider, asked part.Asked,
) (trial part.Trial, err error) {
	if s.engine.Spec(t) != nil {
		trial.Projections, err = s.TrySpec(ctx, t, after, asked.Rows)
	}
	return trial, err
}

// TrySpec reports what a spec would change in the projections of an environment, with at most most rows of all of them
// together: only projections whose values would change, by name.
func (s *Service) TrySpec(
	ctx context.Context, t j17.Tenant, after *decider.Decider, most int,
) ([]wire.ProjectionTrial, error) {
	r, err := s.readings.now(ctx, t)
	if err != nil {
		return nil, err
	}
	next := &reading{t: t, m: r.m.Under(after), in: newInForce(after.Compiled, r.in.posted, nil)}

	// The projections that change.
	var trials []wire.ProjectionTrial
	names := maps.Clone(r.in.all)
	maps.Copy(names, next.in.all)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := r.in.all[name], next.in.all[name]
		switch {
		case was == nil:
			trials = append(trials, wire.ProjectionTrial{Name: name, Change: string(compare.Added)})
		case is == nil:
			trials = append(trials, wire.ProjectionTrial{Name: name, Change: string(compare.Removed)})
		case was.identity(r.m.Decider()) != is.identity(after):
			trials = append(trials, wire.ProjectionTrial{Name: name, Change: string(compare.Changed)})
		}
	}

	// The changes of their rows. The unused share of one projection goes to those after it.
	left := min(most, trial.MaxAggregates)
	var tried []*definition
	pricing := newPricing()
	defer func() { s.letGo(ctx, next, tried...) }()
	for i := range trials {
		p := &trials[i]
		if p.Change == string(compare.Removed) {
			continue
		}
		one := dryRun{s: s, before: r, was: r.in.all[p.Name], after: next, is: next.in.all[p.Name], pricing: pricing}
		tried = append(tried, one.is)
		if err := one.run(ctx, max(left/(len(trials)-i), 1), pricing.share(len(trials)-i)); err != nil {
			return nil, err
		}
		left = max(left-one.replay.Aggregates, 0)
		p.Replay, p.Price = &one.replay, &one.price
	}
	return trials, nil
}

// dryRun compares the rows of two definitions, each under its spec.
type dryRun struct {
	s      *Service
	before *reading
	was    *definition // nil for none
	after  *reading
	is     *definition
	// pricing is the remaining budget for prices of all definitions tried together.
	pricing *pricing

	replay wire.Replay
	price  wire.Price
	read   int
	// of counts, for each aggregate, the rows made from it; indexed counts rows of indexes in the same way.
	of, indexed map[j17.Key]uint64
}

// run computes at most most rows and compares them, and determines the price within room.
func (t *dryRun) run(ctx context.Context, most int, room pricing) error {
	t.replay = wire.Replay{Types: t.is.Types(), Complete: true, Differences: []wire.StateDifference{}}
	t.of, t.indexed = map[j17.Key]uint64{}, map[j17.Key]uint64{}
	if err := t.cost(ctx, room); err != nil {
		return err
	}
	if !t.is.IsNamed() {
		t.widest()
		return nil // rows exist in the named form only
	}
	compared := t.was != nil && t.was.IsNamed() && t.was.ForEach == t.is.ForEach
	for after := ""; ; {
		limit := min(most-t.replay.Aggregates, triedAtOnce)
		ids, err := t.s.store.Streams(ctx, t.before.t, t.is.ForEach, after, limit+1)
		if err != nil {
			return store.UserError(err)
		}
		more := len(ids) > limit
		if more && limit == 0 || t.read > maxTriedSources {
			t.replay.Complete = false
			break
		}
		ids = ids[:min(limit, len(ids))]
		if err := t.compare(ctx, ids, compared); err != nil {
			return err
		}
		if !more {
			break
		}
		after = ids[len(ids)-1]
	}
	t.widest()
	return nil
}

// compare computes rows of both definitions and compares them.
func (t *dryRun) compare(ctx context.Context, ids []string, compared bool) error {
	is, err := t.rows(ctx, t.after, t.is, ids)
	if err != nil {
		return err
	}
	var was []*Value
	if compared {
		if was, err = t.rows(ctx, t.before, t.was, ids); err != nil {
			return err
		}
	}
	for i, v := range is {
		if v.Err == nil {
			v.Err = overfull(t.is, v.Tree)
		}
		d := wire.StateDifference{Key: j17.Key{Type: t.is.ForEach, ID: ids[i]}.String()}
		if at := slices.Index(v.Sources, v.Key); at >= 0 {
			d.Length = v.Versions[at].Length
		}
		t.replay.Aggregates++
		t.count(v)
		switch {
		case j17.CodeOf(v.Err) == j17.CodeAggregateNotFound: // it began after the position
			t.replay.Aggregates--
		case v.Err != nil && ctx.Err() != nil:
			return store.UserError(ctx.Err())
		case v.Err != nil:
			trial.Fail(&t.replay, d, reason(v.Err))
		case was != nil && was[i].Err == nil:
			trial.Compare(&t.replay, d, was[i].Tree, v.Tree)
		}
	}
	return nil
}

// reason returns the message for a row that could not be computed.
func reason(err error) string {
	if e, ok := errors.AsType[*j17.Error](err); ok {
		return e.Message
	}
	return "The row could not be made."
}

// rows computes rows, all of them again. If they are too much work together, they are computed one by one.
func (t *dryRun) rows(ctx context.Context, r *reading, d *definition, ids []string) ([]*Value, error) {
	values, b := make([]*Value, len(ids)), work.New(ctx, maxWork)
	err := t.s.values.each(ctx, r, d, b, ids, d.Stages, func(e *evaluation, i int, of *row) { values[i] = e.value(of) })
	switch {
	case crowded(b, len(ids)):
		for i := range ids {
			one, err := t.rows(ctx, r, d, ids[i:i+1])
			if err != nil {
				return nil, err
			}
			values[i] = one[0]
		}
		return values, nil
	case j17.CodeOf(err) == j17.CodeWorkLimit:
		return []*Value{{Err: err}}, nil
	case err != nil:
		return nil, err
	}
	return values, nil
}

// count counts the sources of a row.
func (t *dryRun) count(v *Value) {
	for i, key := range v.Sources {
		t.read++
		if v.Versions[i].Length > 0 && key != v.Key {
			t.of[key]++
		}
	}
}

// widest finds the aggregate that the most rows are made from.
func (t *dryRun) widest() {
	var widest wire.Fanout
	for _, of := range []map[j17.Key]uint64{t.indexed, t.of} {
		for key, rows := range of {
			if name := key.String(); rows > widest.Rows ||
				rows == widest.Rows && strings.Compare(name, widest.Key) < 0 {
				widest = wire.Fanout{Key: name, Rows: rows}
			}
		}
	}
	if widest.Rows > 0 {
		t.price.Widest = &widest
	}
}
