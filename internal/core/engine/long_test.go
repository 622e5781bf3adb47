//go:build !race

package engine_test

// The tests of this file do many things one after the other, and none at the same time.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/store"
)

// TestConditionsAreBounded: a condition that would have to look at too much at once is refused for its work. The next
// one goes on from there, whoever asks; what was looked at in vain is not looked at again, and what was not is.
func TestConditionsAreBounded(t *testing.T) {
	b := newBookings(t)
	first, _, _ := b.write(t, 99, "had_note", `{}`, "")
	for n := range 12 {
		b.undo(t, n)
	}
	b.BoundConditions(work.Command)
	if _, code, path := b.write(
		t, 1, "had_note", `{}`, unless("", "course.was_defined", "course:x"),
	); code != "work_limit" || path != "conditions[0]" {
		t.Errorf("%q at %q", code, path)
	}
	if _, code, _ := b.write(
		t, 1, "had_note", `{}`, unless("", "course.was_defined", "course:x", "student:nobody"),
	); code != "" {
		t.Errorf("%q", code)
	}
	for range 2 {
		if _, code, _ := b.write(t, 1, "had_note", `{}`, unless("", "course.was_defined", "course:x")); code != "" {
			t.Errorf("tried again: %q", code)
		}
	}
	for _, types := range []string{"", "booking.was_undone course.was_defined"} {
		if _, code, _ := b.write(t, 1, "had_note", `{}`, unless("", types, "course:x")); code != "condition_failed" {
			t.Errorf("%q: %q", types, code)
		}
	}
	b.Post(t, "course/"+bookingID(1)+"/was_defined", `{"data":{"course":"x"},`+meta+`}`)
	for _, after := range []string{"", first} {
		if _, code, _ := b.write(
			t, 1, "had_note", `{}`, unless(after, "course.was_defined", "course:x"),
		); code != "condition_failed" {
			t.Errorf("behind %q: %q", after, code)
		}
	}
	last, _, _ := b.write(t, 1, "had_note", `{}`, "")
	if _, code, _ := b.write(t, 1, "had_note", `{}`, unless(last, "course.was_defined", "course:x")); code != "" {
		t.Errorf("behind all: %q", code)
	}

	// Another spec begins anew.
	b.DeploySource(t, bookingSpec)
	if _, code, _ := b.write(t, 1, "had_note", `{}`, unless("", "course.*", "course:x")); code != "work_limit" {
		t.Errorf("under another spec: %q", code)
	}
}

// undo writes ten thousand events with the tag "course:x".
func (b bookings) undo(t *testing.T, n int) {
	t.Helper()
	const event = `{"type":"was_undone","data":{"course":"x"}}`
	b.Post(t, "booking/"+bookingID(n), `{"events":[`+repeated(event, 10_000)+`],`+meta+`}`)
}

// TestAnHonestConditionIsAnsweredAtOnce: a condition of one type under a tag that two hundred thousand events of other
// types have is answered by the first request, and so is one that a single event matches at their end.
func TestAnHonestConditionIsAnsweredAtOnce(t *testing.T) {
	b := newBookings(t)
	for n := range 20 {
		b.undo(t, n)
	}
	for _, types := range []string{"course.was_defined", "booking.was_made course.*"} {
		if _, code, _ := b.write(t, 1, "had_note", `{}`, unless("", types, "course:x")); code != "" {
			t.Errorf("%q: %q", types, code)
		}
	}
	b.write(t, 99, "was_made", `{"course":"x"}`, "")
	for _, types := range []string{"booking.was_made", "booking.was_made course.*"} {
		if _, code, _ := b.write(t, 1, "had_note", `{}`, unless("", types, "course:x")); code != "condition_failed" {
			t.Errorf("%q: %q", types, code)
		}
	}

	// All conditions of a write have one budget. What they have looked at in vain is done, so that the next try comes
	// further.
	b.BoundConditions(20_000_000)
	all := strings.TrimSuffix(unless("", "course.*", "course:x"), "],")
	for _, types := range []string{
		"course.* booking.was_chained", "course.* booking.was_refused", "course.* booking.had_note",
	} {
		all += strings.TrimSuffix(strings.Replace(unless("", types, "course:x"), `"conditions":[`, ",", 1), "],")
	}
	all += "],"
	var paths []string
	for code := "work_limit"; code == "work_limit"; {
		var path string
		if _, code, path = b.write(t, 1, "had_note", `{}`, all); code != "" {
			paths = append(paths, path)
		}
		if code != "" && code != "work_limit" || len(paths) > 4 {
			t.Fatalf("%q at %q", code, paths)
		}
	}
	if len(paths) == 0 || paths[0] == "conditions[0]" || !slices.IsSorted(paths) {
		t.Errorf("refused at %q", paths)
	}
}

// TestPastStatesDoNotStartAtTheFirstEvent: states are kept along the way of a long fold, few enough, and a read of the
// past starts from the nearest.
func TestPastStatesDoNotStartAtTheFirstEvent(t *testing.T) {
	const events = 95_000
	f := newFixture(t, engine.Options{ReadWait: time.Hour})
	f.deploySlow(t, tenant, newGate(0))
	f.put(t, tenant, id, "fast", events)
	read := func(length uint64) uint64 {
		t.Helper()
		before := f.Stats().Folded
		s, err := f.Load(t.Context(), tenant, "order", id, engine.LoadOptions{Length: &length})
		if err != nil || s.Length != length || !strings.Contains(string(s.JSON), fmt.Sprintf(`"n":%d,`, length)) {
			t.Fatalf("after %d events: %s, %v", length, s.JSON, err)
		}
		return f.Stats().Folded - before
	}
	if n := read(events - 1); n != events-1 {
		t.Errorf("the first read folded %d events", n)
	}
	for _, length := range []uint64{events - 1, events - 2, 80_001, 50_000, 30_500} {
		if n := read(length); n > 20_000 {
			t.Errorf("the state after %d events was folded from %d", length, n)
		}
	}
	if n := read(events - 1); n > 10_000 {
		t.Errorf("the state before the last event was folded from %d", n)
	}
	items, err := f.Store.Scan(t.Context(), tenant, "snapshot.past", store.Prefix("order:"+id+"/"), 1000)
	if err != nil || len(items) < 5 || len(items) > 64 {
		t.Errorf("%d states are kept, %v", len(items), err)
	}
}

// TestWhatWasAdmittedCanBeRead: whatever loops and searches a handler is made of, what it was tried with and stored can
// be folded by an engine that knows nothing yet.
func TestWhatWasAdmittedCanBeRead(t *testing.T) {
	f := newFixture(t, engine.Options{})
	number := 0
	check := func(r *rapid.T) {
		lists := []string{"@.list", "$.data.list"}
		of := func(from ...string) string { return rapid.SampledFrom(from).Draw(r, "part") }
		search := func(depth int) string {
			out := `{"eq":["$x","$y"]}`
			for i := range depth {
				out = fmt.Sprintf(`{"some":{"in":"%s","as":"$y%d","match":%s}}`, of(lists...), i, strings.ReplaceAll(out, `"$y"`, fmt.Sprintf(`"$y%d"`, i)))
			}
			return out
		}
		var ops []string
		for range rapid.IntRange(1, 4).Draw(r, "operations") {
			depth := rapid.IntRange(1, 2).Draw(r, "depth")
			ops = append(ops, of(
				`{"filter":{"target":"list","as":"$x","keep":`+search(depth)+`}}`,
				`{"map":{"target":"list","as":"$x","apply":[`+repeated(`{"increment":{"target":"n","by":1}}`, 1+10*depth)+`]}}`,
				`{"append_unique":{"target":"list","value":"$.data.one"}}`,
				`{"append":{"target":"copies","value":"@.list"}}`))
		}
		spec := `{"agent_types":["user"],"aggregate_types":{"a":{"events":{
			"was_set":{"schema":{},"handler":[{"merge":{"target":"","value":"$.data"}}]},
			"was_worked":{"schema":{},"handler":[` + strings.Join(ops, ",") + `]}}}}}`
		f.DeploySource(t, spec)
		number++
		path := fmt.Sprintf("a/0b6e9d4e-6f0a-4f3c-8c53-%012d", number)
		list := func() string {
			return `"list":[` + repeated(of("1", `{"n":1}`, `"a"`), rapid.IntRange(1, 3000).Draw(r, "elements")) + `]`
		}
		f.Post(t, path+"/was_set", `{"data":{`+list()+`},`+meta+`}`)
		event := `{"type":"was_worked","data":{"one":2,` + list() + `}}`
		_, err := f.Execute(t.Context(), enginetest.Command(
			t, path, `{"events":[`+repeated(event, rapid.IntRange(1, 3).Draw(r, "events"))+`],`+meta+`}`,
		))
		if err != nil {
			if e, ok := errors.AsType[*j17.Error](err); !ok || e.Code != j17.CodeWorkLimit ||
				e.EventIndex == nil && strings.Count(event, "was_worked") > 1 {
				r.Fatalf("%s: %v", spec, err)
			}
		}
		anew := on(engine.New(engine.Options{Store: f.Store, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)}))
		anew.DeploySource(t, spec)
		if got := anew.State(t, path, engine.LoadOptions{}); got == string(j17.CodeWorkLimit) {
			r.Fatalf("%s was admitted and cannot be read", spec)
		}
	}
	rapid.Check(t, check)
}

// dearSpec has a schema that takes much work for little data, and an implication that emits such data.
const dearSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"a": {"events": {
		"was_tried": {"schema": {"properties": {"text": {"pattern": "^(?:(?=(a+)+b)|a)"}}}, "handler": []},
		"was_asked": {"schema": {"properties": {"texts": {"type": "array"}}}, "handler": [], "implications": [
			{"map": {"in": "$.data.texts", "as": "$t", "emit": {"aggregate_type": "a", "id": "$.key", "event_type": "was_tried", "data": {"text": "$t"}}}}]}
	}}}
}`

// TestABatchHasOneBudgetForItsSchemas checks that the work for all events of a write is counted together, also for
// those that it implies, and that a write whose caller has left is given up.
func TestABatchHasOneBudgetForItsSchemas(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, dearSpec)
	bait := `"` + strings.Repeat("a", 19) + `"`
	event := `{"type":"was_tried","data":{"text":` + bait + `}}`
	batch := func(n int) string { return `{"events":[` + event + strings.Repeat(","+event, n-1) + `],` + meta + `}` }
	f.Post(t, "a/"+id, batch(1))

	_, err := f.Execute(t.Context(), enginetest.Command(t, "a/"+id, batch(60)))
	var e *j17.Error
	if !errors.As(err, &e) || e.Code != j17.CodeWorkLimit || e.EventIndex == nil {
		t.Errorf("a batch: %+v", err)
	}
	asked := `{"data":{"texts":[` + bait + strings.Repeat(","+bait, 59) + `]},` + meta + `}`
	if _, err := f.Execute(
		t.Context(), enginetest.Command(t, "a/"+id+"/was_asked", asked),
	); j17.CodeOf(err) != j17.CodeWorkLimit {
		t.Errorf("implied events: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Execute(ctx, enginetest.Command(t, "a/"+id, batch(1))); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has left: %v", err)
	}
	if n := f.Written(t, "a", id); n != 1 {
		t.Errorf("there are %d events", n)
	}
}

// TestTheCacheHoldsWhatItCharges: a small state does not hold on to the large answer that it came with.
func TestTheCacheHoldsWhatItCharges(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.deployAnswer(t, `{"state":{"a":"small"},"junk":"`+strings.Repeat("x", 4<<20)+`"}`)
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc >> 20)
	}
	before := heap()
	for i := range 30 {
		f.Post(t, fmt.Sprintf("order/%08d-0000-4000-8000-000000000000/had_line", i), line("1"))
	}
	if held := heap() - before; held > 40 {
		t.Errorf("%d MiB are held for %d charged bytes", held, f.Stats().CacheBytes)
	}
	runtime.KeepAlive(f)
}

// TestABatchThroughCodeHasABudget: what goes in and out of custom code for one command is bounded.
func TestABatchThroughCodeHasABudget(t *testing.T) {
	f := newFixture(t, engine.Options{})
	passed := f.deployAnswer(t, `{"state":{"pad":"`+strings.Repeat("x", 1<<20)+`"}}`)
	batch := func(n int) *engine.Command {
		return enginetest.Command(
			t, "order/"+id, `{"events":[`+strings.TrimSuffix(
				strings.Repeat(`{"type":"had_line","data":{}},`, n), ",",
			)+`],`+meta+`}`,
		)
	}
	if _, err := f.Execute(t.Context(), batch(500)); j17.CodeOf(err) != j17.CodeWorkLimit {
		t.Errorf("got %v", err)
	}
	if n := passed.Load() >> 20; n > 200 {
		t.Errorf("%d MiB passed", n)
	}
	if _, err := f.Execute(t.Context(), batch(10)); err != nil {
		t.Error(err)
	}
}
