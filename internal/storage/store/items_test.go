package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const (
	things store.Space = "things"

	of j17.Tenant = "shop/prod"
)

// filled returns a store that has the items a/0 to a/9 and b/0.
func filled(t *testing.T) store.Sides {
	t.Helper()
	s := testopen.Open(t, clock.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
	sides := []store.Side{{Op: store.Put, Space: things, Key: "b/0", Value: []byte(`{`)}}
	for i := range 10 {
		sides = append(sides, store.Side{
			Op: store.Put, Space: things, Key: fmt.Sprintf("a/%d", i), Value: fmt.Appendf(nil, "%d", i),
		})
	}
	if err := s.Write(t.Context(), of, sides); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestItems reads items in pages of every size, in both directions, and removes what it has been given.
func TestItems(t *testing.T) {
	t.Parallel()
	s := filled(t)
	var up []string
	for i := range 10 {
		up = append(up, fmt.Sprintf("a/%d", i))
	}
	down := slices.Clone(up)
	slices.Reverse(down)
	for page := 1; page <= 12; page++ {
		for _, backward := range []bool{false, true} {
			keys, want := store.Prefix("a/"), up
			if keys.Backward = backward; backward {
				want = down
			}
			var got []string
			for it, err := range store.Items(t.Context(), s, of, things, keys, page) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, it.Key)
			}
			if !slices.Equal(got, want) {
				t.Errorf("in pages of %d, backward %v: %v", page, backward, got)
			}
		}
	}

	var places []string
	for place, err := range store.Places(t.Context(), s, of, things, "a/", 3) {
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, place)
		if err := s.Write(t.Context(), of, []store.Side{
			{Op: store.Delete, Space: things, Key: "a/" + place},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(places) != 10 || places[0] != "0" {
		t.Errorf("of items that are removed one after the other, %v were there", places)
	}
}

// TestMerge merges lists, one of which is empty and one of which fails.
func TestMerge(t *testing.T) {
	t.Parallel()
	failed := errors.New("it cannot be read")
	list := func(end error, values ...int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for _, v := range values {
				if !yield(v, nil) {
					return
				}
			}
			if end != nil {
				yield(0, end)
			}
		}
	}
	for what, test := range map[string]struct {
		lists []iter.Seq2[int, error]
		want  []int
		err   error
	}{
		"nothing": {nil, nil, nil},
		"two": {
			[]iter.Seq2[int, error]{list(nil, 1, 4, 5), list(nil), list(nil, 2, 4)}, []int{1, 2, 4, 4, 5}, nil,
		},
		"one fails":     {[]iter.Seq2[int, error]{list(failed, 1), list(nil, 2, 3)}, []int{1}, failed},
		"one never was": {[]iter.Seq2[int, error]{list(nil, 1), list(failed)}, nil, failed},
	} {
		var got []int
		var err error
		for v, e := range store.Merge(cmp.Less[int], test.lists...) {
			if err = e; err != nil {
				break
			}
			got = append(got, v)
		}
		if !slices.Equal(got, test.want) || !errors.Is(err, test.err) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}

	// Who has enough leaves the lists.
	left := false
	endless := func(yield func(int, error) bool) {
		defer func() { left = true }()
		for yield(1, nil) {
		}
	}
	for v, err := range store.Merge(cmp.Less[int], endless) {
		if v != 1 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
		break
	}
	if !left {
		t.Error("a list is still read when nobody wants more of it")
	}
}

// TestDecode reads a value that is JSON and one that is not.
func TestDecode(t *testing.T) {
	t.Parallel()
	s := filled(t)
	seven, err := s.Get(t.Context(), of, things, "a/7")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := store.Decode[int](things, &seven); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	broken, err := s.Get(t.Context(), of, things, "b/0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Decode[int](things, &broken)
	if damage, is := errors.AsType[*store.CorruptionError](err); !is || damage.Where != "things/b/0" {
		t.Errorf("of a value that is no JSON: %v", err)
	}
}

// TestOn writes an item that must not be there, and then over it.
func TestOn(t *testing.T) {
	t.Parallel()
	s := filled(t)
	side := store.Side{Op: store.Put, Space: things, Key: "c", Value: []byte("1")}
	if err := s.Write(t.Context(), of, []store.Side{side.On(0)}); err != nil {
		t.Fatal(err)
	}
	err := s.Write(t.Context(), of, []store.Side{side.On(0)})
	if _, is := errors.AsType[*store.SideConflict](err); !is {
		t.Errorf("what is there was written as if it were not: %v", err)
	}
	it, err := s.Get(t.Context(), of, things, "c")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), of, []store.Side{side.On(it.Rev)}); err != nil {
		t.Error(err)
	}
}
