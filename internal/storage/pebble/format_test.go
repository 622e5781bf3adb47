package pebble_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

const formatVersion = 4

var update = flag.Bool("update", false, "write the frozen store of this format version anew")

// frozenStore is the folder of the present format version, and beside it is what it holds. Those of the earlier
// versions stay there, as they are.
const (
	frozenStore = "testdata/format4"
	frozenDump  = frozenStore + ".dump"
)

// frozenTime is before all expiry times of the frozen store.
func frozenTime() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// TestFrozen opens stores that earlier versions of this package have written. When a change of the format makes it
// fail, the format version must change, and the program must still be able to read these.
func TestFrozen(t *testing.T) {
	t.Parallel()
	if *update {
		freeze(t)
	}
	folders, err := filepath.Glob("testdata/format?")
	if err != nil || len(folders) != formatVersion || folders[formatVersion-1] != frozenStore {
		t.Fatal(folders, err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) { testFrozen(t, folder) })
	}
}

func testFrozen(t *testing.T, folder string) {
	t.Helper()
	fs := vfs.NewMem()
	if ok, err := vfs.Clone(vfs.Default, fs, folder, "data"); err != nil || !ok {
		t.Fatalf("copy the frozen store: %v, %v", ok, err)
	}
	var told bytes.Buffer
	t.Cleanup(func() { // the store is closed then, and nothing writes to its log any longer
		if warned := strings.Contains(told.String(), "only a backup leads back"); warned == (folder == frozenStore) {
			t.Errorf("whether there is no way back: %s", told.String())
		}
	})
	s := open(t, pebble.Options{
		Dir: "data", FS: fs, Clock: clock.NewManual(frozenTime()), Logger: slog.New(slog.NewTextHandler(&told, nil)),
	})
	stored, err := os.ReadFile(folder + ".dump")
	if err != nil {
		t.Fatal(err)
	}
	got, err := storetest.Dump(t.Context(), s, tenant)
	if err != nil || got != string(stored) {
		t.Errorf("what the frozen store holds has changed: %v\n%s\nwant\n%s", err, got, stored)
	}

	// A copy is the same, but for what was erased before there were generations, which gets one.
	if err := storetest.Copy(t.Context(), s, tenant, s, "copy"); err != nil {
		t.Error(err)
	}
	if copied, err := storetest.Dump(t.Context(), s, "copy"); err != nil || folder == frozenStore && copied != got {
		t.Errorf("the copy holds: %v\n%s\nwant\n%s", err, copied, got)
	}
	feed := 0
	for e, err := range s.ReadFeed(t.Context(), tenant, j17.StreamID{}, 100) {
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(stored, append(e.Raw, '\n')) {
			t.Errorf("the file does not hold %s", e.Raw)
		}
		feed++
	}
	if feed != 24 {
		t.Errorf("%d events in the feed, want 24", feed)
	}
	r, err := s.Command(t.Context(), tenant, store.CommandID{5})
	if err != nil || r == nil || string(r.Memo) != "memo" || len(r.IDs) != 2 {
		t.Errorf("command %+v, %v", r, err)
	}
	due, err := s.ClaimDue(t.Context(), tenant, store.Claim{Space: "work", Limit: 9, Lease: time.Minute})
	if err != nil || len(due) != 1 || due[0].Key != "job" {
		t.Errorf("due work %v, %v", due, err)
	}
	if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: events(key("1"), `1`, `2`, `3`)}}); err != nil {
		t.Errorf("append: %v", err)
	}
	if n := len(feedOf(t, s)); n != 27 {
		t.Errorf("%d events in the feed after an append, want 27", n)
	}
	if err := dump(t, s); err != nil {
		t.Errorf("after an append: %v", err)
	}
	closeStore(t, s)
	raw(t, fs, func(db *engine.DB) {
		v, closer, err := db.Get([]byte("\x00\x00\x00\x00v"))
		if err != nil || !bytes.Equal(v, []byte{0, 0, 0, formatVersion}) {
			t.Errorf("format version %x, %v", v, err)
		}
		_ = closer.Close()
	})
}

// freeze writes the frozen store and what it holds.
func freeze(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	c := clock.NewManual(frozenTime().Add(-time.Hour))
	s := open(t, pebble.Options{Dir: dir, Clock: c})
	for n := range 11 {
		c.Advance(time.Millisecond)
		u := store.Append{
			Timestamp: c.Now().Unix(), Command: &store.Command{
				ID: store.CommandID{byte(n)}, Memo: []byte("memo"), Expires: frozenTime().Add(time.Hour),
			},
			Events: append(
				events(key("1"), `{"n":1.50}`), events(j17.Key{Type: "user", ID: string(rune('a' + n%3))}, `null`)...,
			),
			Side: []store.Side{{
				Op: store.Put, Space: space, Key: string(rune('a' + n%5)), Value: []byte{0, byte(n)},
				Expires: frozenTime().Add(time.Hour),
			}},
		}
		u.Events[0].Metadata = []byte(`{"actor":{"type":"user","id":"u1"},"correlation_id":"a0000000-0000-4000-a000-000000000001"}`)
		u.Events[0].Tags = []string{
			"actor:user:u1", j17.CorrelationTag("a0000000-0000-4000-a000-000000000001"), "sku:A",
		}
		if _, err := s.Append(t.Context(), tenant, []store.Append{u}); err != nil {
			t.Fatal(err)
		}
		if n == 6 {
			// The rest stays in the log.
			rewritten := []store.Rewritten{{Version: 2, Type: "was_erased", Data: []byte(`{}`), Metadata: []byte(`{}`)}}
			if err := storetest.Erase(t.Context(), s, tenant, key("1"), rewritten); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := store.Append{
		Events: append(events(key("2"), `"é"`), events(key("3"), `[]`)...),
		Side:   []store.Side{{Op: store.Put, Space: "work", Key: "job", Due: frozenTime()}},
	}
	if _, err := s.Append(t.Context(), tenant, []store.Append{last}); err != nil {
		t.Fatal(err)
	}
	text, err := storetest.Dump(t.Context(), s, tenant)
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	for _, name := range []string{"LOCK", "ballast"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	err = errors.Join(
		os.RemoveAll(frozenStore), os.CopyFS(frozenStore, os.DirFS(dir)), os.WriteFile(frozenDump, []byte(text), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// raw opens the store's files with Pebble, to look at keys and values or to spoil them.
func raw(t *testing.T, fs vfs.FS, do func(*engine.DB)) {
	t.Helper()
	db, err := engine.Open("data", &engine.Options{
		FS: fs, Logger: silent{}, FormatMajorVersion: engine.FormatTableFormatV6,
	})
	if err != nil {
		t.Fatal(err)
	}
	do(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

// written returns a file system with a closed store: 5 events in order:a and one in order:b, tenant number 1.
func written(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.NewManual(frozenTime())})
	for _, list := range [][]store.NewEvent{events(key("a"), `1`, `2`, `3`, `4`, `5`), events(key("b"), `1`)} {
		_, err := s.Append(t.Context(), tenant, []store.Append{{Events: list, Side: []store.Side{
			{Op: store.Put, Space: space, Key: "k", Value: []byte("v"), Due: frozenTime().Add(-time.Hour)},
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	return fs
}

// eventKey builds a key as docs/storage-format.md describes it.
func eventKey(id string, version uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("\x00\x00\x00\x01eorder\x00"+id+"\x00"), version)
}

func feedEntryKey(number uint32) []byte {
	key := binary.BigEndian.AppendUint64([]byte("\x00\x00\x00\x01f"), uint64(frozenTime().UnixMilli()))
	return binary.BigEndian.AppendUint32(key, number)
}

// TestDocumentedFormat reads the files with nothing but what docs/storage-format.md says.
func TestDocumentedFormat(t *testing.T) {
	t.Parallel()
	get := func(db *engine.DB, key []byte) []byte {
		v, closer, err := db.Get(key)
		if err != nil {
			t.Fatalf("key %q: %v", key, err)
		}
		defer func() { _ = closer.Close() }()
		return bytes.Clone(v)
	}
	raw(t, written(t), func(db *engine.DB) {
		if v := get(db, []byte("\x00\x00\x00\x00v")); !bytes.Equal(v, []byte{0, 0, 0, formatVersion}) {
			t.Errorf("format version %x", v)
		}
		if v := get(db, []byte("\x00\x00\x00\x00tshop/prod")); !bytes.Equal(v, []byte{0, 0, 0, 1}) {
			t.Errorf("tenant number %x", v)
		}
		var chain [32]byte
		for version := range uint64(5) {
			v := get(db, eventKey("a", version+1))
			if v[0] != 1 || v[1] != 0 || v[30] != 0 {
				t.Errorf("header %x", v[:31])
			}
			ms, seq := binary.BigEndian.Uint64(v[2:]), binary.BigEndian.Uint32(v[10:])
			if ms != uint64(frozenTime().UnixMilli()) || uint64(seq) != version {
				t.Errorf("position %d-%d", ms, seq)
			}
			canonical := v[31:]
			data, metadata := binary.BigEndian.Uint32(v[22:]), binary.BigEndian.Uint32(v[26:])
			if got := string(canonical[data : metadata-12]); got != string(rune('1'+version)) {
				t.Errorf("data %s", got)
			}
			if got := string(canonical[metadata : len(canonical)-1]); got != `{"timestamp":0}` {
				t.Errorf("metadata %s", got)
			}
			leaf := sha256.Sum256(v[30:])
			chain = sha256.Sum256(append(chain[:], leaf[:]...))
		}
		run := []byte{0}
		for version := range uint64(5) {
			reference := eventKey("a", version+1)[5:]
			run = append(append(run, byte(len(reference))), reference...)
		}
		if v := get(db, feedEntryKey(4)); !bytes.Equal(v, run) {
			t.Errorf("feed entry of a run %q", v)
		}
		if v := get(db, feedEntryKey(5)); !bytes.Equal(v, eventKey("b", 1)[5:]) {
			t.Errorf("feed entry %q", v)
		}
		head := get(db, []byte("\x00\x00\x00\x01horder\x00a"))
		if len(head) != 69 || binary.BigEndian.Uint64(head[1:]) != 5 || !bytes.Equal(head[9:41], chain[:]) {
			t.Errorf("head %x", head)
		}
		item := get(db, []byte("\x00\x00\x00\x01inotes\x00k"))
		if item[0] != 1 || binary.BigEndian.Uint64(item[1:]) != 2 || string(item[25:]) != "v" {
			t.Errorf("item %x", item)
		}
		due := binary.BigEndian.AppendUint64(
			[]byte("\x00\x00\x00\x01dnotes\x00"), uint64(frozenTime().Add(-time.Hour).UnixNano()),
		)
		get(db, append(due, 'k'))
		state := get(db, []byte("\x00\x00\x00\x01s"))
		if len(state) != 45 || binary.BigEndian.Uint64(state[37:]) != 2 || binary.BigEndian.Uint64(state[21:]) != 2 ||
			binary.BigEndian.Uint64(state[29:]) != 6 {
			t.Errorf("state %x", state)
		}
	})
}

// dump reads all that the tenant holds, and tells whether it fits.
func dump(t *testing.T, s store.Store) error {
	t.Helper()
	_, err := storetest.Dump(t.Context(), s, tenant)
	return err
}

func feedOf(t *testing.T, s store.Store) []string {
	t.Helper()
	var list []string
	for e, err := range s.ReadFeed(t.Context(), tenant, j17.StreamID{}, 1<<30) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(e.Raw))
	}
	return list
}

func TestNewerFormat(t *testing.T) {
	t.Parallel()
	fs := written(t)
	raw(t, fs, func(db *engine.DB) {
		if err := db.Set([]byte("\x00\x00\x00\x00v"), []byte{0, 0, 0, formatVersion + 1}, engine.Sync); err != nil {
			t.Fatal(err)
		}
	})
	s, err := pebble.Open(pebble.Options{Dir: "data", FS: fs})
	if err == nil {
		closeStore(t, s)
		t.Fatal("a store of a newer format was opened")
	}
	if !strings.Contains(err.Error(), fmt.Sprintf("storage format %d", formatVersion+1)) ||
		!strings.Contains(err.Error(), "newer j17") {
		t.Errorf("error %q does not say what to do", err)
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	for name, fs := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "deep", "data")
			s := open(t, pebble.Options{Dir: dir, FS: fs})
			if second, err := pebble.Open(pebble.Options{Dir: dir, FS: fs}); err == nil {
				closeStore(t, second)
				t.Error("the folder was opened twice")
			} else if !strings.Contains(err.Error(), "in use by another j17") || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %q does not say that another process uses the folder", err)
			}
			closeStore(t, s)
			closeStore(t, open(t, pebble.Options{Dir: dir, FS: fs}))
		})
	}

	// The folder is locked also where its lock file has been removed. Another name of it is what another process would
	// use.
	if runtime.GOOS != "windows" {
		dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
		s := open(t, pebble.Options{Dir: dir})
		if err := errors.Join(os.Remove(filepath.Join(dir, "LOCK")), os.Symlink(dir, other)); err != nil {
			t.Fatal(err)
		}
		if second, err := pebble.Open(pebble.Options{Dir: other}); err == nil {
			closeStore(t, second)
			t.Error("a folder without its lock file was opened twice")
		} else if !strings.Contains(err.Error(), "in use by another j17") {
			t.Error(err)
		}
		closeStore(t, s)
		closeStore(t, open(t, pebble.Options{Dir: other}))
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := pebble.Open(pebble.Options{Dir: file}); err == nil {
		closeStore(t, s)
		t.Error("a file was opened as a folder")
	}
}
