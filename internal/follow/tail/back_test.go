package tail_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/work"
	"j17/internal/follow/tail"
)

// back pages through the feed from its end to its beginning.
func (f *fixture) back(tb testing.TB, filter tail.Filter, count int, limit int64) (all []string) {
	tb.Helper()
	head, err := f.Head(tb.Context(), tenant)
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	for before := head.Next(); ; {
		page, err := f.Before(tb.Context(), tenant, filter, before, count, work.New(tb.Context(), limit))
		if err != nil {
			tb.Fatal(err)
		}
		if len(page.Events) > count {
			tb.Fatalf("%d events on a page of %d", len(page.Events), count)
		}
		for _, ev := range page.Events {
			all = append(all, string(ev.Raw))
		}
		if !page.More {
			return all
		}
		if page.Next.Compare(before) >= 0 {
			tb.Fatalf("the page before %s goes on before %s", before, page.Next)
		}
		before = page.Next
		if n++; n > 5000 {
			tb.Fatal("the pages do not end")
		}
	}
}

// TestBeforeIsTheFeedBackwards compares pages that go back in time with what each filter lets through.
func TestBeforeIsTheFeedBackwards(t *testing.T) {
	f := newFixture(t)
	f.scatter(t, 0, 200)
	for _, filter := range filters() {
		want := f.wanted(t, filter)
		slices.Reverse(want)
		for _, count := range []int{1, 7, 1000} {
			if diff := cmp.Diff(want, f.back(t, filter, count, work.Command)); diff != "" {
				t.Errorf("%+v, %d a page:\n%s", filter, count, diff)
			}
		}
	}
}

// TestBeforeCostsWhatItShows reads the newest events of a long feed within a budget that the whole feed would use up
// many times.
func TestBeforeCostsWhatItShows(t *testing.T) {
	f := newFixture(t)
	for range 20 {
		f.scatter(t, 0, 250)
	}
	head, err := f.Head(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	b := work.New(t.Context(), 100_000)
	page, err := f.Before(t.Context(), tenant, tail.Filter{}, head.Next(), 10, b)
	if err != nil || len(page.Events) != 10 || !page.More || page.Events[0].StreamID != head {
		t.Fatalf("%+v, %v", page, err)
	}

	// A filter that nothing passes ends with the budget, and goes on from there.
	rare := tail.Filter{Type: "ghost"}
	if page, err = f.Before(
		t.Context(), tenant, rare, head.Next(), 10, work.New(t.Context(), 100_000),
	); err != nil || !page.More || page.Next.IsZero() {
		t.Fatalf("%+v, %v", page, err)
	}
	if all := f.back(t, rare, 10, 100_000); all != nil {
		t.Errorf("found %q", all)
	}
}
