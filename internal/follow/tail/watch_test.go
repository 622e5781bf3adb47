package tail_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"j17"
	"j17/internal/follow/tail"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
	"j17/internal/storage/testopen"
)

func (f *fixture) watch(tb testing.TB, keys []j17.Key, types ...string) *tail.Watch {
	tb.Helper()
	w, err := f.Watch(tb.Context(), tenant)
	if err != nil {
		tb.Fatal(err)
	}
	w.Follow(keys, types)
	return w
}

// changes takes from a watch until it has come as far as the feed, and returns all keys, sorted.
func (f *fixture) changes(tb testing.TB, w *tail.Watch) (keys []string, all bool) {
	tb.Helper()
	head, err := f.Head(tb.Context(), tenant)
	if err != nil {
		tb.Fatal(err)
	}
	for {
		c, err := w.Take()
		if err != nil {
			tb.Fatal(err)
		}
		for _, key := range c.Keys {
			keys = append(keys, key.String())
		}
		if all = all || c.All; c.At.Compare(head) >= 0 {
			slices.Sort(keys)
			return slices.Compact(keys), all
		}
		<-w.Ready()
	}
}

func noteKey(n int) j17.Key { return j17.Key{Type: "note", ID: fmt.Sprint("n", n)} }

// TestWatches tells watches of what they follow and of nothing else: aggregates, types, what was erased.
func TestWatches(t *testing.T) {
	f := newFixture(t)
	f.scatter(t, 0, 10)
	one, docs, none := f.watch(t, []j17.Key{
		noteKey(1), noteKey(2),
	}), f.watch(t, []j17.Key{{Type: "doc", ID: "n9"}}, "doc"), f.watch(t, nil)
	all := f.watch(t, nil, "note", "doc")

	f.write(t, "note:n1", "was_made", 1, 1, `{}`)
	f.write(t, "note:n3", "was_made", 1, 1, `{}`)
	f.write(t, "doc:n9", "was_made", 1, 1, `{}`)
	f.write(t, "note:n1", "was_made", 1, 1, `{}`)
	for i, c := range []struct {
		w    *tail.Watch
		want []string
	}{{one, []string{"note:n1"}}, {docs, []string{"doc:n9"}}, {all, []string{"doc:n9", "note:n1", "note:n3"}}} {
		if got, lost := f.changes(t, c.w); !slices.Equal(got, c.want) || lost {
			t.Errorf("watch %d: %q, %t, not %q", i, got, lost, c.want)
		}
	}
	if len(none.Ready()) > 0 {
		t.Error("who follows nothing was woken")
	}

	// What was followed before is no longer; what was erased has changed.
	one.Follow([]j17.Key{noteKey(3)}, nil)
	f.write(t, "note:n1", "was_made", 1, 1, `{}`)
	gone := []store.Rewritten{{Version: 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}}
	if err := storetest.Erase(t.Context(), f.store, tenant, noteKey(3), gone); err != nil {
		t.Fatal(err)
	}
	c, err := one.Take()
	for ; err == nil && len(c.Keys) == 0; c, err = one.Take() {
		<-one.Ready()
	}
	if err != nil || !slices.Equal(c.Keys, []j17.Key{noteKey(3)}) {
		t.Errorf("%v, %v", c, err)
	}

	// So has what somebody says has, of which there is no event.
	for _, w := range []*tail.Watch{one, docs, all} {
		f.changes(t, w)
		select {
		case <-w.Ready():
		default:
		}
	}
	f.Touch(tenant, []j17.Key{noteKey(3), noteKey(4)})
	f.Touch("nobody", []j17.Key{noteKey(3)})
	for i, of := range []struct {
		w    *tail.Watch
		want []string
	}{{one, []string{"note:n3"}}, {docs, nil}, {all, []string{"note:n3", "note:n4"}}} {
		if len(of.w.Ready()) > 0 != (of.want != nil) {
			t.Errorf("watch %d: there are %d signals", i, len(of.w.Ready()))
		}
		if got, lost := f.changes(t, of.w); !slices.Equal(got, of.want) || lost {
			t.Errorf("watch %d: %q, %t, not %q", i, got, lost, of.want)
		}
	}
	for _, w := range []*tail.Watch{one, docs, none, all} {
		w.Close()
	}
	if s := f.Stats(); s != (tail.Stats{}) {
		t.Errorf("without watches there is %+v", s)
	}
}

// TestWatchesForgetWhatIsTooMuch: a watch that nobody takes from remembers so many keys, and then that it has lost
// some.
func TestWatchesForgetWhatIsTooMuch(t *testing.T) {
	f := newFixture(t)
	w, other := f.watch(t, nil, "note"), f.watch(t, []j17.Key{noteKey(1), noteKey(1000)})
	var many []store.NewEvent
	for n := range 1001 {
		many = append(many, store.NewEvent{
			Key: noteKey(n), Type: "was_made", Data: []byte(`{}`), Metadata: []byte(`{}`),
		})
	}
	f.append(t, many...)
	f.changes(t, other) // it follows the last one; then the first one has been told of everything
	if c, err := w.Take(); err != nil || !c.All || len(c.Keys) > 0 {
		t.Errorf("it has kept %d of %d keys, %v", len(c.Keys), len(many), err)
	}
	f.write(t, "note:n1", "was_made", 1, 1, `{}`)
	if got, lost := f.changes(t, w); !slices.Equal(got, []string{"note:n1"}) || lost {
		t.Errorf("afterwards %q, %t", got, lost)
	}
	other.Close()
	w.Close()
}

// TestWatchesMissNothing follows again all the time, as a view does whose sources change: what it looks at when it is
// told, or when it has begun to follow, is never behind.
func TestWatchesMissNothing(t *testing.T) {
	f := newFixture(t)
	const writes, keys = 100, 7
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := range writes {
			f.write(t, noteKey(n%keys).String(), "was_made", 1, 1, `{}`)
		}
	})
	w := f.watch(t, nil)
	defer w.Close()
	for n := range keys {
		of := j17.Key{Type: "note", ID: fmt.Sprint("n", n)}
		length := func() uint64 {
			heads, err := f.store.Heads(t.Context(), tenant, []j17.Key{of})
			if err != nil {
				t.Fatal(err)
			}
			return heads[0].Length
		}
		w.Follow([]j17.Key{of}, nil)
		want := uint64((writes - n + keys - 1) / keys)
		for seen := length(); seen < want; seen = length() {
			<-w.Ready()
			if _, err := w.Take(); err != nil {
				t.Fatal(err)
			}
		}
	}
	writer.Wait()
}

// TestWatchesEndWithTheStore: nobody waits for a store that was closed.
func TestWatchesEndWithTheStore(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t)
		w := f.watch(t, []j17.Key{noteKey(1)})
		if err := f.store.Close(); err != nil {
			t.Fatal(err)
		}
		<-w.Ready()
		if _, err := w.Take(); err == nil {
			t.Error("there is no error")
		}
		w.Close()
	})
}
