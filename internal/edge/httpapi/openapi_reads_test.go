//go:build !race

package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	shapes "j17/internal/base/wire"
	"j17/internal/edge/httpapi"
)

// TestAnswersOfAllReads asks for everything that can be read on each of the listeners: as it is, compressed, only for
// its head, and for the methods that there are. Each answer is held against what its document says of it.
func TestAnswersOfAllReads(t *testing.T) {
	a := administer(t)
	text := strings.Repeat("all work and no play ", 100) // enough to be compressed
	a.do(t, "POST", "/note/"+noteID+"/was_written", `{"data":{"text":"`+text+`"},`+actor+`}`).wants(
		t, http.StatusCreated,
	)
	given, compressed := 0, 0
	for d := range httpapi.Sites() {
		for _, pattern := range a.reads(t, d) {
			host, token := "app.j17.example", a.key
			if d == httpapi.ControlDocument {
				host, token = "control.j17.example", a.admin
			} else if strings.HasPrefix(pattern, "/_admin/") {
				token = a.admin
			}
			for _, c := range []struct{ method, accept string }{
				{"GET", "identity"}, {"GET", "zstd"}, {"HEAD", "identity"}, {"OPTIONS", "identity"},
			} {
				if c.method == "GET" && strings.HasSuffix(pattern, "/stream") {
					continue // it has no end
				}
				var got answer
				if d == httpapi.InternalDocument {
					got = a.inside(t, c.method, a.target(pattern), "X-Node-Secret: "+a.registry.Secrets.NodeSecret())
				} else {
					got = a.do(
						t, c.method, a.target(pattern), "", "Host: "+host, "Authorization: Bearer "+token,
						"Accept-Encoding: "+c.accept,
					)
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

// TestMoreThatSucceeds asks for what other tests have no reason to ask for. Each answer is held against what its
// document says of it.
func TestMoreThatSucceeds(t *testing.T) {
	a := administer(t)
	event := `"data":{"text":"x"},` + actor
	id := a.do(t, "POST", "/note/_new/was_written", "{"+event+"}")
	id.wants(t, 201)
	a.do(t, "POST", "/note/_new", `{"events":[{"type":"was_written","data":{"text":"x"}}],`+actor+`}`).wants(t, 201)
	a.do(t, "POST", "/note/_new/was_written?dry_run=true", "{"+event+"}").wants(t, 200)
	a.do(t, "POST", "/note/_new?dry_run=true", `{"events":[{"type":"was_written","data":{"text":"x"}}],`+actor+`}`).wants(t, 200)

	// Proofs, by those who administer.
	a.do(t, "POST", proven+"/was_written", "{"+event+"}").wants(t, 201)
	of := strings.TrimPrefix(proven, "/")
	given := a.ops(t, "GET", "audit/merkle-proof/"+of+"/0", "")
	given.wants(t, 200)
	p := decoded[shapes.InclusionProof](t, given, 200)
	check, err := json.Marshal(map[string]any{
		"leaf_hash": p.LeafHash, "index": p.Index, "size": p.Size, "proof": p.Proof, "root": p.Root,
	})
	if err != nil {
		t.Fatal(err)
	}
	a.ops(t, "POST", "audit/merkle-verify", string(check)).wants(t, 200, `"valid":true`)

	// The specs of an environment, and a tombstone that is cancelled.
	a.control(t, "POST", "/spec?environment=staging", ordersSpec("")).wants(t, 201)
	a.staging(t, "GET", "spec/versions/1", "").wants(t, 200)
	a.staging(t, "GET", "spec/diff?from=1&to=1", "").wants(t, 200)
	made := decoded[shapes.TombstoneShown](t, a.ops(t, "POST", "tombstone/"+of, "{}"), 201)
	a.ops(t, "DELETE", "tombstones/"+made.Tombstone.ID, "").wants(t, 200, `"cancelled"`)

	// Who operates the server.
	var who string
	for _, op := range a.registry.Operators.All() {
		who = op.ID
	}
	a.ask(t, a.admin, "GET", "control.j17.example", "/api/operators/"+who, "").wants(t, 200)
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
				if got := a.inside(t, method, a.target(pattern), secret); got.status == http.StatusUnauthorized ||
					got.status == http.StatusForbidden {
					t.Errorf("%s %s: %d %s", method, pattern, got.status, got.body)
				}
			}
		}
	}
}

// TestOtherAnswersBreakThePromise changes an answer that is as described.
func TestOtherAnswersBreakThePromise(t *testing.T) {
	instance, err := promised.instance()
	if err != nil {
		t.Fatal(err)
	}
	const path, body, problem = "/{type}/{id}/length", `{"ok":true,"length":1}`, `{"type":"t","title":"t","status":404,"detail":"d","ok":false,"error":"e","code":"not_found"}`
	head := func(media string, more ...string) http.Header {
		h := http.Header{"Content-Type": {media}}
		for _, name := range more {
			h.Set(name, "1")
		}
		return h
	}
	packed, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	zipped := func(body string) answer {
		h := head("application/json")
		h.Set("Content-Encoding", "zstd")
		return answer{200, h, string(packed.EncodeAll([]byte(body), nil))}
	}
	for name, c := range map[string]struct {
		method, path string
		answer
		breaks bool
	}{
		"as described":         {"GET", path, answer{200, head("application/json", "Etag"), body}, false},
		"an error":             {"GET", path, answer{404, head("application/problem+json"), problem}, false},
		"current":              {"GET", path, answer{304, head("", "Etag"), ""}, false},
		"an error of no route": {"GET", "", answer{404, head("application/problem+json"), problem}, false},
		"another status":       {"GET", path, answer{201, head("application/json"), body}, true},
		"another media type":   {"GET", path, answer{200, head("text/plain"), body}, true},
		"a member too few":     {"GET", path, answer{200, head("application/json"), `{"ok":true}`}, true},
		"a member too many": {
			"GET", path, answer{200, head("application/json"), `{"ok":true,"length":1,"size":1}`}, true,
		},
		"another kind": {
			"GET", path, answer{200, head("application/json"), `{"ok":true,"length":"1"}`}, true,
		},
		"another header": {"GET", path, answer{200, head("application/json", "X-J17-Next"), body}, true},
		"another code": {
			"GET", path,
			answer{404, head("application/problem+json"), strings.Replace(problem, "not_found", "gone", 1)},
			true,
		},
		"no route, and no error": {"GET", "", answer{200, head("application/json"), `{"ok":true,"data":1}`}, true},
		"no path":                {"GET", "/{type}/x", answer{200, head("application/json"), body}, true},
		"a line that is none": {
			"GET", "/{type}/{id}/events", answer{200, head("application/x-ndjson"), `{"stream_id":"1"}` + "\n"}, true,
		},
		"compressed":               {"GET", path, zipped(body), false},
		"compressed, and too many": {"GET", path, zipped(`{"ok":true,"length":1,"size":1}`), true},
		"not what it says": {
			"GET", path, answer{
				200, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"zstd"}}, body,
			}, true,
		},
		"an unknown encoding": {
			"GET", path,
			answer{200, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"br"}}, body},
			true,
		},
		"a head":                     {"HEAD", path, answer{200, head("application/json", "Etag"), ""}, false},
		"a head of an error":         {"HEAD", path, answer{404, head("application/problem+json"), ""}, false},
		"a head of what is current":  {"HEAD", path, answer{304, head("", "Etag"), ""}, false},
		"a head of no route":         {"HEAD", "", answer{404, head("application/problem+json"), ""}, false},
		"a head with a body":         {"HEAD", path, answer{200, head("application/json"), body}, true},
		"a head, another header":     {"HEAD", path, answer{200, head("application/json", "X-J17-Next"), ""}, true},
		"a head, another media type": {"HEAD", path, answer{200, head("text/plain"), ""}, true},
		"a head without a type":      {"HEAD", path, answer{200, http.Header{}, ""}, true},
		"the methods": {
			"OPTIONS", "", answer{204, http.Header{"Allow": {"GET"}, "Access-Control-Max-Age": {"1"}}, ""}, false,
		},
		"the methods of nothing":   {"OPTIONS", "", answer{404, head("application/problem+json"), problem}, false},
		"the methods, with a body": {"OPTIONS", "", answer{204, http.Header{"Allow": {"GET"}}, "GET"}, true},
		"the methods, a header":    {"OPTIONS", "", answer{204, http.Header{"X-Allow": {"GET"}}, ""}, true},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, "/note/x/length", nil)
		if got := instance.broken(r, c.path, c.answer); (got != nil) != c.breaks {
			t.Errorf("%s: %v", name, got)
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
