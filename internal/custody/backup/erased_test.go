package backup_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/backup"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

// TestErased checks that what was erased is in no new backup, and is noted beside the older ones.
func TestErased(t *testing.T) {
	h := newHouse(t, nil)
	h.run(t)
	h.write(t, h.prod, "ann", "ann is 31")
	h.write(t, h.prod, "bob", "bob is 44")
	a := h.make(t, h.prod, "")
	key := j17.Key{Type: "note", ID: "ann"}
	r, err := h.store.Rewrite(t.Context(), h.prod, store.Rewrite{Streams: []store.RewrittenStream{{
		Key: key, Events: []store.Rewritten{
			{Version: 1, Type: "_was_tombstoned", Data: []byte("{}"), Metadata: []byte("{}")},
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, h.prod, "bob", "bob is 45", "bob is 46", "bob is 47")
	b := h.make(t, h.prod, "")
	text := h.read(t, b.ID, h.prod)
	if b.Kind != repository.Incremental || strings.Contains(text, "ann is") ||
		!strings.Contains(text, "_was_tombstoned") || !strings.Contains(text, "bob is 44") {
		t.Errorf("%+v %s", b, text)
	}
	if text := h.read(t, a.ID, h.prod); !strings.Contains(text, "ann is 31") {
		t.Error("the older one has changed: " + text)
	}

	// Only what is older needs a note.
	note := func(at j17.StreamID) {
		noted := h.Stats().Noted
		if err := h.Erase(t.Context(), h.prod, part.Erased{
			Keys: []j17.Key{key}, Note: at, At: h.clock.Now(),
		}); err != nil {
			t.Fatal(err)
		}
		h.await(t, func() bool { return h.Stats().Noted > noted })
	}
	files := func() int {
		all, err := filepath.Glob(filepath.Join(h.folder, "erasures", "*", "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	note(r.IDs[0])
	if n := files(); n != 1 {
		t.Errorf("%d notes", n)
	}
	note(r.IDs[0])
	if n := files(); n != 1 {
		t.Errorf("%d notes of one erasure", n)
	}

	// With the last backup that needs it the note goes.
	if err := h.Delete(t.Context(), h.prod, a.ID); err != nil {
		t.Fatal(err)
	}
	h.await(t, func() bool { return files() == 0 })
	if text := h.read(t, b.ID, h.prod); !strings.Contains(text, "bob is 47") {
		t.Error(text)
	}
	if left := h.folderHas(t, "ann is 31"); left != "" {
		t.Error("what was erased is still in " + left)
	}
}

// replace erases the first event of a stream and returns the position of the note.
func (h *house) replace(tb testing.TB, t j17.Tenant, key j17.Key) j17.StreamID {
	tb.Helper()
	r, err := h.store.Rewrite(tb.Context(), t, store.Rewrite{Streams: []store.RewrittenStream{{
		Key: key, Events: []store.Rewritten{
			{Version: 1, Type: "_was_tombstoned", Data: []byte("{}"), Metadata: []byte("{}")},
		},
	}}})
	if err != nil {
		tb.Fatal(err)
	}
	return r.IDs[0]
}

// erasures are the files of notes in a folder.
func erasures(tb testing.TB, folder string) []string {
	tb.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "erasures", "*", "*", "*"))
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// TestErasedBesideWhatCannotBeRead: a backup of a newer version may have what was erased, and whoever restores it with
// that version erases it again.
func TestErasedBesideWhatCannotBeRead(t *testing.T) {
	h := newHouse(t, nil)
	h.run(t)
	h.write(t, h.prod, "ann", "ann is 31")
	key := j17.Key{Type: "note", ID: "ann"}
	newer := filepath.Join(h.folder, "manifests", "bkp_newer")
	if err := os.MkdirAll(filepath.Dir(newer), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(newer, []byte(`{"format":99}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Erase(t.Context(), h.prod, part.Erased{
		Keys: []j17.Key{key}, Note: h.replace(t, h.prod, key), At: h.clock.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	h.await(t, func() bool { return h.Stats().Noted == 1 })
	if all := erasures(t, h.folder); len(all) != 1 {
		t.Errorf("the notes are %q", all)
	}
}

// TestErasedWhereOnePlaceIsAway notes an erasure while one of two places does not answer, and once it does.
func TestErasedWhereOnePlaceIsAway(t *testing.T) {
	h := newHouse(t, nil)
	h.run(t)
	h.write(t, h.prod, "ann", "ann is 31")
	h.make(t, h.prod, "")
	h.stop()

	// Backups go to another place now, which is broken.
	old := h.folder
	h.options.Folder = filepath.Join(t.TempDir(), "new")
	if err := os.MkdirAll(h.options.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(h.options.Folder, "manifests")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.options.Worker = worker.New(h.clock, slog.New(slog.NewTextHandler(h.log, nil)))
	h.open(t)
	h.run(t)
	key := j17.Key{Type: "note", ID: "ann"}
	if err := h.Erase(t.Context(), h.prod, part.Erased{
		Keys: []j17.Key{key}, Note: h.replace(t, h.prod, key), At: h.clock.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	h.await(t, func() bool {
		for _, c := range h.options.Worker.Counts() {
			if c.Name == "backup_erasures" {
				return c.Failed == 1
			}
		}
		return false
	})
	if n := len(erasures(t, old)); n != 1 || h.Stats().Noted != 0 {
		t.Fatalf("%d notes, and %d erasures are noted everywhere", n, h.Stats().Noted)
	}

	// When it is mended, what the other one has is not noted there again.
	for _, file := range append(erasures(t, old), broken) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	h.clock.Advance(time.Hour)
	h.await(t, func() bool { return h.Stats().Noted == 1 })
	if n := len(erasures(t, old)); n != 0 {
		t.Errorf("%d notes are there again", n)
	}
}

// held is a store of which a backup is held up once, after the last that it has read.
type held struct {
	backup.Storage
	read, goOn chan struct{}
	once       *sync.Once
}

// Archive returns one whose end is waited for.
func (h held) Archive(ctx context.Context, t j17.Tenant) (store.Archive, error) {
	a, err := h.Storage.Archive(ctx, t)
	return heldArchive{a, &h}, err
}

type heldArchive struct {
	store.Archive
	by *held
}

// Close reports that all is read, and waits.
func (a heldArchive) Close() {
	a.Archive.Close()
	a.by.once.Do(func() {
		close(a.by.read)
		<-a.by.goOn
	})
}

// TestErasedBeforeTheManifest erases what a backup has copied that is not there yet, of one environment and of the
// server.
func TestErasedBeforeTheManifest(t *testing.T) {
	for _, server := range []bool{false, true} {
		hold := held{read: make(chan struct{}), goOn: make(chan struct{}), once: new(sync.Once)}
		h := newHouse(t, func(o *backup.Options) {
			hold.Storage = o.Store
			o.Store = hold
		})
		goOn := sync.OnceFunc(func() { close(hold.goOn) })
		t.Cleanup(goOn) // before the service is stopped, which waits for it
		h.run(t)
		h.write(t, h.prod, "ann", "ann is 31")
		scope := h.prod
		if server {
			scope = j17.System
		}
		b, err := h.Create(t.Context(), scope, "")
		if err != nil {
			t.Fatal(err)
		}
		<-hold.read

		// It was noted before the backup is seen, so that at no time it is there without.
		key := j17.Key{Type: "note", ID: "ann"}
		note := h.replace(t, h.prod, key)
		if err := h.Erase(t.Context(), h.prod, part.Erased{
			Keys: []j17.Key{key}, Note: note, At: h.clock.Now(),
		}); err != nil {
			t.Fatal(err)
		}
		h.await(t, func() bool { return h.Stats().Noted == 1 })
		if _, err := h.store.Purge(t.Context(), h.prod, []j17.Key{key}, nil, nil); err != nil {
			t.Fatal(err)
		}
		goOn()
		if b = h.ended(t, scope, b.ID); b.Status != backup.Completed {
			t.Fatalf("%+v", b)
		}
		m, err := repository.OpenFolder(h.folder, clock.System{}).Manifest(t.Context(), b.ID)
		if err != nil {
			t.Fatal(err)
		}
		noted := 0
		for e, err := range repository.OpenFolder(h.folder, clock.System{}).Erasures(
			t.Context(), h.prod, m.Of(h.prod).Moment, repository.Identities{},
		) {
			if err != nil || len(e.Events) != 1 {
				t.Fatal(e, err)
			}
			noted++
		}
		if noted != 1 || h.folderHas(t, "ann is 31") == "" {
			t.Errorf("server %v: %d notes", server, noted)
		}
	}
}

// folderHas returns a part whose content has a text.
func (h *house) folderHas(tb testing.TB, text string) string {
	tb.Helper()
	repo := repository.OpenFolder(h.folder, clock.System{})
	all, _, err := repo.Manifests(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	for _, m := range all {
		if strings.Contains(h.read(tb, m.ID, h.prod), text) {
			return m.ID
		}
	}
	return ""
}
