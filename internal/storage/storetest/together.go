package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"j17"
	"j17/internal/storage/store"
)

// together reads several things.
func together(t *testing.T, f *fixture, what store.Wanted) store.Found {
	t.Helper()
	seen, err := f.ReadTogether(t.Context(), tenant, what)
	if err != nil {
		t.Fatal(err)
	}
	if len(seen.Items) != len(what.Items) || len(seen.Heads) != len(what.Heads) || len(seen.Pages) != len(what.Pages) {
		t.Fatalf("%d items, %d heads and %d pages for %+v", len(seen.Items), len(seen.Heads), len(seen.Pages), what)
	}
	return seen
}

// described returns a page as text.
func described(p store.FoundPage) string {
	var keys []string
	for i := range p.Items {
		keys = append(keys, p.Items[i].Key)
	}
	if p.More {
		keys = append(keys, "...")
	}
	return strings.Join(keys, " ")
}

// testReadTogether reads items, heads and pages, each of them alone and all together.
func testReadTogether(s *suite) {
	// Of a tenant without anything.
	t := s.t
	f := s.fixture(t)
	names := func(of store.Space, keys ...string) (all []store.ItemName) {
		for _, key := range keys {
			all = append(all, store.ItemName{Space: of, Key: key})
		}
		return all
	}
	everything := store.Wanted{
		Items: append(names(space, "a", "b", "gone", "old"), names("notes2", "a")...),
		Heads: []j17.Key{order("a"), order("b"), {Type: "no:type", ID: "x"}, order("c")},
		Pages: []store.Page{
			{Space: space, Limit: 10},
			{Space: space, Keys: store.Range{Backward: true}, Limit: 2},
			{Space: space, Keys: store.Range{From: "b"}, Limit: 9},
			{Space: "no", Limit: 9},
			{Space: space, Keys: store.Range{From: "b", To: "b"}, Limit: 9},
			{Space: space},
		},
	}
	seen := together(t, f, everything)
	for i := range seen.Items {
		if seen.Items[i].Rev != 0 || seen.Items[i].Value != nil {
			t.Errorf("item %d of nothing: %+v", i, seen.Items[i])
		}
	}
	if !seen.Position.IsZero() || seen.Heads[0].Length != 0 || described(seen.Pages[0]) != "" {
		t.Errorf("nothing was written: %+v", seen)
	}

	// Items, heads and pages are those that others read.
	write(t, f, other, put("b", "another's"))
	write(t, f, tenant, put("a", "1"), put("b", "2"), put("c", "3"), put("gone", ""), store.Side{
		Op: store.Put, Space: space, Key: "old", Expires: f.clock.Now(),
	}, store.Side{Op: store.Put, Space: "notes2", Key: "a", Value: []byte("other")})
	last := commit(t, f, tenant, store.Append{
		Events: append(events(order("a"), `1`, `2`), events(order("b"), `1`)...),
		Side:   []store.Side{{Op: store.Delete, Space: space, Key: "gone"}},
	})
	seen = together(t, f, everything)
	if seen.Position != last.IDs[2] {
		t.Errorf("it is as of %s, want %s", seen.Position, last.IDs[2])
	}
	for i, want := range []string{"1", "2", "", "", "other"} {
		item, name := seen.Items[i], everything.Items[i]
		if string(item.Value) != want || item.Rev == 0 != (want == "") {
			t.Errorf("item %v is %+v, want %q", name, item, want)
		}
		if single, err := f.Get(t.Context(), tenant, name.Space, name.Key); err == nil && single.Rev != item.Rev {
			t.Errorf("item %v has revision %d, and %d when it is read alone", name, item.Rev, single.Rev)
		}
	}
	heads, err := f.Heads(t.Context(), tenant, everything.Heads)
	if err != nil || !slices.Equal(heads, seen.Heads) || heads[0].Length != 2 || heads[1].Length != 1 {
		t.Errorf("heads %+v, want %+v (%v)", seen.Heads, heads, err)
	}
	for i, want := range []string{"a b c", "c b ...", "b c", "", "", ""} {
		if got := described(seen.Pages[i]); got != want {
			t.Errorf("page %d has %q, want %q", i, got, want)
		}
	}
	if item := seen.Pages[1].Items[1]; string(item.Value) != "2" || item.Rev != seen.Items[1].Rev {
		t.Errorf("in a page b is %+v, alone %+v", item, seen.Items[1])
	}

	// Each kind of thing by itself.
	if alone := together(t, f, store.Wanted{Items: everything.Items[1:2]}); string(alone.Items[0].Value) != "2" {
		t.Errorf("alone b is %+v", alone.Items[0])
	}
	if alone := together(t, f, store.Wanted{Heads: everything.Heads[:1]}); alone.Heads[0] != heads[0] {
		t.Errorf("alone the head is %+v", alone.Heads[0])
	}
	if alone := together(t, f, store.Wanted{}); alone.Position != last.IDs[2] {
		t.Errorf("alone the position is %s", alone.Position)
	}

	// A page of large items ends early.
	for i := range 8 {
		write(t, f, tenant, store.Side{
			Op: store.Put, Space: "large", Key: strconv.Itoa(i), Value: make([]byte, store.PageBytes/3),
		})
	}
	large := together(t, f, store.Wanted{Pages: []store.Page{{Space: "large", Limit: 100}}}).Pages[0]
	if got := described(large); got != "0 1 2 ..." {
		t.Errorf("a page of large items has %q", got)
	}
}

// testTogetherUnderWrites writes units over streams and items, and checks that no answer shows a part of one.
func testTogetherUnderWrites(s *suite) {
	t := s.t
	f := s.fixture(t)
	const rounds = 100
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := range rounds {
			n := fmt.Sprintf("%03d", i+1)
			unit := store.Append{
				Events: append(events(order("a"), `1`), events(order("b"), `1`)...),
				Side:   []store.Side{put("n", n), {Op: store.Put, Space: "m", Key: n}},
			}
			if _, err := f.Append(t.Context(), tenant, []store.Append{unit}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	what := store.Wanted{Items: []store.ItemName{{Space: space, Key: "n"}}, Heads: []j17.Key{order("a"), order("b")}}
	for before, turn := uint64(0), 0; before < rounds && !t.Failed(); turn++ {
		if what.Pages = nil; turn%2 == 1 {
			what.Pages = []store.Page{{Space: "m", Keys: store.Range{Backward: true}, Limit: 1}}
		}
		seen := together(t, f, what)
		n := seen.Heads[0].Length
		if n != seen.Heads[1].Length || n < before || n > 0 && seen.Heads[1].Last != seen.Position {
			t.Fatalf("lengths %d and %d at position %s after %d", n, seen.Heads[1].Length, seen.Position, before)
		}
		text := ""
		if before = n; n > 0 {
			text = fmt.Sprintf("%03d", n)
		}
		if string(seen.Items[0].Value) != text {
			t.Fatalf("the item is %q where the streams have %d events", seen.Items[0].Value, n)
		}
		if len(what.Pages) > 0 && strings.TrimSuffix(described(seen.Pages[0]), " ...") != text {
			t.Fatalf("the page has %q where the streams have %d events", described(seen.Pages[0]), n)
		}
	}
	writing.Wait()
}
