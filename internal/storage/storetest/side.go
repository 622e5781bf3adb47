package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/storage/store"
)

func testSide(s *suite) {
	t := s.t
	f := s.fixture(t)
	missing := func(tn j17.Tenant, sp store.Space, key string) {
		t.Helper()
		if item, err := f.Get(t.Context(), tn, sp, key); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("get %s/%s: %v, %v, want ErrNotFound", sp, key, item, err)
		}
	}
	missing(tenant, space, "k")
	at := f.clock.Now().Add(time.Hour + 7)
	write(t, f, tenant, put("k", "one"), store.Side{
		Op: store.Put, Space: space, Key: "k2", Expires: at, Due: at.Add(1),
	})
	one := get(t, f, tenant, space, "k")
	if diff := cmp.Diff(store.Item{Key: "k", Value: []byte("one"), Rev: one.Rev}, one); diff != "" || one.Rev == 0 {
		t.Fatalf("item (-want +got):\n%s", diff)
	}
	timed := get(t, f, tenant, space, "k2")
	if !timed.Expires.Equal(at) || !timed.Due.Equal(at.Add(1)) || len(timed.Value) != 0 || timed.Rev == one.Rev {
		t.Fatalf("item %+v", timed)
	}
	missing(tenant, "notes2", "k")
	missing(tenant, "note", "s\x00k")
	missing(tenant, "notes\x00k", "k")
	missing(other, space, "k")
	// Every write gives another Rev, even across deletion and reopening.
	revs := []uint64{one.Rev, timed.Rev}
	for i := range 6 {
		switch i {
		case 2:
			write(t, f, tenant, store.Side{Op: store.Delete, Space: space, Key: "k"}, store.Side{
				Op: store.Delete, Space: space, Key: "none",
			})
			missing(tenant, space, "k")
		case 4:
			f.reopen(t, t)
		}
		write(t, f, tenant, put("k", fmt.Sprint(i)), put("k", fmt.Sprint(i, "again")))
		item := get(t, f, tenant, space, "k")
		if string(item.Value) != fmt.Sprint(i, "again") {
			t.Fatalf("value %q in round %d: the last write counts", item.Value, i)
		}
		if slices.Contains(revs, item.Rev) {
			t.Fatalf("rev %d was used before: %v", item.Rev, revs)
		}
		revs = append(revs, item.Rev)
	}
	// Values that were written and read belong to the caller.
	value := []byte("mine")
	write(t, f, tenant, store.Side{Op: store.Put, Space: space, Key: "k", Value: value})
	value[0] = 'X'
	got := get(t, f, tenant, space, "k")
	got.Value[1] = 'X'
	if item := get(t, f, tenant, space, "k"); string(item.Value) != "mine" {
		t.Fatalf("value %q", item.Value)
	}
}

func testSideConditions(s *suite) {
	t := s.t
	f := s.fixture(t)
	write(t, f, tenant, put("k", "v"))
	rev := get(t, f, tenant, space, "k").Rev

	// One condition that does not hold prevents all writes of a unit.
	for _, op := range []store.SideOp{store.Put, store.Delete} {
		for _, c := range []struct {
			key  string
			cond store.Cond
			rev  uint64
			want uint64
		}{
			{"k", store.IfAbsent, 0, rev},
			{"k", store.IfRev, rev + 1, rev},
			{"k", store.IfRev, 0, rev},
			{"none", store.IfRev, rev, 0},
		} {
			err := f.Write(t.Context(), tenant, []store.Side{
				put("other", "v"), {Op: op, Space: space, Key: c.key, Cond: c.cond, Rev: c.rev},
			})
			var conflict *store.SideConflict
			if !errors.As(err, &conflict) || *conflict != (store.SideConflict{Space: space, Key: c.key, Rev: c.want}) {
				t.Errorf("op %d, %+v: %v", op, c, err)
			}
		}
	}
	if _, err := f.Get(t.Context(), tenant, space, "other"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("a conflict has written: %v", err)
	}

	// Each condition is tested on the state before the unit.
	write(t, f, tenant,
		store.Side{Op: store.Put, Space: space, Key: "k", Value: []byte("w"), Cond: store.IfRev, Rev: rev},
		store.Side{Op: store.Put, Space: space, Key: "new", Cond: store.IfAbsent},
		store.Side{Op: store.Delete, Space: space, Key: "new", Cond: store.IfAbsent},
	)

	// All failed conditions are reported.
	r := appendUnit(t, f, tenant, store.Append{Side: []store.Side{
		{Op: store.Delete, Space: space, Key: "k", Cond: store.IfRev, Rev: rev},
		{Op: store.Delete, Space: space, Key: "none", Cond: store.IfAbsent},
		{Op: store.Delete, Space: space, Key: "k", Cond: store.IfAbsent},
	}})
	now := get(t, f, tenant, space, "k").Rev
	want := []store.SideConflict{{Space: space, Key: "k", Rev: now}, {Space: space, Key: "k", Rev: now}}
	if diff := cmp.Diff(want, r.Sides); diff != "" || r.Outcome != store.Conflict {
		t.Fatalf("conflicts (-want +got):\n%s", diff)
	}
}

// testValueConditions checks conditions on the values of items.
func testValueConditions(s *suite) {
	t := s.t
	f := s.fixture(t)

	// Only the value is compared, and an absent item has the empty value.
	write(t, f, tenant, put("k", "v"))
	write(t, f, tenant, put("k", "w"), put("empty", ""))
	ifValue := func(key, was, value string) store.Side {
		return store.Side{Op: store.Put, Space: space, Key: key, Value: []byte(value), Cond: store.IfValue, Was: was}
	}
	for _, wrong := range []store.Side{
		ifValue("k", "v", "x"), ifValue("k", "", "x"), ifValue("none", "w", "x"), ifValue("empty", "w", "x"),
	} {
		var conflict *store.SideConflict
		if err := f.Write(t.Context(), tenant, []store.Side{wrong}); !errors.As(err, &conflict) ||
			conflict.Key != wrong.Key {
			t.Errorf("%s is %q: %v", wrong.Key, wrong.Was, err)
		}
	}
	write(t, f, tenant, ifValue("k", "w", "w"), ifValue("none", "", "w"), ifValue("empty", "", "w"))
	write(
		t, f, tenant, store.Side{Op: store.Delete, Space: space, Key: "none", Cond: store.IfValue, Was: "w"},
		put("long", strings.Repeat("w", store.MaxNameBytes+1)),
	)
	for why, u := range map[string]store.Append{
		"a long item":  {Side: []store.Side{ifValue("long", "", "x")}},
		"another item": {Fences: []store.Fence{{Space: space, Key: "k", ByValue: true, Value: "v"}}},
		"what is gone": {Fences: []store.Fence{{Space: space, Key: "none", ByValue: true, Value: "w"}}},
		"what it writes itself": {
			Fences: []store.Fence{{Space: space, Key: "none", ByValue: true, Value: "w"}},
			Side:   []store.Side{put("none", "w")},
		},
	} {
		if r := appendUnit(t, f, tenant, u); r.Outcome != store.Conflict || len(r.Sides) != 1 {
			t.Errorf("%s: %+v", why, r)
		}
	}

	// A unit decided on an unstored write names the value that the write leaves.
	results, err := f.Append(t.Context(), tenant, []store.Append{
		{Side: []store.Side{ifValue("k", "w", "1")}},
		{
			Side:   []store.Side{ifValue("k", "1", "2")},
			Fences: []store.Fence{{Space: space, Key: "k", ByValue: true, Value: "1"}},
		},
		{Side: []store.Side{ifValue("k", "1", "3")}},
		{Side: []store.Side{ifValue("k", "2", "w")}, Fences: []store.Fence{{Space: space, Key: "none", ByValue: true}}},
	})
	if err != nil || results[0].Outcome+results[1].Outcome+results[3].Outcome != 3*store.Committed ||
		results[2].Outcome != store.Conflict {
		t.Fatalf("units of one call: %+v, %v", results, err)
	}

	// Invalid combinations are refused.
	for why, u := range map[string]store.Append{
		"a long value":   {Side: []store.Side{ifValue("k", strings.Repeat("w", store.MaxNameBytes+1), "")}},
		"a lost value":   {Side: []store.Side{{Op: store.Put, Space: space, Key: "k", Was: "w"}}},
		"a lost fence":   {Fences: []store.Fence{{Space: space, Key: "k", Value: "w"}}},
		"a double fence": {Fences: []store.Fence{{Space: space, Key: "k", ByValue: true, Rev: 1}}},
	} {
		if _, err := f.Append(t.Context(), tenant, []store.Append{u}); !errors.Is(err, store.ErrInvalid) &&
			!errors.Is(err, store.ErrLimit) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// testFences checks preconditions on side items that a unit does not write.
func testFences(s *suite) {
	t := s.t
	f := s.fixture(t)
	write(t, f, tenant, put("head", "1"))
	rev := get(t, f, tenant, space, "head").Rev
	fence := func(key string, rev uint64) store.Fence { return store.Fence{Space: space, Key: key, Rev: rev} }
	commit(t, f, tenant, store.Append{
		Fences: []store.Fence{fence("head", rev), fence("none", 0)}, Events: events(order("a"), `1`),
	})
	if now := get(t, f, tenant, space, "head"); now.Rev != rev || string(now.Value) != "1" {
		t.Fatalf("a fence has written %+v", now)
	}
	write(t, f, tenant, put("head", "2"))
	now := get(t, f, tenant, space, "head").Rev
	for name, c := range map[string]struct {
		fence store.Fence
		rev   uint64
	}{
		"older": {fence("head", rev), now}, "present": {fence("head", 0), now}, "absent": {fence("none", now), 0},
	} {
		u := store.Append{
			Pre: []store.Pre{pre(order("a"), 1)}, Fences: []store.Fence{fence("head", now), c.fence},
			Events:  events(order("a"), `2`),
			Command: &store.Command{ID: store.CommandID{7}},
		}
		want := []store.SideConflict{{Space: space, Key: c.fence.Key, Rev: c.rev}}
		if r := appendUnit(t, f, tenant, u); r.Outcome != store.Conflict || r.Streams != nil ||
			!slices.Equal(r.Sides, want) {
			t.Errorf("%s: %+v, want the conflict %+v alone", name, r, want)
		}
	}
	if h := head(t, f, tenant, order("a")); h.Length != 1 {
		t.Fatalf("%d events behind fences that did not hold", h.Length)
	}
	// The two kinds of conflict are distinguished, and reported together.
	both := store.Append{Pre: []store.Pre{pre(order("a"), 0)}, Fences: []store.Fence{fence("head", rev)}}
	if r := appendUnit(t, f, tenant, both); len(r.Streams) != 1 || len(r.Sides) != 1 {
		t.Errorf("%+v", r)
	}
	// A unit sees what the units before it in its call have written, and not what it writes itself.
	results, err := f.Append(t.Context(), tenant, []store.Append{
		{Fences: []store.Fence{fence("head", now)}, Side: []store.Side{put("head", "3")}},
		{Fences: []store.Fence{fence("head", now)}, Events: events(order("a"), `2`)},
	})
	if err != nil || results[0].Outcome != store.Committed || results[1].Outcome != store.Conflict {
		t.Fatalf("%+v, %v", results, err)
	}
	// An expired item is absent. A fence alone writes nothing, not even a tenant.
	expires := put("short", "")
	expires.Expires = f.clock.Now().Add(time.Second)
	write(t, f, tenant, expires)
	f.clock.Advance(time.Second)
	commit(t, f, tenant, store.Append{Fences: []store.Fence{fence("short", 0)}})
	if err := f.Write(t.Context(), other, nil, fence("none", 0)); err != nil {
		t.Fatal(err)
	}
	var conflict *store.SideConflict
	if err := f.Write(t.Context(), other, nil, fence("none", 1)); !errors.As(err, &conflict) || conflict.Rev != 0 {
		t.Errorf("a write behind a fence that does not hold: %v", err)
	}
	if names, err := f.Tenants(t.Context()); err != nil || !slices.Equal(names, []j17.Tenant{tenant}) {
		t.Fatalf("tenants %v, %v", names, err)
	}
	if _, err := f.Append(t.Context(), tenant, []store.Append{
		{Fences: []store.Fence{{Space: space}}},
	}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a fence without a key: %v", err)
	}
}

func testScan(s *suite) {
	t := s.t
	f := s.fixture(t)

	// Items among those of another space and of another tenant, and some that are gone.
	var all []string
	for _, key := range []string{"a", "a/1", "a/2", "a/3", "ab", "b", "b/\xc3\xbf", "\xf4\x8f\xbf\xbf"} {
		write(t, f, tenant, put(key, key))
		write(t, f, tenant, store.Side{Op: store.Put, Space: "notes2", Key: key})
		write(t, f, other, put("z"+key, key))
		all = append(all, key)
	}
	write(t, f, tenant, put("a/0", ""), store.Side{Op: store.Put, Space: space, Key: "a/25", Expires: f.clock.Now()})
	write(t, f, tenant, store.Side{Op: store.Delete, Space: space, Key: "a/0"})

	// The items that ranges find.
	for _, c := range []struct {
		keys  store.Range
		limit int
		want  []string
	}{
		{store.Range{From: "a/1", To: "a/3"}, 100, all[1:3]},
		{store.Range{From: "a/15", To: "a/3\x00"}, 100, all[2:4]},
		{store.Range{From: "a/1", To: "a/3"}.After("a/1"), 100, all[2:3]},
		{store.Range{From: "a/3", To: "a/3"}, 100, nil},
		{store.Range{From: "b", To: "a"}, 100, nil},
		{store.Range{To: "a/1"}, 100, all[:1]},
		{store.Range{From: "ab"}, 1, all[4:5]},
		{store.Prefix("a/").After("b"), 100, nil},
		{store.Prefix(""), 100, all},
		{store.Prefix(""), 3, all[:3]},
		{store.Prefix("").After("a/2"), 100, all[3:]},
		{store.Prefix("").After("a/25"), 2, all[3:5]},
		{store.Prefix("a/"), 100, all[1:4]},
		{store.Prefix("a/").After("a"), 100, all[1:4]},
		{store.Prefix("a/").After("a/1"), 1, all[2:3]},
		{store.Prefix("a/").After("a/9"), 100, nil},
		{store.Prefix("a/").After("b"), 100, nil},
		{store.Prefix("\xf4\x8f\xbf\xbf"), 100, all[7:]},
		{store.Prefix("c"), 100, nil},
		{store.Prefix(""), 0, nil},
		{store.Range{From: "a/1", To: "b", Backward: true}, 2, []string{"ab", "a/3"}},
		{store.Range{To: "a/25", Backward: true}, 100, []string{"a/2", "a/1", "a"}},
		{store.Range{Backward: true}, 1, all[7:]},
	} {
		items, err := f.Scan(t.Context(), tenant, space, c.keys, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, item := range items {
			got = append(got, item.Key)
			if string(item.Value) != item.Key {
				t.Errorf("value %q of %q", item.Value, item.Key)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("keys %+v, limit %d: got %q, want %q", c.keys, c.limit, got, c.want)
		}
	}
}

// testGetEach reads many items at once: do gets those that exist, in order, each with its index and value.
func testGetEach(s *suite) {
	t := s.t
	f := s.fixture(t)
	for _, key := range []string{"a", "a/1", "a/2", "ab", "b", "\xf4\x8f\xbf\xbf"} {
		write(t, f, tenant, put(key, "value of "+key), store.Side{Op: store.Put, Space: "notes2", Key: key + "0"})
		write(t, f, other, put(key+"1", "another's"))
	}
	write(
		t, f, tenant, put("a/0", ""), store.Side{Op: store.Put, Space: space, Key: "a/25", Expires: f.clock.Now()},
		put("empty", ""),
	)
	write(t, f, tenant, store.Side{Op: store.Delete, Space: space, Key: "a/0"})

	for _, c := range []struct{ keys, want []string }{
		{nil, nil},
		{[]string{"a"}, []string{"0 value of a"}},
		{[]string{"0", "c", "z"}, nil},
		{[]string{"a0", "a1", "b1"}, nil},
		{
			[]string{"a", "a/0", "a/1", "a/15", "a/25", "ab", "abc", "empty", "\xf4\x8f\xbf\xbf"},
			[]string{"0 value of a", "2 value of a/1", "5 value of ab", "7 ", "8 value of \xf4\x8f\xbf\xbf"},
		},
	} {
		var got []string
		err := f.GetEach(t.Context(), tenant, space, c.keys, func(i int, value []byte) error {
			got = append(got, fmt.Sprintf("%d %s", i, value))
			return nil
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, %v, want %q", c.keys, got, err, c.want)
		}
	}

	// An error of do ends it.
	n := 0
	err := f.GetEach(t.Context(), tenant, space, []string{"a", "ab"}, func(int, []byte) error {
		n++
		return errStop
	})
	if !errors.Is(err, errStop) || n != 1 {
		t.Errorf("%d items, %v", n, err)
	}
	if err := f.GetEach(
		t.Context(), "nobody", space, []string{"a"}, func(int, []byte) error { return errStop },
	); err != nil {
		t.Errorf("a tenant that holds nothing: %v", err)
	}
}

var errStop = errors.New("enough")

func testExpiry(s *suite) {
	t := s.t
	f := s.fixture(t)
	at := f.clock.Now().Add(time.Minute)
	timed := store.Side{
		Op: store.Put, Space: space, Key: "k", Value: []byte("v"), Expires: at, Due: f.clock.Now().Add(time.Hour),
	}
	write(t, f, tenant, timed)
	old := get(t, f, tenant, space, "k").Rev
	f.clock.Advance(time.Minute - time.Nanosecond)
	get(t, f, tenant, space, "k")
	f.clock.Advance(time.Nanosecond)
	for _, reopen := range []bool{false, true} {
		if reopen {
			f.reopen(t, t)
		}
		if item, err := f.Get(t.Context(), tenant, space, "k"); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("an expired item: %v, %v", item, err)
		}
		if items, err := f.Scan(t.Context(), tenant, space, store.Range{}, 9); err != nil || len(items) != 0 {
			t.Fatalf("expired items: %v, %v", items, err)
		}
	}
	// It counts as absent.
	err := f.Write(t.Context(), tenant, []store.Side{
		{Op: store.Put, Space: space, Key: "k", Cond: store.IfRev, Rev: old},
	})
	var conflict *store.SideConflict
	if !errors.As(err, &conflict) || conflict.Rev != 0 {
		t.Fatalf("a write on the Rev of an expired item: %v", err)
	}
	write(t, f, tenant, store.Side{Op: store.Put, Space: space, Key: "k", Cond: store.IfAbsent})
	// Work that has expired is not handed out.
	write(t, f, tenant, store.Side{
		Op: store.Put, Space: "work", Key: "w", Due: f.clock.Now(), Expires: f.clock.Now().Add(time.Second),
	})
	f.clock.Advance(2 * time.Hour)
	for _, sp := range []store.Space{space, "work"} {
		if items, err := f.ClaimDue(t.Context(), tenant, store.Claim{
			Space: sp, Limit: 9, Lease: time.Minute,
		}); err != nil || len(items) != 0 {
			t.Fatalf("claim: %v, %v", items, err)
		}
	}
	if item := get(t, f, tenant, space, "k"); !item.Expires.IsZero() || !item.Due.IsZero() {
		t.Fatalf("item %+v: the new write has neither expiry nor due time", item)
	}
}

func claim(t failer, s store.Store, limit int, lease time.Duration) []store.Item {
	t.Helper()
	items, err := s.ClaimDue(t.Context(), tenant, store.Claim{Space: "work", Limit: limit, Lease: lease})
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return items
}

func keysOf(items []store.Item) []string {
	var keys []string
	for _, item := range items {
		keys = append(keys, item.Key)
	}
	return keys
}

func testDue(s *suite) {
	t := s.t
	f := s.fixture(t)
	start := f.clock.Now()
	job := func(key string, due time.Duration) store.Side {
		return store.Side{Op: store.Put, Space: "work", Key: key, Value: []byte("do " + key), Due: start.Add(due)}
	}
	write(t, f, tenant, job("late", time.Hour), job("b", 2*time.Second), job("a", 3*time.Second), job("c", time.Second))
	write(t, f, tenant, store.Side{Op: store.Put, Space: "work", Key: "idle"}, store.Side{
		Op: store.Put, Space: "work2", Key: "x", Due: start,
	})
	write(t, f, other, job("theirs", 0))
	if got := claim(t, f, 9, time.Minute); len(got) != 0 {
		t.Fatalf("nothing is due: %v", keysOf(got))
	}
	f.clock.Advance(2 * time.Second)
	rev := get(t, f, tenant, "work", "c").Rev
	got := claim(t, f, 9, time.Minute)
	if !slices.Equal(keysOf(got), []string{"c", "b"}) {
		t.Fatalf("claimed %v, want c and b, the earliest first", keysOf(got))
	}
	want := store.Item{Key: "c", Value: []byte("do c"), Rev: got[0].Rev, Due: start.Add(2*time.Second + time.Minute)}
	if diff := cmp.Diff(want, got[0]); diff != "" || got[0].Rev == rev {
		t.Fatalf("claimed item (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, get(t, f, tenant, "work", "c")); diff != "" {
		t.Fatalf("stored item (-want +got):\n%s", diff)
	}
	// While the lease lasts nobody else gets it; the limit holds.
	f.clock.Advance(time.Second)
	if got := claim(t, f, 1, time.Hour); !slices.Equal(keysOf(got), []string{"a"}) {
		t.Fatalf("claimed %v, want a", keysOf(got))
	}
	// c is finished in the same commit as its events. b is not, and is claimed again after its lease, also after a
	// restart.
	done := store.Side{Op: store.Delete, Space: "work", Key: "c", Cond: store.IfRev, Rev: got[0].Rev}
	commit(t, f, tenant, store.Append{Events: events(order("c"), `1`), Side: []store.Side{done}})
	f.reopen(t, t)
	f.clock.Advance(time.Minute)
	again := claim(t, f, 9, time.Minute)
	if !slices.Equal(keysOf(again), []string{"b"}) {
		t.Fatalf("claimed %v, want b", keysOf(again))
	}
	// A worker that lost the lease cannot finish.
	lost := store.Side{Op: store.Delete, Space: "work", Key: "b", Cond: store.IfRev, Rev: got[1].Rev}
	if r := appendUnit(t, f, tenant, store.Append{
		Events: events(order("b"), `1`), Side: []store.Side{lost},
	}); r.Outcome != store.Conflict {
		t.Fatal("a lost lease was accepted")
	}
	// Moving an item is a write like any other.
	write(t, f, tenant, store.Side{
		Op: store.Put, Space: "work", Key: "b", Due: f.clock.Now().Add(-time.Hour), Cond: store.IfRev,
		Rev: again[0].Rev,
	})
	if got := claim(t, f, 9, 0); !slices.Equal(keysOf(got), []string{"b"}) {
		t.Fatalf("claimed %v, want b", keysOf(got))
	}
	if got := claim(t, f, 0, 0); len(got) != 0 {
		t.Fatalf("claimed %v with limit 0", keysOf(got))
	}
	if _, err := f.ClaimDue(t.Context(), tenant, store.Claim{
		Space: "work", Limit: 1, Lease: -1,
	}); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("a negative lease: %v", err)
	}
}

// testDueAtOnce lets workers share work: each job is done once, although some workers fail.
func testDueAtOnce(s *suite) {
	// Jobs that are due.
	t := s.t
	f := s.fixture(t)
	const workers, jobs = 5, 40
	for i := range jobs {
		write(t, f, tenant, store.Side{Op: store.Put, Space: "work", Key: fmt.Sprintf("%02d", i), Due: f.clock.Now()})
	}

	// Concurrent workers each claim some, sometimes fail so that the lease ends, and finish in one unit with an event.
	var mu sync.Mutex
	done, attempts := map[string]int{}, map[string]int{}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			w := worker{t}
			for {
				mu.Lock()
				finished := len(done) == jobs
				mu.Unlock()
				if finished {
					return
				}
				for _, item := range claim(w, f, 3, time.Minute) {
					mu.Lock()
					attempts[item.Key]++
					fails := attempts[item.Key] == 1 && item.Key[1] == '3'
					mu.Unlock()
					if fails {
						f.clock.Advance(2 * time.Minute)
						continue
					}
					finish := store.Side{
						Op: store.Delete, Space: "work", Key: item.Key, Cond: store.IfRev, Rev: item.Rev,
					}
					r := appendUnit(w, f, tenant, store.Append{
						Events: events(order(item.Key), `1`), Side: []store.Side{finish},
					})
					if r.Outcome == store.Committed {
						mu.Lock()
						done[item.Key]++
						mu.Unlock()
					}
				}
			}
		})
	}
	wg.Wait()

	// Each was done once.
	for i := range jobs {
		key := fmt.Sprintf("%02d", i)
		if n := head(t, f, tenant, order(key)).Length; n != 1 || done[key] != 1 {
			t.Errorf("job %s has %d events and was done %d times", key, n, done[key])
		}
	}
}

func testAtomicity(s *suite) {
	t := s.t
	f := s.fixture(t)
	commit(t, f, tenant, store.Append{Events: events(order("a"), `1`), Side: []store.Side{put("k", "1")}})
	rev := get(t, f, tenant, space, "k").Rev
	for name, u := range map[string]store.Append{
		"stream": {Pre: []store.Pre{pre(order("a"), 0)}},
		"side":   {Side: []store.Side{{Op: store.Delete, Space: space, Key: "k", Cond: store.IfAbsent}}},
		"fence":  {Fences: []store.Fence{{Space: space, Key: "k"}}},
	} {
		u.Events = append(events(order("a"), `2`), events(order("b"), `1`)...)
		u.Side = append(u.Side, put("k", "2"), put("k2", "2"))
		u.Command = &store.Command{ID: store.CommandID{1}}
		if r := appendUnit(t, f, tenant, u); r.Outcome != store.Conflict || r.IDs != nil {
			t.Fatalf("%s: %+v", name, r)
		}
		if a, b := head(t, f, tenant, order("a")), head(t, f, tenant, order("b")); a.Length != 1 || b.Length != 0 {
			t.Errorf("%s: lengths %d and %d", name, a.Length, b.Length)
		}
		if item := get(t, f, tenant, space, "k"); item.Rev != rev {
			t.Errorf("%s: the side item has changed", name)
		}
		if c, err := f.Command(t.Context(), tenant, store.CommandID{1}); c != nil || err != nil {
			t.Errorf("%s: the command is remembered: %v, %v", name, c, err)
		}
	}
	if n := len(readFeed(t, f, tenant, j17.StreamID{}, everything)); n != 1 {
		t.Errorf("%d events in the feed", n)
	}
}

// testRaise checks that a number only grows, and that a counter continues after it.
func testRaise(s *suite) {
	t := s.t
	f := s.fixture(t)
	raise := func(n, want string) {
		t.Helper()
		write(t, f, tenant, store.Side{Op: store.Raise, Space: space, Key: "latest", Value: []byte(n)})
		if got := get(t, f, tenant, space, "latest"); string(got.Value) != want {
			t.Errorf("raised to %s: %s", n, got.Value)
		}
	}
	raise("7", "7")
	rev := get(t, f, tenant, space, "latest").Rev
	raise("6", "7")
	raise("7", "7")
	if again := get(t, f, tenant, space, "latest").Rev; again != rev {
		t.Errorf("nothing changed, yet the revision is %d and not %d", again, rev)
	}
	raise("10", "10")
	results, err := f.Append(t.Context(), tenant, []store.Append{{
		Side:   []store.Side{{Op: store.Raise, Space: space, Key: "latest", Value: []byte("20")}},
		Assign: []store.Assignment{{Space: "names", Owner: "a", Index: space, Counter: "latest"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := results[0]; got.Outcome != store.Committed || got.Assigned[0] != "21" {
		t.Errorf("the counter goes on with %v", got.Assigned)
	}
	for _, bad := range []string{"", "x", "-1", "9223372036854775808"} {
		if err := f.Write(t.Context(), tenant, []store.Side{
			{Op: store.Raise, Space: space, Key: "latest", Value: []byte(bad)},
		}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("raised to %q: %v", bad, err)
		}
	}
}

// testAdd checks that counters are exact under concurrent writes, stay within their bounds, and are removed at 0.
func testAdd(s *suite) {
	t := s.t
	f := s.fixture(t)
	add := func(n string, most int64) store.Side {
		return store.Side{Op: store.Add, Space: space, Key: "count", Value: []byte(n), Most: most}
	}

	// Of many concurrent writers, as many succeed as the bound allows.
	var took atomic.Int64
	var writers sync.WaitGroup
	for range 20 {
		writers.Go(func() {
			err := f.Write(t.Context(), tenant, []store.Side{add("1", 7)})
			full, conflict := errors.AsType[*store.SideConflict](err)
			switch {
			case err == nil:
				took.Add(1)
			case !conflict || !full.Full || full.Key != "count" || full.Rev == 0:
				t.Errorf("beyond the bound: %v", err)
			}
		})
	}
	writers.Wait()
	if got := get(t, f, tenant, space, "count"); string(got.Value) != "7" || took.Load() != 7 {
		t.Errorf("the count is %s after %d writes", got.Value, took.Load())
	}

	// The additions of a unit count together, and a subtraction is never refused.
	results, err := f.Append(t.Context(), tenant, []store.Append{
		{Side: []store.Side{add("-1", 7), add("1", 7)}},
		{Side: []store.Side{add("-1", 7), add("1", 7), add("1", 7)}},
		{Side: []store.Side{add("-2", 3)}},
		{Side: []store.Side{add("2", 0)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []store.Outcome{store.Committed, store.Conflict, store.Committed, store.Committed} {
		if results[i].Outcome != want {
			t.Errorf("unit %d: outcome %d, want %d", i, results[i].Outcome, want)
		}
	}
	if n := len(results[1].Sides); n != 1 || !results[1].Sides[0].Full {
		t.Errorf("%d conflicts: %v", n, results[1].Sides)
	}
	if n, err := store.Counter(t.Context(), f, tenant, space, "count"); n != 7 || err != nil {
		t.Errorf("the count is %d: %v", n, err)
	}
	write(t, f, tenant, add("-8", 0))
	if n, err := store.Counter(t.Context(), f, tenant, space, "count"); n != 0 || err != nil {
		t.Errorf("below 0: %d, %v", n, err)
	}
	write(t, f, tenant, store.Side{Op: store.Put, Space: space, Key: "text", Value: []byte("seven")})
	if _, err := store.Counter(t.Context(), f, tenant, space, "text"); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("an item that is no number: %v", err)
	}

	for _, bad := range []store.Side{
		add("", 0), add("x", 0), add("1", -1), add("9223372036854775807", 0),
		{Op: store.Put, Space: space, Key: "a", Most: 1},
	} {
		if err := f.Write(t.Context(), tenant, []store.Side{bad}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("adding %q up to %d: %v", bad.Value, bad.Most, err)
		}
	}
}

// testStamps checks that values get the positions of events that commit with them.
func testStamps(s *suite) {
	t := s.t
	f := s.fixture(t)
	u := store.Append{
		Events: []store.NewEvent{event(order("a"), `1`), event(order("b"), `1`)},
		Side: []store.Side{
			{Op: store.Put, Space: space, Key: "both", Value: []byte("v"), Stamps: []int{1, 0}},
			{Op: store.Put, Space: space, Key: "none", Value: []byte("v")},
		},
	}
	results, err := f.Append(t.Context(), tenant, []store.Append{u})
	if err != nil {
		t.Fatal(err)
	}

	// Positions are in front of the value, in the order in which they were asked for.
	value := get(t, f, tenant, space, "both").Value
	for _, n := range []int{1, 0} {
		var id j17.StreamID
		if id, value, err = store.ReadStamp(value); err != nil || id != results[0].IDs[n] {
			t.Errorf("the position of event %d is %v: %v", n, id, err)
		}
	}
	if string(value) != "v" || string(get(t, f, tenant, space, "none").Value) != "v" {
		t.Errorf("the value is %q", value)
	}

	// Keys with positions are in the order of events.
	u.Side = []store.Side{
		{
			Op: store.Put, Space: "stamped", Key: ".2", Value: []byte("w"), Stamps: []int{1, 0}, StampKey: true,
			Due: f.clock.Now(),
		},
		{
			Op: store.Put, Space: "stamped", Key: ".1", Value: []byte("v"), Stamps: []int{1}, StampKey: true,
			Due: f.clock.Now(),
		},
		{
			Op: store.Put, Space: "stamped", Key: ".9", Value: []byte("u"), Stamps: []int{0}, StampKey: true,
			Due: f.clock.Now(),
		},
	}
	if results, err = f.Append(t.Context(), tenant, []store.Append{u}); err != nil {
		t.Fatal(err)
	}
	first, second := results[0].IDs[0], results[0].IDs[1]
	want := []string{store.StampedKey(first, ".9"), store.StampedKey(second, ".1"), store.StampedKey(second, ".2")}
	items, err := f.ClaimDue(t.Context(), tenant, store.Claim{Space: "stamped", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range items {
		got = append(got, item.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("claimed %q, want %q", got, want)
	}

	// Writes without a position, or with a key that need not be new, are refused.
	for name, bad := range map[string]store.Side{
		"no event":    {Op: store.Put, Space: space, Key: "k", StampKey: true},
		"a condition": {Op: store.Put, Space: space, Key: "k", StampKey: true, Stamps: []int{0}, Cond: store.IfAbsent},
		"too long": {
			Op: store.Put, Space: space, Key: strings.Repeat("k", store.MaxNameBytes-23), StampKey: true,
			Stamps: []int{0},
		},
	} {
		u.Side = []store.Side{bad}
		if _, err := f.Append(t.Context(), tenant, []store.Append{u}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a key with a position, %s: %v", name, err)
		}
	}
	u.Side = []store.Side{{Op: store.Put, Space: space, Key: "both"}}
	for _, n := range []int{-1, 2} {
		u.Side[0].Stamps = []int{n}
		if _, err := f.Append(t.Context(), tenant, []store.Append{u}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("the position of event %d: %v", n, err)
		}
	}
	if _, _, err := store.ReadStamp([]byte("short")); err == nil {
		t.Error("a value without a position was read")
	}
}
