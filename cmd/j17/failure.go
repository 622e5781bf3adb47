package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/edge/client"
	"j17/internal/lang/diag"
	"j17/internal/server"
)

// failure is what --json prints of an error.
type failure struct {
	Error string `json:"error"`
	// Code is that of the API, or one from failureCode where no server has answered.
	Code     string `json:"code"`
	ExitCode int    `json:"exit_code"`
	// Status is that of HTTP, 0 where no server has refused anything.
	Status     int              `json:"status,omitempty"`
	Path       string           `json:"path,omitempty"`
	EventIndex *int             `json:"event_index,omitempty"`
	WriteIndex *int             `json:"write_index,omitempty"`
	Details    any              `json:"details,omitempty"`
	Errors     []j17.FieldError `json:"errors,omitempty"`
	ErrorID    string           `json:"error_id,omitempty"`
}

// failureOf describes an error for programs.
func failureOf(err error) failure {
	f := failure{Error: readable(err).Error(), Code: failureCode(err), ExitCode: exitCode(err)}
	if e, ok := errors.AsType[*j17.Error](err); ok {
		f.Path, f.EventIndex, f.WriteIndex, f.Details, f.Errors = e.Path, e.EventIndex, e.WriteIndex, e.Details,
			e.Errors
	}
	if e, ok := errors.AsType[*client.Error](err); ok {
		f.Status, f.ErrorID = e.Status, e.ErrorID
	}
	return f
}

// failureCode is the code of an error.
func failureCode(err error) string {
	if e, ok := errors.AsType[*j17.Error](err); ok {
		return string(e.Code)
	}
	_, usage := errors.AsType[usageError](err)
	_, unreachable := errors.AsType[*client.Unreachable](err)
	damaged, locked := damagedBackup(err)
	switch {
	case usage:
		return "usage"
	case unreachable:
		return "unreachable"
	case errors.Is(err, errInterrupted):
		return "interrupted"
	case errors.Is(err, server.ErrInvalidSpec):
		return string(j17.CodeInvalidSpec)
	case damaged:
		return string(j17.CodeCorruption)
	case locked:
		return string(j17.CodeUnauthorized)
	case errors.Is(err, fs.ErrNotExist):
		return string(j17.CodeNotFound)
	default:
		return "failed"
	}
}

// wantsJSON reports whether a command was called with --json; args count where its flags could not be read.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	if cmd != nil {
		if f := cmd.Flags().Lookup("json"); f == nil {
			return false
		} else if f.Value.String() == "true" {
			return true
		}
	}
	return slices.Contains(args, "--json")
}

// servesAtLast reports whether a command prints something only once it serves: programs that wait for that line must
// not take another one for it.
func servesAtLast(cmd *cobra.Command) bool {
	return cmd != nil && cmd.HasParent() && !cmd.Parent().HasParent() && (cmd.Name() == "dev" || cmd.Name() == "serve")
}

// tell reports why a command has failed: to people on standard error; to programs, which have asked for JSON, in place
// of the result, or on standard error where a part of the result is printed.
func (e *env) tell(err error, asJSON bool, out *output, called string) {
	_, told := errors.AsType[silent](err)
	if asJSON && out.err == nil {
		if told && out.written {
			return // the result reports it
		}
		into := e.err
		if !out.written {
			into = e.out
		}
		enc := json.NewEncoder(into)
		enc.SetEscapeHTML(false)
		if enc.Encode(failureOf(err)) == nil {
			return
		}
	}
	if told {
		return
	}
	text := fmt.Sprintf("j17: %v\n", readable(err))
	if hint := hintOf(err); hint != "" {
		text += "  = hint: " + printable(hint) + "\n"
	}
	if _, ok := errors.AsType[usageError](err); ok {
		text += fmt.Sprintf("Run '%s --help' for how to use it.\n", called)
	}
	e.note("%s", text)
}

// hintOf returns the hint in the details of an error, "" where there is none.
func hintOf(err error) string {
	e, ok := errors.AsType[*j17.Error](err)
	if !ok {
		return ""
	}
	var advice struct {
		Hint string `json:"hint"`
	}
	if raw, err := json.Marshal(e.Details); err != nil || json.Unmarshal(raw, &advice) != nil {
		return "" // details of another form
	}
	return advice.Hint
}

// invalidFile shows what is wrong with a spec or a part of one and returns its error, for which nothing more is to be
// printed for people.
func (e *env) invalidFile(name string, source []byte, found []diag.Diagnostic, text string) error {
	e.show(name, source, found)
	problem := j17.Errorf(j17.CodeInvalidSpec, "%s", text)
	for _, d := range found {
		if d.Severity == diag.Error {
			problem.Errors = append(problem.Errors, j17.FieldError{
				Pointer: string(d.Pointer), Message: d.Message, Hint: d.Hint, Line: d.Line, Column: d.Column,
			})
		}
	}
	return silent{problem}
}

// show prints findings on standard error, with colors where there may be some.
func (e *env) show(name string, source []byte, found []diag.Diagnostic) {
	text := shown(diag.Render(name, source, found))
	if e.colored(e.err) {
		text = painted(text)
	}
	_, _ = io.WriteString(e.err, text) // as in note
}

// painted colors the severities of findings.
func painted(text string) string {
	const red, yellow, end = "\x1b[31m", "\x1b[33m", "\x1b[0m"
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " ") { // not the text of the file
			for word, color := range map[string]string{diag.Error.String(): red, diag.Warning.String(): yellow} {
				before, after, ok := strings.Cut(line, ": "+word+": ")
				if ok && !strings.Contains(before, ": ") {
					line = before + ": " + color + word + end + ": " + after
				}
			}
		}
		b.WriteString(line)
	}
	return b.String()
}

// oneOf checks a flag or an argument that takes one of a few words; "" is one of them where it may be left out.
func oneOf(what, got string, words ...string) error {
	if slices.Contains(words, got) {
		return nil
	}
	words = slices.DeleteFunc(slices.Clone(words), func(s string) bool { return s == "" })
	hint := "it takes " + strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
	if near := diag.Nearest(got, words); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return usageError{fmt.Errorf("%s cannot be %q: %s", what, cmp.Or(got, ""), hint)}
}
