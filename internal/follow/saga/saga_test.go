package saga_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/command"
	"j17/internal/custody/loading"
	"j17/internal/follow/saga"
)

// TestStepsInOrder carries a saga out whose steps await nothing, and looks at what its templates see and its events
// say.
func TestStepsInOrder(t *testing.T) {
	h := newHouse(t, 0)
	first := h.post("trip/"+id(1)+"/was_requested", `{"leg":"`+id(2)+`","n":3,"fly":true}`)
	g := h.one()
	if g.Status != saga.Running || g.Trigger.StreamID != first.IDs[0].String() || g.CurrentStep() != "hotel" {
		t.Errorf("in the commit of its trigger the saga is %+v", g)
	}
	h.settle()
	g = h.one()
	trip := "trip:" + id(1)
	want := []string{
		`was_booked {"what":"hotel","of":"` + trip + `"}`, `was_booked {"what":"flight","prev":"hotel"}`,
		`was_booked {"what":"car","prev":"flight","hotel":"` + trip + `"}`,
	}
	if diff := cmp.Diff(want, h.events("leg", id(2))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(
		[]string{`was_requested {"leg":"` + id(2) + `","n":3,"fly":true}`, "was_completed {}"}, h.events("trip", id(1)),
	); diff != "" {
		t.Error(diff)
	}
	if g.Status != saga.Completed || g.CurrentStep() != "" {
		t.Errorf("the saga is %s at %q", g.Status, g.CurrentStep())
	}
	if diff := cmp.Diff([]string{"completed", "completed", "completed", "completed"}, steps(g)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(
		[]string{"started", "emitted hotel", "emitted flight", "emitted car", "emitted meter", "completed"},
		timeline(g),
	); diff != "" {
		t.Error(diff)
	}
	m := h.metadata("leg", id(2), 2)
	if diff := cmp.Diff(
		map[string]any{"saga_id": g.ID, "type": "trip", "step": "flight", "phase": "step"}, m["saga"],
	); diff != "" {
		t.Error(diff)
	}
	if m["correlation_id"] != "c-"+id(1) || fmt.Sprint(m["actor"]) != "map[id:saga_coordinator type:system_agent]" {
		t.Errorf("the metadata are %v", m)
	}
	if diff := cmp.Diff(
		map[string]any{"saga_id": g.ID, "type": "trip", "phase": "completed"}, h.metadata("trip", id(1), 2)["saga"],
	); diff != "" {
		t.Error(diff)
	}
	if left := h.left(); left != nil {
		t.Errorf("what is left: %v", left)
	}
}

// asked starts a saga that asks the desk number n, and carries it on until it has.
func (h *house) asked(n int, more string) {
	h.tb.Helper()
	h.post(fmt.Sprintf("trip/%s/was_asked", id(n)), fmt.Sprintf(`{"leg":%q,"desk":%q,"n":%d%s}`, id(n), id(n), n, more))
	h.settle()
}

// told are the events of a desk that was asked and has answered in time.
func told(n int) []string {
	return []string{fmt.Sprintf(`was_asked {"how":null,"n":%d}`, n), `was_answered {"n":7}`, `was_told {"n":7}`}
}

// TestSkipsByCondition leaves a step out, which is not what the next one sees as the one before.
func TestSkipsByCondition(t *testing.T) {
	h := newHouse(t, 0)
	h.post("trip/"+id(1)+"/was_requested", `{"leg":"`+id(2)+`","n":3}`)
	h.settle()
	g := h.one()
	if diff := cmp.Diff([]string{"completed", "skipped", "completed", "completed"}, steps(g)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(
		[]string{"started", "emitted hotel", "skipped flight", "emitted car", "emitted meter", "completed"},
		timeline(g),
	); diff != "" {
		t.Error(diff)
	}
	if got := h.events("leg", id(2)); got[1] != `was_booked {"what":"car","prev":"hotel","hotel":"trip:`+id(1)+`"}` {
		t.Errorf("the car is %s", got[1])
	}
}

// TestRefusedStepsAreUndoneInReverse fails at the last step, whose event does not fit its schema.
func TestRefusedStepsAreUndoneInReverse(t *testing.T) {
	h := newHouse(t, 0)
	h.post("trip/"+id(1)+"/was_requested", `{"leg":"`+id(2)+`","n":"three","fly":1}`)
	h.settle()
	g := h.one()
	if g.Status != saga.Failed || g.Error == nil || g.Error.Step != "meter" || g.Error.Message == "" {
		t.Fatalf("the saga is %s: %+v", g.Status, g.Error)
	}
	if diff := cmp.Diff([]string{"compensated", "completed", "compensated", "failed"}, steps(g)); diff != "" {
		t.Error(diff)
	}
	want := []string{
		"started", "emitted hotel", "emitted flight", "emitted car", "refused meter", "compensated car",
		"compensated hotel", "failed",
	}
	if diff := cmp.Diff(want, timeline(g)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{`was_undone {"what":"car"}`, `was_undone {"what":"hotel","step":"meter"}`}, h.events("leg", id(2))[3:]); diff != "" {
		t.Error(diff)
	}
	m := h.metadata("leg", id(2), 4)
	if fmt.Sprint(m["actor"]) != "map[id:saga_compensator type:system_agent]" || fmt.Sprint(m["saga"]) != "map[phase:compensation saga_id:"+g.ID+" step:car type:trip]" {
		t.Errorf("the metadata of a compensation are %v", m)
	}
	if got := h.events("trip", id(1)); len(got) != 2 || got[1] != `had_failure {"step":"meter","error":"The event was refused, because its data do not fit the schema of its type."}` {
		t.Errorf("the trip is %v", got)
	}
	if left := h.left(); left != nil {
		t.Errorf("what is left: %v", left)
	}

	// A retry fails at the same step, has nothing left to undo, and says so again.
	if _, err := h.Retry(t.Context(), prod, g.ID); err != nil {
		t.Fatal(err)
	}
	h.settle()
	if n, m := len(h.events("leg", id(2))), len(h.events("trip", id(1))); n != 5 || m != 3 {
		t.Errorf("after a retry %d and %d events", n, m)
	}
	want = append(want, "retried", "refused meter", "failed")
	if diff := cmp.Diff(want, timeline(h.one())); diff != "" {
		t.Error(diff)
	}
}

// TestRetryGoesOnFromTheFailedStep mends what a step was refused for.
func TestRetryGoesOnFromTheFailedStep(t *testing.T) {
	h := newHouse(t, 0)
	h.post("trip/"+id(1)+"/was_requested", `{"leg":"`+id(2)+`","n":"three"}`)
	h.settle()
	g := h.one()
	h.deploy(strings.Replace(shop, `"type": "integer"`, `"type": "string"`, 1))
	again, err := h.Retry(t.Context(), prod, g.ID)
	if err != nil || again.Status != saga.Running || again.Error != nil {
		t.Fatalf("the saga is %+v, %v", again, err)
	}
	if _, err := h.Retry(t.Context(), prod, g.ID); j17.CodeOf(err) != j17.CodeConflict {
		t.Errorf("a running saga is retried: %v", err)
	}
	h.settle()
	g = h.one()
	if diff := cmp.Diff([]string{"compensated", "skipped", "compensated", "completed"}, steps(g)); diff != "" {
		t.Error(diff)
	}
	if got := h.events("trip", id(1)); g.Status != saga.Completed || len(got) != 3 || got[2] != "was_completed {}" {
		t.Errorf("the saga is %s, the trip %v", g.Status, got)
	}
	if _, err := h.Retry(t.Context(), prod, "sag_zzzzzzzzzzzzzzz"); j17.CodeOf(err) != j17.CodeNotFound {
		t.Errorf("a saga that is not there is retried: %v", err)
	}
	if s := h.Stats(); s.Retried != 1 || s.Failed != 1 || s.Completed != 1 || s.Started != 1 || s.Compensations != 2 ||
		s.Events != 7 {
		t.Errorf("the counters are %+v", s)
	}
}

// TestAnswers awaits events of one aggregate, among others that are none of them.
func TestAnswers(t *testing.T) {
	h := newHouse(t, 0)
	h.asked(1, "")
	g := h.one()
	if g.CurrentStep() != "ask" || g.Steps[1].Status != saga.StepWaiting ||
		g.Steps[1].WaitingSince != h.clock.Now().Unix() {
		t.Fatalf("the saga is %+v", g)
	}
	h.post("desk/"+id(2)+"/was_answered", `{"n":2}`) // another desk
	h.post("desk/"+id(1)+"/was_told", `{}`)          // another event
	h.pass(29 * time.Second)
	if g := h.one(); g.Status != saga.Running {
		t.Fatalf("the saga is %s", g.Status)
	}
	answer := h.post("desk/"+id(1)+"/was_answered", `{"n":7}`, `{"n":8}`)
	h.settle()
	g = h.one()
	if diff := cmp.Diff(
		[]string{"started", "emitted first", "emitted ask", "answered ask", "emitted tell", "completed"}, timeline(g),
	); diff != "" {
		t.Error(diff)
	}
	if g.Timeline[3].StreamID != answer.IDs[0].String() || h.events("desk", id(1))[4] != `was_told {"n":7}` {
		t.Errorf("the answer is %+v", g.Timeline[3])
	}
	if left := h.left(); left != nil {
		t.Errorf("what is left: %v", left)
	}
}

// TestAnswerInTheCommitOfTheQuestion awaits what the step's own event implies.
func TestAnswerInTheCommitOfTheQuestion(t *testing.T) {
	h := newHouse(t, 0)
	h.asked(1, `,"how":"at once"`)
	want := []string{`was_asked {"how":"at once","n":1}`, `was_answered {"n":1}`, `was_told {"n":1}`}
	if diff := cmp.Diff(want, h.events("desk", id(1))); diff != "" {
		t.Error(diff)
	}
	if g, left := h.one(), h.left(); g.Status != saga.Completed || left != nil {
		t.Errorf("the saga is %s, and there are %v", g.Status, left)
	}
}

// TestOneEventAnswersSeveral lets three sagas wait for the same desk.
func TestOneEventAnswersSeveral(t *testing.T) {
	h := newHouse(t, 0)
	for n := range 3 {
		h.post(fmt.Sprintf("trip/%s/was_asked", id(n)), fmt.Sprintf(`{"leg":%q,"desk":%q}`, id(n), id(9)))
	}
	h.settle()
	h.post("desk/"+id(9)+"/was_answered", `{"n":7}`)
	h.settle()
	for _, g := range h.sagas() {
		if g.Status != saga.Completed {
			t.Errorf("a saga is %s", g.Status)
		}
	}
	if n, left := len(h.events("desk", id(9))), h.left(); n != 3+1+3 || left != nil {
		t.Errorf("%d events, and there are %v", n, left)
	}
}

// TestTimeouts lets answers come at the last moment, and at the moment when it is too late, whether somebody has
// noticed or not.
func TestTimeouts(t *testing.T) {
	for _, tc := range []struct {
		name    string
		after   time.Duration
		noticed bool
		want    saga.Status
	}{
		{"in time", 30*time.Second - 1, false, saga.Completed},
		{"too late", 30 * time.Second, false, saga.Failed},
		{"too late and noticed", 30 * time.Second, true, saga.Failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHouse(t, 0)
			h.asked(1, "")
			h.clock.Advance(tc.after)
			if tc.noticed {
				h.settle()
			}
			h.post("desk/"+id(1)+"/was_answered", `{"n":7}`)
			h.settle()
			h.pass(time.Hour)
			g := h.one()
			if left := h.left(); g.Status != tc.want || left != nil {
				t.Errorf("the saga is %s, and there are %v", g.Status, left)
			}
			if tc.want == saga.Completed {
				return
			}
			if diff := cmp.Diff(
				[]string{"started", "emitted first", "emitted ask", "timed_out ask", "compensated first", "failed"},
				timeline(g),
			); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"compensated", "failed", "pending"}, steps(g)); diff != "" ||
				!strings.Contains(g.Error.Message, "was_answered") {
				t.Error(diff, g.Error)
			}
			if s := h.Stats(); s.TimedOut != 1 {
				t.Errorf("%d have timed out", s.TimedOut)
			}
		})
	}
}

// TestClockJumps moves the clock over a timeout by years, and back again.
func TestClockJumps(t *testing.T) {
	h := newHouse(t, 0)
	h.asked(1, "")
	h.clock.Advance(-10 * time.Second)
	h.asked(2, "")
	h.post("desk/"+id(1)+"/was_answered", `{"n":7}`)
	h.settle()
	if diff := cmp.Diff(told(1), h.events("desk", id(1))); diff != "" {
		t.Error(diff)
	}
	h.clock.Advance(5 * 365 * 24 * time.Hour)
	h.settle()
	all := h.sagas()
	if len(all) != 1 || all[0].Status != saga.Failed { // the completed one is forgotten by now
		t.Errorf("%d sagas, the first is %s", len(all), all[0].Status)
	}
	for _, g := range all {
		for i := 1; i < len(g.Timeline); i++ {
			if g.Timeline[i].At < g.Timeline[i-1].At {
				t.Errorf("time runs backward: %+v", g.Timeline)
			}
		}
	}
}

// TestRefusedCompensations tries one three times, gives the saga up, and goes on when an operator has mended what was
// wrong.
func TestRefusedCompensations(t *testing.T) {
	h := newHouse(t, 0)
	h.asked(1, `,"undo":"wrong"`)
	h.pass(30 * time.Second)
	begin := h.clock.Now()
	for attempt := 1; attempt <= 3; attempt++ {
		g := h.one()
		n := 0
		for _, what := range timeline(g) {
			if what == "compensation_refused first" {
				n++
			}
		}
		if n != attempt {
			t.Errorf("%s after the timeout it was refused %d times", h.clock.Now().Sub(begin), n)
		}
		if attempt < 3 {
			h.pass(time.Minute)
		}
	}
	g := h.one()
	if g.Status != saga.DeadLettered || g.CurrentStep() != "first" || g.Error.Step != "ask" {
		t.Fatalf("the saga is %s at %s: %+v", g.Status, g.CurrentStep(), g.Error)
	}
	if diff := cmp.Diff([]string{"compensation_failed", "failed", "pending"}, steps(g)); diff != "" {
		t.Error(diff)
	}
	if n, left := len(h.events("trip", id(1))), h.left(); n != 1 || left != nil {
		t.Errorf("the trip has %d events, and there are %v", n, left)
	}
	h.pass(60 * 24 * time.Hour)
	h.deploy(strings.Replace(shop, `{"n": {"type": "integer"}}`, `{}`, 1))
	if _, err := h.Retry(t.Context(), prod, g.ID); err != nil {
		t.Fatal(err)
	}
	h.settle()
	if got := h.events("trip", id(1)); len(got) != 2 || got[1] != `had_failure {"step":"ask"}` {
		t.Errorf("the trip is %v", got)
	}
	g = h.one()
	if diff := cmp.Diff([]string{"compensated", "failed", "pending"}, steps(g)); diff != "" || g.Status != saga.Failed {
		t.Error(diff, g.Status)
	}
}

// TestRefusedLastEvent gives a saga up whose last event is refused, and goes on from there.
func TestRefusedLastEvent(t *testing.T) {
	h := newHouse(t, 0)
	h.deploy(strings.Replace(shop, `"was_completed": {"schema": {"type": "object"}`, `"was_completed": {"schema": {"type": "object", "required": ["n"]}`, 1))
	h.post("trip/"+id(1)+"/was_requested", `{"leg":"`+id(2)+`","n":3}`)
	h.pass(2 * time.Minute)
	g := h.one()
	if g.Status != saga.DeadLettered || g.Error == nil || g.Error.Step != "on_complete" {
		t.Fatalf("the saga is %s: %+v", g.Status, g.Error)
	}
	h.deploy(shop)
	if _, err := h.Retry(t.Context(), prod, g.ID); err != nil {
		t.Fatal(err)
	}
	h.settle()
	if g := h.one(); g.Status != saga.Completed || g.Error != nil || len(h.events("leg", id(2))) != 2 {
		t.Errorf("the saga is %s: %+v", g.Status, g.Error)
	}
}

// TestTheDefinitionStays redeploys other sagas, and none, while one waits, over restarts.
func TestTheDefinitionStays(t *testing.T) {
	h := newHouse(t, 0)
	h.asked(1, "")
	h.deploy(strings.Replace(shop, `{"name": "tell", `, `{"name": "say", `, 1))
	h.clock.Advance(time.Millisecond)
	h.work(h.disk)
	h.asked(2, "")
	h.deploy(strings.Replace(shop, `"event_type": "was_asked"},
			"steps"`, `"event_type": "was_completed"},
			"steps"`, 1))
	h.clock.Advance(time.Millisecond)
	h.work(h.disk)
	h.asked(3, "")
	for n := 1; n <= 2; n++ {
		h.post("desk/"+id(n)+"/was_answered", `{"n":7}`)
		h.settle()
		if diff := cmp.Diff(told(n), h.events("desk", id(n))); diff != "" {
			t.Error(diff)
		}
	}
	all := h.sagas()
	if len(all) != 2 || all[0].Steps[2].Name != "tell" || all[1].Steps[2].Name != "say" || all[0].Version != 1 ||
		all[1].Version != 2 {
		t.Errorf("the sagas are %+v", all)
	}
}

// TestEachTriggerStartsOnce writes triggers in a batch, and one that is refused.
func TestEachTriggerStartsOnce(t *testing.T) {
	h := newHouse(t, 0)
	h.post("trip/"+id(1)+"/was_requested", `{"leg":"`+id(2)+`","n":1}`, `{"leg":"`+id(2)+`","n":2}`)
	if _, err := h.try(prod, "trip/"+id(1)+"/was_requested", `{"leg":"`+id(2)+`"}`, "7"); err == nil {
		t.Error("an event that is no object is written")
	}
	h.settle()
	if all := h.sagas(); len(all) != 2 || len(h.events("leg", id(2))) != 4 {
		t.Errorf("%d sagas, %d events", len(all), len(h.events("leg", id(2))))
	}
}

// TestHistoryStartsNone imports a trigger, and injects one.
func TestHistoryStartsNone(t *testing.T) {
	h := newHouse(t, 0)
	l := &loading.Loader{Engine: h.engine, Store: h.store}
	file := func(timestamp string) func() (*command.FileReader, error) {
		line := `{"key":"trip:` + id(1) + `","type":"was_requested","data":{"leg":"` + id(2) + `","n":1},"metadata":{"actor":{"type":"user","id":"` + user + `"}` + timestamp + `}}`
		return func() (*command.FileReader, error) { return command.NewFileReader(strings.NewReader(line)), nil }
	}
	if _, err := l.Import(t.Context(), &loading.History{
		Tenant: prod, Open: file(`,"timestamp":1600000000`),
	}); err != nil {
		t.Fatal(err)
	}
	h.settle()
	if all := h.sagas(); len(all) != 0 {
		t.Errorf("history has started %d sagas", len(all))
	}
	if _, err := l.Inject(t.Context(), prod, "", file("")); err != nil {
		t.Fatal(err)
	}
	h.settle()
	if g := h.one(); g.Status != saga.Completed {
		t.Errorf("the saga is %s", g.Status)
	}
}

// TestWaitsUntilATime lets a step wait until a time of the trigger's data: an answer before it counts, none by then
// fails the step, a time that is over ends the step at once, and so does what is no time.
func TestWaitsUntilATime(t *testing.T) {
	now := func(h *house, ahead time.Duration) string {
		return strconv.FormatInt(h.clock.Now().Add(ahead).Unix(), 10)
	}
	for name, tc := range map[string]struct {
		due    func(h *house) string
		wait   time.Duration
		answer bool
		want   saga.Status
		error  string
	}{
		"an answer": {
			func(h *house) string { return now(h, 48*time.Hour) }, 47 * time.Hour, true, saga.Completed, "",
		},
		"a text": {
			func(h *house) string { return `"` + h.clock.Now().Add(48*time.Hour).UTC().Format(time.RFC3339) + `"` },
			47 * time.Hour, true, saga.Completed, "",
		},
		"no answer": {
			func(h *house) string { return now(h, 48*time.Hour) }, 49 * time.Hour, false, saga.Failed,
			"by the time until which",
		},
		"not yet": {
			func(h *house) string { return now(h, 48*time.Hour) }, 47 * time.Hour, false, saga.Running, "",
		},
		"over": {
			func(h *house) string { return now(h, -time.Hour) }, time.Second, false, saga.Failed,
			"by the time until which",
		},
		"no time": {
			func(*house) string { return `"soon"` }, time.Second, false, saga.Failed, "the value is no time",
		},
		"too far ahead": {
			func(h *house) string { return now(h, 4000*24*time.Hour) }, time.Second, false, saga.Failed, "ten years",
		},
		"nothing": {func(*house) string { return "null" }, time.Second, false, saga.Failed, "the value is no time"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, 0)
			h.deploy(strings.Replace(shop, `["was_answered"]}, "timeout_ms": 30000}`, `["was_answered"], "until": "$.data.due"}}`, 1))
			h.asked(1, `,"due":`+tc.due(h))
			h.pass(tc.wait)
			if tc.answer {
				h.post("desk/"+id(1)+"/was_answered", `{"n":7}`)
				h.settle()
			}
			g := h.one()
			if g.Status != tc.want || tc.error != "" && !strings.Contains(g.Error.Message, tc.error) {
				t.Errorf("the saga is %s: %+v", g.Status, g.Error)
			}
		})
	}
}
