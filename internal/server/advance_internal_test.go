package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// TestTheClockStopsWhereSomethingIsDue moves a clock over a recurrence, something that makes another kind of work due,
// and what cannot be done at all, and looks at the time that each piece of work has seen.
func TestTheClockStopsWhereSomethingIsDue(t *testing.T) {
	const again, after, broken store.Space = "again", "after", "broken"
	const tenant j17.Tenant = "i_prod"
	clk := clock.NewMovable(clock.NewManual(time.Unix(1_700_000_000, 0)))
	begin := clk.Now()
	s := testopen.Open(t, clk)
	put := func(space store.Space, key string, due time.Time) store.Side {
		return store.Side{Op: store.Put, Space: space, Key: key, Due: due}
	}
	var seen []string
	kit := worker.New(clk, slog.New(slog.DiscardHandler))
	queue := func(space store.Space, do func(context.Context, *worker.Claim) error) *worker.Queue {
		return kit.Queue(worker.Work{Name: string(space), Store: s, Space: space, Lease: time.Minute, Do: do})
	}
	works := []*worker.Queue{
		queue(after, func(ctx context.Context, c *worker.Claim) error {
			seen = append(seen, fmt.Sprint("after ", clk.Now().Sub(begin)))
			return s.Write(ctx, tenant, []store.Side{c.Remove()})
		}),
		queue(again, func(ctx context.Context, c *worker.Claim) error {
			seen = append(seen, fmt.Sprint("again ", clk.Now().Sub(begin)))
			return s.Write(ctx, tenant, []store.Side{
				c.Replace(nil, clk.Now().Add(7*24*time.Hour)), put(after, "k", clk.Now()),
			})
		}),
		kit.Queue(worker.Work{
			Name: "broken", Store: s, Space: broken, Lease: time.Minute, Retry: worker.Backoff{Attempts: 3},
			Do: func(context.Context, *worker.Claim) error { return errors.New("never") },
		}),
	}
	if err := s.Write(t.Context(), tenant, []store.Side{
		put(again, "k", begin.Add(7*24*time.Hour)), put(broken, "k", begin.Add(time.Hour)),
	}); err != nil {
		t.Fatal(err)
	}

	var moved time.Duration
	st := stepper{
		clock: clk, feed: s, works: worksOf(works), gate: newTurnstile(clk), busy: make(chan struct{}, 1),
		move: func(by time.Duration) error {
			moved += by
			return nil
		},
	}
	const by = 29 * 24 * time.Hour
	now, err := st.advance(t.Context(), by)
	if err != nil || now.Sub(begin) != by || moved != by {
		t.Errorf("the clock was moved by %s, and that was kept as %s: %v", now.Sub(begin), moved, err)
	}
	want := []string{}
	for week := range 4 {
		at := time.Duration(week+1) * 7 * 24 * time.Hour
		want = append(want, fmt.Sprint("again ", at), fmt.Sprint("after ", at))
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}

	// Who stops waiting leaves the clock where it is, and what cannot be kept is not moved.
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := st.advance(ctx, by); !errors.Is(err, context.Canceled) || clk.Now() != now {
		t.Errorf("after it was broken off: %s, %v", clk.Now().Sub(now), err)
	}
	st.move = func(time.Duration) error { return errors.ErrUnsupported }
	if _, err := st.advance(t.Context(), by); !errors.Is(err, errors.ErrUnsupported) || clk.Now() != now {
		t.Errorf("not kept: %s, %v", clk.Now().Sub(now), err)
	}
}

// endless is work that makes itself due again from a moment on, until it is ended.
type endless struct {
	clock clock.Clock
	from  time.Time
	ended bool
}

// NextDue is that of part.Work.
func (e *endless) NextDue(context.Context) (time.Time, error) {
	if e.ended {
		return time.Time{}, nil
	}
	return e.from, nil
}

// Settle is that of part.Work.
func (e *endless) Settle(context.Context) error {
	if e.ended || e.clock.Now().Before(e.from) {
		return nil
	}
	return worker.ErrUnsettled
}

// TestTheClockStopsAtWorkWithoutEnd moves a clock to a moment at which something makes itself due again and again.
func TestTheClockStopsAtWorkWithoutEnd(t *testing.T) {
	clk := clock.NewMovable(clock.NewManual(time.Unix(1_700_000_000, 0)))
	begin := clk.Now()
	work := &endless{clock: clk, from: begin.Add(time.Hour)}
	st := stepper{
		clock: clk, feed: testopen.Open(t, clk), works: []part.Work{{NextDue: work.NextDue, Settle: work.Settle}},
		gate: newTurnstile(clk),
		busy: make(chan struct{}, 1), move: func(time.Duration) error { return nil },
	}
	if _, err := st.advance(t.Context(), 2*time.Hour); j17.CodeOf(err) != j17.CodeWorkLimit ||
		clk.Now().Sub(begin) != time.Hour {
		t.Errorf("the clock was moved by %s: %v", clk.Now().Sub(begin), err)
	}

	// Once it ends the clock moves on.
	work.ended = true
	if now, err := st.advance(t.Context(), time.Hour); err != nil || now.Sub(begin) != 2*time.Hour {
		t.Errorf("the clock was moved by %s: %v", now.Sub(begin), err)
	}
}

// worksOf returns the work of queues.
func worksOf(queues []*worker.Queue) (all []part.Work) {
	for _, q := range queues {
		all = append(all, part.Work{NextDue: q.NextDue, Settle: q.Settle})
	}
	return all
}
