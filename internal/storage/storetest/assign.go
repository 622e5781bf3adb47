package storetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/storage/store"
)

const (
	numbers     store.Space = "number"
	byNumber    store.Space = "number.index"
	names       store.Space = "name"
	byName      store.Space = "name.index"
	nextCounter             = "last"
)

// numbered gives the next number to an owner.
func numbered(owner string) store.Assignment {
	return store.Assignment{Space: numbers, Owner: owner, Index: byNumber, Counter: nextCounter}
}

// named gives a name to an owner.
func named(owner, name string) store.Assignment {
	return store.Assignment{Space: names, Owner: owner, Index: byName, Value: name}
}

func testAssignments(s *suite) {
	t := s.t
	f := s.fixture(t)
	assign := func(want []string, all ...store.Assignment) {
		t.Helper()
		r := appendUnit(t, f, tenant, store.Append{Events: events(order("1"), `1`), Assign: all})
		if diff := cmp.Diff(want, r.Assigned); diff != "" || r.Outcome != store.Committed {
			t.Fatalf("outcome %d, assigned (-want +got):\n%s", r.Outcome, diff)
		}
	}
	assign([]string{"1"}, numbered("a"))
	assign([]string{"1", "2", "2"}, numbered("a"), numbered("b"), numbered("b"))
	assign([]string{"ann", "ben", "3"}, named("a", "ann"), named("b", "ben"), numbered("c"))
	assign([]string{"ann"}, named("a", "other"))
	// A unit that fails takes no value, because of a length or of a name that another owner has.
	failed := []store.Append{
		{
			Events: events(order("1"), `1`), Pre: []store.Pre{{Key: order("1"), Length: 77}},
			Assign: []store.Assignment{numbered("d")},
		},
		{Events: events(order("1"), `1`), Assign: []store.Assignment{numbered("d"), named("d", "ben")}},
	}
	for i, u := range failed {
		if r := appendUnit(t, f, tenant, u); r.Outcome != store.Conflict || r.Assigned != nil {
			t.Fatalf("unit %d: %+v", i, r)
		}
	}
	// Two units of one call see each other.
	results, err := f.Append(t.Context(), tenant, []store.Append{
		{Assign: []store.Assignment{numbered("d"), named("d", "dan")}},
		{Assign: []store.Assignment{numbered("e"), numbered("d")}},
		{Assign: []store.Assignment{named("e", "dan")}},
	})
	if err != nil || results[2].Outcome != store.Conflict {
		t.Fatal(results, err)
	}
	if diff := cmp.Diff([][]string{{"4", "dan"}, {"5", "4"}}, [][]string{
		results[0].Assigned, results[1].Assigned,
	}); diff != "" {
		t.Fatalf("assigned (-want +got):\n%s", diff)
	}
	f.reopen(t, t)
	assign([]string{"6", "4"}, numbered("f"), numbered("d"))
	// Values and owners can both be looked up, and other tenants count separately.
	for space, items := range map[store.Space]map[string]string{
		numbers: {"a": "1", "f": "6"}, byNumber: {"1": "a", "6": "f"}, names: {"a": "ann"},
		byName: {"ann": "a", "dan": "d"},
	} {
		for key, want := range items {
			if item := get(t, f, tenant, space, key); string(item.Value) != want {
				t.Errorf("%s/%s is %q, want %q", space, key, item.Value, want)
			}
		}
	}
	if r := appendUnit(t, f, other, store.Append{Assign: []store.Assignment{numbered("a")}}); r.Assigned[0] != "1" {
		t.Errorf("another tenant begins with %s", r.Assigned[0])
	}
	for name, a := range map[string][]store.Assignment{
		"no value":   {{Space: names, Owner: "x", Index: byName}},
		"two values": {{Space: names, Owner: "x", Index: byName, Value: "v", Counter: "c"}},
		"no owner":   {{Space: names, Index: byName, Value: "v"}},
		"a twin":     {named("x", "v"), named("y", "v")},
		"long":       {named("x", strings.Repeat("v", store.MaxNameBytes+1))},
	} {
		if _, err := f.Append(t.Context(), tenant, []store.Append{{Assign: a}}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// testAssignmentsAtOnce lets writers take numbers while some of their units fail: the numbers have neither gaps nor
// duplicates.
func testAssignmentsAtOnce(s *suite) {
	t := s.t
	f := s.fixture(t)
	const writers, each = 8, 40
	var mu sync.Mutex
	owners := map[string]string{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				owner := fmt.Sprintf("%d-%d", w, i)
				u := store.Append{Events: events(order("hot"), `1`), Assign: []store.Assignment{numbered(owner)}}
				fails := i%5 == 4
				if fails {
					u.Pre = []store.Pre{{Key: order(owner), Length: 3}}
				}
				r := appendUnit(worker{t}, f, tenant, u)
				if fails != (r.Outcome == store.Conflict) {
					t.Errorf("%s: outcome %d", owner, r.Outcome)
				}
				if !fails {
					mu.Lock()
					owners[r.Assigned[0]] = owner
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	checkNumbers(t, f, owners, writers*each*4/5)
}

func checkNumbers(t *testing.T, f *fixture, owners map[string]string, n int) {
	t.Helper()
	if len(owners) != n {
		t.Fatalf("%d numbers were given out to %d owners", len(owners), n)
	}
	for i := 1; i <= n; i++ {
		number := fmt.Sprint(i)
		if item := get(t, f, tenant, byNumber, number); string(item.Value) != owners[number] || owners[number] == "" {
			t.Errorf("number %d belongs to %q, the writer was told %q", i, item.Value, owners[number])
		}
	}
}

// testAssignmentsMixed lets a counter meet values that were proposed, in one call and in several: no two owners get the
// same value.
func testAssignmentsMixed(s *suite) {
	t := s.t
	proposed := func(owner, value string) store.Assignment {
		return store.Assignment{Space: numbers, Owner: owner, Index: byNumber, Value: value}
	}
	for name, units := range map[string][]store.Append{
		"counter, then value": {
			{Assign: []store.Assignment{numbered("a")}}, {Assign: []store.Assignment{proposed("b", "1")}},
		},
		"value, then counter": {
			{Assign: []store.Assignment{proposed("b", "1")}},
			{Assign: []store.Assignment{numbered("a"), numbered("c")}},
		},
		"values before and behind": {
			{Assign: []store.Assignment{proposed("b", "1"), proposed("c", "3")}},
			{Assign: []store.Assignment{numbered("a"), proposed("d", "4"), numbered("e")}},
		},
	} {
		for _, together := range []bool{true, false} {
			f := s.fixture(t)
			var results []store.Result
			if together {
				var err error
				if results, err = f.Append(t.Context(), tenant, units); err != nil {
					t.Fatal(err)
				}
			} else {
				for _, u := range units {
					results = append(results, appendUnit(t, f, tenant, u))
				}
			}

			// Each number has one owner, in both directions.
			owners := map[string]string{}
			for i, r := range results {
				if r.Outcome != store.Committed {
					continue
				}
				for j, value := range r.Assigned {
					owner := units[i].Assign[j].Owner
					if before, taken := owners[value]; taken {
						t.Errorf("%s, together %v: %s belongs to %s and %s", name, together, value, before, owner)
					}
					owners[value] = owner
					if got := get(t, f, tenant, numbers, owner); string(got.Value) != value {
						t.Errorf("%s, together %v: %s has %s, and was told %s", name, together, owner, got.Value, value)
					}
					if got := get(t, f, tenant, byNumber, value); string(got.Value) != owner {
						t.Errorf("%s, together %v: %s belongs to %s, and was given to %s", name, together, value, got.Value, owner)
					}
				}
			}
			if wantConflict := name == "counter, then value"; (results[1].Outcome == store.Conflict) != wantConflict {
				t.Errorf("%s, together %v: outcome %d", name, together, results[1].Outcome)
			}
		}
	}
}
