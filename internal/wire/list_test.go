package wire_test

import (
	"slices"
	"testing"

	"j17/internal/wire"
)

// TestLists takes lists apart, and those that it makes come out as they went in.
func TestLists(t *testing.T) {
	for list, want := range map[string][]string{
		"": {""}, "a": {"a"}, "a,b": {"a", "b"}, `a\,b,c`: {"a,b", "c"}, `a\b`: {`a\b`}, ",": {"", ""}, `student:Smith\, J.`: {"student:Smith, J."}, `a\`: {`a\`},
	} {
		if got := wire.SplitList(list); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
		if got := wire.JoinList(want); got != list {
			t.Errorf("%q makes %q, not %q", want, got, list)
		}
	}
}
