package schedule_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/follow/schedule"
)

// timedSpec schedules at times of the data.
const timedSpec = `{"agent_types": ["user"], "aggregate_types": {
	"loan": {"events": {
		"was_made": {"schema": {}, "handler": [], "implications": [{"schedule": {"at": "$.data.due",
			"emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written", "data": {"n": 1}},
			"cancel_on": [{"aggregate_type": "loan", "id": "$.key", "event_type": "was_returned"}]}}]},
		"was_warned": {"schema": {}, "handler": [], "implications": [{"schedule": {"at": "$.data.due?", "before": "24h",
			"emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written", "data": {"n": 2}}}}]},
		"was_chased": {"schema": {}, "handler": [], "implications": [{"schedule": {"at": {"$add_duration": ["$.data.due", "1h"]}, "after": "2h",
			"emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written", "data": {"n": 3}}}}]},
		"was_circled": {"schema": {}, "handler": [{"increment": {"target": "n", "by": 1}}], "implications": [{"schedule": {"at": "$.data.due",
			"emit": {"aggregate_type": "loan", "id": "$.key", "event_type": "was_circled", "data": "$.data"}}}]},
		"was_returned": {"schema": {}, "handler": []}}},
	"note": {"events": {"was_written": {"schema": {}, "handler": [{"append": {"target": "log", "value": "$.data.n"}}]}}}}}`

// timed returns a house with timedSpec.
func timed(t *testing.T) *house {
	t.Helper()
	h := newHouse(t, 0)
	h.engine.Deploy(prod, h.compile(timedSpec), nil)
	return h
}

// TestTimesOfTheData schedules at times in each of their forms, with offsets, in the past, and where there is none.
func TestTimesOfTheData(t *testing.T) {
	for name, tc := range map[string]struct {
		event, due string // %d is the time that is meant, %s the same as a text, %l without its offset
		at         time.Duration
		want       time.Duration // from now; -1 for nothing
	}{
		"Unix seconds":                      {"was_made", `%d`, time.Hour, time.Hour},
		"with a point":                      {"was_made", `%d.0`, time.Hour, time.Hour},
		"a text":                            {"was_made", `"%s"`, time.Hour, time.Hour},
		"fractions are cut off":             {"was_made", `"%l.999Z"`, time.Hour, time.Hour},
		"before":                            {"was_warned", `%d`, 48 * time.Hour, 24 * time.Hour},
		"before it is past":                 {"was_warned", `%d`, time.Hour, 0},
		"after, and computed":               {"was_chased", `"%s"`, time.Hour, 4 * time.Hour},
		"past":                              {"was_made", `%d`, -time.Hour, 0},
		"long past":                         {"was_made", `-1`, 0, 0},
		"ten years":                         {"was_made", `%d`, 3652 * 24 * time.Hour, 3652 * 24 * time.Hour},
		"an optional one that is not there": {"was_warned", ``, 0, -1},
	} {
		t.Run(name, func(t *testing.T) {
			h := timed(t)
			now := h.clock.Now()
			at := now.Add(tc.at)
			data := `{}`
			if tc.due != "" {
				text := strings.NewReplacer(
					"%d", fmt.Sprint(at.Unix()), "%s", at.Format(time.RFC3339), "%l", at.Format("2006-01-02T15:04:05"),
				).Replace(tc.due)
				data = `{"due":` + text + `}`
			}
			h.post("loan/"+id(1), tc.event, data)
			rows := h.rows(prod, schedule.Pending)
			if tc.want < 0 {
				if len(rows) != 0 {
					t.Errorf("%d are pending", len(rows))
				}
				return
			}
			if want := now.Add(tc.want).Format(time.RFC3339); len(rows) != 1 || rows[0].FireAt != want {
				t.Fatalf("%+v, want one at %s", rows, want)
			}
			h.advance(tc.want)
			if got := h.log(1); got == "" || h.counts() != "1 fired" {
				t.Errorf("it is %s, and %s", got, h.counts())
			}
		})
	}
}

// TestWhatIsNoTime refuses writes whose time is none, at the place of the time in the spec, and schedules nothing.
func TestWhatIsNoTime(t *testing.T) {
	h := timed(t)
	ahead := fmt.Sprint(h.clock.Now().AddDate(10, 0, 0).Unix() + 1)
	for _, due := range []string{
		`null`, `""`, `"soon"`, `"2026-12-01"`, `"2026-12-01T00:00:00"`, `"2026-13-01T00:00:00Z"`, `"1795882665"`,
		`1.5`, `true`, `[]`, `{"at":5}`, `1e400`,
		`123456789012345678901234567890`, ahead, `"` + strings.Repeat("x", 10_000) + `"`,
	} {
		err := h.do(prod, "loan/"+id(1), "was_made", `{"due":`+due+`}`)
		refused, ok := errors.AsType[*j17.Error](err)
		if !ok || refused.Code != j17.CodeImplicationFailed || !strings.Contains(fmt.Sprintf("%+v", refused.Details), "/aggregate_types/loan/events/was_made/implications/0/schedule/at") {
			t.Errorf("%.40s: %v", due, err)
		}
		if strings.Contains(err.Error(), "soon") {
			t.Errorf("the error repeats the data: %v", err)
		}
	}
	if err := h.do(prod, "loan/"+id(1), "was_warned", `{"due":null}`); j17.CodeOf(err) != j17.CodeImplicationFailed {
		t.Errorf("null at an optional path: %v", err)
	}
	if err := h.do(prod, "loan/"+id(1), "was_chased", `{"due":7}`); err != nil {
		t.Errorf("a time of 1970 with a duration: %v", err)
	}
	if n := len(h.rows(prod, schedule.Pending)); n != 1 {
		t.Errorf("%d are pending", n)
	}
}

// TestACircleOfTimes lets an event schedule itself at a time that is past: it ends by itself. Where the times lie
// ahead, it goes on.
func TestACircleOfTimes(t *testing.T) {
	h := timed(t)
	h.post("loan/"+id(1), "was_circled", fmt.Sprintf(`{"due":%d}`, h.clock.Now().Unix()-10))
	h.advance(time.Hour)
	if n := len(h.events("loan/" + id(1))); n != 50 {
		t.Errorf("there are %d events", n)
	}
	rows := h.rows(prod, schedule.Pending, schedule.Refused, schedule.DeadLetter)
	if len(rows) != 1 || !strings.Contains(lastError(rows[0]), "implication_limit") {
		t.Errorf("%+v", rows)
	}
}
