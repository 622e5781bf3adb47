//go:build !race

package jsonpath_test

import (
	"testing"

	"j17/internal/lang/jsonpath"
)

func TestCalculationsAreRecognised(t *testing.T) {
	for text, want := range map[string]string{
		"@.n - 1":                                 `{"$subtract": ["@.n", 1]}`,
		"$.data.n * 2":                            `{"$multiply": ["$.data.n", 2]}`,
		"$.state.n+$.data.n":                      `{"$add": ["$.state.n", "$.data.n"]}`,
		"$.data.a-$.data.b":                       `{"$subtract": ["$.data.a", "$.data.b"]}`,
		"$.data.a / $.data.b":                     `{"$divide": ["$.data.a", "$.data.b"]}`,
		"$.data.a + $.data.b + 3":                 `{"$add": ["$.data.a", "$.data.b", 3]}`,
		"$.data.a - $.data.b - 3":                 `{"$subtract": [{"$subtract": ["$.data.a", "$.data.b"]}, 3]}`,
		"$.data.a + $.data.b * 2":                 `{"$add": ["$.data.a", {"$multiply": ["$.data.b", 2]}]}`,
		"($.data.a + $.data.b) * 2":               `{"$multiply": [{"$add": ["$.data.a", "$.data.b"]}, 2]}`,
		"2 * $item.qty":                           `{"$multiply": [2, "$item.qty"]}`,
		"data.n + 1":                              `{"$add": ["$.data.n", 1]}`,
		"state.total - data.by":                   `{"$subtract": ["$.state.total", "$.data.by"]}`,
		"$.metadata.timestamp+60":                 `{"$add": ["$.metadata.timestamp", 60]}`,
		"$.data.first name + 1":                   `{"$add": ["$.data.first name", 1]}`,
		"$.data.price * qty":                      `{"$multiply": ["$.data.price", "qty"]}`,
		"-$.data.n * 2":                           `{"$multiply": [{"$negate": "$.data.n"}, 2]}`,
		"$.data.lines[0].qty * 2":                 `{"$multiply": ["$.data.lines[0].qty", 2]}`,
		"$.data.by > 0":                           `{"gt": ["$.data.by", 0]}`,
		"$.data.by>=@.n":                          `{"gte": ["$.data.by", "@.n"]}`,
		"$.data.by == $.data.of && $.data.a != 1": `{"and": [{"equals": ["$.data.by", "$.data.of"]}, {"not_equals": ["$.data.a", 1]}]}`,
		"$.data.status == 'open'":                 `{"equals": ["$.data.status", "open"]}`,
		`$.data.status!="a b"`:                    `{"not_equals": ["$.data.status", "a b"]}`,
		"$.data.n % 2":                            "",
		"$.data.a && $.data.b":                    "",
		"$.data.n * -1":                           `{"$multiply": ["$.data.n", -1]}`,
		"@ - 1":                                   `{"$subtract": ["@", 1]}`,
		"$.orders[*].n + 1":                       `{"$add": ["$.orders[*].n", 1]}`,
		"(((((((($.data.n + 1))))))))":            `{"$add": ["$.data.n", 1]}`,
		"$.data.n + 1.50":                         `{"$add": ["$.data.n", 1.50]}`,
		"$.data.subject-id + 1":                   `{"$add": ["$.data.subject-id", 1]}`,
	} {
		got, ok := jsonpath.Calculate(text)
		if !ok || got.Instead != want {
			t.Errorf("%q is %q, %v; want %q", text, got.Instead, ok, want)
		}
	}
}

func TestOtherTextsAreNoCalculations(t *testing.T) {
	for _, text := range []string{
		"", "note", "a.b", "e.g. this", "example.org", "data entry", "1 + 2", "$.data.n", "$.data.member-id",
		"$.data.a-1", "$.data.c++",
		"$.data.application/json", "$.data.image/svg+xml", "$.data.a+b", "$.data.R & D", "data.csv",
		"data.csv - the export", "a - b",
		"we are open - data.x", "5 - $3.20 = 1", "2026-11-22", "1/2", "C++", "@home - @work", "$.data.n +",
		"+ $.data.n", "@", "$",
		"hello@example.org", "x > y", "=> $.data.n", "$.data.n 2", "($.data.n", "((((((((($.data.n + 1)))))))))",
		"data. + 1",
		"the total is $.data.n - 1", "01 + $.data.n", "$.data.n == 'open", "'a' + 'b'", "1. + $.data.n",
		"http://example.org/?a=$.data.n",
	} {
		if got, ok := jsonpath.Calculate(text); ok {
			t.Errorf("%q is taken for %q", text, got.Instead)
		}
	}
}
