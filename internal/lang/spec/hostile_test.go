//go:build !race

package spec_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"j17/internal/base/work/worktest"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
)

// filled joins what f makes of 0, 1 and so on until the text is nearly as long as most.
func filled(most int, f func(i int) string) string {
	var b strings.Builder
	for i := 0; b.Len() < most-200; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(f(i))
	}
	return b.String()
}

// event returns a spec with one event type.
func event(schema, handler, implications string) string {
	return `{"agent_types": ["u"], "aggregate_types": {"t": {"events": {"e": {"schema": ` + schema + `, "handler": [` + handler +
		`], "implications": [` + implications + `]}, "f": {"schema": {"type": "object"}, "handler": []}}}}}`
}

// types returns a spec with these event types.
func types(events string) string {
	return `{"agent_types":["u"],"aggregate_types":{"t":{"events":{` + events + `}}}}`
}

// views returns a spec with these projections.
func views(projections string) string {
	return `{"agent_types":["u"],"aggregate_types":{"t":{"events":{"e":{"schema":{},"handler":[]}}}},"projections":{` + projections + `}}`
}

// hostileSpecs returns specs as large as they may be, or one in so many parts of that.
func hostileSpecs(oneIn int) map[string]string {
	whole, many := (spec.MaxSize-4096)/oneIn, 9000/oneIn
	halfSize := whole / 2
	long := strings.Repeat("k", halfSize)
	names := func(n int, each func(i int) string) string {
		var all []string
		for i := range n {
			all = append(all, each(i))
		}
		return strings.Join(all, ",")
	}
	quoted := func(i int) string { return fmt.Sprintf(`"member%07d"`, i) }
	property := func(i int) string { return fmt.Sprintf(`"member%07d":{}`, i) }
	either := `{"allOf":[` + names(8, func(i int) string {
		return fmt.Sprintf(`{"anyOf":[{"properties":{"y%d":{}}},{"properties":{"z%d":{}}}]}`, i, i)
	}) + `]}`
	const emit = `"emit": {"aggregate_type": "t", "id": "$.key", "event_type": "f"`
	return map[string]string{
		"a long name around many": `{"agent_types": ["u"], "aggregate_types": {"` + long + `": {"events": {` +
			names(many, func(i int) string { return fmt.Sprintf(`"e%d":{}`, i) }) + `}}}}`,
		"a long property around many": event(
			`{"properties":{"`+long+`":{"properties":{`+names(many, property)+`}}}}`, "", "",
		),
		"long names in each other": event(strings.Repeat(
			`{"properties":{"`+strings.Repeat("k", many)+`":`, 50,
		)+`{"enum":[`+filled(halfSize, quoted)+`]}`+strings.Repeat("}}", 50), "", ""),
		"a template with a long name": event(
			`{}`, "", `{`+emit+`,"data":{"`+long+`":[`+filled(halfSize, func(int) string { return `"$.x"` })+`]}}}`,
		),
		"wrong references": event(`{"$defs":{`+names(many, property)+`},"allOf":[`+filled(
			halfSize/100, func(i int) string { return fmt.Sprintf(`{"$ref":"#/$defs/membor%07d"}`, i) },
		)+`]}`, "", ""),
		"definitions that all reach": `{"agent_types":["u"],"$defs":{` + names(many, func(i int) string {
			return fmt.Sprintf(`"d%d":{"properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}}}`, i, (i+1)%min(many, 1000), (i*7)%min(many, 1000))
		}) + `},"aggregate_types":{"t":{"events":{` + names(1000, func(i int) string {
			return fmt.Sprintf(`"e%d":{"schema":{"properties":{"x":{"$ref":"#/$defs/d%d"}}},"handler":[{"set":{"target":"x","value":"$.data.x.a.b.a.c"}}]}`, i, i%min(many, 1000))
		}) + `}}}}`,
		"definitions in a chain": `{"agent_types":["u"],"$defs":{` + names(min(many, 999), func(i int) string {
			return fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"required":["x"]},{"additionalProperties":false}]}`, i, i+1)
		}) + fmt.Sprintf(`,"d%d":{}`, min(many, 999)) + `},"aggregate_types":{"t":{"events":{` + names(1000,
			func(i int) string {
				return fmt.Sprintf(`"e%d":{"schema":{"$ref":"#/$defs/d%d"},"handler":[]}`, i, i%min(many, 999))
			}) + `}}}}`,
		"unknown keywords": event(
			`{`+filled(whole, func(i int) string { return fmt.Sprintf(`"typ%d":1`, i) })+`}`, "", "",
		),
		"unknown keys": `{` + filled(
			whole, func(i int) string { return fmt.Sprintf(`"aggregate_typos%d":1`, i) },
		) + `}`,
		"emits to nowhere": `{"agent_types": ["u"], "aggregate_types": {` + names(many/10, func(i int) string {
			return fmt.Sprintf(`"%s%d":{"events":{"e":{"schema":{},"handler":[]}}}`, strings.Repeat("x", 50), i)
		}) + `,"t":{"events":{` + filled(halfSize, func(i int) string {
			return fmt.Sprintf(`"e%d":{"schema":{},"handler":[],"implications":[{"emit":{"aggregate_type":"%sy","id":"$.key","event_type":"e"}}]}`, i, strings.Repeat("x", 51))
		}) + `}}}}`,
		"paths into a large schema": event(
			`{"properties":{`+names(many, property)+`},"additionalProperties":false}`, `{"set":{"target":"x","value":[`+
				filled(halfSize, func(i int) string { return fmt.Sprintf(`"$.data.mumber%d"`, i) })+`]}}`, "",
		),
		"large schemas written often": event(`{"properties":{`+names(many, property)+`},"additionalProperties":false}`,
			names(99, func(i int) string {
				return fmt.Sprintf(`{"set":{"target":"x%d","value":[0]}},{"set":{"target":"y%d","value":"$.data"}}`, i, i)
			}), ""),
		"names after a transformation": event(`{}`, "", `{"pipeline":[{"wasm":{"blob_name":"x.wasm","mode":"transform"}},{"condition":{"or":[`+filled(whole, func(i int) string { return fmt.Sprintf(`{"exists":"$.n%d"}`, i) })+`]},`+emit+`}}]}`),
		"geo types of many events": `{"agent_types":["u"],"geo_types":{` + names(
			many/9, func(i int) string { return fmt.Sprintf(`"g%d":{"type":"point"}`, i) },
		) + `},"aggregate_types":{"t":{"events":{` +
			names(many, func(i int) string {
				return fmt.Sprintf(`"e%d":{"schema":{},"handler":[],"geo":{"type":"h%d","path":"$.data.x"}}`, i, i)
			}) + `}}}}`,
		"emits against a long list": `{"agent_types":["u"],"aggregate_types":{"a":{"events":{"f":{"schema":{"required":[` + filled(halfSize, quoted) + `]},"handler":[]}}},"t":{"events":{` +
			names(many, func(i int) string {
				return fmt.Sprintf(`"e%d":{"schema":{},"handler":[],"implications":[{"emit":{"aggregate_type":"a","id":"$.key","event_type":"f"}}]}`, i)
			}) + `}}}}`,
		"emits against many choices": `{"agent_types":["u"],"aggregate_types":{"a":{"events":{"f":{"schema":{"enum":[` + filled(halfSize, quoted) + `]},"handler":[]}}},"t":{"events":{` +
			names(many, func(i int) string {
				return fmt.Sprintf(`"e%d":{"schema":{},"handler":[],"implications":[{"emit":{"aggregate_type":"a","id":"$.key","event_type":"f","data":"x"}}]}`, i)
			}) + `}}}}`,
		"emits against alternatives": types(`"f":{"schema":{"type":"object","properties":{` + names(50, func(i int) string { return fmt.Sprintf(`"p%d":%s`, i, either) }) + `}},"handler":[]},` +
			names(40/oneIn, func(i int) string {
				emits := names(99, func(int) string {
					return `{"emit":{"aggregate_type":"t","id":"global","event_type":"f","data":{` + names(50, func(i int) string { return fmt.Sprintf(`"p%d":{"q":1}`, i) }) + `}}}`
				})
				return fmt.Sprintf(`"e%d":{"schema":{},"handler":[],"implications":[%s]}`, i, emits)
			})),
		"paths through alternatives": event(
			`{"type":"object","properties":{"a":`+either+`}}`,
			`{"set":{"target":"x","value":[`+filled(whole, func(int) string { return `"$.data.a.b"` })+`]}}`, "",
		),
		"calculations": event(`{}`, `{"set":{"target":"x","value":[`+filled(
			whole, func(int) string { return `"$.data.a` + strings.Repeat(" +", 100) + ` 1"` },
		)+`]}}`, ""),
		"schemas that hold together": event(`{"$defs":{"all":{"allOf":[`+names(2000, func(int) string { return `{"required":["a"],"additionalProperties":false}` })+`]},`+
			names(2000, func(i int) string { return fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/all"}]}`, i) })+`}}`, "", ""),
		"targets": event(`{}`, names(99, func(i int) string {
			return `{"increment":{"target":"` + strings.Repeat("a.", 300) + fmt.Sprint(i) + `","by":1}}`
		}), ""),
		"texts": event(
			`{}`, `{"set":{"target":"x","value":[`+filled(whole, func(int) string { return `"data.x"` })+`]}}`, "",
		),
		"nested": event(`{}`, `{"set":{"target":"x","value":`+strings.Repeat("[", 100)+filled(
			whole, func(int) string { return `[[[[[]]]]]` },
		)+strings.Repeat("]", 100)+`}}`, ""),
		"a chain of events": `{"agent_types":["u"],"aggregate_types":{"t":{"events":{` +
			names(many, func(i int) string {
				return fmt.Sprintf(`"e%d":{"schema":{},"handler":[],"implications":[{"emit":{"aggregate_type":"t","id":"$.key","event_type":"e%d"}},{"emit":{"aggregate_type":"t","id":"$.key","event_type":"e%d"}}]}`, i, (i+1)%many, i/2)
			}) + `}}}}`,
		"projections with indexes of everything": views(names(900/oneIn, func(i int) string {
			deep := strings.Repeat(`{"a":`, 20) + `[` + strings.Repeat(`"$.t.x",`, 380) + `1]` + strings.Repeat("}", 20)
			fields := names(20, func(i int) string { return `"` + strings.Repeat("a.", i) + `a"` })
			return fmt.Sprintf(`"p%d":{"for_each":"t","sources":{"t":"$key"},"select":%s,"index":[%s]}`, i, deep, fields)
		})),
		"projections with singletons": `{"singletons":[` + names(
			999, func(i int) string { return fmt.Sprintf(`"%s%d"`, strings.Repeat("s", 55), i) },
		) + `],` +
			views(names(900/oneIn, func(i int) string {
				return fmt.Sprintf(`"p%d":{"for_each":"t","sources":{"t":"$key"},"select":{"a":"$.t.a"},"index":["a"]}`, i)
			}))[1:],
		"projections with wrong fields": views(names(900/oneIn, func(i int) string {
			return fmt.Sprintf(`"p%d":{"for_each":"t","sources":{"t":"$key"},"select":{%s},"index":[%s]}`, i,
				names(150, func(i int) string { return fmt.Sprintf(`"member%07d":1`, i) }),
				names(20, func(i int) string { return fmt.Sprintf(`"membor%07d"`, i) }))
		})),
		"a large selection": views(`"p":{"for_each":"t","sources":{"t":"$key"},"select":{"a":[` + filled(whole, func(int) string { return `"$.t.x"` }) + `]}}`),
		"nested forms": views(names(900/oneIn, func(i int) string {
			return fmt.Sprintf(`"p%d":{"for_each":"t","sources":{"t":"$key"},"select":{"a":%s1%s}}`, i,
				strings.Repeat(`{"$map":"$.t.x","as":"$m","to":`, 120), strings.Repeat("}", 120))
		})),
		"sets of every event": types(names(many, func(i int) string {
			of := names(5, func(j int) string { return fmt.Sprintf(`"set%d":{"value":["$.data.a","$.data.b"]}`, 5*i+j) })
			return fmt.Sprintf(`"e%d":{"schema":{},"handler":[],"unique":{%s},"releases":["sat%d"]}`, i, of, i)
		})),
		"releases of what nothing takes": types(names(many, func(i int) string {
			return fmt.Sprintf(`"e%d":{"schema":{},"handler":[],"unique":{"set%d":{"value":1}},"releases":[%s]}`, i, i%20, names(20, func(j int) string { return fmt.Sprintf(`"sat%d"`, j) }))
		})),
		"tags of every event": types(names(many, func(i int) string {
			return fmt.Sprintf(`"e%d":{"schema":{},"handler":[],"tags":{%s}}`, i, names(10, func(j int) string { return fmt.Sprintf(`"tag%d":"$.data.a"`, j) }))
		})),
		"reads with long names": types(`"e":{"schema":{},"handler":[],"reads":{` + names(8, func(i int) string {
			return `"` + long[:halfSize/10] + fmt.Sprint(i) + `":{"aggregate_type":"t","id":"global"}`
		}) +
			`},"requires":[{"message":"m","that":{"or":[` + filled(halfSize, func(i int) string { return fmt.Sprintf(`{"exists":"$.reads.n%d"}`, i) }) + `]}}]}`),
		"too many reads": types(`"e":{"schema":{},"handler":[],"reads":{` + filled(halfSize, func(i int) string { return fmt.Sprintf(`"r%d":{"aggregate_type":"t","id":"global"}`, i) }) +
			`},"requires":[{"message":"m","that":{"or":[` + filled(halfSize, func(i int) string { return fmt.Sprintf(`{"exists":"$.reads.r%d"}`, i) }) + `]}}]}`),
		"guards of a large state": types(`"e":{"schema":{},"handler":{"set":{"target":"","value":{` + filled(halfSize/8, property) + `}}},"reads":{"r":{"aggregate_type":"t","id":"global"}},"requires":[` +
			names(19, func(int) string {
				return `{"message":{"concat":["$.reads.r.mumber1"]},"that":{"or":[` + filled(halfSize/80, func(i int) string { return fmt.Sprintf(`{"exists":"$.state.mumber%d"}`, i) }) + `]}}`
			}) + `]}`),
		"comments": strings.Repeat("//\n", whole/3),
	}
}

// No spec keeps a processor busy for long, whatever it holds. The slowest takes about a second on a machine that does
// nothing else. Specs of half the size show what costs too much as well.
func TestHostileSpecsAreBounded(t *testing.T) {
	most, oneIn := 4*time.Second, 2
	if os.Getenv("J17_SOAK") != "" {
		oneIn = 1
	}
	for name, src := range hostileSpecs(oneIn) {
		t.Run(name, func(t *testing.T) {
			if len(src) > spec.MaxSize {
				t.Fatalf("the spec has %d bytes", len(src))
			}
			before := worktest.ProcessorTime(t)
			c, found := lint.Compile([]byte(src))
			used := worktest.Since(t, before)
			t.Logf("%v, compiled %t, %d findings, such as %.100s", used, c != nil, len(found), append(found, diag.Diagnostic{})[0].Message)
			if used > most {
				t.Errorf("compiling took %v of processor time", used)
			}
		})
	}
}

// Comparing with the spec before is bounded too.
func TestHostileComparisonsAreBounded(t *testing.T) {
	list := func(n int, each string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(each, i))
		}
		return strings.Join(all, ",")
	}
	events := func(letter string) string {
		return `{"agent_types": ["u"], "aggregate_types": {"t": {"events": {` +
			list(9000, `"`+strings.Repeat(letter, 40)+`%d":{"schema":{},"handler":[]}`) + `}}}}`
	}
	const most = 4 * time.Second
	for name, pair := range map[string][2]string{
		"all renamed": {events("x"), events("y")},
		"large choices": {
			event(`{"enum":[`+list(60_000, `"a%d"`)+`]}`, "", ""),
			event(`{"enum":[`+list(60_000, `"b%d"`)+`]}`, "", ""),
		},
		"long requirements": {
			event(`{"anyOf":[`+list(200, `{"required":["x%d",`+list(500, `"r%d"`)+`]}`)+`]}`, "", ""),
			event(`{"anyOf":[`+list(200, `{"required":["y%d",`+list(500, `"s%d"`)+`]}`)+`]}`, "", ""),
		},
		"many alternatives": {event(`{"anyOf":[`+list(250, `{"properties":{"x%d":{"type":"string"}}}`)+`]}`, "", ""), event(`{"anyOf":[`+list(250, `{"properties":{"x%d":{"type":"number"}}}`)+`]}`, "", "")},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := compile(t, []byte(pair[0])), compile(t, []byte(pair[1]))
			before := worktest.ProcessorTime(t)
			found := compare.Compatibility(was, is)
			used := worktest.Since(t, before)
			t.Logf("%v, %d findings, such as %.100s", used, len(found), append(found, diag.Diagnostic{})[0].Message)
			if used > most {
				t.Errorf("comparing took %v of processor time", used)
			}
		})
	}
}
