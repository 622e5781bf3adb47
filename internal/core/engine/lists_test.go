package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/store"
)

// all goes through the pages of a list and returns the ids in their order, and how many pages there were.
func (f *fixture) all(tb testing.TB, typ, prefix string, count int) (ids []string, pages int) {
	tb.Helper()
	for start := ""; ; pages++ {
		found, next, err := f.Aggregates(tb.Context(), enginetest.Tenant, typ, prefix, start, count)
		if err != nil {
			tb.Fatal(err)
		}
		for _, a := range found {
			ids = append(ids, a.ID)
		}
		if len(found) > count || next == start && next != "" {
			tb.Fatalf("a page of %d has %d and leads to %q", count, len(found), next)
		}
		if next == "" {
			return ids, pages + 1
		}
		start = next
	}
}

// TestListsByName pages through aggregates that are found by the beginnings of ids, handles and public ids.
func TestListsByName(t *testing.T) {
	f := naming(t)
	ids, handles, numbers := []string{}, map[string]string{}, map[string]string{}
	for i := range 25 {
		id := fmt.Sprintf("550e8400-e29b-41d4-a716-4466554400%02d", i)
		receipt := f.Post(t, "refund/"+id+"/was_made", enginetest.Body(`{}`))
		ids, handles[receipt.Handle], numbers[receipt.PublicID] = append(ids, id), id, id
		f.Post(t, "ticket/"+fresh()+"/was_filed", enginetest.Body(`{}`)) // has a number in between
	}
	byName := func(names map[string]string, prefix string) []string {
		var found []string
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if strings.HasPrefix(name, prefix) {
				found = append(found, names[name])
			}
		}
		return found
	}
	var one string
	for handle := range handles {
		one = handle
	}
	for prefix, want := range map[string][]string{
		"": ids, "5": ids, ids[7]: ids[7:8], ids[7][:35]: ids[:10],
		"r": byName(handles, "rfd_"), "rfd": byName(handles, "rfd_"), "rfd_": byName(handles, "rfd_"),
		one[:5]: byName(handles, one[:5]), one: {handles[one]},
		"V": byName(numbers, "VNO-"), "VNO-": byName(numbers, "VNO-"), "VNO-1": byName(numbers, "VNO-1"),
		"VNO-49": byName(numbers, "VNO-49"),
		"rfd_x!": nil, "VNO-x": nil, "VNO-latest": nil, "ticket": nil,
	} {
		for _, count := range []int{1, 3, 10, 25, 100} {
			if got, _ := f.all(t, "refund", prefix, count); !slices.Equal(got, want) {
				t.Errorf("%q in pages of %d: %s", prefix, count, cmp.Diff(want, got))
			}
		}
	}
	if got, _ := f.all(t, "note", "rfd_", 10); got != nil {
		t.Errorf("a type without handles has %v", got)
	}

	// What begins so by its id and by its name comes once, and the ids come first.
	f.DeploySource(t, strings.Replace(enginetest.NamesSpec, `{`, `{"singletons": ["rfd_main"], `, 1))
	main := f.Post(t, "refund/rfd_main/was_made", enginetest.Body(`{}`))
	for _, count := range []int{1, 2, 100} {
		want := append([]string{"rfd_main"}, byName(handles, "rfd_")...)
		if got, _ := f.all(t, "refund", "rfd_", count); !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %s", count, cmp.Diff(want, got))
		}
		if got, _ := f.all(t, "refund", "rfd_main", count); !slices.Equal(got, []string{"rfd_main"}) {
			t.Error(got)
		}
		if got, _ := f.all(t, "refund", main.Handle, count); !slices.Equal(got, []string{"rfd_main"}) {
			t.Error(got)
		}
	}
}

// TestListsAmongOtherNames pages through numbers that are other types' for the most part: pages end after some work,
// and lead on.
func TestListsAmongOtherNames(t *testing.T) {
	f := naming(t)
	id := fresh()
	f.Post(t, "refund/"+id+"/was_made", enginetest.Body(`{}`)) // VNO-1
	var others []store.Side
	for i := range 25_000 {
		others = append(others, store.Side{
			Op: store.Put, Space: "identity.number.index", Key: fmt.Sprintf("1%05d", i), Value: []byte("ticket:x"),
		})
	}
	late := fresh()
	f.Post(t, "refund/"+late+"/was_made", enginetest.Body(`{}`)) // VNO-2
	others = append(others, store.Side{
		Op: store.Put, Space: "identity.number.index", Key: "199999", Value: []byte("refund:" + late),
	})
	if err := f.Store.Write(t.Context(), enginetest.Tenant, others); err != nil {
		t.Fatal(err)
	}
	got, pages := f.all(t, "refund", "VNO-1", 50)
	if diff := cmp.Diff([]string{id, late}, got); diff != "" || pages < 3 {
		t.Errorf("%d pages: %s", pages, diff)
	}
}
