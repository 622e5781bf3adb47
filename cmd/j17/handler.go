package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/trial"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
)

// errChangedNothing is the error of --strict for an operation that did not fit.
var errChangedNothing = errors.New("an operation of a handler changed nothing")

func handlerCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "handler",
		Short: "Try handlers",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(handlerTestCommand(e))
	return cmd
}

func handlerTestCommand(e *env) *cobra.Command {
	var t trial.HandlerTrial
	var state, data, metadata, reads string
	var blobs localBlobs
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use:   "test SPEC --aggregate TYPE --event TYPE",
		Short: "Apply one handler to one state",
		Long: `Check an event against its schema and the guards of its type, apply its handler to a state and print the new state, as the handler
leaves it: without the created_at and updated_at that a server adds. Operations that did not fit and so changed nothing are
reported with their place in the spec, and events that the event implies are shown below it, as if no other aggregate had any
events yet; their guards are not asked. What the event reads of others is what --reads says: '{"payee":{"currency":"EUR"}}'.

A document is JSON, or @FILE for the content of a file (@- for standard input). Metadata that are left out are made up: the
first agent type of the spec with the id "global" as the actor, and the present time.

` + blobHelp + `

Exit code 0: the handler ran, 3: the event or the spec is not valid, or a guard or custom code refuses the event. With --strict it is 1 when an operation changed
nothing.`,
		Example:           `  j17 handler test spec.json --aggregate user --event was_created --state '{}' --event-data '{"name":"Alice"}'`,
		Args:              exactly("SPEC"),
		ValidArgsFunction: specThenEvents,
		RunE: func(cmd *cobra.Command, args []string) error {
			// What is required, and what can be read only once.
			for name, v := range map[string]string{"--aggregate": t.AggregateType, "--event": t.EventType} {
				if v == "" {
					return usageError{fmt.Errorf("%s needs %s", cmd.CommandPath(), name)}
				}
			}
			if cmd.Flags().Changed("generation") && t.Generation < 1 {
				return usageError{errors.New("--generation takes the number of a generation, from 1 on")}
			}
			if err := stdinOnce(map[string]string{
				"SPEC": args[0], "--state": fileOf(state), "--event-data": fileOf(data), "--metadata": fileOf(metadata),
				"--reads": fileOf(reads),
			}); err != nil {
				return err
			}

			// The spec and the documents.
			c, source, err := e.compile(args[0])
			if err != nil {
				return err
			}
			texts := map[string]string{}
			for _, d := range []struct {
				flag, text string
				into       *value.Value
			}{
				{"--state", state, &t.State},
				{"--event-data", data, &t.Data},
				{"--metadata", metadata, &t.Metadata},
				{"--reads", reads, &t.Reads},
			} {
				if texts[d.flag], *d.into, err = jsonDocument(e, d.flag, d.text); err != nil {
					return err
				}
			}

			// Custom code, as far as its modules were given.
			code, err := loadCode(cmd.Context(), e, c, args[0], source, blobs)
			if err != nil {
				return err
			}
			defer code.close(cmd.Context())
			t.Now, t.Functions = clock.System{}.Now().Unix(), code.functions
			out, found, err := trial.TryHandler(cmd.Context(), c, t)
			if err != nil {
				reportFault(e, err)
				return refusedEvent(notTried(err, c, t))
			}

			// The outcome, and whether all was well.
			out.Faults = hinted(c, out.Faults)
			if len(found) > 0 {
				return reportTrial(e, found, texts, asJSON)
			}
			if asJSON {
				err = e.printJSON(trialOutcome(out, t.EventType))
			} else {
				err = printTrial(e, args[0], source, out)
			}
			if err == nil && strict && len(out.Faults) > 0 {
				err = silent{errChangedNothing}
			}
			return err
		},
	}

	f := cmd.Flags()
	f.StringVar(&t.AggregateType, "aggregate", "", "the aggregate `type`")
	f.StringVar(&t.EventType, "event", "", "the event `type`")
	f.StringVar(&t.ID, "id", "", "the aggregate's `id` (default \"global\")")
	f.StringVar(&state, "state", "", "the state before the event, a `document` (default {})")
	f.StringVar(&data, "event-data", "", "the event's data, a `document` (default {})")
	f.StringVar(&metadata, "metadata", "", "the event's metadata, a `document`")
	f.StringVar(&reads, "reads", "", "the states that $.reads sees by their names, a `document` (default null each)")
	f.IntVar(&t.Generation, "generation", 0, "`number` of the generation that the data are in; they are brought to the newest one first")
	blobs.flag(f, "run the module of that name in the spec")
	f.BoolVar(&strict, "strict", false, "fail when an operation changed nothing")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	completeNames(e, cmd)
	return cmd
}

// fileOf is the name of the file in a document given as @FILE, "" for one that is JSON.
func fileOf(document string) string {
	name, ok := strings.CutPrefix(document, "@")
	if !ok {
		return ""
	}
	return name
}

// jsonDocument reads the value of a flag that takes JSON or @FILE. A text of "" is missing.
func jsonDocument(e *env, flag, text string) (string, value.Value, error) {
	if text == "" {
		return "", value.Value{}, nil
	}
	if name, ok := strings.CutPrefix(text, "@"); ok {
		raw, err := e.readText(name, command.MaxFileText, "No event can be that large.")
		if err != nil {
			return "", value.Value{}, err
		}
		text = string(raw)
	}
	v, err := parsedJSON(e, flag, text)
	return text, v, err
}

// parsedJSON reads JSON. What is wrong with it is reported with its place in the text; name is where that comes from.
func parsedJSON(e *env, name, text string) (value.Value, error) {
	v, err := value.ParseString(text)
	if err == nil {
		return v, nil
	}
	d := diag.Diagnostic{Message: err.Error()}
	if syntax, ok := errors.AsType[*value.SyntaxError](err); ok {
		d = diag.Diagnostic{Line: syntax.Line, Column: syntax.Column, Message: syntax.Message}
	}
	e.note("%s", diag.Render(name, []byte(text), []diag.Diagnostic{d}))
	return value.Value{}, silent{j17.Errorf(j17.CodeSchemaViolation, "%s is no JSON", name)}
}

// reportTrial reports why an event was not tried.
func reportTrial(e *env, found []trial.EventFinding, texts map[string]string, asJSON bool) error {
	// Each finding is shown in the document that it is about.
	var b strings.Builder
	for i := range found {
		f := &found[i]
		flag, below := "--event-data", strings.TrimPrefix(string(f.Pointer), "/data")
		if p, ok := strings.CutPrefix(string(f.Pointer), "/metadata"); ok {
			flag, below = "--metadata", p
		}
		if text := texts[flag]; text != "" {
			at, _ := value.Locate(text, below)
			from := at.Start
			if f.OnKey {
				from = at.Key
			}
			f.Line, f.Column = value.Position(text, from)
		}
		d := f.Diagnostic
		if f.Path != "" {
			d.Message = f.Path + ": " + d.Message
		}
		b.WriteString(diag.Render(flag, []byte(texts[flag]), []diag.Diagnostic{d}))
	}

	var err error
	if asJSON {
		err = e.printJSON(struct {
			Valid    bool           `json:"valid"`
			Findings []eventFinding `json:"findings"`
		}{false, eventFindings(found)})
	} else {
		_, err = io.WriteString(e.err, b.String())
	}
	if err != nil {
		return err
	}
	return silent{j17.Errorf(j17.CodeSchemaViolation, "The event is not valid")}
}

func trialOutcome(out trial.HandlerOutcome, eventType string) any {
	o := struct {
		Valid     bool             `json:"valid"`
		Key       string           `json:"key"`
		State     value.Value      `json:"state"`
		Changed   bool             `json:"changed"`
		Faults    []handlerFault   `json:"faults"`
		Implied   []impliedEvent   `json:"implied"`
		Scheduled []scheduledEvent `json:"scheduled"`
	}{
		true, out.Key.String(), out.State, out.Changed, make([]handlerFault, 0, len(out.Faults)),
		impliedEvents(out.Implied), scheduledEvents(out.Scheduled),
	}
	for _, d := range out.Faults {
		o.Faults = append(o.Faults, handlerFault{
			Key: o.Key, Type: eventType, Pointer: string(d.Pointer), Line: d.Line, Column: d.Column, Message: d.Message,
		})
	}
	return o
}

func printTrial(e *env, name string, source []byte, out trial.HandlerOutcome) error {
	text := diag.Render(name, source, out.Faults)
	if !out.Changed {
		text += "The event leaves the state as it is.\n"
	}
	if len(out.Implied) > 0 {
		text += "The event implies:\n" + impliedTree(out.Implied)
	}
	if len(out.Scheduled) > 0 {
		text += "To come later:\n" + scheduledLines(out.Scheduled)
	}
	if _, err := io.WriteString(e.err, text); err != nil {
		return err
	}
	_, err := e.out.Write(spec.FormatValue(out.State))
	return err
}

// notTried explains the error of a trial: where to get code that is missing, or which names there are.
func notTried(err error, c *spec.Compiled, t trial.HandlerTrial) error {
	if typ := c.Types[t.AggregateType]; typ != nil && j17.CodeOf(err) == j17.CodeInvalidSpec {
		if et := typ.Events[t.EventType]; et != nil && et.Code != nil && et.Code.Runtime == spec.WASM {
			return fmt.Errorf("%w. %s", err, blobHint)
		}
	}
	return withNames(err, c, t)
}

// withNames adds the existing names to an error about a type that does not exist, unless the error already says which
// one was meant.
func withNames(err error, c *spec.Compiled, t trial.HandlerTrial) error {
	var word string
	var known []string
	//nolint:exhaustive // all other errors stay as they are
	switch j17.CodeOf(err) {
	case j17.CodeUnknownType:
		word, known = t.AggregateType, slices.Sorted(maps.Keys(c.Types))
	case j17.CodeUnknownEventType:
		word, known = t.EventType, slices.Sorted(maps.Keys(c.Types[t.AggregateType].Events))
	default:
		return err
	}
	if diag.Nearest(word, known) != "" {
		return err
	}
	return fmt.Errorf("%w: there are %s", err, strings.Join(known, ", "))
}

// completeNames completes --aggregate and --event with the names in the spec that the command line names.
func completeNames(e *env, cmd *cobra.Command) {
	names := func(args []string, of func(*spec.Compiled) []string) []string {
		if len(args) == 0 || args[0] == "-" {
			return nil
		}
		source, err := e.read(args[0])
		if err != nil {
			return nil
		}
		envelope, _ := spec.Unwrap(source)
		c, _ := spec.Compile(envelope.Spec)
		if c == nil {
			return nil
		}
		return of(c)
	}
	// The flags exist, so registering cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("aggregate",
		func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return names(args, func(c *spec.Compiled) []string { return slices.Sorted(maps.Keys(c.Types)) }),
				cobra.ShellCompDirectiveNoFileComp
		})
	_ = cmd.RegisterFlagCompletionFunc("event",
		func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return names(args, func(c *spec.Compiled) []string {
				t := c.Types[cmd.Flag("aggregate").Value.String()]
				if t == nil {
					return nil
				}
				return slices.Sorted(maps.Keys(t.Events))
			}), cobra.ShellCompDirectiveNoFileComp
		})
}
