package storetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/storage/store"
)

func testIsolation(s *suite) {
	t := s.t
	f := s.fixture(t)
	names := []j17.Tenant{"a/prod", "a/staging", "a/test", "ab/prod", j17.System}
	for i, name := range names {
		if got, err := f.Tenants(t.Context()); err != nil || len(got) != i {
			t.Fatalf("tenants %v, %v", got, err)
		}
		for range i + 1 {
			commit(t, f, name, store.Append{
				Command: &store.Command{ID: store.CommandID{byte(i)}}, Pre: []store.Pre{pre(order("x"), 0)},
				Events: events(order("x"), fmt.Sprint(i)), Side: []store.Side{
					{Op: store.Put, Space: space, Key: "k", Value: []byte(name), Cond: store.IfAbsent},
				},
			})
			break
		}
	}
	f.reopen(t, t)
	if got, err := f.Tenants(t.Context()); err != nil || !cmp.Equal(got, names) {
		t.Fatalf("tenants %v, %v, want %v", got, err, names)
	}
	for i, name := range names {
		feed := readFeed(t, f, name, j17.StreamID{}, everything)
		if len(feed) != 1 || feed[0].Data != fmt.Sprint(i) {
			t.Errorf("feed of %s: %v", name, feed)
		}
		if item := get(t, f, name, space, "k"); string(item.Value) != string(name) {
			t.Errorf("item of %s: %s", name, item.Value)
		}
		if r, err := f.Command(t.Context(), name, store.CommandID{byte(i + 1)}); r != nil || err != nil {
			t.Errorf("%s knows a command of another tenant: %v, %v", name, r, err)
		}
	}
}

// fill writes some of everything and returns a dump of it.
func fill(t *testing.T, f *fixture, tn j17.Tenant) string {
	t.Helper()
	for i := range 30 {
		f.clock.Advance(time.Millisecond)
		commit(t, f, tn, store.Append{
			Timestamp: int64(i), Command: &store.Command{
				ID: store.CommandID{byte(i)}, Memo: []byte{0, 1, byte(i)}, Expires: f.clock.Now().Add(time.Hour),
			},
			Events: append(
				events(order(fmt.Sprint(i%4)), `{"text":"\"timestamp\":5}"}`),
				events(j17.Key{Type: "user", ID: "ü<&>"}, `1`)...,
			),
			Side: []store.Side{
				{
					Op: store.Put, Space: space, Key: fmt.Sprintf("k%d\n\u2028<", i%7), Value: []byte{0xff, byte(i)},
					Expires: f.clock.Now().Add(2 * time.Hour),
				},
				{
					Op: store.Put, Space: "work", Key: fmt.Sprint(i),
					Due: f.clock.Now().Add(time.Duration(i) * time.Second),
				},
				{Op: store.Delete, Space: "work", Key: fmt.Sprint(i - 5)},
			},
		})
	}
	commit(t, f, tn, store.Append{Command: &store.Command{ID: store.CommandID{200}}, Events: []store.NewEvent{
		{
			Key: order("bare"), Type: "was_made", Data: []byte(`null`), Metadata: []byte(`{}`),
			Timestamp: new(int64(-77)),
		},
	}})
	commit(t, f, tn, store.Append{Command: &store.Command{ID: store.CommandID{201}}})
	if err := Erase(t.Context(), f, tn, order("1"), []store.Rewritten{
		{Version: 2, Type: "was_erased", Data: []byte(`{}`), Metadata: []byte(`{}`)},
	}); err != nil {
		t.Fatal(err)
	}
	return dumpOf(t, f, tn)
}

func dumpOf(t failer, s store.Store, tn j17.Tenant) string {
	t.Helper()
	text, err := Dump(t.Context(), s, tn)
	if err != nil {
		t.Fatalf("dump: %v", err)
	}
	return text
}

func testDrop(s *suite) {
	t := s.t
	f := s.fixture(t)
	fill(t, f, tenant)
	kept := fill(t, f, other)
	if err := f.DropTenant(t.Context(), "nobody"); err != nil {
		t.Fatal(err)
	}
	// An iteration that has begun continues with what it has read.
	n := 0
	for _, err := range f.ReadStream(t.Context(), tenant, order("1"), 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			if err := f.DropTenant(t.Context(), tenant); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n != 8 {
		t.Fatalf("%d events, want 8", n)
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			f.reopen(t, t)
		}
		if names, err := f.Tenants(t.Context()); err != nil || !cmp.Equal(names, []j17.Tenant{other}) {
			t.Fatalf("tenants %v, %v", names, err)
		}
		if h := head(t, f, tenant, order("1")); h != (store.Head{}) {
			t.Fatalf("head %+v", h)
		}
		if feed := readFeed(t, f, tenant, j17.StreamID{}, 9); len(feed) != 0 {
			t.Fatalf("feed %v", feed)
		}
		if items, err := f.Scan(t.Context(), tenant, space, store.Range{}, 9); err != nil || len(items) != 0 {
			t.Fatalf("items %v, %v", items, err)
		}
		if left := dumpOf(t, f, tenant); left != "" {
			t.Fatalf("left is %s", left)
		}
		if diff := cmp.Diff(kept, dumpOf(t, f, other)); diff != "" {
			t.Fatalf("another tenant has changed:\n%s", diff)
		}
	}
	// The name can be used again, for an empty tenant.
	r := commit(t, f, tenant, store.Append{
		Timestamp: 5, Pre: []store.Pre{pre(order("1"), 0)}, Events: events(order("1"), `1`),
		Command: &store.Command{ID: store.CommandID{1}},
	})
	if r.Timestamp != 5 || r.Lengths[0] != 1 {
		t.Fatalf("result %+v", r)
	}
	f.reopen(t, t)
	if feed := readFeed(t, f, tenant, j17.StreamID{}, 9); len(feed) != 1 {
		t.Fatalf("feed %v", feed)
	}
}

// testArchiveUnderWrites copies a tenant while units are written: each copy must hold whole units only.
func testArchiveUnderWrites(s *suite) {
	t := s.t
	f := s.fixture(t)
	commit(t, f, tenant, store.Append{
		Events: append(events(order("a"), `1`), events(order("b"), `1`)...), Side: []store.Side{put("n", "1")},
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 2; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			commit(worker{t}, f, tenant, store.Append{
				Events: append(events(order("a"), `1`), events(order("b"), `1`)...),
				Side:   []store.Side{put("n", fmt.Sprint(n))},
			})
		}
	})
	for i := range 5 {
		name := j17.Tenant(fmt.Sprint("copy", i))
		if err := Copy(t.Context(), f, tenant, f, name); err != nil {
			t.Error(err)
			break
		}
		a, b := head(t, f, name, order("a")), head(t, f, name, order("b"))
		if n := fmt.Sprint(a.Length); a.Length != b.Length || string(get(t, f, name, space, "n").Value) != n {
			t.Errorf("copy %d holds %d, %d events and the side item %s", i, a.Length, b.Length, get(t, f, name, space, "n").Value)
		}
	}
	close(stop)
	wg.Wait()
}

func testRewrite(s *suite) {
	t := s.t
	f := s.fixture(t)

	// Two events that hold what is to be erased.
	key := order("a")
	secret := event(key, `{"name":"Ada Lovelace"}`)
	commit(t, f, tenant, store.Append{
		Timestamp: 9, Events: []store.NewEvent{event(key, `1`), secret, event(key, `3`), secret},
	})
	commit(t, f, tenant, store.Append{Events: events(order("b"), `1`)})
	before, beforeHead := readStream(t, f, tenant, key, 1, 0), head(t, f, tenant, key)

	// Their content afterwards.
	rewritten := []store.Rewritten{
		{Version: 4, Type: "was_erased", Data: []byte(`{"gone":true,"why":"a longer text than there was before, much longer"}`), Metadata: []byte(`{"actor":{"type":"system","id":"system"}}`)},
		{Version: 2, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)},
	}
	want := append([]record(nil), before...)
	for _, r := range rewritten {
		e := &want[r.Version-1]
		leaf := sha256.Sum256(append([]byte{0}, e.Raw...))
		e.Kept = string(leaf[:])
		raw, layout := j17.AppendEvent(nil, e.ID, key, r.Type, r.Data, r.Metadata, e.Timestamp)
		e.Type, e.Raw, e.Data, e.Metadata = r.Type, string(raw), string(r.Data), string(layout.MetadataOf(raw))
	}

	// Rewrite once and again, and check after a restart too: events, head and feed are rewritten, and so is every copy.
	for round := range 3 {
		if round == 2 {
			f.reopen(t, t)
		} else if err := Erase(t.Context(), f, tenant, key, rewritten); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, readStream(t, f, tenant, key, 1, 0)); diff != "" {
			t.Fatalf("round %d: events (-want +got):\n%s", round, diff)
		}
		got := head(t, f, tenant, key)
		if got.Generation != min(uint64(round)+1, 2) {
			t.Fatalf("round %d: generation %d", round, got.Generation)
		}
		if got.Generation, got.Present = 0, [32]byte{}; got != beforeHead {
			t.Fatalf("round %d: head %+v, want %+v", round, got, beforeHead)
		}
		if feed := readFeed(t, f, tenant, j17.StreamID{}, everything); len(feed) != 5 || feed[1].Raw != want[1].Raw {
			t.Fatalf("round %d: feed %v", round, feed)
		}
		name := j17.Tenant(fmt.Sprint("copy", round))
		if err := Copy(t.Context(), f, tenant, f, name); err != nil {
			t.Fatal(err)
		}
		if text := dumpOf(t, f, name); strings.Contains(text, "Lovelace") || text != dumpOf(t, f, tenant) {
			t.Fatal("the copy holds what was erased, or other things")
		}
	}
	commit(t, f, tenant, store.Append{Pre: []store.Pre{pre(key, 4)}, Events: events(key, `5`)})

	// All or nothing.
	for name, list := range map[string][]store.Rewritten{
		"missing": {
			{Version: 1, Type: "t", Data: []byte(`0`), Metadata: []byte(`{}`)},
			{Version: 9, Type: "t", Data: []byte(`0`), Metadata: []byte(`{}`)},
		},
		"zero": {{Version: 0, Type: "t", Data: []byte(`0`), Metadata: []byte(`{}`)}},
	} {
		if err := Erase(t.Context(), f, tenant, key, list); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
	}
	if err := Erase(t.Context(), f, tenant, key, []store.Rewritten{
		{Version: 1, Type: "t"},
	}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("invalid: %v", err)
	}
	many := make([]store.Rewritten, store.MaxUnitEvents+1)
	if err := Erase(t.Context(), f, tenant, key, many); !errors.Is(err, store.ErrLimit) {
		t.Errorf("many: %v, want ErrLimit", err)
	}
	if err := Erase(t.Context(), f, tenant, key, nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
	if got := readStream(t, f, tenant, key, 1, 1); got[0] != before[0] {
		t.Errorf("a rewrite that failed has changed %+v", got[0])
	}
}
