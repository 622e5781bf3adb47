package pebble

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// TestForget forgets while events are in the cache and in a memory table: both are empty then, nothing is stored for
// it, and the events can be read.
func TestForget(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	key := j17.Key{Type: "order", ID: "1"}
	written := func() {
		event := store.NewEvent{
			Key: key, Type: "was_made", Data: bytes.Repeat([]byte("1"), 1000), Metadata: []byte("{}"),
		}
		if _, err := s.Append(t.Context(), "a/prod", []store.Append{{Events: []store.NewEvent{event}}}); err != nil {
			t.Fatal(err)
		}
	}
	events := func() (n int) {
		for _, err := range s.ReadStream(t.Context(), "a/prod", key, 1, 2) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}

	// One event is in a table, and in the cache since it was read, the other is in a memory table.
	written()
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	written()
	events()
	flushes := s.db.Metrics().Flush.Count
	if cached := s.db.Metrics().BlockCache.Size; cached == 0 {
		t.Fatal("the cache is empty: the test shows nothing")
	}

	if err := s.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := s.db.Metrics(); m.BlockCache.Size > 0 || m.Flush.Count <= flushes {
		t.Errorf("the cache has %d bytes, and there were %d flushes after %d", m.BlockCache.Size, m.Flush.Count, flushes)
	}
	scratch := appendPrefix(nil, storeNumber, kindScratch)
	//nolint:errorlint // the engine returns it as it is
	if _, closer, err := s.db.Get(scratch); err != pebble.ErrNotFound {
		if err == nil {
			_ = closer.Close()
		}
		t.Errorf("what memory was overwritten with is stored: %v", err)
	}
	if n := events(); n != 2 {
		t.Errorf("%d events can be read", n)
	}
}
