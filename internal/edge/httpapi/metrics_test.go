package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/edge/httpapi"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

// TestBackgroundWorkIsShown lets a loop fail once and looks at the metrics.
func TestBackgroundWorkIsShown(t *testing.T) {
	kit := worker.New(clock.System{}, slog.New(slog.DiscardHandler))
	f := newFixture(t, func(o *httpapi.Options) { o.Worker = kit })
	ctx, stop := context.WithCancel(t.Context())
	stop()
	kit.Every(ctx, worker.Loop{
		Name: "made_up", Every: 1, Final: true, Do: func(context.Context) error { return errors.New("no luck") },
	})
	w := httptest.NewRecorder()
	f.Internal().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	for _, want := range []string{
		`j17_background_failed_total{work="made_up"} 1`, `j17_background_done_total{work="made_up"} 0`, `j17_background_dead_total{work="made_up"} 0`,
		`j17_background_lost_total{work="made_up"} 0`, `j17_background_running{work="made_up"} 0`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

// TestWhatIndexesHaveIsShown builds an index of two rows, which nobody keeps up to date afterwards.
func TestWhatIndexesHaveIsShown(t *testing.T) {
	var builds *build.Service
	f := newFixture(t, func(o *httpapi.Options) {
		st, is := o.Store.(store.Store)
		if !is {
			t.Fatalf("%T is no store", o.Store)
		}
		kit := worker.New(o.Clock, o.Logger)
		builds = build.New(build.Options{Store: st, Clock: o.Clock, Logger: o.Logger, Worker: kit})
		o.Indexes = index.New(index.Options{
			Store: st, Clock: o.Clock, Logger: o.Logger, Build: builds,
			Feed: feed.New(feed.Options{Store: st, Clock: o.Clock, Logger: o.Logger}),
		})
	})
	const a, b = "0b6e9d4e-6f0a-4f3c-8c53-000000000001", "0b6e9d4e-6f0a-4f3c-8c53-000000000002"
	f.write(t, a+"/was_written", `{}`)
	f.write(t, b+"/was_written", `{}`)
	if _, err := f.Indexes.Ensure(t.Context(), j17.TenantOf(f.instance.ID, j17.Prod), &index.Definition{
		ID: "notes", Type: "note",
		Rows: func(_ context.Context, _ j17.Tenant, _ j17.StreamID, ids []string) (rows []index.Row, err error) {
			for _, id := range ids {
				rows = append(rows, index.Row{ID: id, Entries: []index.Entry{index.NewEntry(0)}})
			}
			return rows, nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	if err := builds.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.write(t, a+"/was_written", `{}`)
	}
	for name, want := range map[string]float64{
		"j17_index_stored_rows": 2, "j17_index_stored_entries": 2, "j17_index_lag_events": 3,
	} {
		if got := f.metric(t, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := f.metric(t, "j17_index_stored_bytes"); got < 100 {
		t.Errorf("two rows have %v bytes", got)
	}

	// What cannot be read is left out, and all else is there.
	ctx, leave := context.WithCancel(t.Context())
	leave()
	w := httptest.NewRecorder()
	f.Internal().ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/metrics", nil))
	if w.Code != 200 || strings.Contains(w.Body.String(), "j17_index_stored_rows") ||
		!strings.Contains(w.Body.String(), "\nj17_store_writable 1\n") {
		t.Errorf("%d %.2000s", w.Code, w.Body)
	}
}

// figured is a store that has counted and measured something.
type figured struct {
	httpapi.Storage

	figures store.Figures
}

func (f figured) Figures() store.Figures { return f.figures }

// TestFiguresOfTheStoreAreShown shows a different number in each metric of a database.
func TestFiguresOfTheStoreAreShown(t *testing.T) {
	f := newFixture(t, func(o *httpapi.Options) {
		o.Store = figured{o.Store, store.Figures{
			Trips: store.Trips{Write: 1, Lookup: 2, Read: 3, Other: 4}, Batches: 5, Units: 6,
			Commits: 7500 * time.Millisecond, Waits: 8, Waited: 9500 * time.Millisecond,
			Doubts: store.Doubts{Committed: 10, NotWritten: 11, Unknown: 12}, Moments: 13, MomentsRefused: 14,
			OldestSnapshot: 15500 * time.Millisecond,
			DeadRows:       store.DeadRows{Tenants: 16, Events: 17, Tags: 18, Items: 19, Commands: 20, Other: 21},
		}}
	})
	w := httptest.NewRecorder()
	f.Internal().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	for _, want := range []string{
		`trips_total{kind="write"} 1`, `trips_total{kind="lookup"} 2`, `trips_total{kind="read"} 3`,
		`trips_total{kind="other"} 4`, `batches_total 5`, `units_total 6`, `commit_seconds_total 7.5`, `waits_total 8`,
		`wait_seconds_total 9.5`, `doubts_total{outcome="committed"} 10`, `doubts_total{outcome="not_written"} 11`,
		`doubts_total{outcome="unknown"} 12`, `moments 13`, `moments_refused_total 14`, `oldest_snapshot_seconds 15.5`,
		`dead_rows{table="tenants"} 16`, `dead_rows{table="events"} 17`, `dead_rows{table="tags"} 18`,
		`dead_rows{table="items"} 19`, `dead_rows{table="commands"} 20`, `dead_rows{table="other"} 21`,
	} {
		if !strings.Contains(w.Body.String(), "\nj17_store_"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}
