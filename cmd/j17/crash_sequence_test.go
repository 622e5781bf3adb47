package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/uuid"
)

// sequenceSpec has two types that count together; one of them has handles too.
const sequenceSpec = `{
	"agent_types": ["user"], "project_key": "VNO",
	"aggregate_types": {
		"ticket": {"identity": {"sequence": true}, "events": {"was_filed": {
			"schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, "handler": {"set": {"target": "", "value": "$.data"}}}}},
		"bill": {"identity": {"sequence": true, "handle": "bil"}, "events": {"was_filed": {
			"schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, "handler": {"set": {"target": "", "value": "$.data"}}}}}
	}
}`

// names is what an aggregate was told to be called.
type names struct {
	ID       string `json:"id"`
	Handle   string `json:"handle"`
	PublicID string `json:"public_id"`
}

// sequenced creates aggregates over HTTP and remembers what each of them was called. A creation is known by its number,
// which is also the data of its event.
type sequenced struct {
	client *http.Client
	*process
	// ids are those that the writer chooses, "_new" where it leaves that to the server.
	ids []string
	// told has what the acknowledged creations were called.
	told []names
}

func (s *sequenced) typ(n int) string {
	if n%3 == 0 {
		return "bill"
	}
	return "ticket"
}

// create asks for creation n until it is acknowledged or the server is gone, which it reports as false. A writer that
// lost the reply asks again with the same idempotency key, so each creation happens once.
func (s *sequenced) create(t *testing.T, n int) bool {
	t.Helper()
	path := s.typ(n) + "/" + s.ids[n] + "/was_filed"
	body := fmt.Sprintf(`{"data":{"n":%d},"metadata":{"actor":{"type":"user","id":"global"}}}`, n)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Error(err)
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Idempotency-Key", "creation "+strconv.Itoa(n))
	status, answer, err := s.send(req, s.ready.Keys["prod"].Write)
	if err != nil {
		return false
	}
	var told names
	if err := json.Unmarshal(answer, &told); err != nil || status != http.StatusCreated {
		t.Errorf("creation %d: %d %s, %v", n, status, answer, err)
		return false
	}
	s.told[n] = told
	return true
}

func (s *sequenced) send(req *http.Request, key string) (int, []byte, error) {
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

func (s *sequenced) get(t *testing.T, path string, into any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	status, answer, err := s.send(req, s.ready.Keys["prod"].Read)
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return status
}

// TestKillLeavesNoGapInNumbers kills the server with SIGKILL while 32 writers create aggregates that take their numbers
// from one counter. Afterwards the numbers are 1 to how many there are, each of one aggregate, which is the one whose
// creator was told so.
func TestKillLeavesNoGapInNumbers(t *testing.T) {
	const writers = 32
	total, kills := rounds(1_200, 10_000), rounds(3, 4)
	dir := t.TempDir()
	specFile := filepath.Join(dir, "spec.json")
	if err := os.WriteFile(specFile, []byte(sequenceSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &sequenced{
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: writers}},
		ids:    make([]string, total), told: make([]names, total),
	}
	for n := range s.ids {
		if s.ids[n] = "_new"; n%2 == 0 {
			s.ids[n] = uuid.New().String()
		}
	}
	var next atomic.Int64
	take := func() int { return int(next.Add(1)) - 1 }
	at := make([]int, writers) // the creation that each writer is at
	for w := range at {
		at[w] = take()
	}
	for round := range kills + 1 {
		p, err := startDev(t, dir, specFile, "--data", filepath.Join(dir, "data"))
		if err != nil {
			t.Fatal(err)
		}
		s.process = p
		acked := make(chan struct{}, total) // never full
		ended := make(chan struct{})
		var wg sync.WaitGroup
		for w := range at {
			wg.Go(func() {
				for at[w] < total && s.create(t, at[w]) {
					at[w] = take()
					acked <- struct{}{}
				}
			})
		}
		go func() {
			wg.Wait()
			close(ended)
		}()
		if round == kills {
			<-ended
			break
		}
		for range total/(kills+2) + 37*round { // a different moment each time
			select {
			case <-acked:
			case <-ended:
				t.Fatalf("round %d: nobody writes any more\n%s", round, p.err.String())
			}
		}
		if err := p.end(syscall.SIGKILL); err == nil {
			t.Fatal("the server ended by itself")
		}
		<-ended
		s.client.CloseIdleConnections()
	}
	s.checkNumbers(t)
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// checkNumbers compares what writers were told with what the server has.
func (s *sequenced) checkNumbers(t *testing.T) {
	t.Helper()
	total := len(s.told)
	byNumber := make([]int, total+1) // the creation that has a number, plus one
	for n, told := range s.told {
		number, err := strconv.Atoi(strings.TrimPrefix(told.PublicID, "VNO-"))
		switch {
		case err != nil || number < 1 || number > total || told.PublicID != "VNO-"+strconv.Itoa(number):
			t.Fatalf("creation %d was told to be %+v", n, told)
		case byNumber[number] != 0:
			t.Fatalf("creations %d and %d were both told to be %s", byNumber[number]-1, n, told.PublicID)
		}
		byNumber[number] = n + 1
	}
	// As many different numbers from 1 to total as there are creations: none is missing.
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for number := next.Add(1); number <= int64(total); number = next.Add(1) {
				s.checkAggregate(t, byNumber[number]-1)
			}
		})
	}
	wg.Wait()
	var none struct {
		Code string `json:"code"`
	}
	if status := s.get(t, fmt.Sprintf("ticket/VNO-%d", total+1), &none); status != http.StatusNotFound ||
		none.Code != "aggregate_not_found" {
		t.Errorf("the number after the last one: %d %s", status, none.Code)
	}
	if found := s.count(t, "ticket") + s.count(t, "bill"); found != total {
		t.Errorf("%d aggregates, want %d", found, total)
	}
}

// checkAggregate reads what creation n has made by its public id: the events of every one, which is the cheapest that
// tells an aggregate from others, and the state of some.
func (s *sequenced) checkAggregate(t *testing.T, n int) {
	t.Helper()
	want := s.told[n]
	path := s.typ(n) + "/" + want.PublicID
	type data struct {
		N int `json:"n"`
	}
	var stream struct {
		Events []struct {
			Key  string `json:"key"`
			Data data   `json:"data"`
		} `json:"events"`
	}
	if status := s.get(t, path+"/events", &stream); status != http.StatusOK || len(stream.Events) != 1 ||
		stream.Events[0].Key != s.typ(n)+":"+want.ID || stream.Events[0].Data.N != n {
		t.Errorf("%s: %d %+v, want creation %d, %+v", path, status, stream, n, want)
	}
	if s.ids[n] != "_new" && want.ID != s.ids[n] || (s.typ(n) == "bill") != (want.Handle != "") {
		t.Errorf("creation %d was told to be %+v", n, want)
	}
	if n%25 != 0 {
		return
	}
	for _, name := range []string{want.ID, want.PublicID, want.Handle} {
		var state struct {
			Data     data `json:"data"`
			Metadata struct {
				Length int `json:"length"`
				names
			} `json:"metadata"`
		}
		if name == "" {
			continue
		}
		status := s.get(t, s.typ(n)+"/"+name, &state)
		if status != http.StatusOK || state.Data.N != n || state.Metadata.Length != 1 || state.Metadata.names != want {
			t.Errorf("%s/%s: %d %+v, want creation %d, %+v", s.typ(n), name, status, state, n, want)
		}
	}
}

// count returns how many aggregates of a type there are.
func (s *sequenced) count(t *testing.T, typ string) int {
	t.Helper()
	found, start := 0, ""
	for {
		var page struct {
			IDs  []string `json:"ids"`
			Next *string  `json:"next"`
		}
		if status := s.get(t, typ+"?count=1000&start="+start, &page); status != http.StatusOK {
			t.Fatalf("the list of %s: %d", typ, status)
		}
		found += len(page.IDs)
		if page.Next == nil {
			return found
		}
		start = *page.Next
	}
}
