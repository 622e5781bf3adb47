package blob_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/plane/blob"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const prod j17.Tenant = "ins_1/prod"

type fixture struct {
	*blob.Store
	store store.Store
	clock *clock.Manual
}

func open(tb testing.TB, data *testopen.Data) *fixture {
	tb.Helper()
	f := &fixture{clock: clock.NewManual(time.Date(2026, 11, 21, 12, 0, 0, 5, time.UTC))}
	f.store = data.Open(tb, f.clock)
	f.Store = blob.New(blob.Options{
		Store: f.store, Clock: f.clock, Worker: worker.New(f.clock, slog.New(slog.DiscardHandler)), MaxBytes: 5 << 20,
		MaxModuleBytes: 2 << 20,
	})
	return f
}

// put uploads and commits.
func (f *fixture) put(tb testing.TB, t j17.Tenant, name, content string) (blob.Blob, bool) {
	tb.Helper()
	u, err := f.Upload(tb.Context(), t, name, "opr_x", strings.NewReader(content))
	if err != nil {
		tb.Fatal(err)
	}
	b, created, err := u.Commit(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return b, created
}

// left counts the items of a space.
func (f *fixture) left(tb testing.TB, space store.Space) int {
	tb.Helper()
	items, err := f.store.Scan(tb.Context(), prod, space, store.Range{}, 1000)
	if err != nil {
		tb.Fatal(err)
	}
	return len(items)
}

func wantCode(tb testing.TB, what string, err error, code j17.Code) {
	tb.Helper()
	if got := j17.CodeOf(err); got != code {
		tb.Errorf("%s: %q (%v), want %q", what, got, err, code)
	}
}

func hash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func TestVersions(t *testing.T) {
	f := open(t, testopen.NewData(t))
	big := strings.Repeat("0123456789abcdef", 3<<20/16) + "tail" // three chunks and a bit
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	first := blob.Blob{
		Name: "a.wasm", Version: 1, Size: int64(len(big)), SHA256: hash(big), CreatedAt: at, CreatedBy: "opr_x",
	}
	if got, created := f.put(t, prod, "a.wasm", big); !created || got != first {
		t.Errorf("the first upload: %+v, %v", got, created)
	}
	if got, created := f.put(t, prod, "a.wasm", big); created || got != first {
		t.Errorf("the same again: %+v, %v", got, created)
	}
	if n := f.left(t, "blob.chunks"); n != 4 {
		t.Errorf("%d chunks are kept, want 4", n)
	}
	second, created := f.put(t, prod, "a.wasm", "two")
	if !created || second.Version != 2 {
		t.Errorf("the second version: %+v, %v", second, created)
	}
	third, created := f.put(t, prod, "a.wasm", big) // content of an older version is a new one
	if !created || third.Version != 3 {
		t.Errorf("going back: %+v, %v", third, created)
	}
	f.put(t, prod, "a", "short name")
	f.put(t, prod, "a-b.tar.gz", "long name")
	f.put(t, "ins_1/test", "a.wasm", "elsewhere")

	all, err := f.List(t.Context(), prod, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, n := range all {
		listed = append(listed, fmt.Sprintf("%s v%d of %d", n.Name, n.Version, n.Versions))
	}
	if diff := cmp.Diff([]string{"a v1 of 1", "a-b.tar.gz v1 of 1", "a.wasm v3 of 3"}, listed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if page, err := f.List(t.Context(), prod, 1, 1); err != nil || len(page) != 1 || page[0].Name != "a-b.tar.gz" {
		t.Errorf("a page: %+v, %v", page, err)
	}
	versions, err := f.Versions(t.Context(), prod, "a.wasm")
	if diff := cmp.Diff([]blob.Blob{third, second, first}, versions); diff != "" || err != nil {
		t.Errorf("(-want +got): %v\n%s", err, diff)
	}
	for version, want := range map[int]string{0: big, 1: big, 2: "two", 3: big} {
		got, content, err := f.Bytes(t.Context(), prod, "a.wasm", version)
		if err != nil || string(content) != want || got.SHA256 != hash(want) {
			t.Errorf("version %d: %d bytes, %v", version, len(content), err)
		}
	}

	// The latest goes, and its number is not used again.
	if err := f.Delete(t.Context(), prod, "a.wasm", 3); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Find(t.Context(), prod, "a.wasm", 0); err != nil || got != second {
		t.Errorf("the latest is now %+v, %v", got, err)
	}
	if got, _ := f.put(t, prod, "a.wasm", "four"); got.Version != 4 {
		t.Errorf("the next version is %d", got.Version)
	}
	if err := f.Delete(t.Context(), prod, "a.wasm", 0); err != nil {
		t.Fatal(err)
	}
	if n, u := f.left(t, "blob.chunks"), f.left(t, "blob.uploads"); n != 2 || u != 0 {
		t.Errorf("%d chunks and %d uploads are left, want those of the two other files", n, u)
	}
	_, err = f.Versions(t.Context(), prod, "a.wasm")
	wantCode(t, "versions of what was deleted", err, j17.CodeNotFound)
	if got, _ := f.put(t, prod, "a.wasm", "five"); got.Version != 5 {
		t.Errorf("after all were deleted, the next version is %d", got.Version)
	}
}

func TestRefusals(t *testing.T) {
	f := open(t, testopen.NewData(t))
	upload := func(name string, r io.Reader) error {
		_, err := f.Upload(t.Context(), prod, name, "opr_x", r)
		return err
	}
	for _, name := range []string{
		"", ".", "..", "-a", "_a", "a/b", "a:v2", "a b", "ä", "a\x00", strings.Repeat("a", 129),
	} {
		wantCode(t, name, upload(name, strings.NewReader("x")), j17.CodeInvalidField)
		_, err := f.Find(t.Context(), prod, name, 0)
		wantCode(t, name, err, j17.CodeNotFound)
		_, err = f.Versions(t.Context(), prod, name)
		wantCode(t, name, err, j17.CodeNotFound)
		wantCode(t, name, f.Delete(t.Context(), prod, name, 0), j17.CodeNotFound)
	}
	wantCode(t, "empty", upload("a", strings.NewReader("")), j17.CodeInvalidField)
	wantCode(t, "too large", upload("a", io.LimitReader(zeros{}, 5<<20+1)), j17.CodePayloadTooLarge)
	wantCode(t, "endless", upload("a", zeros{}), j17.CodePayloadTooLarge)
	module := io.MultiReader(strings.NewReader("\x00asm"), io.LimitReader(zeros{}, 2<<20))
	wantCode(t, "module too large", upload("a", module), j17.CodePayloadTooLarge)
	broken := errors.New("the client has gone")
	if err := upload(
		"a", io.MultiReader(io.LimitReader(zeros{}, 3<<20), iotest.ErrReader(broken)),
	); !errors.Is(err, broken) {
		t.Errorf("a broken upload: %v", err)
	}
	if err := upload(
		"a", io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF)),
	); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an upload that was cut off: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.Upload(ctx, prod, "a", "opr_x", strings.NewReader("x"))
	wantCode(t, "canceled", err, j17.CodeUnavailable)
	for _, space := range []store.Space{"blob.heads", "blob.versions", "blob.chunks", "blob.uploads"} {
		if n := f.left(t, space); n != 0 {
			t.Errorf("refused uploads have left %d items in %s", n, space)
		}
	}
	if u, err := f.Upload(t.Context(), prod, "a", "opr_x", io.LimitReader(zeros{}, 5<<20)); err != nil {
		t.Errorf("the largest file: %v", err)
	} else if b, _, err := u.Commit(t.Context()); err != nil || b.Size != 5<<20 {
		t.Errorf("the largest file: %+v, %v", b, err)
	}
	for _, version := range []int{2, -1, 1 << 40} {
		_, _, err := f.Bytes(t.Context(), prod, "a", version)
		wantCode(t, "no such version", err, j17.CodeNotFound)
		wantCode(t, "no such version", f.Delete(t.Context(), prod, "a", version), j17.CodeNotFound)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestUncommitted checks that content which never became a version is invisible and goes away.
func TestUncommitted(t *testing.T) {
	f := open(t, testopen.NewData(t))
	u, err := f.Upload(t.Context(), prod, "a", "opr_x", io.LimitReader(zeros{}, 3<<20))
	if err != nil {
		t.Fatal(err)
	}
	if content, err := u.Bytes(t.Context()); err != nil || len(content) != 3<<20 || u.Name() != "a" {
		t.Errorf("the content of an upload: %d bytes, %v", len(content), err)
	}
	if all, err := f.List(t.Context(), prod, 0, 10); err != nil || len(all) != 0 {
		t.Errorf("an upload is listed: %v, %v", all, err)
	}
	if err := f.Sweep(t.Context()); err != nil || f.left(t, "blob.chunks") != 3 {
		t.Errorf("a sweep takes what is under way: %v", err)
	}
	f.clock.Advance(2 * time.Hour)
	if err := f.Sweep(t.Context()); err != nil || f.left(t, "blob.chunks") != 0 || f.left(t, "blob.uploads") != 0 {
		t.Errorf("a sweep leaves what was given up: %v", err)
	}
	_, _, err = u.Commit(t.Context())
	wantCode(t, "committing what was swept away", err, j17.CodeUnavailable)

	if u, err = f.Upload(t.Context(), prod, "a", "opr_x", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	u.Discard(t.Context())
	if f.left(t, "blob.chunks") != 0 || f.left(t, "blob.uploads") != 0 {
		t.Error("discarded content stays")
	}

	// An upload that is swept away while it arrives leaves nothing behind.
	slow := iotest.OneByteReader(strings.NewReader("x"))
	during := readerFunc(func(p []byte) (int, error) {
		f.clock.Advance(2 * time.Hour)
		if err := f.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		return slow.Read(p)
	})
	_, err = f.Upload(t.Context(), prod, "a", "opr_x", during)
	wantCode(t, "too slow", err, j17.CodeUnavailable)
	if f.left(t, "blob.chunks") != 0 || f.left(t, "blob.uploads") != 0 {
		t.Error("a slow upload leaves something behind")
	}

	// Discarding a version is harmless: whoever does not know the outcome of a commit may.
	if u, err = f.Upload(t.Context(), prod, "a", "opr_x", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	u.Discard(t.Context())
	if _, content, err := f.Bytes(t.Context(), prod, "a", 0); err != nil || string(content) != "x" {
		t.Errorf("%q, %v", content, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestConcurrent checks that uploads of one name at the same time each get a version, and deletions in between do no
// harm.
func TestConcurrent(t *testing.T) {
	f := open(t, testopen.NewData(t))
	const writers, each = 8, 5
	var g sync.WaitGroup
	for w := range writers {
		g.Go(func() {
			for i := range each {
				u, err := f.Upload(t.Context(), prod, "a", "opr_x", strings.NewReader(fmt.Sprint(w, i)))
				if err != nil {
					t.Error(err)
					return
				}
				b, created, err := u.Commit(t.Context())
				if err != nil || !created {
					t.Error(b, created, err)
					return
				}
				if i%2 == 1 {
					if err := f.Delete(t.Context(), prod, "a", b.Version); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	g.Wait()
	all, err := f.Versions(t.Context(), prod, "a")
	if err != nil || len(all) != writers*3 {
		t.Errorf("%d versions are left, want %d: %v", len(all), writers*3, err)
	}
	if b, _ := f.put(t, prod, "a", "last"); b.Version != writers*each+1 {
		t.Errorf("the next version is %d", b.Version)
	}
	if n := f.left(t, "blob.chunks"); n != writers*3+1 {
		t.Errorf("%d chunks are left", n)
	}
}

// TestCrash cuts the power at many points of an upload and a deletion: a file is there whole or not at all, and what is
// left of it is swept away. It is the disk of the embedded store, of which copies can be taken.
func TestCrash(t *testing.T) {
	content := strings.Repeat("x", 2<<20) + "end"
	for point := range 12 {
		fs := vfs.NewCrashableMem()
		f := open(t, testopen.Embedded(fs))
		f.put(t, prod, "a", "old")
		clones := []*vfs.MemFS{}
		clone := func() { clones = append(clones, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})) }
		reads := 0
		source := strings.NewReader(content)
		u, err := f.Upload(t.Context(), prod, "a", "opr_x", readerFunc(func(p []byte) (int, error) {
			if reads++; reads == point {
				clone()
			}
			return source.Read(p[:min(len(p), 400_000)])
		}))
		if err != nil {
			t.Fatal(err)
		}
		clone()
		if _, _, err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		clone()
		if err := f.Delete(t.Context(), prod, "a", 2); err != nil {
			t.Fatal(err)
		}
		clone()
		for i, c := range clones {
			if point > 0 && i >= len(clones)-3 {
				break // what is around the commit does not depend on the point before it
			}
			g := open(t, testopen.Embedded(c))
			g.clock.Advance(2 * time.Hour)
			if err := g.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			b, got, err := g.Bytes(t.Context(), prod, "a", 0)
			if err != nil {
				t.Fatalf("point %d, clone %d: %v", point, i, err)
			}
			want, chunks := "old", 1
			if i == len(clones)-2 {
				want, chunks = content, 4
			}
			if !bytes.Equal(got, []byte(want)) || b.Size != int64(len(want)) {
				t.Errorf("point %d, clone %d: %d bytes, want %d", point, i, len(got), len(want))
			}
			if n := g.left(t, "blob.chunks"); n != chunks || g.left(t, "blob.uploads") != 0 {
				t.Errorf("point %d, clone %d: %d chunks are left, want %d", point, i, n, chunks)
			}
		}
	}
}

// TestDamage checks that content which is not what was uploaded is never handed out whole.
func TestDamage(t *testing.T) {
	f := open(t, testopen.NewData(t))
	f.put(t, prod, "a", "right")
	items, err := f.store.Scan(t.Context(), prod, "blob.chunks", store.Range{}, 10)
	if err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	for what, side := range map[string]store.Side{
		"other content": {Op: store.Put, Value: []byte("wrong")},
		"shorter":       {Op: store.Put, Value: []byte("wro")},
		"missing":       {Op: store.Delete},
	} {
		side.Space, side.Key = "blob.chunks", items[0].Key
		if err := f.store.Write(t.Context(), prod, []store.Side{side}); err != nil {
			t.Fatal(err)
		}
		_, _, err := f.Bytes(t.Context(), prod, "a", 0)
		wantCode(t, what, err, j17.CodeCorruption)
	}
}

func TestRun(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		var c clock.System
		f := &fixture{store: testopen.Open(t, c)}
		f.Store = blob.New(blob.Options{Store: f.store, Clock: c, Worker: worker.New(c, slog.New(slog.DiscardHandler))})
		if _, err := f.Upload(t.Context(), prod, "a", "opr_x", strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		if err := c.Wait(t.Context(), c.Now().Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := f.left(t, "blob.chunks"); n != 0 {
			t.Errorf("%d chunks are left", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestFullDisk checks that an upload onto a full disk is refused as such, that reads go on, and that uploads work again
// when there is room. The disk is that of the embedded store, which alone knows how much room it has left.
func TestFullDisk(t *testing.T) {
	fs := vfs.NewMem()
	free := func(bytes uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30}) }
	free(1 << 30)
	f := open(t, testopen.Embedded(fs))
	f.put(t, prod, "a", "old")
	f.put(t, prod, "b", "other")
	begun := readerFunc(func(p []byte) (int, error) {
		free(100)
		clear(p)
		return len(p), nil
	})
	_, err := f.Upload(t.Context(), prod, "a", "opr_x", begun)
	wantCode(t, "the disk fills up", err, j17.CodeStorageFull)
	_, err = f.Upload(t.Context(), prod, "a", "opr_x", strings.NewReader("new"))
	wantCode(t, "the disk is full", err, j17.CodeStorageFull)
	if _, content, err := f.Bytes(t.Context(), prod, "a", 0); err != nil || string(content) != "old" {
		t.Errorf("%q, %v", content, err)
	}
	if err := f.Delete(t.Context(), prod, "b", 0); err != nil {
		t.Errorf("deleting makes room, and is refused: %v", err)
	}
	free(1 << 30)
	if b, _ := f.put(t, prod, "a", "new"); b.Version != 2 {
		t.Errorf("%+v", b)
	}
	f.clock.Advance(2 * time.Hour)
	if err := f.Sweep(t.Context()); err != nil || f.left(t, "blob.chunks") != 2 || f.left(t, "blob.uploads") != 0 {
		t.Errorf("%d chunks and %d uploads are left: %v", f.left(t, "blob.chunks"), f.left(t, "blob.uploads"), err)
	}
}

// hasty is a store in which something happens before the first look at a version.
type hasty struct {
	store.Store
	first func()
}

// Get returns an item.
func (h *hasty) Get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	if first := h.first; first != nil && space == "blob.versions" {
		h.first = nil
		first()
	}
	return h.Store.Get(ctx, t, space, key)
}

// TestTheLatestIsDeletedMeanwhile: whoever asks for the latest version while that is deleted gets the one before.
func TestTheLatestIsDeletedMeanwhile(t *testing.T) {
	f := open(t, testopen.NewData(t))
	f.put(t, prod, "a.wasm", "one")
	f.put(t, prod, "a.wasm", "two")
	h := &hasty{Store: f.store}
	other := blob.New(blob.Options{
		Store: h, Clock: f.clock, Worker: worker.New(f.clock, slog.New(slog.DiscardHandler)),
	})
	h.first = func() {
		if err := f.Delete(t.Context(), prod, "a.wasm", 2); err != nil {
			t.Error(err)
		}
	}
	if b, err := other.Find(t.Context(), prod, "a.wasm", 0); err != nil || b.Version != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	h.first = func() {
		if err := f.Delete(t.Context(), prod, "a.wasm", 0); err != nil {
			t.Error(err)
		}
	}
	_, err := other.Find(t.Context(), prod, "a.wasm", 0)
	wantCode(t, "all are gone", err, j17.CodeNotFound)
}
