package main

import (
	"strings"
	"testing"

	"j17/internal/base/wire"
)

// TestDescribeTried: examples stand side by side where there is room, and one below the other where there is none.
func TestDescribeTried(t *testing.T) {
	t.Parallel()

	x := []wire.TrialExample{
		{StreamID: "1-0", Before: `{"mail":"ä"}`, After: `{"email":"ä","n":2.50}`},
		{StreamID: "2-0", Before: `{"a":"` + "\u001b[31m" + `...`},
	}
	for i := range x {
		x[i].Key, x[i].Type, x[i].Generation = "order:global", "was_placed", 1
	}
	const head = "2 stored events tried: 1 cannot be read under the new spec\n"
	aside := `
order:global was_placed, generation 1, 1-0
  {                {
    "mail": "ä"      "email": "ä",
  }                  "n": 2.50
                   }
`
	below := `
order:global was_placed, generation 1, 1-0
  before  {"mail":"ä"}
  after   {"email":"ä","n":2.50}
`
	for width, want := range map[int]string{0: below, 33: below, 34: aside, 200: aside} {
		var b strings.Builder
		describeTried(&b, &wire.SpecTrial{Events: 2, Failed: 1, Examples: x[:1]}, true, width)
		if got := b.String(); got != head+want+"\n" {
			t.Errorf("%d columns:\n%s", width, got)
		}
	}

	// A text that was cut, of an event that fails.
	var b strings.Builder
	describeTried(&b, &wire.SpecTrial{Events: 2, Examples: x[1:]}, true, 20)
	if got := b.String(); !strings.HasSuffix(got, "\n  before  {\"a\":\"[31m...\n  after   cannot be read\n\n") {
		t.Errorf("cut: %q", got)
	}
	b.Reset()
	describeTried(&b, nil, true, 80)
	describeTried(&b, &wire.SpecTrial{Events: 1, Examples: x}, false, 80)
	if got := b.String(); got != "1 stored event tried: all can be read under the new spec\n" {
		t.Errorf("without examples: %q", got)
	}
}
