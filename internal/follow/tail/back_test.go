package tail_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/upcast"
	"j17/internal/follow/tail"
	"j17/internal/lang/spec"
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

// TestBeforeEndsAtWhatCannotBeRead pages back over events of which some cannot be read in the newest generation: a page
// ends behind such an event, and the next one is its error, unless a filter leaves it out.
func TestBeforeEndsAtWhatCannotBeRead(t *testing.T) {
	compiled := enginetest.Compiled(t, `{"agent_types":["user"],"aggregate_types":{"note":{"events":{
		"was_made":{"generations":{"1":{"schema":true,"upcast":{"set":{"target":"n","value":{"$number":"@.n"}}}}},"schema":true,"handler":[]},
		"was_read":{"schema":true,"handler":[]}}}}}`)
	f := newFixture(t)
	specs := func(j17.Tenant) (*spec.Compiled, *upcast.Tried) { return compiled, nil }
	f.Tail = tail.New(f.store, upcast.NewReader(specs))
	for n, data := range []string{`{"n":"0"}`, `{"n":"x"}`, `{"n":"2"}`, `{"n":"y"}`, `{"n":"4"}`, `{"n":"5"}`} {
		f.write(t, fmt.Sprint("note:n", n), "was_made", n, n, data)
	}
	f.write(t, "note:n6", "was_read", 6, 6, `{"n":6}`)

	head, err := f.Head(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	pages := func(filter tail.Filter, before j17.StreamID, count int) (all string, err error) {
		for range 10 {
			page, err := f.Before(t.Context(), tenant, filter, before, count, work.New(t.Context(), work.Command))
			if err != nil {
				return all, err
			}
			for _, ev := range page.Events {
				all += string(ev.Data)
			}
			all += ";"
			if before = page.Next; !page.More {
				return all, nil
			}
		}
		return all, errors.New("the pages do not end")
	}
	const whole = `{"n":6}{"n":5}{"n":4};`
	for count, want := range map[int]string{
		1: `{"n":6};{"n":5};{"n":4};`, 2: `{"n":6}{"n":5};{"n":4};`, 3: whole, 100: whole,
	} {
		got, err := pages(tail.Filter{}, head.Next(), count)
		if failed := upcast.Failure(err); failed == nil || failed.Key != "note:n3" || got != want {
			t.Errorf("%d a page: %s %v, want %s", count, got, err, want)
		}
	}
	got, err := pages(tail.Filter{Event: "was_read"}, head.Next(), 5)
	if err != nil || got != `{"n":6};` {
		t.Errorf("of another type: %s %v", got, err)
	}
	got, err = pages(tail.Filter{Stored: true}, head.Next(), 100)
	if err != nil || got != `{"n":6}{"n":"5"}{"n":"4"}{"n":"y"}{"n":"2"}{"n":"x"}{"n":"0"};` {
		t.Errorf("as stored: %s %v", got, err)
	}
}
