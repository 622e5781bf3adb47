//go:build !race

package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17/docs"
	"j17/internal/edge/httpapi"
	"j17/internal/lang/spec"
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

// TestOpenAPIOfAnInstance checks the document of the hosts of an environment: who gets it, and that it has the types of
// the spec.
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
		if got := p.do(
			t, "GET", "/_openapi.json", "", "Host: "+c.host, "Authorization: Bearer "+c.token,
		); c.token != "" && got.status != c.want {
			t.Errorf("%s with %.8q: %d %.200s", c.host, c.token, got.status, got.body)
		}
	}
	first := p.do(t, "GET", "/_openapi.json", "")
	valid(t, []byte(first.body))
	d := parsed(t, []byte(first.body))
	if d.OpenAPI != "3.1.0" || d.Paths["/note/{id}/was_written"]["post"] == nil ||
		d.Components["schemas"]["note.was_written"] == nil || d.Paths["/{type}"] != nil {
		t.Errorf("%.2000s", first.body)
	}
	if again := p.do(t, "GET", "/_openapi.json", "", "If-None-Match: "+first.header.Get("ETag")); again.status != 304 {
		t.Errorf("%d", again.status)
	}
	if got := p.do(t, "GET", "/_openapi.json?x=1", ""); got.status != 400 {
		t.Errorf("%d", got.status)
	}
}

// TestCorePages reads the documentation for assistants on the control host, without a credential, and finds it nowhere
// else.
func TestCorePages(t *testing.T) {
	p := newPlane(t, nil)
	first := p.do(t, "GET", "/llms-core.txt", "", "Host: control.j17.example")
	if first.status != 200 || first.header.Get("Content-Type") != "text/plain" || len(first.body) > docs.MaxCore ||
		!strings.Contains(first.body, "\nPage: docs/reference/spec.md\n") {
		t.Errorf("%d %v %.200s", first.status, first.header, first.body)
	}
	if again := p.do(
		t, "GET", "/llms-core.txt", "", "Host: control.j17.example", "If-None-Match: "+first.header.Get("ETag"),
	); again.status != 304 {
		t.Errorf("%d", again.status)
	}
	if got := p.do(
		t, "GET", "/llms-core.txt", "", "Host: app.j17.example", "Authorization: Bearer "+p.key,
	); got.status != 404 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestOpenAPIOfExamples checks the documents of all examples of specs.
func TestOpenAPIOfExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/spec.json")
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
		raw, err := httpapi.OpenAPI(httpapi.InstanceDocument, "test", "https://shop.example", compiled)
		if err != nil {
			t.Fatal(err)
		}
		valid(t, raw)
	}
}

// TestOpenAPIOfLargeSpecs bounds what a document costs, by its size: of the specs with the most types and the most
// event types.
func TestOpenAPIOfLargeSpecs(t *testing.T) {
	for _, c := range []struct{ types, events, most int }{
		{1000, 2, 14 << 20}, {1000, 10, 14 << 20}, {1, 10_000, 3 << 20}, {1, 2000, 7 << 20},
	} {
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
		raw, err := httpapi.OpenAPI(httpapi.InstanceDocument, "test", "https://shop.example", compiled)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > c.most {
			t.Errorf("%d types of %d event types, %d bytes: a document of %d bytes", c.types, c.events, len(source), len(raw))
		}
	}
}

// TestOpenAPIOfReferences: a schema that is little but references to itself does not grow by the name of its component
// in each of them, and what they lead to is found all the same.
func TestOpenAPIOfReferences(t *testing.T) {
	for name, c := range map[string]struct {
		references int
		short      bool
	}{"an ordinary schema": {1, false}, "nothing but references": {3000, true}} {
		long := strings.Repeat("n", 50)
		schema := `{"description":"` + strings.Repeat("x", 100) + `","$defs":{"t":{"type":"string"}},"properties":{"self":{"$ref":"#"},"name":{"anyOf":[` +
			strings.TrimSuffix(strings.Repeat(`{"$ref":"#/$defs/t"},`, c.references), ",") + `]}}}`
		source := fmt.Sprintf(`{"agent_types":["user"],"aggregate_types":{%q:{"events":{%q:{"schema":%s,"handler":[]}}}}}`, long, long, schema)
		compiled, found := spec.Compile([]byte(source))
		if compiled == nil {
			t.Fatal(found)
		}
		nothing, err := httpapi.OpenAPI(httpapi.InstanceDocument, "test", "https://shop.example", nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := httpapi.OpenAPI(httpapi.InstanceDocument, "test", "https://shop.example", compiled)
		if err != nil {
			t.Fatal(err)
		}
		valid(t, raw)
		if more := len(raw) - len(nothing); more > 4*len(source)+20_000 {
			t.Errorf("%s: a spec of %d bytes adds %d to the document", name, len(source), more)
		}
		schemas := parsed(t, raw).Components["schemas"]
		if _, found := schemas[long+"."+long+".t"]; found == c.short {
			t.Errorf("%s: the component has the name %q", name, long+"."+long+".t")
		}
	}
}

// TestOpenAPIForClients: what makes clients wrong is not in the document of an environment.
func TestOpenAPIForClients(t *testing.T) {
	a := administer(t)
	a.deploySpec(t, `{"agent_types":["clerk","robot"],"target_types":["shop"],"aggregate_types":{"order":{"events":{
		"was_placed":{"schema":{"type":"object","required":["first"],"properties":{"first":{"$ref":"#/$defs/line"},"again":{"$ref":"#/properties/first"},"any":true},
			"$defs":{"line":{"$id":"urn:x","type":"object","properties":{"sku":{"type":"string"},"of":{"$ref":"#"}}}}},"handler":[{"set":{"target":"sku","value":"$.data.first.sku"}}]},
		"was_paid":{"schema":{},"handler":[]}}}},
		"projections":{"placed":{"for_each":"order","sources":{"order":"$key"},"select":{"sku":"$.order.sku"}}},
		"listeners":{"books":{"url":"https://example.com/","events":["order.*"]},"search":{"url":"https://example.com/","events":["order.was_paid"],"format":"cloudevents"}}}`).wants(t, 201)
	ask := func(target string, headers ...string) answer {
		return a.do(
			t, "GET", target, "", append(
				[]string{"Host: app-staging.j17.example:8443", "Authorization: Bearer " + a.admin}, headers...,
			)...,
		)
	}
	got := ask("/_openapi.json")
	got.wants(t, 200)
	valid(t, []byte(got.body))
	d := decoded[struct {
		Servers    []struct{ URL string }
		Paths      map[string]map[string]struct{ Tags []string }
		Webhooks   map[string]any
		Components struct{ Schemas map[string]any }
		Tags       []struct{ Name, Description string }
	}](t, got, 200)

	// Where it is, and what it is about.
	if len(d.Servers) != 1 || d.Servers[0].URL != "http://app-staging.j17.example:8443" {
		t.Error(d.Servers)
	}
	for path, operations := range d.Paths {
		for _, op := range operations {
			if len(op.Tags) != 1 || op.Tags[0] == "" ||
				strings.HasPrefix(path, "/order/") != (op.Tags[0] == "order") && path != "/order" {
				t.Errorf("%s: %v", path, op.Tags)
			}
		}
		if strings.HasPrefix(path, "/_admin") {
			t.Error(path)
		}
	}

	// Definitions are components, names are enumerations, and listeners are told one of several types.
	for name, want := range map[string]string{
		"order.was_placed":       `{"properties":{"again":{"$ref":"#/components/schemas/order.was_placed.first"},"any":{},"first":{"$ref":"#/components/schemas/order.was_placed.first"}},"required":["first"],"type":"object"}`,
		"order.was_placed.first": `{"$ref":"#/components/schemas/order.was_placed.line"}`,
		"order.was_placed.line":  `{"properties":{"of":{"$ref":"#/components/schemas/order.was_placed.line"},"sku":{"type":"string"}},"type":"object"}`,
		"Agent":                  `{"properties":{"id":{"type":"string"},"type":{"enum":["clerk","robot"],"type":"string"}},"required":["type","id"],"type":"object"}`,
		"Target":                 `{"properties":{"id":{"type":"string"},"type":{"enum":["shop"],"type":"string"}},"required":["type","id"],"type":"object"}`,
	} {
		if is, _ := json.Marshal(d.Components.Schemas[name]); string(is) != want {
			t.Errorf("%s is %s, want %s", name, is, want)
		}
	}
	books, _ := json.Marshal(d.Webhooks["books"])
	search, _ := json.Marshal(d.Webhooks["search"])
	if !strings.Contains(string(books), `"oneOf"`) || !strings.Contains(string(books), "schemas/order.was_placed\"") ||
		!strings.Contains(string(search), `"application/cloudevents+json"`) {
		t.Errorf("%s\n%s", books, search)
	}

	// States and rows are of the types that the spec says.
	for _, want := range []string{`"data":{"$ref":"#/components/schemas/order._state"}`, `"data":{"$ref":"#/components/schemas/placed._result"}`, `"items":{"$ref":"#/components/schemas/placed._row"}`} {
		if !strings.Contains(got.body, want) {
			t.Error("there is no", want)
		}
	}
	if state, _ := json.Marshal(d.Components.Schemas["order._state"]); !strings.Contains(
		string(state), `"sku":{"type":["string","null"]}`,
	) {
		t.Errorf("%s", state)
	}

	// The administration has a document of its own, and each URL an entity tag.
	admin := ask("/_openapi.json?part=admin")
	admin.wants(t, 200, `"/_admin/spec":`)
	valid(t, []byte(admin.body))
	if strings.Contains(admin.body, "was_placed") {
		t.Error("the document of the administration has event types")
	}
	ask("/_openapi.json?part=all").wants(t, 400)
	ask("/_openapi.json", "If-None-Match: "+got.header.Get("ETag")).wants(t, 304)
	ask("/_openapi.json", "Host: app-staging.j17.example", "If-None-Match: "+got.header.Get("ETag")).wants(
		t, 200, `"http://app-staging.j17.example"`,
	)
}

// TestOpenAPIOfEncryptedServers: the scheme of a server's URL is that of the client's request, which a trusted proxy
// passes on.
func TestOpenAPIOfEncryptedServers(t *testing.T) {
	for _, c := range []struct {
		encrypted bool
		proxies   string
		header    string
		want      string
	}{
		{true, "", "X-Nothing: 1", "https://"},
		{false, "", "X-Forwarded-Proto: https", "http://"},
		{false, "192.0.2.0/24", "X-Forwarded-Proto: https", "https://"},
		{false, "192.0.2.0/24", "X-Forwarded-Proto: http", "http://"},
	} {
		p := newPlane(t, func(o *httpapi.Options) {
			if o.Encrypted = c.encrypted; c.proxies != "" {
				o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(c.proxies)}
			}
		})
		p.do(t, "GET", "/_openapi.json", "", c.header).wants(t, 200, `"servers":[{"url":"`+c.want+`app.j17.example"}]`)
	}
}
