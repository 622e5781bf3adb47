package pebble_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	engine "github.com/cockroachdb/pebble/v2"

	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

// TestEmptyingADamagedTable: of a table that has items of one space alone, and no others, not even its own index can be
// read. Nobody can read the space, until it is emptied: from then on nobody looks into that table, also after a
// restart.
func TestEmptyingADamagedTable(t *testing.T) {
	t.Parallel()
	const space store.Space = "places"
	dir := t.TempDir()
	open := func() *pebble.Store {
		t.Helper()
		s, err := pebble.Open(pebble.Options{Dir: dir, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	sides := []store.Side{
		{Op: store.Put, Space: "other", Key: "k", Value: []byte("v")},
		{Op: store.Put, Space: "queue", Key: "k", Value: []byte("v")},
	}
	for n := range 400 {
		sides = append(sides, store.Side{
			Op: store.Put, Space: space, Key: fmt.Sprintf("shop:%06d/a", n), Value: []byte(strings.Repeat("v", 300)),
		})
	}
	if err := s.Write(t.Context(), "a/prod", sides); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// Small tables, one of which loses its end.
	o := &engine.Options{FormatMajorVersion: engine.FormatNewest, Logger: mute{}}
	for i := range o.TargetFileSizes {
		o.TargetFileSizes[i] = 8 << 10
	}
	db, err := engine.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Fatal(err)
	}
	levels, err := db.SSTables()
	if err != nil {
		t.Fatal(err)
	}
	file := ""
	for _, tables := range levels {
		for _, table := range tables {
			if of := string(space) + "\x00"; strings.Contains(string(table.Smallest.UserKey), of) &&
				strings.Contains(string(table.Largest.UserKey), of) {
				file = filepath.Join(dir, fmt.Sprintf("%06d.sst", table.FileNum))
			}
		}
	}
	if err := db.Close(); err != nil || file == "" {
		t.Fatalf("no table has items of the space alone, %v", err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(content) * 3 / 4; i < len(content)-100; i += 20 {
		content[i] ^= 0x55
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}

	// It is damage, and is no more when the space is empty.
	s = open()
	_, err = s.Scan(t.Context(), "a/prod", space, store.Range{}, 1000)
	if _, is := errors.AsType[*store.CorruptionError](err); !is {
		t.Errorf("it can be read: %v", err)
	}
	if err := s.Empty(t.Context(), "a/prod", []store.Space{space}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), "a/prod", sides[200:210]); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if items, err := s.Scan(t.Context(), "a/prod", space, store.Range{}, 1000); err != nil || len(items) != 10 {
			t.Errorf("%d items, %v", len(items), err)
		}
		for _, beside := range []store.Space{"other", "queue"} {
			if _, err := s.Get(t.Context(), "a/prod", beside, "k"); err != nil {
				t.Errorf("%s: %v", beside, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// mute is a logger that says nothing.
type mute struct{}

// Infof says nothing.
func (mute) Infof(string, ...any) {}

// Errorf says nothing.
func (mute) Errorf(string, ...any) {}

// Fatalf ends the test.
func (mute) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
