//go:build !race

package pebble_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/storage/pebble"
)

// TestHarmBehindTheMark changes bytes of a log that the mark does not cover yet: what was acknowledged before the last
// writes is missed, wherever the damage is.
func TestHarmBehindTheMark(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	// A clock that stands still: the mark stays where the first write has put it.
	s := open(t, pebble.Options{Dir: "data", FS: fs})
	w := newWorkload(100)
	var lengths []int64
	for range 60 {
		if err := w.write(t, s); err != nil {
			t.Fatal(err)
		}
		info, err := fs.Stat(youngest(t, fs))
		if err != nil {
			t.Fatal(err)
		}
		lengths = append(lengths, info.Size())
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	closeStore(t, s)
	path := youngest(t, crashed)
	if lengths[2] < 1000 || lengths[len(lengths)-2] < 33<<10 {
		t.Fatalf("the log had %v bytes: the test needs more than a block", lengths)
	}
	damage := func(what string, do func(content []byte), says string) {
		t.Helper()
		clone := cloneFolder(t, crashed)
		content, err := clone.UnsafeGetFileDataBuffer(path)
		if err != nil {
			t.Fatal(err)
		}
		do(content)
		if !checkNothingMissing(t, clone, w) {
			t.Errorf("%s was not noticed", what)
		}
		if _, err := pebble.Open(pebble.Options{
			Dir: "data", FS: clone, Logger: quiet(),
		}); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "data/mark") {
			t.Errorf("%s: %v does not say %q", what, err, says)
		}
		if err := clone.Remove("data/mark"); err != nil {
			t.Fatal(err)
		}
	}

	// Each part of the header of a chunk in the last block, a byte of what it holds, and a sector of zeros across some.
	last := lengths[len(lengths)-8]
	behind := fmt.Sprintf("damaged at byte %d,", last)
	for at := range int64(25) {
		for bit := range 8 {
			damage(
				fmt.Sprintf("bit %d of byte %d of a chunk", bit, at),
				func(content []byte) { content[last+at] ^= 1 << bit }, behind,
			)
		}
	}
	damage("a sector", func(content []byte) { clear(content[last+5 : last+300]) }, behind)
	for at := lengths[2]; at < lengths[len(lengths)-6]; at += 97 {
		damage(fmt.Sprintf("byte %d of the log", at), func(content []byte) { content[at] ^= 0x10 }, "damaged at byte ")
	}

	// A log that ends early is one that a crash has cut, or that never got on.
	for at := lengths[0]; at < lengths[len(lengths)-1]; at += 911 {
		for _, zeros := range []bool{false, true} {
			clone := cloneFolder(t, crashed)
			content, err := clone.UnsafeGetFileDataBuffer(path)
			if err != nil {
				t.Fatal(err)
			}
			clear(content[at:])
			if content = slices.Clone(content[:at]); !zeros {
				rewrite(t, clone, path, content)
			}
			closeStore(t, open(t, pebble.Options{Dir: "data", FS: clone, Logger: quiet()}))
		}
	}
}
