package projection_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/projection"
)

// generator draws definitions of the named form and states that they have something to do with: "ref" is mostly an id,
// "refs" an array of them, "lines" an array of objects with "ref", "n" and "tags".
type generator struct {
	*rapid.T
	// sources may be used in paths, bindings as well.
	sources, bindings []string
	depth             int
}

func (g *generator) pick(from ...string) string { return rapid.SampledFrom(from).Draw(g.T, "word") }

func (g *generator) upTo(n int) int { return rapid.IntRange(0, n).Draw(g.T, "number") }

// anyID is one of few ids, in whatever form.
func (g *generator) anyID() string {
	i := id(g.upTo(4))
	switch g.upTo(9) {
	case 0:
		return strings.ToUpper(i)
	case 1:
		return g.pick("a", "b", "c") + ":" + i
	case 2:
		return "global"
	case 3:
		return "no-identifier"
	default:
		return i
	}
}

// data draws a state.
func (g *generator) data() string {
	list := func(most int, one func() string) string {
		var all []string
		for range g.upTo(most) {
			all = append(all, one())
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	ref := func() string {
		if g.upTo(9) == 0 {
			return g.pick("null", "5", "{}", `["x"]`)
		}
		return `"` + g.anyID() + `"`
	}
	number := func() string { return g.pick("1", "1.0", "-0", "2.50", "12345678901234567890.1", "1e3") }
	line := func() string {
		if g.upTo(9) == 0 {
			return number()
		}
		return `{"ref":` + ref() + `,"n":` + number() + `,"tags":` + list(3, number) + `}`
	}
	var members []string
	for _, m := range []struct {
		name string
		draw func() string
		in   int
	}{
		{"ref", ref, 8},
		{"n", number, 8},
		{"refs", func() string { return list(4, ref) }, 8},
		{"lines", func() string { return list(4, line) }, 8},
		{"o", func() string { return `{"z":` + number() + `,"b":{"c":` + ref() + `}}` }, 3},
		{"id", ref, 0},
	} {
		if g.upTo(9) <= m.in {
			members = append(members, `"`+m.name+`":`+m.draw())
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// definition draws one for aggregates of type a.
func (g *generator) definition() string {
	var sources []string
	for i := range 1 + g.upTo(4) {
		name, src := fmt.Sprintf("s%d", i), `"$key"`
		if i > 0 {
			ref := g.pick("$key", id(1), "$."+g.pick(g.sources...)+g.pick(
				".ref", ".ref", ".refs", ".refs[*]", ".lines[*].ref", ".lines[0].ref", ".o.b.c",
			))
			mode := g.pick("", `,"mode":"array"`)
			if strings.Contains(ref, "[*]") {
				mode = `,"mode":"array"`
			}
			src = `{"type":"` + g.pick("a", "b", "c") + `","id":"` + ref + `"` + mode + `}`
		}
		g.sources = append(g.sources, name)
		sources = append(sources, `"`+name+`":`+src)
	}
	include := ""
	if g.upTo(1) == 0 {
		include = `"include":{"global":"c:global"},`
		g.sources = append(g.sources, "global")
	}
	sources = rapid.Permutation(sources).Draw(g.T, "order")
	return `{"for_each":"a",` + include + `"sources":{` + strings.Join(sources, ",") + `},"select":` + g.object() + `}`
}

func (g *generator) path() string {
	p := "$." + g.pick(g.sources...)
	if len(g.bindings) > 0 && g.upTo(2) > 0 {
		p = "$" + g.pick(g.bindings...)
	}
	p += g.pick(
		"", ".ref", ".n", ".refs", ".lines", ".o", ".o.b.c", ".id", ".lines[0].n", ".lines[-1]", ".refs[1]",
		".lines[*].n", ".lines[*].tags[*]", "[*].lines[*].ref", ".o.$entries", ".lines.$entries", ".lines[*].$entries",
		".lines[*].tags[*].$entries", "[*].o.$entries", ".nowhere",
	)
	return p
}

func (g *generator) object() string {
	var members []string
	for i := range 1 + g.upTo(3) {
		members = append(members, fmt.Sprintf(`"m%d":%s`, i, g.template()))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func (g *generator) template() string {
	if g.depth++; g.depth > 3 {
		g.depth--
		return `"` + g.path() + `"`
	}
	defer func() { g.depth-- }()
	switch g.upTo(7) {
	case 0:
		return g.pick("1.50", "true", "null", `"word"`, "[]", "{}")
	case 1:
		return `["` + g.path() + g.pick("", "?") + `",` + g.template() + `]`
	case 2:
		return g.object()
	case 3:
		in, name := g.path(), fmt.Sprintf("e%d", len(g.bindings))
		g.bindings = append(g.bindings, name)
		to := g.template()
		g.bindings = g.bindings[:len(g.bindings)-1]
		return `{"$map":"` + in + `","as":"$` + name + `","to":` + to + `}`
	case 4:
		of := g.pick("", `,"select":"$.n"`, `,"select":{"x":"$.ref","y":["$.tags"]}`)
		return `{"$lookup":"` + g.path() + `","where":{"` + g.pick("ref", "n", "id") + `":` + g.pick(
			`"`+g.path()+`"`, "1", `"`+id(1)+`"`,
		) + `}` + of + `}`
	default:
		return `"` + g.path() + g.pick("", "?") + `"`
	}
}

// TestValuesAreWhatDefinitionsSay compares values with those of a naive evaluation, of random definitions and states,
// before and after something has changed: kept values are among them.
func TestValuesAreWhatDefinitionsSay(t *testing.T) {
	f := newFixture(t, "", projection.Options{})
	set := `{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}}`
	plain := `{"agent_types":["user"],"aggregate_types":{"a":` + set + `,"b":` + set + `,"c":` + set + `}`
	rapid.Check(t, func(rt *rapid.T) {
		g := &generator{T: rt}
		definition := g.definition()
		compiled := enginetest.Compiled(t, plain+`,"projections":{"p":`+definition+`}}`)
		f.Deploy(enginetest.Tenant, compiled, nil)
		parsed, err := value.ParseString(definition)
		if err != nil {
			t.Fatal(err)
		}
		n := &naive{
			singleton: compiled.IDs.IsSingleton,
			identifier: func(text string) (string, bool) {
				canonical, _, err := compiled.IDs.Check(text)
				return canonical, err == nil
			},
			state: func(typ, id string) value.Value {
				s, err := f.Load(t.Context(), enginetest.Tenant, typ, id, engine.LoadOptions{})
				if j17.CodeOf(err) == j17.CodeAggregateNotFound || s.Length == 0 {
					return value.Value{}
				}
				if err != nil {
					t.Fatal(err)
				}
				return s.Data
			},
		}
		for range 2 {
			for range 4 {
				f.make(t, g.pick("a", "b", "c"), g.pick(id(0), id(1), id(2), id(3), "global"), g.data())
			}
			for _, of := range []string{id(0), "global"} {
				ask := projection.Ask{Name: "p", ID: of}
				want, there := n.value(parsed, of)
				if !there {
					f.refused(t, ask, j17.CodeAggregateNotFound, "")
					continue
				}
				for _, ask.Synchronous = range []bool{false, false, true} {
					if got := string(f.view(t, ask).Data); got != want {
						rt.Fatalf("%s of %s: got\n%s, want\n%s", definition, of, got, want)
					}
				}
			}
		}
	})
}
