package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/storage/store"
)

func sorting(t *testing.T, budget int) (*sorter, vfs.FS) {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll("work", 0o700); err != nil {
		t.Fatal(err)
	}
	return newSorter(&workFolder{fs: fs, path: "work", check: func() error { return nil }}, budget), fs
}

// TestSorter sorts more than fits in memory, so much that files are merged to larger ones, and some of it twice.
func TestSorter(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ budget, records, distinct int }{
		{1 << 20, 100, 90}, {400, 5000, 3000}, {1, 200, 200}, {100, 0, 1}, {1 << 20, 0, 1},
	} {
		s, fs := sorting(t, c.budget)
		want := map[string]string{}
		for i := range c.records {
			n := rng.IntN(c.distinct)
			key := fmt.Sprintf("shared/%0*d", n%9, n) // some begin with others
			value := bytes.Repeat([]byte{byte(i)}, n%40)
			want[key] = string(value)
			if err := s.add([]byte(key), value[:len(value)/2], value[len(value)/2:]); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.settle(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var keys []string
			got := map[string]string{}
			if err := s.each(t.Context(), func(key, value []byte) error {
				keys = append(keys, string(key))
				got[string(key)] = string(value)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.IsSorted(keys) || len(keys) != len(want) || !maps.Equal(got, want) {
				t.Errorf("%+v: %d records, sorted: %v, want %d", c, len(keys), slices.IsSorted(keys), len(want))
			}
		}
		names, err := fs.List("work")
		if err != nil || len(names) > 3*maxRuns || c.budget < 1000 && c.records > 0 && len(names) == 0 {
			t.Errorf("%+v: %d files, %v", c, len(names), err)
		}
	}
}

// TestSorterFails sorts where there is no room, and where reading stops.
func TestSorterFails(t *testing.T) {
	t.Parallel()
	s, _ := sorting(t, 1)
	s.folder.check = func() error { return store.ErrFull }
	err := s.add([]byte("a"))
	for range 3 {
		err = errors.Join(err, s.add([]byte("b")))
	}
	if !errors.Is(err, store.ErrFull) || !errors.Is(s.settle(), store.ErrFull) {
		t.Errorf("without room: %v", err)
	}

	s, fs := sorting(t, 1)
	for _, key := range []string{"a", "b", "c"} {
		if err := s.add([]byte(key), make([]byte, 3*runBuffer)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.settle(); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	if err := s.each(t.Context(), func(_, _ []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("it goes on: %v", err)
	}
	f, err := fs.OpenReadWrite(s.runs[0][1], vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.WriteAt([]byte{0xff, 0xff, 0xff}, 0) // a length that is too long
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.each(t.Context(), func(_, _ []byte) error { return nil }); err == nil {
		t.Error("a damaged file is read")
	}
}
