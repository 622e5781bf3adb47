//go:build !race

package pebble_test

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

// TestEveryByteOfATableIsChecked flips bytes all over the tables of a store that is open, which has read them before:
// each flip is found and names the file.
func TestEveryByteOfATableIsChecked(t *testing.T) {
	t.Parallel()
	const tenant = j17.Tenant("a/prod")
	fs := vfs.NewMem()
	s, err := pebble.Open(pebble.Options{Dir: "data", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 200 {
		unit := store.Append{
			Events: []store.NewEvent{{
				Key: j17.Key{Type: "order", ID: fmt.Sprint(n % 20)}, Type: "was_made",
				Data: []byte(fmt.Sprintf(`{"n":%d}`, n)), Metadata: []byte(`{}`),
			}},
			Side: []store.Side{{Op: store.Put, Space: "work", Key: fmt.Sprint(n), Value: []byte("v")}},
		}
		if _, err := s.Append(t.Context(), tenant, []store.Append{unit}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = pebble.Open(pebble.Options{Dir: "data", FS: fs}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, err := range s.ReadFeed(t.Context(), tenant, j17.StreamID{}, 1000) {
		if err != nil {
			t.Fatal(err)
		}
	}
	good, err := s.CheckTables(t.Context(), "", 1<<40)
	if err != nil || len(good.Damaged) > 0 || good.Tables == 0 || good.Bytes == 0 || good.More || good.Last == "" {
		t.Fatalf("what is whole: %+v, %v", good, err)
	}
	if rest, err := s.CheckTables(t.Context(), good.Last, 1); err != nil || rest.Tables != 0 || rest.More {
		t.Errorf("behind the last one: %+v, %v", rest, err)
	}

	// Flip bytes from the beginning to the end of each file, each class of blocks among them.
	names, err := fs.List("data")
	if err != nil {
		t.Fatal(err)
	}
	flips := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		f, err := fs.OpenReadWrite(path.Join("data", name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		step := max(info.Size()/24, 1)
		for at := int64(0); at < info.Size(); at += step {
			b := make([]byte, 1)
			if _, err := f.ReadAt(b, at); err != nil {
				t.Fatal(err)
			}
			write := func(v byte) {
				if _, err := f.WriteAt([]byte{v}, at); err != nil {
					t.Fatal(err)
				}
			}
			write(b[0] ^ 0x20)
			found, err := s.CheckTables(t.Context(), "", 1<<40)
			if err != nil || len(found.Damaged) != 1 || !strings.Contains(found.Damaged[0].Where, name) {
				t.Errorf("byte %d of %d of %s: %+v, %v", at, info.Size(), name, found, err)
			}
			write(b[0])
			flips++
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if flips == 0 {
		t.Fatal("there are no tables")
	}
	if again, err := s.CheckTables(t.Context(), "", 1<<40); err != nil || len(again.Damaged) > 0 {
		t.Errorf("what is whole again: %+v, %v", again, err)
	}
}
