package tick

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema/format"
)

// textsOf returns texts that a format lets through, in all the spellings that it has.
func textsOf() map[string][]string {
	return map[string][]string{
		"date": {"2024-02-29", "0000-01-03", "9999-11-01"},
		"time": {"08:30:00Z", "08:30:00.5+02:00", "23:59:60z"},
		"date-time": {
			"2024-02-29T08:30:00Z", "2024-02-29t08:30:00z", "2024-02-29T08:30:00.123456789012345678901234567890+23:59", "2024-02-29t08:30:00-23:59", "0000-01-03T00:00:00Z",
			"9999-11-01T00:00:00Z", "1998-12-31T23:59:60Z", "1998-12-31t15:59:60.25-08:00", "2017-01-01T00:59:60+01:00",
			"2024-02-29T08:30:00-00:00",
		},
		"duration":              {"P1Y2M3DT4H5M6S", "P4W", "PT0S", "P1M", "PT36H", "P0D", "P00000000000000000000003D"},
		"email":                 {"ada@example.com", `"a b"@example.com`},
		"idn-email":             {"bücher@bücher.example"},
		"hostname":              {"api.example.com"},
		"idn-hostname":          {"bücher.example"},
		"ipv4":                  {"192.0.2.1"},
		"ipv6":                  {"2001:db8::1", "::ffff:192.0.2.1"},
		"uri":                   {"https://example.com/path?query#part"},
		"uri-reference":         {"/path?query", ""},
		"iri":                   {"https://example.com/größe"},
		"iri-reference":         {"/größe"},
		"uri-template":          {"/orders/{id}"},
		"uuid":                  {"7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05", "7C0F6A38-91B2-4D6E-8F57-2B4E1A9C3D05"},
		"json-pointer":          {"/a/0/b~1c", ""},
		"relative-json-pointer": {"1/a", "0#"},
		"regex":                 {"^[a-z]+$"},
	}
}

// TestEveryFormatComputes tries the texts of every format with every operator that takes them: what a schema lets in is
// never passed over in silence because it is spelt in another way than most.
func TestEveryFormatComputes(t *testing.T) {
	const text, period = `"$.data.t"`, `"1d"`
	all := []string{"*"}
	forms := map[string]struct {
		src     string
		formats []string
	}{
		"$": {`{"$": ` + text + `}`, all}, "$coalesce": {`{"$coalesce": [` + text + `]}`, all},
		"$concat": {`{"$concat": [` + text + `, "!"]}`, all},
		"$if":     {`{"$if": {"gte": [` + text + `, ` + text + `]}, "then": ` + text + `}`, all},
		"$lower":  {`{"$lower": ` + text + `}`, all}, "$upper": {`{"$upper": ` + text + `}`, all},
		"$trim":  {`{"$trim": ` + text + `}`, all},
		"$split": {`{"$split": ` + text + `, "by": ":"}`, all}, "$join": {`{"$join": [` + text + `], "by": ""}`, all},
		"$case":  {`{"$case": ` + text + `, "of": [[` + text + `, ` + text + `]]}`, all},
		"$slice": {`{"$slice": ` + text + `, "from": 0}`, all}, "$min": {`{"$min": [` + text + `]}`, all},
		"$max":        {`{"$max": [` + text + `, ` + text + `]}`, all},
		"$date_trunc": {`{"$date_trunc": ` + text + `, "to": "week"}`, []string{"date", "date-time"}},
		// The time, and the duration.
		"$add_duration": {
			`[{"$add_duration": [` + text + `, ` + period + `]}, {"$add_duration": [` + text + `, "P1M"]}]`,
			[]string{"date", "date-time"},
		},
		"duration": {`{"$add_duration": ["2024-01-31T09:30:00Z", ` + text + `]}`, []string{"duration"}},
	}
	none := []string{
		"$literal", "$merge", "$add", "$subtract", "$multiply", "$divide", "$round", "$negate", "$abs", "$sum",
		"$count", "$now", "$number",
	}
	for _, name := range operatorNames() {
		o, ok := operatorNamed(name)
		if !ok {
			t.Errorf("%s is listed, and has no row", name)
			continue
		}
		if _, ok := forms[o.name]; o.in == everywhere && ok == slices.Contains(none, o.name) {
			t.Errorf("%s takes texts: %t", o.name, ok)
		}
	}
	samples := textsOf()
	for _, name := range format.Names() {
		f, _ := format.Lookup(name)
		texts := samples[name]
		if len(texts) == 0 {
			t.Errorf("no text of the format %s is tried", name)
		}
		for _, s := range texts {
			if !f.Valid(s) {
				t.Errorf("%q is no %s", s, name)
			}
			for operator, form := range forms {
				if !slices.Contains(form.formats, name) && form.formats[0] != "*" {
					continue
				}
				v, err := value.ParseString(form.src)
				if err != nil {
					t.Fatal(err)
				}
				var l diag.List
				template := CompileTemplate(v, "", Scope{Members: []string{"data"}}, &l)
				if template == nil {
					t.Fatal(form.src, l.All())
				}
				e := NewEnv(work.Counted(work.Command))
				e.Renew(&Event{Data: Parsed(value.ObjectValue(value.Member{Key: "t", Value: value.StringValue(s)}))})
				if got, ok, err := template.Eval(e, 1<<20); !ok || err != nil ||
					strings.Contains(fmt.Sprint(got), "null") {
					t.Errorf("%s of the %s %q is %s: %v", operator, name, s, got, err)
				}
			}
		}
	}
}
