package httpapi_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"j17/internal/httpapi"
)

// TestAnswersOfAllReads asks for everything that can be read on each of the listeners: as it is, compressed, only for its head, and for the
// methods that there are. Each answer is held against what its document says of it.
func TestAnswersOfAllReads(t *testing.T) {
	a := administer(t)
	text := strings.Repeat("all work and no play ", 100) // enough to be compressed
	a.do(t, "POST", "/note/"+noteID+"/was_written", `{"data":{"text":"`+text+`"},`+actor+`}`).wants(t, http.StatusCreated)
	given, compressed := 0, 0
	for d := range httpapi.Sites() {
		for _, pattern := range a.reads(t, d) {
			host, token := "app.j17.example", a.key
			if d == httpapi.ControlDocument {
				host, token = "control.j17.example", a.admin
			} else if strings.HasPrefix(pattern, "/_admin/") {
				token = a.admin
			}
			for _, c := range []struct{ method, accept string }{{"GET", "identity"}, {"GET", "zstd"}, {"HEAD", "identity"}, {"OPTIONS", "identity"}} {
				if c.method == "GET" && strings.HasSuffix(pattern, "/stream") {
					continue // it has no end
				}
				var got answer
				if d == httpapi.InternalDocument {
					got = a.inside(t, c.method, a.target(pattern), "X-Node-Secret: "+a.registry.Secrets.NodeSecret())
				} else {
					got = a.do(t, c.method, a.target(pattern), "", "Host: "+host, "Authorization: Bearer "+token, "Accept-Encoding: "+c.accept)
				}
				if got.status < 300 {
					given++
				}
				if got.header.Get("Content-Encoding") == "zstd" {
					compressed++
				}
			}
		}
	}
	// What the fixture has no service for answers with an error, which is held against the document as well.
	if given < 150 || compressed < 5 {
		t.Errorf("%d requests got what they asked for, %d of them compressed", given, compressed)
	}
}

// TestAnswersToNodes asks for what nodes ask of each other.
func TestAnswersToNodes(t *testing.T) {
	for _, cluster := range []*httpapi.Cluster{{}, {Node: "n"}} {
		a := administer(t)
		a.Cluster = cluster
		secret := "X-Node-Secret: " + a.registry.Secrets.NodeSecret()
		for _, pattern := range a.reads(t, httpapi.InternalDocument) {
			if !strings.HasPrefix(pattern, "/internal/control/") {
				continue // they are there without nodes
			}
			for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
				if got := a.inside(t, method, a.target(pattern), secret); got.status == http.StatusUnauthorized || got.status == http.StatusForbidden {
					t.Errorf("%s %s: %d %s", method, pattern, got.status, got.body)
				}
			}
		}
	}
}

// reads lists the patterns of what can be read as one of the documents has it.
func (f *fixture) reads(tb testing.TB, d httpapi.Document) (patterns []string) {
	tb.Helper()
	rows, _ := f.Described(d)
	for _, row := range rows {
		if pattern, ok := strings.CutPrefix(row, "GET "); ok {
			patterns = append(patterns, pattern)
		}
	}
	if len(patterns) < 10 {
		tb.Fatalf("document %d has %v", d, patterns)
	}
	return patterns
}

// target is a path of a pattern: of the fixture's instance, and of a note.
func (f *fixture) target(pattern string) string {
	return regexp.MustCompile(`\{[^}]*\}`).ReplaceAllStringFunc(pattern, func(name string) string {
		switch {
		case name == "{$}":
			return ""
		case strings.HasPrefix(name, "{instance"), name == "{id}" && strings.HasPrefix(pattern, "/api/instances/"):
			return f.instance.ID
		case strings.HasPrefix(name, "{env"):
			return "prod"
		case name == "{type}":
			return "note"
		default:
			return noteID
		}
	})
}
