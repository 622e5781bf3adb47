package schedule_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/follow/schedule"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// only returns the one event of prod with a status.
func (h *house) only(status schedule.Status) wire.Scheduled {
	h.tb.Helper()
	found := h.rows(prod, status)
	if len(found) != 1 {
		h.tb.Fatalf("%d events are %s", len(found), status)
	}
	return found[0]
}

// lastError is "" for none.
func lastError(e wire.Scheduled) string {
	if e.LastError == nil {
		return ""
	}
	return *e.LastError
}

// TestDeadLetters: what cannot be written is tried ten times, a minute apart, and then waits for somebody to retry or
// cancel it.
func TestDeadLetters(t *testing.T) {
	h := newHouse(t, 0)
	h.post("job/"+id(1), "was_picky", `{"n":"three"}`)
	h.post("job/"+id(2), "was_picky", `{"n":"three"}`)
	h.post("job/"+id(3), "was_picky", `{"n":3}`)
	h.advance(5 * time.Minute)
	if got := h.counts(); got != "2 pending, 1 fired" {
		t.Errorf("after one try: %s", got)
	}
	h.advance(8*time.Minute + 59*time.Second)
	for _, e := range h.rows(prod, schedule.Pending) {
		if e.Attempts != 9 || !strings.Contains(lastError(e), "validation_failed at data.n: Event data failed schema validation /data/n: ") {
			t.Errorf("%d attempts, %q", e.Attempts, lastError(e))
		}
	}
	h.advance(time.Second)
	if got := h.counts(); got != "1 fired, 2 dead_letter" || h.rows(prod, schedule.DeadLetter)[0].Attempts != 10 {
		t.Errorf("after ten tries: %s", got)
	}

	// It waits for ever, counts no more, and is cancelled by no event.
	h.advance(100 * 24 * time.Hour)
	h.post("job/"+id(1), "was_closed", `{}`)
	if got := h.counts(); got != "2 dead_letter" || h.items("scheduled.count") != 0 ||
		h.items("scheduled.waiting") > 1 {
		t.Errorf("later: %s, %d numbers, %d wait", got, h.items("scheduled.count"), h.items("scheduled.waiting"))
	}

	// Retried, it is pending again: an event cancels it, and it comes when its cause is mended.
	dead := h.rows(prod, schedule.DeadLetter)
	first := dead[1].ScheduledID
	retry := func(id string) {
		t.Helper()
		e, err := h.service.Retry(t.Context(), prod, id)
		if err != nil || e.Status != "pending" || e.Attempts != 0 || e.LastError != nil {
			t.Errorf("%+v %v", e, err)
		}
	}
	retry(first)
	h.post("job/"+id(1), "was_closed", `{}`)
	if got := h.counts(); got != "1 canceled, 1 dead_letter" {
		t.Errorf("cancelled by an event: %s", got)
	}
	retry(dead[0].ScheduledID)
	h.engine.Deploy(prod, h.compile(specText("string")), nil)
	h.advance(0)
	if got := h.counts(); got != "1 fired, 1 canceled" || len(h.events("meter/"+id(2))) != 1 {
		t.Errorf("mended: %s", got)
	}

	// What is over is over.
	for name, change := range map[string]func(string) (wire.Scheduled, error){
		"retry":  func(id string) (wire.Scheduled, error) { return h.service.Retry(t.Context(), prod, id) },
		"cancel": func(id string) (wire.Scheduled, error) { return h.service.Cancel(t.Context(), prod, id) },
	} {
		for _, id := range []string{first, dead[0].ScheduledID} {
			if _, err := change(id); j17.CodeOf(err) != j17.CodeConflict {
				t.Errorf("%s of what is over: %v", name, err)
			}
		}
		if _, err := change("sch_zzzzzzzzzzzzzzz"); j17.CodeOf(err) != j17.CodeNotFound {
			t.Errorf("%s of what never was: %v", name, err)
		}
	}
	if _, err := h.service.Cancel(t.Context(), staging, first); j17.CodeOf(err) != j17.CodeNotFound {
		t.Errorf("of another environment: %v", err)
	}
	if s := h.service.Stats(); s.DeadLettered != 2 || s.Fired != 2 || s.Canceled != 1 {
		t.Errorf("%+v", s)
	}
}

// TestADeadLetterIsCancelled: an operator gets rid of what nobody will mend.
func TestADeadLetterIsCancelled(t *testing.T) {
	h := newHouse(t, 0)
	h.post("job/"+id(1), "was_picky", `{"n":"three"}`)
	h.advance(time.Hour)
	e, err := h.service.Cancel(t.Context(), prod, h.only(schedule.DeadLetter).ScheduledID)
	if err != nil || e.Status != "canceled" || e.Attempts != 10 || h.counts() != "1 canceled" ||
		h.items("scheduled.count") != 0 {
		t.Errorf("%+v %v, %s", e, err, h.counts())
	}
	h.advance(31 * 24 * time.Hour)
	if h.items("scheduled") != 0 {
		t.Error("its row stays")
	}
}

// TestWithoutASpec: what has no spec is tried again, and comes once there is one.
func TestWithoutASpec(t *testing.T) {
	h := newHouse(t, 0)
	h.post("job/"+id(1), "was_timed", `{"n":1}`)
	h.engine.Undeploy(prod)
	h.advance(6 * time.Minute)
	if e := h.only(schedule.Pending); e.Attempts != 2 || !strings.HasPrefix(lastError(e), "no_spec_deployed: ") {
		t.Errorf("%d attempts, %q", e.Attempts, lastError(e))
	}
	h.engine.Deploy(prod, h.compile(specText("integer")), nil)
	h.advance(time.Minute)
	if h.log(1) != "[1]" {
		t.Errorf("it is %s, and %s", h.log(1), h.counts())
	}
}

// judge is custom code that refuses every event.
type judge struct{}

func (judge) Call(context.Context, []byte) ([]byte, error) {
	return []byte(`{"error":{"type":"business_rule","message":"Not today","code":"NO"}}`), nil
}

func (judge) Digest() [32]byte { return sha256.Sum256([]byte("judge")) }

// TestARefusal: what custom code of its aggregate refuses is over at once. What it has said of it may be anything, and
// is not kept.
func TestARefusal(t *testing.T) {
	h := newHouse(t, 0)
	c := h.compile(strings.Replace(specText("integer"), `[{"append": {"target": "log", "value": "$.data.n"}}]`, `{"wasm": "judge.wasm"}`, 1))
	functions := decider.Functions{}
	for _, u := range c.CodeUses() {
		functions[u.Code] = judge{}
	}
	h.engine.Deploy(prod, c, functions)
	h.post("job/"+id(1), "was_timed", `{"n":1}`)
	h.advance(5 * time.Minute)
	if e := h.only(schedule.Refused); e.Attempts != 1 || lastError(e) != "handler_rejected" {
		t.Errorf("%d attempts, %q", e.Attempts, lastError(e))
	}
	if h.items("scheduled.count") != 0 || h.service.Stats().Refused != 1 {
		t.Error("it still counts")
	}
}

// guarded is the spec of the tests with a guard that lets nothing through to meters.
func guarded() string {
	return strings.Replace(specText("integer"), `"integer"}}}, `, `"integer"}}}, "requires": [{"that": {"equals": ["$.data.n", 0]}, "message": "Paid"}], `, 1)
}

// TestARefusedEventIsRetried: what was refused is pending again when somebody retries it. It counts, an event cancels
// it, it is refused again while its cause is there, and comes when that is mended.
func TestARefusedEventIsRetried(t *testing.T) {
	h := newHouse(t, 0)
	h.engine.Deploy(prod, h.compile(guarded()), nil)
	h.post("job/"+id(1), "was_picky", `{"n":1}`)
	h.post("job/"+id(2), "was_picky", `{"n":2}`)
	h.advance(5 * time.Minute)
	refused := h.rows(prod, schedule.Refused)
	if len(refused) != 2 || lastError(refused[0]) != "requirement_failed: Paid" || h.items("scheduled.count") != 0 {
		t.Fatalf("%+v", refused)
	}
	retry := func(id string) {
		t.Helper()
		e, err := h.service.Retry(t.Context(), prod, id)
		if err != nil || e.Status != "pending" || e.Attempts != 0 || e.LastError != nil {
			t.Fatalf("%+v %v", e, err)
		}
	}

	// One is cancelled by its event, and the other one refused again.
	retry(refused[1].ScheduledID)
	retry(refused[0].ScheduledID)
	if got := h.counts(); got != "2 pending" || h.items("scheduled.count") != 3 {
		t.Errorf("retried: %s, %d numbers", got, h.items("scheduled.count"))
	}
	h.post("job/"+id(1), "was_closed", `{}`)
	h.advance(0)
	if got := h.counts(); got != "1 canceled, 1 refused" || h.only(schedule.Refused).Attempts != 1 {
		t.Errorf("while it is guarded: %s", got)
	}

	// Mended, it comes once, and is not forgotten before its time.
	h.engine.Deploy(prod, h.compile(specText("integer")), nil)
	h.advance(20 * 24 * time.Hour)
	retry(refused[0].ScheduledID)
	h.advance(20 * 24 * time.Hour)
	if got := h.counts(); got != "1 fired" || len(h.events("meter/"+id(2))) != 1 || h.items("scheduled.count") != 0 {
		t.Errorf("mended: %s", got)
	}
	if _, err := h.service.Retry(t.Context(), prod, refused[0].ScheduledID); j17.CodeOf(err) != j17.CodeConflict {
		t.Errorf("of one that has come: %v", err)
	}
}

// TestWhatTheSpecRefuses: whatever the spec forbids where the event would stand is over at the first try, with whatever
// code, and also where it forbids what the event implies. Faults are tried again.
func TestWhatTheSpecRefuses(t *testing.T) {
	const implies = `"implications": [{"emit": {"aggregate_type": "meter", "id": "$.key", "event_type": "was_taken", "data": {"n": "$.data.n"}}}], `
	for name, tc := range map[string]struct {
		source, note, n string
		status          schedule.Status
		code            string
	}{
		"a guard":                     {specText("integer"), `"requires": [{"that": {"equals": ["$.data.n", 0]}, "message": "Paid"}], `, `1`, schedule.Refused, "requirement_failed: Paid"},
		"a guard that tells the data": {specText("integer"), `"requires": [{"that": {"equals": ["$.data.n", 0]}, "message": {"$concat": ["It is ", "$.data.n"]}, "code": "paid"}], `, `17`, schedule.Refused, "requirement_failed: the spec forbids it at /aggregate_types/note/events/was_written/requires/0 (paid)"},
		"what does not exist": {
			specText("integer"), `"creates": false, `, `1`, schedule.Refused, "aggregate_not_found at key",
		},
		"the id of a read":      {specText("integer"), `"reads": {"other": {"aggregate_type": "job", "id": "$.data.n"}}, `, `"no id!"`, schedule.Refused, "invalid_identifier at data.n"},
		"no value to take":      {specText("integer"), `"unique": {"n": {"value": "$.data.n"}}, `, `{"a": 1}`, schedule.Refused, "invalid_operand"},
		"too long to take":      {specText("integer"), `"unique": {"n": {"value": "$.data.n"}}, `, `"` + strings.Repeat("x", 2000) + `"`, schedule.Refused, "validation_failed"},
		"a guard of an implied": {guarded(), implies, `1`, schedule.Refused, "requirement_failed: Paid"},
		"a fault of an implied": {specText("integer"), implies, `"three"`, schedule.Pending, "implication_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, 0)
			h.engine.Deploy(
				prod, h.compile(strings.Replace(tc.source, `"was_written": {`, `"was_written": {`+tc.note, 1)), nil,
			)
			h.post("job/"+id(1), "was_timed", `{"n":`+tc.n+`}`)
			h.advance(5 * time.Minute)
			if e := h.only(tc.status); e.Attempts != 1 || !strings.HasPrefix(lastError(e), tc.code) {
				t.Errorf("%d attempts, %q", e.Attempts, lastError(e))
			}
		})
	}
}

// TestTwoSetsOfWorkers: two servers over one store write each event once, also when one of them is frozen over the
// lease of what it has claimed.
func TestTwoSetsOfWorkers(t *testing.T) {
	h := newHouse(t, 0)
	for i := range 120 {
		h.post("job/"+id(i), "was_timed", fmt.Sprintf(`{"n":%d}`, i))
	}
	_, _, other := h.workers()
	h.clock.Advance(5 * time.Minute)

	// The first one claims and is frozen: its lease runs out.
	frozen := make(chan struct{})
	claimed := make(chan struct{})
	slow := h.frozen(claimed, frozen)
	var first, sets sync.WaitGroup
	first.Go(func() {
		if err := slow.Queues()[0].Settle(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-claimed
	h.clock.Advance(31 * time.Second)
	for _, s := range []*schedule.Service{h.service, other} {
		sets.Go(func() {
			if err := s.Queues()[0].Settle(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	sets.Wait()
	if got := h.counts(); got != "120 fired" {
		t.Error(got)
	}
	close(frozen)
	first.Wait()
	for i := range 120 {
		if h.log(i) != fmt.Sprintf("[%d]", i) {
			t.Errorf("%d: %s", i, h.log(i))
		}
	}
	if n := h.service.Stats().Fired + other.Stats().Fired + slow.Stats().Fired; n != 120 || slow.Stats().Fired != 0 {
		t.Errorf("%d were counted, %d by the frozen one", n, slow.Stats().Fired)
	}
}

// TestAProcessThatEnds: a crash at any point neither loses an event nor repeats it.
func TestAProcessThatEnds(t *testing.T) {
	for _, keep := range []bool{false, true} {
		h := newHouse(t, 0)
		for i := range 20 {
			h.post("job/"+id(i), "was_timed", fmt.Sprintf(`{"n":%d}`, i))
		}
		h.post("job/"+id(99), "was_touched", `{"n":1}`)
		h.post("job/"+id(99), "was_closed", `{}`)
		h.clock.Advance(5 * time.Minute)

		// The process ends when all is claimed, and with keep when all is written: what the disk has then is what
		// counts.
		claimed, frozen := make(chan struct{}), make(chan struct{})
		dying := h.frozen(claimed, frozen)
		if keep {
			close(frozen)
		}
		done := make(chan error, 1)
		go func() { done <- dying.Queues()[0].Settle(t.Context()) }()
		<-claimed
		if keep {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		h.data = h.data.Crashed(t)
		h.open()
		h.advance(time.Minute)
		for i := range 20 {
			if h.log(i) != fmt.Sprintf("[%d]", i) {
				t.Errorf("written %v, %d: %s", keep, i, h.log(i))
			}
		}
		if got := h.counts(); got != "20 fired, 1 canceled" {
			t.Errorf("written %v: %s", keep, got)
		}
		if !keep {
			close(frozen)
			if err := <-done; err != nil && !errors.Is(err, store.ErrClosed) { // nobody hears of it
				t.Error(err)
			}
		}
	}
}

// TestAFullDisk: nothing comes while the disk is full, no attempt is counted, and all of it comes in its order when
// there is room. The disk is that of the embedded store, which alone knows how much room it has left.
func TestAFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	h := newHouseOn(t, testopen.Embedded(disk), 0)
	free := func(bytes uint64) {
		disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30})
		h.clock.Advance(time.Hour) // until the store has noticed
	}
	free(1 << 30)
	h.post("job/"+id(1), "was_timed", `{"n":1}`, `{"n":2}`)
	h.post("job/"+id(2), "was_picky", `{"n":"three"}`)
	disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 100, TotalBytes: 1 << 30})
	full := func() bool { return !h.store.Status().Writable }
	for !full() {
		h.clock.Advance(time.Minute)
		_ = h.do(prod, "job/"+id(3), "was_closed", `{}`)
	}
	h.clock.Advance(6 * time.Minute)
	if err := h.service.Queues()[0].Settle(t.Context()); !errors.Is(err, store.ErrFull) {
		t.Errorf("while it is full: %v", err)
	}
	if _, err := h.service.Cancel(
		t.Context(), prod, h.rows(prod, schedule.Pending)[0].ScheduledID,
	); j17.CodeOf(err) != j17.CodeStorageFull {
		t.Errorf("a change: %v", err)
	}
	for _, e := range h.rows(prod, schedule.Pending) {
		if e.Attempts != 0 {
			t.Errorf("%d attempts", e.Attempts)
		}
	}
	free(1 << 30)
	for full() {
		h.clock.Advance(time.Minute)
		_ = h.do(prod, "job/"+id(3), "was_closed", `{}`)
	}
	h.advance(2 * time.Minute)
	if h.log(1) != "[1,2]" {
		t.Errorf("with room: %s, %s", h.log(1), h.counts())
	}
}

// TestWhatIsStillBuilt: while the server builds what a write needs, an event says nothing of itself: no attempt is
// counted, and it comes when that is built.
func TestWhatIsStillBuilt(t *testing.T) {
	h := newHouse(t, 0)
	h.post("job/"+id(1), "was_timed", `{"n":1}`)
	h.fault = j17.Errorf(j17.CodeIndexNotReady, "Who holds values is not known yet.")
	h.advance(time.Hour)
	if e := h.only(schedule.Pending); e.Attempts != 0 || e.LastError != nil {
		t.Errorf("%d attempts, %q", e.Attempts, lastError(e))
	}
	h.fault = nil
	h.advance(10 * time.Minute)
	if h.log(1) != "[1]" {
		t.Errorf("when it is built: %s, %s", h.log(1), h.counts())
	}
}

// TestAClockThatJumps: far ahead, everything comes at once and in its order; back, nothing comes twice.
func TestAClockThatJumps(t *testing.T) {
	h := newHouse(t, 0)
	begin := h.clock.Now()
	h.post("job/"+id(1), "was_touched", `{"n":10}`)
	h.post("job/"+id(1), "was_timed", `{"n":5}`)
	h.clock.Advance(1000 * time.Hour)
	h.advance(0)
	if h.log(1) != "[5,10]" {
		t.Errorf("ahead: %s", h.log(1))
	}
	h.post("job/"+id(2), "was_timed", `{"n":1}`)
	h.clock.Set(begin)
	h.post("job/"+id(2), "was_timed", `{"n":2}`)
	h.advance(time.Hour)
	if h.log(2) != "" || h.log(1) != "[5,10]" {
		t.Errorf("back: %s", h.log(2))
	}
	h.clock.Set(begin.Add(1001 * time.Hour))
	h.advance(0)
	if h.log(2) != "[1,2]" {
		t.Errorf("in the end: %s", h.log(2))
	}
}

// TestAnErasedRow: what is left of an event whose row was erased ends by itself.
func TestAnErasedRow(t *testing.T) {
	h := newHouse(t, 0)
	h.post("job/"+id(1), "was_timed", `{"n":1}`)
	key := j17.Key{Type: "job", ID: id(1)}
	held, err := store.HeldBy(t.Context(), h.store, prod, part.Declared(h.service.Part().Spaces), key)
	if err != nil || len(held) != 1 {
		t.Fatalf("%v %v", held, err)
	}
	if err := h.store.Write(t.Context(), prod, []store.Side{
		{Op: store.Delete, Space: held[0].Space, Key: held[0].Key},
	}); err != nil {
		t.Fatal(err)
	}
	h.advance(5 * time.Minute)
	if h.log(1) != "" || h.counts() != "" || h.items("scheduled.count") != 0 || h.items("scheduled.id") != 0 ||
		h.items("scheduled.pending") != 0 {
		t.Errorf("%s %s", h.log(1), h.counts())
	}
}

// TestWhatForksComesToItsLimit lets events schedule two of their kind each, until there is no room: those that find
// none have tried.
func TestWhatForksComesToItsLimit(t *testing.T) {
	h := newHouse(t, 0)
	h.post("job/"+id(1), "was_forked", `{}`)
	for range 6 {
		h.advance(5 * time.Minute)
	}
	refused := 0
	rows := h.rows(prod, schedule.Pending)
	for _, e := range rows {
		if e.Attempts > 0 {
			refused++
			if !strings.Contains(lastError(e), "schedule_limit") {
				t.Errorf("%d attempts, %q", e.Attempts, lastError(e))
			}
		}
	}
	if len(rows) != schedule.MaxPerAggregate || refused == 0 {
		t.Errorf("%d are pending, of which %d have tried", len(rows), refused)
	}
}

// TestPagesWithGoneRows reads pages one event at a time, while the rows of some of them are gone: each of the others is
// there once.
func TestPagesWithGoneRows(t *testing.T) {
	h := newHouse(t, 0)
	for n := range 5 {
		h.post("job/"+id(n), "was_timed", fmt.Sprintf(`{"n":%d}`, n))
	}
	for _, n := range []int{4, 1} {
		h.erase("job:" + id(n))
	}
	var got []string
	for offset, pages := 0, 0; pages < 10; pages++ {
		page, next, err := h.service.List(t.Context(), prod, schedule.Statuses(), offset, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			got = append(got, string(e.Emit.Data))
		}
		if offset = next; next == 0 {
			break
		}
	}
	if diff := cmp.Diff([]string{`{"n":3}`, `{"n":2}`, `{"n":0}`}, got); diff != "" {
		t.Error(diff)
	}
}

// erase removes the rows of what an aggregate has scheduled.
func (h *house) erase(key string) {
	h.tb.Helper()
	items, err := h.store.Scan(h.tb.Context(), prod, "scheduled", store.Prefix(key+"/"), 100)
	if err != nil || len(items) == 0 {
		h.tb.Fatal(len(items), err)
	}
	for _, item := range items {
		if err := h.store.Write(h.tb.Context(), prod, []store.Side{
			{Op: store.Delete, Space: "scheduled", Key: item.Key},
		}); err != nil {
			h.tb.Fatal(err)
		}
	}
}

// TestAnErasedRowStaysErased erases the row of an event while a try of it is under way that fails.
func TestAnErasedRowStaysErased(t *testing.T) {
	h := newHouse(t, 0)
	h.post("job/"+id(1), "was_picky", `{"n":"much"}`) // which the meter refuses
	_, _, s := h.workersWith(func() { h.erase("job:" + id(1)) })
	h.clock.Advance(5 * time.Minute)
	if err := s.Queues()[0].Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.items("scheduled"); n != 0 {
		t.Errorf("%d rows", n)
	}
	h.advance(2 * time.Minute)
	if h.counts() != "" || h.items("scheduled.count") != 0 || h.items("scheduled.pending") != 0 {
		t.Error(h.counts())
	}
}

// slow is custom code that takes its time, and takes every event.
type slow struct {
	clock *clock.Manual
	takes time.Duration
}

func (s slow) Call(ctx context.Context, _ []byte) ([]byte, error) {
	s.clock.Advance(s.takes)
	synctest.Wait() // whose time is over by that is told
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return []byte(`{"state":{}}`), nil
}

func (slow) Digest() [32]byte { return sha256.Sum256([]byte("slow")) }

// TestSlowCode: many events are due at once whose custom code takes longer for all of them than one try may: they come
// nevertheless.
func TestSlowCode(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		h := newHouse(t, 0)
		c := h.compile(strings.Replace(specText("integer"), `[{"append": {"target": "log", "value": "$.data.n"}}]`, `{"wasm": "slow.wasm"}`, 1))
		functions := decider.Functions{}
		for _, u := range c.CodeUses() {
			functions[u.Code] = slow{clock: h.clock, takes: 200 * time.Millisecond}
		}
		h.engine.Deploy(prod, c, functions)
		const many = 300
		for n := range many {
			h.post("job/"+id(n), "was_timed", `{"n":1}`)
		}
		h.advance(time.Hour)
		if got := h.counts(); got != fmt.Sprint(many, " fired") {
			t.Error(got)
		}
	})
}

// TestCodeThatTakesLongerThanATry: an event whose custom code takes longer than a try may is tried so many times and
// given up with the reason. Those behind it come nevertheless.
func TestCodeThatTakesLongerThanATry(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		h := newHouse(t, 0)
		c := h.compile(strings.Replace(specText("integer"), `[{"append": {"target": "log", "value": "$.data.n"}}]`, `{"wasm": "slow.wasm"}`, 1))
		functions := decider.Functions{}
		for _, u := range c.CodeUses() {
			functions[u.Code] = &slowFirst{slow: slow{clock: h.clock, takes: 40 * time.Second}, of: id(1)}
		}
		h.engine.Deploy(prod, c, functions)
		for n := range 3 {
			h.post("job/"+id(n+1), "was_timed", `{"n":1}`)
		}
		h.advance(2 * time.Hour)
		if got := h.counts(); got != "2 fired, 1 dead_letter" {
			t.Fatal(got)
		}
		if e := h.only(schedule.DeadLetter); e.Attempts != 10 || !strings.Contains(lastError(e), "within 30 seconds") {
			t.Errorf("%d attempts, %q", e.Attempts, lastError(e))
		}
	})
}

// slowFirst is slow where an event is about one aggregate, and takes no time for others.
type slowFirst struct {
	slow
	of string
}

// Call implements custom code.
func (s *slowFirst) Call(ctx context.Context, in []byte) ([]byte, error) {
	if strings.Contains(string(in), s.of) {
		return s.slow.Call(ctx, in)
	}
	return []byte(`{"state":{}}`), nil
}
