package usage

import (
	"slices"
	"testing"
	"time"
)

// TestMinutes counts events over more than an hour, with a clock that stands, jumps and is set back.
func TestMinutes(t *testing.T) {
	var m minutes
	at := func(minute, second int) time.Time { return time.Unix(int64(minute)*60+int64(second), 0) }
	m.add(at(1000, 0), 1)
	m.add(at(1000, 59), 2)
	if got := m.last(at(1000, 59)); len(got) != Minutes || slices.Max(got) != 0 {
		t.Errorf("the present minute counts: %v", got)
	}
	if got := m.last(at(1001, 0)); got[59] != 3 || got[58] != 0 {
		t.Errorf("the last full minute: %v", got)
	}
	m.add(at(1059, 0), 5)
	if got := m.last(at(1060, 0)); got[0] != 3 || got[59] != 5 {
		t.Errorf("an hour later: %v", got)
	}
	if got := m.last(at(1061, 0)); got[0] != 0 || got[58] != 5 {
		t.Errorf("a minute after that: %v", got)
	}

	// It is set back: what comes now counts where it is, unless that is long past.
	m.add(at(1050, 0), 7)
	m.add(at(900, 0), 100)
	if got := m.last(at(1061, 0)); got[49] != 7 || slices.Max(got) != 7 {
		t.Errorf("set back: %v", got)
	}
	if got := m.last(at(1050, 0)); got[10] != 3 && slices.Max(got) > 7 {
		t.Errorf("asked for the past: %v", got)
	}

	// It jumps.
	if got := m.last(at(100_000, 0)); slices.Max(got) != 0 {
		t.Errorf("after a jump: %v", got)
	}
	m.add(at(-5, 0), 1)
}
