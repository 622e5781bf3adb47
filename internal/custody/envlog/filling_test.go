//go:build !race

package envlog_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"testing"

	"j17"
	"j17/internal/core/worker"
	"j17/internal/custody/envlog"
	"j17/internal/storage/store"
)

// counting is a store that counts the leaves that are read of a tenant.
type counting struct {
	store.Store
	of     *j17.Tenant
	leaves *int
}

// ReadLeaves reads leaves.
func (c counting) ReadLeaves(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Leaf, error] {
	return func(yield func(store.Leaf, error) bool) {
		for leaf, err := range c.Store.ReadLeaves(ctx, t, after, limit) {
			if t == *c.of {
				*c.leaves++
			}
			if !yield(leaf, err) {
				return
			}
		}
	}
}

// TestFilling fills environments with the events of another one, together with their logs: these say what that one
// says, and none of their tiles is made from events again, whether or not somebody has asked for the log before there
// were any. What is written later goes on from there.
func TestFilling(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	read, to := 0, j17.Tenant("")
	logs := envlog.New(envlog.Options{
		Store: counting{f.store, &to, &read}, Clock: f.clock,
		Worker: worker.New(f.clock, slog.New(slog.DiscardHandler)),
		Origin: func(t j17.Tenant) (string, error) { return string(t), nil },
	})
	f.Service = logs
	for i, n := range []int{1, 255, 256, 257, 2000, 65_536 + 300} {
		f.write(t, n-len(f.leaves), 1000)
		want := f.head(t)
		to, read = j17.Tenant(fmt.Sprintf("ins_test/filled%d", i)), 0
		if head, err := logs.Head(t.Context(), to); err != nil || head.Size > 0 {
			t.Fatalf("before: %+v, %v", head, err)
		}
		fill(t, f.store, to)

		// Upkeep has nothing to do, and the head is that of the events.
		if _, err := logs.Upkeep(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if head, err := logs.Head(t.Context(), to); err != nil || head != want {
			t.Errorf("%d events: %+v, %v, want %+v", n, head, err, want)
		}
		for _, index := range []uint64{0, uint64(n) / 2, uint64(n) - 1} {
			in, err := logs.IncludeEvent(t.Context(), to, f.ids[index], nil)
			if err != nil || in.Index != index || in.Leaf != f.leaves[index] || in.Root != want.Root {
				t.Errorf("%d events: %+v, %v", n, in, err)
			}
		}
		if read >= envlog.TileWidth {
			t.Errorf("%d events: %d of them were read", n, read)
		}
		if n, err := logs.Repair(t.Context(), to); err != nil || n > 0 {
			t.Errorf("%d items were repaired: %v", n, err)
		}

		// It grows like any other one.
		unit := store.Append{Events: make([]store.NewEvent, 0, 600)}
		for j := range cap(unit.Events) {
			unit.Events = append(unit.Events, store.NewEvent{
				Key: j17.Key{Type: "note", ID: "later"}, Type: "was_written", Data: fmt.Append(nil, j),
				Metadata: []byte("{}"),
			})
		}
		for range 2 {
			if _, err := f.store.Append(t.Context(), to, []store.Append{unit}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := logs.Upkeep(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if grown, err := logs.Extend(t.Context(), to, uint64(n), nil); err != nil || grown.FromRoot != want.Root ||
			grown.To != uint64(n)+1200 {
			t.Errorf("%d events and more: %+v, %v", n, grown, err)
		}
	}
}

// fill fills a tenant with the events of another one, and with its log.
func fill(t *testing.T, st store.Store, to j17.Tenant) {
	t.Helper()
	a, err := st.Archive(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	l, err := st.Load(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Discard()
	log := envlog.NewFilling(l.Item)
	for c, err := range a.Changes(t.Context(), j17.StreamID{}) {
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := l.Event(store.LoadedEvent{Event: c.Event})
		if err == nil {
			err = log.Add(c.Event.StreamID, leaf)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := log.End(); err != nil {
		t.Fatal(err)
	}
	if err := l.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}
