package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestTombstoneTellsOfFailedTries checks that what holds an execution up is told to people too.
func TestTombstoneTellsOfFailedTries(t *testing.T) {
	t.Parallel()
	for failed, want := range map[string]string{
		``: "",
		`,"progress":{"phase":"purge","done":1,"total":2,"events_done":10,"events_total":1000,"attempts":1},"error":"no space left"`: "10 of 1000 events in 2 aggregates replaced, in the phase purge\nthe last try has failed: no space left\n",
		`,"progress":{"phase":"purge","waits_for":"the rewrite of cells","until":"2026-03-02T12:00:00Z"}`:                            "waiting for the rewrite of cells, at the latest at " + when(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)) + "\n",
		`,"progress":{"phase":"purge","waits_for":"the logs of db2:5432"}`:                                                           "waiting for the logs of db2:5432\n",
		`,"progress":{"phase":"purge","done":1,"total":0,"attempts":3},"error":"no\u001bspace"`:                                      "the last 3 tries have failed: nospace\n",
	} {
		var out strings.Builder
		raw := json.RawMessage(`{"tombstone":{"id":"tmb_1","key":"user:1","status":"executing"` + failed + `}}`)
		if err := printAs(&env{out: &out}, raw, false, printTombstone); err != nil {
			t.Fatal(err)
		}
		if lines := strings.SplitAfterN(out.String(), "\n", 3); len(lines) != 3 || lines[2] != want {
			t.Errorf("%q, want %q at the end", out.String(), want)
		}
	}
}
