package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/edge/client"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
)

// maxAnswer is how many bytes a tool answers with at most.
const maxAnswer = 512 << 10

// parameter is one argument of a tool.
type parameter struct {
	name string
	// schema is a JSON object with at least one member, to which the description is added: {"type":"string"}.
	schema      string
	description string
	required    bool
}

// tool describes a tool to an assistant.
type tool struct {
	name, title, description string
	parameters               []parameter
	writes                   bool
}

// inputSchema returns the JSON Schema of the arguments.
func (t *tool) inputSchema() json.RawMessage {
	properties, required := []byte(`{"type":"object","additionalProperties":false,"properties":{`), []byte(`"required":[`)
	for i, p := range t.parameters {
		if i > 0 {
			properties = append(properties, ',')
		}
		properties = append(value.AppendString(properties, p.name), ':')
		properties = append(properties, strings.TrimSuffix(p.schema, "}")...)
		properties = append(value.AppendString(append(properties, `,"description":`...), p.description), '}')
		if p.required {
			if required[len(required)-1] != '[' {
				required = append(required, ',')
			}
			required = value.AppendString(required, p.name)
		}
	}
	return slices.Concat(properties, []byte("},"), required, []byte("]}"))
}

// add registers a tool. Arguments are read by this package and not by the SDK, which would round numbers and lose the
// order of keys.
func add[In any](s *Server, t tool, handle func(context.Context, In) (any, error)) {
	s.tools = append(s.tools, t.name)
	yes, no := true, false
	hints := &sdk.ToolAnnotations{
		Title: t.title, ReadOnlyHint: !t.writes, IdempotentHint: !t.writes, OpenWorldHint: &no,
	}
	if t.writes {
		hints.DestructiveHint = &yes // what is written stays
	}
	said := t.inputSchema()
	shape := compiledShape(said)
	s.sdk.AddTool(
		&sdk.Tool{Name: t.name, Title: t.title, Description: t.description, InputSchema: said, Annotations: hints},
		func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var in In
			if err := t.read(ctx, req.Params.Arguments, shape, &in); err != nil {
				return s.failed(err), nil
			}
			out, err := handle(ctx, in)
			if err != nil {
				return s.failed(err), nil
			}
			return s.answer(out), nil
		},
	)
}

// compiledShape compiles the schema of a tool's arguments, which this package has written.
func compiledShape(text json.RawMessage) *schema.Schema {
	v, _ := value.Parse(text) // JSON, as TestToolsAndResources shows
	return schema.NewGroup(&diag.List{}).Compile(v, "")
}

// shownFailures is how many reasons are given why arguments do not fit.
const shownFailures = 3

// read checks the arguments of a call against the schema of the tool and decodes them. An optional one that is null
// counts as left out.
func (t *tool) read(ctx context.Context, arguments json.RawMessage, shape *schema.Schema, into any) error {
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	v, err := value.Parse(arguments)
	if err != nil {
		return sentencef("The arguments are not acceptable JSON: %v.", err)
	}
	if v.Kind() != value.Object {
		return sentencef("The arguments of %s must be a JSON object.", t.name)
	}

	// Unknown arguments are refused.
	names := make([]string, 0, len(t.parameters))
	for _, p := range t.parameters {
		names = append(names, p.name)
	}
	given := make([]value.Member, 0, v.Len())
	for _, m := range v.Members() {
		if !slices.Contains(names, m.Key) {
			hint := "Its arguments are " + strings.Join(names, ", ") + "."
			if near := diag.Nearest(m.Key, names); near != "" {
				hint = fmt.Sprintf("Did you mean %q?", near)
			}
			return sentencef("%s has no argument %s. %s", t.name, diag.Quote(m.Key), hint)
		}
		if m.Value.Kind() != value.Null {
			given = append(given, m)
		}
	}
	if len(given) < v.Len() {
		v = value.ObjectValue(given...)
		arguments = v.AppendJSON(nil)
	}
	for _, p := range t.parameters {
		if p.required && v.Get(p.name).IsMissing() {
			return sentencef("%s needs the argument %q: %s", t.name, p.name, p.description)
		}
	}

	// The values of the arguments.
	failures, err := shape.Validate(v, work.New(ctx, work.Command))
	if err != nil {
		return err
	}
	if len(failures) > 0 {
		var b strings.Builder
		fmt.Fprintf(&b, "The arguments of %s do not fit its schema:", t.name)
		for _, f := range failures[:min(len(failures), shownFailures)] {
			fmt.Fprintf(&b, " %s: %s", f.Path, f.Message)
		}
		return sentence(b.String())
	}
	if err := json.Unmarshal(arguments, into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return sentencef("An argument of %s cannot be the %s: a whole number is written as digits alone, at most 18 of them.", t.name, wrong.Value)
		}
		return sentencef("The arguments of %s cannot be read.", t.name)
	}
	return nil
}

// sentence is an error that is shown as it is.
type sentence string

// Error returns the sentence.
func (s sentence) Error() string { return string(s) }

func sentencef(format string, args ...any) error { return sentence(fmt.Sprintf(format, args...)) }

// answer makes the result of a call: out as JSON, or as it is where it is a string.
func (s *Server) answer(out any) *sdk.CallToolResult {
	text, plain := out.(string)
	if !plain {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(out); err != nil {
			return s.failed(fmt.Errorf("the answer cannot be written as JSON: %w", err))
		}
		text = strings.TrimSuffix(b.String(), "\n")
	}
	if len(text) > maxAnswer {
		return s.failed(sentencef("The answer has %d KiB, more than the %d KiB that this server hands over. Ask for less.", len(text)>>10, maxAnswer>>10))
	}
	text = s.withoutSecrets(text)
	result := &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
	if !plain {
		result.StructuredContent = json.RawMessage(text)
	}
	return result
}

// maxError is how many bytes of an error are shown.
const maxError = 8 << 10

// failed makes the result of a call that failed: what is wrong and, where the error has a code, what to do.
func (s *Server) failed(err error) *sdk.CallToolResult {
	text := full(err.Error())
	if said, ok := errors.AsType[sentence](err); ok {
		text = string(said)
	}
	if e, ok := errors.AsType[*j17.Error](err); ok {
		text = s.describe(e)
	}
	if e, ok := errors.AsType[*client.Error](err); ok && e.ErrorID != "" {
		text += "\nError id, for the log of the server: " + e.ErrorID
	}
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: s.withoutSecrets(text)}}}
}

// withTool adds which tool does what a server's message refers to: where the message has the given words.
func withTool(err error, words, tool string) error {
	e, ok := errors.AsType[*client.Error](err)
	if !ok || !strings.Contains(e.Problem.Message, words) {
		return err
	}
	told, problem := *e, *e.Problem
	problem.Message = full(problem.Message) + " " + tool
	told.Problem = &problem
	return &told
}

// describe returns all that is known about a failure.
func (s *Server) describe(e *j17.Error) string {
	var b strings.Builder
	b.WriteString(full(e.Message))
	fmt.Fprintf(&b, "\nCode: %s", e.Code)
	if e.Path != "" {
		fmt.Fprintf(&b, "\nPlace: %s", e.Path)
	}
	for _, f := range e.Errors {
		fmt.Fprintf(&b, "\n- %s: %s", f.Pointer, f.Message)
	}
	if row, ok := s.errorRows()[e.Code]; ok {
		fmt.Fprintf(&b, "\nWhat to do: %s", row.WhatToDo)
	}
	return b.String()
}

// full turns the text of an error into a sentence: a capital at its beginning, unless that is a name, a full stop at
// its end.
func full(text string) string {
	if text == "" {
		return "The call failed without saying why."
	}
	if word, _, _ := strings.Cut(text, " "); !strings.ContainsAny(word, "_./:-'\"") {
		first, size := utf8.DecodeRuneInString(text)
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

func (s *Server) withoutSecrets(text string) string {
	if s.o.Hide == nil {
		return text
	}
	return s.o.Hide(text)
}
