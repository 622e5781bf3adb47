package httpapi_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	stderrors "errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/errors"
	"github.com/pb33f/libopenapi-validator/responses"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
	"github.com/pb33f/libopenapi/orderedmap"

	"j17/internal/edge/httpapi"
	"j17/internal/edge/openapi"
)

// valid checks a document with somebody else's validator: against the schema of OpenAPI 3.1, and that all references
// lead somewhere.
func valid(tb testing.TB, raw []byte) {
	tb.Helper()
	doc, err := libopenapi.NewDocument(raw)
	if err != nil {
		tb.Fatalf("%v\n%.500s", err, raw)
	}
	if _, err := doc.BuildV3Model(); err != nil {
		tb.Errorf("the model: %v", err)
	}
	if ok, found := schema_validation.ValidateOpenAPIDocument(doc); !ok {
		for _, f := range found {
			tb.Errorf("%s: %s %v", f.Message, f.Reason, f.SchemaValidationErrors)
		}
	}
}

type document struct {
	OpenAPI    string                               `json:"openapi"`
	Paths      map[string]map[string]map[string]any `json:"paths"`
	Components map[string]map[string]any            `json:"components"`
}

func parsed(tb testing.TB, raw []byte) document {
	tb.Helper()
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		tb.Fatal(err)
	}
	return d
}

// promise is a document as somebody else's library reads it, so that answers can be held against it.
type promise struct {
	document *v3.Document
	answers  responses.ResponseBodyValidator
}

// promises has the documents that answers are held against, that of the internal listener once for who has workers and
// once for a worker. Each is read once for all tests, when the first asks for it, since that takes far longer than to
// hold an answer against it.
type promises struct{ control, instance, admin, headnode, worker func() (*promise, error) }

var promised = promises{
	control:  reader(httpapi.ControlDocument, nil),
	instance: reader(httpapi.InstanceDocument, nil),
	admin:    reader(httpapi.AdminDocument, nil),
	headnode: reader(httpapi.InternalDocument, &httpapi.Cluster{}),
	worker:   reader(httpapi.InternalDocument, &httpapi.Cluster{Node: "n"}),
}

// strictly says how answers are held against a document: every header but those of the transport has to be described.
func strictly() []config.Option {
	return []config.Option{config.WithStrictMode(), config.WithFormatAssertions(), config.WithStrictIgnoredHeadersExtra(
		"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Content-Encoding", "Content-Security-Policy",
		"Referrer-Policy", "Trailer",
		"X-Content-Type-Options", "Cross-Origin-Opener-Policy",
		"Access-Control-Allow-Headers", "Access-Control-Allow-Methods", "Access-Control-Max-Age",
	)}
}

// reader returns what reads a document when it is asked first.
func reader(d httpapi.Document, cluster *httpapi.Cluster) func() (*promise, error) {
	return sync.OnceValues(func() (*promise, error) {
		api := httpapi.API{Options: httpapi.Options{
			Cluster:      cluster,
			AdvanceClock: func(context.Context, time.Duration) (time.Time, error) { return time.Time{}, nil },
		}}
		raw, err := api.Describe(d)
		if err != nil {
			return nil, err
		}
		if raw, err = withTrials(raw); err != nil {
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
		return &promise{&model.Model, responses.NewResponseBodyValidator(&model.Model, strictly()...)}, nil
	})
}

// withTrials is a document in which what comes in place of a success where nothing is written is an answer of each
// operation that has it, so that answers are held against it too.
func withTrials(raw []byte) ([]byte, error) {
	type operation = map[string]any
	var d map[string]any
	var of struct {
		Paths      map[string]map[string]operation `json:"paths"`
		Components struct {
			Responses map[string]map[string]any `json:"responses"`
		} `json:"components"`
	}
	if err := stderrors.Join(json.Unmarshal(raw, &d), json.Unmarshal(raw, &of)); err != nil {
		return nil, err
	}
	ok := map[string]any{
		"type": "object", "required": []string{"ok"}, "properties": map[string]any{"ok": map[string]any{"const": true}},
	}
	for _, path := range of.Paths {
		for _, op := range path {
			answers, given := op["responses"].(map[string]any)
			if trial := op[openapi.Trial]; trial != nil && given {
				answers["200"] = map[string]any{
					"description": "OK", "headers": of.Components.Responses["writeEvent.201"]["headers"],
					"content": map[string]any{
						"application/json": map[string]any{"schema": map[string]any{"allOf": []any{ok, trial}}},
					},
				}
			}
		}
	}
	d["paths"] = of.Paths
	return json.Marshal(d)
}

// hold holds an answer of the public listener against what the document of its host says of the operation.
func (f *fixture) hold(tb testing.TB, r *http.Request, a answer) {
	tb.Helper()
	d, path := f.OperationOf(r)
	of := promised.instance
	switch d { //nolint:exhaustive // the public listener has no others
	case httpapi.ControlDocument:
		of = promised.control
	case httpapi.AdminDocument:
		if path != "" { // what is nowhere described is as the document of the host has it
			of = promised.admin
		}
	}
	holdTo(tb, of, r, path, a)
}

// holdInside is hold for the internal listener.
func (f *fixture) holdInside(tb testing.TB, r *http.Request, a answer) {
	tb.Helper()
	of := promised.headnode
	if f.Cluster != nil && f.Cluster.Node != "" {
		of = promised.worker
	}
	holdTo(tb, of, r, f.InternalOperationOf(r), a)
}

func holdTo(tb testing.TB, of func() (*promise, error), r *http.Request, path string, a answer) {
	tb.Helper()
	if !held {
		return
	}
	p, err := of()
	if err != nil {
		tb.Fatal(err)
	}
	for _, difference := range p.broken(r, path, a) {
		tb.Error(difference)
	}
	if a.status < 300 {
		method := r.Method
		if method == http.MethodHead && a.header.Get("Content-Type") == "text/event-stream" {
			method = http.MethodGet // what a stream sends has no end; the head is all that is described
		}
		succeeded.Store(successOf(method, path, strconv.Itoa(a.status)), true)
	}
}

// broken tells where an answer is not what is said of the operation at a path: its status, its headers, its media type,
// and its body, which has no member that is not described. At "" nothing is described, and the answer has to be an
// error like those of others.
func (p *promise) broken(r *http.Request, path string, a answer) []string {
	// What is not described is as it is everywhere.
	if path == "" {
		method := r.Method
		r, path = r.Clone(r.Context()), "/livez"
		if r.Method = http.MethodGet; method == http.MethodHead {
			r.Method = method
		}
		if method == http.MethodOptions && a.status < 300 {
			return p.methods(r, a)
		}
	}
	item := p.document.Paths.PathItems.GetOrZero(path)
	if item == nil {
		return []string{path + " is not described"}
	}

	// The head of an answer is that of the answer to GET, and there is nothing behind it.
	if r.Method == http.MethodHead {
		return p.head(r, item.Get, path, a)
	}
	body, err := unpacked(a)
	if err != nil {
		return []string{err.Error()}
	}

	// Lines are objects of one schema each.
	bodies := []string{body}
	if a.header.Get("Content-Type") == "application/x-ndjson" && body != "" {
		bodies = strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	}
	var all []string
	for _, body := range bodies {
		got := &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(body))}
		_, found := p.answers.ValidateResponseBodyWithPathItem(r, got, item, path)
		for _, e := range found {
			if strings.Contains(e.Reason, "Declared properties: []") {
				continue // a value of which nothing is said, such as a state
			}
			all = append(all, fmt.Sprintf("%s\n%.600s", told(r, path, a, e), body))
		}
	}
	return all
}

// told is what the validator says of an answer.
func told(r *http.Request, path string, a answer, e *errors.ValidationError) string {
	said := fmt.Sprintf("%s %s, %d: %s: %s", r.Method, path, a.status, e.Message, e.Reason)
	for _, s := range e.SchemaValidationErrors {
		said += "; " + s.FieldPath + " " + s.Reason
	}
	return said
}

// unpacked returns the body of an answer as it was before it was compressed.
func unpacked(a answer) (string, error) {
	var r io.Reader = strings.NewReader(a.body)
	var err error
	switch coding := a.header.Get("Content-Encoding"); coding {
	case "":
		return a.body, nil
	case "gzip":
		r, err = gzip.NewReader(r)
	case "zstd":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(r, zstd.WithDecoderConcurrency(1)); err == nil {
			defer z.Close()
			r = z
		}
	default:
		return "", fmt.Errorf("nobody has asked for the encoding %s", coding)
	}
	if err != nil {
		return "", err
	}
	raw, err := io.ReadAll(r)
	return string(raw), err
}

// head tells where the answer to HEAD is not what is said of GET.
func (p *promise) head(r *http.Request, get *v3.Operation, path string, a answer) []string {
	if get == nil {
		return []string{"there is no GET " + path}
	}
	status := strconv.Itoa(a.status)
	said := get.Responses.Codes.GetOrZero(status)
	if said == nil {
		said = get.Responses.Codes.GetOrZero(status[:1] + "XX")
	}
	if said == nil {
		return []string{fmt.Sprintf("HEAD %s: the status %s is not described", path, status)}
	}
	var all []string
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	if known := orderedmap.Len(said.Content) > 0 && said.Content.GetOrZero(media) != nil; !known &&
		(media != "" || orderedmap.Len(said.Content) > 0) {
		all = append(all, fmt.Sprintf("HEAD %s, %s: the content type %q is not described", path, status, media))
	}
	if a.body != "" {
		all = append(all, fmt.Sprintf("HEAD %s, %s: there is a body: %.200s", path, status, a.body))
	}
	return append(all, headers(r, said.Headers, path, a)...)
}

// methods tells where the answer to OPTIONS, which nothing describes by itself, is none that says which methods there
// are.
func (p *promise) methods(r *http.Request, a answer) []string {
	var all []string
	if a.status != http.StatusNoContent || a.body != "" || a.header.Get("Content-Type") != "" {
		all = append(all, fmt.Sprintf("OPTIONS %s: %d %q", r.URL.Path, a.status, a.body))
	}
	errorHeaders := p.document.Paths.PathItems.GetOrZero("/livez").Get.Responses.Codes.GetOrZero("4XX").Headers
	return append(all, headers(r, errorHeaders, "/livez", a)...)
}

// headers tells which headers of an answer are not described.
func headers(r *http.Request, described *orderedmap.Map[string, *v3.Header], path string, a answer) []string {
	got := &http.Response{StatusCode: a.status, Header: a.header, Body: http.NoBody}
	_, found := responses.ValidateResponseHeaders(r, got, described, path, strconv.Itoa(a.status), strictly()...)
	var all []string
	for _, e := range found {
		all = append(all, told(r, path, a, e))
	}
	return all
}
