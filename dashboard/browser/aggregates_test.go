//go:build !race

package browser_test

import (
	"testing"
)

func TestAggregates(t *testing.T) {
	s := newSite(t, "spec.json")
	for _, name := range []string{"a", "b", "c"} {
		s.raise(uid(name), "1")
	}
	b := s.open(t, page("overview"))
	b.settled("Overview")
	b.see("navigation", "Environment").see("link", "Aggregates").click()
	b.settled("Aggregates")
	types := b.see("table", "Aggregate types")
	types.shows(`counter\s+was_raised\s+3`)
	types.see("link", "counter").click()
	b.settled("counter")
	b.arrive(page("aggregates/counter"))
	list := b.see("table", "Aggregates")
	for _, name := range []string{"a", "b", "c"} {
		list.see("link", "counter/"+uid(name))
	}

	b.see("searchbox", "Find").fill(uid("b")[:8])
	b.arrive(page("aggregates/counter?prefix=" + uid("b")[:8]))
	b.gone("link", "counter/"+uid("a"))
	b.see("searchbox", "Find").fill("none")
	b.shows("No counter begins with")
	b.see("searchbox", "Find").fill(uid("b")[:6])
	list.see("link", "counter/"+uid("b")).click()
	b.settled("counter/" + uid("b"))

	// Back to what was found.
	js[any](b, "history.back()")
	b.settled("counter")
	if found := b.see("searchbox", "Find").value(); found != uid("b")[:6] {
		t.Errorf("the field has %q", found)
	}
	b.see("table", "Aggregates").see("link", "counter/"+uid("b"))
	b.see("searchbox", "Find").click()
	b.press("Enter") // the only one
	b.settled("counter/" + uid("b"))
}
