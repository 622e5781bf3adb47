package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// loadedRow is what a file of events is answered.
type loadedRow struct {
	Imported int `json:"imported"`
}

// history writes a file of events, each of an aggregate of its own for as many as there are, then the next of each.
func history(w io.Writer, from, to, aggregates int) error {
	b := bufio.NewWriter(w)
	for n := from; n < to; n++ {
		if _, err := fmt.Fprintf(b, `{"key":"note:%08x-0000-4000-8000-000000000000","type":"was_written","data":{"n":%d,"fill":%q},"metadata":{"actor":{"type":"user","id":"global"},"timestamp":%d}}`+"\n",
			n%aggregates, n, strings.Repeat("x", 200), 1_600_000_000+n); err != nil {
			return err
		}
	}
	return b.Flush()
}

// sendFile posts a file to the environment prod and decodes the answer, if there is one.
func sendFile(t *testing.T, p *process, token, route string, file io.Reader) (row loadedRow, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/_admin/"+route, file)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = strings.TrimPrefix(p.ready.URLs["prod"], "http://")
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return row, 0 // the server was killed
	}
	defer resp.Body.Close() //nolint:errcheck // it is decoded
	if err := json.NewDecoder(resp.Body).Decode(&row); err != nil {
		t.Fatal(resp.StatusCode, err)
	}
	return row, resp.StatusCode
}

// TestKillInAnImport kills a server in the middle of a large file: of an import as soon as some of it is stored, of a
// cold start when half of it has come. Of an import there may be a part then, which counts when the same file is sent
// again; of a cold start there is nothing. Either way each event is there once in the end, in its order.
func TestKillInAnImport(t *testing.T) {
	const events, aggregates = 14_000, 500 // more than what is all or nothing
	for _, route := range []string{"import_jsonl", "cold_start"} {
		t.Run(route, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var file bytes.Buffer
			if err := history(&file, 0, events, aggregates); err != nil {
				t.Fatal(err)
			}
			start := func() (*process, string) {
				t.Helper()
				specFile := filepath.Join(dir, "spec.json")
				if err := os.WriteFile(specFile, []byte(plainSpec), 0o600); err != nil {
					t.Fatal(err)
				}
				p, err := startDev(t, dir, specFile, "--data", filepath.Join(dir, "data"))
				if err != nil {
					t.Fatal(err)
				}
				return p, operatorToken(t, p)
			}

			// It is killed in the middle, if it does not come to the end before.
			p, token := start()
			r, w := io.Pipe()
			sent, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(sent)
				if route == "cold_start" {
					_ = history(w, 0, events/2, aggregates) // ends when the server does
					return
				}
				_ = history(w, 0, events, aggregates)
				_ = w.Close()
			}()
			go func() {
				defer close(ended)
				sendFile(t, p, token, route, r)
			}()
			<-sent
			if route != "cold_start" {
				await(t, "some of the file is stored", func() bool { return stored(t, p) > 0 })
			}
			_ = p.end(syscall.SIGKILL) // it ends by the signal
			_ = w.CloseWithError(io.ErrUnexpectedEOF)
			<-ended

			p, token = start()
			before := len(allEvents(t, p))
			if before != 0 && route == "cold_start" || before == 0 && route != "cold_start" {
				t.Errorf("%d events are there after the kill", before)
			}
			row, status := sendFile(t, p, token, route, &file)
			if status != http.StatusOK && status != http.StatusCreated || row.Imported != events-before {
				t.Fatalf("the file sent again: %d, %+v; %d were there", status, row, before)
			}
			next := map[string]int{}
			all := allEvents(t, p)
			for _, e := range all {
				if e.Data.N/aggregates != next[e.Key] {
					t.Fatalf("%s has its event %d in the place of number %d", e.Key, e.Data.N, next[e.Key])
				}
				next[e.Key]++
			}
			if len(all) != events {
				t.Errorf("%d events in the end", len(all))
			}
			if err := p.end(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		})
	}
}

// stored returns whether the environment prod has an event, as a number.
func stored(t *testing.T, p *process) int {
	t.Helper()
	var page struct {
		Events []storedEvent `json:"events"`
	}
	if s := requested(
		t, p, "GET", "prod", "/_events?count=1&after=0", p.ready.Keys["prod"].Read, "", &page,
	); s != http.StatusOK && s != http.StatusTooManyRequests {
		t.Fatalf("the feed: %d", s)
	}
	return len(page.Events)
}
