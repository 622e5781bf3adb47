package pebble

import (
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"j17/internal/base/clock"
)

// Pebble repeats what has failed at once. The log has that once a minute, and how often it was.
func TestRepeatedFaultsAreLoggedSeldom(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	now := clock.NewManual(time.UnixMilli(1_700_000_000_000))
	l := newEvents().listener(slog.New(slog.NewTextHandler(&log, nil)), now, &disk{merging: newMerging()})
	said := func() (lines []string) {
		defer log.Reset()
		return strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
	}
	fail := func(n int, text string) {
		for range n {
			l.BackgroundError(errors.New(text))
		}
	}

	fail(1000, "000007.sst is damaged")
	fail(1, "000008.sst is damaged")
	if got := said(); len(got) != 2 || !strings.Contains(got[0], "000007") || !strings.Contains(got[1], "000008") {
		t.Errorf("at first: %d lines, %.300q", len(got), got)
	}
	now.Advance(59 * time.Second)
	fail(500, "000007.sst is damaged")
	now.Advance(time.Second)
	fail(1, "000007.sst is damaged")
	if got := said(); len(got) != 1 || !strings.Contains(got[0], "times_since=1499") {
		t.Errorf("after a minute: %d lines, %.300q", len(got), got)
	}

	// A clock that is set back delays nothing, and what is remembered is bounded.
	now.Advance(-time.Hour)
	fail(1, "000007.sst is damaged")
	if got := said(); len(got) != 1 || got[0] == "" {
		t.Errorf("when the clock was set back: %q", got)
	}
	s := &seldom{clock: now}
	for i := range 10 * mostSaid {
		s.say(strconv.Itoa(i), func(slog.Attr) {})
	}
	if len(s.said) > mostSaid {
		t.Errorf("%d messages are remembered", len(s.said))
	}
}
