//go:build !race

package schema_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
)

// page returns the page of the docs about schemas.
func page(tb testing.TB) string {
	tb.Helper()
	src, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "json-schema.md"))
	if err != nil {
		tb.Fatal(err)
	}
	return string(src)
}

// TestDocs checks the examples of the docs: schemas compile without a finding, and the error is the one that the
// value before it gets under the first schema.
func TestDocs(t *testing.T) {
	var first *schema.Schema
	var data value.Value
	errors := 0
	parts := strings.Split(page(t), "\n```")
	for i := 1; i < len(parts); i += 2 {
		kind, body, _ := strings.Cut(parts[i], "\n")
		if !strings.HasPrefix(kind, "json") {
			continue
		}
		v := parse(t, body)
		switch {
		case kind == "json schema":
			var l diag.List
			s := schema.NewGroup(&l).Compile(v, "")
			if len(l.All()) > 0 {
				t.Errorf("%s\n%v", body, l.All())
			}
			if first == nil {
				first = s
			}
		case v.Get("ok").IsMissing():
			data = v
		default:
			errors++
			checkErrorBody(t, v, validate(t, first, data))
		}
	}
	if errors != 1 {
		t.Errorf("the docs show %d errors", errors)
	}
}

// TestDocsFindings checks the findings that the docs quote.
func TestDocsFindings(t *testing.T) {
	var l diag.List
	schema.NewGroup(&l).Compile(parse(t, `{"$defs": {"address": {}}, "allOf": [{"format": "emial"}, {"type": 3}, {"$ref": "#/$defs/adress"}, {"pattern": "(?i)abc"}]}`), "") //nolint:misspell // a reference that misspells
	text := page(t)
	for _, d := range l.All() {
		line := d.Message
		if strings.HasPrefix(d.Hint, "did you mean") {
			line += " (" + d.Hint + ")"
		}
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the docs do not quote %q", line)
		}
	}
}

func checkErrorBody(t *testing.T, body value.Value, failures []schema.Failure) {
	t.Helper()
	var list []value.Value
	for _, f := range failures {
		list = append(list, value.ObjectValue(
			value.Member{Key: "pointer", Value: value.StringValue("/data" + f.Pointer)},
			value.Member{Key: "message", Value: value.StringValue(f.Message)},
		))
	}
	if diff := cmp.Diff(body.Get("errors").String(), value.ArrayValue(list...).String()); diff != "" {
		t.Errorf("errors: %s", diff)
	}
	details := value.ObjectValue(
		value.Member{Key: "field", Value: value.StringValue(failures[0].Path)},
		value.Member{Key: "constraint", Value: value.StringValue(failures[0].Constraint)},
		value.Member{Key: "expected", Value: failures[0].Expected},
		value.Member{Key: "received", Value: failures[0].Received},
	)
	if diff := cmp.Diff(body.Get("details").String(), details.String()); diff != "" {
		t.Errorf("details: %s", diff)
	}
	if got := body.Get("path").Str(); got != "data."+failures[0].Path {
		t.Errorf("path: %s", got)
	}
}
