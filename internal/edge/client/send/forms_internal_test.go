package send

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/trial"
	"j17/internal/edge/client"
	"j17/internal/lang/spec"
)

// TestOneFormOfEventFiles shows the same files to the dry run and to the sender: what can be tried can be sent, and
// what the one cannot read neither can the other, for the same reason.
func TestOneFormOfEventFiles(t *testing.T) {
	text, err := os.ReadFile("../../../../examples/counter/spec.json")
	if err != nil {
		t.Fatal(err)
	}
	compiled, _ := spec.Compile(text)
	if compiled == nil {
		t.Fatal("the example is no valid spec")
	}
	const (
		actor = `"actor":{"type":"user","id":"global"}`
		meta  = `"metadata":{` + actor + `}`
		head  = `"key":"counter:global","type":"was_raised","data":{"by":1}`
		good  = `{` + head + `,` + meta + `}`
	)
	for name, src := range map[string]string{
		"nothing":                        "",
		"empty lines":                    "\n \r\n\t\n",
		"one line":                       good,
		"lines with CRLF":                good + "\r\n\r\n" + good + "\r\n",
		"a byte order mark":              "\uFEFF" + good,
		"a byte order mark and an array": "\uFEFF[" + good + "]",
		"an array":                       "\n [\n" + good + ",\n " + good + "]\n",
		"an empty array":                 "[]",
		"an array that is not closed":    "[" + good,
		"an array and more":              "[" + good + "] " + good,
		"an array with a number":         "[7]",
		"an array with a broken event":   "[" + good + ", {\"key\" 7}]",
		"a document over several lines":  "{\n" + head + ",\n" + meta + "}",
		"two events on one line":         good + good,
		"no JSON":                        "key,type\n1,2",
		"a NUL byte":                     "{\x00}",
		"not UTF-8":                      "{\"key\":\"counter:\xff\"}",
		"a list of numbers":              "1\n2",
		"type and id":                    `{"aggregate_type":"counter","id":"global","type":"was_raised","data":{"by":1},` + meta + `}`,
		"half of type and id":            `{"aggregate_type":"counter","type":"was_raised","data":{"by":1},` + meta + `}`,
		"key and id":                     `{"id":"global",` + head + `,` + meta + `}`,
		"no key":                         `{"type":"was_raised","data":{"by":1},` + meta + `}`,
		"a key without a colon":          strings.Replace(good, "counter:global", "counter", 1),
		"a key with a slash":             strings.Replace(good, "counter:global", "counter/global", 1),
		"a key that is a number":         strings.Replace(good, `"counter:global"`, "7", 1),
		"a key twice":                    `{"key":"counter:global",` + head + `,` + meta + `}`,
		"a key in capitals":              strings.Replace(good, `"key"`, `"KEY"`, 1),
		"no type":                        strings.Replace(good, `"type":"was_raised",`, "", 1),
		"a type that is null":            strings.Replace(good, `"was_raised"`, "null", 1),
		"no data":                        strings.Replace(good, `"data":{"by":1},`, "", 1),
		"an exact number":                strings.Replace(good, `1}`, "0.10000000000000000000000000000000001}", 1),
		"no metadata":                    `{` + head + `}`,
		"metadata of another kind":       `{` + head + `,"metadata":[]}`,
		"no actor":                       `{` + head + `,"metadata":{}}`,
		"an actor without id":            `{` + head + `,"metadata":{"actor":{"type":"user"}}}`,
		"an actor that is a text":        `{` + head + `,"metadata":{"actor":"user:global"}}`,
		"an actor with more":             `{` + head + `,"metadata":{"actor":{"type":"user","id":"global","name":"x"}}}`,
		"a target without type":          `{` + head + `,"metadata":{` + actor + `,"target":{"id":"global"}}}`,
		"previous_length":                `{` + head + `,"metadata":{` + actor + `,"previous_length":0}}`,
		"a previous_length that is none": `{` + head + `,"metadata":{` + actor + `,"previous_length":-1}}`,
		"skip_occ false":                 `{` + head + `,"metadata":{` + actor + `,"skip_occ":false}}`,
		"skip_occ that is none":          `{` + head + `,"metadata":{` + actor + `,"skip_occ":1}}`,
		"a timestamp":                    `{` + head + `,"metadata":{` + actor + `,"timestamp":1700000000}}`,
		"a timestamp that is none":       `{` + head + `,"metadata":{` + actor + `,"timestamp":"today"}}`,
		"a correlation id":               `{` + head + `,"metadata":{` + actor + `,"correlation_id":"x"}}`,
		"a correlation id that is none":  `{` + head + `,"metadata":{` + actor + `,"correlation_id":7}}`,
		"other metadata":                 `{` + head + `,"metadata":{` + actor + `,"note":"x"}}`,
		"an unknown member":              `{"tpye":1,` + head + `,` + meta + `}`,
		"an export":                      `{"stream_id":"1700000000000-0",` + head + `,"metadata":{` + actor + `,"timestamp":1700000000,"correlation_id":"x"}}`,
		"an export with implied metadata": `{"stream_id":"1700000000000-0",` + head + `,"metadata":{` + actor +
			`,"implied_by":{"key":"a:b"}}}`,
		"a stream id that is none":     `{"stream_id":"x",` + head + `,` + meta + `}`,
		"a stream id that is a number": `{"stream_id":7,` + head + `,` + meta + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			tried, err := trial.DryRun(t.Context(), compiled, nil, src, 1_700_000_000)
			if err != nil {
				t.Fatal(err)
			}
			refused := map[int][]string{}
			for _, f := range tried.Findings {
				refused[f.Event] = append(refused[f.Event], f.Path)
			}
			events, accepted := 0, 0
			for s := newSource(strings.NewReader(src), ""); ; {
				ev, err := s.next()
				if errors.Is(err, io.EOF) {
					break
				}
				bad, ok := errors.AsType[*lineError](err)
				switch {
				case err == nil:
					events++
					accepted++
					if ev.key != (j17.Key{Type: "counter", ID: "global"}) || len(ev.data) == 0 {
						t.Errorf("%+v", ev)
					}
					continue
				case !ok:
					t.Fatal(err)
				case bad.fatal:
					if tried.Events > 0 || len(tried.Findings) != 1 {
						t.Errorf("sending gives up at %v, the dry run finds %+v", bad, tried.Findings)
					}
					return
				}
				events++
				if !slices.Contains(refused[events], bad.path) {
					t.Errorf("sending refuses event %d: %v; the dry run finds %v", events, bad, tried.Findings)
				}
			}
			if diff := cmp.Diff([]int{tried.Events, tried.Accepted}, []int{events, accepted}); diff != "" {
				t.Errorf("events and how many of them are accepted, dry run and sending:\n%s%+v", diff, tried.Findings)
			}
		})
	}
}

// TestInterruptBeforeAnythingIsSent ends a run while it reads the file for the first time.
func TestInterruptBeforeAnythingIsSent(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var said strings.Builder
	o := Options{Title: "notes.jsonl", Note: func(format string, args ...any) { fmt.Fprintf(&said, format, args...) }}
	if _, err := File(ctx, strings.NewReader(`{"key":"note:global","type":"was_written","data":{},"metadata":{"actor":{"type":"user","id":"global"}}}`), o); !errors.Is(err, context.Canceled) || said.String() != "Nothing was sent.\n" {
		t.Errorf("%v\n%s", err, said.String())
	}
}

// TestAJournalOfAnEarlierVersion goes on with what a version of the program has left that called it an import.
func TestAJournalOfAnEarlierVersion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes.jsonl")
	old := `{"target":"http://localhost","seed":"5eed","events":7,"batch":5}` + "\n" + `{"done":{"from":0,"to":5}}` + "\n"
	if err := os.WriteFile(file+".j17-import", []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := openJournal(JournalNames(file, ""), journalHead{
		Target: "http://localhost", Seed: "5eed", Events: 7, Batch: 500,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !j.resumed || !j.done.has(4) || j.done.has(5) || j.head.Batch != 5 {
		t.Errorf("%+v", j)
	}
	if err := j.close(true); err != nil {
		t.Fatal(err)
	}
	// Once that is over, journals have the present name.
	if j, err = openJournal(JournalNames(file, ""), journalHead{
		Target: "http://localhost", Seed: "5eed", Events: 7, Batch: 500,
	}); err != nil {
		t.Fatal(err)
	}
	if j.resumed || j.name != file+".j17-send" {
		t.Errorf("%+v", j)
	}
	if err := j.close(true); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(file + "*"); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// TestWhatWasErasedIsNotSentAgain: a run goes on where one has ended whose events were stored, and erased since.
func TestWhatWasErasedIsNotSentAgain(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"ok":false,"status":409,"code":"idempotency_key_erased","error":"It was erased."}`)
	}))
	defer server.Close()
	c, err := client.New(client.Options{URL: server.URL, Key: "key", Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	event := `{"key":"note:global","type":"was_written","data":{},"metadata":{"actor":{"type":"user","id":"global"}}}` + "\n"
	o := Options{
		Client: c, Concurrency: 1, Title: "notes.jsonl",
		Journals: JournalNames(filepath.Join(t.TempDir(), "notes.jsonl"), ""), Note: func(string, ...any) {},
	}
	if got, err := File(t.Context(), strings.NewReader(event+event), o); err != nil ||
		got != (Summary{Events: 2, Known: 2}) {
		t.Errorf("%+v, %v", got, err)
	}
}
