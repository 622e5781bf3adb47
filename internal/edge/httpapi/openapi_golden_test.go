//go:build !race

package httpapi_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17/internal/edge/httpapi"
	"j17/internal/lang/spec"
)

var update = flag.Bool("update", false, "write what the documents have into testdata")

// TestOpenAPIStaysTheSame compares the documents of all kinds with a file in testdata, texts left out. A line is an
// operation, a component or a property of one, and begins with the letters of the documents that have it.
func TestOpenAPIStaysTheSame(t *testing.T) {
	var head strings.Builder
	in := map[string][]byte{}
	letters := "CEAISPL"
	add := func(i int, about string, raw []byte) {
		fmt.Fprintf(&head, "%c  %s\n", letters[i], about)
		for _, line := range withoutTexts(t, raw) {
			if in[line] == nil {
				in[line] = []byte(strings.Repeat("-", len(letters)))
			}
			in[line][i] = letters[i]
		}
	}

	// What every server has, alone or with others.
	f := newFixture(t, func(o *httpapi.Options) {
		o.AdvanceClock = func(context.Context, time.Duration) (time.Time, error) { return time.Time{}, nil }
		o.Cluster = &httpapi.Cluster{}
	})
	for i, d := range []httpapi.Document{
		httpapi.ControlDocument, httpapi.InstanceDocument, httpapi.AdminDocument, httpapi.InternalDocument,
	} {
		raw, err := f.Describe(d)
		if err != nil {
			t.Fatal(err)
		}
		add(
			i, []string{"the control plane", "an environment", "the administration of one", "the internal listener"}[i],
			raw,
		)
	}

	// What the parts of a spec add.
	for i, file := range []string{"../../../examples/checkout/spec.json", "../../../examples/storefinder/spec.json", "testdata/listeners.json"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		compiled, found := spec.Compile(source)
		if compiled == nil {
			t.Fatal(file, found)
		}
		raw, err := httpapi.OpenAPI(httpapi.InstanceDocument, "test", "https://shop.example", compiled)
		if err != nil {
			t.Fatal(err)
		}
		add(4+i, []string{"an environment with sagas", "with places and lists", "with listeners"}[i], raw)
	}

	var lines []string
	for line, documents := range in {
		lines = append(lines, string(documents)+" "+line)
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[len(letters):], b[len(letters):]) })
	got := append(strings.Split(head.String(), "\n"), lines...)

	file := filepath.Join("testdata", "openapi.txt")
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSuffix(string(want), "\n"), "\n"), got); diff != "" {
		t.Errorf("%s says otherwise. If clients shall see the change, run this test with -update:\n%s", file, diff)
	}
}

// withoutTexts lists what a document has, with short forms of what many lines have.
func withoutTexts(t *testing.T, raw []byte) []string {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	reference := regexp.MustCompile(`\{"\$ref":"#/components/(\w+)/([^"]*)"\}`)
	usual := strings.NewReplacer(
		`{"properties":{"ok":{"const":true,"type":"boolean"}},"required":["ok"],"type":"object"}`, "OK",
		`"Ratelimit":headers:Ratelimit,"Ratelimit-Policy":headers:Ratelimit-Policy,"X-Correlation-Id":headers:X-Correlation-Id,`+
			`"X-Ratelimit-Limit":headers:X-Ratelimit-Limit,"X-Ratelimit-Remaining":headers:X-Ratelimit-Remaining,`+
			`"X-Ratelimit-Scope":headers:X-Ratelimit-Scope,"X-Request-Id":headers:X-Request-Id`, "usual",
		`"4XX":responses:Problem,"5XX":responses:Problem`, "problems",
	)
	text := func(v any) string {
		short, err := json.Marshal(bare(v))
		if err != nil {
			t.Fatal(err)
		}
		return usual.Replace(reference.ReplaceAllString(string(short), "$1:$2"))
	}

	var lines []string
	for _, member := range []string{"paths", "webhooks"} {
		of, _ := document[member].(map[string]any)
		for path, operations := range of {
			methods, _ := operations.(map[string]any)
			for method, operation := range methods {
				lines = append(lines, fmt.Sprintf("%s %s %s %s", member, path, method, text(operation)))
			}
		}
	}
	kinds, _ := document["components"].(map[string]any)
	for kind, of := range kinds {
		components, _ := of.(map[string]any)
		for name, component := range components {
			members, _ := component.(map[string]any)
			properties, _ := members["properties"].(map[string]any)
			for property, schema := range properties {
				lines = append(lines, fmt.Sprintf("%s %s.%s %s", kind, name, property, text(schema)))
			}
			if properties != nil {
				members = maps.Clone(members)
				delete(members, "properties")
			}
			lines = append(lines, fmt.Sprintf("%s %s %s", kind, name, text(members)))
		}
	}
	return lines
}

// bare returns a value without the texts in it, which are for readers.
func bare(v any) any {
	switch v := v.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, member := range v {
			if _, isText := member.(string); !isText || name != "description" && name != "summary" {
				kept[name] = bare(member)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i, element := range v {
			kept[i] = bare(element)
		}
		return kept
	}
	return v
}
