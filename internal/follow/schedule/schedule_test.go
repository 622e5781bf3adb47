package schedule_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/follow/schedule"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const (
	prod    = j17.Tenant("ins_test/prod")
	staging = j17.Tenant("ins_test/staging")
	correct = "0193d1ee-0000-7000-8000-00000000c0de"
)

// laterSpec has what the tests schedule. The %s is the schema of what a meter takes.
const laterSpec = `{"agent_types": ["user"], "aggregate_types": {
	"job": {"events": {
		"was_timed": {"schema": {}, "handler": [], "implications": [
			{"schedule": {"delay": "5m", "emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written", "data": {"n": "$.data.n"}}}}]},
		"was_touched": {"schema": {}, "handler": [], "implications": [
			{"schedule": {"delay": "10m", "emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written", "data": {"n": "$.data.n"}},
				"cancel_on": [{"aggregate_type": "job", "id": "$.key", "event_type": "was_touched"}, {"aggregate_type": "job", "id": "$.key", "event_type": "was_closed"}]}}]},
		"was_closed": {"schema": {}, "handler": []},
		"was_finished": {"schema": {}, "handler": [], "implications": [
			{"emit": {"aggregate_type": "job", "id": "$.key", "event_type": "was_closed"}}]},
		"was_shared": {"schema": {}, "handler": [], "implications": [
			{"schedule": {"delay": "1h", "emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written", "data": {"n": 0}},
				"cancel_on": [{"aggregate_type": "hall", "id": "global", "event_type": "was_locked"}]}}]},
		"was_picky": {"schema": {}, "handler": [], "implications": [
			{"schedule": {"delay": "5m", "emit": {"aggregate_type": "meter", "id": "$.key", "event_type": "was_taken", "data": {"n": "$.data.n"}},
				"cancel_on": [{"aggregate_type": "job", "id": "$.key", "event_type": "was_closed"}]}}]},
		"was_chained": {"schema": {}, "handler": [], "implications": [
			{"schedule": {"delay": "5m", "emit": {"aggregate_type": "job", "id": "$.key", "event_type": "was_finished"}}}]},
		"was_forked": {"schema": {}, "handler": [], "implications": [
			{"schedule": {"delay": "5m", "emit": {"aggregate_type": "job", "id": "$.key", "event_type": "was_forked"}}},
			{"schedule": {"delay": "5m", "emit": {"aggregate_type": "job", "id": "$.key", "event_type": "was_forked"}}}]},
		"was_greedy": {"schema": {}, "handler": [], "implications": [%s]},
		"was_repeated": {"schema": {}, "handler": [], "implications": [
			{"schedule": {"delay": "7d", "emit": {"aggregate_type": "job", "id": "$.key", "event_type": "was_repeated"},
				"cancel_on": [{"aggregate_type": "job", "id": "$.key", "event_type": "was_repeated"}]}}]}}},
	"hall": {"events": {"was_locked": {"schema": {}, "handler": []}}},
	"note": {"events": {"was_written": {"schema": {}, "handler": [{"append": {"target": "log", "value": "$.data.n"}}]}}},
	"meter": {"events": {"was_taken": {"schema": {"type": "object", "properties": {"n": {"type": "%s"}}}, "handler": []}}}}}`

func specText(number string) string {
	greedy := strings.Repeat(`{"schedule": {"delay": "5m", "emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written", "data": {"n": 1}}}},`, 100)
	return fmt.Sprintf(laterSpec, strings.TrimSuffix(greedy, ","), number)
}

// house is an engine with scheduled events, at a time that stands still.
type house struct {
	tb      testing.TB
	data    *testopen.Data
	clock   *clock.Manual
	store   store.Store
	kit     *worker.Kit
	engine  *engine.Engine
	service *schedule.Service
	most    int
	// fault, if not nil, is why nothing can be written.
	fault error
}

func newHouse(tb testing.TB, most int) *house {
	tb.Helper()
	return newHouseOn(tb, testopen.NewData(tb), most)
}

func newHouseOn(tb testing.TB, data *testopen.Data, most int) *house {
	tb.Helper()
	h := &house{tb: tb, data: data, clock: clock.NewManual(time.Unix(1_700_000_000, 5)), most: most}
	h.open()
	return h
}

func (h *house) open() {
	h.tb.Helper()
	h.store = h.data.Open(h.tb, h.clock)
	h.kit, h.engine, h.service = h.workers()
}

// workers returns a set of workers over the store.
func (h *house) workers() (*worker.Kit, *engine.Engine, *schedule.Service) {
	h.tb.Helper()
	return h.workersWith(nil)
}

// frozen returns workers that tell what they have claimed and then wait before they write it.
func (h *house) frozen(claimed chan<- struct{}, frozen <-chan struct{}) *schedule.Service {
	h.tb.Helper()
	var once sync.Once
	_, _, s := h.workersWith(func() {
		once.Do(func() { close(claimed) })
		<-frozen
	})
	return s
}

// workersWith returns a set of workers that call before, if it is not nil, when they have claimed something.
func (h *house) workersWith(before func()) (*worker.Kit, *engine.Engine, *schedule.Service) {
	h.tb.Helper()
	log := slog.New(slog.DiscardHandler)
	kit := worker.New(h.clock, log)
	var e *engine.Engine
	s := schedule.New(schedule.Options{
		Store: h.store, Clock: h.clock, Logger: log, Worker: kit, MaxPerInstance: h.most,
		Execute: func(ctx context.Context, t j17.Tenant, commands []*engine.Command) []engine.Outcome {
			if before != nil {
				before()
			}
			return e.ExecuteInOrder(ctx, t, commands)
		},
	})
	e = engine.New(engine.Options{Store: h.store, Clock: h.clock, Logger: log}).Use(enginetest.Effects(
		s.Effects, func(context.Context, *part.Decided) (part.Effects, error) { return part.Effects{}, h.fault },
	)...)
	for _, t := range []j17.Tenant{prod, staging} {
		e.Deploy(t, h.compile(specText("integer")), nil)
	}
	return kit, e, s
}

func (h *house) compile(text string) *spec.Compiled {
	h.tb.Helper()
	c, found := spec.Compile([]byte(text))
	if c == nil {
		h.tb.Fatalf("the spec is not valid: %+v", found)
	}
	return c
}

// id is the id of the aggregate with a number.
func id(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-000000000000", n) }

// do writes events of one type, each with its data; "type|data" is of another type.
func (h *house) do(t j17.Tenant, aggregate, event string, data ...string) error {
	typ, id, _ := strings.Cut(aggregate, "/")
	c := &engine.Command{Tenant: t, Command: command.Command{
		Writes: []command.Write{{Type: typ, ID: id, Batch: len(data) > 1}}, Actor: j17.Agent{Type: "user", ID: id},
		Cause: command.Cause{CorrelationID: correct},
	}}
	for _, text := range data {
		name := event
		if other, rest, ok := strings.Cut(text, "|"); ok {
			name, text = other, rest
		}
		v, err := value.ParseString(text)
		if err != nil {
			return err
		}
		c.Writes[0].Events = append(c.Writes[0].Events, command.Event{Type: name, Data: v})
	}
	_, err := h.engine.Execute(h.tb.Context(), c)
	return err
}

func (h *house) post(aggregate, event string, data ...string) {
	h.tb.Helper()
	if err := h.do(prod, aggregate, event, data...); err != nil {
		h.tb.Fatalf("%s %s: %v", aggregate, event, err)
	}
}

// advance moves the clock from one moment at which something is due to the next.
func (h *house) advance(by time.Duration) {
	h.tb.Helper()
	for end := h.clock.Now().Add(by); ; {
		next := end
		for _, q := range h.service.Queues() {
			if err := q.Settle(h.tb.Context()); err != nil {
				h.tb.Fatal(err)
			}
			at, err := q.NextDue(h.tb.Context())
			if err != nil {
				h.tb.Fatal(err)
			}
			if at.After(h.clock.Now()) && at.Before(next) {
				next = at
			}
		}
		if !h.clock.Now().Before(end) {
			return
		}
		h.clock.Set(next)
	}
}

// rows lists events of an environment, the latest first.
func (h *house) rows(t j17.Tenant, of ...schedule.Status) []wire.Scheduled {
	h.tb.Helper()
	page, next, err := h.service.List(h.tb.Context(), t, of, 0, 100_000)
	if err != nil || next != 0 {
		h.tb.Fatal(err, next)
	}
	return page
}

// counts tells how many events have each status.
func (h *house) counts() string {
	h.tb.Helper()
	var out []string
	for _, status := range schedule.Statuses() {
		if n := len(h.rows(prod, status)); n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, status))
		}
	}
	return strings.Join(out, ", ")
}

// log returns what has come to a note.
func (h *house) log(n int) string {
	h.tb.Helper()
	s, err := h.engine.Load(h.tb.Context(), prod, "note", id(n), engine.LoadOptions{})
	if j17.CodeOf(err) == j17.CodeAggregateNotFound {
		return ""
	}
	if err != nil {
		h.tb.Fatal(err)
	}
	return s.Data.Get("log").String()
}

// events returns the events of an aggregate.
func (h *house) events(aggregate string) (events []*j17.Event) {
	h.tb.Helper()
	typ, id, _ := strings.Cut(aggregate, "/")
	all, err := h.engine.Events(h.tb.Context(), prod, typ, id, j17.StreamID{}, 1000)
	if err != nil {
		h.tb.Fatal(err)
	}
	for ev, err := range all {
		if err != nil {
			h.tb.Fatal(err)
		}
		kept := *ev
		kept.Metadata = slices.Clone(ev.Metadata)
		events = append(events, &kept)
	}
	return events
}

// items counts what a space holds.
func (h *house) items(space store.Space) int {
	h.tb.Helper()
	items, err := h.store.Scan(h.tb.Context(), prod, space, store.Range{}, 1_000_000)
	if err != nil {
		h.tb.Fatal(err)
	}
	return len(items)
}

// TestAnEventComes follows an event from its schedule to the end of what is kept of it.
func TestAnEventComes(t *testing.T) {
	h := newHouse(t, 0)
	h.post("job/"+id(1), "was_timed", `{"n":1.50}`)
	at := h.clock.Now()
	pending := h.rows(prod, schedule.Pending)
	if len(pending) != 1 {
		t.Fatalf("pending: %+v", pending)
	}
	due := at.Add(5 * time.Minute).Format(time.RFC3339)
	want := wire.Scheduled{
		ScheduledID: pending[0].ScheduledID, Status: "pending", FireAt: due, CancelOn: []wire.EventName{},
		CreatedAt: at.Format(time.RFC3339),
		Emit: wire.Emit{
			EventName: wire.EventName{AggregateType: "note", ID: id(1), EventType: "was_written"},
			Data:      json.RawMessage(`{"n":1.50}`),
		},
		ImpliedBy: wire.Cause{Key: "job:" + id(1), EventType: "was_timed"},
	}
	if diff := cmp.Diff(want, pending[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// Not a moment before its time, and at it; no other environment has anything to do with it.
	h.advance(5*time.Minute - time.Second)
	if got := h.log(1); got != "" || len(h.rows(staging, schedule.Statuses()...)) != 0 {
		t.Errorf("before its time: %s", got)
	}
	h.advance(time.Second)
	if got := h.log(1); got != "[1.50]" || h.counts() != "1 fired" {
		t.Errorf("it is %s, and %s", got, h.counts())
	}
	metadata := string(h.events("note/" + id(1))[0].Metadata)
	wantMetadata := `{"actor":{"type":"system_agent","id":"event_scheduler"},"correlation_id":"` + correct + `","implied_by":{"key":"job:` + id(1) +
		`","event_type":"was_timed","depth":1},"scheduled":{"scheduled_id":"` + pending[0].ScheduledID + `","fire_at":"` + due + `"},"timestamp":1700000300}`
	if metadata != wantMetadata {
		t.Errorf("metadata\n%s, want\n%s", metadata, wantMetadata)
	}
	if diff := cmp.Diff(schedule.Stats{Created: 1, Fired: 1}, h.service.Stats()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// It is kept for 30 days, and nothing of it stays after that.
	h.advance(30*24*time.Hour - 5*time.Minute)
	if h.counts() != "1 fired" {
		t.Errorf("after 30 days: %s", h.counts())
	}
	h.advance(2 * time.Hour)
	for _, space := range []store.Space{
		"scheduled", "scheduled.id", "scheduled.count", "scheduled.pending", "scheduled.fired", "scheduled.waiting",
	} {
		if n := h.items(space); n != 0 {
			t.Errorf("%s has %d items", space, n)
		}
	}
}

// TestTheOrderOfScheduling: what is due at the same second comes in the order in which it was scheduled, whatever the
// order of ids and however many it is, and what an event brings about names it.
func TestTheOrderOfScheduling(t *testing.T) {
	h := newHouse(t, 0)
	var want []string
	for i := range 300 {
		n := fmt.Sprint(i)
		h.post("job/"+id(1000+i), "was_timed", `{"n":`+n+`}`)
		want = append(want, n)
	}
	h.post("job/"+id(1), "was_timed", `{"n":1}`, `{"n":2}`, `{"n":3}`)
	h.post("job/"+id(1), "was_chained", `{}`)
	h.advance(5 * time.Minute)
	if got := h.log(1); got != "[1,2,3]" {
		t.Errorf("of one batch: %s", got)
	}
	var got []string
	for ev, err := range h.store.ReadFeed(t.Context(), prod, j17.StreamID{}, 10_000) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "was_written" && len(got) < 300 {
			got = append(got, strings.Trim(string(ev.Data), `{}"n:`))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	events := h.events("job/" + id(1))
	last := events[len(events)-1]
	if by := `"implied_by":{"key":"job:` + id(1) + `","event_type":"was_finished","depth":1}`; last.Type != "was_closed" || !strings.Contains(string(last.Metadata), by) {
		t.Errorf("%s %s", last.Type, last.Metadata)
	}
	// A page of the list is the latest first, with those after it behind.
	first, next, err := h.service.List(t.Context(), prod, schedule.Statuses(), 0, 2)
	second, _, again := h.service.List(t.Context(), prod, []schedule.Status{schedule.Fired}, 2, 2)
	if err != nil || again != nil || next != 2 || first[0].ImpliedBy.EventType != "was_chained" ||
		string(first[1].Emit.Data) != `{"n":3}` || string(second[0].Emit.Data) != `{"n":2}` {
		t.Errorf("%v %v: %+v %+v", err, again, first, second)
	}
}

// TestWhatCancels: an event cancels what was scheduled before it, in its own commit too, and nothing that it schedules
// itself.
func TestWhatCancels(t *testing.T) {
	h := newHouse(t, 0)
	one := "job/" + id(1)
	h.post(one, "was_touched", `{"n":1}`)
	h.post("job/"+id(2), "was_touched", `{"n":1}`)
	h.post(one, "was_touched", `{"n":2}`)
	if got := h.counts(); got != "2 pending, 1 canceled" {
		t.Errorf("of two touches: %s", got)
	}
	h.post(one, "", `was_touched|{"n":3}`, `was_touched|{"n":4}`, `was_closed|{}`, `was_touched|{"n":5}`)
	if got := h.counts(); got != "2 pending, 4 canceled" {
		t.Errorf("of a batch: %s", got)
	}
	h.post(one, "was_finished", `{}`) // what closes it is implied
	if got := h.counts(); got != "1 pending, 5 canceled" {
		t.Errorf("of an implied event: %s", got)
	}
	h.post(one, "was_touched", `{"n":6}`)
	h.post(one, "was_chained", `{}`)
	h.advance(5 * time.Minute) // and now it was scheduled itself
	if got := h.counts(); got != "1 pending, 1 fired, 6 canceled" {
		t.Errorf("of a scheduled event: %s", got)
	}
	h.advance(time.Hour)
	if h.log(1) != "" || h.log(2) != "[1]" {
		t.Errorf("%s and %s have come", h.log(1), h.log(2))
	}

	// What comes and is cancelled by its own kind goes on.
	h.post("job/"+id(3), "was_repeated", `{}`)
	h.advance(15 * 24 * time.Hour)
	if n := len(h.events("job/" + id(3))); n != 3 {
		t.Errorf("%d repetitions", n)
	}
	if stats := h.service.Stats(); stats.Created != 8+3 || stats.Canceled != 6 {
		t.Errorf("%+v", stats)
	}
}

// TestWhatCancelsOutlivesItsSpec: what was scheduled under another spec is cancelled as that spec said, after a restart
// too.
func TestWhatCancelsOutlivesItsSpec(t *testing.T) {
	h := newHouse(t, 0)
	h.post("job/"+id(1), "was_touched", `{"n":1}`)
	h.post("job/"+id(2), "was_touched", `{"n":1}`)
	plain := dropCancel(specText("integer"))
	h.engine.Deploy(prod, h.compile(plain), nil)
	h.post("job/"+id(1), "was_closed", `{}`)
	if got := h.counts(); got != "1 pending, 1 canceled" {
		t.Errorf("under another spec: %s", got)
	}
	h.open()
	h.engine.Deploy(prod, h.compile(plain), nil)
	h.post("job/"+id(2), "was_closed", `{}`)
	if got := h.counts(); got != "2 canceled" {
		t.Errorf("after a restart: %s", got)
	}
}

// dropCancel returns a spec without what cancels anything.
func dropCancel(text string) string {
	for {
		at := strings.Index(text, `"cancel_on"`)
		if at < 0 {
			return text
		}
		from := strings.LastIndexByte(text[:at], ',')
		text = text[:from] + text[at+strings.IndexByte(text[at:], ']')+1:]
	}
}

// TestOlderGenerations: what waits when types change their names and shapes is cancelled by what they have become, and
// comes in the shape of its time.
func TestOlderGenerations(t *testing.T) {
	h := newHouse(t, 1000)
	for n := range 3 {
		h.post("job/"+id(n), "was_touched", fmt.Sprintf(`{"n":%d}`, n))
	}

	// was_closed becomes was_ended, and the number of what is written a text.
	text := strings.Replace(specText("integer"), `"was_closed": {"schema": {}, "handler": []},`,
		`"was_ended": {"schema": {}, "handler": []}, "was_closed": {"schema": {}, "retired": {"as": "was_ended", "generation": 1}},`, 1)
	text = strings.ReplaceAll(text, `"event_type": "was_closed"`, `"event_type": "was_ended"`)
	text = strings.Replace(text, `"was_written": {"schema": {}, `, `"was_written": {
		"generations": {"1": {"schema": {}, "upcast": {"set": {"target": "n", "value": {"$concat": ["number ", "@.n"]}}}, "closed": true}},
		"schema": {"type": "object", "properties": {"n": {"type": "string"}}}, `, 1)
	h.engine.Deploy(prod, h.compile(text), nil)
	h.post("job/"+id(1), "was_ended", `{}`)
	if got := h.counts(); got != "2 pending, 1 canceled" {
		t.Fatal(got)
	}
	h.advance(10 * time.Minute)
	if got := h.counts(); got != "2 fired, 1 canceled" {
		t.Error(got)
	}
	if got := h.log(2); got != `["number 2"]` {
		t.Error(got)
	}
}

// TestLimits: the numbers of what is pending are exact, and what would be more refuses its whole write.
func TestLimits(t *testing.T) {
	h := newHouse(t, 150)
	one := "job/" + id(1)
	limit := func(err error, want int) {
		t.Helper()
		e, ok := errors.AsType[*j17.Error](err)
		raw := []byte(nil)
		if ok {
			raw, _ = json.Marshal(e.Details)
		}
		if j17.CodeOf(err) != j17.CodeScheduleLimit || string(raw) != fmt.Sprintf(`{"limit":%d}`, want) ||
			!strings.Contains(err.Error(), fmt.Sprint(want)) {
			t.Errorf("%v %s, want the limit %d", err, raw, want)
		}
	}
	h.post(one, "was_greedy", `{}`)
	limit(h.do(prod, one, "was_timed", `{"n":1}`), 100)
	limit(h.do(prod, "job/"+id(2), "was_greedy", `{}`, `{}`), 100)
	if n := len(h.events("job/" + id(1))); n != 1 {
		t.Errorf("%d events", n)
	}

	// Of an instance, over its environments.
	for i := range 20 {
		if err := h.do(staging, "job/"+id(i), "was_timed", `{"n":1}`); err != nil {
			t.Fatal(err)
		}
	}
	limit(h.do(prod, "job/"+id(2), "was_greedy", `{}`), 150)
	for i := range 30 {
		h.post("job/"+id(100+i), "was_touched", `{"n":1}`)
	}
	limit(h.do(prod, "job/"+id(2), "was_timed", `{"n":1}`), 150)
	h.post("job/"+id(100), "was_touched", `{"n":2}`) // one for one

	// Only what is pending counts.
	if _, err := h.service.Cancel(t.Context(), prod, h.rows(prod, schedule.Pending)[0].ScheduledID); err != nil {
		t.Fatal(err)
	}
	h.post("job/"+id(2), "was_timed", `{"n":1}`)
	limit(h.do(prod, "job/"+id(2), "was_timed", `{"n":1}`), 150)
	h.advance(11 * time.Minute)
	h.post(one, "was_greedy", `{}`)
	if n := h.items("scheduled.count"); n != 2 {
		t.Errorf("%d numbers are kept", n)
	}
}

// TestWritersAtOnce: many who schedule and cancel at the same time leave exact numbers, and nothing that is missed.
func TestWritersAtOnce(t *testing.T) {
	h := newHouse(t, 0)
	var done sync.WaitGroup
	var mu sync.Mutex
	refused := 0
	for i := range 8 {
		done.Go(func() {
			for n := range 20 {
				err := h.do(prod, "job/"+id(1), "was_timed", fmt.Sprintf(`{"n":%d}`, n))
				mu.Lock()
				if j17.CodeOf(err) == j17.CodeScheduleLimit {
					refused++
				} else if err != nil {
					t.Error(err)
				}
				mu.Unlock()
				if err := h.do(prod, "job/"+id(2+i%2), "was_touched", `{"n":1}`); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	h.advance(0)
	pending := h.rows(prod, schedule.Pending)
	if len(pending) != 102 || refused != 60 {
		t.Errorf("%d are pending, %d were refused", len(pending), refused)
	}
	if got := h.counts(); got != "102 pending, 158 canceled" {
		t.Error(got)
	}
	item, err := h.store.Get(t.Context(), prod, "scheduled.count", "all")
	if err != nil || string(item.Value) != "102" {
		t.Errorf("the number is %s: %v", item.Value, err)
	}
}

// TestALowerLimit: where more is pending than may be, such as under a limit that is lower than it was, nothing is
// added, and what comes and is scheduled again by that goes on.
func TestALowerLimit(t *testing.T) {
	h := newHouse(t, 3)
	for n := range 3 {
		h.post("job/"+id(n), "was_repeated", `{}`)
	}
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	h.most = 2
	h.open()
	h.advance(15 * 24 * time.Hour)
	if got := h.counts(); got != "3 pending, 6 fired" {
		t.Errorf("under a lower limit: %s", got)
	}
	if err := h.do(prod, "job/"+id(4), "was_timed", `{"n":1}`); j17.CodeOf(err) != j17.CodeScheduleLimit {
		t.Errorf("another one: %v", err)
	}

	// The same where another environment has all of it.
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	h.most = 10
	h.open()
	for n := range 7 {
		if err := h.do(staging, "job/"+id(n), "was_repeated", `{}`); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	h.most = 5
	h.open()
	h.advance(7 * 24 * time.Hour)
	if got := h.counts(); got != "3 pending, 9 fired" {
		t.Errorf("beside another environment: %s", got)
	}
}
