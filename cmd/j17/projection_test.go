package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDeployedProjectionsAfterTheWait: what --json says of a definition whose index takes a while has all that it says
// of any other, and places of the file.
func TestDeployedProjectionsAfterTheWait(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	file := filepath.Join(home, "colors.json")
	const definition = `{"name":"colors","for_each":"note","sources":{"n":"$key"},
  "select":{"color":"n.color"},"index":["color"]}`
	if err := os.WriteFile(file, []byte("{\n  \"projection\": "+definition+"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const shown = `{"ok":true,"name":"colors","origin":"admin","status":"building","projection":{},"rows":0,"position":"0","lag":0,"build":{"status":"%s","done":0,"total":1}%s}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api/instances":
			_, _ = fmt.Fprint(w, `{"ok":true,"instances":[{"id":"app","name":"app"}],"next":null}`)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, shown, "running", `,"created":true,"warnings":[{"pointer":"/name","message":"one","line":1,"column":9},{"pointer":"/select/color","message":"<two>","line":2,"column":21}]`)
		default:
			_, _ = fmt.Fprintf(w, shown, "done", "")
		}
	}))
	t.Cleanup(s.Close)
	var out, said strings.Builder
	getenv := func(name string) string { return map[string]string{"J17_TOKEN": "a-token", "HOME": home}[name] }
	code := run(
		t.Context(), []string{"projection", "deploy", file, "--json", "--url", s.URL}, getenv, strings.NewReader(""),
		&out, &said,
	)
	const want = `"build":{"status":"done","done":0,"total":1},"created":true,"warnings":[{"pointer":"/name","message":"one","line":2,"column":25},{"pointer":"/select/color","message":"<two>","line":3,"column":21}]}` + "\n"
	if code != exitOK || !strings.HasSuffix(out.String(), want) {
		t.Errorf("exit code %d: %s%s", code, out.String(), said.String())
	}
}
