package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/code/sandbox"
	"j17/internal/code/wasm"
	"j17/internal/lang/spec"
)

func wasmCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wasm",
		Short: "Try WebAssembly modules",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(wasmRunCommand(e), wasmInspectCommand(e))
	return cmd
}

// wasmMode is what a module is run as.
type wasmMode string

const (
	asHandler     wasmMode = "handler"
	asImplication wasmMode = "implication"
	asTransform   wasmMode = "transform"
)

// wasmTrial is one try of a module.
type wasmTrial struct {
	mode       wasmMode
	entrypoint string
	timeout    time.Duration
	repeat     int
	asJSON     bool
}

func wasmRunCommand(e *env) *cobra.Command {
	var state, event, about string
	var t wasmTrial
	cmd := &cobra.Command{
		Use:   "run FILE --event EVENT",
		Short: "Call a module with a state and an event",
		Long: `Call an entry point of a module as a server does, with the same limits, and print its answer. What the module has written to
its standard output and error, how long it ran and how much memory it had go to standard error.

A document is JSON, or @FILE for the content of a file (@- for standard input). The event is an object with "key", "type",
"data" and "metadata".

As a handler the module gets the state and the event, and answers with a state or an error. As an implication it gets the
event, with the state in it, and the context, and answers with actions or an error. As a transform, a step of a pipeline,
it answers with the members that the later steps see.

Exit code 0: it has answered what its mode asks for, 3: it has answered an error, or the module cannot be used, 1: it has
trapped, has not answered in time, or has answered something else.`,
		Example: `  j17 wasm run order.wasm --state '{"total":0}' --event '{"key":"order:1","type":"had_item_added","data":{"quantity":2}}'`,
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Mistakes in the command line are reported before the module is read.
			switch t.mode {
			case asHandler, asImplication, asTransform:
			default:
				return usageError{fmt.Errorf("--mode is handler, implication or transform, not %q", t.mode)}
			}
			if event == "" {
				return usageError{fmt.Errorf("%s needs --event", cmd.CommandPath())}
			}
			if t.repeat < 1 {
				return usageError{errors.New("--repeat is at least 1")}
			}

			// What it is called with, and the module.
			input, err := wasmInput(e, t.mode, state, event, about)
			if err != nil {
				return err
			}
			binary, err := e.readAll(args[0], wasm.MaxBinary, "Leave out what the module does not need, and build with optimisation for size.")
			if err != nil {
				return err
			}
			return tryWASM(e, cmd, binary, input, t)
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state", "{}", "the state before the event, a `document`")
	f.StringVar(&event, "event", "", "the event, a `document`")
	f.StringVar(&about, "context", "{}", "the context of an implication, a `document`")
	f.StringVar((*string)(&t.mode), "mode", string(asHandler), "handler, implication or transform")
	f.StringVar(&t.entrypoint, "entrypoint", "", "the `function` to call (default apply_handler or compute_implications)")
	f.DurationVar(&t.timeout, "timeout", wasm.DefaultTimeout, "how long a call may run")
	f.IntVar(&t.repeat, "repeat", 1, "call it `n` times, compare the answers and show times")
	f.BoolVar(&t.asJSON, "json", false, "print JSON")
	return cmd
}

// wasmInput makes the input of a call from documents.
func wasmInput(e *env, mode wasmMode, state, event, about string) ([]byte, error) {
	_, s, err := jsonDocument(e, "--state", state)
	if err != nil {
		return nil, err
	}
	_, ev, err := jsonDocument(e, "--event", event)
	if err != nil {
		return nil, err
	}
	_, c, err := jsonDocument(e, "--context", about)
	if err != nil {
		return nil, err
	}
	if ev.Kind() != value.Object {
		return nil, usageError{errors.New(`--event is an object like {"key": "order:1", "type": "was_placed", "data": {}, "metadata": {}}`)}
	}
	member := func(name string, v value.Value) value.Member { return value.Member{Key: name, Value: v} }
	input := value.ObjectValue(member("state", s), member("event", ev))
	if mode != asHandler {
		members := []value.Member{member("state", s)}
		for _, m := range ev.Members() {
			if m.Key != "state" {
				members = append(members, m)
			}
		}
		input = value.ObjectValue(member("event", value.ObjectValue(members...)), member("context", c))
	}
	return input.AppendJSON(nil), nil
}

// wasmReport is what a trial is printed as.
type wasmReport struct {
	Output value.Value `json:"output"`
	Failed *wasmFault  `json:"fault,omitempty"`
	Log    string      `json:"log"`
	// The times of the calls in milliseconds, without waiting.
	Calls     int     `json:"calls"`
	MeanMS    float64 `json:"mean_ms"`
	SlowestMS float64 `json:"slowest_ms"`
	Memory    uint32  `json:"memory_bytes"`
}

type wasmFault struct {
	Kind   sandbox.Kind `json:"kind"`
	Detail string       `json:"detail"`
	Hint   string       `json:"hint"`
}

func tryWASM(e *env, cmd *cobra.Command, binary, input []byte, t wasmTrial) error {
	// The function, compiled as a server compiles it.
	if t.entrypoint == "" {
		t.entrypoint = "apply_handler"
		if t.mode != asHandler {
			t.entrypoint = "compute_implications"
		}
	}
	rt, err := wasm.New(wasm.Options{Clock: clock.System{}})
	if err != nil {
		return err
	}
	m, err := rt.Compile(cmd.Context(), binary)
	if err == nil {
		defer func() { _ = m.Close(cmd.Context()) }() // the program ends anyway
		_, err = m.Function(t.entrypoint, t.timeout)
	}
	if err != nil {
		return wasmFailure(e, err, wasmReport{}, t.asJSON)
	}

	// The calls: the same input has to yield the same answer.
	var report wasmReport
	var total time.Duration
	var first string
	for n := range t.repeat {
		result, err := m.Run(cmd.Context(), t.entrypoint, t.timeout, input)
		total += result.Used
		report.Calls, report.Log, report.Memory = n+1, result.Log, result.Memory
		report.MeanMS = wasmTime(total / time.Duration(n+1))
		report.SlowestMS = max(report.SlowestMS, wasmTime(result.Used))
		if err != nil {
			return wasmFailure(e, err, report, t.asJSON)
		}
		if n == 0 {
			first = string(result.Output)
		}
		if string(result.Output) != first {
			return fmt.Errorf("call %d has answered %q to the same input that call 1 has answered %q", n+1, result.Output, first)
		}
	}

	// What the answer is worth.
	rejected, err := checkAnswer(t.mode, first, &report.Output)
	if err != nil {
		return wasmFailure(e, &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: err.Error(), Hint: "Answer with what the mode asks for, see 'j17 wasm run --help'.", Log: report.Log,
		}, report, t.asJSON)
	}

	if t.asJSON {
		err = e.printJSON(report)
	} else if err = printWASM(e, report); err == nil {
		_, err = e.out.Write(spec.FormatValue(report.Output))
	}
	if err == nil && rejected {
		err = silent{j17.Errorf(j17.CodeSchemaViolation, "The module has answered an error")}
	}
	return err
}

func wasmTime(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// printWASM prints what a call has left beside its answer.
func printWASM(e *env, r wasmReport) error {
	text := r.Log
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if r.Calls == 1 {
		text += fmt.Sprintf("%.3f ms, %.1f MiB of memory\n", r.MeanMS, float64(r.Memory)/(1<<20))
	} else if r.Calls > 1 {
		text += fmt.Sprintf("%s: %.3f ms on average, %.3f ms at most, %.1f MiB of memory\n", j17.Count(r.Calls, "call"), r.MeanMS, r.SlowestMS, float64(r.Memory)/(1<<20))
	}
	_, err := io.WriteString(e.err, text)
	return err
}

// wasmFailure reports why there is no answer. Other errors than faults are returned as they are.
func wasmFailure(e *env, err error, r wasmReport, asJSON bool) error {
	fault, ok := errors.AsType[*sandbox.Fault](err)
	if !ok {
		return err
	}
	r.Log = fault.Log
	if asJSON {
		r.Failed = &wasmFault{fault.Kind, fault.Detail, fault.Hint}
		err = e.printJSON(r)
	} else if err = printWASM(e, r); err == nil {
		_, err = fmt.Fprintf(e.err, "error: %s: %s\n  %s\n", fault.Kind, fault.Detail, fault.Hint)
	}
	switch {
	case err != nil:
		return err
	case fault.Kind == sandbox.Start:
		return silent{j17.Errorf(j17.CodeSchemaViolation, "The module cannot be used")}
	default:
		return silent{fault}
	}
}

// checkAnswer parses an answer and reports whether it is an error of the code's own. The error says what is wrong with
// it.
func checkAnswer(mode wasmMode, text string, out *value.Value) (rejected bool, err error) {
	// What every answer is: JSON, and an error where the code says so.
	v, err := value.ParseString(text)
	if err != nil {
		return false, fmt.Errorf("the answer is no JSON: %w; it begins with %.100q", err, text)
	}
	*out = v
	if own := v.Get("error"); !own.IsMissing() {
		if own.Get("type").Kind() != value.String || own.Get("message").Kind() != value.String {
			return false, errors.New("the error that the module has answered has no type or no message")
		}
		return true, nil
	}

	// What each mode asks for.
	actions := v
	switch {
	case mode == asHandler && v.Get("state").IsMissing():
		return false, errors.New("a handler has to answer with a state or an error")
	case mode == asTransform && v.Kind() != value.Object:
		return false, errors.New("a transform has to answer with an object")
	case mode == asImplication:
		if v.Kind() == value.Object {
			actions = v.Get("actions")
		}
		if actions.Kind() != value.Array {
			return false, errors.New("an implication has to answer with actions or an error")
		}
		for i, a := range actions.Elems() {
			emit := a.Get("emit")
			if emit.Get("event_type").Kind() != value.String ||
				emit.Get("key").IsMissing() && (emit.Get("aggregate_type").IsMissing() || emit.Get("id").IsMissing()) {
				return false, fmt.Errorf("action %d has no emit with an event_type and a key, or an aggregate_type and an id", i)
			}
		}
	}
	return false, nil
}

func wasmInspectCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show what a module exports and imports, and whether it can be used",
		Long: `Read a module without running it: its exports and imports, its memory, the functions that can be entry points, and what
keeps it from being used.

Exit code 0: it can be used, 3: it cannot.`,
		Example: "  j17 wasm inspect order.wasm",
		Args:    exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			binary, err := e.readAll(args[0], wasm.MaxBinary, "Leave out what the module does not need, and build with optimisation for size.")
			if err != nil {
				return err
			}
			// Nothing of it runs.
			in, err := wasm.Inspect(binary)
			if err != nil {
				return wasmFailure(e, err, wasmReport{}, asJSON)
			}

			if asJSON {
				err = e.printJSON(inspectionJSON(in))
			} else {
				_, err = io.WriteString(e.out, inspectionText(in))
			}
			if err == nil && len(in.Problems) > 0 {
				err = silent{j17.Errorf(j17.CodeSchemaViolation, "The module cannot be used")}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func inspectionText(in wasm.Inspection) string {
	// What it offers and what it asks for.
	var b strings.Builder
	b.WriteString("exports\n")
	for _, x := range in.Exports {
		fmt.Fprintf(&b, "  %-8s  %s%s\n", x.Kind, x.Name, x.Signature)
	}
	b.WriteString("imports\n")
	for _, i := range in.Imports {
		note := ""
		if !i.Exists {
			note = "  does not exist"
		}
		fmt.Fprintf(&b, "  %s.%s%s%s\n", i.Module, i.Name, i.Signature, note)
	}
	if len(in.Imports) == 0 {
		b.WriteString("  none\n")
	}

	// What a server makes of it.
	fmt.Fprintf(&b, "memory\n  %s of 64 KiB, at most %d\n", j17.Count(in.MemoryPages, "page"), in.MaxMemoryPages)
	b.WriteString("entry points\n")
	for _, name := range in.Entrypoints {
		fmt.Fprintf(&b, "  %s\n", name)
	}
	if len(in.Entrypoints) == 0 {
		b.WriteString("  none\n")
	}
	if !in.Pooled {
		b.WriteString("It changes tables or drops segments, so it is started again for each call.\n")
	}

	for _, p := range in.Problems {
		fmt.Fprintf(&b, "problem: %s\n", p)
	}
	return b.String()
}

func inspectionJSON(in wasm.Inspection) any {
	// The rows, whose names are those of the JSON.
	type exportRow struct {
		Name      string `json:"name"`
		Kind      string `json:"kind"`
		Signature string `json:"signature,omitempty"`
	}
	type importRow struct {
		Module    string `json:"module"`
		Name      string `json:"name"`
		Signature string `json:"signature"`
		Exists    bool   `json:"exists"`
	}

	out := struct {
		Usable          bool        `json:"usable"`
		Problems        []string    `json:"problems"`
		Entrypoints     []string    `json:"entrypoints"`
		Exports         []exportRow `json:"exports"`
		Imports         []importRow `json:"imports"`
		MemoryPages     uint32      `json:"memory_pages"`
		MaxMemoryPages  uint32      `json:"max_memory_pages"`
		ReusesInstances bool        `json:"reuses_instances"`
	}{
		len(in.Problems) == 0, append([]string{}, in.Problems...), append([]string{}, in.Entrypoints...),
		[]exportRow{},
		[]importRow{},
		in.MemoryPages, in.MaxMemoryPages, in.Pooled,
	}

	for _, x := range in.Exports {
		out.Exports = append(out.Exports, exportRow(x))
	}
	for _, i := range in.Imports {
		out.Imports = append(out.Imports, importRow(i))
	}
	return out
}
