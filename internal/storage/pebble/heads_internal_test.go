package pebble

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// TestHeadsAreLookedUpTogether: the heads of all calls of a batch are looked up before the first is staged, but for
// those beyond the bound, and one that cannot be read concerns the call alone that needs it. They are written in the
// order of their keys.
func TestHeadsAreLookedUpTogether(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	const of = j17.Tenant("a/prod")
	damaged := j17.Key{Type: "order", ID: "7"}
	if _, err := s.Append(t.Context(), of, smallUnits(0, 10)); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Set(appendHeadKey(nil, s.tenants[of].number, damaged), []byte{0xff}, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	s.heads = newHeadCache()

	// Nothing else is written, so that the test may have a batch of its own.
	b := newBatch(s.committer)
	b.reset()
	calls := make([]*call, mostWanted+10)
	for i := range calls {
		calls[i] = &call{Tenant: of, Units: smallUnits(i*101%len(calls), 1), Results: make([]store.Result, 1)}
	}
	b.lookUp(calls)
	if n := len(b.wanted); n != mostWanted {
		t.Errorf("%d heads are looked up, want %d", n, mostWanted)
	}
	if n := b.fill(calls, nil, nil); n != len(calls) {
		t.Errorf("%d calls are staged", n)
	}
	for i, c := range calls {
		key, length := c.Units[0].Events[0].Key, uint64(1)
		if i*101%len(calls) < 10 {
			length = 2
		}
		switch {
		case key == damaged:
			if _, is := errors.AsType[*store.CorruptionError](c.Err()); !is {
				t.Errorf("%s: %v, want what is damaged", key, c.Err())
			}
		case c.Err() != nil || c.Results[0].Outcome != store.Committed || c.Results[0].Lengths[0] != length:
			t.Errorf("%s: %v, %+v, want length %d", key, c.Err(), c.Results[0], length)
		}
	}

	b.finish()
	var heads []string
	for r := b.writes.Reader(); len(r) > 0; {
		_, key, _, _, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if key[tenantPrefix] == kindHead {
			heads = append(heads, string(key))
		}
	}
	if len(heads) != len(calls)-1 || !slices.IsSorted(heads) {
		t.Errorf("%d heads are written, in order: %t", len(heads), slices.IsSorted(heads))
	}
	b.endLookup()
}

// TestUnitsWithoutDescriptors appends two units, of which the second one cannot be decided for want of a descriptor:
// the first one is stored, and so nobody may be told that nothing was.
func TestUnitsWithoutDescriptors(t *testing.T) {
	t.Parallel()
	var none atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if none.Load() && isTable(op.Path) && (op.Kind == errorfs.OpOpen || op.Kind == errorfs.OpFileReadAt) {
			return syscall.EMFILE
		}
		return nil
	}))
	s, err := Open(Options{Dir: "data", FS: fs, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	const of = j17.Tenant("a/prod")
	if _, err := s.Append(t.Context(), of, smallUnits(0, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	s.heads = newHeadCache()
	known, unread := smallUnits(0, 1), smallUnits(999, 1)
	if _, err := s.Append(t.Context(), of, known); err != nil {
		t.Fatal(err)
	}

	none.Store(true)
	_, alone := s.Append(t.Context(), of, unread)
	_, second := s.Append(t.Context(), of, append(known, unread...))
	none.Store(false)
	if !errors.Is(alone, store.ErrBusy) {
		t.Errorf("one unit: %v, want ErrBusy", alone)
	}
	if !errors.Is(second, store.ErrUnknown) || errors.Is(second, store.ErrBusy) {
		t.Errorf("the second one of two: %v, want ErrUnknown", second)
	}
	heads, err := s.Heads(t.Context(), of, []j17.Key{known[0].Events[0].Key, unread[0].Events[0].Key})
	if err != nil || heads[0].Length != 3 || heads[1].Length != 1 {
		t.Errorf("%+v, %v", heads, err)
	}
}
