//go:build !race

package wire_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"j17/internal/base/wire"
)

// TestLists takes lists apart, and makes lists that come out as what went in.
func TestLists(t *testing.T) {
	for list, want := range map[string][]string{
		"": {""}, "a": {"a"}, "a,b": {"a", "b"}, `a\,b,c`: {"a,b", "c"}, ",": {"", ""},
		`student:Smith\, J.`: {"student:Smith, J."},
		`a\\,b`:              {`a\`, "b"}, `a\\\,b`: {`a\,b`}, `a\\b`: {`a\b`}, `a\\`: {`a\`}, `\\\\,\,`: {`\\`, ","},
	} {
		if got := wire.SplitList(list); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
		if got := wire.JoinList(want); got != list {
			t.Errorf("%q makes %q, not %q", want, got, list)
		}
	}

	// A backslash before anything else needs none before it.
	for list, want := range map[string][]string{`a\b`: {`a\b`}, `a\`: {`a\`}, `C:\new,\x`: {`C:\new`, `\x`}} {
		if got := wire.SplitList(list); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}

// TestDeliveriesHaveTheirLog: one that is shown by itself has a log, also before its first try; those of a list have
// none.
func TestDeliveriesHaveTheirLog(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		log  []wire.DeliveryTry
		want bool
	}{{nil, false}, {[]wire.DeliveryTry{}, true}, {[]wire.DeliveryTry{{}}, true}} {
		raw, err := json.Marshal(wire.Delivery{Log: c.log})
		if err != nil || strings.Contains(string(raw), `"log":[`) != c.want {
			t.Errorf("%s, %v", raw, err)
		}
	}
}
