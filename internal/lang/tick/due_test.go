package tick_test

import (
	"errors"
	"testing"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

// TestTimes computes times from data: texts with an offset and whole seconds are times, everything else is said to be
// none.
func TestTimes(t *testing.T) {
	const no = -1
	for text, want := range map[string]int64{
		`"2027-03-01T09:00:00Z"`: 1803891600, `"2027-03-01T10:00:00+01:00"`: 1803891600,
		`"2027-03-01t02:00:00-07:00"`: 1803891600, `"2027-03-01T09:00:00.999z"`: 1803891600,
		`"2016-12-31T23:59:60Z"`: 1483228799, `1803891600`: 1803891600, `1803891600.0`: 1803891600,
		`18038916e2`: 1803891600, `0`: 0,
		`"2027-03-01"`: no, `"2027-03-01T09:00:00"`: no, `"2027-13-01T09:00:00Z"`: no, `"1803891600"`: no, `"soon"`: no,
		`""`:           no,
		`1803891600.5`: no, `1e30`: no, `null`: no, `true`: no, `[]`: no, `{"at": 5}`: no,
	} {
		p := placed(t)
		p.data = value.ObjectValue(value.Member{Key: "due", Value: mustParse(t, text)})
		for _, source := range []string{`"$.data.due"`, `"$.data.due?"`, `{"$coalesce": ["$.data.never", "$.data.due"]}`} {
			var l diag.List
			due := tick.CompileTime(mustParse(t, source), "/at", "at", itemScope(), &l)
			if due == nil {
				t.Fatal(l.All())
			}
			got, ok, err := due.Eval(p.env(t))
			if misfit, unfit := errors.AsType[*tick.OperandError](err); want == no && !unfit ||
				unfit && misfit.Pointer != "/at" || want != no && (got != want || !ok || err != nil) {
				t.Errorf("%s of %s: %d, %v, %v", source, text, got, ok, err)
			}
		}
	}

	// A path that may lead nowhere has no time; one that may not has none that counts.
	for source, fails := range map[string]bool{`"$.data.never?"`: false, `"$.data.never"`: true} {
		var l diag.List
		_, ok, err := tick.CompileTime(mustParse(t, source), "/at", "at", itemScope(), &l).Eval(placed(t).env(t))
		if ok || (err != nil) != fails {
			t.Errorf("%s: %v, %v", source, ok, err)
		}
	}

	// What is no path and no operator is the same for all events.
	for _, source := range []string{
		`"soon"`, `"2027-03-01T09:00:00Z"`, `1803891600`, `1.5`, `{}`, `{"due": "$.data.due"}`, `{"$noow": "date"}`,
		`null`, `[]`,
	} {
		var l diag.List
		if due := tick.CompileTime(mustParse(t, source), "/at", "at", itemScope(), &l); due != nil || l.Errors() == 0 {
			t.Errorf("%s compiles", source)
		}
	}
}
