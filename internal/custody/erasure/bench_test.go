package erasure_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/worker"
	"j17/internal/custody/erasure"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// BenchmarkTombstone erases an aggregate of 10,000 events, whose actors are others, from a folder that has a million
// events.
func BenchmarkTombstone(b *testing.B) {
	const erased, others, unit = 10_000, 1_000_000, 20_000
	s := testopen.OnDisk(b).Open(b, clock.System{})
	metadata := []byte(`{"actor":{"type":"user","id":"` + bob + `"}}`)
	fill := func(n int, key func(i int) j17.Key) {
		for from := 0; from < n; from += unit {
			var u store.Append
			for i := from; i < min(n, from+unit); i++ {
				u.Events = append(u.Events, store.NewEvent{
					Key: key(i), Type: "was_renamed", Data: fmt.Appendf(nil, `{"name":"somebody with the number %d","email":"%d@example.com"}`, i, i),
					Metadata: metadata, Tags: []string{"actor:user:" + bob},
				})
			}
			if _, err := s.Append(b.Context(), tenant, []store.Append{u}); err != nil {
				b.Fatal(err)
			}
		}
	}
	fill(others, func(i int) j17.Key { return j17.Key{Type: "user", ID: fmt.Sprintf("%08d", i/10)} })
	tombs := erasure.New(erasure.Options{
		Store: s, Clock: clock.System{}, Worker: worker.New(clock.System{}, slog.New(slog.DiscardHandler)),
		Logger: slog.New(slog.DiscardHandler),
		Resolve: func(_ context.Context, _ j17.Tenant, typ, id string) (j17.Key, error) {
			return j17.Key{Type: typ, ID: id}, nil
		},
		Spec:   func(j17.Tenant) *spec.Compiled { return nil },
		Root:   func(context.Context, j17.Tenant) (root [32]byte, size uint64, err error) { return root, 0, nil },
		Sign:   func(_ context.Context, _ j17.Tenant, text string) (string, error) { return text, nil },
		By:     func(context.Context) string { return "" },
		Record: func(context.Context, j17.Tenant, *erasure.Act) error { return nil },
	})

	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		id := fmt.Sprintf("erased-%d", n)
		fill(erased, func(int) j17.Key { return j17.Key{Type: "user", ID: id} })
		b.StartTimer()
		made, err := tombs.Create(b.Context(), tenant, "user", id, wire.NewTombstone{})
		if err == nil {
			_, err = tombs.Execute(b.Context(), tenant, made.ID, true)
		}
		if err == nil {
			err = tombs.Settle(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		if got, err := tombs.Get(b.Context(), tenant, made.ID); err != nil || got.Status != "completed" {
			b.Fatalf("%+v, %v", got, err)
		}
	}
}
