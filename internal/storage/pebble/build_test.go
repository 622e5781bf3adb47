package pebble_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// openOlder opens a folder that a program wrote which had no index of tags.
func openOlder(t *testing.T) (*vfs.MemFS, *pebble.Store) {
	t.Helper()
	fs := vfs.NewMem()
	if ok, err := vfs.Clone(vfs.Default, fs, "testdata/agents2", "data"); err != nil || !ok {
		t.Fatalf("copy the older folder: %v, %v", ok, err)
	}
	return fs, open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.NewManual(frozenTime())})
}

// tagged returns the positions of the events that have a tag, when the index is built. progress is called while it is
// not.
func tagged(
	t *testing.T, s *pebble.Store, name j17.Tenant, tag string, progress func(*store.IndexingError),
) (list []j17.StreamID) {
	t.Helper()
	for {
		list = nil
		var failed error
		for e, err := range s.ReadTagged(
			t.Context(), name, store.Tagged{Tags: []string{tag}}, j17.StreamID{}, 1<<20, nil,
		) {
			if err != nil {
				failed = err
				break
			}
			list = append(list, e.StreamID)
		}
		indexing, ok := errors.AsType[*store.IndexingError](failed)
		if !ok {
			if failed != nil {
				t.Fatal(failed)
			}
			return list
		}
		progress(indexing)
		runtime.Gosched()
	}
}

// TestOlderEventsAreIndexed opens a folder of the format before and reads its events by their tags, while others are
// written and one is erased, and with a restart in between.
func TestOlderEventsAreIndexed(t *testing.T) {
	t.Parallel()
	fs, s := openOlder(t)
	if list, err := s.Changed(t.Context(), 0, 9); err != nil || len(list) != 2 {
		t.Errorf("changed are %v, %v; want both tenants of the folder", list, err)
	}
	// What is written now is indexed at once, and what is erased now is not indexed later.
	late := store.NewEvent{
		Key: key("late"), Type: "was_changed", Data: []byte(`1`), Metadata: []byte(`{}`),
		Tags: []string{"actor:user:u1"},
	}
	if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: []store.NewEvent{late}}}); err != nil {
		t.Fatal(err)
	}
	if err := storetest.Erase(t.Context(), s, tenant, key("1"), erase(1)); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.NewManual(frozenTime())})
	defer closeStore(t, s)

	total := map[j17.Tenant]int{}
	for _, name := range []j17.Tenant{tenant, "other/test"} {
		want := map[string][]j17.StreamID{}
		for e, err := range s.ReadFeed(t.Context(), name, j17.StreamID{}, 1<<20) {
			if err != nil {
				t.Fatal(err)
			}
			total[name]++
			tags := j17.MetadataTags(e.Metadata)
			if e.Key.ID == "late" {
				tags = late.Tags
			}
			if !e.Erased() {
				for _, tag := range tags {
					want[tag] = append(want[tag], e.StreamID)
				}
			}
		}
		if len(want) != 5 {
			t.Fatalf("%d tags in the events", len(want))
		}
		for tag, ids := range want {
			got := tagged(t, s, name, tag, func(p *store.IndexingError) {
				if p.Total == 0 || p.Done > p.Total {
					t.Errorf("progress %+v", p)
				}
			})
			if !slices.Equal(got, ids) {
				t.Errorf("%s of %s: %d events, want %d", tag, name, len(got), len(ids))
			}
		}
	}
	if fmt.Sprint(total) != "map[other/test:107 shop/prod:781]" {
		t.Errorf("events %v", total)
	}
	if next, err := s.NextDue(t.Context(), "work"); err != nil || !next.Equal(frozenTime()) {
		t.Errorf("work of the older folder is due at %s, %v", next, err)
	}
}

// TestOlderEventsAreIndexedByCorrelation makes a folder one of the format that had no correlation ids in its index:
// events are found by all other tags at once, and by these when they are indexed.
func TestOlderEventsAreIndexedByCorrelation(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.NewManual(frozenTime())})
	const ids, each = 7, 300
	of := func(n int) string { return fmt.Sprintf("a0000000-0000-4000-a000-%012d", n%ids) }
	for n := range ids * each {
		metadata := fmt.Appendf(nil, `{"actor":{"type":"user","id":"u1"},"correlation_id":%q}`, of(n))
		ev := store.NewEvent{
			Key: key(fmt.Sprint(n % 5)), Type: "was_changed", Data: []byte(`1`), Metadata: metadata,
			Tags: j17.MetadataTags(metadata),
		}
		if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: []store.NewEvent{ev}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := storetest.Erase(t.Context(), s, tenant, key("1"), erase(1)); err != nil {
		t.Fatal(err)
	}
	none := func(*store.IndexingError) { t.Error("it is still being indexed") }
	before := tagged(t, s, tenant, j17.CorrelationTag(of(2)), none)
	closeStore(t, s)

	raw(t, fs, func(db *engine.DB) {
		for n := range ids {
			sum := sha256.Sum256([]byte(j17.CorrelationTag(of(n))))
			from := append([]byte("\x00\x00\x00\x01g"), sum[:16]...)
			if err := db.DeleteRange(from, append(slices.Clone(from), 0xff), engine.Sync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Set([]byte("\x00\x00\x00\x00v"), []byte{0, 0, 0, 3}, engine.Sync); err != nil {
			t.Fatal(err)
		}
	})
	s = open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.NewManual(frozenTime())})
	defer closeStore(t, s)
	if n := len(tagged(t, s, tenant, "actor:user:u1", none)); n != ids*each-1 {
		t.Errorf("%d events of the actor", n)
	}
	if list, err := s.Changed(t.Context(), 0, 9); err != nil || len(list) != 1 {
		t.Errorf("changed are %v, %v", list, err)
	}
	total := 0
	for n := range ids {
		got := tagged(t, s, tenant, j17.CorrelationTag(of(n)), func(*store.IndexingError) {})
		total += len(got)
		if n == 2 && !slices.Equal(got, before) {
			t.Errorf("%d events, want %d", len(got), len(before))
		}
	}
	if total != ids*each-1 {
		t.Errorf("%d events by correlation ids, want %d", total, ids*each-1)
	}
}
