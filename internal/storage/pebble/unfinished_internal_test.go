package pebble

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// countingFile counts the writes of a file, and fails one of them.
type countingFile struct {
	vfs.File
	writes, fails int
}

var errUnwritten = errors.New("not written")

func (f *countingFile) Write(p []byte) (int, error) {
	if f.writes++; f.writes == f.fails {
		return 0, errUnwritten
	}
	return f.File.Write(p)
}

// newUnfinishedTable returns a table in memory, what is below it, and a function that reads it.
func newUnfinishedTable(t *testing.T, fails int) (*unfinishedTable, *countingFile, func() []byte) {
	t.Helper()
	fs := vfs.NewMem()
	f, err := fs.Create("000001.sst", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	below := &countingFile{File: f, fails: fails}
	return &unfinishedTable{File: below}, below, func() []byte {
		f, err := fs.Open("000001.sst")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// TestUnfinishedTableGathers writes pieces of all sizes: they stand there as they were written, in few writes, once
// somebody syncs or closes the file.
func TestUnfinishedTableGathers(t *testing.T) {
	for _, end := range []func(f *unfinishedTable) error{
		(*unfinishedTable).Sync, (*unfinishedTable).SyncData, (*unfinishedTable).Close,
		func(f *unfinishedTable) error { _, err := f.SyncTo(1); return err },
	} {
		f, below, read := newUnfinishedTable(t, 0)
		random := rand.New(rand.NewPCG(1, 2))
		var want []byte
		for len(want) < 8*gatherBytes {
			p := bytes.Repeat([]byte{byte(len(want))}, 1+random.IntN([]int{9, 9000, 2 * gatherBytes}[random.IntN(3)]))
			want = append(want, p...)
			if n, err := f.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
			clear(p) // who has written may use it for something else
		}
		for range 1000 {
			want = append(want, 'x')
			if _, err := f.Write([]byte{'x'}); err != nil {
				t.Fatal(err)
			}
		}
		if err := end(f); err != nil {
			t.Fatal(err)
		}
		if got := read(); !bytes.Equal(got, want) {
			t.Errorf("%d bytes were written, and %d are there, or others", len(want), len(got))
		}
		if most := 2*len(want)/gatherBytes + 2; below.writes > most {
			t.Errorf("%d writes of %d bytes, more than %d", below.writes, len(want), most)
		}
	}
}

// TestUnfinishedTableFails lets a write fail: nothing is written behind it, and no sync says that all is there.
func TestUnfinishedTableFails(t *testing.T) {
	f, below, read := newUnfinishedTable(t, 2)
	p := bytes.Repeat([]byte("p"), gatherBytes/2+1)
	failed := error(nil)
	for range 8 {
		if _, err := f.Write(p); err != nil {
			failed = err
		}
	}
	if !errors.Is(failed, errUnwritten) {
		t.Errorf("the writes ended with %v", failed)
	}
	if err := f.Sync(); !errors.Is(err, errUnwritten) {
		t.Errorf("the sync ended with %v", err)
	}
	if _, err := f.SyncTo(1); !errors.Is(err, errUnwritten) {
		t.Errorf("the sync of a part ended with %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if below.writes != 2 || len(read()) != len(p) {
		t.Errorf("%d bytes in %d writes are there", len(read()), below.writes)
	}
}

// TestUnfinishedTableStaysFailed writes pieces that are not gathered, of which the first one fails: the next ones fail
// too.
func TestUnfinishedTableStaysFailed(t *testing.T) {
	f, below, _ := newUnfinishedTable(t, 1)
	for range 2 {
		if _, err := f.Write(make([]byte, gatherBytes)); !errors.Is(err, errUnwritten) {
			t.Errorf("the write ended with %v", err)
		}
	}
	if err := f.Sync(); !errors.Is(err, errUnwritten) {
		t.Errorf("the sync ended with %v", err)
	}
	if err := f.Close(); err != nil || below.writes != 1 {
		t.Errorf("%d writes, %v", below.writes, err)
	}
}
