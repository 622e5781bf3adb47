package main

import (
	"strings"
	"testing"

	"j17/internal/base/wire"
)

// TestDescribeRefusals: one guard and several are told of in sentences that are right.
func TestDescribeRefusals(t *testing.T) {
	t.Parallel()

	for unchecked, want := range map[int]string{
		0: "",
		1: "1 guard of what changes looks at other aggregates, and was not asked\n",
		2: "2 guards of what changes look at other aggregates, and were not asked\n",
	} {
		var b strings.Builder
		describeRefusals(&b, &wire.SpecReplay{Unchecked: unchecked})
		if got := b.String(); got != want {
			t.Errorf("%d guards: got %q, want %q", unchecked, got, want)
		}
	}
}
