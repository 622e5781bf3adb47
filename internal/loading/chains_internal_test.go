package loading

import (
	"runtime"
	"strconv"
	"testing"

	"j17"
)

// TestChainsAreBounded: as many are remembered as there is room for, the latest ones.
func TestChainsAreBounded(t *testing.T) {
	c := newChains()
	c.most = 10
	key := func(i int) j17.Key { return j17.Key{Type: "a", ID: strconv.Itoa(i)} }
	for i := range 1000 {
		c.put(key(i), 1, [32]byte{byte(i)})
		c.put(key(0), uint64(i+2), [32]byte{1})
	}
	if len(c.recent)+len(c.older) > 20 {
		t.Errorf("%d and %d are remembered", len(c.recent), len(c.older))
	}
	for i := 996; i < 1000; i++ {
		if sum, ok := c.at(key(i), 1); !ok || sum[0] != byte(i) {
			t.Errorf("%d is forgotten", i)
		}
	}
	if _, ok := c.at(key(5), 1); ok {
		t.Error("all are remembered")
	}
	if _, ok := c.at(key(0), 1001); !ok {
		t.Error("what is used all the time is forgotten")
	}
	if _, ok := c.at(key(0), 1000); ok {
		t.Error("a chain is taken for that of another version")
	}
	c.forget(key(0))
	if _, ok := c.at(key(0), 1001); ok {
		t.Error("what was to be forgotten is remembered")
	}
}

// TestChainsAreAccountedFor: an export says what it takes, which leaves room for others.
func TestChainsAreAccountedFor(t *testing.T) {
	keys := make([]j17.Key, 2*mostChains-1)
	for i := range keys {
		keys[i] = j17.Key{Type: "note", ID: strconv.Itoa(i)}
	}
	c := newChains()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, key := range keys {
		c.put(key, 1, [32]byte{})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	x := &Export{Events: 1 << 40}
	if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > x.Memory() || x.Memory() > 17<<20 {
		t.Errorf("%d bytes were taken, and %d are accounted for", took, x.Memory())
	}
	if x.Events = 3; x.Memory() > 1<<20 {
		t.Errorf("%d bytes are accounted for an export of 3 events", x.Memory())
	}
	runtime.KeepAlive(keys)
	runtime.KeepAlive(&c)
}
