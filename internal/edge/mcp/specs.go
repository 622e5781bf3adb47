package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"j17/internal/base/value"
	"j17/internal/core/trial"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
)

const (
	// maxFindings is how many findings of a kind a tool lists.
	maxFindings = 100
	// maxStates is how many states a dry run lists.
	maxStates = 100
	// maxEvents is how many events a dry run takes, and maxEventBytes how large their text may be.
	maxEvents     = 10_000
	maxEventBytes = 8 << 20
)

// specSource says where a call takes its spec from.
type specSource struct {
	Spec json.RawMessage `json:"spec"`
	File string          `json:"file"`
}

func (s *Server) specParameters() []parameter {
	fallback := "Without spec and file, the call fails."
	if s.o.Spec != nil {
		fallback = "Without spec and file, the spec that the server was started with is taken."
	}
	return []parameter{
		{"spec", `{"type":["object","string"]}`, "The spec: a JSON object, or its text, in which places are then counted. " + fallback, false},
		{"file", `{"type":"string"}`, "A spec file instead: a path within the folder that the server was started in.", false},
	}
}

func (s *Server) addSpecTools() {
	add(s, tool{
		name: "validate_spec", title: "Check a spec",
		description: "Checks a j17 spec as a deploy would and lists all that is wrong with it at once. Each finding has a JSON pointer, line and column " +
			"(from 1) and often a hint. Warnings do not make a spec invalid, unless strict is true. A valid spec is answered with its aggregate and event types.",
		parameters: append(s.specParameters(), parameter{
			"strict", `{"type":"boolean"}`, "Take warnings for errors, as 'j17 spec validate --strict' does: they are about what has no effect or can never be right.", false,
		}),
	}, s.validateSpec)
	add(s, tool{
		name: "diff_specs", title: "Compare two specs",
		description: "Compares a spec with an older one: changes, whether events that were stored under the older one survive them (compatible, findings with pointers into the newer spec), " +
			"tried: the event types whose stored events a deploy tries, and proposals: what the newer spec lacks for stored events, an older generation of an event type with its steps, or that a type is retired. " +
			"What only a person can know is in decide of a proposal: ask, do not guess.",
		parameters: append([]parameter{
			{"old", `{"type":["object","string"]}`, "The older spec, such as the deployed one: a JSON object, or its text.", false},
			{"old_file", `{"type":"string"}`, "A file with the older spec instead: a path within the folder that the server was started in.", false},
		}, s.specParameters()...),
	}, s.diffSpecs)
	add(s, tool{
		name: "dry_run_events", title: "Try events on a spec",
		description: "Checks events against a spec as a server would, applies the handlers in memory and returns the states of the aggregates. Nothing is stored. " +
			"findings: events that would be refused, with a pointer into the event, or into the spec where a guard or \"creates\" refuses it (rule). faults: operations of handlers that changed nothing because they did not fit the " +
			"state, with a pointer into the spec; a correct handler has none.",
		parameters: append(s.specParameters(),
			parameter{
				"events", `{"type":"array","items":{"type":"object"}}`,
				`The events in order, each like {"key":"order:global","type":"was_placed","data":{},"metadata":{"actor":{"type":"clerk","id":"global"}}}. ` +
					`The key is an aggregate type, a colon and an id; metadata may have a timestamp in Unix seconds, a target and previous_length.`, false,
			},
			parameter{"events_file", `{"type":"string"}`, "A file with one such event a line instead: a path within the folder that the server was started in.", false},
		),
	}, s.dryRunEvents)
}

// text returns the spec that a call is about.
func (s *Server) text(in specSource) ([]byte, error) {
	given := len(in.Spec) > 0 && string(in.Spec) != "null"
	switch {
	case given && in.File != "":
		return nil, sentencef("Pass either \"spec\" or \"file\", not both.")
	case given && in.Spec[0] == '"':
		var text string
		if err := json.Unmarshal(in.Spec, &text); err != nil {
			return nil, sentencef("The text of the spec cannot be read: %v.", err)
		}
		return []byte(text), nil
	case given:
		return in.Spec, nil
	case in.File != "":
		return s.file(in.File, spec.MaxSize)
	case s.o.Spec != nil:
		return s.o.Spec()
	default:
		return nil, sentencef("There is no spec to work on: pass \"spec\" or \"file\".")
	}
}

// file reads a file of the folder that tools may read from. Only regular files are opened, so that a pipe or a device
// cannot block the server.
func (s *Server) file(name string, limit int64) ([]byte, error) {
	clean := path.Clean(strings.ReplaceAll(name, `\`, "/"))
	if s.o.Files == nil || !fs.ValidPath(clean) || clean == "." {
		return nil, sentencef("The file %s cannot be read: only files within the folder that the server was started in can, named by a path relative to it.", diag.Quote(name))
	}
	info, err := fs.Stat(s.o.Files, clean)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sentencef("There is no file %s in the folder that the server was started in.", diag.Quote(name))
	}
	if err != nil || !info.Mode().IsRegular() {
		return nil, sentencef("The file %s cannot be read: it has to be a regular file within the folder that the server was started in.", diag.Quote(name))
	}
	f, err := s.o.Files.Open(clean)
	if err != nil {
		return nil, sentencef("The file %s cannot be opened.", diag.Quote(name))
	}
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, sentencef("The file %s cannot be read to its end.", diag.Quote(name))
	}
	if int64(len(raw)) > limit {
		return nil, sentencef("The file %s is larger than the %d KiB that are allowed.", diag.Quote(name), limit>>10)
	}
	return raw, nil
}

type validation struct {
	Valid    bool              `json:"valid"`
	Errors   int               `json:"errors"`
	Warnings int               `json:"warnings"`
	Findings []diag.Diagnostic `json:"findings"`
	// Omitted is how many findings are not listed.
	Omitted int                 `json:"omitted,omitempty"`
	Types   map[string][]string `json:"aggregate_types,omitempty"`
}

func validationOf(compiled *spec.Compiled, found []diag.Diagnostic) validation {
	v := validation{Valid: compiled != nil, Findings: []diag.Diagnostic{}}
	v.Errors, v.Warnings = diag.Count(found)
	v.Findings = append(v.Findings, found[:min(len(found), maxFindings)]...)
	v.Omitted = len(found) - len(v.Findings)
	if compiled != nil {
		v.Types = map[string][]string{}
		for name, t := range compiled.Types {
			events := make([]string, 0, len(t.Events))
			for event := range t.Events {
				events = append(events, event)
			}
			slices.Sort(events)
			v.Types[name] = events
		}
	}
	return v
}

func compile(text []byte) (*spec.Compiled, []diag.Diagnostic) {
	envelope, found := spec.Unwrap(text)
	if len(found) > 0 {
		return nil, found
	}
	return lint.Compile(envelope.Spec)
}

type validateIn struct {
	specSource
	Strict bool `json:"strict"`
}

func (s *Server) validateSpec(_ context.Context, in validateIn) (any, error) {
	text, err := s.text(in.specSource)
	if err != nil {
		return nil, err
	}
	v := validationOf(compile(text))
	v.Valid = v.Valid && (v.Warnings == 0 || !in.Strict)
	return v, nil
}

type diffIn struct {
	specSource
	Old     json.RawMessage `json:"old"`
	OldFile string          `json:"old_file"`
}

type diffOut struct {
	// Valid reports that both specs are. Where one is not, Old or Spec says what is wrong with it, and nothing was
	// compared.
	Valid bool        `json:"valid"`
	Old   *validation `json:"old,omitempty"`
	Spec  *validation `json:"spec,omitempty"`
	*compare.Difference
}

func (s *Server) diffSpecs(_ context.Context, in diffIn) (any, error) {
	if len(in.Old) == 0 && in.OldFile == "" {
		return nil, sentencef("There is nothing to compare with: pass \"old\" or \"old_file\".")
	}
	before, err := s.text(specSource{Spec: in.Old, File: in.OldFile})
	if err != nil {
		return nil, err
	}
	text, err := s.text(in.specSource)
	if err != nil {
		return nil, err
	}
	var out diffOut
	old, found := compile(before)
	if old == nil {
		v := validationOf(nil, found)
		out.Old = &v
	}
	next, found := compile(text)
	if next == nil {
		v := validationOf(nil, found)
		out.Spec = &v
	}
	if out.Valid = old != nil && next != nil; out.Valid {
		d := compare.Specs(old, next, true)
		out.Difference = &d
	}
	return out, nil
}

type dryRunIn struct {
	specSource
	Events     json.RawMessage `json:"events"`
	EventsFile string          `json:"events_file"`
}

type eventFinding struct {
	Event int    `json:"event"`
	Code  string `json:"code"`
	Path  string `json:"path,omitempty"`
	// Rule is the place in the spec of the rule that refuses the event, and Requirement its code if it is a guard.
	Rule        string `json:"rule,omitempty"`
	Requirement string `json:"requirement,omitempty"`
	diag.Diagnostic
}

type eventFault struct {
	Event int    `json:"event"`
	Key   string `json:"key"`
	Type  string `json:"type"`
	diag.Diagnostic
}

type dryRunState struct {
	Key    string          `json:"key"`
	Length uint64          `json:"length"`
	State  json.RawMessage `json:"state"`
}

type dryRunOut struct {
	SpecValid bool `json:"spec_valid"`
	// Spec is set where the spec is not valid; nothing was tried then.
	Spec     *validation    `json:"spec,omitempty"`
	Events   int            `json:"events"`
	Accepted int            `json:"accepted"`
	Findings []eventFinding `json:"findings"`
	Faults   []eventFault   `json:"faults"`
	States   []dryRunState  `json:"states"`
	// Omitted is how many findings, faults and states are not listed.
	Omitted int `json:"omitted,omitempty"`
}

func (s *Server) dryRunEvents(ctx context.Context, in dryRunIn) (any, error) {
	events, err := s.events(in)
	if err != nil {
		return nil, err
	}
	text, err := s.text(in.specSource)
	if err != nil {
		return nil, err
	}
	compiled, found := compile(text)
	if compiled == nil {
		v := validationOf(nil, found)
		return dryRunOut{Spec: &v, Findings: []eventFinding{}, Faults: []eventFault{}, States: []dryRunState{}}, nil
	}
	result, err := s.tried(ctx, compiled, events)
	if err != nil {
		return nil, err
	}
	return dryRunOf(result), nil
}

// maxDryRun is how long a dry run may take. It is stopped between two events; what one event may cost is limited by the
// budgets of handlers.
const maxDryRun = 10 * time.Second

// errDryRunTime is the cause of a dry run that was stopped for its time.
var errDryRunTime = sentencef("The dry run took more than %d seconds and was stopped. Try fewer events, or look for handlers that search large arrays again and again.", maxDryRun/time.Second)

func (s *Server) tried(ctx context.Context, compiled *spec.Compiled, events string) (trial.DryRunResult, error) {
	now := s.o.Clock.Now()
	limited, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		if s.o.Clock.Wait(limited, now.Add(maxDryRun)) == nil {
			stop(errDryRunTime)
		}
	}()
	result, err := trial.DryRun(limited, compiled, nil, events, now.Unix())
	if err != nil {
		err = context.Cause(limited)
	}
	return result, err
}

// events returns the text of the events to try, one after another.
func (s *Server) events(in dryRunIn) (string, error) {
	given := len(in.Events) > 0 && string(in.Events) != "null"
	var text string
	switch {
	case given == (in.EventsFile != ""):
		return "", sentencef("Pass either \"events\" or \"events_file\".")
	case given:
		if in.Events[0] != '[' {
			return "", sentencef("\"events\" must be an array of events.")
		}
		text = string(in.Events)
	default:
		raw, err := s.file(in.EventsFile, maxEventBytes)
		if err != nil {
			return "", err
		}
		text = string(raw)
	}
	if len(text) > maxEventBytes {
		return "", sentencef("The events have more than %d KiB together. Try fewer of them.", maxEventBytes>>10)
	}
	if n := countEvents(text); n > maxEvents {
		return "", sentencef("There are %d events, and %d can be tried at a time. Try fewer of them.", n, maxEvents)
	}
	return text, nil
}

func countEvents(text string) int {
	if v, err := value.ParseString(text); err == nil {
		return len(v.Elems())
	}
	return strings.Count(text, "\n")
}

func dryRunOf(r trial.DryRunResult) dryRunOut {
	out := dryRunOut{
		SpecValid: true, Events: r.Events, Accepted: r.Accepted, Omitted: r.Dropped,
		Findings: []eventFinding{}, Faults: []eventFault{}, States: []dryRunState{},
	}
	for i, f := range r.Findings {
		if i == maxFindings {
			out.Omitted += len(r.Findings) - i
			break
		}
		out.Findings = append(out.Findings, eventFinding{
			f.Event, string(f.Code), f.Path, string(f.Rule), f.Requirement, f.Diagnostic,
		})
	}
	for i, f := range r.Faults {
		if i == maxFindings {
			out.Omitted += len(r.Faults) - i
			break
		}
		out.Faults = append(out.Faults, eventFault{f.Event, f.Key.String(), f.Type, f.Diagnostic})
	}
	size := 0
	for i, st := range r.States {
		if size += len(st.JSON); i == maxStates || size > maxAnswer/2 {
			out.Omitted += len(r.States) - i
			break
		}
		out.States = append(out.States, dryRunState{st.Key.String(), st.Length, st.JSON})
	}
	return out
}
