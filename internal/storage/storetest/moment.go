package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"j17"
	"j17/internal/storage/store"
)

// testMoment writes while a moment is open: it shows the state before, and the next moment the state after.
func testMoment(s *suite) {
	// Before anything is written.
	t := s.t
	f := s.fixture(t)
	empty := moment(t, f, other)
	if n, err := empty.Count(space, store.Range{}, 10); !empty.Position().IsZero() || n != 0 || err != nil {
		t.Errorf("nothing was written, and a moment shows position %s, %d items, %v", empty.Position(), n, err)
	}

	// Two moments, with writes before and after each: what each shows stays as it was.
	first := commit(t, f, tenant, store.Append{
		Events: events(order("a"), `1`, `2`), Side: []store.Side{put("k", "old"), put("k1", "")},
	})
	before := moment(t, f, tenant)
	second := commit(t, f, tenant, store.Append{
		Events: events(order("b"), `1`),
		Side:   []store.Side{put("k", "new"), put("k2", ""), {Op: store.Delete, Space: space, Key: "k1"}},
	})
	after := moment(t, f, tenant)
	for _, c := range []struct {
		m        store.Moment
		position j17.StreamID
		lengths  [2]uint64
		value    string
		keys     []string
	}{
		{before, first.IDs[1], [2]uint64{2, 0}, "old", []string{"k", "k1"}},
		{after, second.IDs[0], [2]uint64{2, 1}, "new", []string{"k", "k2"}},
	} {
		// Streams.
		heads, err := c.m.Heads([]j17.Key{order("a"), order("b"), {Type: "no:type", ID: "x"}})
		if err != nil || c.m.Position() != c.position || heads[0].Length != c.lengths[0] ||
			heads[1].Length != c.lengths[1] || heads[2].Length != 0 {
			t.Errorf("position %s and heads %v (%v), want %s and lengths %v", c.m.Position(), heads, err, c.position, c.lengths)
		}

		// Items, one by one, in a range, and counted.
		if item, err := c.m.Get(space, "k"); err != nil || string(item.Value) != c.value {
			t.Errorf("item %q (%v), want %q", item.Value, err, c.value)
		}
		items, err := c.m.Scan(space, store.Prefix("k"), 10)
		if err != nil || len(items) != 2 || items[0].Key != c.keys[0] || items[1].Key != c.keys[1] {
			t.Errorf("items %v (%v), want %v", items, err, c.keys)
		}
		for limit, want := range []int{0, 1, 2, 2} {
			if n, err := c.m.Count(space, store.Prefix("k"), limit); n != want || err != nil {
				t.Errorf("%d items up to %d (%v), want %d", n, limit, err, want)
			}
		}

		// Items by Each, until the function returns false.
		var each []string
		err = c.m.Each(space, store.Range{Backward: true}, func(key, value []byte) bool {
			each = append(each, string(key)+"="+string(value))
			return string(key) != "k"
		})
		if err != nil || !slices.Equal(each, []string{c.keys[1] + "=", "k=" + c.value}) {
			t.Errorf("passed %v (%v)", each, err)
		}
		each = nil
		err = c.m.Each(space, store.Range{}, func(key, _ []byte) bool {
			each = append(each, string(key))
			return false
		})
		if err != nil || !slices.Equal(each, []string{"k"}) {
			t.Errorf("passed %v (%v) to who wants one", each, err)
		}

		// Closing twice does no harm.
		c.m.Close()
		c.m.Close()
	}
	empty.Close()
}

// testMomentOfLooks reads many things in one moment, in turns, nested and concurrently: each read has the same result.
func testMomentOfLooks(s *suite) {
	t := s.t
	f := s.fixture(t)
	const notes2 store.Space = "notes2"
	write(t, f, other, put("a", "another's"))
	for i := range 20 {
		key := fmt.Sprintf("%02d", i)
		write(t, f, tenant, put(key, "value "+key), store.Side{
			Op: store.Put, Space: notes2, Key: key, Value: []byte("other " + key),
		})
	}
	write(t, f, tenant, store.Side{Op: store.Delete, Space: space, Key: "05"}, store.Side{
		Op: store.Put, Space: space, Key: "06", Expires: f.clock.Now(),
	})
	m := moment(t, f, tenant)
	write(t, f, tenant, put("04", "later"), put("05", "later"))

	// each reads up to most items of a range, get one item.
	each := func(of store.Space, keys store.Range, most int, do func(key string)) (seen string) {
		n := 0
		if err := m.Each(of, keys, func(key, value []byte) bool {
			if seen += string(key) + "=" + string(value) + " "; do != nil {
				do(string(key))
			}
			n++
			return n < most
		}); err != nil {
			t.Error(err)
		}
		return seen
	}
	get := func(of store.Space, key string) string {
		item, err := m.Get(of, key)
		if errors.Is(err, store.ErrNotFound) {
			return "none"
		}
		if err != nil {
			t.Error(err)
		}
		return item.Key + "=" + string(item.Value)
	}
	looks := func() {
		for what, c := range map[string][2]string{
			"a range": {
				each(space, store.Range{From: "03", To: "08"}, 9, nil), "03=value 03 04=value 04 07=value 07 ",
			},
			"its end first": {
				each(space, store.Range{From: "03", To: "08", Backward: true}, 2, nil), "07=value 07 04=value 04 ",
			},
			"one before it":          {each(space, store.Range{From: "01"}, 1, nil), "01=value 01 "},
			"another space":          {each(notes2, store.Range{From: "18"}, 9, nil), "18=other 18 19=other 19 "},
			"nothing":                {each(space, store.Range{From: "05", To: "07"}, 9, nil), ""},
			"a space without items":  {each("no", store.Range{}, 9, nil), ""},
			"a space that cannot be": {each("notes\x00", store.Range{}, 9, nil) + get("notes\x00", "01"), "none"},
			"an item":                {get(space, "04"), "04=value 04"},
			"one of another space":   {get(notes2, "05"), "05=other 05"},
			"one that is gone":       {get(space, "05"), "none"},
			"one that has expired":   {get(space, "06"), "none"},
			"one of another tenant":  {get(space, "a"), "none"},
			"looks within a look": {each(space, store.Range{From: "03", To: "08"}, 9, func(key string) {
				if got := get(notes2, key) + each(
					notes2, store.Range{From: key}, 1, nil,
				); got != key+"=other "+key+key+"=other "+key+" " {
					t.Errorf("within a look: %q", got)
				}
			}), "03=value 03 04=value 04 07=value 07 "},
		} {
			if c[0] != c[1] {
				t.Errorf("%s: got %q, want %q", what, c[0], c[1])
			}
		}
	}
	looks()
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for range 5 {
				looks()
			}
		})
	}
	others.Wait()
}

// moment opens a moment that is closed at the latest when the test ends.
func moment(t *testing.T, f *fixture, name j17.Tenant) store.Moment {
	t.Helper()
	m, err := f.Moment(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// testMomentsUnderWrites writes units over two streams and an item, and checks that no moment shows a part of one.
func testMomentsUnderWrites(s *suite) {
	t := s.t
	f := s.fixture(t)
	const rounds = 200
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := range rounds {
			unit := store.Append{
				Events: append(events(order("a"), `1`), events(order("b"), `1`)...),
				Side:   []store.Side{put("n", strconv.Itoa(i+1))},
			}
			if _, err := f.Append(t.Context(), tenant, []store.Append{unit}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for seen := uint64(0); seen < rounds && !t.Failed(); {
		m := moment(t, f, tenant)
		heads, err := m.Heads([]j17.Key{order("a"), order("b")})
		if err != nil {
			t.Fatal(err)
		}
		if heads[0].Length != heads[1].Length || heads[0].Length < seen || heads[1].Last != m.Position() {
			t.Fatalf("lengths %d and %d, last %s at position %s after a moment with %d", heads[0].Length, heads[1].Length, heads[1].Last, m.Position(), seen)
		}
		if seen = heads[0].Length; seen > 0 {
			if item, err := m.Get(space, "n"); err != nil || string(item.Value) != strconv.FormatUint(seen, 10) {
				t.Fatalf("the item is %q (%v) where the streams have %d events", item.Value, err, seen)
			}
		}
		m.Close()
	}
	writing.Wait()
}
