package postgres

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// beginLoad begins a load that is discarded at the end of the test, if not before.
func beginLoad(t *testing.T, s *Store, name j17.Tenant) *loading {
	t.Helper()
	begun, err := s.Load(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(begun.Discard)
	l, ok := begun.(*loading)
	if !ok {
		t.Fatalf("a load is a %T", begun)
	}
	return l
}

// madeEvent returns an event as an export has it. An erased one keeps a leaf.
func madeEvent(at int64, id string, kept []byte) store.LoadedEvent {
	key, position := j17.Key{Type: "order", ID: id}, j17.StreamID{Ms: at}
	raw, layout := j17.AppendEvent(
		nil, position, key, "was_made", []byte(`1`), []byte(`{"actor":{"type":"user","id":"u"}}`), at,
	)
	return store.LoadedEvent{Event: &j17.Event{
		StreamID: position, Key: key, Type: "was_made", Timestamp: at, Raw: raw, Data: layout.DataOf(raw),
		Metadata: layout.MetadataOf(raw), Kept: kept,
	}}
}

// TestLoadInParts loads the same events and notes in one transaction, and each in its own transaction with few streams
// in memory: the rows are the same.
func TestLoadInParts(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	note := func(at int64, generation uint64, ids ...string) store.Note {
		n := store.Note{Position: j17.StreamID{Ms: at}}
		for _, id := range ids {
			n.Streams = append(n.Streams, store.Generation{Key: j17.Key{Type: "order", ID: id}, Number: generation})
		}
		return n
	}
	leaf := make([]byte, 32)
	load := func(name j17.Tenant, change func(l *loading)) (rows []string) {
		t.Helper()
		l := beginLoad(t, s, name)
		change(l)
		var err error
		add := func(e store.LoadedEvent) {
			_, failed := l.Event(e)
			err = errors.Join(err, failed)
		}
		for at := int64(1); at < 50; at++ {
			add(madeEvent(at, fmt.Sprint(at%5), nil))
		}
		add(madeEvent(51, "erased", leaf)) // by a note that follows
		add(madeEvent(52, "between", leaf))
		add(madeEvent(53, "without", leaf))
		err = errors.Join(err, l.Note(note(60, 1, "erased", "between", "1")))
		add(madeEvent(61, "between", nil))
		add(madeEvent(62, "2", leaf))
		err = errors.Join(err, l.Note(note(63, 2, "1", "2")))
		add(madeEvent(64, "2", nil))
		if err = errors.Join(err, l.Commit(t.Context())); err != nil {
			t.Fatal(err)
		}
		found, err := s.pool.Query(t.Context(), `SELECT to_jsonb(e)::text FROM (
			SELECT ms, kind, stream, version, time, first_time, generation, chain, present, kept, tags, data_at, metadata_at, raw
			FROM events WHERE t = $1 ORDER BY ms
		) e UNION ALL SELECT to_jsonb(g)::text FROM (
			SELECT tag, ms, n FROM tags WHERE t = $1 ORDER BY tag, ms
		) g`, numberOf(t, s, name))
		if err == nil {
			rows, err = pgx.CollectRows(found, pgx.RowTo[string])
		}
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	want := load("whole/prod", func(*loading) {})
	got := load("parts/prod", func(l *loading) { l.bytes, l.streams.most = 1, 2 })
	if len(want) != 49+3+1+2+1+1+49+1+1 || !slices.Equal(got, want) {
		for i := range min(len(want), len(got)) {
			if got[i] != want[i] {
				t.Errorf("row %d is\n%s, want\n%s", i, got[i], want[i])
			}
		}
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}

	// The heads are those that follow from the notes.
	heads, err := s.Heads(t.Context(), "parts/prod", []j17.Key{
		{Type: "order", ID: "0"},
		{Type: "order", ID: "1"},
		{Type: "order", ID: "2"},
		{Type: "order", ID: "erased"},
		{Type: "order", ID: "between"},
		{Type: "order", ID: "without"},
	})
	for i, want := range []uint64{0, 2, 2, 1, 1, 1} {
		if err != nil || heads[i].Generation != want || (heads[i].Present == [32]byte{}) != (want == 0) {
			t.Errorf("the head of stream %d is %+v, %v", i, heads, err)
		}
	}
}

// TestLoadFollows writes to a tenant while a load copies its items and commands: both are kept.
func TestLoadFollows(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	const n = sweptAtOnce + 100
	manyItems(t, s, "a/prod", n)
	own := func(key, value string) store.Side {
		return store.Side{Op: store.Put, Space: "notes", Key: key, Value: []byte(value)}
	}
	unit := store.Append{
		Command: &store.Command{ID: store.CommandID{1}},
		Side:    []store.Side{own("changed", "1"), own("gone", "1"), own("loaded", "own"), own("raced", "own")},
	}
	if _, err := s.Append(t.Context(), "a/prod", []store.Append{unit}); err != nil {
		t.Fatal(err)
	}
	l := beginLoad(t, s, "a/prod")
	for _, key := range []string{"loaded", "raced"} {
		item := store.ArchivedItem{Space: "notes", Item: store.Item{Key: key, Value: []byte("loaded")}}
		if err := l.Item(item); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Event(madeEvent(1, "a", nil)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		l.writeEvents(0), l.writeOthers(0), l.written(), l.follow(t.Context()), l.takeOver(t.Context()),
	); err != nil {
		t.Fatal(err)
	}
	unit = store.Append{
		Command: &store.Command{ID: store.CommandID{2}},
		Side: []store.Side{
			own("changed", "2"), {Op: store.Delete, Space: "notes", Key: "gone"}, own("new", "2"), own("raced", "2"),
		},
	}
	if _, err := s.Append(t.Context(), "a/prod", []store.Append{unit}); err != nil {
		t.Fatal(err)
	}
	if again, err := l.list(t.Context(), nil, false); again || err != nil {
		t.Fatal(again, err)
	}
	if count, err := s.Count(t.Context(), "a/prod", "notes", store.Range{}, 2*n); err != nil || count != n+1+4 {
		t.Errorf("there are %d items, %v", count, err)
	}
	for key, want := range map[string]string{"changed": "2", "new": "2", "loaded": "loaded", "raced": "loaded"} {
		if item, err := s.Get(t.Context(), "a/prod", "notes", key); err != nil || string(item.Value) != want {
			t.Errorf("%s is %q, %v", key, item.Value, err)
		}
	}
	for id := range byte(3) {
		if r, err := s.Command(t.Context(), "a/prod", store.CommandID{id}); (r != nil) != (id > 0) || err != nil {
			t.Errorf("command %d is %v, %v", id, r, err)
		}
	}
	if r, err := s.Append(t.Context(), "a/prod", []store.Append{{Side: []store.Side{own("after", "3")}}}); err != nil ||
		r[0].Outcome != store.Committed {
		t.Error(r, err)
	}
}

// TestLoadOvertaken changes too much of a tenant while a load copies its items and commands.
func TestLoadOvertaken(t *testing.T) {
	t.Parallel()
	both := openBeside(t, 2)
	s, beside := both[0], both[1]
	put := func(key string) store.Side { return store.Side{Op: store.Put, Space: "notes", Key: key} }
	much := func() error {
		var side []store.Side
		for i := range mostChanged + 1 {
			side = append(side, put(fmt.Sprint(i)))
		}
		return s.Write(t.Context(), "a/prod", side)
	}
	clearOwn := func() error { return s.Clear(t.Context(), "a/prod", "more", store.Range{}) }
	for what, c := range map[string]struct {
		change  func() error
		revised bool
		last    bool
		again   bool
		err     error
	}{
		"many items":                    {change: much, again: true},
		"many items, for the last time": {change: much, last: true, err: store.ErrOvertaken},
		"many items under revisions":    {change: much, revised: true, err: store.ErrOvertaken},
		"a range":                       {change: clearOwn, again: true},
		"another store": {again: true, change: func() error {
			return beside.Write(t.Context(), "a/prod", []store.Side{put("beside")})
		}},
		"its removal": {err: store.ErrOvertaken, change: func() error {
			return errors.Join(
				s.DropTenant(t.Context(), "a/prod"), s.Write(t.Context(), "a/prod", []store.Side{put("k")}),
			)
		}},
		"its events": {err: store.ErrNotEmpty, change: func() error {
			_, err := s.Append(t.Context(), "a/prod", []store.Append{{Events: []store.NewEvent{{
				Key: j17.Key{Type: "order", ID: "a"}, Type: "was_made", Data: []byte(`1`), Metadata: []byte(`{}`),
			}}}})
			return err
		}},
		"a loaded item under a revision": {revised: true, err: store.ErrOvertaken, change: func() error {
			return s.Write(t.Context(), "a/prod", []store.Side{put("loaded")})
		}},
	} {
		if err := errors.Join(
			s.DropTenant(t.Context(), "a/prod"),
			s.Write(t.Context(), "a/prod", []store.Side{put("k"), {Op: store.Put, Space: "more", Key: "k"}}),
		); err != nil {
			t.Fatal(err)
		}
		l := beginLoad(t, s, "a/prod")
		item := store.ArchivedItem{Space: "notes", Item: store.Item{Key: "loaded"}}
		if c.revised {
			item.Rev = 1
		}
		if err := errors.Join(
			l.Item(item), l.writeOthers(0), l.written(), l.follow(t.Context()), l.takeOver(t.Context()), c.change(),
		); err != nil {
			t.Fatal(err)
		}
		again, err := l.list(t.Context(), nil, c.last)
		if again != c.again || !errors.Is(err, c.err) {
			t.Errorf("%s: again %v, %v", what, again, err)
		}
		if c.again {
			want, failed := s.Count(t.Context(), "a/prod", "notes", store.Range{}, 2*mostChanged)
			if err := errors.Join(failed, l.clearCopied(t.Context()), l.Commit(t.Context())); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			n, err := s.Count(t.Context(), "a/prod", "notes", store.Range{}, 2*mostChanged)
			if err != nil || n != want+1 {
				t.Errorf("%s: there are %d items, want %d: %v", what, n, want+1, err)
			}
		}
		l.Discard()
	}
}

// TestLoadOfNothing loads into tenants that hold nothing when the load begins. If one is created meanwhile, the load
// has to copy again.
func TestLoadOfNothing(t *testing.T) {
	t.Parallel()
	s := openOnServer(t)
	begin := func() *loading {
		l := beginLoad(t, s, "a/prod")
		if _, err := l.Event(madeEvent(1, "a", nil)); err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := begin()
	if err := s.Write(t.Context(), "a/prod", []store.Side{{Op: store.Put, Space: "notes", Key: "k"}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Commit(t.Context()); !errors.Is(err, store.ErrOvertaken) {
		t.Errorf("a load before its tenant: %v", err)
	}
	if err := begin().Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := s.Changed(t.Context(), 0, 9)
	if err != nil || len(list) != 1 || list[0].Tenant != "a/prod" {
		t.Errorf("changed are %v, %v", list, err)
	}
	if _, err := s.Get(t.Context(), "a/prod", "notes", "k"); err != nil {
		t.Error(err)
	}
}

// TestLoadLeavings discards a load, begins one whose number gets lost with the connection, and opens the store again
// after a crash during another load: nothing is left of them, and the old process adds nothing if it wakes up later.
func TestLoadLeavings(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	schema := server.Schema(t)
	open := func() *Store {
		s, err := Open(t.Context(), Options{Address: server.Address(), Schema: schema, AllowSingle: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	first := open()
	begin := func() *loading {
		l := beginLoad(t, first, "a/prod")
		if _, err := l.Event(madeEvent(1, "a", nil)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(
			l.Item(store.ArchivedItem{Space: "notes", Item: store.Item{Key: "k"}}),
			l.writeEvents(0), l.writeOthers(0), l.written(),
		); err != nil {
			t.Fatal(err)
		}
		return l
	}
	given, crashed := begin(), begin()
	there := map[string]int{"events": 1, "tags": 1, "items": 1, "unnamed": 1, "tenants": 1}
	gone := map[string]int{"events": 0, "tags": 0, "items": 0, "unnamed": 0, "tenants": 0}
	wantRows(t, first, "a load", given.number, there)
	given.Discard()
	var unheard int32
	if err := first.pool.QueryRow(t.Context(), newLoad, first.holder()).Scan(&unheard); err != nil {
		t.Fatal(err)
	}
	if err := first.sweeper.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, first, "a load that was given up", given.number, gone)
	wantRows(t, first, "a load that nobody got", unheard, gone)
	wantRows(t, first, "another load", crashed.number, there)

	second := open()
	if err := second.sweeper.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, second, "a load of a store that has ended", crashed.number, gone)
	if _, err := crashed.Event(madeEvent(2, "a", nil)); err != nil {
		t.Fatal(err)
	}
	if err := crashed.Commit(t.Context()); !errors.Is(err, errLoadLost) {
		t.Errorf("the commit of a load that was removed: %v", err)
	}
	empty := beginLoad(t, first, "b/prod")
	if err := second.endLoads(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := empty.Commit(t.Context()); !errors.Is(err, errLoadLost) {
		t.Errorf("the commit of an empty load that was removed: %v", err)
	}
	if names, err := second.Tenants(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("there are %v, %v", names, err)
	}
	wantRows(t, second, "after all", crashed.number, gone)
}
