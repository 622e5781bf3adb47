//go:build !race

package scrub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// newDamaged returns a fixture whose records can be changed, which is on the embedded store: its files are.
func newDamaged(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOn(t, testopen.Embedded(vfs.NewMem()))
}

// raw does something with the records of the store behind its back, while it is closed.
func (f *fixture) raw(t *testing.T, do func(db *engine.DB)) {
	t.Helper()
	f.close(t)
	db, err := engine.Open(
		"data", &engine.Options{FS: f.data.Disk(), FormatMajorVersion: engine.FormatNewest, Logger: quiet{}},
	)
	if err != nil {
		t.Fatal(err)
	}
	do(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	f.open(t)
}

// quiet is a logger that says nothing.
type quiet struct{}

// Infof says nothing.
func (quiet) Infof(string, ...any) {}

// Errorf says nothing.
func (quiet) Errorf(string, ...any) {}

// Fatalf ends the test.
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// record finds the record number n of a kind whose key has a text in it.
func record(t *testing.T, db *engine.DB, kind byte, in string, n int) (key, value []byte) {
	t.Helper()
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = it.Close() }()
	for it.First(); it.Valid(); it.Next() {
		if k := it.Key(); len(k) > 5 && k[3] > 0 && k[4] == kind && strings.Contains(string(k), in) {
			if n--; n < 0 {
				return bytes.Clone(k), bytes.Clone(it.Value())
			}
		}
	}
	t.Fatalf("there is no record of the kind %c with %q", kind, in)
	return nil, nil
}

// TestDamageIsFound changes what is stored, one byte at a time: in events, heads, entries of the feed and of tags,
// tiles of the log and kept states. Each change is found and named until it is no longer there.
func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	f := newDamaged(t)
	f.write(t, 1200)
	if _, err := f.logs.Upkeep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		kind byte
		in   string
		nth  int
		at   []int // negative ones from the end; none removes the record
		want string
	}{
		{"format, flags, position, time and layout of an event", 'e', "order\x0011", 2, []int{5, 28}, "order:11"},
		{"the bytes of an event", 'e', "order\x0011", 2, []int{-30}, "order:11"},
		{"no event", 'e', "order\x0011", 2, nil, "an event is missing"},
		{"length, chain, position and times of a head", 'h', "order\x0011", 0, []int{8, 40}, "order:11"},
		{"an entry of the feed", 'f', "", 2, []int{0}, "Tenant:ins_test/prod"},
		{"no entry of the feed", 'f', "", 2, nil, "1196 events"},
		{"an entry of tags", 'g', "", 2, []int{7}, "tags"},
		{"no entry of tags", 'g', "", 2, nil, "tags"},
		{"the head of the log", 'i', "envlog.head", 0, []int{-1}, "envlog.head"},
		{"the format of an item", 'i', "work", 2, []int{0}, "work"},
	} {
		at := tc.at
		if at == nil {
			at = []int{0}
		}
		for _, at := range at {
			var key, value []byte
			f.raw(t, func(db *engine.DB) {
				key, value = record(t, db, tc.kind, tc.in, tc.nth)
				changed := bytes.Clone(value)
				if at < 0 {
					at += len(changed)
				}
				if tc.at == nil {
					if err := db.Delete(key, engine.Sync); err != nil {
						t.Fatal(err)
					}
					return
				}
				changed[at] ^= 1
				if err := db.Set(key, changed, engine.Sync); err != nil {
					t.Fatal(err)
				}
			})
			st := f.pass(t)
			said := fmt.Sprintf("%+v", st.Damaged)
			if len(st.Damaged) == 0 || !strings.Contains(said, tc.want) {
				t.Errorf("%s, byte %d: found was %s", tc.name, at, said)
			}
			f.raw(t, func(db *engine.DB) {
				if err := db.Set(key, value, engine.Sync); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	if said := f.log.String(); !strings.Contains(said, `msg="stored data are damaged" what=event`) {
		t.Errorf("the log says %s", said)
	}
	if st := f.pass(t); len(st.Damaged) > 0 {
		t.Errorf("what is whole again: %+v", st.Damaged)
	}
}

// TestTheLogIsMadeAnew damages what follows from events: it is rebuilt, and nothing is damaged then. Where an event is
// damaged too it is not.
func TestTheLogIsMadeAnew(t *testing.T) {
	t.Parallel()
	f := newDamaged(t)
	f.write(t, 1200)
	if _, err := f.logs.Upkeep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	harm := func(kind byte, in string, nth int, do func(value []byte) []byte) {
		t.Helper()
		f.raw(t, func(db *engine.DB) {
			key, value := record(t, db, kind, in, nth)
			var err error
			if value = do(value); value == nil {
				err = db.Delete(key, engine.Sync)
			} else {
				err = db.Set(key, value, engine.Sync)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	flip := func(at int) func([]byte) []byte {
		return func(value []byte) []byte {
			value[(at+len(value))%len(value)] ^= 1
			return value
		}
	}
	gone := func([]byte) []byte { return nil }
	for name, do := range map[string]func(){
		"no positions": func() { harm('i', "envlog.positions", 3, gone) },
		"several": func() {
			harm('i', "envlog.tiles\x0000/", 0, flip(-1))
			harm('i', "envlog.tiles\x0000/", 3, gone)
			harm('i', "envlog.positions", 2, flip(40))
		},
	} {
		do()
		st := f.pass(t)
		if name == "no positions" { // nobody misses them before somebody asks
			if _, err := f.logs.Repair(t.Context(), tenant); err != nil {
				t.Error(err)
			}
		}
		if len(st.Damaged) > 0 {
			t.Errorf("%s: %+v", name, st.Damaged)
		}
		for index := uint64(0); index < 1200; index += 50 {
			if _, err := f.logs.Include(t.Context(), tenant, index, nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n, err := f.logs.Repair(t.Context(), tenant); n != 0 || err != nil {
			t.Errorf("%s: %d items are still damaged, %v", name, n, err)
		}
	}
	if said := f.log.String(); !strings.Contains(said, "rebuilt from its events") {
		t.Errorf("the log says %s", said)
	}

	// Of other events there would be another log.
	harm('i', "envlog.tiles\x0000/", 2, flip(30))
	harm('e', "order\x0011", 2, flip(-30))
	if st := f.pass(t); !strings.Contains(fmt.Sprintf("%+v", st.Damaged), "order:11") {
		t.Errorf("%+v", st.Damaged)
	}
	n, err := f.logs.Repair(t.Context(), tenant)
	if _, damaged := errors.AsType[*store.CorruptionError](err); !damaged || n != 0 {
		t.Errorf("%d items, %v", n, err)
	}
	if _, err := f.logs.Include(t.Context(), tenant, 600, nil); err == nil {
		t.Error("a damaged tile is served")
	}
}

// TestItemsOfTheLogAreMendedTogether damages several items of a log that one repair mends, with one in front of them
// that is none of the log: that one alone is damaged then. Where the log cannot be repaired, that is found out once in
// a pass.
func TestItemsOfTheLogAreMendedTogether(t *testing.T) {
	t.Parallel()
	f := newDamaged(t)
	f.write(t, 1280)
	if _, err := f.logs.Upkeep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	flip := func(db *engine.DB, kind byte, in string, nth, at int) {
		key, value := record(t, db, kind, in, nth)
		value[(at+len(value))%len(value)] ^= 1
		if err := db.Set(key, value, engine.Sync); err != nil {
			t.Fatal(err)
		}
	}
	several := func(db *engine.DB) {
		for nth := range 3 {
			flip(db, 'i', "envlog.positions", nth, 40)
		}
	}
	f.raw(t, several)
	f.whole = 0
	if st := f.pass(t); len(st.Damaged) > 0 || f.whole != 1 {
		t.Errorf("after %d repairs: %+v", f.whole, st.Damaged)
	}

	// One that is none of the log, in front of one that is.
	stray := store.Side{Op: store.Put, Space: "envlog.positions", Key: "0", Value: []byte("not sealed")}
	if err := f.store.Write(t.Context(), tenant, []store.Side{stray}); err != nil {
		t.Fatal(err)
	}
	f.raw(t, func(db *engine.DB) { flip(db, 'i', "envlog.positions", 3, 40) })
	if st := f.pass(t); len(st.Damaged) != 1 || !strings.Contains(st.Damaged[0].Where, "envlog.positions/0") {
		t.Errorf("%+v", st.Damaged)
	}

	// Of an event that is another one there is no log to be made.
	f.raw(t, several)
	f.raw(t, func(db *engine.DB) { flip(db, 'e', "order\x0011", 2, -30) })
	f.whole = 0
	if st := f.pass(t); len(st.Damaged) < 4 || f.whole != 1 {
		t.Errorf("after %d repairs: %+v", f.whole, st.Damaged)
	}
}

// TestALongStreamIsGoneOnWith has each round be another process's: the end of a long stream is looked at nevertheless.
func TestALongStreamIsGoneOnWith(t *testing.T) {
	t.Parallel()
	f := newDamaged(t)
	var unit store.Append
	for range 150 {
		unit.Events = append(unit.Events, store.NewEvent{
			Key: j17.Key{Type: "order", ID: "long"}, Type: "was_made",
			Data: []byte(`"` + strings.Repeat("x", 10_000) + `"`), Metadata: []byte(`{}`),
		})
	}
	if _, err := f.store.Append(t.Context(), tenant, []store.Append{unit}); err != nil {
		t.Fatal(err)
	}
	f.raw(t, func(db *engine.DB) {
		key, value := record(t, db, 'h', "order\x00long", 0)
		value[12] ^= 1 // of its chain
		if err := db.Set(key, value, engine.Sync); err != nil {
			t.Fatal(err)
		}
	})
	f.Begin()
	over, end := context.WithCancel(t.Context())
	end()
	for range 100 {
		if err := f.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := f.Status(); st.Last != nil {
			if said := fmt.Sprintf("%+v", st.Damaged); !strings.Contains(said, "order:long") || st.Last.Streams != 1 {
				t.Errorf("%d streams, found was %s", st.Last.Streams, said)
			}
			return
		}
		if err := f.Run(over); err != nil {
			t.Fatal(err)
		}
		f.close(t)
		f.open(t)
	}
	t.Error("the pass has no end")
}
