package generation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/derived/generation"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// Members of event types of the specs that are tried here.
const (
	// first is the shape in which n is a text, second that in which it is a number, and a is what makes it one.
	first  = `"schema":{"type":"object","required":["n"]}`
	second = `"schema":{"type":"object","properties":{"n":{"type":"number"}},"required":["n"],"additionalProperties":false}`
	step   = `"generations":{"1":{"schema":{"type":"object","required":["n"]},"upcast":[{"set":{"target":"n","value":{"$add":["@.n",0]}}}]}}`
	keep   = `"handler":[{"merge":{"target":"","value":"$.data"}}]`
)

// specOf is a spec with an aggregate type "box" that has these event types, and one beside it.
func specOf(events ...string) string {
	return `{"agent_types":["user"],"aggregate_types":{"box":{"events":{` + strings.Join(events, ",") +
		`}},"other":{"events":{"e":{"schema":{},"handler":[]}}}}}`
}

// e is the event type "e", with these members.
func e(members ...string) string { return `"e":{` + strings.Join(append(members, keep), ",") + `}` }

// house is an engine with trials, on a store in memory that counts what is read of feeds.
type house struct {
	*enginetest.Fixture
	tb          testing.TB
	generations *generation.Service
	read        atomic.Int64
	// pageEvents and readyPages are options of the service.
	pageEvents, readyPages int
	// reading, if not nil, is called before a page is read.
	reading func()
}

func newHouse(tb testing.TB, src string) *house {
	tb.Helper()
	h := &house{tb: tb, Fixture: enginetest.New(tb, engine.Options{})}
	h.open()
	h.DeploySource(tb, src)
	return h
}

// open makes the service, as when the program starts.
func (h *house) open() {
	log := slog.New(slog.DiscardHandler)
	h.generations = generation.New(generation.Options{
		Store: &reads{Store: h.Store, house: h}, Engine: h.Engine, Clock: h.Clock, Worker: worker.New(h.Clock, log),
		Logger: log, PageEvents: h.pageEvents, ReadyPages: h.readyPages,
	})
}

// reads counts the elements of feeds that are read.
type reads struct {
	store.Store
	house *house
}

func (r *reads) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if r.house.reading != nil {
			r.house.reading()
		}
		for e, err := range r.Store.ReadChanges(ctx, t, after, limit) {
			r.house.read.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}

// put stores events in a generation: their data, of boxes whose numbers count up from 0.
func (h *house) put(name string, number int, data ...string) {
	h.tb.Helper()
	metadata := `{"actor":{"type":"user","id":"u"}}`
	if number > 1 {
		metadata = fmt.Sprintf(`{"actor":{"type":"user","id":"u"},"generation":%d}`, number)
	}
	for i, d := range data {
		_, err := h.Store.Append(h.tb.Context(), enginetest.Tenant, []store.Append{{Events: []store.NewEvent{{
			Key: box(i), Type: name, Data: []byte(d), Metadata: []byte(metadata),
		}}}})
		if err != nil {
			h.tb.Fatal(err)
		}
	}
}

func box(n int) j17.Key {
	return j17.Key{Type: "box", ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n)}
}

// deploy deploys a spec as the control plane does. between, if not nil, is called when most was tried.
func (h *house) deploy(src string, asked part.Asked, between func()) (filled part.Filled, err error) {
	h.tb.Helper()
	compiled := enginetest.Compiled(h.tb, src)
	f, err := h.generations.Fill(h.tb.Context(), enginetest.Tenant, decider.New(compiled, nil), asked)
	if err != nil {
		return filled, err
	}
	var all []*part.Filling
	if f != nil {
		all = append(all, f)
	}
	hold := func(do func() error) error {
		if between != nil {
			between()
		}
		return h.Hold(enginetest.Tenant, do)
	}
	err = part.Fill(h.tb.Context(), all, hold, func(with *part.Filled) error {
		filled = *with
		if err := h.Store.Write(h.tb.Context(), enginetest.Tenant, with.Sides); err != nil {
			return err
		}
		h.Deploy(enginetest.Tenant, compiled, nil)
		return nil
	})
	return filled, err
}

// tried deploys a spec and wants it to succeed after so many events were tried.
func (h *house) tried(src string, events uint64) {
	h.tb.Helper()
	filled, err := h.deploy(src, part.Asked{}, nil)
	if err != nil {
		h.tb.Fatal(err)
	}
	if filled.Tried == nil {
		filled.Tried = &wire.SpecTrial{}
	}
	if filled.Tried.Events != events || filled.Tried.Failed != 0 {
		h.tb.Fatalf("%+v; want %d events", filled.Tried, events)
	}
}

// refused deploys a spec and wants it to be refused after so many events were tried, of which some fail.
func (h *house) refused(src string, events, failed int) *j17.Error {
	h.tb.Helper()
	_, err := h.deploy(src, part.Asked{}, nil)
	return h.refusal(err, events, failed)
}

func (h *house) refusal(err error, events, failed int) *j17.Error {
	h.tb.Helper()
	told, _ := errors.AsType[*j17.Error](err)
	if j17.CodeOf(err) != j17.CodeIncompatibleSpec {
		h.tb.Fatalf("it is not refused: %v", err)
	}
	details, _ := json.Marshal(told.Details)
	if want := fmt.Sprintf(`{"trial":{"events":%d,"failed":%d}}`, events, failed); string(details) != want {
		h.tb.Fatalf("details %s, want %s", details, want)
	}
	return told
}

// TestFailuresAreNamed deploys specs under which stored events fail, and looks at what is said of them.
func TestFailuresAreNamed(t *testing.T) {
	h := newHouse(t, specOf(e(first)))
	h.put("e", 1, `{"n":1}`, `{"n":2,"extra":true}`, `{"n":3}`, `{"n":[]}`)
	h.put("other", 1, `{"n":"is not looked at"}`)
	next := specOf(e(second, `"generations":{"1":{"schema":{"type":"object","required":["n"]},"upcast":[]}}`))

	const at = "/aggregate_types/box/events/e/schema"
	for range 2 { // the second time it is known
		told := h.refused(next, 4, 2)
		if len(told.Errors) != 2 {
			t.Fatalf("%+v", told.Errors)
		}
		for i, want := range []struct {
			n    int
			path string
		}{{1, "data.extra"}, {3, "data.n"}} {
			f := told.Errors[i]
			if f.FailedEvent == nil || f.Key != box(want.n).String() || f.Type != "e" || f.Generation != 1 ||
				f.Cause != "schema" || f.Path != want.path || f.Pointer != at || f.Line == 0 || f.Message == "" ||
				f.StreamID == "" {
				t.Errorf("failure %d: %+v %+v", i, f, f.FailedEvent)
			}
		}
		text, err := json.Marshal(told.Errors[0])
		if err != nil || !strings.Contains(string(text), `"cause":"schema","stream_id":"`) {
			t.Errorf("%s %v", text, err)
		}
	}

	// As many as are asked for.
	_, err := h.deploy(next, part.Asked{Failures: 1}, nil)
	if told := h.refusal(err, 4, 2); len(told.Errors) != 1 {
		t.Errorf("%d are listed", len(told.Errors))
	}
}

// TestWhatIsTriedOnce deploys specs over events that were tried before: under the same steps and schema only those are
// looked at that came since.
func TestWhatIsTriedOnce(t *testing.T) {
	h := newHouse(t, specOf(e(first)))
	h.put("e", 1, `{"n":1}`, `{"n":2}`, `{"n":3}`)
	after := func(do func()) int64 {
		before := h.read.Load()
		do()
		return h.read.Load() - before
	}
	next := specOf(e(second, step))
	dry := func() {
		t.Helper()
		trial, err := h.generations.Try(
			t.Context(), enginetest.Tenant, decider.New(enginetest.Compiled(t, next), nil), part.Asked{},
		)
		if err != nil || trial.Tried.Events != 3 || trial.Tried.Failed != 0 || len(trial.Tried.Examples) != 3 ||
			trial.Tried.Examples[1].Before != `{"n":2}` || trial.Tried.Examples[1].After != `{"n":2}` ||
			trial.Tried.Examples[1].Key != box(1).String() || trial.Tried.Examples[1].Generation != 1 {
			t.Fatalf("%+v %v", trial.Tried, err)
		}
	}
	if n := after(dry); n != 3 {
		t.Errorf("the dry run has read %d", n)
	}
	h.open() // as after a restart
	if n := after(dry); n != 0 {
		t.Errorf("the second dry run has read %d", n)
	}
	if n := after(func() { h.tried(next, 3) }); n != 0 {
		t.Errorf("the deployment has read %d", n)
	}

	// Other steps, and what does not matter.
	other := strings.Replace(next, `["@.n",0]`, `["@.n",1]`, 1)
	if n := after(func() { h.tried(other, 3) }); n != 3 {
		t.Errorf("under other steps it has read %d", n)
	}
	closed := strings.Replace(other, `"upcast"`, `"closed":true,"upcast"`, 1)
	if n := after(func() { h.tried(closed, 0) }); n != 0 {
		t.Errorf("for a closed generation it has read %d", n)
	}
	h.put("e", 1, `{"n":4}`)
	if n := after(func() { h.tried(next, 4) }); n != 1 {
		t.Errorf("on the way back it has read %d", n)
	}
}

// TestWhatComesMeanwhile stores events when most of a trial is over: they are tried before the spec is stored, whether
// they fit or not.
func TestWhatComesMeanwhile(t *testing.T) {
	h := newHouse(t, specOf(e(first)))
	h.put("e", 1, `{"n":1}`)
	next := specOf(e(second, step))
	_, err := h.deploy(next, part.Asked{}, func() { h.put("e", 1, `{"n":2}`, `{"n":2,"extra":1}`) })
	if told := h.refusal(err, 3, 1); len(told.Errors) != 1 || told.Errors[0].Key != box(1).String() {
		t.Fatalf("%+v", told.Errors)
	}
	if c := h.Spec(enginetest.Tenant); c.EventType("box", "e").Generation != 1 {
		t.Fatal("the spec is deployed")
	}
	loose := strings.Replace(next, `,"additionalProperties":false`, "", 1)
	filled, err := h.deploy(loose, part.Asked{}, func() { h.put("e", 1, `{"n":3}`) })
	if err != nil || filled.Tried.Events != 4 {
		t.Fatalf("%+v %v", filled.Tried, err)
	}
}

// stored lists what is stored of an event type: name, generation, events and failures of each.
func (h *house) stored(typ string) string {
	h.tb.Helper()
	all, err := h.generations.List(h.tb.Context(), enginetest.Tenant)
	if err != nil {
		h.tb.Fatal(err)
	}
	var b strings.Builder
	for _, of := range all.Types {
		if of.Type == "box."+typ {
			for _, s := range of.Stored {
				fmt.Fprintf(&b, "%s %d: %d, %d; ", s.Name, s.Generation, s.Events, s.Failed)
			}
		}
	}
	return b.String()
}

func (h *house) counts(typ, want string) {
	h.tb.Helper()
	if got := h.stored(typ); got != want {
		h.tb.Errorf("of %s there is %q, want %q", typ, got, want)
	}
}

// TestFewerGenerations rolls back: refused where events of the later generation are stored, and where a retired type
// goes of which something is.
func TestFewerGenerations(t *testing.T) {
	one, two := specOf(e(first)), specOf(e(second, step))
	h := newHouse(t, one)
	h.put("e", 1, `{"n":1}`)
	h.tried(two, 1)
	h.tried(one, 1) // nothing is stored in the second one; the first is compared with the schema again
	h.tried(two, 1)
	h.put("e", 2, `{"n":2}`, `{"n":3}`)
	h.counts("e", "e 1: 1, 0; e 2: 2, 0; ")
	told := h.refused(one, 3, 2)
	if len(told.Errors) != 1 || told.Errors[0].Pointer != "/aggregate_types/box/events/e" ||
		!strings.Contains(told.Errors[0].Message, "2 stored events are in generation 2 of 'e'") {
		t.Fatalf("%+v", told.Errors)
	}

	// By force, and forward again: what was stored in the second generation is compared with the schema.
	if _, err := h.deploy(one, part.Asked{Force: true}, nil); err != nil {
		t.Fatal(err)
	}
	h.put("e", 2, `{"n":"no number"}`)
	if told := h.refused(two, 4, 1); told.Errors[0].Generation != 2 || told.Errors[0].Cause != "schema" {
		t.Fatalf("%+v", told.Errors)
	}

	// Retired types.
	faxed := `"was_faxed":{"schema":{},"handler":[],"retired":true}`
	h = newHouse(t, specOf(e(first), faxed))
	h.tried(specOf(e(first)), 0)
	h.tried(specOf(e(first), faxed), 0)
	h.put("was_faxed", 1, `{}`)
	h.counts("was_faxed", "was_faxed 1: 1, 0; ")
	if told := h.refused(specOf(e(first)), 1, 1); told.Errors[0].Pointer != "/aggregate_types/box/events" ||
		!strings.Contains(told.Errors[0].Message, "'was_faxed' is gone, and 1 stored event is of it") {
		t.Fatalf("%+v", told.Errors)
	}
}

// TestByForce deploys by force over an event that fails: it is tried behind the deployment.
func TestByForce(t *testing.T) {
	h := newHouse(t, specOf(e(first)))
	h.put("e", 1, `{"n":1}`, `{"n":1,"extra":1}`)
	filled, err := h.deploy(specOf(e(second, step)), part.Asked{Force: true}, nil)
	if err != nil || filled.Tried != nil {
		t.Fatalf("%+v %v", filled, err)
	}
	if err := h.generations.Adopt(t.Context(), enginetest.Tenant); err != nil {
		t.Fatal(err)
	}
	if due, err := h.generations.NextDue(t.Context()); err != nil || due.IsZero() {
		t.Fatalf("nothing is due: %v", err)
	}
	if err := h.generations.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if due, err := h.generations.NextDue(t.Context()); err != nil || !due.IsZero() {
		t.Fatalf("it is due at %v: %v", due, err)
	}
	before := h.read.Load()
	h.counts("e", "e 1: 2, 1; ")
	if h.read.Load() != before {
		t.Error("it was not tried in the background")
	}
	if err := h.generations.Adopt(t.Context(), enginetest.Tenant); err != nil {
		t.Fatal(err)
	}
	if due, err := h.generations.NextDue(t.Context()); err != nil || !due.IsZero() {
		t.Fatalf("it is tried again: %v", err)
	}
}

// erase replaces the events of a box by markers.
func (h *house) erase(n int, tell bool) {
	h.tb.Helper()
	heads, err := h.Store.Heads(h.tb.Context(), enginetest.Tenant, []j17.Key{box(n)})
	if err != nil {
		h.tb.Fatal(err)
	}
	var gone []store.Rewritten
	for v := range heads[0].Length {
		gone = append(gone, store.Rewritten{
			Version: v + 1, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`),
		})
	}
	if err := storetest.Erase(h.tb.Context(), h.Store, enginetest.Tenant, box(n), gone); err != nil {
		h.tb.Fatal(err)
	}
	if tell {
		if err := h.generations.Erase(h.tb.Context(), enginetest.Tenant,
			part.Erased{Keys: []j17.Key{box(n)}}); err != nil {
			h.tb.Fatal(err)
		}
	}
}

// TestErasures erases events that have failed: they are no longer counted or named, whether the service has been told
// yet or not, and while they are tried too.
func TestErasures(t *testing.T) {
	for _, tell := range []bool{true, false} {
		h := newHouse(t, specOf(e(first)))
		h.put("e", 1, `{"n":1}`, `{"n":1,"extra":1}`, `{"n":1,"extra":1}`)
		next := specOf(e(second, step))
		if refused := h.refused(next, 3, 2); refused == nil {
			t.Fatal("it is deployed")
		}
		h.erase(1, tell)
		if tell {
			items, err := h.Store.Scan(t.Context(), enginetest.Tenant, "generation.failures", store.Range{}, 10)
			if err != nil || len(items) != 0 {
				t.Errorf("what is kept: %v %v", items, err)
			}
			if told := h.refused(next, 2, 1); len(told.Errors) != 1 || told.Errors[0].Key != box(2).String() {
				t.Fatalf("%+v", told.Errors)
			}
		}

		// The control plane begins again when a trial was overtaken.
		_, err := h.deploy(next, part.Asked{}, func() { h.erase(2, tell) })
		if _, is := errors.AsType[*store.SideConflict](err); tell && j17.CodeOf(err) != j17.CodeIncompatibleSpec &&
			!is {
			t.Fatalf("erased meanwhile: %v", err)
		}
		if !tell {
			h.erase(2, false)
			for range 3 {
				if _, err = h.deploy(next, part.Asked{}, nil); err == nil {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		} else {
			h.erase(2, true)
			h.tried(next, 1)
		}
		h.counts("e", "e 1: 1, 0; ")
	}
}

// TestPrepared tries events for a prepared spec by a few pages at a time, with a restart between them.
func TestPrepared(t *testing.T) {
	h := newHouse(t, specOf(e(first)))
	var data []string
	for n := range 20 {
		data = append(data, fmt.Sprintf(`{"n":%d}`, n))
	}
	h.put("e", 1, data...)
	after := decider.New(enginetest.Compiled(t, specOf(e(second, step))), nil)
	h.erase(19, false) // a note that must not make it begin again
	h.pageEvents, h.readyPages = 3, 2
	for round := 1; ; round++ {
		h.open()
		r, err := h.generations.Ready(t.Context(), enginetest.Tenant, after)
		if err != nil || round > 10 {
			t.Fatalf("round %d: %+v %v", round, r, err)
		}
		if r.Done {
			break
		}
		if want := uint64(6 * round); r.Kind != part.TrialKind || r.Built != want || r.Total != 20 {
			t.Fatalf("round %d: %+v", round, r)
		}
	}
	if n := h.read.Load(); n != 21 {
		t.Errorf("%d were read", n)
	}
	h.tried(specOf(e(second, step)), 19)
}

// TestReadersAreTold looks at which events readers of the deployed spec need not check.
func TestReadersAreTold(t *testing.T) {
	h := newHouse(t, specOf(e(first)))
	h.put("e", 1, `{"n":1}`, `{"n":2}`)
	adopt := func() {
		t.Helper()
		if err := h.generations.Adopt(t.Context(), enginetest.Tenant); err != nil {
			t.Fatal(err)
		}
	}
	want := func(covered, next bool) {
		t.Helper()
		d, err := h.Decider(enginetest.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		extent, err := h.Store.Extent(t.Context(), enginetest.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		plan, last := d.Types["box"].Events["e"].Plan(1), extent.Last
		after := last
		after.Seq++
		if d.Tried.Covers(plan, last) != covered || d.Tried.Covers(plan, after) != next {
			t.Errorf("covered is %v, want %v; what comes next %v", !covered, covered, d.Tried.Covers(plan, after))
		}
	}

	// What a deployment has tried, and not what comes later.
	h.tried(specOf(e(second, step)), 2)
	want(false, false)
	adopt()
	want(true, false)
	h.put("e", 1, `{"n":3}`)
	want(false, false)
	h.counts("e", "e 1: 3, 0; ")
	want(true, false)

	// Nothing by force until it was tried, nor where an event fails.
	h.put("e", 1, `{"n":"text"}`)
	other := strings.Replace(step, `["@.n",0]`, `["@.n",1]`, 1)
	if _, err := h.deploy(specOf(e(second, other)), part.Asked{Force: true}, nil); err != nil {
		t.Fatal(err)
	}
	adopt()
	want(false, false)
	if err := h.generations.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(false, false)
	lenient := `"generations":{"1":{"schema":{"type":"object"},"upcast":[{"drop":{"target":"n"}},{"set":{"target":"n","value":1}}]}}`
	if _, err := h.deploy(specOf(e(second, lenient)), part.Asked{Force: true}, nil); err != nil {
		t.Fatal(err)
	}
	adopt()
	want(false, false)
	if err := h.generations.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(true, false)
}

// TestRunningIsShown asks before each page how far a trial is.
func TestRunningIsShown(t *testing.T) {
	h := newHouse(t, specOf(e(first)))
	h.put("e", 1, `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`, `{"n":5}`)
	h.pageEvents = 2
	h.open()
	if r := h.generations.Running(enginetest.Tenant); r != nil {
		t.Fatalf("before: %+v", r)
	}
	var shown []string
	h.reading = func() {
		r := h.generations.Running(enginetest.Tenant)
		shown = append(shown, fmt.Sprintf("%s %s %d/%d", r.Kind, r.Status, r.Done, r.Total))
	}
	h.tried(specOf(e(second, step)), 5)
	want := []string{"trial running 0/5", "trial running 2/5", "trial running 4/5", "trial running 5/5"}
	if !slices.Equal(shown, want) {
		t.Errorf("shown: %q, want %q", shown, want)
	}
	if r := h.generations.Running(enginetest.Tenant); r != nil {
		t.Errorf("behind: %+v", r)
	}
}

// TestNamesThatBecomeOne lists what is stored under several names that are read as one type.
func TestNamesThatBecomeOne(t *testing.T) {
	h := newHouse(t, specOf(e(first), `"old":{"schema":{},"handler":[]}`))
	h.put("e", 1, `{"n":1}`)
	h.put("old", 1, `{"n":2}`, `{"n":"text"}`)
	as := `"old":{"schema":{},"retired":{"as":"e","generation":1}}`
	if told := h.refused(specOf(e(second, step), as), 3, 1); told.Errors[0].Type != "old" {
		t.Fatalf("%+v", told.Errors)
	}
	if _, err := h.deploy(specOf(e(second, step), as), part.Asked{Force: true}, nil); err != nil {
		t.Fatal(err)
	}
	h.put("e", 2, `{"n":4}`)
	h.counts("e", "e 1: 1, 0; e 2: 1, 0; old 1: 2, 1; ")
	h.counts("old", "old 1: 2, 1; ")
	h.put("e", 5, `{"n":5}`)
	h.counts("e", "e 1: 1, 0; e 2: 1, 0; e 5: 1, 1; old 1: 2, 1; ")
}

// TestManyWaysOfReading deploys many specs with other steps, each of many generations: all are tried, and what is kept
// of those that are no longer deployed is bounded.
func TestManyWaysOfReading(t *testing.T) {
	var generations []string
	for n := range 60 {
		generations = append(generations, fmt.Sprintf(`"%d":{"schema":true,"upcast":[{"set":{"target":"n","value":{"$add":["@.n",0]}}}]}`, n+1))
	}
	older := `"generations":{` + strings.Join(generations, ",") + `}`
	next := specOf(e(second, older), strings.Replace(e(second, older), `"e"`, `"f"`, 1))
	h := newHouse(t, specOf(e(first)))
	h.put("e", 1, `{"n":1}`)
	h.tried(next, 1)
	for n := range 3 {
		h.tried(strings.ReplaceAll(next, `["@.n",0]`, fmt.Sprintf(`["@.n",%d]`, n+1)), 1)
	}
	h.tried(next, 1)
	items, err := h.Store.Scan(t.Context(), enginetest.Tenant, "generation.trials", store.Range{}, 10_000)
	if err != nil || len(items) > 360 {
		t.Errorf("%d are kept: %v", len(items), err)
	}
}
