package main

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEveryMetricIsDocumented compares the table of docs/operations.md with what a server prints, both ways: the names,
// and of each row the types of what it names.
func TestEveryMetricIsDocumented(t *testing.T) {
	p, _ := started(t, `{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_written":{
		"generations":{"1":{"schema":true,"upcast":[]}},"schema":{"type":"object"},"handler":[]}}}}}`)
	metrics(t, p) // requests are counted from the first one on
	if s := requested(
		t, p, "POST", "prod", "/note/global/was_written", p.ready.Keys["prod"].Write,
		`{"data":{},"metadata":{"actor":{"type":"user","id":"global"},"generation":1}}`, nil,
	); s != http.StatusCreated {
		t.Fatalf("an event of an older generation: %d", s)
	}

	// What the server prints.
	answer := string(metrics(t, p))
	goldenMetrics(t, answer)
	goldenWork(t, p)
	printed := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (j17_\w+) (\w+)$`).FindAllStringSubmatch(answer, -1) {
		printed[m[1]] = m[2]
	}

	// What the table says. A type stands there in the singular or in the plural.
	documented, named := map[string]bool{}, regexp.MustCompile(`j17_\w+`)
	for row := range strings.Lines(sectionsOf(pageText(t, "../../docs/operations.md"))["Metrics"]) {
		cells := strings.Split(row, " | ")
		if len(cells) < 3 || !named.MatchString(cells[0]) {
			continue
		}
		types := map[string]bool{}
		for _, name := range named.FindAllString(cells[0], -1) {
			if documented[name] {
				t.Errorf("%s stands in two rows", name)
			}
			documented[name], types[printed[name]] = true, true
		}
		said := map[string]bool{}
		for word := range strings.SplitSeq(cells[1], ", ") {
			said[strings.TrimSuffix(word, "s")] = true
		}
		if diff := cmp.Diff(said, types); diff != "" {
			t.Errorf("the types of %s: %s", cells[0], diff)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(printed))); diff != "" {
		t.Errorf("the table of metrics and what the server prints (+):\n%s", diff)
	}
}
