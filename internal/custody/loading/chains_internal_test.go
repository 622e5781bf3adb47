package loading

import (
	"runtime"
	"strconv"
	"testing"

	"j17"
)

func noteKey(i int) j17.Key { return j17.Key{Type: "note", ID: strconv.Itoa(i)} }

// TestChainsAreBounded: what has no room is forgotten, what was put there last is known.
func TestChainsAreBounded(t *testing.T) {
	c := newChains(2)
	for i := 1; i < 1000; i++ {
		c.place(noteKey(i)).put(1, [32]byte{byte(i)})
		if sum, ok := c.place(noteKey(i)).upTo(1); !ok || sum[0] != byte(i) {
			t.Errorf("%d is forgotten", i)
		}
	}
	known := 0
	for i := 1; i < 1000; i++ {
		if sum, ok := c.place(noteKey(i)).upTo(1); ok {
			if known++; sum[0] != byte(i) {
				t.Errorf("%d has the chain of another one", i)
			}
		}
	}
	if known == 0 || known > 2*chainWays {
		t.Errorf("%d of 999 are known", known)
	}

	// One that goes on.
	c.place(noteKey(0)).put(1, [32]byte{1})
	c.place(noteKey(0)).put(2, [32]byte{2})
	if sum, ok := c.place(noteKey(0)).upTo(2); !ok || sum[0] != 2 {
		t.Error("what was put there last is not known")
	}
	if _, ok := c.place(noteKey(0)).upTo(1); ok {
		t.Error("a chain is taken for that of another version")
	}
	c.forget(noteKey(0))
	if _, ok := c.place(noteKey(0)).upTo(2); ok {
		t.Error("what was to be forgotten is remembered")
	}
}

// TestChainsOfAggregatesInTurns: events of 100,000 aggregates in turns find nearly all chains, and those of more than
// there is room for some.
func TestChainsOfAggregatesInTurns(t *testing.T) {
	for _, tc := range []struct{ aggregates, least int }{{100_000, 99_000}, {2 * chainWays * 1 << 10, 1 << 10}} {
		rows := chainRows(10 * uint64(tc.aggregates))
		if tc.aggregates < 100_000 {
			rows = 1 << 10
		}
		c, known := newChains(rows), 0
		for version := range uint64(2) {
			for i := range tc.aggregates {
				p := c.place(noteKey(i))
				if _, ok := p.upTo(version); ok {
					known++
				}
				p.put(version+1, [32]byte{})
			}
		}
		if known < tc.least {
			t.Errorf("%d of %d are known", known, tc.aggregates)
		}
	}
}

// TestChainsAreAccountedFor: an export says what it takes, which leaves room for others.
func TestChainsAreAccountedFor(t *testing.T) {
	x := &Export{Events: 1 << 40}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := newChains(chainRows(x.Events))
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > x.Memory() || x.Memory() > 17<<20 {
		t.Errorf("%d bytes were taken, and %d are accounted for", took, x.Memory())
	}
	if x.Events = 3; x.Memory() > 5<<20 {
		t.Errorf("%d bytes are accounted for an export of 3 events", x.Memory())
	}
	runtime.KeepAlive(&c)
}
