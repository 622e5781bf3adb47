package storetest

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"j17/internal/storage/store"
)

// testPlain writes and removes plain items, one by one and many at a time, beside others.
func testPlain(s *suite) {
	t := s.t
	f := s.fixture(t)
	plain := func(op store.SideOp, key, value string) store.Side {
		return store.Side{Op: op, Space: space, Key: key, Value: []byte(value), Plain: true}
	}
	check := func(what string, want ...string) {
		t.Helper()
		items, err := f.Scan(t.Context(), tenant, space, store.Range{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		revs := map[uint64]bool{}
		for _, it := range items {
			got = append(got, it.Key+"="+string(it.Value))
			revs[it.Rev] = true
		}
		if !slices.Equal(got, want) || len(revs) != len(items) {
			t.Fatalf("%s: %q, want %q", what, got, want)
		}
	}

	// In one unit the last write counts, and units are all or nothing.
	write(
		t, f, tenant, plain(store.Put, "a", "1"), plain(store.Put, "b", "1"), plain(store.Put, "b", "2"),
		plain(store.Put, "c", "1"), plain(store.Delete, "c", ""),
	)
	check("written", "a=1", "b=2")
	write(
		t, f, tenant, plain(store.Put, "a", "3"), plain(store.Delete, "b", ""), plain(store.Delete, "nothing", ""),
		put("d", "4"),
	)
	check("written again", "a=3", "d=4")
	err := f.Write(t.Context(), tenant, []store.Side{
		plain(store.Put, "a", "5"), {Op: store.Put, Space: space, Key: "d", Cond: store.IfAbsent},
	})
	if conflict := (*store.SideConflict)(nil); !errors.As(err, &conflict) {
		t.Fatalf("a unit whose condition does not hold: %v", err)
	}
	check("refused", "a=3", "d=4")
	for what, change := range map[string]func(*store.Side){
		"a condition": func(w *store.Side) { w.Cond = store.IfAbsent },
		"a due time":  func(w *store.Side) { w.Due = f.clock.Now() },
		"an expiry":   func(w *store.Side) { w.Expires = f.clock.Now().Add(time.Hour) },
		"an addition": func(w *store.Side) { w.Op, w.Value = store.Add, []byte("1") },
	} {
		w := plain(store.Put, "a", "6")
		change(&w)
		if err := f.Write(t.Context(), tenant, []store.Side{w}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}

	// Fences are tested on the stored item, whatever was read before.
	revision := func() uint64 {
		t.Helper()
		err := f.Write(t.Context(), tenant, nil, store.Fence{Space: space, Key: "a", Rev: 1 << 60})
		conflict := (*store.SideConflict)(nil)
		if !errors.As(err, &conflict) {
			t.Fatalf("a fence that does not hold: %v", err)
		}
		return conflict.Rev
	}
	was := revision()
	if again := revision(); was == 0 || again != was {
		t.Errorf("an item has the revisions %d and %d", was, again)
	}
	write(t, f, tenant, plain(store.Put, "a", "3"))
	if now := revision(); now <= was {
		t.Errorf("written again, an item has the revision %d, after %d", now, was)
	}
	if err := f.Clear(t.Context(), tenant, space, store.Prefix("a")); err != nil || revision() != 0 {
		t.Errorf("cleared, an item has the revision %d, %v", revision(), err)
	}

	// A range is cleared, but not from earlier moments, and can be written again.
	write(t, f, tenant, plain(store.Delete, "a", ""), store.Side{Op: store.Delete, Space: space, Key: "d"})
	var sides []store.Side
	for i := range 30 {
		sides = append(sides, plain(store.Put, "k/"+strconv.Itoa(100+i), strconv.Itoa(i)))
	}
	write(t, f, tenant, append(sides, plain(store.Put, "j", ""), plain(store.Put, "l", ""), store.Side{
		Op: store.Put, Space: space + "2", Key: "k/100",
	})...)
	write(t, f, other, plain(store.Put, "k/100", ""))
	before := moment(t, f, tenant)
	if err := f.Clear(t.Context(), tenant, space, store.Range{From: "k/102", To: "k/129"}); err != nil {
		t.Fatal(err)
	}
	if n, err := before.Count(space, store.Range{}, 99); err != nil || n != 32 {
		t.Errorf("a moment from before has %d items, %v", n, err)
	}
	before.Close()
	check("a part is cleared", "j=", "k/100=0", "k/101=1", "k/129=29", "l=")
	write(t, f, tenant, plain(store.Put, "k/105", "anew"))
	f.reopen(t, t)
	check("opened again", "j=", "k/100=0", "k/101=1", "k/105=anew", "k/129=29", "l=")
	for _, keys := range []store.Range{store.Prefix("k/"), {From: "z", To: "a"}, store.Prefix("nothing")} {
		if err := f.Clear(t.Context(), tenant, space, keys); err != nil {
			t.Fatal(err)
		}
	}
	check("all is cleared", "j=", "l=")
	if err := f.Clear(t.Context(), "no/prod", space, store.Range{}); err != nil {
		t.Error(err)
	}
	if n, err := f.Count(t.Context(), tenant, space+"2", store.Range{}, 9); err != nil || n != 1 {
		t.Errorf("another space has %d items, %v", n, err)
	}
	if n, err := f.Count(t.Context(), other, space, store.Range{}, 9); err != nil || n != 1 {
		t.Errorf("another tenant has %d items, %v", n, err)
	}
}

// testDeferCompaction writes and reads while compaction is deferred once, and several times: all works as usual.
func testDeferCompaction(s *suite) {
	t := s.t
	f := s.fixture(t)
	first, second := f.DeferCompaction(), f.DeferCompaction()
	for n := range 100 {
		write(t, f, tenant, put(strconv.Itoa(n), "a"))
	}
	first()
	first() // it counts once
	if _, err := f.Get(t.Context(), tenant, space, "99"); err != nil {
		t.Error(err)
	}
	f.DeferCompaction()()
	second()
	write(t, f, tenant, put("1", "b"))
	if it, err := f.Get(t.Context(), tenant, space, "1"); err != nil || string(it.Value) != "b" {
		t.Errorf("%q, %v", it.Value, err)
	}
}
