package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/store"
)

const bookingSpec = `{"agent_types": ["user"], "target_types": ["room"], "aggregate_types": {
	"course": {"events": {"was_defined": {"schema": {}, "handler": [], "tags": {"course": "$.data.course"}}}},
	"booking": {"events": {
		"was_made": {"schema": {}, "handler": [{"merge": {"target": "", "value": "$.data"}}], "tags": {"course": "$.data.course", "student": "$.data.student", "seat": "$.data.seats", "of": "$.id"}},
		"was_undone": {"schema": {}, "handler": [], "tags": {"course": "$.data.course"}},
		"had_note": {"schema": {}, "handler": [], "allow_skip_occ": true},
		"was_chained": {"schema": {}, "handler": [], "implications": [{"emit": {"aggregate_type": "booking", "id": "$.data.to", "event_type": "was_made", "data": {"course": "$.data.course", "seats": "$.data.seats"}}}]},
		"was_refused": {"schema": {}, "handler": [], "requires": [{"that": {"equals": [1, 2]}, "message": "Never"}]}
	}}}}`

// bookings is a fixture with courses and bookings.
type bookings struct{ *fixture }

func newBookings(t *testing.T) bookings {
	t.Helper()
	b := bookings{newFixture(t, engine.Options{})}
	b.DeploySource(t, bookingSpec)
	return b
}

func bookingID(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", n) }

// unless is the member of a body that forbids events with tags, of some types and behind a position if that is not "".
func unless(after, types string, tags ...string) string {
	match := map[string]any{"tags": tags}
	if types != "" {
		match["types"] = strings.Split(types, " ")
	}
	condition := map[string]any{"fail_if_events_match": match}
	if after != "" {
		condition["after"] = after
	}
	b, _ := json.Marshal([]any{condition})
	return `"conditions":` + string(b) + ","
}

// write posts an event of a booking, and returns its position, or the error's code and path.
func (b bookings) write(t *testing.T, n int, event, data, conditions string) (id, code, path string) {
	t.Helper()
	r, err := b.Execute(
		t.Context(), enginetest.Command(t, "booking/"+bookingID(n)+"/"+event, `{"data":`+data+`,`+conditions+meta+`}`),
	)
	if err != nil {
		e, _ := err.(*j17.Error) //nolint:errorlint // they are of this type
		if e == nil {
			t.Fatal(err)
		}
		return "", string(e.Code), e.Path
	}
	return r.Writes[0].IDs[0].String(), "", ""
}

// TestConditions has writes forbid what has happened: by tags, types, actors, and since a position.
func TestConditions(t *testing.T) {
	b := newBookings(t)
	const refused = "condition_failed"
	first, _, _ := b.write(t, 1, "was_made", `{"course":"a","student":"s","seats":[1.0,2,null,"x"]}`, "")
	b.write(t, 2, "was_undone", `{"course":"a"}`, "")
	b.write(t, 3, "was_chained", `{"course":"b","to":"`+bookingID(4)+`","seats":[true]}`, "")
	last, _, _ := b.write(t, 5, "had_note", `{}`, "")
	n := 100
	for _, tc := range []struct {
		conditions, code, path string
	}{
		{unless("", "", "course:a"), refused, "conditions[0]"},
		{unless("0", "", "course:a"), refused, "conditions[0]"},
		{unless("", "", "course:c"), "", ""},
		{unless(first, "", "course:a"), refused, "conditions[0]"},
		{unless(first, "booking.was_made", "course:a"), "", ""},
		{unless(last, "", "course:a"), "", ""},
		{unless("", "booking.was_made", "course:a"), refused, "conditions[0]"},
		{unless("", "booking.*", "course:a"), refused, "conditions[0]"},
		{unless("", "*", "course:a"), refused, "conditions[0]"},
		{unless("", "course.*", "course:a"), "", ""},
		{unless("", "course.was_defined booking.was_undone", "course:a"), refused, "conditions[0]"},
		{unless("", "", "course:a", "student:s"), refused, "conditions[0]"},
		{unless("", "", "course:a", "course:b"), "", ""},
		{unless("", "", "seat:1"), refused, "conditions[0]"},
		{unless("", "", "seat:1.0"), "", ""},
		{unless("", "", "seat:2", "seat:x", "of:"+bookingID(1)), refused, "conditions[0]"},
		{unless("", "", "seat:null"), "", ""},
		{unless("", "", "course:b", "seat:true"), refused, "conditions[0]"}, // of an implied event
		{unless(first, "", "actor:user:"+strings.ToUpper(user), "course:b"), refused, "conditions[0]"},
		{unless("", "", "target:room:"+user), "", ""},

		// What could never be.
		{`"conditions":[],`, "invalid_field", "conditions"},
		{unless("", "", "curse:a"), "invalid_field", "conditions[0].fail_if_events_match.tags[0]"},
		{unless("", "", "course:a", "course"), "invalid_field", "conditions[0].fail_if_events_match.tags[1]"},
		{unless("", "", "actor:user"), "invalid_field", "conditions[0].fail_if_events_match.tags[0]"},
		{unless("", "", "actor:user:nobody knows"), "invalid_field", "conditions[0].fail_if_events_match.tags[0]"},
		{unless("", "", "actor:usr:"+user), "invalid_field", "conditions[0].fail_if_events_match.tags[0]"},
		{unless("", "", "actor:system_agent:event_scheduler"), "", ""},
		{unless("", "", "course:a", "target:user:"+user), "invalid_field", "conditions[0].fail_if_events_match.tags[1]"},
		{`"conditions":[{"fail_if_events_match":{"types":[],"tags":["course:a"]}}],`, "invalid_field", "conditions[0].fail_if_events_match.types"},
		{unless("", "", "course:"+strings.Repeat("x", 257)), "invalid_field", "conditions[0].fail_if_events_match.tags[0]"},
		{unless("", ""), "invalid_field", "conditions[0].fail_if_events_match.tags"},
		{unless("", "booking.was_maed", "course:a"), "invalid_field", "conditions[0].fail_if_events_match.types[0]"},
		{unless("", "was_made", "course:a"), "invalid_field", "conditions[0].fail_if_events_match.types[0]"},
		{unless("yesterday", "", "course:a"), "invalid_field", "conditions[0].after"},
		{unless("9999999999999-0", "", "course:a"), "invalid_field", "conditions[0].after"},
		{`"conditions":[{"fail_if_events_match":{"tags":["course:c"]},"before":"0"}],`, "unknown_field", "conditions[0].before"},
		{`"conditions":[{"after":"0"}],`, "missing_field", "conditions[0].fail_if_events_match"},
	} {
		n++
		if _, code, path := b.write(t, n, "had_note", `{}`, tc.conditions); code != tc.code || path != tc.path {
			t.Errorf("%s: %q at %q, want %q at %q", tc.conditions, code, path, tc.code, tc.path)
		}
	}

	// Conditions come before guards, and expectations before both.
	if _, code, _ := b.write(t, 900, "was_refused", `{}`, unless("", "", "course:a")); code != refused {
		t.Errorf("a guard answers before a condition: %s", code)
	}
	_, err := b.Execute(t.Context(), enginetest.Command(t, "booking/"+bookingID(1)+"/was_undone",
		`{"data":{},`+unless("", "", "course:a")+strings.Replace(
			meta, `"metadata":{`, `"metadata":{"previous_length":7,`, 1,
		)+`}`))
	if j17.CodeOf(err) != j17.CodeConflict {
		t.Errorf("a condition answers before an expectation: %v", err)
	}
}

// TestConditionsHaveOneWinner races writers that take one course each time: one has it, the others are told of its
// event.
func TestConditionsHaveOneWinner(t *testing.T) {
	b := newBookings(t)
	const rounds, writers = 8, 12
	for round := range rounds {
		var won, lost atomic.Int64
		var wg sync.WaitGroup
		for w := range writers {
			c := enginetest.Command(t, "booking/"+bookingID(round*writers+w)+"/was_made",
				fmt.Sprintf(`{"data":{"course":"c%d","seats":[%d]},%s%s}`, round, w, unless("", "", fmt.Sprintf("course:c%d", round)), meta))
			wg.Go(func() {
				switch _, err := b.Execute(t.Context(), c); {
				case err == nil:
					won.Add(1)
				case j17.CodeOf(err) == j17.CodeConditionFailed:
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || lost.Load() != writers-1 {
			t.Errorf("%d have won, %d were refused", won.Load(), lost.Load())
		}
	}
}

// TestWrongTags: data that can give no tag are refused where they are wrong.
func TestWrongTags(t *testing.T) {
	b := newBookings(t)
	for data, want := range map[string]string{
		`{"course":{"a":1}}`:                                   "data.course",
		`{"course":"` + strings.Repeat("x", 257) + `"}`:        "data.course",
		`{"course":"` + strings.Repeat("ü", 128) + `"}`:        "",
		`{"course":1e300}`:                                     "data.course",
		`{"seats":[1,[2]]}`:                                    "data.seats[1]",
		`{"seats":[` + strings.Repeat("1,", 100) + `1]}`:       "data.seats",
		`{"seats":[` + strings.Repeat("1,", 99) + `1]}`:        "",
		`{"seats":[1,1.0,1e0,10e-1],"course":"\u0000, <>"}`:    "",
		`{"seats":[0.50,-0,-12.340e2,1e20],"course":""}`:       "",
		`{"student":false,"course":null,"seats":["a","b",""]}`: "",
	} {
		_, code, path := b.write(t, 1, "was_made", data, "")
		if want == "" && code != "" || want != "" && (code != "validation_failed" || path != want) {
			t.Errorf("%s: %q at %q, want %q", data, code, path, want)
		}
	}
	for tag, want := range map[string]int{
		"seat:1": 2, "seat:0.5": 1, "seat:0": 1, "seat:-1234": 1, "seat:100000000000000000000": 1, "course:\x00, <>": 1,
		"course:": 1, "student:false": 1,
	} {
		n := 0
		for _, err := range b.Store.ReadTagged(
			t.Context(), tenant, store.Tagged{Tags: []string{tag}}, j17.StreamID{}, 99, nil,
		) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != want {
			t.Errorf("%d events have the tag %q, want %d", n, tag, want)
		}
	}

	// An implied event that can have no tag is refused with what implies it.
	if _, code, _ := b.write(
		t, 1, "was_chained", `{"to":"`+bookingID(9)+`","course":{}}`, "",
	); code != "implication_failed" {
		t.Errorf("%q", code)
	}
}

// TestConditionsAndKeys: a write with a key for idempotency is answered once more as it was, whatever has happened
// since.
func TestConditionsAndKeys(t *testing.T) {
	b := newBookings(t)
	c := enginetest.Command(
		t, "booking/"+bookingID(1)+"/was_made", `{"data":{"course":"a"},`+unless("", "", "course:a")+meta+`}`,
	)
	c.IdempotencyKey = "k"
	for i := range 2 {
		if r, err := b.Execute(t.Context(), c); err != nil || r.Replayed != (i == 1) {
			t.Errorf("%d: %+v, %v", i, r, err)
		}
	}

	// One that was refused leaves its key free.
	c = enginetest.Command(
		t, "booking/"+bookingID(2)+"/was_made", `{"data":{"course":"a"},`+unless("", "", "course:a")+meta+`}`,
	)
	c.IdempotencyKey = "other"
	if _, err := b.Execute(t.Context(), c); j17.CodeOf(err) != j17.CodeConditionFailed {
		t.Error(err)
	}
	c = enginetest.Command(
		t, "booking/"+bookingID(2)+"/was_made", `{"data":{"course":"b"},`+unless("", "", "course:b")+meta+`}`,
	)
	c.IdempotencyKey = "other"
	if _, err := b.Execute(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// TestTagsDeclaredKnowsWhatWasInBetween: a tag that goes and comes back is another one, since what was written between
// has it by another rule; and what happens to other tags does not matter.
func TestTagsDeclaredKnowsWhatWasInBetween(t *testing.T) {
	b := newBookings(t)
	declared := func(tag string) [32]byte { return b.TagsDeclared(enginetest.Tenant, []string{tag}) }
	seat, of := declared("seat:1"), declared("of:1")
	b.DeploySource(t, bookingSpec)
	if declared("seat:1") != seat {
		t.Error("the same spec again changes a tag")
	}
	b.DeploySource(t, strings.Replace(bookingSpec, `, "seat": "$.data.seats"`, "", 1))
	if declared("seat:1") == seat || declared("of:1") != of {
		t.Error("a tag that is gone is the same, or one that stays is another one")
	}
	b.DeploySource(t, bookingSpec)
	if declared("seat:1") == seat || declared("of:1") != of {
		t.Error("a tag that was gone meanwhile is the same, or one that stays is another one")
	}
}

// TestStepsOfAConditionAreCounted: tags that many events have and none both cost what it takes to see that, however few
// of them there are.
func TestStepsOfAConditionAreCounted(t *testing.T) {
	t.Parallel()
	b := newBookings(t)
	const each = 500
	for n := range each {
		b.write(t, 1, "was_made", fmt.Sprintf(`{"student":"s%d"}`, n%2), "")
	}
	b.BoundConditions(each * 10)
	if _, code, path := b.write(
		t, 2, "had_note", `{}`, unless("", "", "student:s0", "student:s1"),
	); code != string(j17.CodeWorkLimit) || path != "conditions[0]" {
		t.Errorf("%q at %q", code, path)
	}
	b.BoundConditions(each * 100)
	if _, code, _ := b.write(t, 2, "had_note", `{}`, unless("", "", "student:s0", "student:s1")); code != "" {
		t.Errorf("%q", code)
	}
}

// TestPositionOfACondition: the position of a refusal is that of the last event looked at, so that nobody who goes on
// from there misses any.
func TestPositionOfACondition(t *testing.T) {
	t.Parallel()
	b := newBookings(t)
	for n := range 15 {
		b.write(t, n, "was_made", `{"course":"x"}`, "")
	}
	_, err := b.Execute(
		t.Context(), enginetest.Command(
			t, "booking/"+bookingID(99)+"/was_made", `{"data":{},`+unless("", "", "course:x")+meta+`}`,
		),
	)
	refused, is := errors.AsType[*j17.Error](err)
	if !is {
		t.Fatal(err)
	}
	details, err := json.Marshal(refused.Details)
	if err != nil {
		t.Fatal(err)
	}
	var told struct {
		Matched  []string
		Position string
	}
	if err := json.Unmarshal(details, &told); err != nil || len(told.Matched) != 10 ||
		told.Position != told.Matched[9] {
		t.Fatalf("%s, %v", details, err)
	}
	if _, code, _ := b.write(
		t, 99, "was_made", `{}`, unless(told.Position, "", "course:x"),
	); code != string(j17.CodeConditionFailed) {
		t.Errorf("five events that nobody was told of are passed over: %q", code)
	}
}
