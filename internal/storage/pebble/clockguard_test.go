package pebble_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

// day is the bound of the tests of clocks that jump.
const day = 24 * time.Hour

// checkBelieved writes and checks whether that was refused because of the clock, and that the status says the same.
func checkBelieved(t *testing.T, s *pebble.Store, want bool) {
	t.Helper()
	r, err := s.Append(t.Context(), tenant, []store.Append{{Events: events(key("a"), `1`)}})
	switch {
	case want && err != nil:
		t.Fatalf("append: %v", err)
	case !want && !errors.Is(err, store.ErrClock):
		t.Fatalf("append with a clock that has jumped: %+v, %v, want ErrClock", r, err)
	}
	if !want && !strings.Contains(err.Error(), "accept-clock") {
		t.Errorf("error %q does not say what to do", err)
	}
	st := s.Status()
	if !st.Readable || st.Writable != want || (st.Reason == "") != want {
		t.Errorf("status %+v", st)
	}
}

// TestClockJumps moves the clock of an open store ahead, back and ahead again.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	c := clock.NewManual(frozenTime())
	s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: c, MaxClockJump: day, Logger: quiet()})
	checkBelieved(t, s, true)
	c.Advance(day)
	checkBelieved(t, s, true)
	c.Advance(3 * 365 * day)
	checkBelieved(t, s, false)
	// Nothing else that is stored sees the time either, and nothing is taken for expired.
	if err := s.Write(t.Context(), tenant, []store.Side{
		{Op: store.Put, Space: space, Key: "k"},
	}); !errors.Is(err, store.ErrClock) {
		t.Errorf("write: %v", err)
	}
	if err := s.Barrier(t.Context()); err != nil {
		t.Errorf("barrier: %v", err)
	}
	// It comes back by itself when the clock does, also when that is then behind.
	c.Set(frozenTime().Add(day + time.Second))
	checkBelieved(t, s, true)
	c.Set(frozenTime().Add(-20 * 365 * day))
	checkBelieved(t, s, true)
	c.Set(frozenTime().Add(2 * day))
	checkBelieved(t, s, true)
	closeStore(t, s)

	// A start remembers, and allows for the time that the store was closed.
	c.Set(frozenTime().Add(2 * 365 * day))
	s = open(t, pebble.Options{Dir: "data", FS: fs, Clock: c, MaxClockJump: day, Logger: quiet()})
	checkBelieved(t, s, false)
	f, err := fs.Create("data/accept-clock", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	checkBelieved(t, s, true)
	if _, err := fs.Stat("data/accept-clock"); err == nil {
		t.Error("the clock stays confirmed")
	}
	c.Advance(2 * day)
	checkBelieved(t, s, false)
	closeStore(t, s)
	s = open(t, pebble.Options{Dir: "data", FS: fs, Clock: c, MaxClockJump: day, Logger: quiet()})
	checkBelieved(t, s, true)
	closeStore(t, s)
	// Without a bound any clock is believed.
	c.Advance(9 * 365 * day)
	s = open(t, pebble.Options{Dir: "data", FS: fs, Clock: c})
	checkBelieved(t, s, true)
	closeStore(t, s)
}

// rest lets the time of a synctest bubble go on.
func rest(t *testing.T, d time.Duration) {
	t.Helper()
	c := clock.System{}
	if err := c.Wait(t.Context(), c.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
}

// TestClockGoesOn lets a store be idle for longer than its clock may jump, and a clock that has jumped go on evenly, as
// that of a machine that was asleep does.
func TestClockGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const jump = 3 * time.Hour // more than it takes to be believed, and rests of it are soon over
		c := clock.NewMovable(clock.System{})
		s := open(t, pebble.Options{Dir: "data", FS: vfs.NewMem(), Clock: c, MaxClockJump: jump, Logger: quiet()})
		checkBelieved(t, s, true)
		rest(t, 2*jump)
		checkBelieved(t, s, true)
		c.Advance(2 * jump)
		checkBelieved(t, s, false)
		rest(t, 5*time.Minute)
		checkBelieved(t, s, false)
		rest(t, 7*time.Minute)
		checkBelieved(t, s, true)
		c.Advance(3 * 365 * day)
		checkBelieved(t, s, false)
		rest(t, 2*time.Hour)
		checkBelieved(t, s, false)
		closeStore(t, s)
	})
}
