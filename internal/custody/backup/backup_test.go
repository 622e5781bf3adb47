package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/keyfile"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/backup"
	"j17/internal/custody/backup/repository"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// house is a service whose backups go to a folder.
type house struct {
	*backup.Service
	store    store.Store
	registry *control.Registry
	clock    *clock.Manual
	app      control.Instance
	prod     j17.Tenant
	folder   string
	options  backup.Options
	log      *logged
	stop     func()
	// n counts what was written.
	n int
}

// logged is a log that can be read while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write takes a line.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns what was logged.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// newHouse returns a service that does not run yet.
func newHouse(tb testing.TB, change func(*backup.Options)) *house {
	tb.Helper()
	h := &house{
		clock:  clock.NewManual(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)),
		folder: filepath.Join(tb.TempDir(), "backups"), log: &logged{}, stop: func() {},
	}
	var err error
	h.store = testopen.Open(tb, h.clock)
	tb.Cleanup(func() { h.stop() })
	logger := slog.New(slog.NewTextHandler(h.log, nil))
	if h.registry, err = control.Open(tb.Context(), control.Options{
		Store: h.store, Clock: h.clock, Logger: logger, PasswordMemory: 64,
	}); err != nil {
		tb.Fatal(err)
	}
	if h.app, err = h.registry.Instances.Create(tb.Context(), "app"); err != nil {
		tb.Fatal(err)
	}
	h.prod = j17.TenantOf(h.app.ID, j17.Prod)
	h.options = backup.Options{
		Store: h.store, Registry: h.registry, Clock: h.clock, Worker: worker.New(h.clock, logger), Logger: logger,
		Head: func(ctx context.Context, t j17.Tenant, _ j17.StreamID) (uint64, [32]byte, error) {
			e, err := h.store.Extent(ctx, t)
			return e.Events, [32]byte{1, 2, 3}, err
		},
		Spaces: []part.Space{
			{Declared: store.Declared{Space: control.SecretSpace}, Secret: true},
			{Declared: store.Declared{Space: "made.anew"}, Derived: true},
			{Declared: store.Declared{Space: "half"}, Open: beforeSecret},
		},
		Folder: h.folder, Key: keyfile.At(filepath.Join(tb.TempDir(), "backup.key")), Private: true, Program: "test",
		Free:      func(string) (uint64, uint64, error) { return 1 << 40, 1 << 41, nil },
		Committed: func() uint64 { return 0 },
	}
	if change != nil {
		change(&h.options)
	}
	h.open(tb)
	return h
}

// open makes the service again, as at the start of a server.
func (h *house) open(tb testing.TB) {
	tb.Helper()
	var err error
	if h.Service, err = backup.New(tb.Context(), h.options); err != nil {
		tb.Fatal(err)
	}
}

// run runs the service until stop is called.
func (h *house) run(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	})
}

// write commits events to a stream, with some text in each.
func (h *house) write(tb testing.TB, t j17.Tenant, id string, texts ...string) {
	tb.Helper()
	unit := store.Append{Timestamp: h.clock.Now().Unix()}
	for _, text := range texts {
		h.n++
		unit.Events = append(unit.Events, store.NewEvent{
			Key: j17.Key{Type: "note", ID: id}, Type: "was_written",
			Data: fmt.Appendf(nil, `{"n":%d,"text":%q}`, h.n, text), Metadata: []byte("{}"),
		})
	}
	if results, err := h.store.Append(tb.Context(), t, []store.Append{unit}); err != nil ||
		results[0].Outcome != store.Committed {
		tb.Fatal(results, err)
	}
}

// put writes a side item.
func (h *house) put(tb testing.TB, t j17.Tenant, space store.Space, key, value string) {
	tb.Helper()
	if err := h.store.Write(tb.Context(), t, []store.Side{
		{Op: store.Put, Space: space, Key: key, Value: []byte(value)},
	}); err != nil {
		tb.Fatal(err)
	}
}

// make makes a backup and returns it when it has ended.
func (h *house) make(tb testing.TB, t j17.Tenant, kind repository.Kind) backup.Backup {
	tb.Helper()
	b, err := h.Create(tb.Context(), t, kind)
	if err != nil {
		tb.Fatal(err)
	}
	return h.ended(tb, t, b.ID)
}

// ended waits for the end of a backup.
func (h *house) ended(tb testing.TB, t j17.Tenant, id string) backup.Backup {
	tb.Helper()
	h.await(tb, func() bool {
		b, err := h.Get(tb.Context(), t, id)
		if err != nil {
			tb.Fatal(err)
		}
		return b.Status != backup.Running
	})
	b, err := h.Get(tb.Context(), t, id)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// await looks again and again until something is so: the store is told of each change.
func (h *house) await(tb testing.TB, is func() bool) {
	tb.Helper()
	real := clock.System{}
	for until := real.Now().Add(5 * time.Minute); !is(); { // it ends what would never come
		if real.Now().After(until) {
			tb.Fatalf("it does not come about; the log says:\n%s", h.log)
		}
		_ = real.Wait(tb.Context(), real.Now().Add(time.Millisecond))
	}
}

// idle reports whether no backup is under way, and no look is due, under way, or to come within half an hour.
func (h *house) idle(tb testing.TB) bool {
	tb.Helper()
	stats := h.Stats()
	next, err := h.NextDue(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return stats.Running+stats.Waiting == 0 && next.Sub(h.clock.Now()) > 30*time.Minute
}

// read returns the events and the names of the items that a backup holds of a tenant, as one text.
func (h *house) read(tb testing.TB, id string, t j17.Tenant) string {
	tb.Helper()
	return h.readWith(tb, id, t, repository.Identities{})
}

// readWith is read of what may be encrypted.
func (h *house) readWith(tb testing.TB, id string, t j17.Tenant, identities repository.Identities) string {
	tb.Helper()
	repo := repository.OpenFolder(h.folder, clock.System{})
	m, err := repo.Manifest(tb.Context(), id)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := repo.Read(m, identities)
	if err != nil {
		tb.Fatal(err)
	}
	of := m.Of(t)
	if of == nil {
		tb.Fatalf("%s is not in %s", t, id)
	}
	var b strings.Builder
	for e, err := range r.Feed(tb.Context(), of) {
		if err != nil {
			tb.Fatal(err)
		}
		if e.Event != nil {
			b.Write(e.Event.Raw)
			b.WriteByte('\n')
		}
	}
	for i, err := range r.Items(tb.Context(), of) {
		if err != nil {
			tb.Fatal(err)
		}
		fmt.Fprintf(&b, "%s/%s=%s\n", i.Space, i.Key, i.Value)
	}
	return b.String()
}

// ids are the backups of a tenant, the newest first.
func (h *house) ids(tb testing.TB, t j17.Tenant) []string {
	tb.Helper()
	all, err := h.List(tb.Context(), t, 0, 1000)
	if err != nil {
		tb.Fatal(err)
	}
	ids := []string{}
	for _, b := range all {
		ids = append(ids, b.ID)
	}
	return ids
}

// TestBackups makes backups that go on from each other, and reads what is in them.
func TestBackups(t *testing.T) {
	h := newHouse(t, nil)
	h.run(t)
	h.put(t, h.prod, "kept", "a", "A")
	h.put(t, h.prod, "made.anew", "b", "B")
	h.write(t, h.prod, "one", "first", "second")
	a := h.make(t, h.prod, "")
	if a.Status != backup.Completed || a.Kind != repository.Full || a.Parent != "" || a.Done != 2 || a.Total != 2 ||
		a.Bytes == 0 || a.Encrypted || a.Storage() != h.folder {
		t.Errorf("%+v", a)
	}
	if len(a.Moments) != 1 || a.Moments[0].Size != 2 || a.Moments[0].Tenant != h.prod || a.Moments[0].Root[0] != 1 {
		t.Errorf("%+v", a.Moments)
	}

	// What is new, beside what the one before has.
	h.write(t, h.prod, "two", "third")
	b := h.make(t, h.prod, "")
	if b.Kind != repository.Incremental || b.Parent != a.ID || b.Total != 3 {
		t.Errorf("%+v", b)
	}
	text := h.read(t, b.ID, h.prod)
	for _, word := range []string{"first", "second", "third", "kept/a=A"} {
		if !strings.Contains(text, word) {
			t.Errorf("%s is not in it: %s", word, text)
		}
	}
	for _, word := range []string{"made.anew", "backup.rows", "backup.ids"} {
		if strings.Contains(text, word) {
			t.Errorf("%s is in it", word)
		}
	}

	// A full one stores nothing that is there, and needs no other.
	c := h.make(t, h.prod, repository.Full)
	if c.Kind != repository.Full || c.Parent != "" || c.Bytes > b.Bytes {
		t.Errorf("%+v", c)
	}
	for _, id := range []string{a.ID, b.ID} {
		if err := h.Delete(t.Context(), h.prod, id); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{c.ID}, h.ids(t, h.prod)); diff != "" {
		t.Error(diff)
	}
	if h.read(t, c.ID, h.prod) != text {
		t.Error("the full one has something else")
	}
	if err := h.Delete(t.Context(), h.prod, a.ID); j17.CodeOf(err) != j17.CodeNotFound {
		t.Error(err)
	}
	if _, err := h.Get(t.Context(), j17.TenantOf(h.app.ID, j17.Test), c.ID); j17.CodeOf(err) != j17.CodeNotFound {
		t.Error("another environment shows it:", err)
	}
	if got := h.Stats(); got.Completed != 3 || got.Failed != 0 || got.Bytes == 0 ||
		got.LastEnvironment != h.clock.Now().Unix() {
		t.Errorf("%+v", got)
	}
}

// TestServer makes a backup of all there is.
func TestServer(t *testing.T) {
	h := newHouse(t, nil)
	h.run(t)
	staging := j17.TenantOf(h.app.ID, j17.Staging)
	h.write(t, h.prod, "one", "first")
	h.write(t, staging, "one", "second", "third")
	b := h.make(t, j17.System, "")
	if log := h.log.String(); !strings.Contains(log, "of=server ") {
		t.Errorf("the log does not say what it is of: %s", log)
	}
	if b.Status != backup.Completed || len(b.Moments) != 2 {
		t.Fatalf("%+v", b)
	}
	if text := h.read(t, b.ID, staging); !strings.Contains(text, "third") || strings.Contains(text, "first") {
		t.Error(text)
	}

	m, err := repository.OpenFolder(h.folder, clock.System{}).Manifest(t.Context(), b.ID)
	if of := m.Of(j17.System); err != nil || of.Size == 0 || of.Root != [32]byte{1, 2, 3} {
		t.Errorf("%+v %v", of, err)
	}

	// In clear it has the registry, and no secrets of it.
	text := h.read(t, b.ID, j17.System)
	if !strings.Contains(text, "control.instances/") || strings.Contains(text, string(control.SecretSpace)) {
		t.Error(text)
	}
}

// TestOpen has secrets beside other things: an encrypted backup has all of it, one in clear what may be seen.
func TestOpen(t *testing.T) {
	key, recipient, err := repository.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	identities, err := repository.ReadIdentities(strings.NewReader(key))
	if err != nil {
		t.Fatal(err)
	}
	for _, recipients := range [][]string{nil, {recipient}} {
		h := newHouse(t, nil)
		h.run(t)
		if _, err := h.Change(
			t.Context(), h.app.ID, func(s *backup.Settings) { s.Recipients = recipients },
		); err != nil {
			t.Fatal(err)
		}
		h.write(t, h.prod, "one", "first")
		if err := h.store.Write(t.Context(), h.prod, []store.Side{
			{Op: store.Put, Space: "half", Key: "shown", Value: []byte("name secret 4711")},
			{Op: store.Put, Space: "half", Key: "hidden", Value: []byte("4712")},
		}); err != nil {
			t.Fatal(err)
		}
		b := h.make(t, h.prod, "")
		text := h.readWith(t, b.ID, h.prod, identities)
		if clear := recipients == nil; strings.Contains(text, "4711") == clear ||
			strings.Contains(text, "4712") == clear || !strings.Contains(text, "name") {
			t.Errorf("to %v: %s", recipients, text)
		}
	}
}

// TestInterrupted ends a server while backups wait and are made.
func TestInterrupted(t *testing.T) {
	reached, goOn := make(chan struct{}, 1), make(chan struct{})
	h := newHouse(t, nil)
	head := h.options.Head
	h.options.Head = func(ctx context.Context, t j17.Tenant, at j17.StreamID) (uint64, [32]byte, error) {
		select {
		case reached <- struct{}{}:
		default: // told already
		}
		select {
		case <-goOn:
		case <-ctx.Done():
			return 0, [32]byte{}, ctx.Err()
		}
		return head(ctx, t, at)
	}
	h.open(t)
	h.write(t, h.prod, "one", "first")
	create := func() string {
		b, err := h.Create(t.Context(), h.prod, "")
		if err != nil {
			t.Fatal(err)
		}
		return b.ID
	}
	failed := func(id string) {
		t.Helper()
		if b, err := h.Get(t.Context(), h.prod, id); err != nil || b.Status != backup.Failed ||
			!strings.Contains(b.Error, "server was stopped") {
			t.Errorf("%+v %v", b, err)
		}
	}

	// A crash before anything was done.
	first := create()
	h.open(t)
	failed(first)

	// The end of the server, with one on its way and others behind it.
	h.run(t)
	second := create()
	<-reached
	third := create()
	h.stop()
	failed(second)
	failed(third)
	if _, err := os.Stat(filepath.Join(h.folder, "manifests", second)); !errors.Is(err, os.ErrNotExist) {
		t.Error("there is a manifest:", err)
	}

	// Those that are cancelled are gone, and there is a bound.
	h.open(t)
	h.run(t)
	fourth := create()
	<-reached
	fifth := create()
	create()
	create()
	if _, err := h.Create(t.Context(), h.prod, ""); j17.CodeOf(err) != j17.CodeConflict {
		t.Error(err)
	}
	for _, id := range []string{fifth, fourth} {
		if err := h.Delete(t.Context(), h.prod, id); err != nil {
			t.Error(err)
		}
		if _, err := h.Get(t.Context(), h.prod, id); j17.CodeOf(err) != j17.CodeNotFound {
			t.Error(err)
		}
	}
	close(goOn)
	for _, id := range h.ids(t, h.prod)[:2] {
		if b := h.ended(t, h.prod, id); b.Status != backup.Completed {
			t.Errorf("%+v", b)
		}
	}
}

// TestCancelledWhileNobodyAnswers deletes backups, one on its way and one that waits, whose S3 is away.
func TestCancelledWhileNobodyAnswers(t *testing.T) {
	h := newHouse(t, nil)
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Change(t.Context(), h.app.ID, func(s *backup.Settings) {
		s.S3 = &backup.S3{
			Endpoint: "http://" + away.Addr().String(), Bucket: "bucket", Region: "us-east-1", AccessKey: "key",
			SecretKey: "secret",
		}
	}); err != nil {
		t.Fatal(err)
	}
	h.run(t)
	h.write(t, h.prod, "one", "first")
	made, err := h.Create(t.Context(), h.prod, "")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := away.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = away.Close()
	waits, err := h.Create(t.Context(), h.prod, "")
	if err != nil {
		t.Fatal(err)
	}

	// Whoever asks for it may go away too.
	gone, leave := context.WithCancel(t.Context())
	if !testopen.OnPostgres() { // which reads nothing for a caller that has gone
		leave()
	}
	defer leave()
	for _, id := range []string{waits.ID, made.ID} {
		if err := h.Delete(gone, h.prod, id); err != nil {
			t.Error(err)
		}
	}
	if left := h.ids(t, h.prod); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
	if got := h.Stats(); got.Running != 0 || got.Waiting != 0 || got.Failed != 0 {
		t.Errorf("%+v", got)
	}
}

// TestFailedLeavesNothing checks that the parts of a backup that has failed are removed.
func TestFailedLeavesNothing(t *testing.T) {
	h := newHouse(t, nil)
	stored := func() bool {
		all, err := filepath.Glob(filepath.Join(h.folder, "parts", "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all) > 0
	}
	head := h.options.Head
	h.options.Head = func(ctx context.Context, of j17.Tenant, at j17.StreamID) (uint64, [32]byte, error) {
		if of == j17.System { // the last one
			h.await(t, stored)
			return 0, [32]byte{}, errors.New("no head")
		}
		return head(ctx, of, at)
	}
	h.open(t)
	h.run(t)
	h.write(t, h.prod, "one", "first")
	if b := h.make(t, j17.System, ""); b.Status != backup.Failed {
		t.Errorf("%+v", b)
	}
	h.await(t, func() bool { return !stored() })
}

// TestNoRoom checks that a backup leaves room for the server.
func TestNoRoom(t *testing.T) {
	h := newHouse(t, func(o *backup.Options) {
		o.Free = func(string) (uint64, uint64, error) { return 100 << 20, 10 << 30, nil }
	})
	h.run(t)
	h.write(t, h.prod, "one", "first")
	b := h.make(t, h.prod, "")
	if b.Status != backup.Failed || !strings.Contains(b.Error, "has only 100 MiB left") {
		t.Errorf("%+v", b)
	}
	h.write(t, h.prod, "one", "second")
	if got := h.Stats(); got.Failed != 1 || got.Completed != 0 {
		t.Errorf("%+v", got)
	}
}

// TestGuard checks that backups go to no address of this machine unless that is allowed.
func TestGuard(t *testing.T) {
	h := newHouse(t, func(o *backup.Options) { o.Private = false })
	h.run(t)
	h.write(t, h.prod, "one", "first")
	_, err := h.Change(t.Context(), h.app.ID, func(s *backup.Settings) {
		s.S3 = &backup.S3{Endpoint: "http://127.0.0.1:9", Bucket: "bucket", AccessKey: "key", SecretKey: "secret"}
	})
	if err != nil {
		t.Fatal(err)
	}
	if b := h.make(t, h.prod, ""); b.Status != backup.Failed || !strings.Contains(b.Error, "address not allowed") ||
		strings.Contains(b.Error, "127.0.0.1") {
		t.Errorf("%+v", b)
	}
}
