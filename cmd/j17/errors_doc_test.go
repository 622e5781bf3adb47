package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"j17"
	"j17/internal/edge/httpapi"
)

// TestEveryErrorIsDocumented compares docs/reference/errors.md with the codes there are: each has one row, with the
// status that the API answers with, and there are no other rows.
func TestEveryErrorIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, found := strings.Cut(string(page), "\n## Codes\n")
	if !found {
		t.Fatal("the page has no section of codes")
	}
	row := regexp.MustCompile("(?m)^\\| `([^`|]+)` \\|([^|\n]*)\\| *([^|\n]*)\\| *([^|\n]*)\\|$")
	documented := map[j17.Code]string{}
	for _, m := range row.FindAllStringSubmatch(tables, -1) {
		code := j17.Code(m[1])
		if _, twice := documented[code]; twice {
			t.Errorf("%s has more than one row", code)
		}
		if m[3] == "" || m[4] == "" {
			t.Errorf("%s: its row does not say when it happens and what to do", code)
		}
		documented[code] = strings.TrimSpace(m[2])
	}
	for _, code := range j17.Codes() {
		status, ok := documented[code]
		delete(documented, code)
		switch want := strconv.Itoa(httpapi.StatusOf(code)); {
		case !ok:
			t.Errorf("%s has no row with a status, a cause and a remedy", code)
		case status != want:
			t.Errorf("%s is documented with the status %s, but the API answers with %s", code, status, want)
		}
	}
	for code := range documented {
		t.Errorf("%s has a row, but there is no such code", code)
	}
}
