package projection_test

import (
	"testing"

	"j17/internal/derived/projection"
)

// TestTheOrderOfEqualValues: rows that a filter finds by the text and by the value that its own text spells come in the
// order of the field, if that is asked for, as those of a list of values do.
func TestTheOrderOfEqualValues(t *testing.T) {
	f := newListed(t)
	f.make(t, "ticket", id(1), `{"team":"red","points":"5"}`)
	f.make(t, "ticket", id(2), `{"team":"red","points":5}`)
	for _, c := range []struct {
		filters     map[string]string
		order, want string
	}{
		{map[string]string{"points": "5"}, "points", "2 1"},
		{map[string]string{"points": "5"}, "-points", "1 2"},
		{map[string]string{"points.in": "5"}, "points", "2 1"},
		{map[string]string{"points": "5", "team": "red"}, "points", "2 1"},
		{map[string]string{"points": "5"}, "", "1 2"},
		// Of one value: by the points that the shortest index that begins with it has.
		{map[string]string{"team": "red"}, "team", "2 1"},
	} {
		ask := projection.ListAsk{Name: "tickets", Filters: c.filters, Count: 1}
		if c.order != "" {
			ask.Order = &c.order
		}
		if got := numbers(f.pages(t, ask, func() {})); got != c.want {
			t.Errorf("%v by %q: %s, not %s", c.filters, c.order, got, c.want)
		}
	}
}
