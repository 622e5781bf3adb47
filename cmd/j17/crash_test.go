package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/google/uuid"
)

const crashSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"counter": {"events": {"was_counted": {
		"allow_skip_occ": true,
		"schema": {"type": "object", "properties": {"writer": {"type": "integer"}, "n": {"type": "integer"}}, "required": ["writer", "n"]},
		"handler": [{"append": {"target": "seen", "value": "$.data"}}]
	}}}}
}`

// TestKillLosesNothingAcknowledged kills the server with SIGKILL while 64 writers write, again and again on the same
// data folder, and checks that every acknowledged event is there once, in order, and nothing is there in part.
func TestKillLosesNothingAcknowledged(t *testing.T) {
	const writers = 64
	dir := t.TempDir()
	specFile := filepath.Join(dir, "spec.json")
	if err := os.WriteFile(specFile, []byte(crashSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: writers}}
	// acked holds for each writer the highest number that was acknowledged; own streams and one shared stream.
	acked := make([]int, writers)
	ids := make([]string, writers)
	for i := range ids {
		ids[i] = uuid.New().String()
	}
	for round := range rounds(3, 20) {
		p, err := startDev(t, dir, specFile, "--data", filepath.Join(dir, "data"))
		if err != nil {
			t.Fatal(err)
		}
		checkAcknowledged(t, client, p, ids, acked)
		var wg sync.WaitGroup
		total := make(chan struct{}, writers*1000)
		for w := range writers {
			wg.Go(func() {
				for n := acked[w] + 1; ; n++ {
					stream := ids[w]
					if n%2 == 0 {
						stream = "global"
					}
					if !countOne(client, p, stream, w, n) {
						return
					}
					acked[w] = n
					total <- struct{}{}
				}
			})
		}
		for range writers + 37*round { // a different moment each time
			<-total
		}
		if err := p.end(syscall.SIGKILL); err == nil {
			t.Fatal("the server ended by itself")
		}
		go func() { // writers that were between two writes may still want to report
			for range total {
			}
		}()
		wg.Wait()
		close(total)
		client.CloseIdleConnections()
	}
	p, err := startDev(t, dir, specFile, "--data", filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	checkAcknowledged(t, client, p, ids, acked)
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// countOne writes one event and reports whether it was acknowledged.
func countOne(client *http.Client, p *process, stream string, writer, n int) bool {
	body := fmt.Sprintf(`{"data":{"writer":%d,"n":%d},"metadata":{"actor":{"type":"user","id":"global"},"skip_occ":true}}`, writer, n)
	req, err := http.NewRequest(http.MethodPost, p.url+"/counter/"+stream+"/was_counted", bytes.NewReader([]byte(body)))
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+p.ready.Keys["prod"].Write)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusCreated
}

// checkAcknowledged reads every event back. A write that was under way when the server was killed may be there or not,
// so acked moves up to what is found.
func checkAcknowledged(t *testing.T, client *http.Client, p *process, ids []string, acked []int) {
	t.Helper()
	found := make([]map[int]bool, len(ids))
	for i := range found {
		found[i] = map[int]bool{}
	}
	for _, id := range append([]string{"global"}, ids...) {
		last := map[int]int{}
		for _, e := range seen(t, client, p, id) {
			if found[e.Writer][e.N] || e.N <= last[e.Writer] {
				t.Fatalf("writer %d: number %d is there twice or out of order", e.Writer, e.N)
			}
			found[e.Writer][e.N], last[e.Writer] = true, e.N
		}
	}
	for w := range ids {
		for n := 1; n <= acked[w]; n++ {
			if !found[w][n] {
				t.Fatalf("writer %d: acknowledged number %d of %d is lost", w, n, acked[w])
			}
		}
		if found[w][acked[w]+1] {
			acked[w]++
		}
		if len(found[w]) != acked[w] {
			t.Fatalf("writer %d: %d events where %d were sent", w, len(found[w]), acked[w])
		}
	}
}

type counted struct {
	Writer int `json:"writer"`
	N      int `json:"n"`
}

// seen returns the state of a stream, which lists its events, replayed from the first one.
func seen(t *testing.T, client *http.Client, p *process, id string) []counted {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/counter/"+id+"?synchronous=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.ready.Keys["prod"].Read)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if resp.StatusCode == http.StatusNotFound {
		return nil
	}
	var body struct {
		Data struct {
			Seen []counted `json:"seen"`
		} `json:"data"`
		Metadata struct {
			Length int `json:"length"`
		} `json:"metadata"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || len(body.Data.Seen) != body.Metadata.Length {
		t.Fatalf("%s: %d of %d events: %v", id, len(body.Data.Seen), body.Metadata.Length, err)
	}
	return body.Data.Seen
}
