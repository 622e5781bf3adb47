package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

func putItem(space store.Space, key, value string) store.Side {
	return store.Side{Op: store.Put, Space: space, Key: key, Value: []byte(value)}
}

// TestLoadCopiesBesideTheCommitter: what the tenant has goes into tables, and nothing of it into a batch.
func TestLoadCopiesBesideTheCommitter(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	for i := range 100 {
		u := store.Append{
			Command: &store.Command{ID: store.CommandID{byte(i)}},
			Side:    []store.Side{putItem("chunks", fmt.Sprint(i), string(bytes.Repeat([]byte{byte(i)}, 1000)))},
		}
		if _, err := s.Append(t.Context(), "a/prod", []store.Append{u}); err != nil {
			t.Fatal(err)
		}
	}
	l := beginLoad(t, s)
	staged := &changedKeys{number: l.number, keys: map[string]bool{}}
	follow := func(*batch) error {
		s.followed = append(s.followed, staged)
		return nil
	}
	if err := errors.Join(
		s.queue.Do(t.Context(), queue.Always, follow), fillLoad(l, 10), l.Commit(t.Context()),
	); err != nil {
		t.Fatal(err)
	}
	if err := s.queue.Do(t.Context(), queue.Always, func(*batch) error {
		if len(staged.keys) > 0 || len(s.followed) != 1 {
			t.Errorf("the batch had %d items and commands, and %d tenants are followed", len(staged.keys), len(s.followed))
		}
		s.followed = nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	n, err := s.Count(t.Context(), "a/prod", "chunks", store.Range{}, 1000)
	if r, failed := s.Command(t.Context(), "a/prod", store.CommandID{99}); n != 100 || err != nil || r == nil ||
		failed != nil {
		t.Errorf("%d items, %v; the command is %v, %v", n, err, r, failed)
	}
}

// TestLoadMakesUpForChanges writes to the tenant at all times of a load.
func TestLoadMakesUpForChanges(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour)
	late := 0
	for stop := 1; late < 1; stop++ {
		s, _ := opened(t, clock.System{})
		side := []store.Side{
			putItem("own", "kept", "1"), putItem("own", "changed", "1"), putItem("own", "removed", "1"),
			putItem("notes", "0", "own"),
		}
		for i := range 30 {
			side = append(side, putItem("own", fmt.Sprint(i), string(bytes.Repeat([]byte("x"), 500))))
		}
		side[2].Expires, side[2].Due = soon, soon
		if err := s.Write(t.Context(), "a/prod", side); err != nil {
			t.Fatal(err)
		}

		// Another write at the moment at which a file is made, or behind the end.
		l := beginLoad(t, s)
		made, written := 0, error(nil)
		write := func() {
			due := putItem("own", "fresh", "2")
			due.Due = soon
			_, written = s.Append(t.Context(), "a/prod", []store.Append{{
				Command: &store.Command{ID: store.CommandID{1}, Expires: soon},
				Side: []store.Side{
					putItem("own", "changed", "2"),
					{Op: store.Delete, Space: "own", Key: "removed"},
					due,
					putItem("notes", "1", "own"),
				},
			}})
		}
		l.folder.check = func() error {
			if made++; made == stop {
				write()
			}
			return nil
		}
		if err := errors.Join(fillLoad(l, 40), l.Commit(t.Context())); err != nil {
			t.Fatalf("a write at file %d: %v", stop, err)
		}
		if made < stop {
			late++
			write()
		}

		// What was loaded counts, then what was written last.
		want := map[store.ItemName]string{
			{Space: "own", Key: "kept"}: "1", {Space: "own", Key: "changed"}: "2", {Space: "own", Key: "fresh"}: "2",
		}
		if want[store.ItemName{Space: "notes", Key: "0"}] = string(store.AppendEntries(nil, "0")); late == 0 {
			want[store.ItemName{Space: "notes", Key: "1"}] = string(store.AppendEntries(nil, "1"))
		}
		for name, value := range want {
			if item, err := s.Get(t.Context(), "a/prod", name.Space, name.Key); err != nil ||
				string(item.Value) != value {
				t.Errorf("a write at file %d: %v is %q, %v", stop, name, item.Value, err)
			}
		}
		_, err := s.Get(t.Context(), "a/prod", "own", "removed")
		if r, failed := s.Command(t.Context(), "a/prod", store.CommandID{1}); !errors.Is(err, store.ErrNotFound) ||
			r == nil || errors.Join(failed, written) != nil {
			t.Errorf("a write at file %d: what was removed is %v; the command is %v, %v, %v", stop, err, r, failed, written)
		}
		works, err := loadDue(s.db, s.tenants["a/prod"], s.tenants["a/prod"].number)
		left, failed := hasAny(
			s.db, appendExpiryKey(nil, s.tenants["a/prod"].number, unit.Nanos(soon), []byte("\x00\x00\x00\x00i")),
			appendExpiryKey(nil, s.tenants["a/prod"].number, unit.Nanos(soon), []byte("\x00\x00\x00\x00j")),
		)
		if len(works) != 1 || left || errors.Join(err, failed) != nil {
			t.Errorf("a write at file %d: due are %v, and an entry of expiry is left: %v, %v, %v", stop, works, left, err, failed)
		}
	}
}

// TestLoadIsOvertaken: a load into a tenant that changes too much copies what it has once more; where it goes on
// changing, or is removed, the load is refused and can be made again.
func TestLoadIsOvertaken(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	clearOwn := func(*loading) error { return s.Clear(t.Context(), "a/prod", "own", store.Range{}) }
	much := func(l *loading) error {
		l.changed.bytes = mostChangedBytes // as if others had been written before
		return s.Write(t.Context(), "a/prod", []store.Side{putItem("own", "more", "1")})
	}
	// begun has a change happen at the first file that is made while the tenant is followed, or at each.
	begun := func(times int, change func(*loading) error) *loading {
		if err := s.Write(t.Context(), "a/prod", []store.Side{putItem("own", "k", "1")}); err != nil {
			t.Fatal(err)
		}
		l := beginLoad(t, s)
		l.folder.check = func() (err error) {
			if l.changed != nil && times > 0 {
				times, err = times-1, change(l)
			}
			return err
		}
		return l
	}
	for name, tc := range map[string]struct {
		change func(*loading) error
		left   []string
	}{"cleared": {clearOwn, nil}, "much": {much, []string{"k", "more"}}} {
		l := begun(1, tc.change)
		if err := errors.Join(fillLoad(l, 40), l.Commit(t.Context())); err != nil {
			t.Errorf("%s once: %v", name, err)
		}
		var left []string
		items, err := s.Scan(t.Context(), "a/prod", "own", store.Range{}, 10)
		for i := range items {
			left = append(left, items[i].Key)
		}
		if err != nil || !slices.Equal(left, tc.left) || len(s.followed) > 0 {
			t.Errorf("%s once: it has %q, %v", name, left, err)
		}
		if err := s.DropTenant(t.Context(), "a/prod"); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(*loading) error{
		"removed": func(*loading) error { return s.DropTenant(t.Context(), "a/prod") }, "cleared": clearOwn,
		"much": much,
	} {
		l := begun(1000, change)
		if err := errors.Join(fillLoad(l, 40), l.Commit(t.Context())); !errors.Is(err, store.ErrOvertaken) {
			t.Errorf("%s: %v", name, err)
		}
		l.Discard()
		if extent, err := s.Extent(t.Context(), "a/prod"); extent.Events > 0 || err != nil || len(s.followed) > 0 {
			t.Errorf("%s: it has %v, %v", name, extent, err)
		}
	}
	if l := beginLoad(t, s); errors.Join(fillLoad(l, 40), l.Commit(t.Context())) != nil {
		t.Error("a load after those that were refused fails")
	}
	if extent, err := s.Extent(t.Context(), "a/prod"); extent.Last != (j17.StreamID{Ms: 40}) || err != nil {
		t.Errorf("it has %v, %v", extent, err)
	}
}

// TestLoadIsFenced: it is committed as long as a fence holds.
func TestLoadIsFenced(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	if err := s.Write(t.Context(), "a/prod", []store.Side{putItem("own", "spec", "1")}); err != nil {
		t.Fatal(err)
	}
	item, err := s.Get(t.Context(), "a/prod", "own", "spec")
	if err != nil {
		t.Fatal(err)
	}
	for _, rev := range []uint64{item.Rev + 1, item.Rev} {
		l := beginLoad(t, s)
		err := errors.Join(fillLoad(l, 10), l.Commit(t.Context(), store.Fence{Space: "own", Key: "spec", Rev: rev}))
		if _, refused := errors.AsType[*store.SideConflict](err); refused != (rev != item.Rev) ||
			err != nil && !refused {
			t.Errorf("with revision %d: %v", rev, err)
		}
		l.Discard()
	}
}
