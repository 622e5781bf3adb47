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
	// maxReplacing bounds how often a replacement of places is tried while others change the slots.
	maxReplacing = 10
	// replaceEvery is the minimum interval between replacements from the background, so that places that cannot be
	// rebuilt are not begun over and over.
	replaceEvery = time.Minute
)

// errMoved reports that the places of an environment were begun again since a query began.
var errMoved = errors.New("place: the slots have changed")

// guarded yields what a query finds in a moment. If the slots are not those of the moment, or something in them cannot
// be read, the error is one of CodeIndexNotReady instead of an incomplete answer, and damaged places are rebuilt.
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

// current returns errMoved if a slot differs in the moment: another process may have begun it again.
func (k *Kinds) current(m store.Moment) error {
	for _, sl := range k.slots {
		item, err := m.Get(slots, sl.name())
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if !bytes.Equal(item.Value, sl.stored) {
			k.s.known.Forget(k.tenant)
			return errMoved
		}
	}
	return nil
}

// unready begins the slots again if an error is damage, and returns the error for the caller.
func (k *Kinds) unready(ctx context.Context, err error) error {
	if errors.Is(err, errMoved) {
		return notReady(k.slots[0].typ, true, build.Status{}).Because(err)
	}
	damage, is := errors.AsType[*store.CorruptionError](err)
	if !is || k.s.replace(ctx, k.tenant, k.slots, damage.Error()) != nil {
		return err // the next query tries again
	}
	return notReady(k.slots[0].typ, true, build.Status{})
}

// notReady returns the error for places that are being read from the events, or rebuilt from them if anew is set.
func notReady(aggregateType string, anew bool, of build.Status) *j17.Error {
	what := "The places of older events of '%s' are being read"
	if anew {
		what = "The places of '%s' were damaged and are being rebuilt from the events"
	}
	total := max(of.Total, of.Done)
	e := j17.Errorf(j17.CodeIndexNotReady, what+": %d of %d aggregates are done. Try again in a moment.", aggregateType, of.Done, total)
	e.Details = build.Progress{Done: of.Done, Total: total}
	return e
}

// replace discards all places of an environment and has them rebuilt, in one commit. After it nobody reads them until
// they are rebuilt, while writers go on. All slots go together: their records are interleaved, and damaged ones have to
// be removed without being read. If one of the given slots has changed, another caller has replaced them already, and
// replace does nothing.
func (s *Service) replace(ctx context.Context, t j17.Tenant, of []*slot, what string) error {
	ctx = context.WithoutCancel(ctx)
	for try := 1; ; try++ {
		k, fences, err := s.fenced(ctx, t)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(of, func(sl *slot) bool { return !k.has(sl) }) {
			return nil
		}

		// Each slot is begun again, with a build of its own.
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
	s.known.Forget(t)
	s.said(ctx, t, what)
	return nil
}

// said records, and logs, that the places of an environment were begun again.
func (s *Service) said(ctx context.Context, t j17.Tenant, what string) {
	s.replaced.Store(t, s.Clock.Now())
	s.counts.rebuilt.Add(1)
	s.Logger.LogAttrs(ctx, slog.LevelError, "the places of an environment differ from its events: they are no longer read, and are rebuilt",
		slog.String("tenant", string(t)), slog.String("what", what))
}

// damagedSlots reports that the slots, or the count of their resets, cannot be read. before is that count.
type damagedSlots struct {
	error

	before resetCount
}

// Unwrap returns the read error.
func (d damagedSlots) Unwrap() error { return d.error }

// resetCount is how often slots were discarded, and the revision of that count. If the count cannot be read, it is
// lost, and continues from the time in milliseconds, which is more than it can have been.
type resetCount struct {
	n, rev uint64
	lost   bool
}

// resetKey is the key of the only item of its space.
const resetKey = "slots"

// countResets returns how often the slots of an environment were discarded.
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

// reset discards all slots, which cannot be read, and all places, since only a slot knows its ID. It reports false if
// another caller has done that.
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
		// The unreadable count is removed as well, since it could not be overwritten. A process that comes in between
		// counts from 0, with slot IDs of its own.
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

// former returns the slots known before the last reset, nil if there was none since.
func (s *Service) former(t j17.Tenant, now *known) *known {
	found, _ := s.latest.Load(t)
	if k, _ := found.(*known); k != nil && k.resets < now.resets {
		return k
	}
	return nil
}

// has reports whether a slot is unchanged.
func (k *known) has(sl *slot) bool {
	return slices.ContainsFunc(
		k.slots[sl.typ], func(one *slot) bool { return one.ID == sl.ID && bytes.Equal(one.stored, sl.stored) },
	)
}

// met has places rebuilt because background work has found damage, unless that was done within replaceEvery. It returns
// the error.
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

// Mend has places rebuilt if an item that a write needs cannot be read: a record, or the count of resets, with which
// all slots are discarded. It reports whether the write may be tried again. It is an engine's Mend.
func (s *Service) Mend(ctx context.Context, t j17.Tenant, damaged store.ItemName) bool {
	var err error
	switch damaged.Space {
	case places:
		var item store.Item
		if item, err = s.Store.Get(ctx, t, places, damaged.Key); err == nil {
			_, err = store.BehindEntries(item.Value)
		}
		if damage, is := errors.AsType[*store.CorruptionError](err); is {
			err = s.replace(ctx, t, nil, damage.Error())
		} else if errors.Is(err, store.ErrNotFound) {
			return true // already mended by another caller
		}
	case resets:
		_, err = s.countResets(ctx, t)
		if damage, is := errors.AsType[damagedSlots](err); is {
			_, err = s.reset(ctx, t, damage)
		}
	default:
		return false
	}
	if err != nil {
		s.Logger.LogAttrs(
			ctx, slog.LevelWarn, "damaged places cannot be rebuilt", slog.String("tenant", string(t)),
			slog.Any("error", store.UserError(err)),
		)
	}
	return err == nil
}
