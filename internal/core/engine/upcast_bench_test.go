package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/lang/tick"
)

// tried tells the engine that all events of an aggregate type that are stored so far fit the deployed spec.
func tried(tb testing.TB, f *enginetest.Fixture, aggregateType string) {
	tb.Helper()
	d, err := f.Decider(enginetest.Tenant)
	if err != nil {
		tb.Fatal(err)
	}
	extent, err := f.Store.Extent(tb.Context(), enginetest.Tenant)
	if err != nil {
		tb.Fatal(err)
	}
	upTo := map[*tick.Plan]j17.StreamID{}
	for _, e := range d.Types[aggregateType].Events {
		for _, number := range e.Numbers() {
			if plan := e.Plan(number); plan != nil {
				upTo[plan] = extent.Last
			}
		}
	}
	d.Tried.Set(upTo)
}

// BenchmarkUpcast folds 10,000 events anew that are stored in several ways and all say the same: in a type without
// generations, in the newest generation, one step before it, five steps before it, and one step with computed members.
func BenchmarkUpcast(b *testing.B) {
	const (
		handler = `"handler":[{"set":{"target":"name","value":"$.data.contact.name"}},{"increment":{"target":"n","by":"$.data.n"}},{"set":{"target":"at","value":"$.data.place"}}]`
		newest  = `{"type":"object","properties":{"contact":{"type":"object"},"n":{"type":"number"},"place":{"type":"string"}},"required":["contact","n"]}`
		moves   = `[{"move":{"from":"name","to":"contact.name"}},{"move":{"from":"mail","to":"contact.mail"}},{"drop":{"target":"legacy"}},{"default":{"target":"place","value":"here"}},{"default":{"target":"unit","value":"piece"}}]`
		counts  = `[{"set":{"target":"n","value":{"$number":"@.n"}}},{"set":{"target":"contact.name","value":{"$split":"@.name","by":" ","part":0}}},{"set":{"target":"place","value":{"$join":["@.a","@.b"],"by":"/"}}},{"drop":{"target":"name"}}]`

		current = `{"contact":{"name":"Ada","mail":"ada@example.org"},"n":3,"place":"here","unit":"piece","lines":[{"sku":"LAMP-2","price":39.90},{"sku":"BULB","price":4.35}]}`
		former  = `{"name":"Ada","mail":"ada@example.org","n":3,"legacy":true,"lines":[{"sku":"LAMP-2","price":39.90},{"sku":"BULB","price":4.35}]}`
		spelled = `{"name":"Ada Lovelace","mail":"ada@example.org","n":"3","a":"x","b":"y","lines":[{"sku":"LAMP-2","price":39.90},{"sku":"BULB","price":4.35}]}`
	)
	spec := func(steps ...string) string {
		var older []string
		for i, s := range steps {
			older = append(older, fmt.Sprintf(`"%d":{"schema":true,"upcast":%s}`, i+1, s))
		}
		generations := ""
		if older != nil {
			generations = `"generations":{` + strings.Join(older, ",") + `},`
		}
		return `{"agent_types":["user"],"aggregate_types":{"order":{"events":{"was_placed":{` + generations +
			`"schema":` + newest + `,` + handler + `}}}}}`
	}
	const before = `{"agent_types":["user"],"aggregate_types":{"order":{"events":{"was_placed":{"schema":true,"handler":[]}}}}}`
	chain := []string{
		`[{"move":{"from":"name","to":"contact.name"}}]`, `[{"move":{"from":"mail","to":"contact.mail"}}]`,
		`[{"drop":{"target":"legacy"}}]`, `[{"default":{"target":"place","value":"here"}}]`,
		`[{"default":{"target":"unit","value":"piece"}}]`,
	}
	for _, c := range []struct{ name, written, spec, data string }{
		{"without", spec(), spec(), current},
		{"newest", spec(moves), spec(moves), current},
		{"step", before, spec(moves), former},
		{"five", before, spec(chain...), former},
		{"computed", before, spec(counts), spelled},
	} {
		b.Run(c.name, func(b *testing.B) {
			f := enginetest.New(b, engine.Options{})
			f.DeploySource(b, c.written)
			events := strings.TrimSuffix(strings.Repeat(`{"type":"was_placed","data":`+c.data+`},`, 1000), ",")
			for range 10 {
				f.Post(b, "order/"+id, `{"events":[`+events+`],`+meta+`}`)
			}
			f.DeploySource(b, c.spec)
			tried(b, f, "order")
			b.ReportAllocs()
			for b.Loop() {
				s, err := f.Load(b.Context(), tenant, "order", id, engine.LoadOptions{Replay: true})
				if err != nil || s.Length != 10_000 {
					b.Fatal(s.Length, err)
				}
			}
		})
	}
}
