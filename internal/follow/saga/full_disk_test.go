package saga_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// patient is a spec whose saga asks a desk and waits for a day for an answer that the question itself schedules, unless
// the answer is negative: then none comes, and what was done is undone.
const patient = `{
	"agent_types": ["user"],
	"aggregate_types": {
		"trip": {"events": {"was_requested": {"schema": {}, "handler": []}, "was_completed": {"schema": {}, "handler": []}, "had_failure": {"schema": {}, "handler": []}}},
		"desk": {"events": {
			"was_asked": {"schema": {}, "handler": [], "implications": [{"condition": {"gte": ["$.data.answer", 0]}, "schedule": {"delay": "5m",
				"emit": {"aggregate_type": "desk", "id": "$.key", "event_type": "was_answered", "data": {"n": "$.data.answer"}}}}]},
			"was_answered": {"schema": {}, "handler": []}, "was_told": {"schema": {}, "handler": []}, "was_undone": {"schema": {}, "handler": []}}}
	},
	"modules": {"sagas": {"trip": {
		"trigger": {"aggregate_type": "trip", "event_type": "was_requested"},
		"steps": [
			{"name": "first", "emit": {"aggregate_type": "desk", "id": "$.data.desk", "event_type": "was_told", "data": {"n": 0}},
				"compensate": {"aggregate_type": "desk", "id": "$.data.desk", "event_type": "was_undone", "data": {}}},
			{"name": "ask", "emit": {"aggregate_type": "desk", "id": "$.data.desk", "event_type": "was_asked", "data": {"answer": "$.data.answer"}},
				"await": {"aggregate_type": "desk", "event_types": ["was_answered"]}, "timeout_ms": 86400000},
			{"name": "tell", "emit": {"aggregate_type": "desk", "id": "$.data.desk", "event_type": "was_told", "data": {"n": "$prev.data.n"}}}],
		"on_complete": {"aggregate_type": "trip", "id": "$.key", "event_type": "was_completed", "data": {}},
		"on_failed": {"aggregate_type": "trip", "id": "$.key", "event_type": "had_failure", "data": {}}}}}
}`

// TestSagasAndSchedulesOnAFullDisk lets the disk run full while sagas wait for answers that are scheduled, more than
// may run at once. Nothing happens until there is room, no try is counted, and then each thing happens once, as if
// nothing had been. The disk is that of the embedded store, which alone knows how much room it has left.
func TestSagasAndSchedulesOnAFullDisk(t *testing.T) {
	h := &house{tb: t, clock: clock.NewManual(time.Unix(1_700_000_000, 0)), specs: &versions{}, most: 5}
	h.time = h.clock
	disk := vfs.NewMem()
	st := testopen.Embedded(disk).Open(t, h.clock)
	h.disk, h.store = st, st
	log := slog.New(slog.DiscardHandler)
	kit := worker.New(h.clock, log)
	later := schedule.New(schedule.Options{
		Store: st, Clock: h.clock, Logger: log, Worker: kit,
		Execute: func(ctx context.Context, t j17.Tenant, commands []*engine.Command) []engine.Outcome {
			return h.engine.ExecuteInOrder(ctx, t, commands)
		},
	})
	h.engine = engine.New(engine.Options{Store: st, Clock: h.clock, Logger: log}).Use(enginetest.Effects(
		func(ctx context.Context, d *part.Decided) (part.Effects, error) { return h.Effects(ctx, d) }, later.Effects,
	)...)
	h.Service = saga.New(saga.Options{
		Store: st, Engine: h.engine, Specs: h.specs, Clock: h.clock, Worker: kit, Logger: log, Most: h.most,
	})
	h.deploy(patient)
	settle := func() (err error) {
		for range 3 { // each may make work for the other
			err = errors.Join(err, h.Settle(t.Context()))
			for _, q := range later.Queues() {
				err = errors.Join(err, q.Settle(t.Context()))
			}
		}
		return err
	}
	until := func(writable bool, free uint64) {
		disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: 1 << 30})
		for st.Status().Writable != writable {
			h.clock.Advance(time.Minute)
			_, _ = h.try(prod, "desk/"+id(99)+"/was_told", `{}`)
		}
	}

	// Eight sagas: five run and wait, three are queued. Every other one waits in vain.
	until(true, 1<<30)
	const many = 8
	for n := range many {
		data := fmt.Sprintf(`{"desk":%q,"answer":%d}`, id(n), n)
		if n%2 == 1 {
			data = fmt.Sprintf(`{"desk":%q,"answer":-1}`, id(n))
		}
		h.post("trip/"+id(n)+"/was_requested", data)
	}
	if err := settle(); err != nil {
		t.Fatal(err)
	}

	// For a day and more there is no room: answers, time-outs and what is to be undone become due.
	until(false, 100)
	for range 30 {
		h.clock.Advance(time.Hour)
		if err := settle(); !errors.Is(err, store.ErrFull) && j17.CodeOf(err) != j17.CodeStorageFull {
			t.Fatalf("while it is full: %v", err)
		}
	}
	if n := h.statuses(prod); n[saga.Running] != 5 || n[saga.Queued] != 3 {
		t.Fatalf("while it is full there are %v", n)
	}
	pending, _, err := later.List(t.Context(), prod, []schedule.Status{schedule.Pending}, 0, 100)
	if err != nil || len(pending) != 3 || pending[0].Attempts != 0 {
		t.Fatalf("%+v, %v", pending, err)
	}

	// With room all of it goes on.
	until(true, 1<<30)
	for range 60 {
		if err := settle(); err != nil {
			t.Fatal(err)
		}
		h.clock.Advance(time.Hour)
	}
	for n := range many {
		told := fmt.Sprintf("was_told %d, was_asked, was_answered, was_told %d", 0, n)
		trip := "was_completed"
		if n%2 == 1 {
			told, trip = "was_told 0, was_asked, was_undone", "had_failure"
		}
		var got []string
		for _, e := range h.events("desk", id(n)) {
			typ, data, _ := strings.Cut(e, " ")
			if typ == "was_told" {
				typ += " " + strings.Trim(data, `{}"n:`)
			}
			got = append(got, typ)
		}
		if n >= h.most || n%2 == 1 { // for the others both the answer and the time-out were due
			if diff := cmp.Diff(told, strings.Join(got, ", ")); diff != "" {
				t.Errorf("desk %d: %s", n, diff)
			}
			if end := h.events("trip", id(n)); len(end) != 2 || !strings.HasPrefix(end[1], trip) {
				t.Errorf("trip %d: %v", n, end)
			}
		}
	}
	if left, s := h.left(),
		later.Stats(); left != nil || s.Fired != 4 || s.DeadLettered != 0 || h.Stats().DeadLettered != 0 {
		t.Errorf("what is left: %v; %+v %+v", left, s, h.Stats())
	}
}
