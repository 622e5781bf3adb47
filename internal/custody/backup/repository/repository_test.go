package repository_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

const tenant = j17.Tenant("ins_1/prod")

func start() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

// content is what a tenant holds.
type content struct {
	entries  []store.Archived
	items    []store.ArchivedItem
	commands []store.ArchivedCommand
}

func at(n int) j17.StreamID { return j17.StreamID{Ms: 1_700_000_000_000, Seq: uint32(n)} }

// made returns an event.
func made(position, version int, data string) *j17.Event {
	key := j17.Key{Type: "note", ID: "a"}
	raw, _ := j17.AppendEvent(
		nil, at(position), key, "was_written", []byte(data), []byte(`{"actor":{"type":"user","id":"u1"}}`),
		1_700_000_000,
	)
	e, err := j17.ParseEvent(raw)
	if err != nil {
		panic(err)
	}
	e.Version = uint64(version)
	return &e
}

// sample has n events of one stream each, a note, an erased event, items and commands of all kinds.
func sample(n int) content {
	var c content
	for i := range n {
		c.entries = append(c.entries, store.Archived{
			Event: made(i+1, i+1, fmt.Sprintf(`{"n":%d,"text":"%s"}`, i, strings.Repeat("x", i%50))),
		})
	}
	c.entries[0].Tags = []string{"color:red", "a\nb"}
	erased := c.entries[n/2].Event
	leaf := j17.Leaf([]byte("what was there"))
	erased.Kept = leaf[:]
	c.entries = append(c.entries, store.Archived{
		Note: &store.Note{Position: at(n + 1), Streams: []store.Generation{{Key: erased.Key, Number: 2}}},
	})
	for i := range 50 {
		c.items = append(c.items, store.ArchivedItem{
			Space: "some.space", Item: store.Item{
				Key: fmt.Sprintf("%03d", i), Value: fmt.Appendf(nil, `{"i":%d}`, i), Rev: uint64(i + 1),
			},
		})
	}
	c.items[3].Value = []byte{0, 0xff, 1}
	c.items[4].Value = nil
	c.items[5].Expires, c.items[5].Due = start().Add(time.Hour+7), start().Add(time.Minute)
	c.commands = []store.ArchivedCommand{
		{Command: store.Command{ID: store.CommandID{1}}, Timestamp: 7},
		{
			Command: store.Command{ID: store.CommandID{2, 3}, Expires: start(), Memo: []byte("memo")}, Timestamp: 8,
			First: at(1), Lengths: []uint64{1, 2},
		},
	}
	return c
}

func position(e store.Archived) j17.StreamID {
	if e.Note != nil {
		return e.Note.Position
	}
	return e.Event.StreamID
}

func (c *content) events() (n uint64) {
	for _, e := range c.entries {
		if e.Event != nil {
			n++
		}
	}
	return n
}

func (c *content) head() repository.TenantHead {
	h := repository.TenantHead{
		Tenant: tenant, Instance: "ins_1", Name: "app", Plan: "free", InstanceCreatedAt: start(), Environment: j17.Prod,
		Time: start().UnixMilli(), Root: [32]byte{1, 2},
	}
	h.Size = c.events()
	for _, e := range c.entries {
		h.Moment = position(e)
		if e.Event != nil {
			h.Position = h.Moment
		}
	}
	return h
}

// backup makes a backup of a content; parent, if not nil, is what it goes on from.
func backup(
	t *testing.T, r *repository.Repository, h repository.Head, c content, parent []repository.Segment,
) (repository.Manifest, error) {
	t.Helper()
	h.Scope, h.CreatedAt = repository.OfEnvironment, start()
	w, err := r.NewBackup(t.Context(), h)
	if err != nil {
		return repository.Manifest{}, err
	}
	defer w.Abort()
	tw := w.Tenant(c.head())
	if h.Kind == repository.Full {
		tw.Bounds(parent)
		parent = nil
	}
	after := j17.StreamID{}
	for _, s := range parent {
		if err := tw.Keep(s); err != nil {
			return repository.Manifest{}, err
		}
		after = s.Last
	}
	for _, e := range c.entries {
		if position(e).Compare(after) <= 0 {
			continue
		}
		if e.Note != nil {
			err = tw.Note(*e.Note)
		} else {
			err = tw.Event(e.Event, e.Tags)
		}
		if err != nil {
			return repository.Manifest{}, err
		}
	}
	for _, i := range c.items {
		if err := tw.Item(i); err != nil {
			return repository.Manifest{}, err
		}
	}
	for _, command := range c.commands {
		if err := tw.Command(command); err != nil {
			return repository.Manifest{}, err
		}
	}
	if err := tw.Close(); err != nil {
		return repository.Manifest{}, err
	}
	return w.Finish(start().Add(time.Minute))
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

// read reads everything that a backup holds of the tenant.
func read(ctx context.Context, r *repository.Repository, id string, identities repository.Identities) (content, error) {
	var c content
	m, err := r.Manifest(ctx, id)
	if err != nil {
		return c, err
	}
	x, err := r.Read(m, identities)
	if err != nil {
		return c, err
	}
	of := m.Of(tenant)
	for e, err := range x.Feed(ctx, of) {
		if err != nil {
			return c, err
		}
		if e.Event != nil {
			e.Event = e.Event.Clone()
		}
		c.entries = append(c.entries, *e)
	}
	for i, err := range x.Items(ctx, of) {
		if err != nil {
			return c, err
		}
		c.items = append(c.items, i)
	}
	for command, err := range x.Commands(ctx, of) {
		if err != nil {
			return c, err
		}
		c.commands = append(c.commands, command)
	}
	return c, nil
}

// lines are what a content consists of, as text.
func (c *content) lines() (all []string) {
	for _, e := range c.entries {
		if e.Note != nil {
			all = append(all, fmt.Sprintf("note %+v", *e.Note))
			continue
		}
		all = append(all, fmt.Sprintf(
			"event %d %s %s %s %d %s %s %x %q", e.Event.Version, e.Event.StreamID, e.Event.Key, e.Event.Type,
			e.Event.Timestamp, e.Event.Raw, e.Event.Data, e.Event.Kept, e.Tags,
		))
	}
	for _, i := range c.items {
		all = append(all, fmt.Sprintf("item %s %q %q %d %v %v", i.Space, i.Key, i.Value, i.Rev, i.Expires, i.Due))
	}
	for _, c := range c.commands {
		all = append(
			all, fmt.Sprintf("command %x %v %q %d %s %v", c.ID, c.Expires, c.Memo, c.Timestamp, c.First, c.Lengths),
		)
	}
	return all
}

func same(t *testing.T, want, got content) {
	t.Helper()
	a, b := want.lines(), got.lines()
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s was read where there was %s", b[i], a[i])
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%d lines were read, there were %d", len(b), len(a))
	}
}

// key returns a new identity with its recipient.
func key(t *testing.T) (repository.Identities, string) {
	t.Helper()
	text, recipient, err := repository.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return must[repository.Identities](t)(repository.ReadIdentities(strings.NewReader(text))), recipient
}

func seal(t *testing.T, recipients ...string) repository.Seal {
	t.Helper()
	return must[repository.Seal](t)(repository.NewSeal(recipients, []byte("secret of the server")))
}

// files lists a folder of a repository.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return names
}

// storages open a repository on each kind of storage.
func storages() map[string]func(t *testing.T) *repository.Repository {
	return map[string]func(t *testing.T) *repository.Repository{
		"folder": func(t *testing.T) *repository.Repository {
			t.Helper()
			return repository.OpenFolder(filepath.Join(t.TempDir(), "not", "there"), clock.NewManual(start()))
		},
		"s3": openBucket,
	}
}

func TestWhatIsStoredIsRead(t *testing.T) {
	for name, open := range storages() {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			if all, damaged, err := r.Manifests(t.Context()); len(all)+len(damaged) > 0 || err != nil {
				t.Fatalf("an empty repository has %v, %v, %v", all, damaged, err)
			}
			want := sample(100)
			made, err := backup(t, r, repository.Head{ID: "bak_1", Kind: repository.Full, Program: "1.0"}, want, nil)
			if err != nil {
				t.Fatal(err)
			}
			same(t, want, must[content](t)(read(t.Context(), r, "bak_1", repository.Identities{})))

			// The manifest is what Finish returned.
			stored := must[repository.Manifest](t)(r.Manifest(t.Context(), "bak_1"))
			if d := cmp.Diff(made, stored, cmpopts.EquateEmpty()); d != "" {
				t.Fatal(d)
			}
			if made.Bytes == 0 || made.Position() != at(100) || made.Encrypted() {
				t.Fatalf("%+v", made)
			}
			if _, err := r.Manifest(t.Context(), "bak_2"); !errors.Is(err, repository.ErrNotFound) {
				t.Fatal(err)
			}
		})
	}
}

// TestHiddenFilesAreNone: what systems leave in folders is no manifest, no part and no note of an erasure.
func TestHiddenFilesAreNone(t *testing.T) {
	dir, want := t.TempDir(), sample(10)
	r := repository.OpenFolder(dir, clock.NewManual(start()))
	must[repository.Manifest](t)(
		backup(t, r, repository.Head{ID: "bak_1", Kind: repository.Full, Program: "1.0"}, want, nil),
	)
	for _, name := range []string{
		"manifests/.DS_Store", "manifests/._bak_1", "manifests/.snapshot/bak_1", "parts/.DS_Store",
		"erasures/.DS_Store", "writing/.DS_Store",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("x"), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	if all, damaged, err := r.Manifests(t.Context()); len(all) != 1 || len(damaged) > 0 || err != nil {
		t.Errorf("there are %v, damaged %v, %v", all, damaged, err)
	}
	same(t, want, must[content](t)(read(t.Context(), r, "bak_1", repository.Identities{})))
}

func TestNothingIsStoredTwice(t *testing.T) {
	for name, open := range storages() {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			c := sample(300)
			a, err := backup(t, r, repository.Head{ID: "bak_1", Kind: repository.Full}, c, nil)
			if err != nil {
				t.Fatal(err)
			}

			// One more event, and one item that has changed.
			more := c
			more.entries = append(slices.Clip(more.entries), store.Archived{Event: made(2000, 301, `{}`)})
			kept := repository.Resume(a.Tenants[0].Feed, 1)
			b, err := backup(
				t, r, repository.Head{ID: "bak_2", Kind: repository.Incremental, Parent: "bak_1"}, more,
				a.Tenants[0].Feed[:kept],
			)
			if err != nil {
				t.Fatal(err)
			}
			if kept != len(a.Tenants[0].Feed) || b.Bytes >= a.Bytes/4 || b.Bytes == 0 {
				t.Errorf("%d of %d segments were kept; %d bytes were stored after %d", kept, len(a.Tenants[0].Feed), b.Bytes, a.Bytes)
			}
			same(t, more, must[content](t)(read(t.Context(), r, "bak_2", repository.Identities{})))

			// Each is whole by itself.
			if err := r.Delete(t.Context(), "bak_1"); err != nil {
				t.Fatal(err)
			}
			if _, _, err := r.Collect(t.Context()); err != nil {
				t.Fatal(err)
			}
			same(t, more, must[content](t)(read(t.Context(), r, "bak_2", repository.Identities{})))
			if err := r.Delete(t.Context(), "bak_1"); !errors.Is(err, repository.ErrNotFound) {
				t.Fatal(err)
			}

			// A segment whose part is gone cannot be kept.
			if err := r.Delete(t.Context(), "bak_2"); err != nil {
				t.Fatal(err)
			}
			if removed, bytes, err := r.Collect(t.Context()); removed == 0 || bytes == 0 || err != nil {
				t.Fatal(removed, bytes, err)
			}
			if _, err := backup(
				t, r, repository.Head{ID: "bak_3", Kind: repository.Incremental}, more, a.Tenants[0].Feed,
			); !errors.Is(err, repository.ErrMissing) {
				t.Fatal(err)
			}
		})
	}
}

func TestSmallSegmentsAreMerged(t *testing.T) {
	var feed []repository.Segment
	stored := uint64(0)
	for range 1000 { // one event each hour
		kept := repository.Resume(feed, 1)
		events := uint64(1)
		for _, s := range feed[kept:] {
			events += s.Events
		}
		stored += events
		feed = append(feed[:kept], repository.Segment{Events: events})
	}
	if len(feed) > 10 || stored > 1000*10 {
		t.Errorf("a thousand backups of one event left %d segments and stored %d events", len(feed), stored)
	}
	if kept := repository.Resume(feed, 0); kept != len(feed) {
		t.Errorf("a backup of nothing new keeps %d of %d", kept, len(feed))
	}
}

// Items are cut by their names: one that changes, comes or goes leaves the parts of the others as they are.
func TestItemsAreCutByContent(t *testing.T) {
	r := repository.OpenFolder(t.TempDir(), clock.NewManual(start()))
	c := sample(3)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		value := make([]byte, 2000)
		for j := range value {
			value[j] = byte(random.Uint32())
		}
		c.items = append(c.items, store.ArchivedItem{
			Space: "z", Item: store.Item{Key: fmt.Sprintf("%05d", i), Value: value, Rev: 1},
		})
	}
	a, err := backup(t, r, repository.Head{ID: "bak_1", Kind: repository.Full}, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(a.Tenants[0].Items); n < 3 {
		t.Fatalf("%d parts", n)
	}
	c.items = append(c.items[:100:100], c.items[101:]...)
	b, err := backup(t, r, repository.Head{ID: "bak_2", Kind: repository.Full}, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	common := map[string]bool{}
	for _, p := range a.Tenants[0].Items {
		common[p.Name] = true
	}
	changed := 0
	for _, p := range b.Tenants[0].Items {
		if !common[p.Name] {
			changed++
		}
	}
	if changed > 2 {
		t.Errorf("%d of %d parts are new after an item was removed", changed, len(b.Tenants[0].Items))
	}
}

func TestEncryptedBackups(t *testing.T) {
	for name, open := range storages() {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			mine, recipient := key(t)
			other, _ := key(t)
			c := sample(100)
			m, err := backup(
				t, r, repository.Head{ID: "bak_1", Kind: repository.Full, Seal: seal(t, recipient)}, c, nil,
			)
			if err != nil {
				t.Fatal(err)
			}
			same(t, c, must[content](t)(read(t.Context(), r, "bak_1", mine)))
			for name, identities := range map[string]repository.Identities{"none": {}, "another": other} {
				_, err := read(t.Context(), r, "bak_1", identities)
				of, ok := errors.AsType[*repository.IdentityError](err)
				if !ok || !strings.Contains(err.Error(), recipient) || of.Given != (name == "another") {
					t.Errorf("%s: %v", name, err)
				}
			}

			// The server, which cannot read it, goes on from it.
			b, err := backup(
				t, r, repository.Head{ID: "bak_2", Kind: repository.Incremental, Seal: seal(t, recipient)}, c,
				m.Tenants[0].Feed,
			)
			if err != nil || b.Bytes != 0 {
				t.Fatal(b.Bytes, err)
			}
			// With other recipients nothing of it can be used.
			_, second := key(t)
			b, err = backup(
				t, r, repository.Head{ID: "bak_3", Kind: repository.Full, Seal: seal(t, recipient, second)}, c, nil,
			)
			if err != nil || b.Bytes < m.Bytes || b.Tenants[0].Feed[0].Name == m.Tenants[0].Feed[0].Name {
				t.Fatal(b.Bytes, err)
			}
		})
	}
}

func TestEncryptedFilesTellNothing(t *testing.T) {
	dir := t.TempDir()
	r := repository.OpenFolder(dir, clock.NewManual(start()))
	_, recipient := key(t)
	c := sample(100)
	if _, err := backup(
		t, r, repository.Head{ID: "bak_1", Kind: repository.Full, Seal: seal(t, recipient)}, c, nil,
	); err != nil {
		t.Fatal(err)
	}
	c.entries[50].Event.Key.ID = "a"
	e := repository.Erasure{
		Tenant: tenant, Note: *c.entries[100].Note, At: start(), Events: []*j17.Event{c.entries[50].Event},
	}
	if err := r.PutErasure(t.Context(), e, seal(t, recipient)); err != nil {
		t.Fatal(err)
	}
	plain := repository.OpenFolder(t.TempDir(), clock.NewManual(start()))
	p, err := backup(t, plain, repository.Head{ID: "bak_1", Kind: repository.Full}, sample(100), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files(t, dir) {
		text := must[[]byte](t)(os.ReadFile(f))
		for _, word := range []string{"some.space", "was_written", "note:a", "color:red", p.Tenants[0].Feed[0].Name} {
			if bytes.Contains(text, []byte(word)) || strings.Contains(f, word) {
				t.Errorf("%s has %q", f, word)
			}
		}
	}
}

func TestRecipientsAreChecked(t *testing.T) {
	_, good := key(t)
	for _, bad := range []string{
		"", "age1nonsense", good + "\n" + good, " " + good, "ssh-ed25519 AAAA", "AGE-SECRET-KEY-1", "# " + good,
	} {
		_, err := repository.NewSeal([]string{good, bad}, nil)
		of, ok := errors.AsType[*repository.RecipientError](err)
		if !ok || of.Index != 1 {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := repository.NewSeal(make([]string, repository.MaxRecipients+1), nil); err == nil {
		t.Error("too many recipients are taken")
	}
}
