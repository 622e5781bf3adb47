package tick_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

var update = flag.Bool("update", false, "rewrite the results in testdata")

const (
	firstTime = 1_700_000_000
	eventKey  = "thing:550e8400-e29b-41d4-a716-446655440000"
)

func mustParse(tb testing.TB, src string) value.Value {
	tb.Helper()
	v, err := value.ParseString(src)
	if err != nil {
		tb.Fatalf("%s: %v", src, err)
	}
	return v
}

// event is one event of a test, in the forms that the two evaluators take.
type event struct {
	typ            string
	data, metadata value.Value
	timestamp      int64
}

func newEvent(typ string, data value.Value, timestamp int64) event {
	metadata := value.ObjectValue(
		value.Member{Key: "actor", Value: value.ObjectValue(
			value.Member{Key: "type", Value: value.StringValue("user")},
			value.Member{Key: "id", Value: value.StringValue("u1")})},
		value.Member{Key: "timestamp", Value: value.Int(timestamp)})
	return event{typ: typ, data: data, metadata: metadata, timestamp: timestamp}
}

func (e *event) raw() *tick.Event {
	return &tick.Event{
		Key: eventKey, Type: e.typ, Timestamp: e.timestamp,
		Data: tick.Raw(e.data.AppendJSON(nil)), Metadata: tick.Raw(e.metadata.AppendJSON(nil)),
	}
}

func (e *event) parsed() *tick.Event {
	return &tick.Event{
		Key: eventKey, Type: e.typ, Timestamp: e.timestamp,
		Data: tick.Parsed(e.data), Metadata: tick.Parsed(e.metadata),
	}
}

func (e *event) tree() value.Value {
	return value.ObjectValue(
		value.Member{Key: "key", Value: value.StringValue(eventKey)},
		value.Member{Key: "type", Value: value.StringValue(e.typ)},
		value.Member{Key: "data", Value: e.data},
		value.Member{Key: "metadata", Value: e.metadata})
}

// outcome is a state and the faults on the way to it.
type outcome struct {
	state  string
	faults []tick.Fault
}

func (o *outcome) pointers() []string {
	var out []string
	for _, f := range o.faults {
		out = append(out, string(f.Pointer))
	}
	return out
}

// largeState is the size in bytes at which a test at random ends: some handlers double the state with every event.
const largeState = 1 << 14

// limited reports whether a fault comes from a limit on what one event may cost.
func limited(f tick.Fault) bool {
	return strings.Contains(f.Message, " would be larger than 8 MiB") || strings.Contains(f.Message, "levels deep")
}

// fataler is what a test and a rapid test have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Context() context.Context
}

// apply takes one event into a state, with the budget of a fold.
func apply(
	t fataler, h *tick.Handler, ed *value.Editor, state value.Value, ev *tick.Event, faults func(tick.Fault),
) value.Value {
	t.Helper()
	next, err := h.Apply(ed, state, ev, work.New(t.Context(), work.Replay), faults)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return next
}

// history applies events to a state in three ways that have to agree with each other and with the reference: with one
// editor that changes its own containers in place; with a new editor for every event, after which no earlier state may
// have changed; and with one editor that is frozen after every other event, likewise.
func history(t fataler, handlers map[string]value.Value, state value.Value, events []event, stamp bool) []outcome {
	t.Helper()
	compiled := map[string]*tick.Handler{}
	for name, h := range handlers {
		var l diag.List
		if compiled[name] = tick.CompileHandler(h, "", &l); compiled[name] == nil {
			t.Fatalf("%s does not compile: %v", h, l.All())
		}
	}
	type kept struct {
		state value.Value
		text  string
	}
	var outcomes []outcome
	var snapshots []kept
	one, frozen := value.NewEditor(), value.NewEditor()
	inPlace, fresh, mixed, reference := state, state, state, state
	snapshots = append(snapshots, kept{state, state.String()})
	for i, ev := range events {
		h := compiled[ev.typ]
		var faults [3][]tick.Fault
		collect := func(n int) func(tick.Fault) {
			return func(f tick.Fault) { faults[n] = append(faults[n], f) }
		}
		each := value.NewEditor()
		inPlace = apply(t, h, one, inPlace, ev.raw(), collect(0))
		fresh = apply(t, h, each, fresh, ev.parsed(), collect(1))
		mixed = apply(t, h, frozen, mixed, ev.raw(), collect(2))
		if slices.ContainsFunc(faults[0], limited) {
			// The reference knows no limits.
			break
		}
		want, wantFaults := naiveApply(handlers[ev.typ], reference, ev.tree())
		if stamp {
			inPlace = tick.Stamp(one, inPlace, events[0].timestamp, ev.timestamp)
			fresh = tick.Stamp(each, fresh, events[0].timestamp, ev.timestamp)
			mixed = tick.Stamp(frozen, mixed, events[0].timestamp, ev.timestamp)
			want = tick.Stamp(value.NewEditor(), want, events[0].timestamp, ev.timestamp)
		}
		reference = want
		got := outcome{inPlace.String(), faults[0]}
		for n, state := range []value.Value{inPlace, fresh, mixed} {
			if state.Size() != len(state.String()) {
				t.Fatalf("event %d: way %d has a state of %d bytes and says %d", i, n, len(state.String()), state.Size())
			}
		}
		if got.state != want.String() {
			t.Fatalf("event %d: the state is\n%.4000s, want\n%.4000s", i, got.state, want)
		}
		if !slices.Equal(got.pointers(), wantFaults) {
			t.Fatalf("event %d: the faults are %v, want %v", i, got.faults, wantFaults)
		}
		for n, other := range []value.Value{fresh, mixed} {
			if other.String() != got.state {
				t.Fatalf("event %d: way %d gives\n%.4000s, way 0\n%.4000s", i, n+1, other, got.state)
			}
			if !slices.Equal(faults[n+1], got.faults) {
				t.Fatalf("event %d: way %d has faults %v, way 0 %v", i, n+1, faults[n+1], got.faults)
			}
		}
		outcomes = append(outcomes, got)
		snapshots = append(snapshots, kept{fresh, fresh.String()})
		if i%2 == 0 {
			frozen.Freeze()
			snapshots = append(snapshots, kept{mixed, mixed.String()})
		}
		if len(got.state) > largeState {
			break
		}
		// Nobody reports faults and nothing else changes.
		silent := apply(t, h, value.NewEditor(), snapshots[0].state, ev.parsed(), nil)
		if i == 0 && !stamp && silent.String() != got.state {
			t.Fatalf("event %d: without a fault function the state is\n%s, with one\n%s", i, silent, got.state)
		}
	}
	for _, s := range snapshots {
		if now := s.state.String(); now != s.text {
			t.Fatalf("an earlier state changed from\n%.4000s to\n%.4000s", s.text, now)
		}
	}
	return outcomes
}

// TestCases runs testdata/*.txtar. Every file in an archive is a case:
//
//	handler JSON         for events of the type "happened"
//	on TYPE JSON         for events of another type
//	state JSON           the state before the first event; {} without this line
//	event [TYPE] JSON    an event and its data
//	stamp                let the engine's timestamps be added
//	----                 what follows is the result: findings, or the state after each event and the faults on the way
//
// A line that starts with white space goes on with the line before.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i := range archive.Files {
				f := &archive.Files[i]
				t.Run(f.Name, func(t *testing.T) {
					input, want, _ := strings.Cut(string(f.Data), "----\n")
					got := runCase(t, input)
					if *update {
						f.Data = []byte(strings.TrimRight(input, "\n") + "\n----\n" + got + "\n")
						return
					}
					if got := strings.TrimSpace(got); got != strings.TrimSpace(want) {
						t.Errorf("got\n%s\nwant\n%s", got, want)
					}
				})
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func runCase(t *testing.T, input string) string {
	t.Helper()
	handlers := map[string]value.Value{}
	state := value.ObjectValue()
	var events []event
	stamp := false
	input = strings.ReplaceAll(strings.ReplaceAll(input, "\n ", " "), "\n\t", " ")
	for line := range strings.SplitSeq(input, "\n") {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		typ := "happened"
		if word == "on" || word == "event" && !strings.HasPrefix(rest, "{") {
			typ, rest, _ = strings.Cut(rest, " ")
		}
		switch word {
		case "":
		case "handler", "on":
			handlers[typ] = mustParse(t, rest)
		case "state":
			state = mustParse(t, rest)
		case "event":
			events = append(events, newEvent(typ, mustParse(t, rest), firstTime+60*int64(len(events))))
		case "stamp":
			stamp = true
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	var b strings.Builder
	for _, typ := range sortedKeys(handlers) {
		var l diag.List
		tick.CompileHandler(handlers[typ], "", &l)
		for _, d := range l.All() {
			fmt.Fprintf(&b, "%s %s: %s\n", d.Severity, pointerText(d.Pointer, d.OnKey), d.Message)
			if d.Hint != "" {
				fmt.Fprintf(&b, "  %s\n", d.Hint)
			}
		}
		if l.Errors() > 0 {
			events = nil
		}
	}
	for _, o := range history(t, compilable(handlers, events), state, events, stamp) {
		for _, f := range o.faults {
			fmt.Fprintf(&b, "fault %s: %s\n", pointerText(f.Pointer, false), f.Message)
		}
		fmt.Fprintf(&b, "%s\n", o.state)
	}
	return b.String()
}

func compilable(handlers map[string]value.Value, events []event) map[string]value.Value {
	if len(events) == 0 {
		return nil
	}
	return handlers
}

func pointerText(p diag.Pointer, onKey bool) string {
	text := string(p)
	if text == "" {
		text = "/"
	}
	if onKey {
		text += " (key)"
	}
	return text
}

func sortedKeys(m map[string]value.Value) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
