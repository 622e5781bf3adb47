package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/storage/store"
)

func nextDue(t failer, s store.Store, sp store.Space) time.Time {
	t.Helper()
	at, err := s.NextDue(t.Context(), sp)
	if err != nil {
		t.Fatalf("next due: %v", err)
	}
	return at
}

func dueTenants(t failer, s store.Store, limit int) []j17.Tenant {
	t.Helper()
	names, err := s.DueTenants(t.Context(), "work", limit)
	if err != nil {
		t.Fatalf("due tenants: %v", err)
	}
	return names
}

// testDueOverAll follows the due work of many tenants through everything that changes it.
func testDueOverAll(s *suite) {
	t := s.t
	f := s.fixture(t)
	start := f.clock.Now()
	job := func(key string, due time.Duration) store.Side {
		return store.Side{Op: store.Put, Space: "work", Key: key, Due: start.Add(due)}
	}
	check := func(what string, next time.Duration, due ...j17.Tenant) {
		t.Helper()
		for _, reopen := range []bool{false, true} {
			if reopen {
				f.reopen(t, t)
			}
			want := start.Add(next)
			if next < 0 {
				want = time.Time{}
			}
			if got := nextDue(t, f, "work"); !got.Equal(want) {
				t.Fatalf("%s: the next work is due at %s, want %s", what, got, want)
			}
			if got := dueTenants(t, f, 9); !slices.Equal(got, due) {
				t.Fatalf("%s: due are %v, want %v", what, got, due)
			}
		}
	}
	check("nothing", -1)
	write(t, f, "a/prod", job("x", 5*time.Minute), job("y", 7*time.Minute))
	write(t, f, "b/prod", job("x", 3*time.Minute))
	write(t, f, "c/prod", job("x", 4*time.Minute), store.Side{Op: store.Put, Space: "work2", Key: "x", Due: start})
	check("nothing is due yet", 3*time.Minute)
	f.clock.Advance(4 * time.Minute)
	check("two are due", 3*time.Minute, "b/prod", "c/prod")
	if got := dueTenants(t, f, 1); !slices.Equal(got, []j17.Tenant{"b/prod"}) {
		t.Fatalf("the one that waits longest is %v", got)
	}
	// A claim moves the work to the end of its lease.
	if items, err := f.ClaimDue(t.Context(), "b/prod", store.Claim{
		Space: "work", Limit: 9, Lease: 2 * time.Minute,
	}); err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	check("one is claimed", 4*time.Minute, "c/prod")
	write(t, f, "c/prod", store.Side{Op: store.Delete, Space: "work", Key: "x"})
	check("one is finished", 5*time.Minute)
	f.clock.Advance(2 * time.Minute)
	check("the lease has ended", 5*time.Minute, "a/prod", "b/prod")
	write(t, f, "a/prod", store.Side{Op: store.Put, Space: "work", Key: "x", Due: start.Add(time.Hour)})
	check("one was moved", 6*time.Minute, "b/prod")
	if err := f.DropTenant(t.Context(), "b/prod"); err != nil {
		t.Fatal(err)
	}
	check("a tenant was dropped", 7*time.Minute)
	if err := Copy(t.Context(), f, "a/prod", f, "d/prod"); err != nil {
		t.Fatal(err)
	}
	f.clock.Advance(time.Minute)
	if got := dueTenants(t, f, 9); len(got) != 2 || !slices.Contains(got, "d/prod") {
		t.Fatalf("after a copy: %v", got)
	}
	// What has expired is not due.
	for _, name := range []j17.Tenant{"a/prod", "d/prod"} {
		write(t, f, name, store.Side{
			Op: store.Put, Space: "work", Key: "y", Due: start, Expires: f.clock.Now().Add(time.Second),
		})
	}
	f.clock.Advance(time.Second)
	check("what was due has expired", time.Hour)
}

// testDueCounted counts the due work of one tenant, up to a moment and up to a limit.
func testDueCounted(s *suite) {
	t := s.t
	f := s.fixture(t)
	start := f.clock.Now()
	count := func(of j17.Tenant, before time.Duration, limit, want int, first time.Time) {
		t.Helper()
		n, at, err := f.CountDue(t.Context(), of, "work", start.Add(before), limit)
		if err != nil || n != want || !at.Equal(first) {
			t.Fatalf("%d of %s are due within %s, the first at %s, %v; want %d and %s", n, of, before, at, err, want, first)
		}
	}
	job := func(key string, due time.Duration) store.Side {
		return store.Side{Op: store.Put, Space: "work", Key: key, Due: start.Add(due)}
	}
	at := func(due time.Duration) time.Time { return start.Add(due) }
	count(tenant, time.Hour, 9, 0, time.Time{}) // of a tenant that has nothing yet
	write(t, f, tenant, store.Side{Op: store.Put, Space: "work", Key: "never"})
	count(tenant, time.Hour, 9, 0, time.Time{})
	write(t, f, tenant, job("b", 2*time.Minute), job("a", 3*time.Minute), job("c", time.Minute), job("d", time.Hour))
	write(t, f, tenant, store.Side{Op: store.Put, Space: "work2", Key: "x", Due: start}, store.Side{
		Op: store.Put, Space: "wor", Key: "x", Due: start,
	})
	write(t, f, other, job("x", 0))

	// Count items due before a moment; the first due time is returned even if it is later.
	count(tenant, 0, 9, 0, at(time.Minute))
	count(tenant, time.Minute, 9, 0, at(time.Minute))
	count(tenant, time.Minute+1, 9, 1, at(time.Minute))
	count(tenant, 3*time.Minute, 9, 2, at(time.Minute))
	count(tenant, 2*time.Hour, 9, 4, at(time.Minute))
	count(tenant, 2*time.Hour, 3, 3, at(time.Minute))
	count(tenant, 2*time.Hour, 1, 1, at(time.Minute))
	count(other, 2*time.Hour, 9, 1, start)

	// What is claimed is due when its lease ends; what is removed, postponed or expired no longer counts.
	f.clock.Advance(time.Minute)
	if got, err := f.ClaimDue(t.Context(), tenant, store.Claim{
		Space: "work", Limit: 1, Lease: 4 * time.Minute,
	}); err != nil || !slices.Equal(keysOf(got), []string{"c"}) {
		t.Fatal(keysOf(got), err)
	}
	count(tenant, 4*time.Minute, 9, 2, at(2*time.Minute))
	count(tenant, 6*time.Minute, 9, 3, at(2*time.Minute))
	write(t, f, tenant, store.Side{Op: store.Delete, Space: "work", Key: "b"}, job("a", 50*time.Minute))
	count(tenant, 2*time.Hour, 9, 3, at(5*time.Minute))
	soon := job("soon", 90*time.Second)
	soon.Expires = start.Add(2 * time.Minute)
	write(t, f, tenant, soon)
	count(tenant, 2*time.Hour, 9, 4, at(90*time.Second))
	f.clock.Advance(time.Minute)
	count(tenant, 2*time.Hour, 9, 3, at(5*time.Minute))
}

// testDueAwaited waits for work of any tenant.
func testDueAwaited(s *suite) {
	t := s.t
	f := s.fixture(t)
	soon := f.clock.Now().Add(time.Minute)
	write(t, f, tenant, store.Side{Op: store.Put, Space: "work", Key: "later", Due: soon.Add(time.Hour)})
	woken := make(chan error, 1)
	go func() { woken <- f.AwaitDue(t.Context(), "work", soon) }()
	for i, side := range []store.Side{
		{Op: store.Put, Space: "work2", Key: "elsewhere", Due: soon.Add(-time.Second)},
		{Op: store.Put, Space: "work", Key: "too late", Due: soon},
	} {
		write(t, f, other, side)
		select {
		case err := <-woken:
			t.Fatalf("woken by write %d: %v", i, err)
		default:
		}
	}
	write(t, f, other, store.Side{Op: store.Put, Space: "work", Key: "soon", Due: soon.Add(-time.Second)})
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	// If there is such an item already, nobody waits.
	if err := errors.Join(
		f.AwaitDue(t.Context(), "work", soon), f.AwaitDue(t.Context(), "work", time.Time{}),
	); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { woken <- f.AwaitDue(ctx, "idle", time.Time{}) }()
	cancel()
	if err := <-woken; !errors.Is(err, context.Canceled) {
		t.Fatalf("a wait that was given up: %v", err)
	}
}

// testTagged reads single events, events of long units and erased ones by their tags.
func testTagged(s *suite) {
	// Write a unit of many events, some with rare tags, and later events, one of them of another tenant.
	t := s.t
	f := s.fixture(t)
	tagged := func(data int, tags ...string) store.NewEvent {
		e := event(order(fmt.Sprint(data%5)), fmt.Sprint(data))
		e.Tags = tags
		return e
	}
	var unit []store.NewEvent
	for n := range 200 {
		tags := []string{"all"}
		if n%3 == 0 {
			tags = append(tags, "third")
		}
		if n%70 == 69 {
			tags = append(tags, "rare", strings.Repeat("long", 200))
		}
		unit = append(unit, tagged(n, tags...))
	}
	r := commit(t, f, tenant, store.Append{Events: unit})
	commit(t, f, tenant, store.Append{Events: []store.NewEvent{tagged(200), tagged(201, "third")}})
	commit(t, f, tenant, store.Append{Events: []store.NewEvent{tagged(202, "rare", "all")}})
	commit(t, f, other, store.Append{Events: []store.NewEvent{tagged(0, "rare", "all")}})

	// All tags count, from a position on, up to a limit; also after the store was opened again.
	check := func(want []int, after j17.StreamID, limit int, tags ...string) {
		t.Helper()
		var got []int
		for _, e := range readTagged(t, f, tenant, after, limit, tags...) {
			n, err := strconv.Atoi(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, n)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q after %s: %v, want %v", tags, after, got, want)
		}
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			f.reopen(t, t)
		}
		none := j17.StreamID{}
		check([]int{69, 139, 202}, none, everything, "rare")
		check([]int{69, 139, 202}, none, everything, "all", "rare")
		check([]int{69}, none, everything, "rare", "third")
		check([]int{69, 139}, none, 2, "rare", "all")
		check([]int{139, 202}, r.IDs[69], everything, "rare")
		check([]int{69, 139, 202}, r.IDs[68], everything, "rare")
		check([]int{195, 198, 201}, r.IDs[192], everything, "third")
		check([]int{69, 139}, none, everything, strings.Repeat("long", 200))
		check(nil, none, everything, "rar")
		check(nil, none, 0, "rare")
	}

	// An erased event no longer has tags; its neighbours keep theirs.
	erased := store.Rewritten{Version: 14, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}
	if err := Erase(t.Context(), f, tenant, order("4"), []store.Rewritten{erased}); err != nil {
		t.Fatal(err)
	}
	check([]int{139, 202}, j17.StreamID{}, everything, "rare")
	check([]int{66, 72, 75}, r.IDs[65], 3, "third")

	// A copy has the tags.
	if err := Copy(t.Context(), f, tenant, f, "copy"); err != nil {
		t.Fatal(err)
	}
	if got := readTagged(t, f, "copy", j17.StreamID{}, everything, "rare"); len(got) != 2 {
		t.Errorf("a copy has %d of 2 tagged events", len(got))
	}

	// Invalid tags are refused.
	for what, tags := range map[string][]string{"no tag": nil} {
		for _, err := range f.ReadTagged(t.Context(), tenant, store.Tagged{Tags: tags}, j17.StreamID{}, 1, nil) {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	for what, tags := range map[string][]string{
		"empty": {""}, "twice": {"a", "a"}, "too many": make([]string, store.MaxEventTags+1),
	} {
		_, err := f.Append(t.Context(), tenant, []store.Append{{Events: []store.NewEvent{tagged(1, tags...)}}})
		if !errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrLimit) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func changed(t failer, s store.Store, since uint64, limit int) (names []j17.Tenant, last uint64) {
	t.Helper()
	list, err := s.Changed(t.Context(), since, limit)
	if err != nil {
		t.Fatalf("changed: %v", err)
	}
	last = since
	for _, c := range list {
		if c.Number <= last {
			t.Fatalf("changes out of order: %v", list)
		}
		last = c.Number
		names = append(names, c.Tenant)
	}
	return names, last
}

// testChanged follows which tenants have changed, also when time goes backward and over restarts. With a number from
// before a restart a store may name tenants that have not changed, once.
func testChanged(s *suite) {
	t := s.t
	f := s.fixture(t)
	since, reopened := uint64(0), false
	there := map[j17.Tenant]bool{}
	reopen := func() {
		t.Helper()
		f.reopen(t, t)
		reopened = true
	}
	compare := func(what string, want ...j17.Tenant) {
		t.Helper()
		got, last := changed(t, f, since, 99)
		if _, two := f.Store.(*pair); two {
			slices.Sort(got)
			slices.Sort(want)
		}
		if !reopened && !slices.Equal(got, want) {
			t.Fatalf("%s: %v have changed since %d, want %v", what, got, since, want)
		}
		named := map[j17.Tenant]bool{}
		for _, name := range got {
			if named[name] || !there[name] {
				t.Fatalf("%s: %v have changed since %d, of %v", what, got, since, there)
			}
			named[name] = true
		}
		for _, name := range want {
			if !named[name] {
				t.Fatalf("%s: %v have changed since %d, and not %s", what, got, since, name)
			}
		}
		if again, _ := changed(t, f, last, 99); len(again) > 0 {
			t.Fatalf("%s: %v have changed since %d, the last change", what, again, last)
		}
	}
	check := func(what string, want ...j17.Tenant) {
		t.Helper()
		compare(what, want...)
		reopen()
		compare(what, want...)
		_, since = changed(t, f, since, 99)
		reopened = false
	}
	touch := func(names ...j17.Tenant) {
		for _, name := range names {
			commit(t, f, name, store.Append{Events: events(order("a"), `1`)})
			there[name] = true
		}
	}
	check("nothing")
	touch("a", "b", "c")
	check("the first events", "a", "b", "c")
	check("nothing more")
	touch("c", "a", "c")
	check("two", "a", "c")
	f.clock.Set(f.clock.Now().Add(-time.Hour))
	touch("b")
	check("one, whose clock went back", "b")
	// Only events count as changes.
	write(t, f, "a", put("k", "v"))
	appendUnit(t, f, "c", store.Append{Pre: []store.Pre{pre(order("a"), 99)}, Events: events(order("a"), `1`)})
	check("side items and conflicts")
	// A number is not used again, although its tenant was dropped.
	touch("a")
	_, latest := changed(t, f, 0, 99)
	if err := f.DropTenant(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	delete(there, "a")
	reopen()
	since = 0
	compare("after one was dropped", "c", "b")
	since = latest
	touch("d")
	check("a new one", "d")
	// Pages lead to the same tenants.
	for i := range 40 {
		touch(j17.Tenant(fmt.Sprint("t", i%7)))
	}
	var paged []j17.Tenant
	for at := since; ; {
		names, last := changed(t, f, at, 2)
		if len(names) == 0 {
			break
		}
		paged, at = append(paged, names...), last
	}
	if whole, _ := changed(t, f, since, 99); !slices.Equal(paged, whole) || len(whole) != 7 {
		t.Fatalf("page by page %v, at once %v", paged, whole)
	}
	_, since = changed(t, f, since, 99)
	woken := make(chan error, 1)
	go func() { woken <- f.AwaitChange(t.Context(), since) }()
	touch("b")
	if err := errors.Join(<-woken, f.AwaitChange(t.Context(), since)); err != nil {
		t.Fatal(err)
	}
}

// Idle measures what following all tenants costs when they hold n tenants without due work or changes: it must not
// depend on n.
func Idle(t *testing.T, s store.Store, n int) (allocations float64) {
	t.Helper()
	for i := range n {
		commit(t, s, j17.Tenant(fmt.Sprintf("idle%d/prod", i)), store.Append{
			Events: events(order("a"), `1`), Side: []store.Side{{Op: store.Put, Space: "work", Key: "done"}},
		})
	}
	_, since := changed(t, s, 0, n+1)
	busy := store.Append{
		Events: events(order("a"), `1`), Side: []store.Side{{Op: store.Put, Space: "work", Key: "job", Due: epoch()}},
	}
	commit(t, s, tenant, busy)
	return testing.AllocsPerRun(20, func() {
		if names, _ := changed(t, s, since, 9); len(names) != 1 {
			t.Fatalf("%v have changed", names)
		}
		if names := dueTenants(t, s, 9); len(names) != 1 || nextDue(t, s, "work").IsZero() {
			t.Fatalf("%v are due", names)
		}
	})
}
