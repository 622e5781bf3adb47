package index

import (
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/base/clock"
)

// TestMayRest asks whether upkeep may rest, at times that have nothing to do with each other: the clock of a machine
// may be set.
func TestMayRest(t *testing.T) {
	began := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		// asked and grew are how long before now somebody has asked and the feed has grown, as the clock says by then.
		// Nobody has asked for 0.
		asked, grew time.Duration
		behind      uint64
		busy, rests bool
	}{
		"hardly behind":                  {behind: 9},
		"behind":                         {behind: 10, rests: true},
		"as much as may be":              {behind: 499, rests: true},
		"too far behind":                 {behind: 500},
		"nobody can read it":             {behind: 10, busy: true},
		"asked just now":                 {asked: time.Nanosecond, behind: 10},
		"asked some seconds ago":         {asked: restAfter, behind: 10},
		"asked, and few are left":        {asked: restAfter + 2*time.Second, behind: 39, rests: true},
		"asked, and more than that":      {asked: restAfter + 2*time.Second, behind: 40},
		"asked long ago":                 {asked: time.Hour, behind: 499, rests: true},
		"asked long ago, and far behind": {asked: time.Hour, behind: 500},
		"nothing was written lately":     {grew: restCalm, behind: 10},
		"something was":                  {grew: restCalm - 1, behind: 10, rests: true},
		"the clock was set back":         {asked: -time.Hour, behind: 10},
		"set back behind what grew":      {grew: -time.Hour, behind: 10},
		"the clock was set ahead":        {asked: 24 * time.Hour, grew: 24 * time.Hour, behind: 10},
	} {
		t.Run(name, func(t *testing.T) {
			now := clock.NewManual(began)
			at, end := place{"acme", "one"}, j17.StreamID{Ms: 1}
			r := &deferral{end: end, since: began.Add(-test.grew), busy: test.busy}
			if test.asked != 0 {
				r.asked = began.Add(-test.asked)
			}
			s := &deferrals{
				clock: now, limits: &limits{restFrom: 10, restEach: 20, restMost: 500},
				slots: map[place]*deferral{at: r}, waiting: map[place]time.Time{},
			}
			if is := s.isWanted(at.tenant, at.name); is != (test.asked > 0 && test.asked < wantedFor) {
				t.Errorf("that it is wanted is %v", is)
			}
			for range 2 {
				left := s.mayDefer(at.tenant, at.name, test.behind, end)
				if left > 0 != test.rests || left > restCalm || r.deferred != test.rests ||
					s.waiting[at].IsZero() == test.rests {
					t.Errorf("it may rest for %s; %+v, %v", left, r, s.waiting)
				}
			}
		})
	}
}

// TestAPause ends in time, and at once when somebody asks. It keeps nothing of a slot that is not known.
func TestAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := place{"acme", "one"}
		most := usual()
		s := &deferrals{
			clock: clock.System{}, limits: &most, slots: map[place]*deferral{at: {}}, waiting: map[place]time.Time{},
		}
		took := func(slot string, meanwhile func()) time.Duration {
			began, done := time.Now(), make(chan time.Duration, 1)
			go func() {
				s.pause(t.Context(), at.tenant, slot, time.Hour)
				done <- time.Since(began)
			}()
			synctest.Wait()
			meanwhile()
			return <-done
		}
		if d := took(at.name, func() {}); d != time.Hour {
			t.Errorf("a pause of an hour took %s", d)
		}
		if d := took(at.name, func() { s.asked(t.Context(), at.tenant, at.name) }); d != 0 {
			t.Errorf("it went on for %s after somebody had asked", d)
		}
		if d := took("another", func() { s.asked(t.Context(), at.tenant, at.name) }); d != time.Hour ||
			s.slots[place{"acme", "another"}] != nil {
			t.Errorf("the pause of another slot took %s, %v", d, s.slots)
		}
		if s.slots[at].resume != nil {
			t.Error("somebody could end a pause that is over")
		}
	})
}
