package pebble_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// secret is what must not be found any more. It is made of parts that compression cannot shorten.
const secret = "Zx9-Quetzalcoatl-7781-Myxomatosis-Brindle"

// holding returns the files of a folder that hold the secret, as they are or in compressed blocks.
func holding(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		// Compression keeps a text without repetitions in pieces; the shortest one that is telling will do.
		if bytes.Contains(content, []byte(secret)) || bytes.Contains(content, []byte("Quetzalcoatl")) {
			found = append(found, filepath.Base(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func erase(versions ...uint64) []store.Rewritten {
	var list []store.Rewritten
	for _, v := range versions {
		list = append(list, store.Rewritten{
			Version: v, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`),
		})
	}
	return list
}

// TestErasedTags looks through all files for tags of an event that was erased: those that it was written with and has
// lost to others before, and those that it got later.
func TestErasedTags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, pebble.Options{Dir: dir})
	retag := func(tags ...string) {
		t.Helper()
		if err := s.Retag(t.Context(), tenant, []store.Retagged{{Key: key("a"), Version: 1, Tags: tags}}); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		s = open(t, pebble.Options{Dir: dir})
	}
	list := append(events(key("a"), `"before"`), events(key("other"), `1`)...)
	list[0].Tags = []string{"was:" + secret}
	if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: list}}); err != nil {
		t.Fatal(err)
	}
	retag("is:none")
	retag("is:"+secret, "again:"+secret)
	if len(holding(t, dir)) == 0 {
		t.Fatal("the secret was nowhere before it was erased")
	}
	if err := storetest.Erase(t.Context(), s, tenant, key("a"), erase(1)); err != nil {
		t.Fatal(err)
	}
	if found := holding(t, dir); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
	for _, tag := range []string{"was:" + secret, "is:" + secret, "is:none"} {
		for ev, err := range s.ReadTagged(
			t.Context(), tenant, store.Tagged{Tags: []string{tag}}, j17.StreamID{}, 10, nil,
		) {
			t.Errorf("%s has the tag %s, %v", ev.Raw, tag, err)
		}
	}
	closeStore(t, s)
}

// eraseAndLook erases the secret while others read and write.
func eraseAndLook(t *testing.T, dir string, s *pebble.Store) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				for _, err := range s.ReadStream(t.Context(), tenant, key("a"), 1, 0) {
					if err != nil {
						t.Errorf("read: %v", err)
						return
					}
				}
				if _, err := s.Append(t.Context(), tenant, []store.Append{
					{Events: events(key(fmt.Sprint("w", n)), `1`)},
				}); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	for _, err := range s.ReadStream(t.Context(), tenant, key("a"), 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
	}
	err := storetest.Erase(t.Context(), s, tenant, key("a"), erase(2, 4))
	found := holding(t, dir)
	stop()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
	for e, err := range s.ReadStream(t.Context(), tenant, key("a"), 1, 0) {
		if err != nil || strings.Contains(string(e.Raw), secret) {
			t.Errorf("version %d: %v, %s", e.Version, err, e.Raw)
		}
	}
}

// fillLog writes bytes without the secret that cannot be compressed.
func fillLog(t *testing.T, s *pebble.Store, n, size int) {
	t.Helper()
	rng := rand.NewChaCha8([32]byte{byte(n)})
	noise := make([]byte, size/2)
	if _, err := rng.Read(noise); err != nil {
		t.Fatal(err)
	}
	data := `"` + hex.EncodeToString(noise) + `"`
	if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: events(key("filler"), data)}}); err != nil {
		t.Fatal(err)
	}
}

// TestSlowReadersSeeNothingErased erases what slow readers have begun to read: the erasure waits for nobody, and from
// its end on none of them gets to see what is gone, whatever was read ahead for him.
func TestSlowReadersSeeNothingErased(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, pebble.Options{Dir: dir})
	defer closeStore(t, s)
	hidden := `"` + secret + `"`
	if _, err := s.Append(t.Context(), tenant, []store.Append{
		{Events: events(key("a"), `1`, hidden, hidden, `4`)},
	}); err != nil {
		t.Fatal(err)
	}
	nextEvent, stop := iter.Pull2(s.ReadStream(t.Context(), tenant, key("a"), 1, 0))
	defer stop()
	nextFeed, stopFeed := iter.Pull2(s.ReadFeed(t.Context(), tenant, j17.StreamID{}, 9))
	defer stopFeed()
	for _, read := range []func() (*j17.Event, error, bool){nextEvent, nextFeed} {
		if e, err, ok := read(); !ok || err != nil || e.Version != 1 {
			t.Fatal(e, err, ok)
		}
	}
	if err := storetest.Erase(t.Context(), s, tenant, key("a"), erase(2, 3)); err != nil {
		t.Fatal(err)
	}
	if found := holding(t, dir); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
	for _, read := range []func() (*j17.Event, error, bool){nextEvent, nextFeed} {
		for version := uint64(2); version <= 4; version++ {
			e, err, ok := read()
			if !ok || err != nil || e.Version != version || (string(e.Data) == "null") != (version < 4) {
				t.Fatalf("version %d reads as %+v, %v, %v", version, e, err, ok)
			}
		}
		if _, err, ok := read(); ok || err != nil {
			t.Errorf("more than there is: %v, %v", err, ok)
		}
	}
}

// TestErasedItems erases a stream together with the side items that hold data of it, some of which were written over
// before.
func TestErasedItems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, pebble.Options{Dir: dir})
	defer func() { closeStore(t, s) }()
	spaces := []store.Declared{{Space: "states", OfStreams: true}, {Space: "rows", OfStreams: true}}
	hidden := `"` + secret + `"`
	side := func(op store.SideOp, key, value string) store.Side {
		return store.Side{Op: op, Space: "states", Key: key, Value: []byte(value)}
	}
	put := []store.Side{
		side(store.Put, "order:a", hidden), side(store.Put, "order:a/7", hidden), side(store.Put, "order:b", "kept"),
	}
	tagged := events(key("a"), hidden)
	tagged[0].Tags = []string{"sku:A"}
	if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: tagged, Side: put}}); err != nil {
		t.Fatal(err)
	}
	// Into tables, and a part of it written over.
	closeStore(t, s)
	s = open(t, pebble.Options{Dir: dir})
	if err := s.Write(t.Context(), tenant, []store.Side{side(store.Put, "order:a", "2")}); err != nil {
		t.Fatal(err)
	}
	held, err := store.HeldBy(t.Context(), s, tenant, spaces, key("a"))
	if err != nil || len(held) != 2 {
		t.Fatalf("held are %v, %v", held, err)
	}
	r := store.Rewrite{Streams: []store.RewrittenStream{{Key: key("a"), Events: erase(1)}}}
	for _, h := range held {
		r.Side = append(r.Side, store.Side{Op: store.Delete, Space: h.Space, Key: h.Key})
	}
	if _, err := s.Rewrite(t.Context(), tenant, r); err != nil {
		t.Fatal(err)
	}
	if len(holding(t, dir)) == 0 {
		t.Error("nothing is left for Purge: the test shows nothing")
	}
	if _, err := s.Purge(t.Context(), tenant, []j17.Key{key("a")}, spaces, nil); err != nil {
		t.Fatal(err)
	}
	if found := holding(t, dir); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
	if item, err := s.Get(t.Context(), tenant, "states", "order:b"); err != nil || string(item.Value) != "kept" {
		t.Errorf("the item of another stream: %+v, %v", item, err)
	}
}

// TestErasedNamelessItems erases items whose keys do not say of which stream their data are: a whole space of them, and
// one by its name.
func TestErasedNamelessItems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, pebble.Options{Dir: dir})
	defer func() { closeStore(t, s) }()
	hidden := []byte(secret)
	for _, side := range []store.Side{
		{Op: store.Put, Space: "index", Key: "1/row", Value: hidden, Plain: true},
		{Op: store.Put, Space: "queue", Key: "7", Value: hidden},
		{Op: store.Put, Space: "index", Key: "1/other", Value: []byte("kept"), Plain: true},
		{Op: store.Put, Space: "queue", Key: "8", Value: []byte("kept")},
	} {
		if err := s.Write(t.Context(), tenant, []store.Side{side}); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	s = open(t, pebble.Options{Dir: dir})
	gone := []store.Side{
		{Op: store.Put, Space: "index", Key: "1/row", Plain: true}, {Op: store.Delete, Space: "queue", Key: "7"},
	}
	if err := s.Write(t.Context(), tenant, gone); err != nil {
		t.Fatal(err)
	}
	if found := holding(t, dir); len(found) == 0 {
		t.Fatal("nothing is left for Purge: the test shows nothing")
	}
	spaces := []store.Declared{{Space: "index", Whole: true}, {Space: "queue"}}
	if _, err := s.Purge(t.Context(), tenant, nil, spaces, []store.ItemName{{Space: "queue", Key: "7"}}); err != nil {
		t.Fatal(err)
	}
	if found := holding(t, dir); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
	for space, key := range map[store.Space]string{"index": "1/other", "queue": "8"} {
		if item, err := s.Get(t.Context(), tenant, space, key); err != nil || string(item.Value) != "kept" {
			t.Errorf("%s/%s is %+v, %v", space, key, item, err)
		}
	}
}

// TestPurgeWaitsForMoments erases what an open moment shows. The new content can be read at once; old and new come into
// the same table, which no compaction would have a reason to write anew, and are gone from there when Purge returns.
func TestPurgeWaitsForMoments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, pebble.Options{Dir: dir})
	defer closeStore(t, s)
	spaces := []store.Declared{{Space: "states", OfStreams: true}}
	hidden := `"` + secret + `"`
	fillLog(t, s, 99, 200<<10)
	unit := store.Append{
		Events: events(key("a"), hidden),
		Side:   []store.Side{{Op: store.Put, Space: "states", Key: "order:a", Value: []byte(hidden)}},
	}
	if _, err := s.Append(t.Context(), tenant, []store.Append{unit}); err != nil {
		t.Fatal(err)
	}
	m, err := s.Moment(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	r := store.Rewrite{
		Streams: []store.RewrittenStream{{Key: key("a"), Events: erase(1)}},
		Side:    []store.Side{{Op: store.Delete, Space: "states", Key: "order:a"}},
	}
	if _, err := s.Rewrite(t.Context(), tenant, r); err != nil {
		t.Fatal(err)
	}
	if !erased(t, s, 1) {
		t.Error("the old content is read after Rewrite")
	}
	for i := 0; !slices.ContainsFunc(
		holding(t, dir), func(name string) bool { return strings.HasSuffix(name, ".sst") },
	); i++ {
		fillLog(t, s, i, 2<<20)
	}
	go func() {
		_, err := s.Purge(t.Context(), tenant, []j17.Key{key("a")}, spaces, nil)
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("the old bytes are said to be gone while they are shown: %v", err)
		done <- err
	default:
	}
	if shown, err := m.Get("states", "order:a"); err != nil || string(shown.Value) != hidden {
		t.Errorf("the moment shows %+v, %v", shown, err)
	}
	m.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if found := holding(t, dir); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
}

// TestReadersHoldNothing reads much more than a page, slowly, while a tenant is written to and removed.
func TestReadersHoldNothing(t *testing.T) {
	t.Parallel()
	s := open(t, pebble.Options{Dir: "data", FS: vfs.NewMem()})
	defer closeStore(t, s)
	long := `"` + strings.Repeat("x", 100<<10) + `"`
	for range 10 {
		if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: events(key("a"), long)}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, read := range map[string]iter.Seq2[*j17.Event, error]{
		"stream": s.ReadStream(t.Context(), tenant, key("a"), 1, 0),
		"feed":   s.ReadFeed(t.Context(), tenant, j17.StreamID{}, 99),
	} {
		n := uint64(0)
		for e, err := range read {
			if n++; err != nil || e.Version != n || len(e.Data) != len(long) {
				t.Fatalf("%s: version %d, %v", name, n, err)
			}
		}
		if n != 10 {
			t.Errorf("%s: %d events", name, n)
		}
	}
	var last error
	n := 0
	for _, err := range s.ReadFeed(t.Context(), tenant, j17.StreamID{}, 99) {
		if n++; n == 1 {
			last = s.DropTenant(t.Context(), tenant)
		}
		last = errors.Join(last, err)
	}
	if !errors.Is(last, store.ErrNotFound) || n > 5 {
		t.Errorf("%d steps of a tenant that is gone, and then %v", n, last)
	}
}

// erased reports whether one version reads as erased.
func erased(t *testing.T, s *pebble.Store, version uint64) bool {
	t.Helper()
	for e, err := range s.ReadStream(t.Context(), tenant, key("a"), version, version) {
		return err == nil && string(e.Data) == "null"
	}
	return false
}

// slowRemoval lets the removal of tables wait until it is told to go on.
type slowRemoval struct {
	vfs.FS
	proceed chan struct{}
}

func (f slowRemoval) Remove(name string) error {
	if strings.HasSuffix(name, ".sst") {
		<-f.proceed
	}
	return f.FS.Remove(name)
}

// TestEraseWaitsForRemoval erases on a file system that removes files late.
func TestEraseWaitsForRemoval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := slowRemoval{vfs.NewMem(), make(chan struct{})}
		s := open(t, pebble.Options{Dir: "data", FS: fs.FS, Clock: clock.NewManual(frozenTime())})
		if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: events(key("a"), `1`)}}); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		s = open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.NewManual(frozenTime())})
		done := make(chan error, 1)
		go func() { done <- storetest.Erase(t.Context(), s, tenant, key("a"), erase(1)) }()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("the erasure has ended before the old table was removed")
		}
		close(fs.proceed)
		if err := <-done; err != nil {
			t.Error(err)
		}
		closeStore(t, s)
	})
}

// TestForgottenBytes: what was known of a command that was forgotten is gone from the disk with the events.
func TestForgottenBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, pebble.Options{Dir: dir})
	u := store.Append{
		Command: &store.Command{ID: store.CommandID{1}, Memo: []byte(secret), Expires: time.Now().Add(time.Hour)},
		Events:  events(key("z"), `1`),
	}
	r, err := s.Append(t.Context(), tenant, []store.Append{u})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		fillLog(t, s, n, 3<<20) // so that the event stands in another table
	}
	closeStore(t, s)
	s = open(t, pebble.Options{Dir: dir})
	if err := s.ForgetCommands(t.Context(), tenant, []store.StreamPart{
		{Key: key("z"), UpTo: r[0].IDs[0]},
	}); err != nil {
		t.Fatal(err)
	}
	if len(holding(t, dir)) == 0 {
		t.Fatal("the secret was nowhere before")
	}
	if _, err := s.Purge(t.Context(), tenant, []j17.Key{key("z")}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if found := holding(t, dir); len(found) > 0 {
		t.Errorf("it is in %v", found)
	}
	closeStore(t, s)
}
