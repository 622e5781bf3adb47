package engine_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"j17/internal/base/clock"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/testopen"
)

// BenchmarkConditions measures synced writes into a feed of a million events, by 64 writers, each to an aggregate of
// its own: plain ones, ones that forbid what has happened, with a tag of their own beside one that all of the million
// have, and ones that forbid what has happened since the end of the feed was read. A turn is a thousand of each.
func BenchmarkConditions(b *testing.B) {
	const long, batch = 1_000_000, 10_000
	s := testopen.OnDisk(b).Open(b, clock.System{})
	e := engine.New(engine.Options{Store: s, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler)})
	e.Deploy(tenant, enginetest.Compiled(b, bookingSpec), nil, head(b, s))
	for n := range long / batch {
		events := make([]string, batch)
		for i := range events {
			events[i] = fmt.Sprintf(`{"type":"was_made","data":{"course":"other","student":"s%d"}}`, n*batch+i)
		}
		body := `{"events":[` + strings.Join(events, ",") + `],` + meta + `}`
		if _, err := e.Execute(b.Context(), enginetest.Command(b, "booking/"+uuid.NewString(), body)); err != nil {
			b.Fatal(err)
		}
	}

	// In turns, a thousand of each: what the store still compacts of the million slows both alike.
	const writers, each = 64, 1000
	c := enginetest.Command(b, "booking/global/was_made", `{"data":{"course":"other","student":"x"},`+meta+`}`)
	var seq atomic.Int64
	const plain, ever, since = 0, 1, 2
	write := func(kind int) time.Duration {
		begin := time.Now()
		var left atomic.Int64
		left.Store(each)
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					own := *c
					own.Writes = slices.Clone(c.Writes)
					own.Writes[0].ID = uuid.NewString()
					if kind != plain {
						own.Conditions = []command.Condition{
							{Tags: []string{"course:other", fmt.Sprintf("student:new%d", seq.Add(1))}},
						}
					}
					if kind == since {
						extent, err := s.Extent(b.Context(), tenant)
						if err != nil {
							b.Error(err)
							return
						}
						own.Conditions[0].After = extent.Last
					}
					if _, err := e.Execute(b.Context(), &own); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		return time.Since(begin)
	}
	var took [3]time.Duration
	for turn := 0; b.Loop(); turn++ {
		for n := range took {
			kind := (turn + n) % len(took) // what one leaves to compact is not always paid by the next
			took[kind] += write(kind)
		}
	}
	for kind, name := range []string{"plain", "ever", "since"} {
		b.ReportMetric(float64(took[kind].Nanoseconds())/float64(b.N*each), name+"-ns")
	}
	b.ReportMetric(float64(took[ever])/float64(took[plain]), "ever-times")
	b.ReportMetric(float64(took[since])/float64(took[plain]), "since-times")
}
