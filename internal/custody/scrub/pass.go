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

// step checks the next part of a pass. Damage is not an error of it: after an error the same part is checked again.
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
	default: // a phase of another version
		s.change(func(st *state) { st.Phase = idle })
	}
	if errors.Is(err, store.ErrEnded) {
		return nil // by an erasure: continue with the current content
	}
	return err
}

// enter makes sure that the progress in an environment belongs to the one that exists now.
func (s *Service) enter(ctx context.Context) error {
	extent, err := s.Store.Extent(ctx, s.state.Tenant)
	if err != nil || extent.Life == s.state.Life {
		return err
	}
	s.tile, s.hopeless = tile{}, false
	s.change(func(st *state) { st.anew(st.Tenant, extent.Life) })
	return nil
}

// anew starts the check of an environment from its beginning.
func (st *state) anew(t j17.Tenant, life uint64) {
	st.Phase, st.Tenant, st.Life, st.Position, st.Index, st.Item, st.Stream = events, t, life, "", 0, store.ItemName{},
		nil
	st.End, st.Total = "", 0
}

// replaced reports whether the environment being checked is gone, or another one has its name.
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

// nextTenant continues with the next environment after one, or ends the pass.
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

// stepItems checks some side items.
func (s *Service) stepItems(ctx context.Context) error {
	t := s.state.Tenant
	a, err := s.Store.Archive(ctx, t)
	if err != nil {
		return err
	}
	defer a.Close()

	// Items until the round is full.
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

	// The progress.
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

// removeVoid removes items whose value means the same as no item. If one of them was written meanwhile, those in the
// same write are left to the next pass.
func (s *Service) removeVoid(ctx context.Context, t j17.Tenant, void []store.Side) error {
	for some := range slices.Chunk(void, voidAtOnce) {
		err := s.Store.WriteFreeing(ctx, t, some)
		if _, overtaken := errors.AsType[*store.SideConflict](err); err != nil && !overtaken {
			return err
		}
	}
	return nil
}

// stepEvents checks some events of the feed, and the streams that begin with them.
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
			// The rest cannot be read in the order of the feed.
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

		// The stream that begins here is checked first.
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

// end returns the position up to which events are checked.
func (s *Service) end(ctx context.Context) (j17.StreamID, error) {
	if s.state.End == "" {
		extent, err := s.Store.Extent(ctx, s.state.Tenant)
		if err != nil {
			return j17.StreamID{}, err
		}
		s.change(func(st *state) { st.End, st.Total = extent.Last.String(), extent.Events })
	}
	at, _ := j17.ParseStreamID(s.state.End) // written by String
	return at, nil
}

// endEvents compares the number of events with how many were found, unless the environment was removed meanwhile.
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

// itemsNext continues with the side items of the same environment.
func (s *Service) itemsNext() error {
	s.tile = tile{}
	s.change(func(st *state) { st.Phase, st.Position, st.Index, st.Stream = items, "", 0, nil })
	return nil
}

// position is that of the last event that was checked.
func (s *Service) position() j17.StreamID {
	at, _ := j17.ParseStreamID(s.state.Position) // written by position's String
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

// tag looks up an event under one of its tags.
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

// before is the position before another one.
func before(at j17.StreamID) j17.StreamID {
	if at.Seq > 0 {
		return j17.StreamID{Ms: at.Ms, Seq: at.Seq - 1}
	}
	return j17.StreamID{Ms: at.Ms - 1, Seq: math.MaxUint32}
}

// ofLog reports whether a space belongs to the log and its items follow from events, such as tiles.
func (s *Service) ofLog(space store.Space) bool {
	return s.spaces[space].Derived &&
		slices.ContainsFunc(s.Log.Part().Spaces, func(of part.Space) bool { return of.Space == space })
}

// mend rebuilds the log of an environment if one of its items is bad, and returns what is then still wrong with the
// item. It reads the item again, since it may have been repaired together with another one.
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

// repaired rebuilds the log of an environment where it is damaged, and reports whether that succeeded: the caller that
// has found damage then checks again. A repair reads the whole log, so there is no other one in the same pass after one
// has failed or repaired nothing.
func (s *Service) repaired(ctx context.Context, t j17.Tenant) bool {
	if s.hopeless {
		return false
	}
	n, err := s.Log.Repair(ctx, t)
	s.hopeless = ctx.Err() == nil && (err != nil || n == 0)
	if n > 0 {
		s.Logger.LogAttrs(ctx, slog.LevelWarn, "damaged parts of the log of an environment were rebuilt from its events", slog.String("tenant", string(t)), slog.Int("items", n))
	}
	return err == nil // the caller reports the damage that it has found
}

// tile is the tile of the log that has the current event.
type tile struct {
	loaded bool
	n      uint64
	leaves [][32]byte
	stored bool
	// off reports that an event did not match the log: later ones are probably displaced too.
	off bool
}

// leaf compares an event with its leaf in the log of its environment, if that is stored. For the first event of each
// tile it also checks a proof that the tile is in the tree.
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

// load reads tile number n of the log, and proves that it is in the tree.
func (s *Service) load(ctx context.Context, n uint64) (err error) {
	s.tile = tile{loaded: true, n: n}
	s.tile.leaves, s.tile.stored, err = s.Log.Tile(ctx, s.state.Tenant, n)
	if err == nil && s.tile.stored {
		_, err = s.Log.Include(ctx, s.state.Tenant, n*width, nil)
	}
	return err
}
