package main

import (
	"strings"
	"testing"

	"j17/internal/lang/diag"
)

// TestPaintedFindings colors the severity of a finding, and nothing that stands in the file.
func TestPaintedFindings(t *testing.T) {
	source := `{"a": ": error: "}` + "\n"
	text := painted(diag.Render("s.json", []byte(source), []diag.Diagnostic{
		{Severity: diag.Error, Line: 1, Column: 2, Message: `no ": warning: " here`},
		{Severity: diag.Warning, Message: "odd"},
	}))
	if want := "s.json:1:2: \x1b[31merror\x1b[0m: no "; !strings.HasPrefix(text, want) {
		t.Errorf("%q", text)
	}
	if !strings.Contains(text, "s.json: \x1b[33mwarning\x1b[0m: odd\n") || strings.Count(text, "\x1b") != 4 {
		t.Errorf("%q", text)
	}
}
