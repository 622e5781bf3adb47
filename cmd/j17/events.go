package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/core/trial"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
)

func eventsCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Check, try, write and read events",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(eventsValidateCommand(e), eventsDryRunCommand(e), eventsShowCommand(e), eventsTraceCommand(e))
	cmd.AddCommand(eventsOnlineCommands(e)...)
	return cmd
}

// maxEventFile is how many bytes of events are tried at a time: they are kept in memory.
const maxEventFile = 1 << 30

// eventFiles says what a file of events looks like, for the help of the commands that read one.
const eventFiles = `EVENTS is a file with one event a line (JSONL), or with a JSON array of events; - is standard input. An event is

  {"key": "order:global", "type": "was_placed", "data": {...}, "metadata": {"actor": {"type": "user", "id": "..."}}}

where "aggregate_type" and "id" may take the place of "key", and "metadata" may have a "timestamp" in Unix seconds. Lines of an
export, which have a "stream_id", are accepted as they are.`

func eventsValidateCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate SPEC EVENTS",
		Short: "Check events against a spec",
		Long: `Check events as a server with that spec would, and report everything that is wrong with them, each finding with its place.

` + eventFiles + `

Exit code 0: all events are valid, 3: some are not, or the spec is not.`,
		Example:           "  j17 events validate spec.json events.jsonl",
		Args:              exactly("SPEC", "EVENTS"),
		ValidArgsFunction: specThenEvents,
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := tryEvents(cmd.Context(), e, args[0], args[1], nil, nil)
			if err != nil {
				return err
			}
			if asJSON {
				err = e.printJSON(run.validation())
			} else {
				err = run.report(e)
			}
			if err == nil && len(run.Findings) == 0 && !asJSON {
				_, err = fmt.Fprintf(e.out, "%s is valid: %s\n", run.name, j17.Count(run.Events, "event"))
			}
			return run.verdict(err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func eventsDryRunCommand(e *env) *cobra.Command {
	var asJSON, strict bool
	var at string
	var blobs localBlobs
	cmd := &cobra.Command{
		Use:   "dry-run SPEC EVENTS",
		Short: "Show the states that events would lead to",
		Long: `Check events as a server with that spec would, apply the handlers to those that are valid, in memory, and print the state of
every aggregate. Operations of handlers that did not fit and so changed nothing are reported with their place in the spec. What the
events imply is shown and applied too.

` + eventFiles + `

` + blobHelp + `

Exit code 0: all events are valid, 3: some are not, or the spec is not. With --strict it is 1 when an operation changed
nothing.`,
		Example:           "  j17 events dry-run spec.json events.jsonl",
		Args:              exactly("SPEC", "EVENTS"),
		ValidArgsFunction: specThenEvents,
		RunE: func(cmd *cobra.Command, args []string) error {
			var now *int64
			if cmd.Flags().Changed("at") {
				seconds, err := parseTime(clock.System{}.Now(), "--at", at)
				if err != nil {
					return usageError{err}
				}
				now = &seconds
			}
			run, err := tryEvents(cmd.Context(), e, args[0], args[1], now, blobs)
			if err != nil {
				return err
			}

			// The findings and the outcome, in either form, and then whether all was well.
			if asJSON {
				err = e.printJSON(run.outcome())
			} else if err = run.report(e); err == nil {
				err = run.printStates(e.out)
			}
			if err == nil && run.Events == 0 && len(run.Findings) == 0 {
				e.note("%s has no events, so nothing was tried\n", run.title())
			}
			if err = run.verdict(err); err == nil && strict && len(run.Faults) > 0 {
				err = silent{errChangedNothing}
			}
			return err
		},
	}

	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&strict, "strict", false, "fail when an operation of a handler changed nothing")
	blobs.flag(f, "run the module of that name in the spec")
	f.StringVar(&at, "at", "", "the `time` of events without a timestamp: 2026-01-31T12:00:00Z, 2026-01-31 (its beginning, UTC), 10m (so long ago), or Unix seconds (default the present)")
	return cmd
}

// dryRun is a dry run with the texts that its places refer to.
type dryRun struct {
	trial.DryRunResult
	name, specName string
	source, spec   []byte
	compiled       *spec.Compiled
}

// title is the name of the events for a sentence.
func (r *dryRun) title() string {
	if r.name == "-" {
		return "Standard input"
	}
	return fileName(r.name)
}

// tryEvents reads a spec and events and runs them in memory. now is the time of events without one, nil for the
// present; blobs are the custom code that is run.
func tryEvents(
	ctx context.Context, e *env, specName, eventsName string, now *int64, blobs localBlobs,
) (*dryRun, error) {
	if specName == "-" && eventsName == "-" {
		return nil, usageError{fmt.Errorf("only one of SPEC and EVENTS can be standard input")}
	}
	c, specSource, err := e.compile(specName)
	if err != nil {
		return nil, err
	}
	source, err := e.readText(eventsName, maxEventFile, "Split it, or import it to see what a server makes of it.")
	if err != nil {
		return nil, err
	}
	at := clock.System{}.Now().Unix()
	if now != nil {
		at = *now
	}
	custom, err := loadCode(ctx, e, c, specName, specSource, blobs)
	if err != nil {
		return nil, interrupted(ctx, err)
	}
	defer custom.close(ctx)
	result, err := trial.DryRun(ctx, c, custom.functions, string(source), at)
	if err != nil {
		return nil, interrupted(ctx, err)
	}
	return &dryRun{
		DryRunResult: result, name: eventsName, specName: specName, source: source, spec: specSource, compiled: c,
	}, nil
}

// verdict is the result of a command that went as far as err.
func (r *dryRun) verdict(err error) error {
	if err == nil && len(r.Findings) > 0 {
		err = silent{j17.Errorf(j17.CodeSchemaViolation, "Some events are not valid")}
	}
	return err
}

// report shows people what was found.
func (r *dryRun) report(e *env) error {
	// What is wrong with events.
	found := make([]diag.Diagnostic, 0, len(r.Findings))
	bad := map[int]bool{}
	for _, f := range r.Findings {
		found = append(found, f.Diagnostic)
		if f.Path != "" {
			found[len(found)-1].Message = f.Path + ": " + f.Message
		}
		bad[f.Event] = true
	}
	var b strings.Builder
	b.WriteString(diag.Render(r.name, r.source, found))

	// What operations of handlers did not do.
	faults := make([]diag.Diagnostic, 0, len(r.Faults))
	for _, f := range r.Faults {
		d := f.Diagnostic
		d.Message = fmt.Sprintf("%s (%s of %s, %s:%d)", d.Message, f.Type, f.Key, r.name, f.EventLine)
		faults = append(faults, d)
	}
	b.WriteString(diag.Render(r.specName, r.spec, hinted(r.compiled, faults)))

	// What events imply, below the event.
	for from := 0; from < len(r.Implied); {
		to := from
		for to < len(r.Implied) && r.Implied[to].Event == r.Implied[from].Event {
			to++
		}
		fmt.Fprintf(&b, "The event on line %d of %s implies:\n%s", r.Implied[from].EventLine, r.name, impliedTree(r.Implied[from:to]))
		from = to
	}

	// What is to come later.
	for from := 0; from < len(r.Scheduled); {
		to := from
		for to < len(r.Scheduled) && r.Scheduled[to].Event == r.Scheduled[from].Event {
			to++
		}
		fmt.Fprintf(&b, "To come later because of the event on line %d of %s:\n%s", r.Scheduled[from].EventLine, r.name, scheduledLines(r.Scheduled[from:to]))
		from = to
	}

	// How much is left out.
	if r.Dropped > 0 {
		fmt.Fprintf(&b, "%s more not shown\n", j17.Count(r.Dropped, "finding"))
	}
	if r.Events > r.Accepted {
		fmt.Fprintf(&b, "%d of %s not valid\n", r.Events-r.Accepted, j17.Count(r.Events, "event"))
	}
	_, err := io.WriteString(e.err, b.String())
	return err
}

func (r *dryRun) printStates(w io.Writer) error {
	for i, s := range r.States {
		gap := "\n"
		if i == 0 {
			gap = ""
		}
		if _, err := fmt.Fprintf(
			w, "%s%s (%s)\n%s", gap, s.Key, j17.Count(int(min(s.Length, 1<<31)), "event"), spec.FormatValue(s.Data),
		); err != nil {
			return err
		}
	}
	return nil
}

// eventFinding is a finding about an event in the output of --json.
type eventFinding struct {
	Event  int    `json:"event"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Path   string `json:"path"`
	// Pointer is a place in the event, or in the spec if the spec forbids the event or has caused a refused one;
	// Requirement is the guard's code.
	Pointer     string   `json:"pointer"`
	Code        j17.Code `json:"code"`
	Requirement string   `json:"requirement,omitempty"`
	Message     string   `json:"message"`
	Hint        string   `json:"hint,omitempty"`
}

// handlerFault is an operation that changed nothing in the output of --json. Event, EventLine, Key and Type are those
// of the event that it did not fit.
type handlerFault struct {
	Event     int    `json:"event,omitempty"`
	EventLine int    `json:"event_line,omitempty"`
	Key       string `json:"key"`
	Type      string `json:"type"`
	Pointer   string `json:"pointer"`
	Line      int    `json:"line"`
	Column    int    `json:"column"`
	Message   string `json:"message"`
}

type validation struct {
	Valid    bool           `json:"valid"`
	Events   int            `json:"events"`
	Accepted int            `json:"accepted"`
	Findings []eventFinding `json:"findings"`
	// Dropped is how many findings were not kept.
	Dropped int `json:"dropped,omitempty"`
}

type outcome struct {
	validation
	Faults    []handlerFault   `json:"faults"`
	Implied   []impliedEvent   `json:"implied"`
	Scheduled []scheduledEvent `json:"scheduled"`
	States    []stateEntry     `json:"states"`
}

type stateEntry struct {
	Key    string      `json:"key"`
	Length uint64      `json:"length"`
	Data   value.Value `json:"data"`
}

func (r *dryRun) validation() validation {
	return validation{len(r.Findings) == 0, r.Events, r.Accepted, eventFindings(r.Findings), r.Dropped}
}

func eventFindings(found []trial.EventFinding) []eventFinding {
	out := make([]eventFinding, 0, len(found))
	for _, f := range found {
		out = append(out, eventFinding{
			f.Event, f.Line, f.Column, f.Path, string(cmp.Or(f.Rule, f.Pointer)), f.Code, f.Requirement, f.Message,
			f.Hint,
		})
	}
	return out
}

func (r *dryRun) outcome() outcome {
	o := outcome{
		validation: r.validation(), Faults: make([]handlerFault, 0, len(r.Faults)), Implied: impliedEvents(r.Implied),
		Scheduled: scheduledEvents(r.Scheduled), States: make([]stateEntry, 0, len(r.States)),
	}
	for _, f := range r.Faults {
		o.Faults = append(o.Faults, handlerFault{
			f.Event, f.EventLine, f.Key.String(), f.Type, string(f.Pointer), f.Line, f.Column, f.Message,
		})
	}
	for _, s := range r.States {
		o.States = append(o.States, stateEntry{s.Key.String(), s.Length, s.Data})
	}
	return o
}
