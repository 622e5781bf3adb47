package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"j17/docs"
)

func load(t *testing.T) *docs.Library {
	t.Helper()
	library, err := docs.Load()
	if err != nil {
		t.Fatal(err)
	}
	return library
}

// TestListForAssistantsIsFresh compares llms.txt with what the pages make of it.
func TestListForAssistantsIsFresh(t *testing.T) {
	got, err := os.ReadFile(filepath.Join("..", "llms.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != load(t).LLMs() {
		t.Error("llms.txt is not what the pages in docs/ make: run 'make docs'")
	}
}

// TestInternalsAreLeftOut looks for pages that are meant for contributors among those that the program prints.
func TestInternalsAreLeftOut(t *testing.T) {
	library := load(t)
	for _, p := range library.Pages() {
		if strings.HasPrefix(p.Name, "internals/") {
			t.Errorf("%s is part of the program", p.Name)
		}
	}
	if pages, err := filepath.Glob("internals/*.md"); err != nil || len(pages) == 0 {
		t.Errorf("no page for contributors was found: %v", err)
	}
}

// TestEveryPageIsListedOnce walks the folder and looks for each page in the library and in llms.txt.
func TestEveryPageIsListedOnce(t *testing.T) {
	library := load(t)
	topics, llms := map[string]bool{}, library.LLMs()
	for _, p := range library.Pages() {
		if topics[p.Topic()] {
			t.Errorf("two pages have the topic %q", p.Topic())
		}
		topics[p.Topic()] = true
		if p.Title == "" || p.Summary == "" || p.Group == "" || strings.Contains(p.Summary, "\n") {
			t.Errorf("%s: title %q, summary %q, group %q", p.Name, p.Title, p.Summary, p.Group)
		}
		if strings.Contains(p.Text, "<!--") || strings.Contains(p.Text, "```sh run") {
			t.Errorf("%s shows what only the tests read", p.Name)
		}
		if strings.Count(llms, "(docs/"+p.Name+".md): ") != 1 {
			t.Errorf("llms.txt does not list %s once", p.Name)
		}
	}
	found := 0
	for _, pattern := range []string{"*.md", "guides/*.md", "reference/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found += len(pages)
	}
	if found != len(topics) {
		t.Errorf("%d pages in the folder, %d in the library", found, len(topics))
	}
	if !regexp.MustCompile(`^# j17\n\n> .+\n`).MatchString(llms) {
		t.Error("llms.txt does not begin with a title and a summary")
	}
}

// TestTablesHaveHeads looks for tables without the line below their heads, or with a part that a blank line has cut
// off: they are shown as text.
func TestTablesHaveHeads(t *testing.T) {
	rule := regexp.MustCompile(`^\|[ :|-]+\|$`)
	for _, p := range load(t).Pages() {
		lines, code := strings.Split(p.Text, "\n"), false
		for i, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			begins := !code && strings.HasPrefix(line, "|") && (i == 0 || !strings.HasPrefix(lines[i-1], "|"))
			if begins && (i+1 == len(lines) || !rule.MatchString(lines[i+1])) {
				t.Errorf("%s: no table begins with %q", p.Name, line)
			}
		}
	}
}

func TestFind(t *testing.T) {
	library := load(t)
	for topic, want := range map[string]string{
		"errors": "reference/errors", "reference/errors": "reference/errors",
		"docs/reference/Errors.md": "reference/errors",
		"readme":                   "README", "tutorial": "tutorial", "": "", "nonsense": "", "../go.mod": "",
		"reference": "",
	} {
		if p, ok := library.Find(topic); ok != (want != "") || p.Name != want {
			t.Errorf("Find(%q) = %q, %t, want %q", topic, p.Name, ok, want)
		}
	}
}

func TestSection(t *testing.T) {
	page, _ := load(t).Find("errors")
	for _, heading := range []string{"Codes", "codes", "#codes"} {
		text, ok := page.Section(heading)
		if !ok || !strings.HasPrefix(text, "## Codes\n") || !strings.Contains(text, "\n### The server cannot\n") {
			t.Errorf("Section(%q) = %t, %.200q", heading, ok, text)
		}
	}
	part, ok := page.Section("the-server-cannot")
	if !ok || strings.Contains(part, "## Codes") || !strings.Contains(part, "`storage_full`") {
		t.Errorf("the subsection is %.200q, %t", part, ok)
	}
	if _, ok := page.Section("nonsense"); ok {
		t.Error("there is a section of nonsense")
	}
}

func TestSearch(t *testing.T) {
	library := load(t)
	hits := library.Search("IDEMPOTENCY retry", 5)
	if len(hits) == 0 || len(hits) > 5 {
		t.Fatalf("%d hits", len(hits))
	}
	for _, h := range hits {
		text, ok := h.Page.Section(h.Heading)
		if lower := strings.ToLower(text); !ok || !strings.Contains(lower, "idempotency") ||
			!strings.Contains(lower, "retry") {
			t.Errorf("%s, %q does not hold the words", h.Page.Name, h.Heading)
		}
	}
	if first := library.Search("conditional requests", 1)[0]; first.Heading != "Conditional requests" {
		t.Errorf("first is %q", first.Heading)
	}
	for _, query := range []string{"", " ", "xyzzy", "idempotency xyzzy"} {
		if hits := library.Search(query, 5); len(hits) != 0 {
			t.Errorf("Search(%q) has %d hits", query, len(hits))
		}
	}
}

// TestCorePages checks that llms-core.txt has each of its pages, and the words for which an assistant reads it, within
// its size.
func TestCorePages(t *testing.T) {
	text := load(t).LLMsCore()
	if len(text) > docs.MaxCore {
		t.Errorf("llms-core.txt has %d bytes, more than %d: take a page out, or shorten one", len(text), docs.MaxCore)
	}
	pages := strings.Count(text, "\nPage: docs/")
	for _, name := range docs.CorePages() {
		if !strings.Contains(text, "\nPage: docs/"+name+".md\n") {
			t.Errorf("%s is missing", name)
		}
	}
	if pages != len(docs.CorePages()) {
		t.Errorf("%d pages, want %d", pages, len(docs.CorePages()))
	}
	for _, word := range []string{
		"aggregate_types", "$.data", "cancel_on", "requires", "previous_length", "on_failed", "$coalesce", "$if",
		"$defs", "minItems", "Authorization: Bearer",
	} {
		if !strings.Contains(text, word) {
			t.Errorf("%q is nowhere in it", word)
		}
	}
}
