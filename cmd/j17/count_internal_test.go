package main

import (
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/wire"
)

// TestNumbersOfThings: one of something is not said as several are.
func TestNumbersOfThings(t *testing.T) {
	for _, c := range []struct {
		n          int
		noun, want string
	}{
		{0, "row", "0 rows"},
		{1, "entry", "1 entry"},
		{2, "entry", "2 entries"},
		{2, "key", "2 keys"},
	} {
		if got := j17.Count(c.n, c.noun); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}

	// Where they are told.
	ended := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one := wire.ScrubPass{Number: 1, EndedAt: &ended, Tables: 1, Events: 1, Streams: 1, Items: 1}
	var out strings.Builder
	if err := printScrub((&env{out: &out}), &wire.Scrub{Phase: "events", Pass: one, Last: &one}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{": 1 table, 1 event of 1 stream, 1 item.\n", ", after 1 event and 1 item.\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said in %q", want, out.String())
		}
	}
	out.Reset()
	describeTrial(&out, &wire.Replay{Aggregates: 1, Complete: true}, &wire.Price{Entries: 1, Rows: 1, Exact: true})
	if want := "index: 1 entry of 1 row,"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not said in %q", want, out.String())
	}
}
