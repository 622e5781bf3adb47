package engine_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"j17/internal/clock"
	"j17/internal/command"
	"j17/internal/engine"
	"j17/internal/engine/enginetest"
	"j17/internal/store/pebble"
)

// BenchmarkConditions measures synced writes into a feed of a million events, by 64 writers, each to an aggregate of its own: plain ones,
// and ones that forbid what has happened, with a tag of their own beside one that all of the million have.
func BenchmarkConditions(b *testing.B) {
	const long, batch = 1_000_000, 10_000
	s, err := pebble.Open(pebble.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
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

	var seq atomic.Int64
	for _, of := range []string{"plain", "conditions"} {
		b.Run("of="+of, func(b *testing.B) {
			c := enginetest.Command(b, "booking/global/was_made", `{"data":{"course":"other","student":"x"},`+meta+`}`)
			b.SetParallelism(32)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					own := *c
					own.Writes = slices.Clone(c.Writes)
					own.Writes[0].ID = uuid.NewString()
					if of == "conditions" {
						own.Conditions = []command.Condition{{Tags: []string{"course:other", fmt.Sprintf("student:new%d", seq.Add(1))}}}
					}
					if _, err := e.Execute(b.Context(), &own); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
