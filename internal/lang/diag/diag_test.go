//go:build !race

package diag_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"j17/internal/lang/diag"
)

func TestPointerEscapesAndUnescapes(t *testing.T) {
	p := diag.Pointer("").Key("a/b").Index(3).Key("~").Key("")
	if want := diag.Pointer("/a~1b/3/~0/"); p != want {
		t.Errorf("pointer is %q, want %q", p, want)
	}
	if diff := cmp.Diff([]string{"a/b", "3", "~", ""}, p.Steps()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := diag.Pointer("").Steps(); s != nil {
		t.Errorf("the whole document has the steps %q", s)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"aggregate_types", "agent_types", "emit", "events", "set", "merge", "id"}
	for word, want := range map[string]string{
		"aggregat_types": "aggregate_types", "AGENT_TYPES": "agent_types", "emti": "emit", "event": "events",
		"sett":  "set",
		"megre": "merge", "di": "id", "x": "", "": "", "something_else": "", strings.Repeat("events", 1000): "",
	} {
		if got := diag.Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestListKeepsAFewOfEachSeverity(t *testing.T) {
	var l diag.List
	for range diag.MaxKept + 10 {
		l.Warnf("/w", "careful").Hintf("slow down")
	}
	l.Errorf("/e", "wrong").AtKey().Hintf("do %s", "right")
	if l.Errors() != 1 || l.Dropped() != 10 || len(l.All()) != diag.MaxKept+1 {
		t.Fatalf("%d errors, %d dropped, %d kept", l.Errors(), l.Dropped(), len(l.All()))
	}
	want := diag.Diagnostic{Pointer: "/e", OnKey: true, Message: "wrong", Hint: "do right"}
	if diff := cmp.Diff(want, l.All()[diag.MaxKept]); diff != "" {
		t.Errorf("an error after too many warnings (-want +got):\n%s", diff)
	}
	if l.Full() {
		t.Error("a list with one error is full")
	}
	if e, w := diag.Count(l.All()); e != 1 || w != diag.MaxKept {
		t.Errorf("Count = %d, %d", e, w)
	}
	for range diag.MaxKept {
		l.Errorf("/e", "wrong").AtKey()
	}
	l.UnknownKey("", "a", []string{"b"})
	if l.Errors() != diag.MaxKept+2 || l.Dropped() != 12 || !l.Full() {
		t.Errorf("%d errors, %d dropped", l.Errors(), l.Dropped())
	}
}

func TestUnknownKey(t *testing.T) {
	var l diag.List
	l.UnknownKey("/a", "emti", []string{"emit", "map"})
	l.UnknownKey("/a", "else", []string{"map", "emit"})
	l.UnknownKey("/a", strings.Repeat("é\x00", 500), nil)
	var got []string
	for _, d := range l.All() {
		got = append(got, d.String())
	}
	want := []string{
		`0:0 error: unknown key "emti" (did you mean "emit"?)`,
		`0:0 error: unknown key "else" (known keys here are emit, map)`,
		`0:0 error: unknown key "` + strings.Repeat(`é\x00`, 21) + `..."`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRender(t *testing.T) {
	src := "{\r\n\t\"ágents\": [1,\x1b[31m 2],\n  \"x\": " + strings.Repeat("0123456789", 30) + "\n}"
	found := []diag.Diagnostic{
		{Line: 2, Column: 2, Message: "unknown key", Hint: "did you mean it?"},
		{Line: 2, Column: 13, Severity: diag.Warning, Message: "a\x1bb\u202e"},
		{Line: 3, Column: 150, Message: "inside a long line"},
		{Line: 2, Column: 99, Message: "behind its end"},
		{Line: 4, Column: 2, Message: "at the end"},
		{Line: 9, Column: 1, Message: "behind the text"},
		{Message: "no place", Hint: "none"},
	}
	ten := strings.Repeat("0123456789", 11)
	want := "spec.json:2:2: error: unknown key\n" +
		"  2 | \"ágents\": [1,\uFFFD[31m 2],\n" +
		"    | ^\n" +
		"    = hint: did you mean it?\n" +
		"spec.json:2:13: warning: a\uFFFDb\uFFFD\n" +
		"  2 | \"ágents\": [1,\uFFFD[31m 2],\n" +
		"    |            ^\n" +
		"spec.json:3:150: error: inside a long line\n" +
		"  3 | ... " + ten[7:] + ten[:7] + " ...\n" +
		"    |     " + strings.Repeat(" ", 55) + "^\n" +
		"spec.json:2:99: error: behind its end\n" +
		"  2 | \"ágents\": [1,\uFFFD[31m 2],\n" +
		"    | " + strings.Repeat(" ", 22) + "^\n" +
		"spec.json:4:2: error: at the end\n" +
		"  4 | }\n" +
		"    |  ^\n" +
		"spec.json:9:1: error: behind the text\n" +
		"spec.json: error: no place\n" +
		"   = hint: none\n"
	if diff := cmp.Diff(want, diag.Render("spec.json", []byte(src), found)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRenderCountsColumns puts the mark under characters behind others that are wide, or that take no column at all.
func TestRenderCountsColumns(t *testing.T) {
	for line, columns := range map[string]int{
		"abcX":                             3,
		"\u4e2d\u6587X":                    4, // wide
		"e\u0301X":                         1, // a letter and its accent
		"\uac00\u1100\u1161X":              4, // a syllable, and another one in parts
		"\uff21X":                          2, // full width
		"\U0001f600X":                      2,
		"\u0924\u0941X":                    1,
		strings.Repeat("\u4e2d", 70) + "X": 4 + 2*55, // cut
	} {
		place := utf8.RuneCountInString(line)
		out := diag.Render("f", []byte(line), []diag.Diagnostic{{Line: 1, Column: place, Message: "m"}})
		if !strings.Contains(out, "\n    | "+strings.Repeat(" ", columns)+"^\n") {
			t.Errorf("the mark is not in column %d:\n%s", columns, out)
		}
	}
	// The accent is a part of its letter.
	if out := diag.Render("f", []byte("xe\u0301"), []diag.Diagnostic{
		{Line: 1, Column: 3, Message: "m"},
	}); !strings.Contains(out, "\n    |  ^\n") {
		t.Errorf("the mark is not under the letter:\n%s", out)
	}
}

func FuzzRender(f *testing.F) {
	f.Add("{\n}", 2, 1, "m")
	f.Add("\xff\xfe\n\n", 1, 2, "\x1b")
	f.Add("", 1, 1, "")
	f.Fuzz(func(t *testing.T, src string, line, column int, message string) {
		out := diag.Render("f", []byte(src), []diag.Diagnostic{
			{Line: 1, Column: 1}, {Line: line, Column: column, Message: message},
		})
		if !utf8.ValidString(out) || strings.ContainsAny(out, "\x1b\r\x00\x07") {
			t.Fatalf("Render lets through what a terminal would obey: %q", out)
		}
	})
}
