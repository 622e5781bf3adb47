package backup

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRules checks which backups the settings keep, and when the next one is made.
func TestRules(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ago := func(hours int, status Status) *Backup {
		return &Backup{ID: string(status[:1]), Status: status, CreatedAt: now.Add(time.Duration(-hours) * time.Hour)}
	}
	for name, c := range map[string]struct {
		set        Settings
		all        []*Backup
		gone       []int
		next, made time.Duration // from now on; never stands for the zero time
	}{
		"no rules": {
			Settings{}, []*Backup{ago(1, Completed), ago(9000, Completed)}, nil, never, never,
		},
		"the last": {
			Settings{KeepLast: 2}, []*Backup{
				ago(1, Completed), ago(2, Failed), ago(3, Completed), ago(4, Completed), ago(5, Completed),
			}, []int{3, 4}, never, never,
		},
		"one that is made": {
			Settings{KeepLast: 1}, []*Backup{ago(0, Running), ago(1, Completed)}, nil, never, never,
		},
		"days": {
			Settings{KeepDays: 1},
			[]*Backup{ago(1, Completed), ago(23, Completed), ago(24, Completed)},
			[]int{2},
			time.Hour, never,
		},
		"the newest in any case": {
			Settings{KeepDays: 1}, []*Backup{ago(100, Completed), ago(200, Completed)}, []int{1}, never, never,
		},
		"none yet": {Settings{EveryHours: 2}, nil, nil, never, 0},
		"one an hour ago": {
			Settings{EveryHours: 2}, []*Backup{ago(1, Completed), ago(9, Completed)}, nil, never, time.Hour,
		},
		"one that failed just now": {
			Settings{EveryHours: 24}, []*Backup{ago(0, Failed), ago(30, Completed)}, nil, never, time.Hour,
		},
		"one that failed, at first": {Settings{EveryHours: 24}, []*Backup{ago(2, Failed)}, nil, never, -time.Hour},
		"on its way":                {Settings{EveryHours: 1}, []*Backup{ago(0, Running)}, nil, never, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			gone, next := c.set.expired(c.all, now)
			var at []int
			for _, b := range gone {
				for i := range c.all {
					if c.all[i] == b {
						at = append(at, i)
					}
				}
			}
			if diff := cmp.Diff(c.gone, at); diff != "" {
				t.Errorf("what goes: %s", diff)
			}
			if got := from(next, now); got != c.next {
				t.Errorf("the next one goes in %s, not in %s", got, c.next)
			}
			if got := from(c.set.due(c.all, now), now); got != c.made {
				t.Errorf("the next one is made in %s, not in %s", got, c.made)
			}
		})
	}

	// Failed ones do not pile up.
	var all []*Backup
	for range keepFailed + 3 {
		all = append(all, ago(1, Failed))
	}
	if gone, _ := new(Settings).expired(all, now); len(gone) != 3 {
		t.Errorf("%d go", len(gone))
	}
}

// never stands for the zero time.
const never = time.Duration(-1 << 63)

func from(at, now time.Time) time.Duration {
	if at.IsZero() {
		return never
	}
	return at.Sub(now)
}

// stopwatch is a clock that moves on when it is looked at, and notes how long was waited.
type stopwatch struct {
	now    time.Time
	waited []time.Duration
}

// Now returns the time, which moves on.
func (s *stopwatch) Now() time.Time {
	s.now = s.now.Add(10 * time.Millisecond)
	return s.now
}

// Wait notes how long.
func (s *stopwatch) Wait(_ context.Context, until time.Time) error {
	s.waited = append(s.waited, until.Sub(s.now))
	s.now = until
	return nil
}

// TestPace checks that a backup rests while events are written and not otherwise, and that it looks at the room.
func TestPace(t *testing.T) {
	committed, looked, watch := uint64(0), 0, &stopwatch{now: time.Unix(1_700_000_000, 0)}
	p := &pace{
		ctx: t.Context(), real: watch, committed: func() uint64 { return committed },
		free: func() error { looked++; return nil },
	}
	p.began = watch.Now()
	for range 100 {
		if err := p.step(slice); err != nil {
			t.Fatal(err)
		}
	}
	if len(watch.waited) != 0 {
		t.Errorf("it rests %d times though nobody writes", len(watch.waited))
	}
	if looked == 0 || looked > 2 {
		t.Errorf("it looks at the room %d times", looked)
	}
	for range 10 {
		committed++
		if err := p.step(slice); err != nil {
			t.Fatal(err)
		}
	}
	if len(watch.waited) != 10 || watch.waited[0] != restShare*10*time.Millisecond {
		t.Errorf("it rests %v while somebody writes", watch.waited)
	}

	// A busy server writes in groups: it goes on resting for a while.
	for range 100 {
		if err := p.step(slice); err != nil {
			t.Fatal(err)
		}
	}
	if more := len(watch.waited) - 10; more < 2 || more > 10 {
		t.Errorf("it rests %d times more when nobody has written for a moment", more)
	}
	full := errors.New("full")
	p.free = func() error { return full }
	if err := p.step(roomSlice); !errors.Is(err, full) {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	p.ctx = gone
	if err := p.step(slice); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
