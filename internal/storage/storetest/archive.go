package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/storage/store"
)

// Copy copies all that a tenant holds into another one, which may be in another store.
func Copy(ctx context.Context, from store.Archives, tn j17.Tenant, to store.Archives, as j17.Tenant) error {
	a, err := from.Archive(ctx, tn)
	if err != nil {
		return err
	}
	defer a.Close()
	l, err := to.Load(ctx, as)
	if err != nil {
		return err
	}
	defer l.Discard()
	if err := copyAll(ctx, a, l); err != nil {
		return err
	}
	return l.Commit(ctx)
}

// added adds an event to a load.
func added(l store.Load, e store.LoadedEvent) error {
	_, err := l.Event(e)
	return err
}

// copyAll adds what an archive holds to a load.
func copyAll(ctx context.Context, a store.Archive, l store.Load) error {
	for c, err := range a.Changes(ctx, j17.StreamID{}) {
		switch {
		case err != nil:
			return err
		case c.Note != nil:
			err = l.Note(*c.Note)
		default:
			_, err = l.Event(store.LoadedEvent{Event: c.Event, Tags: c.Tags})
		}
		if err != nil {
			return err
		}
	}
	for item, err := range a.Items(ctx, store.ItemName{}) {
		if err == nil {
			err = l.Item(item)
		}
		if err != nil {
			return err
		}
	}
	for c, err := range a.Commands(ctx) {
		if err == nil {
			err = l.Command(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// loadOf begins a load, which the caller has to end.
func loadOf(s *suite, f *fixture, tn j17.Tenant) store.Load {
	s.t.Helper()
	l, err := f.Load(s.t.Context(), tn)
	if err != nil {
		s.t.Fatalf("load: %v", err)
	}
	return l
}

// testArchive copies a tenant with some of everything, and continues to use both.
func testArchive(s *suite) {
	t := s.t
	f := s.fixture(t)
	text := fill(t, f, tenant)
	target := s.fixture(t)
	commit(t, target, other, store.Append{Events: events(order("1"), `1`)})
	for round := range 3 {
		if err := Copy(t.Context(), f, tenant, target, j17.Tenant(fmt.Sprint("copy", round))); err != nil {
			t.Fatal(err)
		}
	}
	if err := Copy(t.Context(), f, tenant, target, tenant); err != nil {
		t.Fatal(err)
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			target.reopen(t, t)
		}
		if diff := cmp.Diff(text, dumpOf(t, target, tenant)); diff != "" {
			t.Fatalf("the copy (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(
			readFeed(t, f, tenant, j17.StreamID{}, everything), readFeed(t, target, tenant, j17.StreamID{}, everything),
		); diff != "" {
			t.Fatalf("feed (-want +got):\n%s", diff)
		}
		if tagged := readTagged(t, target, tenant, j17.StreamID{}, everything, "actor:user:u1"); len(tagged) != 59 {
			// all but the bare one and the erased one
			t.Fatalf("%d events have the actor's tag", len(tagged))
		}
		if a, b := head(t, f, tenant, order("1")), head(t, target, tenant, order("1")); a != b || a.Generation != 1 {
			t.Fatalf("heads %+v, %+v", a, b)
		}
	}
	if _, err := target.Load(t.Context(), tenant); !errors.Is(err, store.ErrNotEmpty) {
		t.Fatalf("a second load: %v, want ErrNotEmpty", err)
	}

	// The copy behaves like the original: commands, conditions, due work and time continue.
	target.clock.Set(f.clock.Now())
	for _, fix := range []*fixture{f, target} {
		if r := appendUnit(t, fix, tenant, store.Append{
			Command: &store.Command{ID: store.CommandID{3}},
		}); r.Outcome != store.Duplicate || string(r.Memo) != "\x00\x01\x03" {
			t.Fatalf("command: %+v", r)
		}
		commit(t, fix, tenant, store.Append{
			Pre: []store.Pre{pre(order("1"), 8)}, Events: events(order("1"), `9`), Side: []store.Side{put("new", "")},
		})
		fix.clock.Advance(time.Minute)
		if got := claim(t, fix, 2, time.Minute); !cmp.Equal(keysOf(got), []string{"25", "26"}) {
			t.Fatalf("claimed %v", keysOf(got))
		}
		fix.clock.Advance(3 * time.Hour)
		if items, err := fix.Scan(t.Context(), tenant, space, store.Prefix("k"), 9); err != nil || len(items) != 0 {
			t.Fatalf("items that should have expired: %v, %v", items, err)
		}
	}
	if diff := cmp.Diff(dumpOf(t, f, tenant), dumpOf(t, target, tenant)); diff != "" {
		t.Fatalf("both went on differently:\n%s", diff)
	}
}

// testArchiveMoment reads an archive while its tenant is written to.
func testArchiveMoment(s *suite) {
	t := s.t
	f := s.fixture(t)
	fill(t, f, tenant)
	a, err := f.Archive(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	before := readFeed(t, f, tenant, j17.StreamID{}, everything)
	h := head(t, f, tenant, order("1"))
	commit(t, f, tenant, store.Append{
		Events: events(order("1"), `"later"`), Side: []store.Side{put("later", ""), put("k1", "")},
	})
	if e := a.Extent(); e.Events != uint64(len(before)) || e.Last != before[len(before)-1].ID ||
		a.Position().Compare(e.Last) <= 0 {
		t.Errorf("extent %+v at %s", e, a.Position())
	}
	if heads, err := a.Heads([]j17.Key{
		order("1"), order("none"),
	}); err != nil || heads[0] != h || heads[1] != (store.Head{}) {
		t.Errorf("heads %+v, %v", heads, err)
	}
	var got []record
	notes := 0
	for c, err := range a.Changes(t.Context(), before[3].ID) {
		switch {
		case err != nil:
			t.Fatal(err)
		case c.Note != nil:
			notes++
		default:
			got = append(got, recordOf(c.Event))
		}
	}
	if diff := cmp.Diff(before[4:], got); diff != "" || notes != 1 {
		t.Errorf("%d notes, changes (-want +got):\n%s", notes, diff)
	}

	// Items in the order of their names, from any of them on.
	var names []store.ItemName
	for item, err := range a.Items(t.Context(), store.ItemName{}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, store.ItemName{Space: item.Space, Key: item.Key})
	}
	all, err := a.Scan(space, store.Range{}, everything)
	if err != nil || len(names) <= len(all) || slices.Contains(names, store.ItemName{Space: space, Key: "later"}) {
		t.Errorf("items %v, %v", names, err)
	}
	for item, err := range a.Items(t.Context(), names[2]) {
		if err != nil || item.Key != names[3].Key {
			t.Errorf("behind %v stands %+v, %v", names[2], item, err)
		}
		break
	}
	for _, backward := range []bool{false, true} {
		want, err := a.Scan(space, store.Range{From: "k2", Backward: backward}, everything)
		var got []string
		if err2 := a.Each(space, store.Range{From: "k2", Backward: backward}, func(key, _ []byte) bool {
			got = append(got, string(key))
			return true
		}); err != nil || err2 != nil || !slices.Equal(got, keysOf(want)) {
			t.Errorf("each passes %q, %v, %v, want %q", got, err, err2, keysOf(want))
		}
	}
	a.Close()
	a.Close()
	if _, err := a.Heads(nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}

	// A tenant without anything.
	if a, err = f.Archive(t.Context(), "nobody"); err != nil {
		t.Fatal(err)
	}
	l := loadOf(s, f, "nobody")
	if err := errors.Join(copyAll(t.Context(), a, l), l.Commit(t.Context())); err != nil {
		t.Error(err)
	}
	a.Close()
}

// testArchiveEnded erases while archives are read slowly, and closes the store.
func testArchiveEnded(s *suite) {
	t := s.t
	f := s.fixture(t)
	fill(t, f, tenant)
	fill(t, f, other)
	archive := func(tn j17.Tenant) store.Archive {
		a, err := f.Archive(t.Context(), tn)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}

	// All iterations are in the middle.
	fill(t, f, "quiet/prod")
	a, b, quiet := archive(tenant), archive(other), archive("quiet/prod")
	change, stop := iter.Pull2(a.Changes(t.Context(), j17.StreamID{}))
	defer stop()
	item, stopItems := iter.Pull2(b.Items(t.Context(), store.ItemName{}))
	defer stopItems()
	if _, err, ok := change(); err != nil || !ok {
		t.Fatal(err)
	}
	if _, err, ok := item(); err != nil || !ok {
		t.Fatal(err)
	}
	unchanged, stopUnchanged := iter.Pull2(quiet.Items(t.Context(), store.ItemName{}))
	defer stopUnchanged()
	if _, err, ok := unchanged(); err != nil || !ok {
		t.Fatal(err)
	}
	write(t, f, other, put("meanwhile", ""))

	// An erasure ends them, but neither later archives nor those of tenants that have not changed.
	gone := []store.Rewritten{{Version: 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}}
	if err := Erase(t.Context(), f, tenant, order("2"), gone); err != nil {
		t.Fatal(err)
	}
	later := archive(tenant)
	_, failed := a.Get(space, "k1")
	_, changed, _ := change()
	_, items, _ := item()
	for what, err := range map[string]error{"get": failed, "changes": changed, "items of another tenant": items} {
		if !errors.Is(err, store.ErrEnded) {
			t.Errorf("%s after an erasure: %v", what, err)
		}
	}
	if _, err := later.Heads([]j17.Key{order("2")}); err != nil {
		t.Error(err)
	}
	l := loadOf(s, f, "quiet/copy")
	if err := errors.Join(copyAll(t.Context(), quiet, l), l.Commit(t.Context())); err != nil {
		t.Errorf("an archive of which nothing has changed: %v", err)
	}
	if diff := cmp.Diff(
		readFeed(t, f, "quiet/prod", j17.StreamID{}, everything),
		readFeed(t, f, "quiet/copy", j17.StreamID{}, everything),
	); diff != "" {
		t.Error(diff)
	}
	for {
		_, err, ok := unchanged()
		if err != nil {
			t.Errorf("items of a tenant of which nothing has changed: %v", err)
		}
		if !ok {
			break
		}
	}

	// Later writes to the tenant are not in its archive, and the next erasure ends it.
	write(t, f, "quiet/prod", put("later", ""))
	if _, err := quiet.Get(space, "later"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what was written later is in an archive: %v", err)
	}
	if err := Erase(t.Context(), f, tenant, order("3"), gone); err != nil {
		t.Fatal(err)
	}
	if _, err := quiet.Heads([]j17.Key{order("2")}); !errors.Is(err, store.ErrEnded) {
		t.Errorf("after another erasure: %v", err)
	}
	later = archive(tenant)

	// So does closing the store.
	f.reopen(t, t)
	for c, err := range later.Changes(t.Context(), j17.StreamID{}) {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("after the end of the store: %+v, %v", c, err)
		}
	}
}

// crafted returns an event as an export of another program may have it.
func crafted(at j17.StreamID, key j17.Key, timestamp int64) store.LoadedEvent {
	raw, layout := j17.AppendEvent(
		nil, at, key, "was_made", []byte(`1`), []byte(`{"actor":{"type":"user","id":"u1"}}`), timestamp,
	)
	return store.LoadedEvent{Line: int(at.Ms), Event: &j17.Event{
		StreamID: at, Key: key, Type: "was_made", Timestamp: timestamp, Raw: raw, Data: layout.DataOf(raw),
		Metadata: layout.MetadataOf(raw),
	}}
}

// testLoadRefused loads invalid data.
func testLoadRefused(s *suite) {
	t := s.t
	f := s.fixture(t)
	at := func(ms int64) j17.StreamID { return j17.StreamID{Ms: ms} }
	a := order("a")
	sum := func(raw []byte) [32]byte { return sha256.Sum256(append([]byte{0}, raw...)) }
	for name, change := range map[string]func(first, second *store.LoadedEvent){
		"the same position": func(first, second *store.LoadedEvent) {
			*second = crafted(first.StreamID, order("b"), 5)
		},
		"positions backward": func(_, second *store.LoadedEvent) {
			*second = crafted(at(3), order("b"), 5)
		},
		"the end of all positions": func(_, second *store.LoadedEvent) {
			*second = crafted(at(9_999_999_999_999), a, 5)
		},
		"another timestamp": func(_, second *store.LoadedEvent) { second.Timestamp++ },
		"other bytes": func(_, second *store.LoadedEvent) {
			second.Raw = bytes.Replace(second.Raw, []byte("order:a"), []byte("order:b"), 1)
		},
		"more bytes":      func(_, second *store.LoadedEvent) { second.Raw = append(second.Raw, ' ') },
		"no bytes":        func(_, second *store.LoadedEvent) { second.Raw = nil },
		"another version": func(_, second *store.LoadedEvent) { second.Version = 3 },
		"a bad key": func(_, second *store.LoadedEvent) {
			*second = crafted(at(8), j17.Key{Type: "or:der", ID: "a"}, 5)
		},
		"no type":      func(_, second *store.LoadedEvent) { second.Type = "" },
		"a short leaf": func(_, second *store.LoadedEvent) { second.Kept = []byte{1} },
		"a bad tag":    func(_, second *store.LoadedEvent) { second.Tags = []string{"x\xff"} },
		"another chain": func(first, second *store.LoadedEvent) {
			chain := j17.Link([32]byte{}, sum(first.Raw))
			second.Chain = &chain
		},
	} {
		l := loadOf(s, f, other)
		first, second := crafted(at(7), a, 5), crafted(at(8), a, 5)
		change(&first, &second)
		err := errors.Join(added(l, first), added(l, second))
		if err == nil {
			err = l.Commit(t.Context())
		}
		var refused *store.LoadError
		if !errors.As(err, &refused) || refused.Line != second.Line || refused.Key != second.Key {
			t.Errorf("%s: %v, want a LoadError of line %d", name, err, second.Line)
		}
		if again := l.Commit(t.Context()); again == nil {
			t.Errorf("%s: it can be committed after all", name)
		}
		l.Discard()
	}

	// Contradictory notes, items and commands are refused.
	for name, do := range map[string]func(l store.Load) error{
		"a note without streams": func(l store.Load) error { return l.Note(store.Note{Position: at(9)}) },
		"a note of generation 0": func(l store.Load) error {
			return l.Note(store.Note{Position: at(9), Streams: []store.Generation{{Key: a}}})
		},
		"a note before events": func(l store.Load) error {
			return l.Note(store.Note{Position: at(6), Streams: []store.Generation{{Key: a, Number: 1}}})
		},
		"a note of nobody": func(l store.Load) error {
			return l.Note(store.Note{Position: at(9), Streams: []store.Generation{{Key: order("z"), Number: 1}}})
		},
		"generations backward": func(l store.Load) error {
			return errors.Join(l.Note(store.Note{Position: at(9), Streams: []store.Generation{{Key: a, Number: 2}}}),
				l.Note(store.Note{Position: at(10), Streams: []store.Generation{{Key: a, Number: 2}}}))
		},
		"an item without a space": func(l store.Load) error {
			return l.Item(store.ArchivedItem{Item: store.Item{Key: "k"}})
		},
		"an item without the entries": func(l store.Load) error {
			return l.Item(store.ArchivedItem{
				Space: space, Item: store.Item{Key: "k", Value: []byte("x")}, Entries: "e",
			})
		},
		"a command that contradicts itself": func(l store.Load) error {
			return l.Command(store.ArchivedCommand{Lengths: []uint64{1}})
		},
	} {
		l := loadOf(s, f, other)
		err := added(l, crafted(at(7), a, 5))
		if err == nil {
			err = errors.Join(do(l), l.Commit(t.Context()))
		}
		if err == nil {
			t.Errorf("%s was loaded", name)
		}
		l.Discard()
	}

	// Nothing is left of any of them.
	f.reopen(t, t)
	if names, err := f.Tenants(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("there are %v, %v", names, err)
	}
}

// testLoadChains loads events with the chains that their streams have, some of them erased, without a note.
func testLoadChains(s *suite) {
	t := s.t
	f := s.fixture(t)
	l := loadOf(s, f, tenant)
	chains, kept := map[j17.Key][32]byte{}, map[j17.Key][32]byte{}

	// Runs of positions without a gap, of all lengths, over the end of a millisecond.
	at := j17.StreamID{Ms: 1_700_000_000_000, Seq: 4294967295 - 100}
	var want []record
	for i := range 500 {
		key := order(fmt.Sprint(i % 7))
		e := crafted(at, key, int64(i))
		leaf := j17.Leaf(e.Raw)
		if i%70 == 0 {
			leaf = [32]byte{byte(i)}
			e.Kept = leaf[:]
		}
		chain := j17.Link(chains[key], j17.Leaf(e.Raw))
		chains[key], kept[key] = chain, j17.Link(kept[key], leaf)
		e.Chain = &chain
		if i%2 == 0 {
			e.Version = uint64(i/7) + 1
		}
		if i%5 == 0 {
			e.Tags = []string{"fifth", "actor:user:somebody else"}
		}
		if leaf, err := l.Event(e); err != nil || leaf != e.Leaf() {
			t.Fatalf("the leaf %x of an event with %x: %v", leaf, e.Leaf(), err)
		}
		e.Version = uint64(i/7) + 1
		want = append(want, recordOf(e.Event))
		if at = at.Next(); i%150 == 149 {
			at.Ms++
		}
	}
	if err := l.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}

	// The feed, the heads and the tags are those of the events, also after a restart.
	for _, reopen := range []bool{false, true} {
		if reopen {
			f.reopen(t, t)
		}
		if diff := cmp.Diff(want, readFeed(t, f, tenant, j17.StreamID{}, everything)); diff != "" {
			t.Fatalf("feed (-want +got):\n%s", diff)
		}
		for _, from := range []int{1, 63, 64, 101, 149, 150, 151, 499} {
			if got := readFeed(t, f, tenant, want[from-1].ID, 2); !cmp.Equal(got, want[from:min(from+2, len(want))]) {
				t.Errorf("after %s there is %v", want[from-1].ID, got)
			}
		}
		for id := range 7 {
			key := order(fmt.Sprint(id))
			h := head(t, f, tenant, key)
			if h.Now() != chains[key] || h.Chain != kept[key] || (h.Generation == 1) != (id == 0) {
				t.Errorf("the head of %s is %+v", key, h)
			}
		}
		var fifth []record
		for i := range want {
			if i%5 == 0 && i%70 != 0 {
				fifth = append(fifth, want[i])
			}
		}
		if diff := cmp.Diff(
			fifth, readTagged(t, f, tenant, j17.StreamID{}, everything, "fifth", "actor:user:u1"),
		); diff != "" {
			t.Errorf("tagged (-want +got):\n%s", diff)
		}
		if got := readTagged(t, f, tenant, j17.StreamID{}, 1, "actor:user:somebody else"); len(got) > 0 {
			t.Errorf("metadata do not tell %v", got)
		}
	}

	// What is written next follows them.
	extent, err := f.Extent(t.Context(), tenant)
	if err != nil || extent.Events != 500 || extent.Last != want[499].ID {
		t.Errorf("extent %+v, %v", extent, err)
	}
	r := commit(t, f, tenant, store.Append{
		Timestamp: 3, Pre: []store.Pre{pre(order("3"), 71)}, Events: events(order("3"), `1`),
	})
	if r.Timestamp != 499 || r.IDs[0].Compare(extent.Last) <= 0 {
		t.Errorf("what follows stands at %s, %d", r.IDs[0], r.Timestamp)
	}
}

// testLoadItems loads a tenant that has side items of its own.
func testLoadItems(s *suite) {
	t := s.t
	f := s.fixture(t)
	soon := f.clock.Now().Add(time.Minute)
	commit(t, f, tenant, store.Append{
		Command: &store.Command{ID: store.CommandID{9}, Expires: soon},
		Side: []store.Side{
			put("own", "1"),
			{Op: store.Put, Space: "work", Key: "own", Due: soon},
			{Op: store.Put, Space: "work", Key: "both", Due: soon},
			{Op: store.Put, Space: space, Key: "short", Expires: soon},
		},
	})
	both := get(t, f, tenant, "work", "both")
	if h := head(t, f, tenant, order("a")); h.Length != 0 {
		t.Fatal(h)
	}
	awaited := make(chan error, 1)
	go func() { awaited <- f.AwaitFeed(t.Context(), tenant, j17.StreamID{}) }()
	l := loadOf(s, f, tenant)
	entries := func(keys ...string) []byte { return store.AppendEntries(nil, keys...) }
	item := func(sp store.Space, key string, value []byte) store.ArchivedItem {
		return store.ArchivedItem{Space: sp, Item: store.Item{Key: key, Value: value}}
	}
	later, place, twice := item("work", "both", nil), item("places", "p", entries("x", "y")),
		item(space, "twice", []byte("1"))
	later.Due, later.Rev, place.Entries = soon.Add(time.Hour), both.Rev, "cells"
	moved, expiring := place, item(space, "twice", []byte("2"))
	moved.Value, expiring.Expires = entries("y", "z"), soon
	err := added(l, crafted(j17.StreamID{Ms: 7}, order("a"), 5))
	for _, i := range []store.ArchivedItem{later, place, expiring, twice, moved, item(space, "new", []byte("n"))} {
		err = errors.Join(err, l.Item(i))
	}
	for _, n := range []store.ItemName{
		{Space: space, Key: "own"},
		{Space: space, Key: "withdrawn"},
		{Space: space, Key: "again"},
		{Space: space, Key: "never"},
	} {
		given := item(n.Space, n.Key, entries("z", "withdrawn"))
		given.Entries = "cells"
		if n.Key != "never" {
			err = errors.Join(err, l.Item(given))
		}
		if err = errors.Join(err, l.Withdraw(n, given.Entries)); n.Key == "again" {
			err = errors.Join(err, l.Item(item(space, "again", []byte("a"))))
		}
	}
	if err != nil {
		t.Fatal(err)
	}

	// Items written meanwhile are kept as well.
	write(t, f, tenant, put("meanwhile", "m"))
	if _, err := f.Get(t.Context(), tenant, space, "new"); !errors.Is(err, store.ErrNotFound) ||
		head(t, f, tenant, order("a")).Length != 0 {
		t.Errorf("a load is seen before its end: %v", err)
	}
	_, since := changed(t, f, 0, 9)
	if err := errors.Join(l.Commit(t.Context()), <-awaited); err != nil {
		t.Fatal(err)
	}
	if names, _ := changed(t, f, since, 9); !slices.Equal(names, []j17.Tenant{tenant}) {
		t.Errorf("changed are %v", names)
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			f.reopen(t, t)
		}
		if h := head(t, f, tenant, order("a")); h.Length != 1 {
			t.Errorf("head %+v", h)
		}
		for key, want := range map[string]string{
			"own": "1", "short": "", "twice": "1", "new": "n", "meanwhile": "m", "again": "a",
		} {
			if got := get(t, f, tenant, space, key); string(got.Value) != want || got.Rev == 0 ||
				!got.Expires.IsZero() != (key == "short") {
				t.Errorf("%s is %+v", key, got)
			}
		}
		for _, key := range []string{"withdrawn", "never"} {
			if got, err := f.Get(t.Context(), tenant, space, key); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the item %s, which was withdrawn, is %+v, %v", key, got, err)
			}
		}
		cells, err := f.Scan(t.Context(), tenant, "cells", store.Range{}, 9)
		if err != nil || !slices.Equal(keysOf(cells), []string{"y", "z"}) {
			t.Errorf("the entries are %v, %v", cells, err)
		}
		if got := get(t, f, tenant, "work", "both"); got.Rev == both.Rev || !got.Due.Equal(later.Due) {
			t.Errorf("what was loaded over is %+v", got)
		}
		if r, err := f.Command(t.Context(), tenant, store.CommandID{9}); r == nil || err != nil {
			t.Errorf("the command is %v, %v", r, err)
		}
		if at := nextDue(t, f, "work"); !at.Equal(soon) {
			t.Errorf("next is due at %s", at)
		}
	}

	// Items become due and expire at their times.
	f.clock.Set(soon)
	if due, err := f.ClaimDue(t.Context(), tenant, store.Claim{
		Space: "work", Limit: 9, Lease: time.Hour,
	}); err != nil || !slices.Equal(keysOf(due), []string{"own"}) {
		t.Errorf("due are %v, %v", due, err)
	}
	if r, err := f.Command(t.Context(), tenant, store.CommandID{9}); r != nil || err != nil {
		t.Errorf("the expired command is %v, %v", r, err)
	}
	f.clock.Advance(time.Minute)
	f.reopen(t, t)
	write(t, f, tenant, put("after", "all"))
}

// testLoadGivenUp ends loads in all ways other than a commit.
func testLoadGivenUp(s *suite) {
	t := s.t
	f := s.fixture(t)
	write(t, f, other, put("own", "1"))
	load := func(tn j17.Tenant) store.Load {
		l := loadOf(s, f, tn)
		if err := errors.Join(added(l, crafted(j17.StreamID{Ms: 7}, order("a"), 5)), l.Item(store.ArchivedItem{
			Space: space, Item: store.Item{Key: "k"},
		})); err != nil {
			t.Fatal(err)
		}
		return l
	}
	// Discard one, and cancel the commit of another.
	l := load(tenant)
	l.Discard()
	l.Discard()
	if err := errors.Join(added(l, crafted(j17.StreamID{Ms: 9}, order("a"), 5)), l.Commit(t.Context())); err == nil {
		t.Error("a load goes on after its end")
	}
	l = load(tenant)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Commit(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled commit: %v", err)
	}
	l.Discard()

	// Another writer adds events first, and the load is refused. Of two loads the first one counts.
	l = load(other)
	commit(t, f, other, store.Append{Events: events(order("b"), `1`)})
	if err := l.Commit(t.Context()); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("a load into a tenant that came to life: %v", err)
	}
	l.Discard()
	one, two := load("pair"), load("pair")
	if err := one.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if err := two.Commit(t.Context()); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("a second load: %v", err)
	}
	two.Discard()
	one.Discard()

	// The store is closed during a load.
	l = load(tenant)
	f.reopen(t, t)
	if err := l.Commit(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after the end of the store: %v", err)
	}
	l.Discard()
	if names, err := f.Tenants(t.Context()); err != nil || strings.Join(asText(names), " ") != "pair "+string(other) {
		t.Errorf("there are %v, %v", names, err)
	}
	if h := head(t, f, other, order("b")); h.Length != 1 || head(t, f, "pair", order("a")).Length != 1 {
		t.Errorf("head %+v", h)
	}
	if feed := readFeed(t, f, other, j17.StreamID{}, everything); len(feed) != 1 ||
		string(get(t, f, other, space, "own").Value) != "1" {
		t.Errorf("the feed is %v", feed)
	}
}

func asText(names []j17.Tenant) (texts []string) {
	for _, name := range names {
		texts = append(texts, string(name))
	}
	return texts
}
