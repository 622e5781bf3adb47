package place

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"j17"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
)

const (
	// maxReplacing bounds how often it is tried to begin places again because others have changed the slots meanwhile.
	maxReplacing = 10
	// replaceEvery is the least time between two such beginnings that the background asks for: what cannot be made is
	// not begun over and over.
	replaceEvery = time.Minute
)

// errMoved reports that the places of an environment were begun again since a question began.
var errMoved = errors.New("place: the slots have changed")

// guarded yields what a question finds in a moment. Where the slots are not those that the moment shows, or something
// in them cannot be read, nothing is taken for an answer: the error is one of CodeIndexNotReady, and what is damaged is
// rebuilt.
func (k *Kinds) guarded(ctx context.Context, m store.Moment, found iter.Seq2[Found, error]) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		if err := k.current(m); err != nil {
			yield(Found{}, k.unready(ctx, err))
			return
		}
		for f, err := range found {
			if err != nil {
				err = k.unready(ctx, err)
			}
			if !yield(f, err) {
				return
			}
		}
	}
}

// current reports errMoved where a slot is not as the moment shows it: another process may have begun it again.
func (k *Kinds) current(m store.Moment) error {
	for _, sl := range k.slots {
		item, err := m.Get(slots, sl.name())
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if !bytes.Equal(item.Value, sl.stored) {
			k.s.known.Delete(k.tenant)
			return errMoved
		}
	}
	return nil
}

// unready begins the slots again where an error is damage, and says so.
func (k *Kinds) unready(ctx context.Context, err error) error {
	if errors.Is(err, errMoved) {
		return notReady(k.slots[0].typ, true, build.Status{}).Because(err)
	}
	damage, is := errors.AsType[*store.CorruptionError](err)
	if !is || k.s.replace(ctx, k.tenant, k.slots, damage.Error()) != nil {
		return err // in vain: the next query tries again
	}
	return notReady(k.slots[0].typ, true, build.Status{})
}

// notReady is the error of places that are being read from the events, or rebuilt from them.
func notReady(aggregateType string, anew bool, of build.Status) *j17.Error {
	what := "The places of older events of '%s' are being read"
	if anew {
		what = "The places of '%s' were damaged and are being rebuilt from the events"
	}
	total := max(of.Total, of.Done)
	e := j17.Errorf(j17.CodeIndexNotReady, what+": %d of %d aggregates are done. Try again in a moment.", aggregateType, of.Done, total)
	e.Details = progress{of.Done, total}
	return e
}

// replace throws away all places of an environment and has them rebuilt: in one commit, since which nobody reads them
// before that is done, while writers go on. All slots go together: their records are interleaved, and what is damaged
// has to be removed without being read. Nothing is done where one of the given slots is not as it was, since somebody
// has done it already.
func (s *Service) replace(ctx context.Context, t j17.Tenant, of []*slot, what string) error {
	ctx = context.WithoutCancel(ctx)
	for try := 1; ; try++ {
		s.known.Delete(t)
		d, fences, err := s.Engine.Deployed(t)
		if err != nil {
			return err
		}
		k, err := s.of(ctx, t, d, fences)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(of, func(sl *slot) bool { return !k.has(sl) }) {
			return nil
		}

		// Each slot as it was, with a build of its own.
		var sides []store.Side
		for _, list := range k.slots {
			for _, sl := range list {
				anew := &slot{
					ID: sl.ID, Fingerprint: sl.Fingerprint, Built: true, Rebuilt: sl.Rebuilt + 1, Resets: sl.Resets,
					typ: sl.typ, place: sl.place,
				}
				put := anew.put()
				put.Cond, put.Was = store.IfValue, string(sl.stored)
				sides = append(sides, put)
				sides = append(sides, s.Builds.Start(filling, &build.Job{
					Tenant: t, Name: sl.ID, Types: []string{sl.typ},
				})...)
			}
		}
		err = s.Store.Empty(ctx, t, []store.Space{places, cells}, sides, fences...)
		if _, conflict := errors.AsType[*store.SideConflict](err); conflict && try < maxReplacing {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	s.known.Delete(t)
	s.said(ctx, t, what)
	return nil
}

// said notes, and logs, that the places of an environment were begun again.
func (s *Service) said(ctx context.Context, t j17.Tenant, what string) {
	s.replaced.Store(t, s.Clock.Now())
	s.counts.rebuilt.Add(1)
	s.Logger.LogAttrs(ctx, slog.LevelError, "the places of an environment differ from its events: they are no longer read, and are rebuilt",
		slog.String("tenant", string(t)), slog.String("what", what))
}

// damagedSlots is that slots cannot be read, or how often they were thrown away, before that is done once more.
type damagedSlots struct {
	error

	before resetCount
}

// Unwrap returns what could not be read.
func (d damagedSlots) Unwrap() error { return d.error }

// resetCount is how often slots were thrown away, and the revision of that number. It is lost where it cannot be read:
// it goes on from the time in milliseconds then, which is more than it can have been.
type resetCount struct {
	n, rev uint64
	lost   bool
}

// resetKey is the key of the only item of its space.
const resetKey = "slots"

// countResets returns how often the slots of an environment were thrown away.
func (s *Service) countResets(ctx context.Context, t j17.Tenant) (resetCount, error) {
	item, err := s.Store.Get(ctx, t, resets, resetKey)
	if errors.Is(err, store.ErrNotFound) {
		return resetCount{}, nil
	}
	var n uint64
	if err == nil {
		if n, err = strconv.ParseUint(string(item.Value), 10, 64); err != nil {
			err = &store.CorruptionError{Where: "how often slots of places were thrown away", Err: err}
		}
	}
	if _, damaged := errors.AsType[*store.CorruptionError](err); damaged {
		return resetCount{}, damagedSlots{err, resetCount{n: uint64(max(s.Clock.Now().UnixMilli(), 0)), lost: true}}
	}
	return resetCount{n: n, rev: item.Rev}, err
}

// reset throws away all slots, which cannot be read, and all places with them: what a slot is called is known to itself
// alone. It reports false where somebody else has done that.
func (s *Service) reset(ctx context.Context, t j17.Tenant, damage damagedSlots) (done bool, err error) {
	count := store.Side{
		Op: store.Put, Space: resets, Key: resetKey, Value: strconv.AppendUint(nil, damage.before.n+1, 10),
		Cond: store.IfAbsent,
	}
	if damage.before.rev != 0 {
		count.Cond, count.Rev = store.IfRev, damage.before.rev
	}
	ctx = context.WithoutCancel(ctx)
	if damage.before.lost {
		// What is stored of the number goes as well: how else would it be overwritten. A process in between counts from
		// 0, under names of its own.
		if err = s.Store.Empty(ctx, t, []store.Space{slots, places, cells, resets}, nil); err == nil {
			err = s.Store.Write(ctx, t, []store.Side{count})
		}
	} else {
		err = s.Store.Empty(ctx, t, []store.Space{slots, places, cells}, []store.Side{count})
	}
	if _, conflict := errors.AsType[*store.SideConflict](err); conflict {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.said(ctx, t, damage.Error())
	return true, nil
}

// former returns what was known before slots were thrown away since, nil for nothing.
func (s *Service) former(t j17.Tenant, now *known) *known {
	found, _ := s.latest.Load(t)
	if k, _ := found.(*known); k != nil && k.resets < now.resets {
		return k
	}
	return nil
}

// has reports whether a slot is as it was.
func (k *known) has(sl *slot) bool {
	return slices.ContainsFunc(
		k.slots[sl.typ], func(one *slot) bool { return one.ID == sl.ID && bytes.Equal(one.stored, sl.stored) },
	)
}

// met begins places again because the background has met damage of them, unless that was done just now. It returns the
// error.
func (s *Service) met(ctx context.Context, t j17.Tenant, err error) error {
	damage, is := errors.AsType[*store.CorruptionError](err)
	if !is {
		return err
	}
	if last, ok := s.replaced.Load(t); ok {
		if at, _ := last.(time.Time); s.Clock.Now().Sub(at) < replaceEvery {
			return err
		}
	}
	return errors.Join(err, s.replace(ctx, t, nil, damage.Error()))
}

// Mend has places rebuilt where one of them that a write has to know cannot be read. It reports whether the write may
// be tried again. It is an engine's Mend.
func (s *Service) Mend(ctx context.Context, t j17.Tenant, damaged store.ItemName) bool {
	if damaged.Space == resets {
		return s.mendResets(ctx, t)
	}
	if damaged.Space != places {
		return false
	}
	item, err := s.Store.Get(ctx, t, places, damaged.Key)
	if err == nil {
		_, err = store.BehindEntries(item.Value)
	}
	damage, is := errors.AsType[*store.CorruptionError](err)
	if !is {
		return err == nil || errors.Is(err, store.ErrNotFound) // somebody else was faster
	}
	err = s.replace(ctx, t, nil, damage.Error())
	if err != nil {
		s.Logger.LogAttrs(
			ctx, slog.LevelWarn, "damaged places cannot be rebuilt", slog.String("tenant", string(t)),
			slog.Any("error", store.UserError(err)),
		)
	}
	return err == nil
}

// mendResets throws all slots away where it cannot be read how often that was done. It reports whether the write may be
// tried again.
func (s *Service) mendResets(ctx context.Context, t j17.Tenant) bool {
	_, err := s.countResets(ctx, t)
	if damage, is := errors.AsType[damagedSlots](err); is {
		_, err = s.reset(ctx, t, damage)
	}
	if err != nil {
		s.Logger.LogAttrs(
			ctx, slog.LevelWarn, "damaged places cannot be rebuilt", slog.String("tenant", string(t)),
			slog.Any("error", store.UserError(err)),
		)
	}
	return err == nil
}
