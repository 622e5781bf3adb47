//go:build !race

package pebble_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

// TestContradictions spoils single records. Whoever reads them must hear of it.
func TestContradictions(t *testing.T) {
	t.Parallel()
	change := func(key []byte, change func([]byte) []byte) func(*engine.DB) error {
		return func(db *engine.DB) error {
			v, closer, err := db.Get(key)
			if err != nil {
				return err
			}
			v = change(bytes.Clone(v))
			return errors.Join(closer.Close(), db.Set(key, v, engine.Sync))
		}
	}
	flip := func(at int) func([]byte) []byte {
		return func(v []byte) []byte {
			v[at] ^= 1
			return v
		}
	}
	cut := func(n int) func([]byte) []byte { return func(v []byte) []byte { return v[:n] } }
	remove := func(key []byte) func(*engine.DB) error {
		return func(db *engine.DB) error { return db.Delete(key, engine.Sync) }
	}
	headKey := []byte("\x00\x00\x00\x01horder\x00a")
	itemKey := []byte("\x00\x00\x00\x01inotes\x00k")
	runKey, feedKey := feedEntryKey(4), feedEntryKey(5)

	const stream, feed, all, append_, item, due, after = "stream", "feed", "all", "append", "item", "due", "after"
	for name, c := range map[string]struct {
		spoil  func(*engine.DB) error
		detect []string
	}{
		"first event missing":  {remove(eventKey("a", 1)), []string{stream, feed, all}},
		"middle event missing": {remove(eventKey("a", 3)), []string{stream, feed, all, after}},
		"last event missing":   {remove(eventKey("a", 5)), []string{stream, feed, all}},
		"event cut":            {change(eventKey("a", 3), cut(20)), []string{stream, feed, all, after}},
		"event empty":          {change(eventKey("a", 3), cut(0)), []string{stream, feed, all, after}},
		"event without end":    {change(eventKey("a", 3), cut(60)), []string{stream, feed, all, after}},
		"unknown format":       {change(eventKey("a", 3), flip(0)), []string{stream, feed, all, after}},
		"unknown flag": {
			change(eventKey("a", 3), func(v []byte) []byte { v[1] = 8; return v }), []string{stream, feed, all, after},
		},
		"rewritten by mistake": {change(eventKey("a", 3), flip(1)), []string{stream, feed, all, after}},
		"no zero byte":         {change(eventKey("a", 3), flip(30)), []string{stream, feed, all, after}},
		"place of data":        {change(eventKey("a", 3), flip(25)), []string{stream, feed, all, after}},
		"place of metadata": {
			change(eventKey("a", 3), func(v []byte) []byte { v[26] = 0xff; return v }),
			[]string{stream, feed, all, after},
		},
		"position":           {change(eventKey("a", 3), flip(13)), []string{feed}},
		"last position":      {change(eventKey("a", 5), flip(13)), []string{stream, feed}},
		"data":               {change(eventKey("a", 3), flip(31+75)), []string{all}},
		"head longer":        {change(headKey, flip(7)), []string{stream, all, after}},
		"head cut":           {change(headKey, cut(30)), []string{stream, all, append_, after}},
		"chain":              {change(headKey, flip(20)), []string{all}},
		"feed entry missing": {remove(feedKey), []string{all}},
		"feed entry cut":     {change(feedKey, cut(4)), []string{feed}},
		"feed entry empty":   {change(feedKey, cut(0)), []string{feed, all}},
		"feed entry astray":  {change(feedKey, flip(15)), []string{feed}},
		"run missing":        {remove(runKey), []string{all}},
		"run cut":            {change(runKey, cut(40)), []string{feed, all}},
		"run shorter": {
			change(runKey, func(v []byte) []byte { return v[:1+(len(v)-1)/5*4] }), []string{feed, all},
		},
		"run of one":       {change(runKey, func(v []byte) []byte { return v[:1+(len(v)-1)/5] }), []string{feed, all}},
		"run of none":      {change(runKey, cut(1)), []string{feed, all}},
		"run astray":       {change(runKey, flip(17)), []string{feed}},
		"run length":       {change(runKey, func(v []byte) []byte { v[1] = 0xff; return v }), []string{feed, all}},
		"item":             {change(itemKey, cut(7)), []string{item, all, due}},
		"due item missing": {remove(itemKey), []string{due}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := written(t)
			raw(t, fs, func(db *engine.DB) {
				if err := c.spoil(db); err != nil {
					t.Fatal(err)
				}
			})
			s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.NewManual(frozenTime())})
			defer closeStore(t, s)
			got := map[string]error{}
			for _, err := range s.ReadStream(t.Context(), tenant, key("a"), 1, 0) {
				got[stream] = err
			}
			for _, err := range s.ReadFeed(t.Context(), tenant, j17.StreamID{}, 100) {
				got[feed] = err
			}
			got[all] = dump(t, s)
			_, got[after] = s.VersionAfter(t.Context(), tenant, key("a"), j17.StreamID{
				Ms: frozenTime().UnixMilli(), Seq: 1,
			})
			_, got[append_] = s.Append(t.Context(), tenant, []store.Append{
				{Pre: []store.Pre{{Key: key("a"), Length: 1}}},
			})
			if _, err := s.Get(t.Context(), tenant, space, "k"); !errors.Is(err, store.ErrNotFound) {
				got[item] = err
			}
			_, got[due] = s.ClaimDue(t.Context(), tenant, store.Claim{Space: space, Limit: 5, Lease: time.Minute})
			for _, what := range c.detect {
				var corrupt *store.CorruptionError
				if !errors.As(got[what], &corrupt) && (what != due || got[what] == nil) {
					t.Errorf("%s: %v, want a CorruptionError", what, got[what])
				}
				delete(got, what)
			}
			for what, err := range got {
				if err != nil && what != all {
					t.Errorf("%s: %v", what, err)
				}
			}
			// The neighbour is untouched.
			n := 0
			for _, err := range s.ReadStream(t.Context(), tenant, key("b"), 1, 0) {
				if err == nil {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%d events in the other stream", n)
			}
		})
	}
}

// TestDamagedFiles flips bits in the files. A damaged store may refuse to open, fail to read, or have lost the end of a
// log that it cannot tell from one that was never finished; it must not serve anything that was not written.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	base := vfs.NewMem()
	w := newWorkload(50)
	s := open(t, pebble.Options{Dir: "data", FS: base})
	for range 40 {
		if err := w.write(t, s); err != nil {
			t.Fatal(err)
		}
	}
	good := feedOf(t, s)
	closeStore(t, s)
	// The second opening moves all from the log to tables.
	closeStore(t, open(t, pebble.Options{Dir: "data", FS: base}))
	rng := rand.New(rand.NewPCG(7, 7))
	names, err := base.List("data")
	if err != nil {
		t.Fatal(err)
	}
	detected := 0
	for _, name := range names {
		if name == "LOCK" {
			continue
		}
		for range 25 {
			fs := vfs.NewMem()
			if _, err := vfs.Clone(base, fs, "data", "data"); err != nil {
				t.Fatal(err)
			}
			content, err := fs.UnsafeGetFileDataBuffer("data/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if len(content) == 0 {
				break
			}
			content[rng.IntN(len(content))] ^= 1 << rng.IntN(8)
			s, err := pebble.Open(pebble.Options{Dir: "data", FS: fs, Logger: quiet()})
			if err != nil {
				detected++
				continue
			}
			n := 0
			for e, err := range s.ReadFeed(t.Context(), tenant, j17.StreamID{}, 1<<30) {
				if err != nil {
					detected++
					break
				}
				if n >= len(good) || string(e.Raw) != good[n] {
					t.Fatalf("a damaged %s makes the store serve %s", name, e.Raw)
				}
				n++
			}
			if err := s.Close(); err != nil {
				detected++
			}
		}
	}
	if detected == 0 {
		t.Error("no damage was noticed")
	}
}

// TestHarmAfterCleanStop harms the logs of a store that was closed: nothing of it matters, since everything is in
// tables.
func TestHarmAfterCleanStop(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	w := newWorkload(500)
	for range 3 {
		s := open(t, pebble.Options{Dir: "data", FS: fs})
		for range 30 {
			if err := w.write(t, s); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
	}
	for name, harm := range harms() {
		for _, path := range filesOf(t, fs, ".log", ".sst", "mark") {
			clone := cloneFolder(t, fs)
			if !harm(t, clone, path) {
				continue
			}
			refused := checkNothingMissing(t, clone, w)
			if refused && strings.HasSuffix(path, ".log") {
				t.Errorf("%s was %s, and the store does not open although nothing is missing", path, name)
			}
		}
	}
}

// TestOlderTables puts the files of an earlier clean stop in the place of those of a later one, but for the mark.
func TestOlderTables(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	w := newWorkload(100)
	write := func() {
		s := open(t, pebble.Options{Dir: "data", FS: fs})
		if err := w.write(t, s); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
	}
	write()
	older := cloneFolder(t, fs)
	write()
	if _, err := vfs.Clone(fs, older, "data/mark", "data/mark"); err != nil {
		t.Fatal(err)
	}
	if !checkNothingMissing(t, older, w) {
		t.Error("the folder of an earlier stop was opened")
	}
}

// TestDamagedMark damages the mark itself: where one of its two places is whole that is enough.
func TestDamagedMark(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	w := newWorkload(100)
	s := open(t, pebble.Options{Dir: "data", FS: fs})
	for range 3 {
		if err := w.write(t, s); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	for slots, want := range map[int]bool{1: false, 2: true} {
		clone := cloneFolder(t, fs)
		content, err := clone.UnsafeGetFileDataBuffer("data/mark")
		if err != nil {
			t.Fatal(err)
		}
		for i := range slots {
			content[i*4096+20] ^= 1
		}
		if refused := checkNothingMissing(t, clone, w); refused != want {
			t.Errorf("%d places of the mark are damaged: refused %v", slots, refused)
		}
	}
}
