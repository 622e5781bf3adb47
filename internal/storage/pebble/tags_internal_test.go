package pebble

import (
	"fmt"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

const taggedTenant j17.Tenant = "a/prod"

// tagged stores an event with some tags and returns its position.
func tagged(t *testing.T, s *Store, tags ...string) j17.StreamID {
	t.Helper()
	e := store.NewEvent{
		Key: j17.Key{Type: "order", ID: "1"}, Type: "was_made", Data: []byte(`1`), Metadata: []byte(`{}`), Tags: tags,
	}
	results, err := s.Append(t.Context(), taggedTenant, []store.Append{{Events: []store.NewEvent{e}}})
	if err != nil || results[0].Outcome != store.Committed {
		t.Fatal(results, err)
	}
	return results[0].IDs[0]
}

// walked opens a walk and goes on to the first event from a position on.
func walked(t *testing.T, s *Store, from j17.StreamID, tags ...string) (*tagWalk, j17.StreamID, bool) {
	t.Helper()
	ids := make([]tagID, len(tags))
	for i, tag := range tags {
		ids[i] = idOfTag([]byte(tag))
	}
	w, err := s.newTagWalk(s.db, s.tenants[taggedTenant].number, ids)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var err error
		if w.close(&err); err != nil {
			t.Error(err)
		}
	})
	at := from
	ok, err := w.next(&at, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w, at, ok
}

// TestWalksFindAll compares walks over tags, short and long ones, with the events themselves.
func TestWalksFindAll(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	var events []j17.StreamID
	for i := range 130 {
		var tags []string
		for n := range 8 {
			if i%(n+1) == 0 {
				tags = append(tags, fmt.Sprint("every:", n+1))
			}
		}
		events = append(events, tagged(t, s, tags...))
	}
	for _, every := range [][]int{
		{1}, {7}, {2, 3}, {3, 2}, {1, 8, 7}, {7, 8, 1}, {5, 6, 7, 8}, {4, 4}, {9}, {1, 9}, {9, 1, 2},
	} {
		var tags []string
		for _, n := range every {
			tags = append(tags, fmt.Sprint("every:", n))
		}
		for from := 0; from < len(events); from += 19 {
			w, at, ok := walked(t, s, events[from], tags...)
			for i := from; i < len(events); i++ {
				has := true
				for _, n := range every {
					has = has && n < 9 && i%n == 0
				}
				if !has {
					continue
				}
				if !ok || at != events[i] {
					t.Fatalf("%v from event %d: %s, %t; want event %d at %s", every, from, at, ok, i, events[i])
				}
				at = at.Next()
				var err error
				if ok, err = w.next(&at, nil); err != nil {
					t.Fatal(err)
				}
			}
			if ok {
				t.Fatalf("%v from event %d: an event at %s, which does not have them", every, from, at)
			}
		}
	}
}

// TestWalksEndSoon counts what is asked where a tag has no events: nothing but that tag from the second time on, by one
// iterator for all.
func TestWalksEndSoon(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	var first j17.StreamID
	for range 20 {
		first = tagged(t, s, "course:1", "course:2")
	}
	asked := func(tags ...string) int {
		t.Helper()
		w, _, ok := walked(t, s, j17.StreamID{}, tags...)
		for _, c := range w.cursors {
			if ok || c.it != nil {
				t.Errorf("%q: found is %t, and a tag has an iterator of its own: %t", tags, ok, c.it != nil)
			}
		}
		return w.rounds*len(w.cursors) + w.turn
	}
	if n := asked("course:1", "course:2", "student:1"); n != 3 {
		t.Errorf("%d tags were asked at first, want all", n)
	}
	for n := range 5 {
		if n := asked("course:1", "course:2", fmt.Sprint("student:", n)); n != 1 {
			t.Errorf("%d tags were asked, want the one that nothing is known of", n)
		}
	}

	// What was found is not there from a later position on.
	if _, _, ok := walked(t, s, first.Next(), "course:2", "course:1"); ok {
		t.Error("events were found behind the last one")
	}
	if w, _, _ := walked(t, s, j17.StreamID{}, "course:1", "course:2"); w.cursors[0].id != idOfTag([]byte("course:2")) {
		t.Error("a tag by which nothing was found the last time is not asked first")
	}
}

// TestMemoryTellsOfTheLatestTags has memory answer for what came behind a position, and only where it knows all of
// that.
func TestMemoryTellsOfTheLatestTags(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	before := tagged(t, s, "seat:1")
	lacks := func(after j17.StreamID, tags ...string) bool {
		t.Helper()
		r, err := s.read(taggedTenant)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		return r.lacksTags(tags, nil, after)
	}
	if lacks(before, "seat:1") {
		t.Error("memory tells of tags before there was a condition")
	}

	// From the first condition on that the index had to be asked for.
	begun := tagged(t, s, "seat:1")
	if _, err := s.Append(t.Context(), taggedTenant, []store.Append{
		{Unless: []store.Absent{{Tags: []string{"none"}, After: before}}},
	}); err != nil {
		t.Fatal(err)
	}
	latest := tagged(t, s, "seat:2", "all")
	for _, c := range []struct {
		after j17.StreamID
		tags  []string
		want  bool
	}{
		{before, []string{"none"}, false},
		{j17.StreamID{}, []string{"none"}, false},
		{begun, []string{"seat:1"}, true},
		{begun, []string{"all", "seat:1"}, true},
		{begun, []string{"all"}, false},
		{begun, []string{"seat:2", "all"}, false},
		{latest, []string{"all", "seat:2"}, true},
	} {
		if got := lacks(c.after, c.tags...); got != c.want {
			t.Errorf("%q behind %s: %t", c.tags, c.after, got)
		}
	}

	// Older events get a tag: what memory knows is of before.
	retagged := []store.Retagged{
		{Key: j17.Key{Type: "order", ID: "1"}, Version: 3, Tags: []string{"seat:2", "all", "seat:1"}},
	}
	if err := s.Retag(t.Context(), taggedTenant, retagged); err != nil {
		t.Fatal(err)
	}
	if lacks(begun, "seat:1") {
		t.Error("memory does not know of a tag that an event got later, and tells that there is none")
	}
	found := 0
	for e, err := range s.ReadTagged(t.Context(), taggedTenant, store.Tagged{Tags: []string{"seat:1"}}, begun, 9, nil) {
		if found++; err != nil || e.StreamID != latest {
			t.Error(e, err)
		}
	}
	if found != 1 {
		t.Errorf("%d events have the tag that one got later", found)
	}
}
