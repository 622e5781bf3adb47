package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// slowSync lets the syncing of logs wait while it is held.
type slowSync struct {
	vfs.FS
	held    atomic.Bool
	proceed chan struct{}
}

func (f *slowSync) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if err == nil && strings.HasSuffix(name, ".log") {
		file = slowFile{file, f}
	}
	return file, err
}

type slowFile struct {
	vfs.File
	fs *slowSync
}

func (f slowFile) SyncData() error {
	if f.fs.held.Load() {
		<-f.fs.proceed
	}
	return f.File.SyncData()
}

// TestNothingIsSeenBeforeItIsDurable holds an fsync and looks through all windows of the store.
func TestNothingIsSeenBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := &slowSync{FS: vfs.NewMem(), proceed: make(chan struct{})}
		c := clock.NewManual(frozenTime())
		s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: c})
		before := store.Append{
			Events: events(key("a"), `1`), Command: &store.Command{ID: commandID(1)},
			Side: []store.Side{
				{Op: store.Put, Space: space, Key: "changed", Value: []byte("old")},
				{Op: store.Put, Space: space, Key: "deleted"},
				{Op: store.Put, Space: space, Key: "due", Due: frozenTime().Add(time.Hour)},
			},
		}
		after := store.Append{
			Events: append(events(key("a"), `2`), events(key("b"), `1`)...), Command: &store.Command{ID: commandID(2)},
			Side: []store.Side{
				{Op: store.Put, Space: space, Key: "changed", Value: []byte("new")},
				{Op: store.Delete, Space: space, Key: "deleted"},
				{Op: store.Put, Space: space, Key: "due", Due: frozenTime()},
				{Op: store.Put, Space: space, Key: "made"},
			},
		}
		if _, err := s.Append(t.Context(), tenant, []store.Append{before}); err != nil {
			t.Fatal(err)
		}
		old := look(t, s)
		fs.held.Store(true)
		acked, fed := make(chan error, 2), make(chan error, 1)
		go func() {
			_, err := s.Append(t.Context(), tenant, []store.Append{after})
			acked <- err
		}()
		synctest.Wait()
		go func() { fed <- s.AwaitFeed(t.Context(), tenant, j17.StreamID{Ms: frozenTime().UnixMilli()}) }()
		go func() {
			_, err := s.Append(t.Context(), "another", []store.Append{{Events: events(key("a"), `1`)}})
			acked <- err
		}()
		synctest.Wait()
		if len(acked) > 0 || len(fed) > 0 {
			t.Error("somebody was told of what is not durable")
		}
		if got := look(t, s); got != old {
			t.Errorf("while the unit is not durable the store shows\n%s\nwant\n%s", got, old)
		}
		fs.held.Store(false)
		close(fs.proceed)
		for range 2 {
			if err := <-acked; err != nil {
				t.Error(err)
			}
		}
		if err := <-fed; err != nil {
			t.Error(err)
		}
		if got := look(t, s); got == old {
			t.Error("the unit is durable and cannot be seen")
		}
		closeStore(t, s)
	})
}

// look describes all that the store shows.
func look(t *testing.T, s *pebble.Store) string {
	t.Helper()
	var b strings.Builder
	ctx := t.Context()
	note := func(what string, v any, err error) {
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
		fmt.Fprintf(&b, "%s: %v\n", what, v)
	}
	heads, err := s.Heads(ctx, tenant, []j17.Key{key("a"), key("b")})
	note("heads", heads, err)
	for _, id := range []string{"a", "b"} {
		for e, err := range s.ReadStream(ctx, tenant, key(id), 1, 0) {
			note("event", string(e.Raw), err)
		}
		version, err := s.VersionAfter(ctx, tenant, key(id), j17.StreamID{})
		note("version", version, err)
	}
	for e, err := range s.ReadFeed(ctx, tenant, j17.StreamID{}, 100) {
		note("feed", string(e.Raw), err)
	}
	ids, err := s.Streams(ctx, tenant, "order", "", 10)
	note("streams", ids, err)
	for _, k := range []string{"changed", "deleted", "due", "made"} {
		item, err := s.Get(ctx, tenant, space, k)
		note(k, fmt.Sprint(item, err), err)
	}
	items, err := s.Scan(ctx, tenant, space, store.Range{}, 10)
	note("items", items, err)
	for n := range 3 {
		command, err := s.Command(ctx, tenant, commandID(n))
		note("command", command != nil, err)
	}
	names, err := s.Tenants(ctx)
	note("tenants", names, err)
	text, err := storetest.Dump(ctx, s, tenant)
	note("all of it", text, err)
	return b.String()
}

// TestCancelledInQueue cancels a call that waits behind another one: it must not be executed. A call that is on its way
// to the disk ends as if nobody had cancelled it.
func TestCancelledInQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := &slowSync{FS: vfs.NewMem(), proceed: make(chan struct{})}
		s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.NewManual(frozenTime())})
		fs.held.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		taken, queued := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := s.Append(ctx, tenant, []store.Append{{Events: events(key("taken"), `1`)}})
			taken <- err
		}()
		synctest.Wait()
		go func() {
			_, err := s.Append(ctx, tenant, []store.Append{{Events: events(key("queued"), `1`)}})
			queued <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-queued; !errors.Is(err, context.Canceled) {
			t.Errorf("the call in the queue: %v", err)
		}
		synctest.Wait()
		if len(taken) > 0 {
			t.Error("the call that is on its way was answered")
		}
		fs.held.Store(false)
		close(fs.proceed)
		if err := <-taken; err != nil {
			t.Errorf("the call that was on its way: %v", err)
		}
		heads, err := s.Heads(t.Context(), tenant, []j17.Key{key("taken"), key("queued")})
		if err != nil || heads[0].Length != 1 || heads[1].Length != 0 {
			t.Errorf("heads %+v, %v", heads, err)
		}
		closeStore(t, s)
	})
}

// TestCloseWaits closes a store that is being read and written: it waits for the writes, not for the reader, who is
// told at his next step.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := &slowSync{FS: vfs.NewMem(), proceed: make(chan struct{})}
		s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.NewManual(frozenTime())})
		if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: events(key("a"), `1`, `2`)}}); err != nil {
			t.Fatal(err)
		}
		fs.held.Store(true)
		reading, proceed, closed := make(chan error, 1), make(chan struct{}), make(chan error, 1)
		written := make(chan error, 2)
		go func() {
			for _, err := range s.ReadStream(t.Context(), tenant, key("a"), 1, 0) {
				if err != nil {
					reading <- err
					return
				}
				<-proceed
			}
			reading <- nil
		}()
		for range 2 {
			go func() {
				_, err := s.Append(t.Context(), tenant, []store.Append{{Events: events(key("a"), `3`)}})
				written <- err
			}()
			synctest.Wait()
		}
		go func() { closed <- s.Close() }()
		synctest.Wait()
		fs.held.Store(false)
		close(fs.proceed)
		for range 2 {
			if err := <-written; err != nil {
				t.Errorf("a call that was running: %v", err)
			}
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		close(proceed)
		if err := <-reading; !errors.Is(err, store.ErrClosed) {
			t.Errorf("a reader under which the store was closed: %v", err)
		}
	})
}

// TestShutdownEnds shuts a store down whose reader takes no step for ever. What was acknowledged is there for the next
// one that opens the folder, and the reader is told in the end.
func TestShutdownEnds(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := open(t, pebble.Options{Dir: "data", FS: fs, Logger: quiet()})
	w := newWorkload(10)
	for range 3 {
		if err := w.write(t, s); err != nil {
			t.Fatal(err)
		}
	}
	reading, proceed, ended := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		var last error
		for _, err := range s.ReadStream(t.Context(), tenant, key("all"), 1, 0) {
			last = err
			if err == nil {
				reading <- struct{}{}
				<-proceed
			}
		}
		ended <- last
	}()
	<-reading
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	w.checkKept(t, fs, w.acknowledged())
	close(proceed)
	if err := <-ended; !errors.Is(err, store.ErrClosed) {
		t.Errorf("the reader that was left behind: %v", err)
	}
}

// TestBarrier holds a write on its way, whose outcome its caller does not wait for, and waits for it with a barrier.
func TestBarrier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := &slowSync{FS: vfs.NewMem(), proceed: make(chan struct{})}
		s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.NewManual(frozenTime())})
		fs.held.Store(true)
		go func() {
			_ = s.Write(t.Context(), tenant, []store.Side{{Op: store.Put, Space: space, Key: "k"}})
		}()
		synctest.Wait()
		passed := make(chan error, 1)
		go func() { passed <- s.Barrier(t.Context()) }()
		synctest.Wait()
		if len(passed) > 0 {
			t.Error("the barrier was passed by a write that is not decided")
		}
		fs.held.Store(false)
		close(fs.proceed)
		if err := <-passed; err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), tenant, space, "k"); err != nil {
			t.Errorf("behind the barrier: %v", err)
		}
		closeStore(t, s)
	})
}

// TestSweep looks into the files for what has expired.
func TestSweep(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewManual(frozenTime())
		s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: c})
		for n := range 1500 {
			expires := frozenTime().Add(time.Minute)
			if n%100 == 0 {
				expires = frozenTime().Add(time.Hour)
			}
			_, err := s.Append(t.Context(), tenant, []store.Append{{
				Command: &store.Command{ID: commandID(n), Expires: expires},
				Side: []store.Side{
					{Op: store.Put, Space: space, Key: fmt.Sprint(n), Expires: expires, Due: expires},
				},
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		c.Advance(time.Minute)
		synctest.Wait()
		closeStore(t, s)
	})
	raw(t, fs, func(db *engine.DB) {
		counts := map[byte]int{}
		it, err := db.NewIter(&engine.IterOptions{LowerBound: []byte("\x00\x00\x00\x01")})
		if err != nil {
			t.Fatal(err)
		}
		for it.First(); it.Valid(); it.Next() {
			counts[it.Key()[4]]++
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
		for kind, want := range map[byte]int{'i': 15, 'c': 15, 'd': 15, 'x': 30, 's': 1} {
			if counts[kind] != want {
				t.Errorf("%d keys of kind %c, want %d", counts[kind], kind, want)
			}
		}
	})
}

// TestSweepGoesOn damages the order of expiry of one tenant: what has expired of others is removed all the same.
func TestSweepGoesOn(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewManual(frozenTime())
		s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: c})
		for _, name := range []j17.Tenant{"aaa/prod", "bbb/prod", "zzz/prod"} {
			err := s.Write(t.Context(), name, []store.Side{
				{Op: store.Put, Space: space, Key: "k", Expires: frozenTime().Add(time.Minute)},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
	})
	raw(t, fs, func(db *engine.DB) {
		// An entry without an item, and one that is no entry at all.
		for _, rest := range []string{"\x00\x00\x00\x01x\x00\x00\x00\x00\x00\x00\x00\x01inotes\x00missing", "\x00\x00\x00\x02x\x00\x00\x00\x00\x00\x00\x00\x01?"} {
			if err := db.Set([]byte(rest), nil, engine.Sync); err != nil {
				t.Fatal(err)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewManual(frozenTime())
		s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: c, Logger: quiet()})
		synctest.Wait()
		c.Advance(10 * time.Minute)
		synctest.Wait()
		closeStore(t, s)
	})
	raw(t, fs, func(db *engine.DB) {
		for number, want := range map[byte]int{1: 0, 2: 1, 3: 0} {
			n := 0
			it, err := db.NewIter(&engine.IterOptions{
				LowerBound: []byte{0, 0, 0, number, 'i'}, UpperBound: []byte{0, 0, 0, number, 'j'},
			})
			if err != nil {
				t.Fatal(err)
			}
			for it.First(); it.Valid(); it.Next() {
				n++
			}
			if err := it.Close(); err != nil {
				t.Fatal(err)
			}
			if n != want {
				t.Errorf("%d items of tenant number %d are left, want %d", n, number, want)
			}
		}
	})
}
