package deploy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/plane/deploy"
)

func TestDryRun(t *testing.T) {
	f := start(t)
	dry := func(source string, aggregates int) deploy.Result {
		t.Helper()
		r := f.request(source)
		r.Aggregates = aggregates
		result, err := f.Deploy(t.Context(), r)
		if err != nil {
			t.Fatal(err, fieldErrors(err))
		}
		return result
	}
	if r := dry(simple(keep), 10); r.Replay == nil || r.Created || r.Replay.Aggregates != 0 ||
		f.Spec(f.instance, j17.Prod) != nil {
		t.Errorf("before the first deployment: %+v", r)
	}
	f.deploy(t, simple(keep))
	id := func(i int) string { return fmt.Sprintf("7c0f6a38-91b2-4d6e-8f57-%012d", i) }
	for i := range 5 {
		f.write(t, id(i), fmt.Sprintf(`{"n":%d,"list":[1,2],"a/b~c":{"x":1}}`, i))
	}
	f.write(t, id(0), `{"n":7}`)

	if r := dry(simple(keep), 10).Replay; len(r.Types) != 0 || r.Aggregates != 0 || !r.Complete {
		t.Errorf("nothing differs: %+v", r)
	}
	next := simple(`[{"set":{"target":"","value":"$.data"}},{"set":{"target":"twice","value":"$.data.n"}},{"set":{"target":"list","value":[1,3,4]}},
		{"set":{"target":"a/b~c","value":null}}]`)
	r := dry(next, 100)
	if len(r.Changes) != 1 || r.Spec.Version != 1 || r.Environment != j17.Prod {
		t.Errorf("%+v", r)
	}
	replay := r.Replay
	if replay.Aggregates != 5 || replay.Events != 6 || !replay.Complete || replay.Changed != 5 || replay.Failed != 0 ||
		len(replay.Differences) != 5 {
		t.Errorf("%+v", replay)
	}
	if diff := cmp.Diff([]string{"note"}, replay.Types); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint64{1, 2}, replay.Differences[0].Versions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wire.StateDifference{
		Key: "note:" + id(1), Length: 1, Versions: []uint64{1, 1},
		Changes: []wire.ValueChange{
			{Pointer: "/list/1", Change: "changed", Before: "2", After: "3"},
			{Pointer: "/list/2", Change: "added", After: "4"},
			{Pointer: "/a~1b~0c", Change: "changed", Before: `{"x":1}`, After: "null"},
			{Pointer: "/twice", Change: "added", After: "1"},
		},
	}, replay.Differences[1]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if replay = dry(next, 2).Replay; replay.Aggregates != 2 || replay.Complete {
		t.Errorf("of two aggregates: %+v", replay)
	}

	// Nothing has changed.
	if history, err := f.registry.Specs.History(t.Context(), f.instance, j17.Prod, 0, 10); err != nil ||
		len(history) != 1 {
		t.Errorf("%+v, %v", history, err)
	}
	// What a deployment would refuse for good, a dry run refuses too; what can be forced, it tells.
	bad := f.request(`{}`)
	bad.Aggregates = 1
	_, err := f.Deploy(t.Context(), bad)
	wantCode(t, "invalid", err, j17.CodeInvalidSpec)
	missing := f.request(simple(`{"wasm":"a.wasm"}`))
	missing.Aggregates = 1
	_, err = f.Deploy(t.Context(), missing)
	wantCode(t, "no blob", err, j17.CodeInvalidSpec)
	renamed := dry(strings.ReplaceAll(simple(keep), "was_written", "was_typed"), 100)
	if len(renamed.Breaks()) != 1 || renamed.Replay.Changed != 5 {
		t.Errorf("%+v", renamed)
	}
	if c := renamed.Replay.Differences[1].Changes[0]; c.Change != "removed" {
		t.Errorf("%+v", c)
	}
}

// TestDryRunOfCode replays states that custom code makes. The modules of these tests answer with what stands behind
// their last "answer:".
func TestDryRunOfCode(t *testing.T) {
	f := start(t)
	f.upload(t, "a.wasm", `apply_handler answer:{"state":{"v":1}}`)
	f.upload(t, "b.wasm", `apply_handler answer:{"state":{"v":2}}`)
	f.upload(t, "c.wasm", `apply_handler answer:nonsense`)
	f.deploy(t, simple(`{"wasm":"a.wasm"}`))
	f.write(t, "7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05", `{}`)
	state := func() string {
		t.Helper()
		s, err := f.engine.Load(
			t.Context(), deploy.Tenant(f.instance, j17.Prod), "note", "7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05",
			engine.LoadOptions{},
		)
		if err != nil {
			t.Fatal(err)
		}
		return s.Data.Get("v").String()
	}
	if got := state(); got != "1" {
		t.Errorf("the state is %s", got)
	}
	dry := func(blob string) *wire.SpecReplay {
		t.Helper()
		r := f.request(simple(`{"wasm":"` + blob + `"}`))
		r.Aggregates = 10
		result, err := f.Deploy(t.Context(), r)
		if err != nil {
			t.Fatal(err, fieldErrors(err))
		}
		return result.Replay
	}
	if r := dry("b.wasm"); r.Changed != 1 || r.Failed != 0 ||
		r.Differences[0].Changes[0] != (wire.ValueChange{Pointer: "/v", Change: "changed", Before: "1", After: "2"}) {
		t.Errorf("%+v", r)
	}
	if r := dry("c.wasm"); r.Changed != 0 || r.Failed != 1 || !strings.Contains(r.Differences[0].Error, "JSON") {
		t.Errorf("%+v", r)
	}
	if r := dry("a.wasm:v1"); r.Aggregates != 1 || r.Changed != 0 {
		t.Errorf("the same code under another name: %+v", r)
	}
	if got := state(); got != "1" {
		t.Errorf("after dry runs the state is %s", got)
	}
	// An upload computes states again.
	f.upload(t, "a.wasm", `apply_handler answer:{"state":{"v":3}}`)
	if got := state(); got != "3" {
		t.Errorf("after an upload the state is %s", got)
	}
}

func TestDryRunIsBounded(t *testing.T) {
	f := start(t)
	f.deploy(t, simple(keep))
	var members []string
	for i := range 60 {
		members = append(members, fmt.Sprintf(`"m%d":%q`, i, strings.Repeat("ü", 600)))
	}
	for i := range 150 {
		f.write(t, fmt.Sprintf("7c0f6a38-91b2-4d6e-8f57-%012d", i), `{`+strings.Join(members, ",")+`}`)
	}
	r := f.request(simple(`[]`))
	r.Aggregates = 1 << 30
	result, err := f.Deploy(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	replay := result.Replay
	if replay.Aggregates != 150 || replay.Changed != 150 || len(replay.Differences) != 100 {
		t.Errorf("%d replayed, %d changed, %d shown", replay.Aggregates, replay.Changed, len(replay.Differences))
	}
	d := replay.Differences[0]
	if len(d.Changes) != 20 || d.More != 40 || len(d.Changes[0].Before) > 520 ||
		!strings.HasSuffix(d.Changes[0].Before, "...") {
		t.Errorf("%d changes, %d more, %d bytes", len(d.Changes), d.More, len(d.Changes[0].Before))
	}
}

// TestDryRunAsksGuards: what guards of event types that change would have said to what has happened is told, and stands
// in nobody's way.
func TestDryRunAsksGuards(t *testing.T) {
	f := start(t)
	guarded := func(handler, guards string) string {
		return simple(handler + `,"reads":{"it":{"aggregate_type":"note","id":"$.data.of"}},"requires":[` + guards + `]`)
	}
	dry := func(source string) *wire.SpecReplay {
		t.Helper()
		r := f.request(source)
		r.Aggregates = 1000
		result, err := f.Deploy(t.Context(), r)
		if err != nil || len(result.Breaks()) > 0 {
			t.Fatal(result.Breaks(), err, fieldErrors(err))
		}
		return result.Replay
	}
	const higher = `{"that":{"or":[{"equals":["$.state",{}]},{"gt":["$.data.n","$.state.n"]}]},"message":{"concat":["had ","$.state.n",", got ","$.data.n"]}}`
	const kind = `{"that":{"not_equals":["$.data.n",5]},"message":{"coalesce":[null]},"code":"five"}`
	const other = `{"that":{"equals":["$.reads.it",null]},"message":"It is there"}`
	f.deploy(t, simple(keep))
	id := func(i int) string { return fmt.Sprintf("7c0f6a38-91b2-4d6e-8f57-%012d", i) }
	for _, n := range []string{"1", "3", "2", "5", "5"} {
		f.write(t, id(1), `{"n":`+n+`}`)
	}
	f.write(t, id(2), `{"n":1}`)

	r := dry(guarded(keep, higher+`,`+other+`,`+kind))
	const at = "/aggregate_types/note/events/was_written/requires/"
	var got []string
	for _, x := range r.Refusals {
		if x.StreamID == "" || x.Type != "was_written" || x.Key != "note:"+id(1) {
			t.Errorf("%+v", x)
		}
		got = append(got, strings.TrimPrefix(x.Pointer, at)+" "+x.Message)
	}
	want := []string{"0 had 3, got 2", "2 was_written of note:" + id(1) + " does not meet a requirement of the spec, at " + at + "2.", "0 had 5, got 5"}
	if diff := cmp.Diff(want, got); diff != "" || r.Refused != 3 || r.Unchecked != 1 || r.Changed != 0 ||
		r.Aggregates != 2 || !r.Complete {
		t.Errorf("%s%+v", diff, r)
	}

	// The states are those of the new handlers.
	if r := dry(guarded(`[{"set":{"target":"n","value":7}}]`, higher)); r.Refused != 4 ||
		r.Refusals[0].Message != "had 7, got 3" || r.Changed != 2 {
		t.Errorf("%+v", r)
	}

	// It stands in nobody's way, and what is deployed is asked no more.
	f.deploy(t, guarded(keep, higher))
	if r := dry(guarded(keep, higher)); r.Refused != 0 || r.Aggregates != 0 || len(r.Types) != 0 {
		t.Errorf("%+v", r)
	}
	if r := dry(guarded(keep, other)); r.Unchecked != 1 || r.Refused != 0 || r.Aggregates != 0 {
		t.Errorf("%+v", r)
	}
}

// TestDryRunAsksAsMuchAsItMay: a hundred refusals are shown, and guards that take much are not asked for ever.
func TestDryRunAsksAsMuchAsItMay(t *testing.T) {
	f := start(t)
	f.deploy(t, simple(keep))
	for i := range 300 {
		f.write(t, fmt.Sprintf("7c0f6a38-91b2-4d6e-8f57-%012d", i), `{"n":1}`)
	}
	dry := func(guard string) *wire.SpecReplay {
		t.Helper()
		r := f.request(simple(keep + `,"requires":[{"message":"no","that":` + guard + `}]`))
		r.Aggregates = 1000
		result, err := f.Deploy(t.Context(), r)
		if err != nil {
			t.Fatal(err, fieldErrors(err))
		}
		return result.Replay
	}
	if r := dry(`{"equals":[1,2]}`); r.Refused != 300 || len(r.Refusals) != 100 || !r.Complete {
		t.Errorf("%d refused, %d shown", r.Refused, len(r.Refusals))
	}
	f.SetAsking(500)
	if r := dry(`{"equals":[1,2]}`); r.Complete || r.Refused == 0 || r.Refused > 250 {
		t.Errorf("%d refused, complete: %t", r.Refused, r.Complete)
	}
}
