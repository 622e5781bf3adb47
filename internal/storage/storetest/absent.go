package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/storage/store"
)

// taggedEvent is an event of an order that has tags.
func taggedEvent(id, typ string, tags ...string) store.NewEvent {
	e := event(order(id), `{}`)
	e.Type, e.Tags = typ, tags
	return e
}

// testUnless tests conditions that events are absent: events of earlier batches and of earlier units count, those of
// the unit itself do not.
func testUnless(s *suite) {
	t := s.t
	f := s.fixture(t)
	first := commit(t, f, tenant, store.Append{Events: []store.NewEvent{
		taggedEvent("a", "was_placed", "sku:A", "who:x"), taggedEvent("b", "was_paid", "sku:A"),
		taggedEvent("a", "was_paid", "sku:B", "who:x"),
	}})
	unless := func(after j17.StreamID, types string, tags ...string) store.Absent {
		a := store.Absent{Tags: tags, After: after}
		for name := range strings.FieldsSeq(types) {
			aggregate, ev, _ := strings.Cut(name, ".")
			a.Types = append(a.Types, store.TypePattern{Aggregate: aggregate, Event: strings.Trim(ev, "*")})
		}
		return a
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			f.reopen(t, t)
		}
		for _, tc := range []struct {
			absent  store.Absent
			matched bool
		}{
			{unless(j17.StreamID{}, "", "sku:A"), true},
			{unless(first.IDs[0], "", "sku:A"), true},
			{unless(first.IDs[1], "", "sku:A"), false},
			{unless(j17.StreamID{}, "", "sku:A", "who:x"), true},
			{unless(first.IDs[0], "", "sku:A", "who:x"), false},
			{unless(j17.StreamID{}, "", "sku:A", "sku:B"), false},
			{unless(j17.StreamID{}, "", "sku:C"), false},
			{unless(j17.StreamID{}, "order.was_paid", "sku:A"), true},
			{unless(first.IDs[1], "order.was_paid", "sku:A"), false},
			{unless(j17.StreamID{}, "order.was_shipped", "sku:A"), false},
			{unless(j17.StreamID{}, "order.*", "sku:A"), true},
			{unless(j17.StreamID{}, "user.*", "sku:A"), false},
			{unless(j17.StreamID{}, "user.* order.was_paid", "sku:B"), true},
			{unless(j17.StreamID{}, "order.was_placed", "sku:B", "who:x"), false},
			{unless(j17.StreamID{Ms: 1 << 50}, "", "sku:A"), false},
		} {
			r := appendUnit(t, f, tenant, store.Append{
				Unless: []store.Absent{unless(j17.StreamID{}, "", "none"), tc.absent},
			})
			if r.Matched != tc.matched || (r.Outcome == store.Conflict) != tc.matched {
				t.Errorf("%+v: %+v", tc.absent, r)
			}
		}
	}

	// Units of one call: each sees the ones before it, and not itself.
	book := func(id, typ string, a store.Absent) store.Append {
		return store.Append{
			Unless: []store.Absent{a},
			Events: []store.NewEvent{taggedEvent(id, typ, "sku:D", "who:"+id), taggedEvent(id, typ, "sku:D")},
		}
	}
	results, err := f.Append(t.Context(), tenant, []store.Append{
		book("1", "was_paid", unless(first.IDs[2], "", "sku:D")),
		book("2", "was_paid", unless(first.IDs[2], "", "sku:D")),
		book("3", "was_paid", unless(first.IDs[2], "order.was_placed", "sku:D")),
		book("4", "was_placed", unless(first.IDs[2], "", "sku:D", "who:2")),
		book("5", "was_paid", unless(first.IDs[2], "", "sku:D", "who:3")),
		book("6", "was_paid", unless(first.IDs[2], "order.was_placed", "sku:D")),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, matched := range []bool{false, true, false, false, true, true} {
		if results[i].Matched != matched {
			t.Errorf("unit %d: %+v", i, results[i])
		}
	}

	// Another tenant has none of it, and an erased event has no tags.
	if r := appendUnit(t, f, other, store.Append{
		Unless: []store.Absent{unless(j17.StreamID{}, "", "sku:A")},
	}); r.Matched {
		t.Error("a tenant sees the events of another")
	}
	erased := store.Rewritten{Version: 2, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}
	if err := Erase(t.Context(), f, tenant, order("a"), []store.Rewritten{erased}); err != nil {
		t.Fatal(err)
	}
	if r := appendUnit(t, f, tenant, store.Append{
		Unless: []store.Absent{unless(j17.StreamID{}, "", "sku:B")},
	}); r.Matched {
		t.Error("an erased event is found by its tags")
	}

	// Invalid conditions are refused.
	for what, a := range map[string]store.Absent{
		"no tags": {}, "an empty tag": {Tags: []string{""}},
		"too many tags": {Tags: slices.Repeat([]string{"a"}, store.MaxAbsentTags+1)},
		"no type":       {Tags: []string{"a"}, Types: []store.TypePattern{{Event: "x"}}},
		"a long tag":    {Tags: []string{strings.Repeat("a", store.MaxTagBytes+1)}},
	} {
		if _, err := f.Append(t.Context(), tenant, []store.Append{
			{Unless: []store.Absent{a}},
		}); !errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrLimit) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// testUnlessAtOnce has many writers take seats that must be free: each seat gets one taker, and the other writers are
// refused.
func testUnlessAtOnce(s *suite) {
	t := s.t
	f := s.fixture(t)

	// Each writer begins with another seat. Half of them look first whether a seat is free.
	const writers, seats = 8, 30
	var taken, refused atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range seats {
				seat := fmt.Sprintf("seat:%d", (n*7+w)%seats)
				extent, err := f.Extent(t.Context(), tenant)
				if err != nil {
					t.Error(err)
					return
				}
				after := extent.Last
				if w%2 == 0 {
					after = j17.StreamID{}
				}
				if w%2 != 0 && len(readTagged(worker{t}, f, tenant, j17.StreamID{}, 1, seat)) > 0 {
					continue // it was taken before the position
				}
				r := appendUnit(worker{t}, f, tenant, store.Append{
					Unless: []store.Absent{{Tags: []string{seat, "all"}, After: after}},
					Events: []store.NewEvent{taggedEvent(fmt.Sprint(w), "was_taken", "all", seat)},
				})
				switch {
				case r.Outcome == store.Committed:
					taken.Add(1)
				case r.Matched:
					refused.Add(1)
				default:
					t.Errorf("%+v", r)
				}
			}
		})
	}
	wg.Wait()

	// Each seat has one taker.
	for n := range seats {
		if got := readTagged(t, f, tenant, j17.StreamID{}, everything, fmt.Sprintf("seat:%d", n)); len(got) != 1 {
			t.Errorf("seat %d has %d takers", n, len(got))
		}
	}
	if taken.Load() != seats || refused.Load() == 0 {
		t.Errorf("%d takers of %d seats, %d refused", taken.Load(), seats, refused.Load())
	}
}

// testManyTags writes events with as many tags as are allowed, with any characters, and finds them by these tags.
func testManyTags(s *suite) {
	t := s.t
	f := s.fixture(t)
	var unit []store.NewEvent
	for n := range 3 {
		e := event(order("a"), fmt.Sprint(n))
		for i := range store.MaxEventTags {
			e.Tags = append(e.Tags, fmt.Sprintf("n:%d\x00", i*(n+1)))
		}
		unit = append(unit, e)
	}
	commit(t, f, tenant, store.Append{Events: unit})
	for i, want := range map[int]int{0: 3, 1: 1, 6: 3, 1023: 2, 2046: 2, 3069: 1} {
		if got := readTagged(t, f, tenant, j17.StreamID{}, everything, fmt.Sprintf("n:%d\x00", i)); len(got) != want {
			t.Errorf("%d events have the tag %d, not %d", len(got), i, want)
		}
	}
}

// testRetag changes the tags of events of long and short units and of erased ones, and reads tags in every way.
func testRetag(s *suite) {
	t := s.t
	f := s.fixture(t)
	var unit []store.NewEvent
	for n := range 150 {
		unit = append(unit, taggedEvent(fmt.Sprint(n%3), "was_placed", "old:"+fmt.Sprint(n%2), "kept:x"))
	}
	commit(t, f, tenant, store.Append{Events: unit})
	commit(t, f, tenant, store.Append{Events: []store.NewEvent{taggedEvent("single", "was_placed", "old:0", "kept:x")}})
	erased := store.Rewritten{Version: 2, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}
	if err := Erase(t.Context(), f, tenant, order("0"), []store.Rewritten{erased}); err != nil {
		t.Fatal(err)
	}
	before, heads := readFeed(t, f, tenant, j17.StreamID{}, everything), head(t, f, tenant, order("0"))

	// Retag half of them, in pieces. The second time changes nothing.
	var list []store.Retagged
	for n := range 150 {
		if n%2 == 0 {
			list = append(list, store.Retagged{
				Key: order(fmt.Sprint(n % 3)), Version: uint64(n/3 + 1),
				Tags: []string{"actor:no:body", "kept:x", "new:" + fmt.Sprint(n%4)},
			})
		}
	}
	list = append(list, store.Retagged{Key: order("single"), Version: 1, Tags: []string{"new:single"}})
	for range 2 {
		for some := range slices.Chunk(list, 40) {
			if err := f.Retag(t.Context(), tenant, some); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(tn j17.Tenant) {
		t.Helper()
		for tag, want := range map[string]int{
			"old:0": 0, "old:1": 74, "kept:x": 149, "new:0": 38, "new:2": 37, "new:single": 1, "actor:no:body": 0,
		} {
			if got := readTagged(t, f, tn, j17.StreamID{}, everything, tag); len(got) != want {
				t.Errorf("%s: %d events have the tag %s, not %d", tn, len(got), tag, want)
			}
		}
	}
	check(tenant)
	f.reopen(t, t)
	check(tenant)
	if diff := cmp.Diff(before, readFeed(t, f, tenant, j17.StreamID{}, everything)); diff != "" ||
		head(t, f, tenant, order("0")) != heads {
		t.Errorf("events are others than they were: %s", diff)
	}
	if err := Copy(t.Context(), f, tenant, f, "copy"); err != nil {
		t.Fatal(err)
	}
	check("copy")

	// Readers of the feed get the present tags.
	for e, err := range f.ReadChanges(t.Context(), tenant, j17.StreamID{}, everything) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Event != nil && e.Event.Key == order("single") && !slices.Equal(e.Tags, []string{"new:single"}) {
			t.Errorf("%s has the tags %q", e.Event.Key, e.Tags)
		}
	}

	// A later erasure removes them.
	again := store.Rewritten{Version: 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}
	if err := Erase(t.Context(), f, tenant, order("single"), []store.Rewritten{again}); err != nil {
		t.Fatal(err)
	}
	if got := readTagged(t, f, tenant, j17.StreamID{}, everything, "new:single"); len(got) > 0 {
		t.Errorf("an erased event is found by %d tags", len(got))
	}

	// Invalid calls are refused.
	if err := f.Retag(t.Context(), tenant, []store.Retagged{
		{Key: order("0"), Version: 51, Tags: []string{"x"}},
	}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an event that is not there: %v", err)
	}
	if err := f.Retag(t.Context(), tenant, []store.Retagged{
		{Key: order("0"), Version: 1, Tags: []string{""}},
	}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an empty tag: %v", err)
	}
	err := f.Retag(
		t.Context(), tenant, []store.Retagged{{Key: order("1"), Version: 1, Tags: []string{"x"}}},
		store.Fence{Space: space, Key: "none", Rev: 7},
	)
	if _, conflict := errors.AsType[*store.SideConflict](err); !conflict {
		t.Errorf("a fence that does not hold: %v", err)
	}
}
