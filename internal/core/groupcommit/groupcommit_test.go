package groupcommit_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/groupcommit"
	"j17/internal/storage/store"
)

var (
	keyA = j17.Key{Type: "a", ID: "1"}
	keyB = j17.Key{Type: "b", ID: "1"}
)

// basis is what appends are decided with.
type basis struct{ stale, refuses bool }

func (b *basis) Current() bool                { return !b.stale }
func (b *basis) RefusedBy(*store.Result) bool { return b.refuses }

// events returns a unit with one event for each key.
func events(keys ...j17.Key) (u store.Append) {
	for _, key := range keys {
		u.Events = append(u.Events, store.NewEvent{Key: key, Type: "e", Data: []byte("{}")})
	}
	return u
}

// log is a store that holds commits back until they are let through, and notes them.
type log struct {
	groups  [][]store.Append
	through chan struct{}
	outcome func(u *store.Append) store.Result
	kept    map[j17.Key]uint64
}

func newLog() (*log, *groupcommit.Committer) {
	l := &log{through: make(chan struct{}), kept: map[j17.Key]uint64{}, outcome: func(u *store.Append) store.Result {
		r := store.Result{Outcome: store.Committed}
		for range u.Events {
			r.Lengths = append(r.Lengths, 1)
		}
		return r
	}}
	return l, groupcommit.New(groupcommit.Options{
		Commit: func(_ context.Context, units []store.Append) ([]store.Result, error) {
			<-l.through
			l.groups = append(l.groups, units)
			results := make([]store.Result, len(units))
			for i := range units {
				results[i] = l.outcome(&units[i])
			}
			return results, nil
		},
		Keep:   func(key j17.Key, s *decider.State) { l.kept[key] = s.Length },
		Logger: slog.New(slog.DiscardHandler),
	})
}

// add adds an append under the exclusive lock of a stream, after a look at what is pending there.
func add(t *testing.T, c *groupcommit.Committer, b groupcommit.Basis, key j17.Key, length uint64) *groupcommit.Append {
	t.Helper()
	held := groupcommit.Locks{}.With(key, true)
	if _, err := c.Lock(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	defer c.Unlock(held)
	v := c.View(held)
	if _, err := v.State(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	a := groupcommit.NewAppend(b, events(key), v, []groupcommit.State{
		{Key: key, State: &decider.State{Length: length}},
	})
	if !c.Add(t.Context(), a) {
		t.Fatal("the append depends on one that has failed")
	}
	return a
}

// TestLocksAreGrantedInOrder: shared locks are held together, an exclusive one alone, and nobody overtakes a writer
// that waits.
func TestLocksAreGrantedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newLog()
		var order []string
		done := make(chan struct{})
		take := func(name string, exclusive bool, hold <-chan struct{}) {
			go func() {
				held := groupcommit.Locks{}.With(keyA, exclusive)
				if _, err := c.Lock(t.Context(), held); err != nil {
					t.Error(err)
				}
				order = append(order, name)
				<-hold
				c.Unlock(held)
				done <- struct{}{}
			}()
			synctest.Wait()
		}
		first, others := make(chan struct{}), make(chan struct{})
		close(others)
		take("reader 1", false, first)
		take("reader 2", false, first)
		take("writer", true, others)
		take("reader 3", false, others)
		if diff := cmp.Diff([]string{"reader 1", "reader 2"}, order); diff != "" {
			t.Errorf("before the first are through:\n%s", diff)
		}
		close(first)
		for range 4 {
			<-done
		}
		if diff := cmp.Diff([]string{"reader 1", "reader 2", "writer", "reader 3"}, order); diff != "" {
			t.Error(diff)
		}
	})
}

// TestAWaiterCanLeave: a writer whose context ends leaves the queue of a lock, and those behind it go on.
func TestAWaiterCanLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newLog()
		held := groupcommit.Locks{}.With(keyA, true)
		if waited, err := c.Lock(t.Context(), held); err != nil || waited {
			t.Fatal(waited, err)
		}
		ctx, leave := context.WithCancel(t.Context())
		left, got := make(chan error, 1), make(chan bool, 1)
		go func() {
			_, err := c.Lock(ctx, groupcommit.Locks{}.With(keyA, true))
			left <- err
		}()
		synctest.Wait()
		go func() {
			waited, _ := c.Lock(t.Context(), held)
			got <- waited
		}()
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		c.Unlock(held)
		if waited := <-got; !waited {
			t.Error("the one behind it has not waited")
		}
	})
}

// TestLocksAreGivenUp: a stream on which nobody was in the way for a while has no lock any longer.
func TestLocksAreGivenUp(t *testing.T) {
	_, c := newLog()
	held := groupcommit.Locks{}.With(keyA, true)
	n := 0
	for ; n == 0 || c.Contended(keyA); n++ {
		if _, err := c.Lock(t.Context(), held); err != nil || n > 1000 {
			t.Fatal(n, err)
		}
		c.Unlock(held)
	}
	if n < 10 {
		t.Errorf("the lock is given up after %d acquisitions", n)
	}
}

// TestAGroupStoresWhatWasDecidedMeanwhile: appends that are decided while a commit is under way are stored in one
// group, each behind those that it depends on, and the last state of each stream is cached.
func TestAGroupStoresWhatWasDecidedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := newLog()
		lengths := map[j17.Key]uint64{}
		l.outcome = func(u *store.Append) store.Result {
			r := store.Result{Outcome: store.Committed}
			for i := range u.Events {
				lengths[u.Events[i].Key]++
				r.Lengths = append(r.Lengths, lengths[u.Events[i].Key])
			}
			return r
		}
		var all []*groupcommit.Append
		all = append(all, add(t, c, &basis{}, keyA, 1))
		synctest.Wait() // its commit is under way
		all = append(all, add(t, c, &basis{}, keyA, 2), add(t, c, &basis{}, keyB, 1), add(t, c, &basis{}, keyA, 3))
		close(l.through)
		for i, a := range all {
			if err := c.Await(t.Context(), a); err != nil || a.Result().Outcome != store.Committed {
				t.Errorf("append %d: %v, %v", i, a.Result().Outcome, err)
			}
		}
		var after [][][]int
		for _, g := range l.groups {
			var each [][]int
			for i := range g {
				each = append(each, g[i].After)
			}
			after = append(after, each)
		}
		if diff := cmp.Diff([][][]int{{nil}, {nil, nil, {0}}}, after); diff != "" {
			t.Errorf("the groups, with what each unit comes after:\n%s", diff)
		}
		if diff := cmp.Diff(map[j17.Key]uint64{keyA: 3, keyB: 1}, l.kept); diff != "" {
			t.Errorf("cached states:\n%s", diff)
		}
	})
}

// TestAFailureTakesDependentsDown: an append fails with the one that it was decided on, and one whose basis is stale is
// not stored.
func TestAFailureTakesDependentsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := newLog()
		l.outcome = func(*store.Append) store.Result { return store.Result{Outcome: store.Conflict} }
		first := add(t, c, &basis{}, keyA, 1)
		synctest.Wait()
		second := add(t, c, &basis{}, keyA, 2)
		stale := add(t, c, &basis{stale: true}, keyB, 1)
		close(l.through)
		if err := c.Await(t.Context(), first); err != nil || first.Result().Outcome != store.Conflict {
			t.Errorf("the first: %v, %v", first.Result().Outcome, err)
		}
		if err := c.Await(t.Context(), second); !errors.Is(err, groupcommit.ErrOvertaken) {
			t.Errorf("the one that depends on it: %v", err)
		}
		if err := c.Await(t.Context(), stale); !errors.Is(err, groupcommit.ErrStale) {
			t.Errorf("the stale one: %v", err)
		}
		refused := add(t, c, &basis{refuses: true}, keyB, 1)
		if err := c.Await(t.Context(), refused); !errors.Is(err, groupcommit.ErrStale) {
			t.Errorf("one that the store refuses for its basis: %v", err)
		}
		if len(l.groups) != 2 || len(l.kept) != 0 {
			t.Errorf("%d groups, states of %v", len(l.groups), l.kept)
		}
	})
}

// TestAnAppendCanBeGivenUp: one that is in no group yet is not stored once its writer has gone.
func TestAnAppendCanBeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := newLog()
		first := add(t, c, &basis{}, keyA, 1)
		synctest.Wait()
		second := add(t, c, &basis{}, keyB, 1)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if err := c.Await(ctx, second); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(l.through)
		if err := c.Await(t.Context(), first); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(l.groups) != 1 {
			t.Errorf("%d groups", len(l.groups))
		}
	})
}
