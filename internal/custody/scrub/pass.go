package scrub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"j17"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// step looks at the next part of a pass. An error is none of what is looked at: the same part is looked at again.
func (s *Service) step(ctx context.Context) (err error) {
	if s.state.Phase == events || s.state.Phase == items {
		if err := s.enter(ctx); err != nil {
			return err
		}
	}
	switch s.state.Phase {
	case tables:
		err = s.stepTables(ctx)
	case events:
		err = s.stepEvents(ctx)
	case items:
		err = s.stepItems(ctx)
	default: // another version's
		s.change(func(st *state) { st.Phase = idle })
	}
	if errors.Is(err, store.ErrEnded) {
		return nil // by an erasure: it goes on with the present content
	}
	return err
}

// enter sees to it that what was looked at of an environment belongs to the one that there is now.
func (s *Service) enter(ctx context.Context) error {
	extent, err := s.Store.Extent(ctx, s.state.Tenant)
	if err != nil || extent.Life == s.state.Life {
		return err
	}
	s.tile, s.hopeless = tile{}, false
	s.change(func(st *state) { st.anew(st.Tenant, extent.Life) })
	return nil
}

// again begins with an environment.
func (st *state) anew(t j17.Tenant, life uint64) {
	st.Phase, st.Tenant, st.Life, st.Position, st.Index, st.Item, st.Stream = events, t, life, "", 0, store.ItemName{},
		nil
	st.End, st.Total = "", 0
}

// replaced reports whether the environment that is looked at is no longer there, or another one has its name.
func (s *Service) replaced(ctx context.Context) bool {
	extent, err := s.Store.Extent(ctx, s.state.Tenant)
	return err == nil && extent.Life != s.state.Life
}

// stepTables compares some files with their checksums.
func (s *Service) stepTables(ctx context.Context) error {
	done, err := s.Store.CheckTables(ctx, s.state.Table, roundBytes)
	if err != nil {
		return err
	}
	s.looked = done.Bytes
	for _, damaged := range done.Damaged {
		s.found(ctx, "table", damaged.Where, damaged)
	}
	s.change(func(st *state) {
		st.Pass.Tables += uint64(done.Tables)
		st.Pass.Bytes += uint64(done.Bytes)
		if st.Table = done.Last; !done.More {
			st.Table = ""
		}
	})
	if done.More {
		return nil
	}
	return s.nextTenant(ctx, "")
}

// nextTenant goes on to the environment behind one, or ends the pass.
func (s *Service) nextTenant(ctx context.Context, after j17.Tenant) error {
	all, err := s.Store.Tenants(ctx)
	if err != nil {
		return err
	}
	s.tile, s.hopeless = tile{}, false
	i, found := slices.BinarySearch(all, after)
	if found {
		i++
	}
	var extent store.Extent
	if i < len(all) {
		if extent, err = s.Store.Extent(ctx, all[i]); err != nil {
			return err
		}
	}
	s.change(func(st *state) {
		if i < len(all) {
			st.anew(all[i], extent.Life)
			return
		}
		st.anew("", 0)
		st.Phase = idle
		st.Pass.EndedAt = s.Clock.Now().UTC()
		ended := st.Pass
		st.Last, st.Before, st.Next = &ended, nil, s.Clock.Now().Add(passPause)
	})
	return nil
}

// stepItems looks at some side items.
func (s *Service) stepItems(ctx context.Context) error {
	t := s.state.Tenant
	a, err := s.Store.Archive(ctx, t)
	if err != nil {
		return err
	}
	defer a.Close()

	// Items until a round is full.
	left, last, n := int64(roundBytes), s.state.Item, uint64(0)
	var void []store.Side
	for it, err := range a.Items(ctx, last) {
		if err != nil {
			if !isDamage(err) {
				return err
			}
			s.found(ctx, "item", "an item of "+string(t), err)
			return s.nextTenant(ctx, t)
		}
		last = store.ItemName{Space: it.Space, Key: it.Key}
		n++
		space := s.spaces[it.Space]
		if len(it.Value) == 0 && space.Void {
			void = append(void, store.Side{
				Op: store.Delete, Space: it.Space, Key: it.Key, Cond: store.IfRev, Rev: it.Rev,
			})
		}
		if check := space.Check; check != nil {
			bad := check(it.Key, it.Value)
			if bad != nil && s.ofLog(it.Space) {
				if bad, err = s.mend(ctx, t, last, check); err != nil {
					return err
				}
			}
			if bad != nil {
				s.found(ctx, "item", fmt.Sprintf("the side item %s/%s", it.Space, it.Key), bad)
			}
		}
		if left -= int64(len(it.Value) + len(it.Key) + len(it.Space)); left <= 0 {
			break
		}
	}

	// How far that was.
	if err := s.removeVoid(ctx, t, void); err != nil {
		return err
	}
	s.change(func(st *state) {
		st.Item = last
		st.Pass.Items += n
		st.Pass.Bytes += uint64(roundBytes - left)
	})
	if left > 0 {
		return s.nextTenant(ctx, t)
	}
	return nil
}

// voidAtOnce is how many items are removed in one write.
const voidAtOnce = 500

// removeVoid removes items that say what no item says. Where somebody has written to one meanwhile, those beside it are
// left to the next pass.
func (s *Service) removeVoid(ctx context.Context, t j17.Tenant, void []store.Side) error {
	for some := range slices.Chunk(void, voidAtOnce) {
		err := s.Store.WriteFreeing(ctx, t, some)
		if _, overtaken := errors.AsType[*store.SideConflict](err); err != nil && !overtaken {
			return err
		}
	}
	return nil
}

// stepEvents looks at some events of the feed, and at the streams that begin with them.
func (s *Service) stepEvents(ctx context.Context) error {
	t := s.state.Tenant
	left := int64(roundBytes)
	if s.state.Stream != nil {
		if err := s.stepStream(ctx, &left); err != nil || s.state.Stream != nil {
			return err
		}
	}
	end, err := s.end(ctx)
	if err != nil {
		return err
	}
	a, err := s.Store.Archive(ctx, t)
	if err != nil {
		return err
	}
	defer a.Close()
	after := s.position()
	ended := true
	for e, err := range a.Changes(ctx, after) {
		if err != nil {
			if !isDamage(err) {
				return err
			}
			// What follows cannot be read in the order of the feed.
			s.found(ctx, "event", "the feed of "+string(t)+" after "+after.String(), err)
			return s.itemsNext()
		}
		if e.Event == nil {
			continue
		}
		if e.Event.StreamID.Compare(end) > 0 {
			break
		}
		if err := s.event(ctx, &e); err != nil {
			return err
		}
		after = e.Event.StreamID
		left -= int64(len(e.Event.Raw)) + eventCost
		size := uint64(len(e.Event.Raw))
		s.change(func(st *state) {
			st.Position, st.Index = after.String(), st.Index+1
			st.Pass.Events++
			st.Pass.Bytes += size
		})

		// The stream that begins here comes first.
		if e.Event.Version == 1 {
			s.change(func(st *state) { st.Stream = &stream{Key: e.Event.Key} })
			if err := s.stepStream(ctx, &left); err != nil {
				return err
			}
		}
		if left <= 0 || s.state.Stream != nil {
			ended = false
			break
		}
	}
	if !ended {
		return nil
	}
	return s.endEvents(ctx)
}

// end returns where the events end that are looked at.
func (s *Service) end(ctx context.Context) (j17.StreamID, error) {
	if s.state.End == "" {
		extent, err := s.Store.Extent(ctx, s.state.Tenant)
		if err != nil {
			return j17.StreamID{}, err
		}
		s.change(func(st *state) { st.End, st.Total = extent.Last.String(), extent.Events })
	}
	at, _ := j17.ParseStreamID(s.state.End) // it was written by String
	return at, nil
}

// endEvents compares how many events there were with how many were found, unless the environment was removed meanwhile.
func (s *Service) endEvents(ctx context.Context) error {
	all, err := s.Store.Tenants(ctx)
	if err != nil {
		return err
	}
	if t := s.state.Tenant; s.state.Total != s.state.Index && slices.Contains(all, t) {
		s.found(
			ctx, "index", "the feed of "+string(t),
			fmt.Errorf("it has %d events, and %d are stored", s.state.Index, s.state.Total),
		)
	}
	return s.itemsNext()
}

// itemsNext goes on with the side items of the same environment.
func (s *Service) itemsNext() error {
	s.tile = tile{}
	s.change(func(st *state) { st.Phase, st.Position, st.Index, st.Stream = items, "", 0, nil })
	return nil
}

// position is that of the last event that was looked at.
func (s *Service) position() j17.StreamID {
	at, _ := j17.ParseStreamID(s.state.Position) // it was written by position's String
	return at
}

// event compares an event with its own bytes, with the index of tags and with the log.
func (s *Service) event(ctx context.Context, e *store.Archived) error {
	ev := e.Event
	where := "the event " + ev.StreamID.String() + " of " + ev.Key.String()
	read, err := j17.ParseEvent(ev.Raw)
	switch {
	case err != nil:
		s.found(ctx, "event", where, err)
		return nil
	case read.StreamID != ev.StreamID || read.Key != ev.Key || read.Type != ev.Type || read.Timestamp != ev.Timestamp:
		s.found(ctx, "event", where, errors.New("its bytes say that it is another one"))
		return nil
	}
	if !ev.Erased() {
		for _, tag := range append(j17.MetadataTags(ev.Metadata), e.Tags...) {
			if err := s.tag(ctx, ev.StreamID, tag, where); err != nil {
				return err
			}
		}
	}
	return s.leaf(ctx, ev, where)
}

// tag looks for an event under one of its tags.
func (s *Service) tag(ctx context.Context, at j17.StreamID, tag, where string) error {
	for ev, err := range s.Store.ReadTagged(
		ctx, s.state.Tenant, store.Tagged{Tags: []string{tag}}, before(at), 1, nil,
	) {
		switch {
		case errors.Is(err, store.ErrIndexing):
			return nil
		case err != nil && isDamage(err):
			s.found(ctx, "index", where+" under its tags", err)
			return nil
		case err != nil:
			return err
		case ev.StreamID == at:
			return nil
		}
	}
	gone, err := s.lost(ctx, at, tag)
	if err == nil && !gone {
		s.found(ctx, "index", where, errors.New("it is not found by one of its tags"))
	}
	return err
}

// lost reports whether an event has lost a tag since it was read: it was erased, or the spec gives it others.
func (s *Service) lost(ctx context.Context, at j17.StreamID, tag string) (bool, error) {
	for e, err := range s.Store.ReadChanges(ctx, s.state.Tenant, before(at), 1) {
		if err != nil || e.Event == nil || e.Event.StreamID != at {
			return false, err
		}
		return e.Event.Erased() || !slices.Contains(append(j17.MetadataTags(e.Event.Metadata), e.Tags...), tag), nil
	}
	return false, nil
}

// before is the position in front of another one.
func before(at j17.StreamID) j17.StreamID {
	if at.Seq > 0 {
		return j17.StreamID{Ms: at.Ms, Seq: at.Seq - 1}
	}
	return j17.StreamID{Ms: at.Ms - 1, Seq: math.MaxUint32}
}

// ofLog reports whether the items of a space follow from events, as tiles of a log.
func (s *Service) ofLog(space store.Space) bool {
	return s.spaces[space].Derived &&
		slices.ContainsFunc(s.Log.Part().Spaces, func(of part.Space) bool { return of.Space == space })
}

// mend has the log of an environment rebuilt if one of its items is bad, and returns what is wrong with the item then.
// What counts is what is stored now: an item of before may have been mended together with another one.
func (s *Service) mend(
	ctx context.Context, t j17.Tenant, name store.ItemName, check func(key string, value []byte) error,
) (bad, err error) {
	now := func() (bad, err error) {
		item, err := s.Store.Get(ctx, t, name.Space, name.Key)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil, nil
		case err != nil && isDamage(err):
			return err, nil
		case err != nil:
			return nil, err
		}
		return check(name.Key, item.Value), nil
	}
	if bad, err = now(); bad == nil || err != nil {
		return nil, err
	}
	if !s.repaired(ctx, t) {
		return bad, ctx.Err()
	}
	return now()
}

// repaired has the log of an environment rebuilt where it is damaged, and reports whether that could be done: the
// caller that has met damage then looks again. That reads all of the log, so there is no other attempt in the same pass
// once one has failed or has mended nothing.
func (s *Service) repaired(ctx context.Context, t j17.Tenant) bool {
	if s.hopeless {
		return false
	}
	n, err := s.Log.Repair(ctx, t)
	s.hopeless = ctx.Err() == nil && (err != nil || n == 0)
	if n > 0 {
		s.Logger.LogAttrs(ctx, slog.LevelWarn, "damaged parts of the log of an environment were rebuilt from its events", slog.String("tenant", string(t)), slog.Int("items", n))
	}
	return err == nil // the caller that has met the damage reports it
}

// tile is the tile of the log that the event which is looked at is in.
type tile struct {
	loaded bool
	n      uint64
	leaves [][32]byte
	stored bool
	// off reports that an event was not the one that the log has: those behind it are probably not in their places
	// either.
	off bool
}

// leaf compares an event with its leaf in the log of its environment, if that is stored: the first of each tile with a
// proof that the tile is one of the tree.
func (s *Service) leaf(ctx context.Context, ev *j17.Event, where string) error {
	if s.state.Tenant == j17.System || s.tile.off {
		return nil
	}
	n, i := s.state.Index/width, s.state.Index%width
	if !s.tile.loaded || s.tile.n != n {
		err := s.load(ctx, n)
		if isDamage(err) && s.repaired(ctx, s.state.Tenant) {
			err = s.load(ctx, n)
		}
		if err != nil {
			s.tile.stored = false
			if !isDamage(err) {
				return err
			}
			s.found(ctx, "log", "the log of "+string(s.state.Tenant), err)
		}
	}
	if s.tile.stored && s.tile.leaves[i] != ev.Leaf() {
		s.found(ctx, "event", where, errors.New("it is not the one that the log of the environment has in its place"))
		s.tile.off = true
	}
	return nil
}

// load reads tile number n of the log, and proves that it is one of the tree.
func (s *Service) load(ctx context.Context, n uint64) (err error) {
	s.tile = tile{loaded: true, n: n}
	s.tile.leaves, s.tile.stored, err = s.Log.Tile(ctx, s.state.Tenant, n)
	if err == nil && s.tile.stored {
		_, err = s.Log.Include(ctx, s.state.Tenant, n*width, nil)
	}
	return err
}
