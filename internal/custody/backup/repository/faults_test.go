package repository_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

// Each byte of each file is changed, and each file cut short or removed: it is always named.
func TestDamageIsNamed(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprint("encrypted ", encrypted), func(t *testing.T) {
			dir := t.TempDir()
			r := repository.OpenFolder(dir, clock.NewManual(start()))
			h := repository.Head{ID: "bak_1", Kind: repository.Full}
			var identities repository.Identities
			if encrypted {
				var recipient string
				identities, recipient = key(t)
				h.Seal = seal(t, recipient)
			}
			if _, err := backup(t, r, h, sample(5), nil); err != nil {
				t.Fatal(err)
			}
			all := files(t, dir)
			if len(all) != 4 { // feed, items, commands, manifest
				t.Fatal(all)
			}
			for _, name := range all {
				whole := must[[]byte](t)(os.ReadFile(name))
				damage := func(what string, text []byte) {
					t.Helper()
					if err := os.WriteFile(name, text, 0o600); err != nil {
						t.Fatal(err)
					}
					_, err := read(t.Context(), r, "bak_1", identities)
					_, ok := errors.AsType[*repository.DamagedError](err)
					if _, other := errors.AsType[*repository.IdentityError](err); other &&
						strings.Contains(name, "manifests") {
						ok = true
					}
					if !ok ||
						!strings.Contains(err.Error(), filepath.Base(name)) && !strings.Contains(name, "manifests") {
						t.Fatalf("%s, %s: %v", name, what, err)
					}
				}
				for i := 0; i < len(whole); i += 1 + len(whole)/60 {
					text := bytes.Clone(whole)
					text[i] ^= 0x10
					damage(fmt.Sprintf("byte %d flipped", i), text)
				}
				for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
					damage(fmt.Sprintf("cut to %d bytes", n), whole[:n])
				}
				damage("more at the end", append(bytes.Clone(whole), 'x'))
				if err := os.WriteFile(name, whole, 0o600); err != nil {
					t.Fatal(err)
				}
			}

			// A file that is missing; then one of another name in its place.
			for _, name := range all {
				if strings.Contains(name, "manifests") {
					continue
				}
				away := name + ".away"
				if err := os.Rename(name, away); err != nil {
					t.Fatal(err)
				}
				if _, err := read(t.Context(), r, "bak_1", identities); err == nil ||
					!strings.Contains(err.Error(), name+" cannot be used: it is missing") {
					t.Fatal(err)
				}
				for _, other := range all {
					if other == name || strings.Contains(other, "manifests") {
						continue
					}
					if err := os.WriteFile(name, must[[]byte](t)(os.ReadFile(other)), 0o600); err != nil {
						t.Fatal(err)
					}
					if _, err := read(t.Context(), r, "bak_1", identities); err == nil ||
						!strings.Contains(err.Error(), name) {
						t.Fatal(err)
					}
				}
				if err := os.Rename(away, name); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := read(t.Context(), r, "bak_1", identities); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// write puts a manifest of somebody's making.
func write(t *testing.T, dir, id, line string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "manifests"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%s\n%x\n", line, sha256.Sum256([]byte(line)))
	if err := os.WriteFile(filepath.Join(dir, "manifests", id), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A pipe in the place of a file holds nobody up.
func TestPipe(t *testing.T) {
	dir := t.TempDir()
	r := repository.OpenFolder(dir, clock.NewManual(start()))
	if err := os.Mkdir(filepath.Join(dir, "manifests"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "manifests", "x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Manifest(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "not a file") {
		t.Error(err)
	}
}

func TestManifestsOfOthers(t *testing.T) {
	tenantWith := func(feed string) string {
		return `{"format":1,"id":"x","tenants":[{"tenant":"a/prod","position":"1700000000000-1","moment":"1700000000000-1","size":1,"root":"` + strings.Repeat("0", 64) + `","feed":[` + feed + `]}]}`
	}
	name := strings.Repeat("a", 64)
	for line, want := range map[string]string{
		`{"format":2,"id":"x","tenants":"who knows"}`: "newer version of j17 (format 2, this one reads formats up to 1)",
		`{"format":1,"id":"y"}`:                       "another backup",
		`{"id":"x"}`:                                  "no format",
		`[]`:                                          "not what j17 writes",
		`{"format":1,"id":"x","recipients":["age1"]}`: "how its parts are named",
		tenantWith(`{"part":"../../etc/passwd","bytes":1,"first":"1700000000000-1","last":"1700000000000-1","events":1}`):                                           "no proper name",
		tenantWith(`{"part":"` + name + `","bytes":99999999999,"first":"1700000000000-1","last":"1700000000000-1","events":1}`):                                     "no proper name",
		tenantWith(`{"part":"` + name + `","bytes":1,"first":"1700000000000-1","last":"1700000000000-1","events":2}`):                                               "do not come to its size",
		tenantWith(`{"part":"` + name + `","bytes":1,"first":"1700000000000-2","last":"1700000000000-1","events":1}`):                                               "out of order",
		tenantWith(`{"part":"` + name + `","bytes":1,"first":"never","last":"1700000000000-1","events":1}`):                                                         "no stream id",
		`{"format":1,"id":"x","tenants":[{"tenant":"a/prod","position":"0000000000000-0","moment":"0000000000000-0","size":0,"root":"xyz"}]}`:                       "no hash",
		`{"format":1,"id":"x","tenants":[{"tenant":"","position":"0000000000000-0","moment":"0000000000000-0","size":0,"root":"` + strings.Repeat("0", 64) + `"}]}`: "no name of what a backup is of",
	} {
		dir := t.TempDir()
		write(t, dir, "x", line)
		r := repository.OpenFolder(dir, clock.NewManual(start()))
		_, err := r.Manifest(t.Context(), "x")
		if _, ok := errors.AsType[*repository.DamagedError](err); !ok || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), filepath.Join("manifests", "x")) {
			t.Errorf("%s: %v", line, err)
		}

		// It is told of beside the others, and nothing is collected while nobody knows what it lists.
		good, err := backup(t, r, repository.Head{ID: "bak_1", Kind: repository.Full}, sample(3), nil)
		if err != nil {
			t.Fatal(err)
		}
		all, damaged, err := r.Manifests(t.Context())
		if len(all) != 1 || all[0].ID != good.ID || len(damaged) != 1 || err != nil {
			t.Fatal(all, damaged, err)
		}
		if _, _, err := r.Collect(t.Context()); err == nil {
			t.Error("parts were collected although a manifest cannot be read")
		}
		if err := r.Delete(t.Context(), "x"); err != nil {
			t.Errorf("a damaged backup cannot be deleted: %v", err)
		}
	}
	for _, id := range []string{"", "..", "a/b", "../parts", "a b"} {
		if _, err := repository.OpenFolder(t.TempDir(), clock.NewManual(start())).Manifest(t.Context(), id); !errors.Is(
			err, repository.ErrNotFound,
		) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// A part that expands to more than the manifest says costs no more than that.
func TestPartsDoNotExpandBeyondWhatIsListed(t *testing.T) {
	dir := t.TempDir()
	r := repository.OpenFolder(dir, clock.NewManual(start()))
	c := sample(3)
	m, err := backup(t, r, repository.Head{ID: "bak_1", Kind: repository.Full}, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	// 1 GiB of zeros in some 32 KiB: a frame with blocks that repeat one byte.
	bomb := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58}
	for range 8192 {
		bomb = append(bomb, 0x02, 0x00, 0x10, 0x00)
	}
	bomb = append(bomb, 0x03, 0x00, 0x10, 0x00)
	sum := crc32.Checksum(bomb, crc32.MakeTable(crc32.Castagnoli))
	bomb = binary.LittleEndian.AppendUint32(append(bomb, 0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0), sum)
	name := m.Tenants[0].Feed[0].Name
	if err := os.WriteFile(filepath.Join(dir, "parts", name[:2], name), bomb, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = read(t.Context(), r, "bak_1", repository.Identities{})
	if _, ok := errors.AsType[*repository.DamagedError](err); !ok {
		t.Fatal(err)
	}
}

func TestAFullBackupReplacesDamagedParts(t *testing.T) {
	dir := t.TempDir()
	r := repository.OpenFolder(dir, clock.NewManual(start()))
	c := sample(20)
	m, err := backup(t, r, repository.Head{ID: "bak_1", Kind: repository.Full}, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	name := m.Tenants[0].Feed[0].Name
	if err := os.WriteFile(filepath.Join(dir, "parts", name[:2], name), []byte("no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := backup(t, r, repository.Head{ID: "bak_2", Kind: repository.Full}, c, nil)
	if err != nil || b.Bytes == 0 || b.Bytes >= m.Bytes {
		t.Fatal(b.Bytes, err)
	}
	same(t, c, must[content](t)(read(t.Context(), r, "bak_1", repository.Identities{})))
}

func TestNothingIsCollectedWhileABackupIsWritten(t *testing.T) {
	for name, open := range storages() {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			if _, err := backup(t, r, repository.Head{ID: "bak_1", Kind: repository.Full}, sample(3), nil); err != nil {
				t.Fatal(err)
			}
			w, err := r.NewBackup(t.Context(), repository.Head{ID: "bak_2"})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := r.Collect(t.Context()); !errors.Is(err, repository.ErrBusy) {
				t.Fatal(err)
			}
			w.Abort()
			w.Abort()
			if _, err := w.Finish(start()); err == nil {
				t.Error("a backup that was given up was finished")
			}
			if removed, _, err := r.Collect(t.Context()); removed != 0 || err != nil {
				t.Fatal(removed, err)
			}
		})
	}
}

// A backup that was cut short leaves parts and its marker. Neither hinders anybody for long.
func TestWhatACrashLeaves(t *testing.T) {
	dir := t.TempDir()
	now := clock.NewManual(start())
	r := repository.OpenFolder(dir, now)
	ctx, crash := context.WithCancel(t.Context())
	w, err := r.NewBackup(ctx, repository.Head{ID: "bak_1", Kind: repository.Full})
	if err != nil {
		t.Fatal(err)
	}
	tw := w.Tenant(repository.TenantHead{Tenant: tenant})
	if err := tw.Event(made(1, 1, `{}`), nil); err != nil {
		t.Fatal(err)
	}
	crash()
	if err := tw.Cut(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w.Abort()
	left := filepath.Join(dir, "parts", "aa", strings.Repeat("a", 64))
	marker := filepath.Join(dir, "writing", "bak_1")
	for _, name := range []string{left, marker, filepath.Join(dir, "tmp", "new-1")} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// The marker counts for an hour, unless somebody says that it does not.
	if _, _, err := r.Collect(t.Context()); !errors.Is(err, repository.ErrBusy) {
		t.Fatal(err)
	}
	if err := r.Abandon(t.Context(), "bak_1"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{marker, filepath.Join(dir, "tmp", "new-1")} {
		if err := os.WriteFile(name, []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if removed, _, err := r.Collect(t.Context()); removed != 1 || err != nil {
		t.Fatal(removed, err)
	}
	for _, f := range files(t, dir) {
		if f != marker {
			t.Errorf("%s is left", f)
		}
	}
	if all, damaged, err := r.Manifests(t.Context()); len(all)+len(damaged) > 0 || err != nil {
		t.Fatal(all, damaged, err)
	}
}

// noticing tells when somebody waits.
type noticing struct {
	*clock.Manual
	waits chan struct{}
}

func (n *noticing) Wait(ctx context.Context, t time.Time) error {
	n.waits <- struct{}{}
	return n.Manual.Wait(ctx, t)
}

// Whoever collects is waited for.
func TestABackupWaitsWhileSomebodyCollects(t *testing.T) {
	dir := t.TempDir()
	now := &noticing{clock.NewManual(start()), make(chan struct{})}
	r := repository.OpenFolder(dir, now)
	marker := filepath.Join(dir, "collecting", "someone")
	if err := os.MkdirAll(filepath.Dir(marker), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-now.waits
		stop()
	}()
	if _, err := r.NewBackup(ctx, repository.Head{ID: "bak_1"}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if f := files(t, filepath.Join(dir, "writing")); len(f) > 0 {
		t.Errorf("%v is left", f)
	}

	go func() {
		<-now.waits
		if err := os.Remove(marker); err != nil {
			t.Error(err)
		}
		now.Advance(time.Minute)
	}()
	if _, err := backup(t, r, repository.Head{ID: "bak_1", Kind: repository.Full}, sample(3), nil); err != nil {
		t.Fatal(err)
	}
}

func TestABackupThatIsNotWholeIsNone(t *testing.T) {
	r := repository.OpenFolder(t.TempDir(), clock.NewManual(start()))
	c := sample(10)
	for name, spoil := range map[string]func(*content){
		"an event is missing": func(c *content) { c.entries = append(c.entries[:3:3], c.entries[4:]...) },
		"the last is missing": func(c *content) { c.entries = c.entries[:9] },
		"the order is wrong":  func(c *content) { c.entries[3], c.entries[4] = c.entries[4], c.entries[3] },
		"there is one too much": func(c *content) {
			c.entries = append(c.entries, store.Archived{Event: made(500, 11, `{}`)})
		},
	} {
		spoiled := c
		spoiled.entries = append([]store.Archived(nil), c.entries...)
		spoil(&spoiled)
		w, err := r.NewBackup(t.Context(), repository.Head{ID: "bak_1", Kind: repository.Full})
		if err != nil {
			t.Fatal(err)
		}
		tw := w.Tenant(c.head())
		for _, e := range spoiled.entries {
			if e.Note != nil {
				err = errors.Join(err, tw.Note(*e.Note))
			} else {
				err = errors.Join(err, tw.Event(e.Event, e.Tags))
			}
		}
		if err = errors.Join(err, tw.Close()); err == nil {
			t.Errorf("%s: it was closed", name)
		}
		if _, err := w.Finish(start()); err == nil {
			t.Errorf("%s: it was finished", name)
		}
	}
	if _, err := r.Manifest(t.Context(), "bak_1"); !errors.Is(err, repository.ErrNotFound) {
		t.Fatal(err)
	}
}

func TestErasures(t *testing.T) {
	for name, open := range storages() {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			mine, recipient := key(t)
			c := sample(5)
			erased := c.entries[2].Event
			of := func(n, number int) repository.Erasure {
				note := *c.entries[5].Note
				note.Position = at(n)
				return repository.Erasure{
					Tenant: tenant, Note: note, At: start(), Number: number, Events: []*j17.Event{erased},
				}
			}
			others := of(100, 0)
			others.Note.Streams = []store.Generation{{Key: j17.Key{Type: "note", ID: "other"}, Number: 1}}
			for _, e := range []repository.Erasure{others, of(100, 0), of(90, 1), of(90, 0), of(90, 0), of(80, 0)} {
				if err := r.PutErasure(t.Context(), e, seal(t, recipient)); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for e, err := range r.Erasures(t.Context(), tenant, at(80), mine) {
				if err != nil {
					t.Fatal(err)
				}
				if len(e.Events) != 1 || !bytes.Equal(e.Events[0].Raw, erased.Raw) || !bytes.Equal(
					e.Events[0].Kept, erased.Kept,
				) || e.Events[0].Version != erased.Version || len(e.Note.Streams) != 1 || !e.At.Equal(start()) {
					t.Fatalf("%+v", e)
				}
				got = append(got, fmt.Sprint(e.Note.Position.Seq, ".", e.Number))
			}
			if want := "90.0 90.1 100.0 100.0"; strings.Join(got, " ") != want {
				t.Errorf("%v, want %s", got, want)
			}
			for _, err := range r.Erasures(t.Context(), tenant, at(80), repository.Identities{}) {
				if _, ok := errors.AsType[*repository.IdentityError](err); !ok {
					t.Error(err)
				}
			}
			for _, err := range r.Erasures(t.Context(), "ins_1/staging", j17.StreamID{}, mine) {
				t.Error("another environment has erasures", err)
			}
			if err := r.DropErasures(t.Context(), tenant, at(90)); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, err := range r.Erasures(t.Context(), tenant, j17.StreamID{}, mine) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != 2 {
				t.Errorf("%d are left", n)
			}
		})
	}
}
