package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
)

// laterSpec has events that schedule others.
const laterSpec = `{"agent_types": ["user"], "aggregate_types": {
	"cart": {"events": {
		"was_filled": {"schema": {}, "handler": [{"set": {"target": "name", "value": "$.data.name"}}], "implications": [
			{"emit": {"aggregate_type": "relay", "id": "$.key", "event_type": "was_passed", "data": {"n": "$.data.n"}}},
			{"condition": {"gt": ["$.data.n", 1]}, "schedule": {"delay": "5m", "emit": {"aggregate_type": "note", "id": "$.data.to", "event_type": "was_written", "data": {"was": "$.state.name", "n": "$.data.n"}},
				"cancel_on": [{"aggregate_type": "cart", "id": "$.key", "event_type": "was_left"}, {"aggregate_type": "cart", "id": "$.id", "event_type": "was_left"},
					{"aggregate_type": "note", "id": "$.data.other?", "event_type": "was_written"}]}}]},
		"was_left": {"schema": {}, "handler": []},
		"was_stuffed": {"schema": {}, "handler": [], "implications": [%s]}}},
	"relay": {"events": {"was_passed": {"schema": {}, "handler": [], "implications": [
		{"schedule": {"delay_ms": 300001, "emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written", "data": {"late": true}}}}]}}},
	"note": {"events": {"was_written": {"schema": {"type": "object", "properties": {"late": {"type": "string"}}}, "handler": []}}}}}`

// TestEffectsSeeWhatIsScheduled: ids are resolved when events are scheduled, data is not compared with its schema, and
// nothing of it counts as implied.
func TestEffectsSeeWhatIsScheduled(t *testing.T) {
	f := newFixture(t, engine.Options{})
	var got []string
	var ids []j17.StreamID
	f.Engine = engine.New(engine.Options{
		Store: f.Store, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler),
	}).Use(enginetest.Effects(
		func(_ context.Context, d *part.Decided) (part.Effects, error) {
			got = nil
			for _, s := range d.Scheduled {
				got = append(got, fmt.Sprintf("%d %s %s %s %s %v", s.Cause, s.Delay, s.Key, s.Type, s.JSON, s.CancelOn))
			}
			return part.Effects{Committed: func(committed []j17.StreamID) { ids = append(ids, committed...) }}, nil
		},
	)...)
	// A hundred schedules an event, each cancelled by as many events as a schedule may name.
	cancel := ""
	for i := range 100 {
		cancel += fmt.Sprintf(`{"aggregate_type": "cart", "id": "$.data.ids[%d]", "event_type": "was_left"},`, i)
	}
	one := `{"schedule": {"delay": "5m", "emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written"}, "cancel_on": [` + strings.TrimSuffix(cancel, ",") + `]}},`
	f.DeploySource(t, fmt.Sprintf(laterSpec, strings.TrimSuffix(strings.Repeat(one, 100), ",")))

	f.Post(t, "cart/"+id+"/was_filled", `{"data":{"n":1,"name":"Bo"},`+meta+`}`)
	r := f.Post(t, "cart/"+id+"/was_filled", `{"data":{"n":2,"to":"`+strings.ToUpper(user)+`"},`+meta+`}`)
	want := []string{
		"0 5m0s note:" + user + ` was_written {"was":"Bo","n":2} [{cart:` + id + " was_left}]",
		"1 5m0.001s note:" + id + ` was_written {"late":true} []`,
	}
	if diff := cmp.Diff(want, got); diff != "" || r.Implied != 1 {
		t.Errorf("%d implied (-want +got):\n%s", r.Implied, diff)
	}
	if len(ids) != 4 || ids[2] != r.IDs[0] {
		t.Errorf("told of the commits of %v", ids)
	}

	// What could never come refuses the write, and so does what is too much for one commit.
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, `"%08x-0000-4000-8000-000000000000",`, i)
	}
	for name, tc := range map[string]struct {
		event, data, text string
		code              j17.Code
	}{
		"an id": {"was_filled", `{"n":2,"to":"nobody"}`, "nobody", j17.CodeImplicationFailed},
		"no id": {"was_filled", `{"n":2}`, "null, not an identifier", j17.CodeImplicationFailed},
		"what cancels": {
			"was_filled", `{"n":2,"to":"` + user + `","other":"x"}`, "cancel_on[2].id", j17.CodeImplicationFailed,
		},
		"too much": {
			"was_stuffed", `{"ids":[` + strings.TrimSuffix(many.String(), ",") + `]}`, "more than 10000 events",
			j17.CodeImplicationLimit,
		},
	} {
		_, err := f.Execute(
			t.Context(), enginetest.Command(t, "cart/"+id+"/"+tc.event, `{"data":`+tc.data+`,`+meta+`}`),
		)
		if j17.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v, want %s with %q", name, err, tc.code, tc.text)
		}
	}
	if n := f.Written(t, "cart", id); n != 2 || len(ids) != 4 {
		t.Errorf("the cart has %d events, and commits of %d were told", n, len(ids))
	}
}

// TestTimesOfTheData schedules events at times that their causes name: those that are over come at once, and what is no
// time, or too far ahead, refuses the write at the place in the spec.
func TestTimesOfTheData(t *testing.T) {
	f := newFixture(t, engine.Options{})
	var got []int64
	f.Engine = engine.New(engine.Options{
		Store: f.Store, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler),
	}).Use(enginetest.Effects(
		func(_ context.Context, d *part.Decided) (part.Effects, error) {
			got = nil
			for i := range d.Scheduled {
				got = append(got, d.Scheduled[i].FireAt(d.Timestamp)-d.Timestamp)
			}
			return part.Effects{}, nil
		},
	)...)
	const at = `{"schedule": {"at": "$.data.%s"%s, "emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written"}}}`
	f.DeploySource(t, fmt.Sprintf(laterSpec, fmt.Sprintf(at, "due", "")+","+fmt.Sprintf(
		at, "due", `, "before": "24h"`,
	)+","+fmt.Sprintf(at, "due", `, "after": "2h"`)+","+fmt.Sprintf(at, "never?", "")))
	now, stuff := f.Clock.Now().Unix(), func(due string) error {
		_, err := f.Execute(
			t.Context(), enginetest.Command(t, "cart/"+id+"/was_stuffed", `{"data":{"due":`+due+`},`+meta+`}`),
		)
		return err
	}
	const day, years = 24 * 60 * 60, 3653 * 24 * 60 * 60
	for ahead, want := range map[int64][]int64{
		3 * day: {3 * day, 2 * day, 3*day + 7200}, 3600: {3600, 0, 10800}, -3600: {0, 0, 3600}, -3 * day: {0, 0, 0},
		-now: {0, 0, 0}, years - 7200: {years - 7200, years - 7200 - day, years},
	} {
		if err := stuff(strconv.FormatInt(now+ahead, 10)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d s ahead: %v, %v, want %v", ahead, got, err, want)
		}
	}
	for due, place := range map[string]string{
		`"soon"`: "/aggregate_types/cart/events/was_stuffed/implications/0/schedule/at", "null": "implications/0/schedule/at", strconv.FormatInt(now+years-7199, 10): "implications/2/schedule/at",
		strconv.FormatInt(now+years+1, 10): "implications/0/schedule/at",
	} {
		err := stuff(due)
		refused, _ := errors.AsType[*j17.Error](err)
		if j17.CodeOf(err) != j17.CodeImplicationFailed || !strings.Contains(
			fmt.Sprintf("%+v", refused.Details), place,
		) || !strings.Contains(fmt.Sprintf("%+v", refused.Details), "invalid_operand") {
			t.Errorf("%s: %v, %+v", due, err, refused.Details)
		}
	}
	if n := f.Written(t, "cart", id); n != 6 {
		t.Errorf("the cart has %d events", n)
	}
}
