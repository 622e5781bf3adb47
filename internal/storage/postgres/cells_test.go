package postgres_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// secret is a text to search for in files.
const secret = "Ada-Lovelace-was-here"

// filesWithSecret returns the files of a server's data folder that contain the secret.
func filesWithSecret(t *testing.T, s *pgtest.Server) (names []string) {
	t.Helper()
	root := pgtest.Ask[string](t, s, "SHOW data_directory")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if os.IsNotExist(err) {
				return nil // the server has removed it meanwhile
			}
			return err
		}
		raw, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		if bytes.Contains(raw, []byte(secret)) {
			name, _ := filepath.Rel(root, path)
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func event(key j17.Key, data string, tags ...string) store.NewEvent {
	return store.NewEvent{
		Key: key, Type: "was_written", Data: []byte(data), Metadata: []byte(`{"actor":{"type":"user","id":"u1"}}`),
		Tags: tags,
	}
}

func commit(t *testing.T, s store.Engine, tenant j17.Tenant, u store.Append) {
	t.Helper()
	results, err := s.Append(t.Context(), tenant, []store.Append{u})
	if err != nil || results[0].Outcome != store.Committed {
		t.Fatalf("%+v, %v", results, err)
	}
}

// TestPurgeLeavesNothing stores a text wherever texts are stored, erases it, and searches all files of the server for
// it.
func TestPurgeLeavesNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s := open(t, postgres.Options{Address: server.Address(), AllowSingle: true, Cells: 3})
	defer func() { _ = s.Close() }()
	if n := pgtest.Ask[int](t, server, "SELECT count(*) FROM j17.cells"); n != 3 {
		t.Fatalf("there are %d cells", n)
	}
	const tenant = j17.Tenant("shop/prod")
	ada, other := j17.Key{Type: "user", ID: "1"}, j17.Key{Type: "user", ID: "2"}

	// The secret is in an event, in one too large for a page of a table, in tags, items and results of commands.
	large := strings.Repeat("x", 10) + rand.Text()
	for len(large) < 100_000 {
		large += rand.Text()
	}
	cleared := store.Space("rows")
	commit(t, s, tenant, store.Append{
		Command: &store.Command{ID: store.CommandID{1}, Memo: []byte(secret + " memo")},
		Events: []store.NewEvent{
			event(ada, `"`+secret+`"`, "name:"+secret), event(ada, `"`+large+secret+large+`"`),
			event(other, `"stays"`, "tag"),
		},
		Side: []store.Side{
			{Op: store.Put, Space: "states", Key: "user:1", Value: []byte(secret + " state")},
			{Op: store.Put, Space: "states", Key: "user:2", Value: []byte("stays")},
			{Op: store.Put, Space: cleared, Key: secret, Value: []byte(secret + " row"), Plain: true},
		},
	})
	commit(t, s, "shop/other", store.Append{Events: []store.NewEvent{event(other, `"stays too"`)}})
	server.Exec(t, "ANALYZE")
	server.Exec(t, "CHECKPOINT")
	if found := filesWithSecret(t, server); len(found) < 4 {
		t.Fatalf("before it is erased it is found in %v", found)
	}

	// Erase it.
	gone := func(version uint64) store.Rewritten {
		return store.Rewritten{Version: version, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}
	}
	if r, err := s.Rewrite(t.Context(), tenant, store.Rewrite{
		Streams: []store.RewrittenStream{{Key: ada, Events: []store.Rewritten{gone(1), gone(2)}}},
		Side:    []store.Side{{Op: store.Delete, Space: "states", Key: "user:1"}},
	}); err != nil || r.Outcome != store.Committed {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := s.Clear(t.Context(), tenant, cleared, store.Range{}); err != nil {
		t.Fatal(err)
	}
	part := store.StreamPart{Key: ada, UpTo: j17.StreamID{Ms: 1 << 60}}
	if err := s.ForgetCommands(t.Context(), tenant, []store.StreamPart{part}); err != nil {
		t.Fatal(err)
	}
	request, err := s.RequestPurge(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.AwaitPurge(t.Context(), request)
	if err != nil || !p.Done || len(p.Purged.Servers) != 1 || len(p.Purged.Unseen) > 0 || p.Purged.LSN == "" {
		t.Fatalf("%+v, %v", p, err)
	}
	if found := filesWithSecret(t, server); len(found) > 0 {
		t.Errorf("after the purge it is found in %v", found)
	}

	// Everything else still exists, and can be written to.
	heads, err := s.Heads(t.Context(), tenant, []j17.Key{ada, other})
	if err != nil || heads[0].Length != 2 || heads[0].Generation != 1 || heads[1].Length != 1 {
		t.Errorf("%+v, %v", heads, err)
	}
	item, err := s.Get(t.Context(), tenant, "states", "user:2")
	if err != nil || string(item.Value) != "stays" {
		t.Errorf("%+v, %v", item, err)
	}
	commit(t, s, tenant, store.Append{
		Events: []store.NewEvent{event(ada, `3`)}, Pre: []store.Pre{{Key: ada, Length: 2}},
	})
}

// acknowledged is what was acknowledged to writers.
type acknowledged struct {
	mu     sync.Mutex
	events map[j17.Tenant]int
	items  map[string]string
}

// keepWriting writes to tenants until the context ends: events with tags and commands, items that are written and
// deleted, and changes of tags and content of stored events.
func keepWriting(ctx context.Context, t *testing.T, s *postgres.Store, w *acknowledged, writer int) {
	t.Helper()
	for n := 0; ctx.Err() == nil; n++ {
		tenant := j17.Tenant(fmt.Sprintf("t%d/prod", (writer+n)%4))
		key := j17.Key{Type: "user", ID: fmt.Sprint(writer)}
		text := fmt.Sprintf("%d-%d", writer, n)
		item := fmt.Sprintf("%s/%d-%d", tenant, writer, n%7)
		side := store.Side{Op: store.Put, Space: "states", Key: item, Value: []byte(text)}
		if n%5 == 4 {
			side = store.Side{Op: store.Delete, Space: "states", Key: item}
		}
		var id store.CommandID
		copy(id[:], text)
		r, err := s.Append(t.Context(), tenant, []store.Append{{
			Command: &store.Command{ID: id}, Side: []store.Side{side},
			Events: []store.NewEvent{event(key, `"`+text+`"`, "writer:"+fmt.Sprint(writer), "n:"+fmt.Sprint(n%10))},
		}})
		if errors.Is(err, store.ErrUnknown) || errors.Is(err, store.ErrBusy) {
			n-- // it is repeated with its id
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		w.mu.Lock()
		if w.events[tenant]++; side.Op == store.Put {
			w.items[item] = text
		} else {
			delete(w.items, item)
		}
		w.mu.Unlock()
		switch n % 6 {
		case 1:
			_, err = s.Rewrite(t.Context(), tenant, store.Rewrite{Streams: []store.RewrittenStream{{
				Key: key, Events: []store.Rewritten{{
					Version: r[0].Lengths[0], Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`),
				}},
			}}})
		case 2:
			err = s.Retag(t.Context(), tenant, []store.Retagged{
				{Key: key, Version: r[0].Lengths[0], Tags: []string{"other:tag"}},
			})
		}
		if err != nil && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrBusy) {
			t.Error(err)
		}
	}
}

// check compares what is stored with what was acknowledged, and each event with its tags and its stream.
func (w *acknowledged) check(t *testing.T, server *pgtest.Server, schema string, s *postgres.Store) {
	t.Helper()
	for tenant, n := range w.events {
		extent, err := s.Extent(t.Context(), tenant)
		if err != nil || extent.Events != uint64(n) {
			t.Errorf("%s has %d events, want %d: %v", tenant, extent.Events, n, err)
		}
		number := int32(extent.Life)
		in := func(sql string) string { return strings.ReplaceAll(sql, "s.", schema+".") }
		for sql, want := range map[string]int{
			"SELECT count(*) FROM s.events WHERE t = $1 AND kind = 0":                                              n,
			"SELECT count(*) FROM s.commands WHERE t = $1":                                                         n,
			"SELECT sum(n) FROM (SELECT max(version) n FROM s.events WHERE t = $1 AND kind = 0 GROUP BY stream) m": n,
			// An event has two tags, one after a Retag, and none after it was erased.
			`SELECT count(*) FROM s.events e WHERE t = $1 AND kind = 0 AND (
				SELECT count(*) FROM s.tags g WHERE g.t = e.t AND g.ms = e.ms AND g.n = e.n
			) <> CASE WHEN kept IS NOT NULL THEN 0 WHEN tags = '\x096f746865723a746167' THEN 1 ELSE 2 END`: 0,
			"SELECT count(*) FROM s.tags g WHERE t = $1 AND NOT EXISTS (SELECT FROM s.events e WHERE (e.t, e.ms, e.n) = (g.t, g.ms, g.n))": 0,
		} {
			if got := pgtest.Ask[int](t, server, in(sql), number); got != want {
				t.Errorf("%s: %s: %d, want %d", tenant, sql, got, want)
			}
		}
	}
	items := 0
	for tenant := range w.events {
		n, err := s.Count(t.Context(), tenant, "states", store.Range{}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		items += n
	}
	if items != len(w.items) {
		t.Errorf("%d items, want %d", items, len(w.items))
	}
	for key, want := range w.items {
		tenant := j17.Tenant(key[:strings.LastIndex(key, "/")])
		if item, err := s.Get(t.Context(), tenant, "states", key); err != nil || string(item.Value) != want {
			t.Errorf("item %s of %s is %q, want %q: %v", key, tenant, item.Value, want, err)
		}
	}
}

// tables counts the tables of a schema that are left over from rewrites.
func tables(t *testing.T, server *pgtest.Server, schema string) int {
	t.Helper()
	return pgtest.Ask[int](
		t, server, "SELECT count(*)::int FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relname ~ '_r[0-9]+$'", schema,
	)
}

// TestPurgeUnderWrites rewrites cells under several writers, and cuts the connections at all steps of the rewrite.
// Nothing is lost, nothing erased reappears, and no tables are left over.
func TestPurgeUnderWrites(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	proxy, schema := pgtest.NewProxy(t, server), server.Schema(t)
	s := open(t, postgres.Options{
		Address: server.Address(proxy.Host()), AllowSingle: true, Schema: schema,
	})
	defer func() { _ = s.Close() }()
	w := &acknowledged{events: map[j17.Tenant]int{}, items: map[string]string{}}
	for n := range 4 {
		tenant := j17.Tenant(fmt.Sprintf("t%d/prod", n))
		commit(t, s, tenant, store.Append{
			Command: &store.Command{},
			Events:  []store.NewEvent{event(j17.Key{Type: "user", ID: "first"}, `1`, "a:b", "c:d")},
		})
		w.events[tenant] = 1
	}
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for n := range 3 {
		writers.Go(func() { keepWriting(ctx, t, s, w, n) })
	}
	for _, text := range []string{"CREATE TABLE", "WITH p AS", "LOCK TABLE tenants", "DETACH", "COMMIT", ""} {
		for _, at := range []pgtest.Point{pgtest.BeforeReply, pgtest.AfterReply} {
			if text != "" {
				proxy.CutNext(at, text)
			}
			var purges sync.WaitGroup
			for n := range 4 {
				purges.Go(func() {
					tenant := j17.Tenant(fmt.Sprintf("t%d/prod", n))
					if _, err := s.Purge(t.Context(), tenant, nil, nil, []store.ItemName{{}}); err != nil {
						t.Error(err)
					}
				})
			}
			purges.Wait()
		}
	}
	stop()
	writers.Wait()
	w.check(t, server, schema, s)
	if n := tables(t, server, schema); n > 0 {
		t.Errorf("%d tables are left", n)
	}
}

// TestFrozenInRewrite opens another store while the first one is frozen at several steps of a rewrite. The partitions
// are complete, the other store can rewrite the cell, and no tables are left over.
func TestFrozenInRewrite(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"CREATE TABLE", "WITH p AS", "LOCK TABLE tenants", "DETACH"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Shared(t)
			proxy, schema := pgtest.NewProxy(t, server), server.Schema(t)
			o := postgres.Options{
				Address: server.Address(proxy.Host()), AllowSingle: true, Schema: schema,
				Logger: slog.New(slog.DiscardHandler),
			}
			first := open(t, o)
			const tenant = j17.Tenant("shop/prod")
			key := j17.Key{Type: "user", ID: "1"}
			commit(t, first, tenant, store.Append{Events: []store.NewEvent{event(key, `1`), event(key, `2`)}})
			frozen := make(chan struct{})
			var once sync.Once
			proxy.Watch(func(trip pgtest.Trip) {
				if strings.Contains(strings.Join(trip.Statements, ";"), at) {
					once.Do(func() {
						proxy.Pause()
						close(frozen)
					})
				}
			})
			if _, err := first.RequestPurge(t.Context(), tenant); err != nil {
				t.Fatal(err)
			}
			<-frozen

			o.Address = server.Address()
			second := open(t, o)
			commit(t, second, tenant, store.Append{
				Events: []store.NewEvent{event(key, `3`)}, Pre: []store.Pre{{Key: key, Length: 2}},
			})
			if _, err := second.Purge(t.Context(), tenant, []j17.Key{key}, nil, nil); err != nil {
				t.Fatal(err)
			}
			heads, err := second.Heads(t.Context(), tenant, []j17.Key{key})
			if err != nil || heads[0].Length != 3 {
				t.Errorf("%+v, %v", heads, err)
			}
			proxy.Resume()
			if err := errors.Join(first.Close(), second.Close()); err != nil {
				t.Error(err)
			}
			if n := tables(t, server, schema); n > 0 {
				t.Errorf("%d tables are left", n)
			}
		})
	}
}

// TestEraseEvery checks that one rewrite serves all erasures that were requested since the last one, even if the store
// that has taken the requests is frozen meanwhile.
func TestEraseEvery(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	now := clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	proxy, schema := pgtest.NewProxy(t, server), server.Schema(t)
	o := postgres.Options{
		Address: server.Address(proxy.Host()), AllowSingle: true, Schema: schema, Clock: now,
		EraseEvery: 24 * time.Hour, Logger: slog.New(slog.DiscardHandler),
	}
	s := open(t, o)
	const tenant = j17.Tenant("shop/prod")
	key := j17.Key{Type: "user", ID: "1"}
	commit(t, s, tenant, store.Append{Events: []store.NewEvent{event(key, `1`)}})
	if _, err := s.Purge(t.Context(), tenant, []j17.Key{key}, nil, nil); err != nil {
		t.Fatal(err)
	}
	first := now.Now()
	now.Advance(time.Hour)
	var requests []string
	for range 2 {
		request, err := s.RequestPurge(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.AwaitPurge(t.Context(), request)
		if err != nil || p.Done || p.Waits != "the rewrite of cells" || !p.Until.Equal(first.Add(24*time.Hour)) {
			t.Errorf("%+v, %v", p, err)
		}
		requests = append(requests, request)
		now.Advance(time.Hour)
	}
	for _, request := range []string{"9/1", "0/99", "1/99"} {
		if p, err := s.PurgeProgress(t.Context(), request); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %+v, %v", request, p, err)
		}
	}

	// Another store carries out the requests.
	proxy.Pause()
	o.Address = server.Address()
	second := open(t, o)
	now.Set(first.Add(24 * time.Hour))
	for _, request := range requests {
		if p, err := second.AwaitPurge(t.Context(), request); err != nil || !p.Done {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if n := pgtest.Ask[int](t, server, "SELECT sum(run)::int FROM "+schema+".cells"); n != 2 {
		t.Errorf("%d rewrites, want 2", n)
	}
	proxy.Resume()
	if err := errors.Join(s.Close(), second.Close()); err != nil {
		t.Error(err)
	}
}

// TestReadersInRewrite rewrites a cell while a moment and an archive show what is in it. The archive lets go of its
// snapshot, the rewrite waits for the moment, and both show everything until they are closed.
func TestReadersInRewrite(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	schema := server.Schema(t)
	s := open(t, postgres.Options{Address: server.Address(), AllowSingle: true, Schema: schema})
	defer func() { _ = s.Close() }()
	const tenant = j17.Tenant("shop/prod")
	key := j17.Key{Type: "user", ID: "1"}
	u := store.Append{Command: &store.Command{ID: store.CommandID{1}}}
	for n := range 20 {
		u.Events = append(u.Events, event(key, fmt.Sprint(n)))
		side := store.Side{Op: store.Put, Space: "states", Key: fmt.Sprintf("%02d", n), Value: []byte("x")}
		u.Side = append(u.Side, side)
	}
	commit(t, s, tenant, u)
	moment, err := s.Moment(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	defer moment.Close()
	archive, err := s.Archive(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	items, end := iter.Pull2(archive.Items(t.Context(), store.ItemName{}))
	defer end()
	if _, err, ok := items(); err != nil || !ok {
		t.Fatal(err)
	}

	// The rewrite comes up to the moment.
	request, err := s.RequestPurge(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	for waits := ""; !strings.Contains(waits, "long reads"); {
		p, err := s.PurgeProgress(t.Context(), request)
		if err != nil || p.Done {
			t.Fatalf("it is over before the moment is: %+v, %v", p, err)
		}
		waits = p.Waits
	}
	if tables(t, server, schema) == 0 {
		t.Error("no table is ready")
	}
	commit(t, s, tenant, store.Append{
		Side: []store.Side{{Op: store.Delete, Space: "states", Key: "07"}}, Events: []store.NewEvent{event(key, `20`)},
	})
	if n, err := moment.Count("states", store.Range{}, 100); err != nil || n != 20 {
		t.Errorf("the moment shows %d items: %v", n, err)
	}
	heads, err := moment.Heads([]j17.Key{key})
	if err != nil || heads[0].Length != 20 {
		t.Errorf("the moment shows %+v: %v", heads, err)
	}
	moment.Close()
	if p, err := s.AwaitPurge(t.Context(), request); err != nil || !p.Done {
		t.Fatalf("%+v, %v", p, err)
	}

	// The archive goes on where it was.
	n := 1
	for _, err, ok := items(); ok; _, err, ok = items() {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 20 {
		t.Errorf("the archive shows %d items", n)
	}
	n = 0
	for _, err := range archive.Changes(t.Context(), j17.StreamID{}) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range archive.Commands(t.Context()) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 21 {
		t.Errorf("the archive shows %d events and commands, want 21", n)
	}
}

// TestPurgeOnStandbys waits for the logs of standbys too, which rename and keep files of the log.
func TestPurgeOnStandbys(t *testing.T) {
	t.Parallel()
	cluster := pgtest.StartCluster(t, 2, "wal_recycle=on", "wal_keep_size=32MB")
	s := open(t, postgres.Options{Address: cluster.Address()})
	defer func() { _ = s.Close() }()
	const tenant = j17.Tenant("shop/prod")
	key := j17.Key{Type: "user", ID: "1"}
	commit(t, s, tenant, store.Append{Events: []store.NewEvent{event(key, `"`+secret+`"`), event(key, `2`)}})
	for _, server := range cluster.Servers {
		server.Exec(t, "CHECKPOINT")
		if found := filesWithSecret(t, server); len(found) < 2 {
			t.Errorf("before it is erased it is found in %v", found)
		}
	}
	if _, err := s.Rewrite(t.Context(), tenant, store.Rewrite{Streams: []store.RewrittenStream{{
		Key: key, Events: []store.Rewritten{{Version: 1, Type: "t", Data: []byte(`null`), Metadata: []byte(`{}`)}},
	}}}); err != nil {
		t.Fatal(err)
	}
	request, err := s.RequestPurge(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.AwaitPurge(t.Context(), request)
	if err != nil || !p.Done || len(p.Purged.Servers) != 2 || len(p.Purged.Unseen) > 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, server := range cluster.Servers {
		if found := filesWithSecret(t, server); len(found) > 0 {
			t.Errorf("after the purge it is found in %v", found)
		}
	}
}

// TestPurgeWithoutRights purges with a role that may not request checkpoints: it waits for the server's own.
func TestPurgeWithoutRights(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	server.Exec(t, "REVOKE pg_monitor, pg_checkpoint FROM j17; REVOKE EXECUTE ON FUNCTION pg_switch_wal() FROM j17")
	o := postgres.Options{Address: server.Address(), AllowSingle: true, Logger: slog.New(slog.DiscardHandler)}
	s := open(t, o)
	const tenant = j17.Tenant("shop/prod")
	commit(t, s, tenant, store.Append{Events: []store.NewEvent{event(j17.Key{Type: "user", ID: "1"}, `1`)}})
	request, err := s.RequestPurge(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	for waits := ""; !strings.Contains(waits, "pg_checkpoint"); {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		p, err := s.AwaitPurge(ctx, request)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			continue // the server was slower than that
		}
		if err != nil || p.Done {
			t.Fatalf("%+v, %v", p, err)
		}
		waits = p.Waits
	}

	// Another store goes on with the wait, and does not rewrite the cell again.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	defer func() { _ = s.Close() }()
	server.Exec(t, "SELECT pg_switch_wal()")
	server.Exec(t, "CHECKPOINT")
	p, err := s.AwaitPurge(t.Context(), request)
	if err != nil || !p.Done || len(p.Purged.Servers) > 0 || len(p.Purged.Unseen) != 1 || p.Purged.Remains == "" {
		t.Errorf("%+v, %v", p, err)
	}
	if n := pgtest.Ask[int](t, server, "SELECT sum(run)::int FROM j17.cells"); n != 1 {
		t.Errorf("%d rewrites, want 1", n)
	}
}
