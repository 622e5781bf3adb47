//go:build !race

package schema_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/schema"
)

// tooMuch checks that a value takes more than the work of a command, and is given up soon.
func tooMuch(t *testing.T, s *schema.Schema, v value.Value) {
	t.Helper()
	soon(t, func() {
		failures, err := s.Validate(v, work.New(t.Context(), work.Command))
		if j17.CodeOf(err) != j17.CodeWorkLimit || failures != nil {
			t.Errorf("%d failures, %v", len(failures), err)
		}
	})
}

// list is a list of n copies of a JSON text.
func list(n int, text string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(text+",", n), ",") + "]"
}

// each is a list of n JSON texts.
func each(n int, format string) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf(format, i)
	}
	return "[" + strings.Join(texts, ",") + "]"
}

// dear are schemas and values that make single keywords work as hard as they can.
func dear() map[string][2]string {
	long := "1" + strings.Repeat("0", 9998) + "1"
	text := `"` + strings.Repeat("a", 1<<20) + `"`
	wideText := `"` + strings.Repeat("é", 1<<19) + `"`
	refs := func(n int, keyword string) string {
		return `{"$defs": {"x": {` + keyword + `}}, "allOf": ` + list(n, `{"$ref": "#/$defs/x"}`) + `}`
	}
	items := func(n int, keyword string) string {
		return `{"$defs": {"x": {` + keyword + `}}, "items": {"allOf": ` + list(n, `{"$ref": "#/$defs/x"}`) + `}}`
	}
	names := func(n, length int) string {
		return "{" + strings.Trim(each(n, `"`+strings.Repeat("n", length)+`%d": 1`), "[]") + "}"
	}
	return map[string][2]string{
		"minimum":           {`{"items": {"allOf": ` + each(900, `{"minimum": %d.5}`) + `}}`, list(100, long)},
		"multipleOf":        {items(4900, `"multipleOf": 0.01`), list(100, long)},
		"long bounds":       {items(900, `"minimum": -`+strings.Repeat("9", 9999)), list(5000, "7")},
		"unlike scales":     {items(900, `"multipleOf": 0.000000000000000001, "minimum": 0.5`), list(20_000, "999999999999999999")},
		"integer":           {items(4900, `"type": "integer"`), list(100, long)},
		"exponents":         {items(900, `"minimum": -1e-400`), list(100_000, "1e400")},
		"minLength":         {refs(4900, `"minLength": 500000, "maxLength": 600000`), wideText},
		"format":            {refs(900, `"format": "uri-reference"`), text},
		"format regex":      {refs(300, `"format": "regex"`), `"` + strings.Repeat("[^w]a?", 34_000) + `"`},
		"format names":      {items(300, `"format": "idn-hostname"`), list(1000, `"`+strings.Repeat("・", 14)+`ひ"`)},
		"pattern":           {refs(900, `"pattern": "^[a-z]*$"`), text},
		"look-ahead":        {`{"items": {"pattern": "^(?:(?=(a+)+b)|a)"}}`, list(250, `"`+strings.Repeat("a", 19)+`"`)},
		"never ending":      {`{"pattern": "^(?=(a+)+$)"}`, `"` + strings.Repeat("a", 5000) + `!"`},
		"never ending, not": {`{"not": {"pattern": "^(?:(a|aa)+)\\1!!$"}}`, `"` + strings.Repeat("a", 5000) + `!"`},
		"many groups":       {`{"pattern": "` + strings.Repeat("()", 4000) + `\\1b"}`, text},
		"all threads":       {refs(40, `"pattern": "^(?:a?){900}a{900}$"`), `"` + strings.Repeat("a", 5000) + `"`},
		"large sets":        {refs(900, `"pattern": "^[\\p{L}]*$"`), wideText},
		"large sets, look":  {refs(900, `"pattern": "^(?=[\\p{L}]*$)"`), wideText},
		"uniqueItems":       {refs(4900, `"uniqueItems": true`), each(50_000, "%d")},
		"unique numbers":    {refs(4900, `"uniqueItems": true`), each(100, strings.Repeat("7", 9000)+"%d")},
		"unique pairs": {
			refs(4900, `"uniqueItems": true`),
			`[[` + list(20_000, "1") + `,1],[` + list(20_000, "1") + `,2],[` + list(20_000, "1") + `,3]]`,
		},
		"unique texts": {refs(4900, `"uniqueItems": true`), each(9, `"`+strings.Repeat("a", 1<<16)+`%d"`)},
		"enum": {
			refs(900, `"enum": `+each(7, `"`+strings.Repeat("a", 1<<16)+`%d"`)),
			`"` + strings.Repeat("a", 1<<16) + `9"`,
		},
		"enum of lists": {
			`{"items": {"enum": ` + each(1000, list(100, "1")[:200]+`,%d]`) + `}}`, list(2000, list(99, "1")),
		},
		"enum of numbers":   {`{"items": {"enum": ` + each(9000, "%d.5") + `}}`, list(100, long)},
		"const":             {`{"items": {"const": ` + long + `}}`, list(900, long[:9999]+"2")},
		"properties":        {refs(4900, `"properties": {"a": {}}`), names(2000, 500)},
		"required":          {refs(4000, `"required": `+each(3000, `"n%d"`)), names(3000, 1)},
		"dependentRequired": {refs(4000, `"dependentRequired": {"n0": `+each(1000, `"n%d"`)+`}`), names(1000, 1)},
		"patternProperties": {
			`{"patternProperties": {` + strings.Trim(each(400, `"a%d$": {}`), "[]") + `}}`, names(20_000, 3),
		},
		"propertyNames": {refs(4900, `"propertyNames": {"maxLength": 3000}`), names(1000, 1000)},
		"contains":      {refs(4900, `"contains": {"const": 0}, "minContains": 0, "maxContains": 1`), list(100_000, "1")},
		"oneOf":         {`{"items": {"oneOf": ` + each(4900, `{"const": %d}`) + `}}`, list(100_000, "9999")},
		"items":         {refs(4900, `"items": {}`), list(100_000, "1")},
	}
}

// TestContextIsLookedAt checks that a check ends with the request that it is made for.
func TestContextIsLookedAt(t *testing.T) {
	cases := dear()
	for _, name := range []string{"never ending", "minimum", "items"} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s, v := compile(t, cases[name][0]), parse(t, cases[name][1])
		if _, err := s.Validate(v, work.New(ctx, math.MaxInt64)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFewFailuresWhereTheBudgetIsShort checks that a value which is known not to fit is refused for that.
func TestFewFailuresWhereTheBudgetIsShort(t *testing.T) {
	s := compile(t, `{"items": {"type": "string"}}`)
	v := parse(t, list(20, "1"))
	all := validate(t, s, v)
	if len(all) != schema.MaxFailures {
		t.Fatalf("%d failures", len(all))
	}
	few, err := s.Validate(v, work.Counted(500))
	if err != nil || len(few) == 0 || len(few) >= len(all) || few[0] != all[0] {
		t.Errorf("%d failures, %v", len(few), err)
	}
	if none, err := s.Validate(v, work.Counted(10)); none != nil || j17.CodeOf(err) != j17.CodeWorkLimit {
		t.Errorf("%d failures, %v", len(none), err)
	}
}
