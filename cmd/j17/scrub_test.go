package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestScrubOfWorkers checks that a worker which does not answer is no success, and that damage tells more than that.
func TestScrubOfWorkers(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	const (
		whole   = `{"phase":"idle","environment":null,"pass":{"number":1},"damaged":[]}`
		damaged = `{"phase":"idle","environment":null,"pass":{"number":1},"damaged":[{"what":"table","where":"7.sst","error":"its checksum is wrong"}]}`
		silent  = `{"node":"b","scrub":null,"error":"the worker does not answer"}`
	)
	for _, tc := range []struct {
		name, nodes, said string
		want              int
	}{
		{"all are whole", `{"node":"a","scrub":` + whole + `}`, "", exitOK},
		{"one does not answer", `{"node":"a","scrub":` + whole + `},` + silent, "1 of 2 workers, which have not told: b", exitFailure},
		{"one is damaged", `{"node":"a","scrub":` + damaged + `},` + silent, "1 place in what the server stores is damaged", exitVerifyFails},
		{"two are damaged", `{"node":"a","scrub":` + damaged + `},{"node":"b","scrub":` + damaged + `}`, "2 places in what the server stores are damaged", exitVerifyFails},
	} {
		for _, flag := range []string{"", " --json"} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"ok":true,"scrub":%s,"nodes":[%s]}`, whole, tc.nodes)
			}))
			t.Cleanup(s.Close)
			var out strings.Builder
			args := strings.Fields("scrub status --url " + s.URL + flag)
			getenv := func(name string) string { return map[string]string{"J17_TOKEN": "a-token", "HOME": home}[name] }
			code := run(t.Context(), args, getenv, strings.NewReader(""), &out, &out)
			if code != tc.want || !strings.Contains(out.String(), tc.said) {
				t.Errorf("%s%s: exit code %d, %s", tc.name, flag, code, out.String())
			}
		}
	}
}
