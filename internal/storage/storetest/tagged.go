package storetest

import (
	"fmt"
	"slices"
	"strings"

	"j17"
	"j17/internal/storage/store"
)

// testTaggedTypes reads by types and by tags that many events of other types have as well, and counts the reported
// steps: at least one and little more than two for each event with the rarest tag.
func testTaggedTypes(s *suite) {
	t := s.t
	f := s.fixture(t)
	const units, each = 12, 500
	var all []store.NewEvent
	var ids []j17.StreamID
	put := func(events ...store.NewEvent) {
		t.Helper()
		all = append(all, events...)
		ids = append(ids, commit(t, f, tenant, store.Append{Events: events}).IDs...)
	}
	for u := range units {
		var unit []store.NewEvent
		for n := range each {
			e := taggedEvent(fmt.Sprint(n%7), fmt.Sprint("was_", n%5), "all")
			switch {
			case n%100 == 3:
				e.Key.Type, e.Type = "user", "was_0"
			case n%250 == 4:
				e.Data = []byte(`"` + strings.Repeat("x", 100_000) + `"`)
			}
			if n%3 == 0 {
				e.Tags = append(e.Tags, "third")
			}
			if n%2 == 0 {
				e.Tags = append(e.Tags, "even")
			}
			unit = append(unit, e)
		}
		put(unit...)
		put(taggedEvent("a", "was_alone", "all", fmt.Sprint("unit:", u)))
	}

	// read returns the positions of the selected events, up to a limit, how many steps were reported, and up to where.
	read := func(
		of store.Tagged, after j17.StreamID, limit, most int,
	) (got []j17.StreamID, steps int, upTo j17.StreamID) {
		t.Helper()
		looked := func(n int, at j17.StreamID) bool {
			if n <= 0 || !at.IsZero() && at.Compare(upTo) < 0 {
				t.Errorf("%+v: %d steps up to %s, after %s", of, n, at, upTo)
			}
			if steps += n; !at.IsZero() {
				upTo = at
			}
			return steps < most
		}
		for e, err := range f.ReadTagged(t.Context(), tenant, of, after, limit, looked) {
			if err != nil {
				t.Fatal(err)
			}
			if e.StreamID.Compare(upTo) <= 0 {
				t.Errorf("%+v: the event %s comes when everything up to %s was handed out", of, e.StreamID, upTo)
			}
			got = append(got, e.StreamID)
		}
		return got, steps, upTo
	}
	pattern := func(types string) (patterns []store.TypePattern) {
		for name := range strings.FieldsSeq(types) {
			aggregate, ev, _ := strings.Cut(name, ".")
			patterns = append(patterns, store.TypePattern{Aggregate: aggregate, Event: strings.Trim(ev, "*")})
		}
		return patterns
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			f.reopen(t, t)
		}
		for _, tags := range [][]string{{"all"}, {"third", "even"}, {"all", "unit:7"}, {"even", "unit:7"}, {"unit:9"}} {
			for _, types := range []string{
				"", "order.*", "order.was_3", "user.*", "user.was_0 order.was_4", "order.was_alone", "user.was_1",
				"nobody.*",
			} {
				for _, from := range []int{-1, 2*each + 17} {
					of, after := store.Tagged{Tags: tags, Types: pattern(types)}, j17.StreamID{}
					if from >= 0 {
						after = ids[from]
					}
					var want []j17.StreamID
					rarest := map[string]int{}
					for i := from + 1; i < len(all); i++ {
						has := 0
						for _, tag := range tags {
							if slices.Contains(all[i].Tags, tag) {
								rarest[tag]++
								has++
							}
						}
						if has == len(tags) && of.Fits(all[i].Key.Type, all[i].Type) {
							want = append(want, ids[i])
						}
					}
					least := rarest[slices.MinFunc(tags, func(a, b string) int { return rarest[a] - rarest[b] })]
					got, steps, upTo := read(of, after, everything, everything)
					if !slices.Equal(got, want) {
						t.Errorf("%q of %q after %s: %d events, want %d", tags, types, after, len(got), len(want))
					}
					if steps > 8+(len(tags)+1)*least*120/100 || steps < least {
						t.Errorf("%q of %q after %s: %d steps for %d events", tags, types, after, steps, least)
					}
					if last := ids[len(ids)-1]; least > 0 && upTo != last {
						t.Errorf("%q of %q after %s: looked up to %s, the end is at %s", tags, types, after, upTo, last)
					}
				}
			}
		}
	}

	// A reader that stops early is told its steps, and gets nothing more once looked has returned false.
	const seldom = "order.was_alone"
	if got, steps, _ := read(
		store.Tagged{Tags: []string{"all"}, Types: pattern(seldom)}, j17.StreamID{}, 1, everything,
	); len(got) != 1 || steps < each {
		t.Errorf("%d events after %d steps", len(got), steps)
	}
	var told j17.StreamID
	looked := func(_ int, at j17.StreamID) bool {
		told = at
		return true
	}
	for e, err := range f.ReadTagged(
		t.Context(), tenant, store.Tagged{Tags: []string{"all"}}, j17.StreamID{}, everything, looked,
	) {
		if err != nil {
			t.Fatal(err)
		}
		if e.StreamID == ids[2] {
			break
		}
	}
	if told.Compare(ids[2]) >= 0 {
		t.Errorf("everything up to %s counts as handed out to a reader that has left at %s", told, ids[2])
	}
	got, steps, upTo := read(
		store.Tagged{Tags: []string{"all"}, Types: pattern("nobody.*")}, j17.StreamID{}, everything, 1,
	)
	if len(got) != 0 || steps >= len(all)*3/2 || upTo.IsZero() || upTo.Compare(ids[len(ids)-1]) >= 0 {
		t.Errorf("%d events after %d steps, up to %s", len(got), steps, upTo)
	}
	if _, more, _ := read(
		store.Tagged{Tags: []string{"all"}, Types: pattern("nobody.*")}, upTo, everything, everything,
	); steps+more > 2*len(all)+16 || steps+more < len(all) {
		t.Errorf("%d steps, and %d from there on", steps, more)
	}
}
