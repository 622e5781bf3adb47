package erasure_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/part"
	"j17/internal/custody/erasure"
	"j17/internal/storage/store"
)

// TestCrashes ends the process at each write of an execution, before it or directly after it: another process goes on,
// and in the end everything was done once.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			if !crashAt(t, at, after) {
				if at < 8 {
					t.Errorf("the execution had %d writes: that cannot be", at-1)
				}
				break
			}
		}
	}
}

// crashAt ends a process at a write, and reports whether there was one with that number.
func crashAt(t *testing.T, at int, after bool) bool {
	t.Helper()
	f := newFixture(t)
	for n := range 3 {
		f.write(t, "user/"+alice+"/was_renamed", `{"name":"secret"}`, alice, "")
		f.write(t, fmt.Sprintf("comment/00000000-0000-4000-8000-%012d/was_written", n), `{}`, alice, "")
	}
	made := f.ask(t, alice)
	f.force(t, made.ID)
	crash := &failing{at: at, after: after, err: errCrash}
	f.open(t, func(s store.Store) erasure.Storage {
		crash.Store = s
		return crash
	})
	f.tombs.SetPart(3) // the comments are erased in one commit, the user in the next
	f.settle(t)
	if !crash.ended {
		return false
	}

	// What is shown as erased is.
	for _, a := range f.tombstone(t, made.ID).AffectedStreams {
		key, _ := j17.ParseKey(a.Key)
		all := f.events(t, key.Type, key.ID)
		if root := rootOf(all); !all[0].Erased() || a.EventCount != uint64(len(all)) ||
			a.RootAfter != hex.EncodeToString(root[:]) {
			t.Errorf("write %d, after %v: it shows %+v, whose events are %s", at, after, a, f.types(t, key.Type, key.ID))
		}
	}

	// The next process gives back the claims of the one before it, and goes on.
	next := &failing{written: make(chan struct{}, 1)}
	f.open(t, func(s store.Store) erasure.Storage {
		next.Store = s
		return next
	})
	if _, err := f.Store.ReleaseClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The pause after a failure that the process has noted, which is much less than a lease.
	f.Clock.Advance(time.Minute)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = f.tombs.Run(ctx) })
	for f.tombstone(t, made.ID).Status != "completed" {
		<-next.written
	}
	stop()
	running.Wait()

	// Everything was done, and once.
	done := f.tombstone(t, made.ID)
	if len(done.AffectedStreams) != 4 || *done.PreTombstoneSize != 6 {
		t.Errorf("write %d, after %v: it is %+v", at, after, done)
	}
	for _, a := range done.AffectedStreams {
		key, _ := j17.ParseKey(a.Key)
		heads, err := f.Store.Heads(t.Context(), tenant, []j17.Key{key})
		if err != nil || heads[0].Generation != 1 ||
			strings.ReplaceAll(f.types(t, key.Type, key.ID), " _was_tombstoned", "") != "_was_tombstoned" {
			t.Errorf("write %d, after %v: %s is %+v, %v", at, after, key, heads[0], err)
		}
	}
	if _, err := f.tombs.Certificate(t.Context(), tenant, made.ID); err != nil {
		t.Error(err)
	}
	return true
}

// TestALongStreamGoesOnWhereItWas ends the process at each write of an execution over a stream of several parts, which
// shows how many events are replaced. The next process replaces the others, and no event twice.
func TestALongStreamGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	const events, part = 10, 3
	for at, more := 1, true; more; at++ {
		f := newFixture(t)
		for n := range events {
			f.write(t, "user/"+alice+"/was_renamed", fmt.Sprintf(`{"name":"secret %d"}`, n), alice, "")
		}
		made := f.ask(t, alice)
		f.force(t, made.ID)
		crash := &failing{at: at, err: errCrash}
		f.open(t, func(s store.Store) erasure.Storage {
			crash.Store = s
			return crash
		})
		f.tombs.SetPart(part)
		f.settle(t)
		if more = crash.ended; more {
			erased := uint64(strings.Count(f.types(t, "user", alice), "_was_tombstoned"))
			if p := f.tombstone(t, made.ID).Progress; p.EventsDone != erased || p.Total > 0 && p.EventsTotal != events {
				t.Errorf("write %d: %d events are replaced, and the progress is %+v", at, erased, p)
			}
		}

		// Each part gave the stream another generation.
		f.open(t, nil)
		f.tombs.SetPart(part)
		f.Clock.Advance(later)
		f.settle(t)
		key := j17.Key{Type: "user", ID: alice}
		heads, err := f.Store.Heads(t.Context(), tenant, []j17.Key{key})
		if err != nil || heads[0].Generation != (events+part-1)/part {
			t.Errorf("write %d: the head is %+v, %v", at, heads, err)
		}
		if done := f.tombstone(t, made.ID); done.Status != "completed" ||
			heads[0].Now() != chainOf(f.events(t, "user", alice)) {
			t.Errorf("write %d: it is %+v", at, done)
		}
	}
}

// TestFullDisk lets the disk be full for a while in the middle: nothing of an execution is given up.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "user/"+alice+"/was_created", `{"name":"secret"}`, alice, "")
	made := f.ask(t, alice)
	f.force(t, made.ID)
	full := &failing{at: 4, err: store.ErrFull}
	f.open(t, func(s store.Store) erasure.Storage {
		full.Store = s
		return full
	})
	f.settle(t)
	full.mu.Lock()
	full.ended = false
	full.mu.Unlock()

	// It says what it waits for, and goes on by itself.
	f.Clock.Advance(2 * later)
	f.settle(t)
	f.Clock.Advance(2 * later)
	f.settle(t)
	if got := f.tombstone(t, made.ID); got.Status != "completed" || full.n < full.at {
		t.Errorf("it is %+v after %d writes", got, full.n)
	}
}

// TestRestoring goes on with an erasure in a process that does not know the spec yet: it waits until it does, or those
// that go along would be forgotten.
func TestRestoring(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "user/"+alice+"/was_created", `{}`, alice, "")
	f.write(t, "comment/"+bob+"/was_written", `{}`, alice, "")
	made := f.ask(t, alice)
	f.force(t, made.ID)
	crash := &failing{at: 3, err: errCrash} // after the root, before anything is found
	f.open(t, func(s store.Store) erasure.Storage {
		crash.Store = s
		return crash
	})
	f.settle(t)
	f.restoring = true
	f.open(t, nil)
	f.Undeploy(tenant)
	f.Clock.Advance(10 * later)
	f.settle(t)
	if got := f.tombstone(t, made.ID); got.Status != "executing" || got.Error == nil || got.PreTombstoneRoot == nil {
		t.Errorf("it is %+v", got)
	}
	_, err := f.tombs.Try(t.Context(), tenant, "user", alice, wire.NewTombstone{})
	wantCode(t, err, j17.CodeUnavailable)
	f.restoring = false
	f.DeploySource(t, people)
	f.Clock.Advance(later)
	f.settle(t)
	if got := f.tombstone(t, made.ID); got.Status != "completed" || len(got.AffectedStreams) != 2 {
		t.Errorf("it is %+v", got)
	}
}

// TestFailures looks at a tombstone whose execution fails again and again, and asks for it once more.
func TestFailures(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "user/"+alice+"/was_created", `{}`, alice, "")
	made := f.ask(t, alice)
	f.force(t, made.ID)
	f.holder.fail = fmt.Errorf("a list is being built")
	for range 3 {
		f.settle(t)
		f.Clock.Advance(later)
		f.write(t, "user/"+bob+"/was_created", `{}`, bob, "")
	}
	got := f.tombstone(t, made.ID)
	if got.Status != "executing" || got.Progress == nil || got.Progress.Attempts != 3 ||
		!strings.Contains(*got.Error, "a list is being built") {
		t.Errorf("it is %+v, %+v", got, got.Progress)
	}
	f.settle(t)
	_, err := f.tombs.Cancel(t.Context(), tenant, made.ID)
	wantCode(t, err, j17.CodeConflict)

	// Asked for again, it does not wait for its next turn.
	f.holder.fail = nil
	f.force(t, made.ID)
	f.settle(t)
	if got := f.tombstone(t, made.ID); got.Status != "completed" || got.Error != nil {
		t.Errorf("it is %+v", got)
	}
	if len(f.acts) != 2 {
		t.Errorf("the audit log has %+v", f.acts)
	}

	// Each time the same was told: what is noted twice under two positions is taken for two erasures.
	for _, e := range f.holder.erased {
		if len(f.holder.erased) < 4 || e.Note != f.holder.erased[0].Note {
			t.Errorf("the holder was told of %+v", f.holder.erased)
		}
	}
}

// choosy is a store that cannot write an item beside rewritten events, as if what it replaces were damaged.
type choosy struct {
	store.Store
	refused int
}

func (s *choosy) Rewrite(ctx context.Context, t j17.Tenant, r store.Rewrite) (store.Result, error) {
	if slices.ContainsFunc(r.Side, func(w store.Side) bool { return w.Key == "damaged" }) {
		s.refused++
		return store.Result{}, &store.CorruptionError{Where: "an item", Err: errors.New("its checksum is wrong")}
	}
	return s.Store.Rewrite(ctx, t, r)
}

// TestBeside: what goes with the events of streams goes in the commit that replaces these, and an erasure does not fail
// for it.
func TestBeside(t *testing.T) {
	t.Parallel()
	const seen store.Space = "seen"
	for name, c := range map[string]struct {
		key     string
		err     error
		goes    bool
		refused int
	}{
		"goes":       {key: "k", goes: true},
		"fails":      {key: "k", err: errors.New("it is not known")},
		"is damaged": {key: "damaged", refused: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			st := &choosy{}
			f.beside = func(of []part.Replaced) ([]store.Side, []store.Fence, error) {
				if len(of) != 1 || of[0] != (part.Replaced{Key: j17.Key{Type: "user", ID: alice}, To: 1, Last: true}) {
					t.Errorf("it is about %v", of)
				}
				return []store.Side{{Op: store.Delete, Space: seen, Key: c.key}}, nil, c.err
			}
			f.open(t, func(s store.Store) erasure.Storage {
				st.Store = s
				return st
			})
			f.write(t, "user/"+alice+"/was_created", `{}`, alice, "")
			if err := f.Store.Write(t.Context(), tenant, []store.Side{
				{Op: store.Put, Space: seen, Key: c.key},
			}); err != nil {
				t.Fatal(err)
			}
			made := f.ask(t, alice)
			f.force(t, made.ID)
			f.holder.fail = errors.New("a list is being built")
			f.settle(t)
			if n, err := f.Store.Count(t.Context(), tenant, seen, store.Range{}, 2); err != nil || (n == 0) != c.goes ||
				st.refused != c.refused {
				t.Errorf("%d items are left, %v, and it was refused %d times", n, err, st.refused)
			}
			f.holder.fail = nil
			f.force(t, made.ID)
			f.settle(t)
			if got := f.tombstone(t, made.ID); got.Status != "completed" {
				t.Errorf("it is %+v", got)
			}
		})
	}
}

// overtaken is a store on which somebody writes before each of the first rewrites.
type overtaken struct {
	store.Store
	write func()
	times int
}

func (s *overtaken) Rewrite(ctx context.Context, t j17.Tenant, r store.Rewrite) (store.Result, error) {
	if s.times > 0 {
		s.times--
		s.write()
	}
	return s.Store.Rewrite(ctx, t, r)
}

// TestWriters erases a stream that somebody writes to all the time: what was there when the execution came to it is
// gone, and what is written later stays.
func TestWriters(t *testing.T) {
	t.Parallel()
	for times, want := range map[int]string{
		1: "_was_tombstoned _was_tombstoned",
		3: "_was_tombstoned _was_tombstoned _was_tombstoned _was_tombstoned",
		9: "_was_tombstoned _was_tombstoned _was_tombstoned _was_tombstoned was_renamed",
	} {
		f := newFixture(t)
		f.write(t, "user/"+alice+"/was_renamed", `{"name":"secret"}`, alice, "")
		made := f.ask(t, alice)
		f.force(t, made.ID)
		f.open(t, func(s store.Store) erasure.Storage {
			return &overtaken{
				s, func() { f.write(t, "user/"+alice+"/was_renamed", `{"name":"later"}`, alice, "") }, times,
			}
		})
		f.settle(t)
		if got := f.types(t, "user", alice); got != want {
			t.Errorf("somebody wrote up to %d times: %s, want %s", times, got, want)
		}
		events := strings.Count(want, "_was_tombstoned")
		if got := f.tombstone(t, made.ID); got.Status != "completed" ||
			got.AffectedStreams[0].EventCount != uint64(events) {
			t.Errorf("it is %+v", got)
		}

		// All are told up to where: no further than what was replaced.
		all, told := f.events(t, "user", alice), f.holder.erased[0]
		if end := told.Ends[0]; end.Own != all[events-1].StreamID || end.Others.Compare(told.Note) > 0 {
			t.Errorf("somebody wrote up to %d times: it ends at %+v, the last event was at %s", times, end, all[events-1].StreamID)
		}
	}
}

// counting is a store that counts what is asked of it.
type counting struct {
	store.Store
	rewrites, purges, writes, largest int
}

func (s *counting) Rewrite(ctx context.Context, t j17.Tenant, r store.Rewrite) (store.Result, error) {
	s.rewrites++
	n := 0
	for i := range r.Streams {
		n += len(r.Streams[i].Events)
	}
	s.largest = max(s.largest, n)
	return s.Store.Rewrite(ctx, t, r)
}

func (s *counting) Purge(
	ctx context.Context, t j17.Tenant, keys []j17.Key, spaces []store.Declared, items []store.ItemName,
) (store.Purged, error) {
	s.purges++
	return s.Store.Purge(ctx, t, keys, spaces, items)
}

func (s *counting) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	s.writes++
	return s.Store.Write(ctx, t, side, fences...)
}

// TestBesideIsDecidedAnew: where what goes with the events was decided by something that others have changed since, it
// is asked for again, and given up where that goes on and on. From the fourth time on others may write to the stream
// meanwhile, which is told. The execution stays this process's.
func TestBesideIsDecidedAnew(t *testing.T) {
	t.Parallel()
	const seen store.Space = "seen"
	for name, c := range map[string]struct{ changes, asked int }{"once": {1, 2}, "on and on": {100, 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			asked := 0
			f.beside = func(of []part.Replaced) ([]store.Side, []store.Fence, error) {
				item, err := f.Store.Get(t.Context(), tenant, seen, "count")
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					return nil, nil, err
				}
				if asked++; of[0].Last != (asked <= 3) {
					t.Errorf("asked for the %d. time, all of the stream is replaced: %v", asked, of[0].Last)
				}
				if asked <= c.changes {
					if err := f.Store.Write(t.Context(), tenant, []store.Side{
						{Op: store.Put, Space: seen, Key: "count"},
					}); err != nil {
						return nil, nil, err
					}
				}
				return []store.Side{{Op: store.Put, Space: seen, Key: "gone"}},
					[]store.Fence{{Space: seen, Key: "count", Rev: item.Rev}}, nil
			}
			f.open(t, nil)
			f.write(t, "user/"+alice+"/was_created", `{}`, alice, "")
			if got := f.erase(t); got.Status != "completed" || asked != c.asked {
				t.Errorf("it is %+v, and was asked for %d times", got, asked)
			}
			if _, err := f.Store.Get(
				t.Context(), tenant, seen, "gone",
			); errors.Is(err, store.ErrNotFound) != (c.changes > c.asked) {
				t.Errorf("what goes with the events: %v", err)
			}
		})
	}
}

// TestManyStreams erases somebody who is named in very many streams: what that costs in commits grows with their number
// divided by how many are done at once. Who goes through all that he keeps whenever he is told of some is told seldom,
// of each stream once.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	const streams = 1200
	f := newFixture(t)
	f.write(t, "user/"+alice+"/was_created", `{}`, alice, "")
	var unit store.Append
	for n := range streams {
		unit.Events = append(unit.Events, store.NewEvent{
			Key: j17.Key{Type: "comment", ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n)}, Type: "was_written",
			Data:     []byte(`{}`),
			Metadata: []byte(`{"actor":{"type":"user","id":"` + alice + `"}}`), Tags: []string{"actor:user:" + alice},
		})
	}
	if _, err := f.Store.Append(t.Context(), tenant, []store.Append{unit}); err != nil {
		t.Fatal(err)
	}
	count := &counting{}
	f.open(t, func(s store.Store) erasure.Storage {
		count.Store = s
		return count
	})
	f.tombs.SetKept(500)
	f.tombs.SetPurged(900)
	tried, err := f.tombs.Try(t.Context(), tenant, "user", alice, wire.NewTombstone{})
	if err != nil || !tried.More || len(tried.AffectedStreams) != 1000 {
		t.Errorf("tried are %d, %v, %v", len(tried.AffectedStreams), tried.More, err)
	}
	done := f.erase(t)

	if count.rewrites != (streams+1+63)/64 || count.purges != 2 || count.writes > 60 {
		t.Errorf("there were %d rewrites, %d purges, %d writes", count.rewrites, count.purges, count.writes)
	}
	if len(done.AffectedStreams) != 1000 || done.AffectedStreams[0].Key != "user:"+alice ||
		done.AffectedCount != streams+1 || done.AffectedRoot == "" {
		t.Errorf("affected are %d of %d, the first is %+v, the root %q", len(done.AffectedStreams), done.AffectedCount, done.AffectedStreams[0], done.AffectedRoot)
	}
	var told []int
	keys := map[j17.Key]bool{}
	for _, e := range f.holder.erased {
		told = append(told, len(e.Keys))
		for _, key := range e.Keys {
			keys[key] = true
		}
	}
	if !slices.Equal(told, []int{512, 512, 177}) || len(keys) != streams+1 {
		t.Errorf("the holder was told of %d streams, %v at a time", len(keys), told)
	}
}

// TestLongStream erases a stream that is longer than one commit takes.
func TestLongStream(t *testing.T) {
	t.Parallel()
	const length = 210
	f := newFixture(t)
	key := j17.Key{Type: "user", ID: alice}
	for left := length; left > 0; {
		var unit store.Append
		for range min(left, 70) {
			unit.Events = append(unit.Events, store.NewEvent{
				Key: key, Type: "was_renamed", Data: []byte(`{}`), Metadata: []byte(`{}`),
			})
		}
		left -= len(unit.Events)
		if _, err := f.Store.Append(t.Context(), tenant, []store.Append{unit}); err != nil {
			t.Fatal(err)
		}
	}
	before := f.events(t, "user", alice)
	count := &counting{}
	f.open(t, func(s store.Store) erasure.Storage {
		count.Store = s
		return count
	})
	f.tombs.SetPart(100)
	done := f.erase(t)
	if count.rewrites != 3 || count.largest != 100 {
		t.Errorf("there were %d rewrites of up to %d events", count.rewrites, count.largest)
	}
	after := f.events(t, "user", alice)
	rootBefore, rootAfter, chain := rootOf(before), rootOf(after), chainOf(before)
	if own := done.AffectedStreams[0]; own.EventCount != length || own.RootBefore != fmt.Sprintf("%x", rootBefore) ||
		own.RootAfter != fmt.Sprintf("%x", rootAfter) {
		t.Errorf("affected is %+v", own)
	}
	if last := string(after[length-1].Data); !strings.Contains(last, fmt.Sprintf("%x", chain)) {
		t.Errorf("the last marker is %s", last)
	}
}

// TestTogether carries out several tombstones of an environment: what they have left of old bytes goes at once, also
// where that fails at first, and one of which a step fails holds up none of the others.
func TestTogether(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var made []string
	for n := range 5 {
		id := fmt.Sprintf("a11ce000-0000-4000-8000-00000000010%d", n)
		f.write(t, "user/"+id+"/was_created", `{"name":"secret"}`, bob, "")
		made = append(made, f.ask(t, id).ID)
		f.force(t, made[n])
	}
	count := &counting{}
	unsaved := &unpurged{counting: count, left: 1, unsaved: made[3]}
	f.open(t, func(s store.Store) erasure.Storage {
		count.Store = s
		return unsaved
	})
	failing := made[2]
	f.holder.refuse = failing
	f.settle(t)
	for _, id := range made {
		if got := f.tombstone(t, id); got.Status != "executing" {
			t.Errorf("%s is %s, though nothing was purged", id, got.Status)
		}
	}
	f.Clock.Advance(later)
	f.settle(t)
	for _, id := range made {
		if got := f.tombstone(t, id); (got.Status == "completed") != (id != failing && id != made[3]) {
			t.Errorf("%s is %s", id, got.Status)
		}
	}
	if count.purges != 1 {
		t.Errorf("old bytes were removed %d times", count.purges)
	}
	f.holder.refuse, unsaved.unsaved = "", ""
	f.Clock.Advance(later)
	f.settle(t)
	for _, id := range []string{failing, made[3]} {
		if got := f.tombstone(t, id); got.Status != "completed" || count.purges != 2 {
			t.Errorf("%s is %s, with %d purges", id, got.Status, count.purges)
		}
	}
}

// unpurged is a store that fails to purge a number of times, and to note of one tombstone that it has.
type unpurged struct {
	*counting

	left    int
	unsaved string
}

func (s *unpurged) Write(ctx context.Context, t j17.Tenant, sides []store.Side, fences ...store.Fence) error {
	for i := range sides {
		if s.unsaved != "" && sides[i].Key == s.unsaved && strings.Contains(string(sides[i].Value), `"certify"`) {
			return errors.New("no note")
		}
	}
	return s.counting.Write(ctx, t, sides, fences...)
}

func (s *unpurged) Purge(
	ctx context.Context, t j17.Tenant, keys []j17.Key, spaces []store.Declared, items []store.ItemName,
) (store.Purged, error) {
	if s.left--; s.left >= 0 {
		return store.Purged{}, errors.New("no purge")
	}
	return s.counting.Purge(ctx, t, keys, spaces, items)
}
