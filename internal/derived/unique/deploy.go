package unique

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/derived/build"
	"j17/internal/lang/diag"
	"j17/internal/storage/store"
)

// The keys of fillings: of a deployment that is under way, and of a prepared spec.
const (
	deployment = "deployment"
	prepared   = "prepared"
)

// emptying is the kind of builds that remove the contents of a generation that is no longer needed. A build is named
// after its generation.
const emptying = "unique-removal"

// wanted has what must change for a spec: the generations that are missing, and those that are no longer needed.
type wanted struct {
	missing, left []*generation
}

// wants compares the sets of a spec with the generations that are in force.
func (s *Service) wants(ctx context.Context, t j17.Tenant, d *decider.Decider) (*wanted, error) {
	w := &wanted{}
	var err error
	if w.left, err = s.present(ctx, t); err != nil {
		return nil, err
	}
	for name, typ := range d.Types {
		for _, set := range typ.Unique {
			if i := slices.IndexFunc(w.left, func(g *generation) bool { return g.of(name, set) }); i >= 0 {
				w.left = slices.Delete(w.left, i, i+1)
				continue
			}
			w.missing = append(w.missing, newGeneration(name, set))
		}
	}
	slices.SortFunc(w.missing, func(a, b *generation) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name))
	})
	return w, nil
}

// sides returns the writes that take the generations no longer needed out of force, and begin their removal.
func (w *wanted) sides(s *Service, t j17.Tenant) (all []store.Side) {
	for _, g := range w.left {
		all = append(all, store.Side{Op: store.Delete, Space: sets, Key: g.ID, Cond: store.IfRev, Rev: g.rev})
		all = append(all, s.empties(t, g)...)
	}
	return all
}

// empties returns the writes that begin to remove the contents of a generation.
func (s *Service) empties(t j17.Tenant, g *generation) []store.Side {
	return s.Builds.Start(emptying, &build.Job{Tenant: t, Name: g.ID, Types: []string{g.Type}})
}

// empty removes what one page of aggregates has in a generation that is no longer needed.
func (s *Service) empty(ctx context.Context, p *build.Page) ([]store.Side, error) {
	g := generation{ID: p.Name}
	var all []store.Side
	for _, id := range p.IDs {
		item, err := s.get(ctx, p.Tenant, held, g.heldKey(j17.Key{Type: p.Type, ID: id}))
		if err != nil {
			return nil, err
		}
		if item.Rev == 0 {
			continue
		}
		sides, err := g.removal(&item)
		if err != nil {
			return nil, err
		}
		all = append(all, sides...)
	}
	return all, nil
}

// removal returns the writes that remove what an aggregate has in the generation, given its item of held.
func (g *generation) removal(item *store.Item) ([]store.Side, error) {
	sides := []store.Side{{Op: store.Delete, Space: held, Key: item.Key}}
	h, err := readHolding(item)
	switch {
	case err != nil || h == nil:
		return sides, err
	case h.waits != (j17.StreamID{}):
		return append(sides, store.Side{
			Op: store.Delete, Space: waiting, Key: g.linePrefix(h.digest) + store.StampedKey(h.waits, ""),
		}), nil
	}
	return append(sides, store.Side{Op: store.Delete, Space: values, Key: g.valueKey(h.digest)}), nil
}

// discard returns the writes that give up a filling.
func (s *Service) discard(t j17.Tenant, key string, rev uint64, generations []*generation) []store.Side {
	s.deciders.Delete(generations[0].ID)
	sides := []store.Side{{Op: store.Delete, Space: fillings, Key: key, Cond: store.IfRev, Rev: rev}}
	for _, g := range generations {
		sides = append(sides, s.empties(t, g)...)
	}
	return sides
}

// Deploy calls commit, which is to store a spec as that of a tenant, with what Fill has made.
func (s *Service) Deploy(
	ctx context.Context, t j17.Tenant, after *decider.Decider,
	commit func(sides []store.Side, found []diag.Diagnostic) error,
) error {
	f, err := s.Fill(ctx, t, after, part.Asked{})
	if err != nil {
		return err
	}
	return store.UserError(part.Fill(
		ctx, []*part.Filling{f}, func(do func() error) error { return s.Engine.Hold(t, do) },
		func(filled *part.Filled) error { return commit(filled.Sides, filled.Found) },
	))
}

// Fill begins to fill the sets that a spec has and the tenant lacks: most of history is processed while others write,
// with as much of the new events as is worthwhile, and the rest while the engine is held. What it has found are the
// conflicts in history: if there are any and the spec is stored, the first aggregate holds each value. A failed
// deployment leaves nothing behind.
func (s *Service) Fill(
	ctx context.Context, t j17.Tenant, after *decider.Decider, _ part.Asked,
) (*part.Filling, error) {
	w, err := s.wants(ctx, t, after)
	if err != nil {
		return nil, store.UserError(err)
	}
	if len(w.missing) == 0 {
		return &part.Filling{
			Follow: func(context.Context) error { return nil },
			Finish: func(context.Context) (part.Filled, error) { return part.Filled{Sides: w.sides(s, t)}, nil },
			End:    func(context.Context, error) {},
		}, nil
	}
	f, err := s.begin(ctx, t, after, deployment, w.missing)
	if err != nil {
		return nil, store.UserError(err)
	}
	return &part.Filling{
		Hold: true,
		Follow: func(ctx context.Context) error {
			_, err := f.follow(ctx)
			return store.UserError(err)
		},
		Finish: func(ctx context.Context) (part.Filled, error) {
			sides, found, err := f.finish(ctx)
			return part.Filled{Sides: append(w.sides(s, t), sides...), Found: found}, store.UserError(err)
		},
		End: func(ctx context.Context, err error) {
			switch {
			case err == nil:
				s.deciders.Delete(f.generations[0].ID)
			case !overtaken(err):
				s.giveUp(ctx, f)
			}
		},
	}, nil
}

// overtaken reports whether a write failed because others changed what it rests on; the caller tries again.
func overtaken(err error) bool {
	_, ok := errors.AsType[*store.SideConflict](err)
	return ok
}

// giveUp removes what a failed deployment has filled.
func (s *Service) giveUp(ctx context.Context, f *filling) {
	if f.rev == 0 {
		return
	}
	err := s.Store.Write(context.WithoutCancel(ctx), f.t, s.discard(f.t, f.key, f.rev, f.generations))
	if err != nil && !overtaken(err) {
		s.Logger.LogAttrs(ctx, slog.LevelWarn, "what a deployment has left of unique sets is removed by the next one", slog.String("tenant", string(f.t)), slog.Any("error", err))
	}
}

// followPages bounds the pages read beyond the initial end of the feed, so that fast writers are held up eventually.
const followPages = 20

// follow processes pages until it reaches the end of the feed or the bound, and returns the number of events there were
// at first.
func (f *filling) follow(ctx context.Context) (total uint64, err error) {
	extent, err := f.s.Store.Extent(ctx, f.t)
	if err != nil {
		return 0, err
	}
	for late := 0; late < followPages; {
		if f.at.Compare(extent.Last) >= 0 {
			late++
		}
		if ended, err := f.page(ctx); err != nil || ended {
			return extent.Events, err
		}
	}
	return extent.Events, nil
}

// finish goes to the end of the feed, and returns the writes that put the generations into force, with the conflicts
// found.
func (f *filling) finish(ctx context.Context) (sides []store.Side, found []diag.Diagnostic, err error) {
	for ended := false; !ended; {
		if ended, err = f.page(ctx); err != nil {
			return nil, nil, err
		}
	}
	all, err := f.conflicts(ctx)
	if err != nil {
		return nil, nil, err
	}
	if f.rev != 0 {
		sides = append(sides, store.Side{Op: store.Delete, Space: fillings, Key: f.key, Cond: store.IfRev, Rev: f.rev})
	}
	for _, g := range f.generations {
		sides = append(sides, g.put())
	}
	if len(all) > 0 { // nobody waits any longer
		ranges := make([]build.Range, len(f.generations))
		for i, g := range f.generations {
			ranges[i] = build.Range{Space: waiting, Keys: store.Prefix(g.ID + "/")}
		}
		sides = append(sides, f.s.Builds.Remove("unique/"+f.generations[0].ID, ranges...))
	}
	return sides, f.told(all), nil
}

// told describes conflicts as diagnostics.
func (f *filling) told(all []conflict) []diag.Diagnostic {
	var found []diag.Diagnostic
	for _, c := range all {
		d := diag.Diagnostic{
			Severity: diag.Error, Pointer: c.place(),
			Message: fmt.Sprintf("two aggregates have the same value of the unique set '%s': %s and %s", c.Name, c.holder, c.other),
			Hint:    fmt.Sprintf("give one of them another value first; with \"force\": true %s has it, which was the first", c.holder),
		}
		d.Line, d.Column = f.d.Position(d.Pointer)
		found = append(found, d)
	}
	if len(all) == maxConflicts {
		found[len(found)-1].Message += ", and there may be more such pairs"
	}
	return found
}

// place returns where the spec first declares values of the set.
func (g *generation) place() diag.Pointer {
	for _, et := range g.set.Events {
		for _, u := range et.Unique {
			if u.Name == g.Name {
				return u.Pointer
			}
		}
	}
	return ""
}

// readyPages is how many pages one call of Ready processes.
const readyPages = 50

// Ready fills the sets of a prepared spec for a limited number of pages, and returns the progress.
func (s *Service) Ready(ctx context.Context, t j17.Tenant, after *decider.Decider) (p part.Readiness, err error) {
	w, err := s.wants(ctx, t, after)
	if err != nil || len(w.missing) == 0 {
		return part.Readiness{Done: true}, store.UserError(err)
	}
	f, err := s.begin(ctx, t, after, prepared, w.missing)
	if err != nil {
		return p, store.UserError(err)
	}
	for n := 0; n < readyPages && !p.Done && err == nil; n++ {
		p.Done, err = f.page(ctx)
	}
	if overtaken(err) {
		p.Done, err = false, nil // another process fills it
	}
	if err != nil {
		return p, store.UserError(err)
	}
	extent, err := s.Store.Extent(ctx, t)
	p.Built, p.Total = f.done, max(extent.Events, f.done)
	return p, store.UserError(err)
}

// Unready gives up what was filled for a spec that is no longer prepared, unless another one is by now.
func (s *Service) Unready(ctx context.Context, t j17.Tenant, other bool) error {
	if other {
		return nil
	}
	return s.remove(ctx, t, prepared)
}

// remove gives up a filling, if there is one.
func (s *Service) remove(ctx context.Context, t j17.Tenant, key string) error {
	item, err := s.get(ctx, t, fillings, key)
	if err != nil || item.Rev == 0 {
		return store.UserError(err)
	}
	began, err := readFilling(&item)
	if err == nil {
		err = s.Store.Write(ctx, t, s.discard(t, key, item.Rev, began.Generations))
	}
	if overtaken(err) {
		return nil // somebody else has taken it over
	}
	return store.UserError(err)
}

// maxTried is the number of changed items at which a trial stops, which bounds its memory. maxLooked is how many feed
// elements it looks at, as many as a dry run replays.
const (
	maxTried  = 500_000
	maxLooked = 500_000
)

// Try reports the conflicts that a deployment of a spec would find, and changes nothing. The result is partial if
// history is too long.
func (s *Service) Try(ctx context.Context, t j17.Tenant, after *decider.Decider, _ part.Asked) (trial part.Trial,
	err error,
) {
	w, err := s.wants(ctx, t, after)
	if err != nil || len(w.missing) == 0 {
		return trial, store.UserError(err)
	}
	f := &filling{s: s, t: t, d: after, generations: w.missing}
	f.know()
	whole := false
	for !whole && f.items < maxTried && f.done < s.maxLooked {
		if whole, err = f.page(ctx); err != nil {
			return trial, store.UserError(err)
		}
	}
	all, err := f.conflicts(ctx)
	return part.Trial{Found: f.told(all), Partial: !whole}, store.UserError(err)
}
