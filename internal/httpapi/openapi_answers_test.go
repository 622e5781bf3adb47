package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/responses"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"

	"j17/internal/httpapi"
)

// promise is a document as somebody else's library reads it, so that answers can be held against it.
type promise struct {
	document *v3.Document
	answers  responses.ResponseBodyValidator
}

// promised reads the documents of both sides of the public listener once for all tests: that takes far longer than to hold an
// answer against them.
var promised = sync.OnceValues(func() (map[httpapi.Document]*promise, error) {
	all := map[httpapi.Document]*promise{}
	api := httpapi.API{Options: httpapi.Options{AdvanceClock: func(context.Context, time.Duration) (time.Time, error) { return time.Time{}, nil }}}
	for _, d := range []httpapi.Document{httpapi.ControlDocument, httpapi.InstanceDocument} {
		raw, err := api.Describe(d)
		if err != nil {
			return nil, err
		}
		doc, err := libopenapi.NewDocument(raw)
		if err != nil {
			return nil, err
		}
		model, err := doc.BuildV3Model()
		if err != nil {
			return nil, err
		}
		all[d] = &promise{&model.Model, responses.NewResponseBodyValidator(
			&model.Model, config.WithStrictMode(), config.WithFormatAssertions(), config.WithStrictIgnoredHeadersExtra(
				"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Content-Security-Policy", "Referrer-Policy", "Trailer", "X-Content-Type-Options",
			),
		)}
	}
	return all, nil
})

// hold holds an answer against what the document of its host says of the operation.
func (f *fixture) hold(tb testing.TB, r *http.Request, a answer) {
	tb.Helper()
	all, err := promised()
	if err != nil {
		tb.Fatal(err)
	}
	d, path := f.OperationOf(r)
	for _, difference := range all[d].broken(r, path, a) {
		tb.Error(difference)
	}
}

// broken tells where an answer is not what is said of the operation at a path: its status, its headers, its media type, and its
// body, which has no member that is not described. At "" nothing is described, and the answer has to be an error like those of others.
func (p *promise) broken(r *http.Request, path string, a answer) []string {
	if r.Method == http.MethodOptions || r.Method == http.MethodHead || a.header.Get("Content-Encoding") != "" {
		return nil // as the answer to another method, or to one who does not decompress
	}
	if path == "" {
		r, path = r.Clone(r.Context()), "/livez"
		r.Method = http.MethodGet
	}
	item := p.document.Paths.PathItems.GetOrZero(path)
	if item == nil {
		return []string{path + " is not described"}
	}

	// Lines are objects of one schema each.
	bodies := []string{a.body}
	if a.header.Get("Content-Type") == "application/x-ndjson" && a.body != "" {
		bodies = strings.Split(strings.TrimSuffix(a.body, "\n"), "\n")
	}
	var all []string
	for _, body := range bodies {
		got := &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(body))}
		_, found := p.answers.ValidateResponseBodyWithPathItem(r, got, item, path)
		for _, e := range found {
			if strings.Contains(e.Reason, "Declared properties: []") {
				continue // a value of which nothing is said, such as a state
			}
			said := fmt.Sprintf("%s %s, %d: %s: %s", r.Method, path, a.status, e.Message, e.Reason)
			for _, s := range e.SchemaValidationErrors {
				said += "; " + s.FieldPath + " " + s.Reason
			}
			all = append(all, fmt.Sprintf("%s\n%.600s", said, body))
		}
	}
	return all
}

// TestOtherAnswersBreakThePromise changes an answer that is as described.
func TestOtherAnswersBreakThePromise(t *testing.T) {
	all, err := promised()
	if err != nil {
		t.Fatal(err)
	}
	instance := all[httpapi.InstanceDocument]
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/note/x/length", nil)
	const path, body, problem = "/{type}/{id}/length", `{"ok":true,"length":1}`, `{"type":"t","title":"t","status":404,"detail":"d","ok":false,"error":"e","code":"not_found"}`
	head := func(media string, more ...string) http.Header {
		h := http.Header{"Content-Type": {media}}
		for _, name := range more {
			h.Set(name, "1")
		}
		return h
	}
	for name, c := range map[string]struct {
		path string
		answer
		breaks bool
	}{
		"as described":           {path, answer{200, head("application/json", "Etag"), body}, false},
		"an error":               {path, answer{404, head("application/problem+json"), problem}, false},
		"current":                {path, answer{304, head("", "Etag"), ""}, false},
		"an error of no route":   {"", answer{404, head("application/problem+json"), problem}, false},
		"another status":         {path, answer{201, head("application/json"), body}, true},
		"another media type":     {path, answer{200, head("text/plain"), body}, true},
		"a member too few":       {path, answer{200, head("application/json"), `{"ok":true}`}, true},
		"a member too many":      {path, answer{200, head("application/json"), `{"ok":true,"length":1,"size":1}`}, true},
		"another kind":           {path, answer{200, head("application/json"), `{"ok":true,"length":"1"}`}, true},
		"another header":         {path, answer{200, head("application/json", "X-J17-Next"), body}, true},
		"another code":           {path, answer{404, head("application/problem+json"), strings.Replace(problem, "not_found", "gone", 1)}, true},
		"no route, and no error": {"", answer{200, head("application/json"), `{"ok":true,"data":1}`}, true},
		"no path":                {"/{type}/x", answer{200, head("application/json"), body}, true},
		"a line that is none":    {"/{type}/{id}/events", answer{200, head("application/x-ndjson"), `{"stream_id":"1"}` + "\n"}, true},
	} {
		if got := instance.broken(r, c.path, c.answer); (got != nil) != c.breaks {
			t.Errorf("%s: %v", name, got)
		}
	}
}
