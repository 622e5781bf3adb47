package backup_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/backup"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

// bucket is an object store in memory.
type bucket struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string][]byte
	puts    map[string]int
	// meet is called before each request for an object; a status other than 0 is the answer, after the request was
	// carried out if late is set.
	meet func(method, name string) (status int, late bool)
}

// newBucket gives an instance an object store of its own.
func (h *house) newBucket(t *testing.T, instance string) *bucket {
	t.Helper()
	b := &bucket{
		objects: map[string][]byte{}, puts: map[string]int{},
		meet: func(string, string) (int, bool) { return 0, false },
	}
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.Close)
	if _, err := h.Change(t.Context(), instance, func(s *backup.Settings) {
		s.S3 = &backup.S3{Endpoint: b.URL, Bucket: "bucket", Region: "us-east-1", AccessKey: "key", SecretKey: "secret"}
	}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bucket) serve(w http.ResponseWriter, r *http.Request) {
	_, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	b.mu.Lock()
	meet := b.meet
	b.mu.Unlock()
	status, late := meet(r.Method, name)
	if status == 0 || late {
		status = max(status, b.do(w, r, name, body))
	}
	if status >= http.StatusBadRequest {
		w.WriteHeader(status)
	}
}

func (b *bucket) do(w http.ResponseWriter, r *http.Request, name string, body []byte) (status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	content, ok := b.objects[name]
	switch {
	case name == "":
		type object struct {
			Key          string
			LastModified string
			Size         int
		}
		var list struct {
			XMLName  xml.Name `xml:"ListBucketResult"`
			Contents []object
		}
		for _, key := range slices.Sorted(maps.Keys(b.objects)) {
			if strings.HasPrefix(key, r.URL.Query().Get("prefix")) {
				list.Contents = append(list.Contents, object{key, "2026-11-21T12:00:00.000Z", len(b.objects[key])})
			}
		}
		if xml.NewEncoder(w).Encode(&list) != nil {
			return http.StatusInternalServerError
		}
	case r.Method == http.MethodPut:
		b.objects[name] = unchunked(body)
		b.puts[name]++
	case r.Method == http.MethodDelete:
		delete(b.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case !ok:
		return http.StatusNotFound
	default:
		w.Header().Set("Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT")
		w.Header().Set("ETag", `"1"`)
		if _, err := w.Write(content); err != nil {
			return http.StatusInternalServerError
		}
	}
	return 0
}

// unchunked takes a body apart that was sent in pieces, each behind a line with its length in hexadecimal digits and
// its signature.
func unchunked(body []byte) (all []byte) {
	for {
		line, rest, ok := bytes.Cut(body, []byte("\r\n"))
		digits, _, signed := bytes.Cut(line, []byte(";chunk-signature="))
		n, err := strconv.ParseUint(string(digits), 16, 32)
		if !ok || !signed || err != nil || n == 0 || n > uint64(len(rest)) {
			return all
		}
		all, body = append(all, rest[:n]...), bytes.TrimPrefix(rest[n:], []byte("\r\n"))
	}
}

// on sets what is done before each request.
func (b *bucket) on(meet func(method, name string) (status int, late bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.meet = meet
}

// names lists the objects whose names begin with a prefix.
func (b *bucket) names(prefix string) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestWhatACrashLeavesInABucketGoes: a process has ended between the end of a backup and the note of it. It has failed,
// and what there is of it goes.
func TestWhatACrashLeavesInABucketGoes(t *testing.T) {
	d := &dying{}
	h := newHouse(t, func(o *backup.Options) {
		d.Storage = o.Store
		o.Store = d
	})
	at := h.newBucket(t, h.app.ID)
	h.write(t, h.prod, "one", "first")
	h.run(t)
	kept := h.make(t, h.prod, "")
	h.write(t, h.prod, "one", "second")
	d.dead.Store(true)
	b, err := h.Create(t.Context(), h.prod, "")
	if err != nil {
		t.Fatal(err)
	}
	h.await(t, func() bool { return h.Stats().Completed == 2 && h.Stats().Running == 0 })
	h.stop()
	at.mu.Lock()
	at.objects["writing/"+b.ID] = nil // and it has not got to that either
	at.mu.Unlock()
	if n := len(at.names("manifests/")); n != 2 {
		t.Fatalf("%d manifests", n)
	}

	// The start waits for no object store, also where it is away. What was erased meanwhile is noted beside what is
	// left there.
	d.dead.Store(false)
	at.on(func(string, string) (int, bool) { return http.StatusForbidden, false })
	h.options.Worker = worker.New(h.clock, h.options.Logger)
	h.open(t)
	if now, err := h.Get(t.Context(), h.prod, b.ID); err != nil || now.Status != backup.Failed {
		t.Fatalf("%+v, %v", now, err)
	}
	h.run(t)
	h.await(t, func() bool { return h.tries("backup_schedule") > 0 })

	// Later it goes, with its mark and its parts, and the other one stays.
	at.on(func(string, string) (int, bool) { return 0, false })
	h.clock.Advance(time.Hour)
	h.await(t, func() bool {
		now, err := h.Get(t.Context(), h.prod, b.ID)
		return err == nil && !now.Left
	})
	if left := at.names("manifests/"); len(left) != 1 || left[0] != "manifests/"+kept.ID {
		t.Errorf("%v are left", left)
	}
	if left := at.names("writing/"); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if now, err := h.Get(t.Context(), h.prod, b.ID); err != nil || now.Status != backup.Failed {
		t.Errorf("%+v, %v", now, err)
	}
	if next := h.make(t, h.prod, ""); next.Status != backup.Completed || next.Parent != kept.ID {
		t.Errorf("%+v %s", next, h.log)
	}
}

// tries is how often work in the background has failed.
func (h *house) tries(name string) (failed uint64) {
	for _, c := range h.options.Worker.Counts() {
		if c.Name == name {
			failed = c.Failed
		}
	}
	return failed
}

// TestWhatNobodyWasToldOfGoes: an object store has taken a manifest and was away before it said so.
func TestWhatNobodyWasToldOfGoes(t *testing.T) {
	h := newHouse(t, nil)
	at := h.newBucket(t, h.app.ID)
	h.write(t, h.prod, "one", "first")
	h.run(t)
	at.on(func(method, name string) (int, bool) {
		if !strings.HasPrefix(name, "manifests/") {
			return 0, false
		}
		return http.StatusForbidden, method == http.MethodPut
	})
	b := h.make(t, h.prod, "")
	if b.Status != backup.Failed || len(at.names("manifests/")) != 1 {
		t.Fatalf("%+v, %v", b, at.names(""))
	}
	h.await(t, func() bool { return h.tries("backup_schedule") > 0 })
	at.on(func(string, string) (int, bool) { return 0, false })
	h.clock.Advance(time.Hour)
	h.await(t, func() bool { return len(at.names("manifests/")) == 0 })
	if err := h.Delete(t.Context(), h.prod, b.ID); err != nil {
		t.Error(err)
	}
}

// TestLongErasuresGoOn notes an erasure of which an object store takes only so much in one turn: each turn goes on from
// where the last one was.
func TestLongErasuresGoOn(t *testing.T) {
	const events, files = 3500, 4
	h := newHouse(t, nil)
	at := h.newBucket(t, h.app.ID)
	h.run(t)
	texts, gone := make([]string, events), make([]store.Rewritten, events)
	for i := range gone {
		gone[i] = store.Rewritten{
			Version: uint64(i + 1), Type: "_was_tombstoned", Data: []byte("{}"), Metadata: []byte("{}"),
		}
	}
	h.write(t, h.prod, "ann", texts...)
	h.make(t, h.prod, "")
	key := j17.Key{Type: "note", ID: "ann"}
	r, err := h.store.Rewrite(t.Context(), h.prod, store.Rewrite{
		Streams: []store.RewrittenStream{{Key: key, Events: gone}},
	})
	if err != nil {
		t.Fatal(err)
	}

	// The first turn comes to the third file, the second one to the fourth.
	reached, free := make(chan string, 8), make(chan struct{})
	hang := map[int32]bool{3: true, 5: true}
	var tried atomic.Int32
	at.on(func(method, name string) (int, bool) {
		if method != http.MethodPut || !strings.HasPrefix(name, "erasures/") {
			return 0, false
		}
		if hang[tried.Add(1)] {
			reached <- name
			<-free
			return http.StatusForbidden, false
		}
		return 0, false
	})
	t.Cleanup(func() { close(free) })
	if err := h.Erase(t.Context(), h.prod, part.Erased{
		Keys: []j17.Key{key}, Note: r.IDs[0], At: h.clock.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	for range hang {
		<-reached
		h.clock.Advance(5 * time.Minute)
	}
	h.await(t, func() bool { return h.Stats().Noted == 1 })
	names := at.names("erasures/")
	if len(names) != files {
		t.Errorf("the notes are %v", names)
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	for _, name := range names {
		if at.puts[name] != 1 {
			t.Errorf("%s was stored %d times", name, at.puts[name])
		}
	}
}

// TestErasuresGoOnWhereTheyAre goes on with an erasure of which a program with smaller files has stored some: the rest
// is stored, from the event on that comes next.
func TestErasuresGoOnWhereTheyAre(t *testing.T) {
	const events = 12
	h := newHouse(t, nil)
	h.run(t)
	texts, gone := make([]string, events), make([]store.Rewritten, events)
	for i := range gone {
		gone[i] = store.Rewritten{
			Version: uint64(i + 1), Type: "_was_tombstoned", Data: []byte("{}"), Metadata: []byte("{}"),
		}
	}
	keys := []j17.Key{{Type: "note", ID: "ann"}, {Type: "note", ID: "bob"}}
	rewrite := store.Rewrite{}
	for _, key := range keys {
		h.write(t, h.prod, key.ID, texts...)
		rewrite.Streams = append(rewrite.Streams, store.RewrittenStream{Key: key, Events: gone})
	}
	h.make(t, h.prod, "")
	r, err := h.store.Rewrite(t.Context(), h.prod, rewrite)
	if err != nil {
		t.Fatal(err)
	}

	// Two files with five events each are there, and all of the second stream is left.
	item := fmt.Sprintf(`{"keys":["note:ann","note:bob"],"at":"2027-01-01T10:00:00Z","begun":{%q:{"files":2,"seal":"","key":"note:ann","version":11}}}`, h.folder)
	side := store.Side{
		Op: store.Put, Space: "backup.erased", Key: r.IDs[0].String() + "/note:ann", Value: []byte(item),
		Due: h.clock.Now(),
	}
	if err := h.store.Write(t.Context(), h.prod, []store.Side{side}); err != nil {
		t.Fatal(err)
	}
	h.await(t, func() bool { return h.Stats().Noted == 1 })
	var got []string
	for e, err := range repository.OpenFolder(h.folder, clock.System{}).Erasures(
		t.Context(), h.prod, j17.StreamID{}, repository.Identities{},
	) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Number < 2 {
			t.Errorf("the file %d was stored again", e.Number)
		}
		for _, event := range e.Events {
			got = append(got, fmt.Sprintf("%s %d", event.Key.ID, event.Version))
		}
	}
	want := []string{"ann 11", "ann 12"}
	for i := range events {
		want = append(want, fmt.Sprintf("bob %d", i+1))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestErasuresUnderOneNote asks for an aggregate by itself that went along with another one, before anything else was
// written: what is noted of both stands under the same position, and neither takes the place of the other, whether that
// is stored already or waits.
func TestErasuresUnderOneNote(t *testing.T) {
	for _, waits := range []bool{false, true} {
		h := newHouse(t, nil)
		if !waits {
			h.run(t)
		}
		keys := []j17.Key{{Type: "note", ID: "ann"}, {Type: "note", ID: "bob"}}
		rewrite := store.Rewrite{}
		for _, key := range keys {
			h.write(t, h.prod, key.ID, "text")
			gone := store.Rewritten{Version: 1, Type: "_was_tombstoned", Data: []byte("{}"), Metadata: []byte("{}")}
			rewrite.Streams = append(rewrite.Streams, store.RewrittenStream{Key: key, Events: []store.Rewritten{gone}})
		}
		if !waits {
			h.make(t, h.prod, "")
		}
		r, err := h.store.Rewrite(t.Context(), h.prod, rewrite)
		if err != nil {
			t.Fatal(err)
		}
		for i, some := range [][]j17.Key{keys, keys[:1]} {
			e := part.Erased{Keys: some, Note: r.IDs[0], TombstoneID: fmt.Sprint("tmb_", i), At: h.clock.Now()}
			if err := h.Erase(t.Context(), h.prod, e); err != nil {
				t.Fatal(err)
			}
			if !waits {
				h.await(t, func() bool { return h.Stats().Noted == uint64(i+1) })
			}
		}
		if waits {
			if n, err := h.store.Count(t.Context(), h.prod, "backup.erased", store.Range{}, 10); n != 2 || err != nil {
				t.Errorf("%d erasures wait to be noted, not 2: %v", n, err)
			}
			continue
		}
		noted := map[string]bool{}
		for e, err := range repository.OpenFolder(h.folder, clock.System{}).Erasures(
			t.Context(), h.prod, j17.StreamID{}, repository.Identities{},
		) {
			if err != nil {
				t.Fatal(err)
			}
			for _, event := range e.Events {
				noted[event.Key.ID] = true
			}
		}
		if !noted["ann"] || !noted["bob"] {
			t.Errorf("of two aggregates these are noted: %v", noted)
		}
	}
}
