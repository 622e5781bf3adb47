package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/custody/backup"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

// interrupted is a store in which something happens after each event that a backup reads of a tenant, so many times.
type interrupted struct {
	backup.Storage
	of    j17.Tenant
	times *int
	do    func(read int)
}

// Archive returns one that is interrupted.
func (i *interrupted) Archive(ctx context.Context, t j17.Tenant) (store.Archive, error) {
	a, err := i.Storage.Archive(ctx, t)
	if err != nil || t != i.of {
		return a, err
	}
	return interruptedArchive{a, i}, nil
}

type interruptedArchive struct {
	store.Archive
	by *interrupted
}

// Changes yields what the archive does.
func (a interruptedArchive) Changes(ctx context.Context, after j17.StreamID) iter.Seq2[store.Archived, error] {
	return func(yield func(store.Archived, error) bool) {
		for e, err := range a.Archive.Changes(ctx, after) {
			if !yield(e, err) {
				return
			}
			if err == nil && e.Event != nil && *a.by.times > 0 {
				*a.by.times--
				a.by.do(*a.by.times)
			}
		}
	}
}

// TestErasuresDoNotHoldUpBackups erases data of another environment after each event that a backup reads: it goes on
// with what it has.
func TestErasuresDoNotHoldUpBackups(t *testing.T) {
	for _, kind := range []repository.Kind{repository.Full, repository.Incremental} {
		const events = 40
		times := 0
		ends := &interrupted{times: &times}
		h := newHouse(t, func(o *backup.Options) { ends.Storage, o.Store = o.Store, ends })
		ends.of = h.prod
		staging := j17.TenantOf(h.app.ID, j17.Staging)
		key := j17.Key{Type: "note", ID: "other"}
		h.write(t, staging, "other", "of another environment")
		h.replace(t, staging, key)
		ends.do = func(left int) {
			h.put(t, h.prod, "kept", "b", fmt.Sprint(left)) // else the archive would stay
			if _, err := h.store.Purge(t.Context(), staging, []j17.Key{key}, nil, nil); err != nil {
				t.Error(err)
			}
		}
		h.run(t)
		if kind == repository.Incremental {
			h.write(t, h.prod, "one", "before")
			h.make(t, h.prod, "")
		}
		for i := range events {
			h.write(t, h.prod, "one", fmt.Sprintf("number %d", i))
		}
		h.put(t, h.prod, "kept", "a", "A")

		times = events
		b := h.make(t, h.prod, kind)
		if b.Status != backup.Completed || b.Kind != kind || b.Done != b.Total || times != 0 || len(b.Moments) != 1 {
			t.Errorf("%s: %+v, with %d erasures to come", kind, b, times)
			continue
		}
		whole := h.make(t, h.prod, repository.Full)
		if got := h.read(t, b.ID, h.prod); got != h.read(t, whole.ID, h.prod) || !strings.Contains(got, "number 39") {
			t.Errorf("%s: it has %s", kind, got)
		}
		h.stop()
	}
}

// TestErasedInTheMiddle erases what a backup has copied already: it is not in it, the rest is, and no part of it stays.
func TestErasedInTheMiddle(t *testing.T) {
	times := 0
	ends := &interrupted{times: &times}
	h := newHouse(t, func(o *backup.Options) { ends.Storage, o.Store = o.Store, ends })
	ends.of = h.prod
	key := j17.Key{Type: "note", ID: "ann"}
	ends.do = func(left int) {
		if left == 2 {
			h.replace(t, h.prod, key)
		}
		if _, err := h.store.Purge(t.Context(), h.prod, []j17.Key{key}, nil, nil); err != nil {
			t.Error(err)
		}
	}
	h.run(t)
	h.write(t, h.prod, "bob", "bob is 44")
	h.write(t, h.prod, "ann", "ann is 31")
	h.write(t, h.prod, "cleo", "cleo is 27", "cleo is 28", "cleo is 29")

	times = 4
	b := h.make(t, h.prod, "")
	if b.Status != backup.Completed || times != 0 {
		t.Fatalf("%+v", b)
	}
	text := h.read(t, b.ID, h.prod)
	if strings.Contains(text, "ann is 31") || strings.Count(text, "_was_tombstoned") != 1 {
		t.Error(text)
	}
	for _, want := range []string{"bob is 44", "cleo is 27", "cleo is 28", "cleo is 29"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%s: %s", want, text)
		}
	}

	// What it has stored and does not need goes.
	m, err := repository.OpenFolder(h.folder, clock.System{}).Manifest(t.Context(), b.ID)
	if err != nil {
		t.Fatal(err)
	}
	needed := map[string]bool{}
	of := m.Of(h.prod)
	for _, s := range of.Feed {
		needed[s.Name] = true
	}
	for _, part := range append(of.Items, of.Commands...) {
		needed[part.Name] = true
	}
	h.await(t, func() bool {
		files, err := filepath.Glob(filepath.Join(h.folder, "parts", "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !needed[filepath.Base(file)] {
				return false
			}
		}
		return len(files) == len(needed)
	})
}

// dying is a store whose process ends when it notes what has become of a backup.
type dying struct {
	backup.Storage
	dead atomic.Bool
}

// WriteFreeing writes side items.
func (d *dying) WriteFreeing(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	if d.dead.Load() {
		return store.ErrClosed
	}
	return d.Storage.WriteFreeing(ctx, t, side, fences...)
}

// TestABackupThatIsThereIsListed: a process has ended between the end of a backup and the note of it.
func TestABackupThatIsThereIsListed(t *testing.T) {
	d := &dying{}
	h := newHouse(t, func(o *backup.Options) {
		d.Storage = o.Store
		o.Store = d
	})
	h.write(t, h.prod, "one", "first")
	d.dead.Store(true)
	h.run(t)
	b, err := h.Create(t.Context(), h.prod, "")
	if err != nil {
		t.Fatal(err)
	}
	h.await(t, func() bool { return h.Stats().Completed == 1 && h.Stats().Running == 0 })
	h.stop()
	if b, err := h.Get(t.Context(), h.prod, b.ID); err != nil || b.Status != backup.Running {
		t.Fatal(b, err)
	}

	d.dead.Store(false)
	h.open(t)
	now, err := h.Get(t.Context(), h.prod, b.ID)
	if err != nil || now.Status != backup.Completed || now.Error != "" || now.Bytes == 0 || now.Done != 1 ||
		now.Total != 1 || now.CompletedAt.IsZero() {
		t.Fatalf("%+v, %v", now, err)
	}
	if len(now.Moments) != 1 || now.Moments[0].Tenant != h.prod || now.Moments[0].Size != 1 ||
		now.Moments[0].Root[0] != 1 {
		t.Errorf("%+v", now.Moments)
	}

	// The next one goes on from it, and it can be removed.
	h.run(t)
	if next := h.make(t, h.prod, ""); next.Status != backup.Completed || next.Parent != b.ID {
		t.Errorf("%+v", next)
	}
	if err := h.Delete(t.Context(), h.prod, b.ID); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(h.folder, "manifests", b.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Error("its manifest is left:", err)
	}
}

// vanishing is a store from which an environment is removed when somebody is about to read one of its streams.
type vanishing struct {
	backup.Storage
	heads, stream func()
}

// Heads removes it first, if that is what it is for.
func (v *vanishing) Heads(ctx context.Context, t j17.Tenant, keys []j17.Key) ([]store.Head, error) {
	v.heads()
	return v.Storage.Heads(ctx, t, keys)
}

// ReadStream is the same.
func (v *vanishing) ReadStream(
	ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64,
) iter.Seq2[*j17.Event, error] {
	v.stream()
	return v.Storage.ReadStream(ctx, t, key, from, to)
}

// TestErasedAndRemoved removes an environment while it is noted what was erased in it: what is noted can be read, also
// beside a backup of the server that has the environment.
func TestErasedAndRemoved(t *testing.T) {
	for _, before := range []string{"heads", "stream"} {
		v := &vanishing{heads: func() {}, stream: func() {}}
		h := newHouse(t, func(o *backup.Options) { v.Storage, o.Store = o.Store, v })
		remove := func() {
			if err := h.store.DropTenant(t.Context(), h.prod); err != nil {
				t.Error(err)
			}
		}
		h.write(t, h.prod, "ann", "ann is 31")
		h.run(t)
		b := h.make(t, j17.System, "")
		h.stop()
		key := j17.Key{Type: "note", ID: "ann"}
		note := h.replace(t, h.prod, key)
		if err := h.Erase(t.Context(), h.prod, part.Erased{
			Keys: []j17.Key{key}, Note: note, At: h.clock.Now(),
		}); err != nil {
			t.Fatal(err)
		}
		if before == "heads" {
			v.heads = remove
		} else {
			v.stream = remove
		}
		h.run(t)
		h.await(t, func() bool { return h.Stats().Noted == 1 })
		h.stop()
		repo := repository.OpenFolder(h.folder, clock.System{})
		m, err := repo.Manifest(t.Context(), b.ID)
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range repo.Erasures(t.Context(), h.prod, m.Of(h.prod).Moment, repository.Identities{}) {
			t.Errorf("removed before %s: %+v, %v", before, e, err)
		}
	}
}

// beforeSecret returns what stands in a value before its secret, nil where it has none.
func beforeSecret(value []byte) []byte {
	if before, _, found := bytes.Cut(value, []byte("secret")); found {
		return before
	}
	return nil
}
