package engine

import (
	"encoding/json"
	"errors"
	"strings"

	"j17/internal/spec/diag"
	"j17/internal/value"
)

// EventText is one event of a file as it stands there.
type EventText struct {
	// Number counts the events of the file from 1.
	Number int
	// Offset is where Text starts in the file, in bytes.
	Offset int
	Text   string
}

// SplitEvents finds the events in a text: the elements of a JSON array, or else one event a line with empty lines in
// between. What an event looks like inside is not its business, with one exception: an array that is no JSON cannot be
// taken apart and is the one finding that is returned.
func SplitEvents(src string) ([]EventText, []diag.Diagnostic) {
	if strings.HasPrefix(strings.TrimLeft(src, " \t\r\n"), "[") {
		return splitArray(src)
	}
	var events []EventText
	for from := 0; from < len(src); {
		end := len(src)
		if n := strings.IndexByte(src[from:], '\n'); n >= 0 {
			end = from + n
		}
		line := src[from:end]
		if text := strings.TrimSpace(line); text != "" {
			events = append(events, EventText{Number: len(events) + 1, Offset: from + strings.Index(line, text), Text: text})
		}
		from = end + 1
	}
	return events, nil
}

func splitArray(src string) ([]EventText, []diag.Diagnostic) {
	if _, err := value.ParseString(src); err != nil {
		return nil, []diag.Diagnostic{syntaxFinding(err)}
	}
	dec := json.NewDecoder(strings.NewReader(src))
	if _, err := dec.Token(); err != nil {
		return nil, []diag.Diagnostic{syntaxFinding(err)}
	}
	var events []EventText
	for dec.More() {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, []diag.Diagnostic{syntaxFinding(err)}
		}
		events = append(events, EventText{Number: len(events) + 1, Offset: int(dec.InputOffset()) - len(raw), Text: string(raw)})
	}
	return events, nil
}

// syntaxFinding is the finding for a text that value.Parse refuses.
func syntaxFinding(err error) diag.Diagnostic {
	if syntax, ok := errors.AsType[*value.SyntaxError](err); ok {
		return diag.Diagnostic{Line: syntax.Line, Column: syntax.Column, Message: syntax.Message}
	}
	return diag.Diagnostic{Message: err.Error()}
}
