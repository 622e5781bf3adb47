package restore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/backup/repository"
	"j17/internal/custody/backup/restore"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const tenant = j17.Tenant("ins_1/prod")

func startTime() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

// world is a store that is backed up, and what it is backed up to.
type world struct {
	t     *testing.T
	clock *clock.Manual
	st    store.Store
	dir   string
	repo  *repository.Repository
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := clock.NewManual(startTime())
	dir := t.TempDir()
	return &world{t: t, clock: c, st: testopen.Open(t, c), dir: dir, repo: repository.OpenFolder(dir, c)}
}

// write appends events of one stream and returns the position of the last one.
func (w *world) write(id string, n int, side ...store.Side) j17.StreamID {
	w.t.Helper()
	u := store.Append{Timestamp: w.clock.Now().Unix(), Side: side, Command: &store.Command{
		ID: store.CommandID([]byte(fmt.Sprintf("%-16s", id+w.clock.Now().Format("150405.000")))), Memo: []byte("memo"),
	}}
	for i := range n {
		u.Events = append(u.Events, store.NewEvent{
			Key: j17.Key{Type: "note", ID: id}, Type: "was_written", Data: fmt.Appendf(nil, `{"n":%d,"of":%q}`, i, id),
			Metadata: []byte(`{"actor":{"type":"user","id":"u1"}}`), Tags: []string{"color:red"},
		})
	}
	results, err := w.st.Append(w.t.Context(), tenant, []store.Append{u})
	if err != nil || results[0].Outcome != store.Committed {
		w.t.Fatal(results, err)
	}
	w.clock.Advance(time.Second)
	return results[0].IDs[n-1]
}

func put(space store.Space, key, value string) store.Side {
	return store.Side{Op: store.Put, Space: space, Key: key, Value: []byte(value)}
}

// erase replaces an event by a marker and returns the note.
func (w *world) erase(id string, version uint64) store.Note {
	w.t.Helper()
	_, err := w.st.Rewrite(w.t.Context(), tenant, store.Rewrite{Streams: []store.RewrittenStream{{
		Key: j17.Key{Type: "note", ID: id}, Events: []store.Rewritten{
			{Version: version, Type: "_was_erased", Data: []byte(`{}`), Metadata: []byte(`{}`)},
		},
	}}})
	if err != nil {
		w.t.Fatal(err)
	}
	var last store.Note
	for e, err := range w.st.ReadChanges(w.t.Context(), tenant, j17.StreamID{}, 1<<20) {
		if err != nil {
			w.t.Fatal(err)
		}
		if e.Note != nil {
			last = *e.Note
		}
	}
	return last
}

// archive passes everything that a store has of the tenant.
func archive(t *testing.T, st store.Store, do func(a store.Archive)) {
	t.Helper()
	a, err := st.Archive(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	do(a)
}

// backup makes a backup and returns its manifest.
func (w *world) backup(id string) repository.Manifest {
	w.t.Helper()
	var m repository.Manifest
	archive(w.t, w.st, func(a store.Archive) {
		var tree proof.Tree
		for c, err := range a.Changes(w.t.Context(), j17.StreamID{}) {
			if err != nil {
				w.t.Fatal(err)
			}
			if c.Event != nil {
				tree.Add(c.Event.Leaf())
			}
		}
		b, err := w.repo.NewBackup(w.t.Context(), repository.Head{
			ID: id, Scope: repository.OfEnvironment, Kind: repository.Full, CreatedAt: w.clock.Now(),
		})
		if err != nil {
			w.t.Fatal(err)
		}
		defer b.Abort()
		tw := b.Tenant(repository.TenantHead{
			Tenant: tenant, Instance: "ins_1", Name: "app", Environment: j17.Prod, Position: a.Extent().Last,
			Moment: a.Position(), Time: w.clock.Now().UnixMilli(), Size: tree.Size(), Root: tree.Root(),
		})
		for c, err := range a.Changes(w.t.Context(), j17.StreamID{}) {
			if err == nil && c.Note != nil {
				err = tw.Note(*c.Note)
			} else if err == nil {
				err = tw.Event(c.Event, c.Tags)
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
		for i, err := range a.Items(w.t.Context(), store.ItemName{}) {
			if err == nil {
				err = tw.Item(i)
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
		for c, err := range a.Commands(w.t.Context()) {
			if err == nil {
				err = tw.Command(c)
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
		if err := tw.Close(); err != nil {
			w.t.Fatal(err)
		}
		if m, err = b.Finish(w.clock.Now()); err != nil {
			w.t.Fatal(err)
		}
	})
	return m
}

// restore restores a backup into a new store.
func (w *world) restore(m repository.Manifest, cut *restore.Cut) (store.Store, restore.Report, error) {
	w.t.Helper()
	x, err := w.repo.Read(m, repository.Identities{})
	if err != nil {
		w.t.Fatal(err)
	}
	st := testopen.Open(w.t, w.clock)
	report, err := restore.Tenant(w.t.Context(), restore.Options{
		Backup: x, Store: st, Temp: w.t.TempDir(),
		Erasures: func(ctx context.Context, t j17.Tenant, after j17.StreamID) iter.Seq2[*repository.Erasure, error] {
			return w.repo.Erasures(ctx, t, after, repository.Identities{})
		},
	}, m.Of(tenant), cut)
	return st, report, err
}

// lines are what a store has of the tenant, as text.
func lines(t *testing.T, st store.Store) (events, items, commands []string) {
	t.Helper()
	archive(t, st, func(a store.Archive) {
		for c, err := range a.Changes(t.Context(), j17.StreamID{}) {
			if err != nil {
				t.Fatal(err)
			}
			if c.Note != nil {
				events = append(events, fmt.Sprintf("note %+v", *c.Note))
				continue
			}
			events = append(events, fmt.Sprintf("%d %s %x %q", c.Event.Version, c.Event.Raw, c.Event.Kept, c.Tags))
		}
		for i, err := range a.Items(t.Context(), store.ItemName{}) {
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, fmt.Sprintf("%s %s %q %d %v %v", i.Space, i.Key, i.Value, i.Rev, i.Expires, i.Due))
		}
		for c, err := range a.Commands(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			commands = append(commands, fmt.Sprintf("%s %q %s %v", c.ID[:], c.Memo, c.First, c.Lengths))
		}
	})
	return events, items, commands
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEverythingIsThereAgain(t *testing.T) {
	w := newWorld(t)
	w.write("a", 3, put("saga.rows", "x", "row"), store.Side{
		Op: store.Put, Space: "scheduled", Key: "y", Due: startTime().Add(time.Hour),
		Expires: startTime().Add(2 * time.Hour),
	})
	w.write("b", 2)
	w.erase("a", 2)
	w.write("a", 1)
	m := w.backup("bak_1")
	w.write("c", 1)

	st, report, err := w.restore(m, nil)
	if err != nil || report.Past || report.Events != 6 || report.Root != m.Tenants[0].Root {
		t.Fatal(report, err)
	}
	events, items, commands := lines(t, st)
	wantEvents, wantItems, wantCommands := lines(t, w.st)
	equal(t, "events", events, wantEvents[:len(wantEvents)-1])
	equal(t, "items", items, wantItems)
	if len(commands) != 3 || len(wantCommands) != 4 {
		t.Errorf("%d commands of %d", len(commands), len(wantCommands))
	}
	if err := restore.Same(
		t.Context(), st, must[*repository.Reader](t)(w.repo.Read(m, repository.Identities{})), m.Of(tenant),
	); err != nil {
		t.Error(err)
	}

	// Heads are what they were.
	keys := []j17.Key{{Type: "note", ID: "a"}, {Type: "note", ID: "b"}}
	was, now := must[[]store.Head](t)(w.st.Heads(t.Context(), tenant, keys)),
		must[[]store.Head](t)(st.Heads(t.Context(), tenant, keys))
	for i := range was {
		if was[i] != now[i] {
			t.Errorf("%s: %+v, want %+v", keys[i], now[i], was[i])
		}
	}
}

// TestTagsAreGivenAnew: where events got other tags between two backups, the second one may have parts of the first. So
// nothing is restored that says which tags events have, and whoever opens the store gives them theirs again; what they
// have until then is found by nobody.
func TestTagsAreGivenAnew(t *testing.T) {
	w := newWorld(t)
	w.write("a", 3, put("tagging", "tags", `{"names":"red"}`), put("saga.rows", "x", "row"))
	w.backup("bak_1")
	retagged := []store.Retagged{{Key: j17.Key{Type: "note", ID: "a"}, Version: 2, Tags: []string{"color:blue"}}}
	if err := w.st.Retag(t.Context(), tenant, retagged); err != nil {
		t.Fatal(err)
	}
	w.write("b", 1, put("tagging", "tags", `{"names":"blue"}`))
	for _, cut := range []*restore.Cut{nil, {Position: w.write("c", 1)}} {
		st, _, err := w.restore(w.backup(fmt.Sprintf("bak_%t", cut == nil)), cut)
		if err != nil {
			t.Fatal(err)
		}
		if it, err := st.Get(t.Context(), tenant, "tagging", "tags"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s is restored, %v", it.Value, err)
		}

		// Giving them their tags is what a build does then, whatever they had.
		if err := st.Retag(t.Context(), tenant, retagged); err != nil {
			t.Fatal(err)
		}
		found := 0
		for ev, err := range st.ReadTagged(
			t.Context(), tenant, store.Tagged{Tags: []string{"color:blue"}}, j17.StreamID{}, 10, nil,
		) {
			if err != nil || ev.Version != 2 {
				t.Fatal(ev, err)
			}
			found++
		}
		for ev, err := range st.ReadTagged(
			t.Context(), tenant, store.Tagged{Tags: []string{"color:red"}}, j17.StreamID{}, 10, nil,
		) {
			if err != nil || ev.Key.ID == "a" && ev.Version == 2 {
				t.Fatal(ev, err)
			}
		}
		if found != 1 {
			t.Errorf("%d events have the tag", found)
		}
	}
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestAnEarlierMoment(t *testing.T) {
	w := newWorld(t)
	version := func(n int) store.Side {
		return put(
			"spec.versions", fmt.Sprintf("%010d", n),
			fmt.Sprintf(`{"version":%d,"deployed_at":%q}`, n, w.clock.Now().Format(time.RFC3339)),
		)
	}
	named := func(id, number string) []store.Side {
		return []store.Side{
			put("identity.number", "note:"+id, number), put("identity.number.index", number, "note:"+id),
			put("identity.number.index", "latest", number),
			put("identity.handle", "note:"+id, "h"+number), put("identity.handle.index", "h"+number, "note:"+id),
		}
	}
	w.write("a", 1, append(
		named("a", "1"), version(1), put("spec.versions", "0000000001/source", "one"),
		put("spec.head", "current", `{"version":1}`),
	)...)
	w.write("b", 1, named("b", "2")...)
	at := w.write("a", 1)
	then := w.clock.Now()
	w.clock.Advance(time.Minute)
	w.write("c", 1, append(named("c", "3"),
		version(2), put("spec.versions", "0000000002/source", "two"), put("spec.head", "current", `{"version":2}`),
		put("spec.unannounced", "0000000002", "{}"),
		put("saga.rows", "x", "pending"), put("something.new", "x", "y"), put("erasure.tombstones", "x", "asked for"),
		put("blob.heads", "f", "{}"),
	)...)
	w.erase("a", 1)

	// Of two commands it is known only that they were carried out: the events of one were erased, the other has
	// something to say of a later moment.
	forgotten, silent := store.CommandID([]byte("forgotten       ")), store.CommandID([]byte("silent          "))
	for id, memo := range map[store.CommandID]string{forgotten: "", silent: "memo"} {
		if _, err := w.st.Append(t.Context(), tenant, []store.Append{
			{Timestamp: 1, Command: &store.Command{ID: id, Memo: []byte(memo)}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	m := w.backup("bak_1")

	want := []string{
		"blob.heads f", "erasure.tombstones x", "identity.handle note:a", "identity.handle note:b",
		"identity.handle.index h1", "identity.handle.index h2", "identity.number note:a", "identity.number note:b",
		"identity.number.index 1", "identity.number.index 2", "identity.number.index latest", "spec.head current",
		"spec.versions 0000000001", "spec.versions 0000000001/source",
	}
	for name, cut := range map[string]*restore.Cut{
		"position": {Position: at}, "time": restore.AtTime(then.UnixMilli()),
	} {
		st, report, err := w.restore(m, cut)
		if err != nil || !report.Past || report.Events != 3 || report.Position != at {
			t.Fatal(name, report, err)
		}
		events, items, commands := lines(t, st)
		if len(events) != 4 || !strings.Contains(events[0], "_was_erased") || !strings.HasPrefix(events[3], "note ") {
			t.Errorf("%s: %q", name, events)
		}

		// Commands whose events are there must not be carried out again, nor those whose events were erased.
		var carriedOut []string
		for _, c := range commands {
			carriedOut = append(carriedOut, c[:1])
		}
		equal(t, name+": commands", carriedOut, []string{"a", "a", "b", "f"})
		var names []string
		for _, i := range items {
			names = append(names, strings.Join(strings.Fields(i)[:2], " "))
			if strings.HasPrefix(i, "identity.number.index latest") && !strings.Contains(i, `"2"`) ||
				strings.HasPrefix(i, "spec.head") && !strings.Contains(i, `version\":1}`) {
				t.Errorf("%s: %s", name, i)
			}
		}
		equal(t, name, names, want)

		// It goes on from there.
		head := must[[]store.Head](t)(st.Heads(t.Context(), tenant, []j17.Key{{Type: "note", ID: "a"}}))[0]
		if head.Length != 2 || head.Generation != 1 {
			t.Errorf("%s: %+v", name, head)
		}
	}

	// At its own position a backup is whole.
	st, report, err := w.restore(m, &restore.Cut{Position: m.Position()})
	if err != nil || report.Past {
		t.Fatal(report, err)
	}
	_, items, commands := lines(t, st)
	_, wantItems, wantCommands := lines(t, w.st)
	equal(t, "items", items, wantItems)
	equal(t, "commands", commands, wantCommands)
}

func TestErasuresAreRepeated(t *testing.T) {
	w := newWorld(t)
	w.write("a", 3, put("index.slots", "s1", "{}"), put("index.rows", "s1/a", "{}"),
		put("feed.subscriptions", "index/s1", "x"), put("build.removals", "index/s0", "{}"),
		put("feed.subscriptions", "listener/l", "x"), put("build.jobs", "tags/x", "{}"))
	w.write("b", 1)
	m := w.backup("bak_1")
	w.write("a", 1)
	w.write("late", 1)
	for _, gone := range []struct {
		id      string
		version uint64
	}{{"a", 1}, {"late", 1}, {"a", 2}} {
		e := repository.Erasure{Tenant: tenant, Note: w.erase(gone.id, gone.version), At: w.clock.Now()}
		for event, err := range w.st.ReadStream(t.Context(), tenant, j17.Key{Type: "note", ID: gone.id}, 1, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if event.Kept != nil {
				e.Events = append(e.Events, event.Clone())
			}
		}
		if err := w.repo.PutErasure(t.Context(), e, repository.Seal{}); err != nil {
			t.Fatal(err)
		}
	}

	st, report, err := w.restore(m, nil)
	if err != nil || report.Erased != 1 || report.Past {
		t.Fatal(report, err)
	}
	events, _, _ := lines(t, st)
	all, _, _ := lines(t, w.st)
	if len(events) != 6 {
		t.Fatalf("%q", events)
	}
	equal(t, "events", events[:4], all[:4])
	if report.Root != m.Tenants[0].Root {
		t.Error("the root has changed")
	}
	key := []j17.Key{{Type: "note", ID: "a"}}
	if head := must[[]store.Head](t)(st.Heads(t.Context(), tenant, key))[0]; head.Generation != 2 || head.Length != 3 {
		t.Errorf("%+v", head)
	}

	// Indexes show what was erased, and are not what is restored; what else follows the feed is.
	for item, want := range map[store.ItemName]bool{
		{Space: "index.slots", Key: "s1"}: false, {Space: "index.rows", Key: "s1/a"}: false,
		{Space: "feed.subscriptions", Key: "index/s1"}: false,
		{Space: "build.removals", Key: "index/s0"}:     false, {Space: "feed.subscriptions", Key: "listener/l"}: true,
		{Space: "build.jobs", Key: "tags/x"}: true,
	} {
		if _, err := st.Get(t.Context(), tenant, item.Space, item.Key); (err == nil) != want {
			t.Errorf("%+v: %v", item, err)
		}
	}
}

// TestOneGenerationTwice restores backups of streams whose erasures were noted more than once, with the generation of
// when that was done.
func TestOneGenerationTwice(t *testing.T) {
	w := newWorld(t)
	w.write("a", 2)
	w.write("b", 2)
	older := w.backup("bak_1")
	first := w.erase("a", 1)
	w.erase("b", 1)
	between := w.backup("bak_2")
	last := w.erase("a", 2)
	again := w.write("c", 1)
	note := func(id string, at j17.StreamID, generation uint64) {
		key := j17.Key{Type: "note", ID: id}
		e := repository.Erasure{
			Tenant: tenant, At: w.clock.Now(),
			Note: store.Note{Position: at, Streams: []store.Generation{{Key: key, Number: generation}}},
		}
		for event, err := range w.st.ReadStream(t.Context(), tenant, key, 1, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if event.Erased() {
				e.Events = append(e.Events, event.Clone())
			}
		}
		if err := w.repo.PutErasure(t.Context(), e, repository.Seal{}); err != nil {
			t.Fatal(err)
		}
	}
	note("a", first.Position, 2)
	note("a", last.Position, 2)
	note("a", again, 2)
	note("b", again, 1) // under the same position, and the backup in between has it

	for m, applied := range map[*repository.Manifest]int{&older: 2, &between: 1} {
		st, report, err := w.restore(*m, nil)
		if err != nil {
			t.Fatal(m.ID, err)
		}
		if report.Erased != applied {
			t.Errorf("%s: erased again: %d", m.ID, report.Erased)
		}
		heads := must[[]store.Head](t)(st.Heads(t.Context(), tenant, []j17.Key{
			{Type: "note", ID: "a"}, {Type: "note", ID: "b"},
		}))
		if heads[0].Generation != 2 || heads[1].Generation != 1 {
			t.Errorf("%s: %+v", m.ID, heads)
		}
		events, _, _ := lines(t, st)
		if n := strings.Count(strings.Join(events, "\n"), "_was_erased"); n != 3 {
			t.Errorf("%s: %d events are erased: %q", m.ID, n, events)
		}
	}
}

func TestDamageLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.write("a", 3)
	m := w.backup("bak_1")

	// A root that is not that of the events.
	wrong := m
	wrong.Tenants = append([]repository.TenantManifest(nil), m.Tenants...)
	wrong.Tenants[0].Root[5]++
	st, _, err := w.restore(wrong, nil)
	if damaged, ok := errors.AsType[*repository.DamagedError](err); !ok ||
		!strings.HasSuffix(damaged.File, "manifests/bak_1") {
		t.Fatal(err)
	}
	if all, err := st.Tenants(t.Context()); len(all) != 0 || err != nil {
		t.Fatal(all, err)
	}

	// A part that is not there.
	part := m.Tenants[0].Commands[0].Name
	if err := os.Remove(filepath.Join(w.dir, "parts", part[:2], part)); err != nil {
		t.Fatal(err)
	}
	st, _, err = w.restore(m, nil)
	if damaged, ok := errors.AsType[*repository.DamagedError](err); !ok || !strings.Contains(damaged.File, part) {
		t.Fatal(err)
	}
	if all, err := st.Tenants(t.Context()); len(all) != 0 || err != nil {
		t.Fatal(all, err)
	}
}

func TestVerifier(t *testing.T) {
	w := newWorld(t)
	for range 5 {
		w.write("a", 300)
	}
	first := w.backup("bak_1")
	w.write("b", 1)
	second := w.backup("bak_2")
	v := must[*restore.Verifier](t)(restore.NewVerifier(t.TempDir()))
	defer v.Close()
	read := func(m repository.Manifest) *repository.Reader {
		return must[*repository.Reader](t)(w.repo.Read(m, repository.Identities{}))
	}
	for _, m := range []repository.Manifest{first, second} {
		if err := v.Backup(t.Context(), read(m), &m); err != nil {
			t.Fatal(err)
		}
	}

	// What was read once is not read again.
	again := read(second)
	if err := v.Backup(t.Context(), again, &second); err != nil || again.Bytes() != 0 {
		t.Fatal(again.Bytes(), err)
	}
	second.Tenants[0].Root[0]++
	if err := v.Backup(t.Context(), read(second), &second); err == nil ||
		!strings.Contains(err.Error(), "manifests/bak_2") {
		t.Fatal(err)
	}
}
