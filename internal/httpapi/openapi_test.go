//go:build !race

package httpapi_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17/docs"
	"j17/internal/httpapi"
	"j17/internal/spec"
)

// TestOpenAPIOfAllRoutes checks that each of the documents is valid and has every row of the table once.
func TestOpenAPIOfAllRoutes(t *testing.T) {
	for _, cluster := range []*httpapi.Cluster{nil, {}, {Node: "n"}} {
		for d := range httpapi.Sites() {
			f := newFixture(t, func(o *httpapi.Options) {
				o.AdvanceClock = func(context.Context, time.Duration) (time.Time, error) { return time.Time{}, nil }
				o.Cluster = cluster
			})
			rows, not := f.Described(d)
			if not != nil || len(rows) < 4 {
				t.Errorf("%d: %v are not described", d, not)
			}
			raw, err := f.Describe(d)
			if err != nil {
				t.Fatal(err)
			}
			valid(t, raw)
			operations, ids := 0, map[any]bool{}
			for path, methods := range parsed(t, raw).Paths {
				for method, op := range methods {
					if operations++; ids[op["operationId"]] {
						t.Errorf("%s %s: a second %v", method, path, op["operationId"])
					}
					ids[op["operationId"]] = true
				}
			}
			if operations != len(rows) {
				t.Errorf("document %d has %d operations of %d rows", d, operations, len(rows))
			}
		}
	}
}

// TestOpenAPIOfAnInstance checks the document of the hosts of an environment: who gets it, and that it has the types of the spec.
func TestOpenAPIOfAnInstance(t *testing.T) {
	p := newPlane(t, nil)
	for _, c := range []struct {
		host, token string
		want        int
	}{
		{"control.j17.example", "", 200},
		{"app.j17.example", "", 401},
		{"app.j17.example", "x", 401},
		{"app.j17.example", "j17_0_x", 401},
		{"app.j17.example", p.key, 200},
		{"app.j17.example", p.admin, 200},
		{"app-test.j17.example", p.key, 403},
		{"app-test.j17.example", p.admin, 503},
	} {
		if got := p.do(t, "GET", "/_openapi.json", "", "Host: "+c.host, "Authorization: Bearer "+c.token); c.token != "" && got.status != c.want {
			t.Errorf("%s with %.8q: %d %.200s", c.host, c.token, got.status, got.body)
		}
	}
	first := p.do(t, "GET", "/_openapi.json", "")
	valid(t, []byte(first.body))
	d := parsed(t, []byte(first.body))
	if d.OpenAPI != "3.1.0" || d.Paths["/note/{id}/was_written"]["post"] == nil || d.Components["schemas"]["note.was_written"] == nil || d.Paths["/{type}"] != nil {
		t.Errorf("%.2000s", first.body)
	}
	if again := p.do(t, "GET", "/_openapi.json", "", "If-None-Match: "+first.header.Get("ETag")); again.status != 304 {
		t.Errorf("%d", again.status)
	}
	if got := p.do(t, "GET", "/_openapi.json?x=1", ""); got.status != 400 {
		t.Errorf("%d", got.status)
	}
}

// TestCorePages reads the documentation for assistants on the control host, without a credential, and finds it nowhere else.
func TestCorePages(t *testing.T) {
	p := newPlane(t, nil)
	first := p.do(t, "GET", "/llms-core.txt", "", "Host: control.j17.example")
	if first.status != 200 || first.header.Get("Content-Type") != "text/plain" || len(first.body) > docs.MaxCore || !strings.Contains(first.body, "\nPage: docs/reference/spec.md\n") {
		t.Errorf("%d %v %.200s", first.status, first.header, first.body)
	}
	if again := p.do(t, "GET", "/llms-core.txt", "", "Host: control.j17.example", "If-None-Match: "+first.header.Get("ETag")); again.status != 304 {
		t.Errorf("%d", again.status)
	}
	if got := p.do(t, "GET", "/llms-core.txt", "", "Host: app.j17.example", "Authorization: Bearer "+p.key); got.status != 404 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestOpenAPIOfExamples checks the documents of all examples of specs.
func TestOpenAPIOfExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/spec.json")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		compiled, found := spec.Compile(source)
		if compiled == nil {
			t.Fatal(file, found)
		}
		raw, err := httpapi.OpenAPI(httpapi.InstanceDocument, "test", compiled)
		if err != nil {
			t.Fatal(err)
		}
		valid(t, raw)
	}
}

// TestOpenAPIOfLargeSpecs bounds what a document costs, by its size: of the specs with the most types and the most event types.
func TestOpenAPIOfLargeSpecs(t *testing.T) {
	for _, c := range []struct{ types, events, most int }{{1000, 2, 12 << 20}, {1000, 10, 12 << 20}, {1, 10_000, 3 << 20}, {1, 2000, 7 << 20}} {
		var b strings.Builder
		b.WriteString(`{"agent_types":["user"],"aggregate_types":{`)
		for i := range c.types {
			fmt.Fprintf(&b, `"%s%d":{"events":{`, strings.Repeat("t", 50), i)
			for j := range c.events {
				fmt.Fprintf(&b, `"%s%d":{"schema":{"type":"object"},"handler":[]},`, strings.Repeat("e", 50), j)
			}
			b.WriteString("}},")
		}
		source := strings.NewReplacer(",}", "}").Replace(b.String() + "}}")
		compiled, found := spec.Compile([]byte(source))
		if compiled == nil {
			t.Fatal(found)
		}
		raw, err := httpapi.OpenAPI(httpapi.InstanceDocument, "test", compiled)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > c.most {
			t.Errorf("%d types of %d event types, %d bytes: a document of %d bytes", c.types, c.events, len(source), len(raw))
		}
	}
}

// TestOpenAPIOfReferences: a schema that is little but references to itself does not grow by the name of its component in each of
// them, and what they lead to is found all the same.
func TestOpenAPIOfReferences(t *testing.T) {
	for name, c := range map[string]struct {
		references int
		moved      bool
	}{"an ordinary schema": {1, true}, "nothing but references": {3000, false}} {
		long := strings.Repeat("n", 50)
		schema := `{"description":"` + strings.Repeat("x", 100) + `","$defs":{"t":{"type":"string"}},"properties":{"name":{"anyOf":[` +
			strings.TrimSuffix(strings.Repeat(`{"$ref":"#/$defs/t"},`, c.references), ",") + `]}}}`
		source := fmt.Sprintf(`{"agent_types":["user"],"aggregate_types":{%q:{"events":{%q:{"schema":%s,"handler":[]}}}}}`, long, long, schema)
		compiled, found := spec.Compile([]byte(source))
		if compiled == nil {
			t.Fatal(found)
		}
		nothing, err := httpapi.OpenAPI(httpapi.InstanceDocument, "test", nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := httpapi.OpenAPI(httpapi.InstanceDocument, "test", compiled)
		if err != nil {
			t.Fatal(err)
		}
		if more := len(raw) - len(nothing); more > 4*len(source)+20_000 {
			t.Errorf("%s: a spec of %d bytes adds %d to the document", name, len(source), more)
		}
		component := parsed(t, raw).Components["schemas"][long+"."+long]
		text := fmt.Sprint(component)
		if moved := strings.Contains(text, "#/components/schemas/"+long+"."+long+"/$defs/t"); moved != c.moved {
			t.Errorf("%s: %.600s", name, text)
		}
		if own := strings.Contains(text, "urn:j17:"+long+"."+long); own == c.moved {
			t.Errorf("%s: %.600s", name, text)
		}
	}
}
