//go:build !race

package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"j17/internal/server"
)

// reshaped is a spec whose steps put a number into older events.
func reshaped(number int) string {
	return fmt.Sprintf(`{"agent_types":["user"],"aggregate_types":{"thing":{"events":{"was_set":{
		"generations":{"1":{"schema":{"type":"object"},"upcast":[{"move":{"from":"n","to":"m"}},{"set":{"target":"v","value":%d}}]}},
		"schema":{"type":"object","properties":{"m":{"type":"number"}},"required":["m"]},
		"handler":{"merge":{"target":"","value":"$.data"}}}}}}}`, number)
}

// TestRollingForwardAndBack deploys two specs by turns that read older events in two ways, with writers in both
// generations all the while: what is hashed stays what it was, and states are those of the spec that is deployed.
func TestRollingForwardAndBack(t *testing.T) {
	h, moveOut := moveInto(t, t.TempDir(), frozenAt(), server.StoreOptions{})
	defer moveOut()
	deploy := func(spec string) {
		h.ask("POST", "control", "/api/instances/"+h.ready.Instance.ID+"/spec?environment=prod", spec)
	}
	deploy(`{"agent_types":["user"],"aggregate_types":{"thing":{"events":{"was_set":{"schema":{"type":"object"},"handler":[]}}}}}`)
	const quiet = 5
	for n := range 3 * quiet {
		h.ask("POST", "prod", "/thing/"+numbered(10+n%quiet)+"/was_set", by(numbered(0), fmt.Sprintf(`{"n":%d}`, n)))
	}
	roots := func() (all string) {
		for n := range quiet {
			id := numbered(10 + n)
			all += string(h.ask("GET", "prod", "/thing/"+id+"/audit/merkle-root", ""))
			all += string(h.ask("GET", "prod", "/thing/"+id+"/audit/verify-chain", ""))
			all += string(h.ask("GET", "prod", "/thing/"+id+"/events?generation=stored", ""))
		}
		return all
	}
	before := roots()

	// Writers who do not stop until all was deployed.
	deploy(reshaped(0))
	var ended atomic.Bool
	var writers sync.WaitGroup
	refused := make([]string, 2)
	for i, body := range []string{
		`{"data":{"n":1},"metadata":{"actor":{"type":"user","id":"` + numbered(0) + `"},"generation":1}}`,
		by(numbered(0), `{"m":1}`),
	} {
		writers.Go(func() {
			for n := 0; !ended.Load() && refused[i] == ""; n++ {
				status, answer := h.try("POST", "prod", "/thing/"+numbered(40+i+2*(n%20))+"/was_set",
					"application/json", body)
				if status != http.StatusCreated {
					refused[i] = string(answer)
				}
			}
		})
	}
	for round := range 20 {
		deploy(reshaped(round % 2))
		if got := roots(); got != before {
			t.Fatalf("round %d: %s, want %s", round, got, before)
		}
		state := string(h.ask("GET", "prod", "/thing/"+numbered(10), ""))
		if want := fmt.Sprintf(`"v":%d`, round%2); !strings.Contains(state, want) || !strings.Contains(state,
			`"m":10`) {
			t.Fatalf("round %d: the state is %s", round, state)
		}
	}
	ended.Store(true)
	writers.Wait()
	if all := strings.Join(refused, ""); all != "" {
		t.Errorf("a write was refused: %s", all)
	}
}

// TestGenerationsThatAreNone sends what is no number of a generation, at each place where a write says one.
func TestGenerationsThatAreNone(t *testing.T) {
	h, moveOut := moveInto(t, t.TempDir(), frozenAt(), server.StoreOptions{})
	defer moveOut()
	h.ask("POST", "control", "/api/instances/"+h.ready.Instance.ID+"/spec?environment=prod", reshaped(0))
	id := numbered(10)
	actor := `"actor":{"type":"user","id":"` + numbered(0) + `"}`
	places := map[string]func(number string) (path, body string){
		`"metadata.generation"`: func(number string) (path, body string) {
			return "/thing/" + id + "/was_set",
				`{"data":{"m":1},"metadata":{` + actor + `,"generation":` + number + `}}`
		},
		`"generation","event_index":0`: func(number string) (path, body string) {
			return "/thing/" + id, `{"events":[{"type":"was_set","data":{"m":1},"generation":` + number + `}],"metadata":{` + actor + `}}`
		},
		`"generation","event_index":0,"write_index":0`: func(number string) (path, body string) {
			return "/_transaction", `{"writes":[{"key":"thing:` + id + `","events":[{"type":"was_set","data":{"m":1},"generation":` + number + `}]}],"metadata":{` + actor + `}}`
		},
	}
	long := strings.Repeat("9", 10_000)
	for place, body := range places {
		for _, number := range []string{`"1"`, `1.5`, `-1`, `0`, `1e30`, `true`, `[1]`, `3`, long} {
			path, text := body(number)
			status, answer := h.try("POST", "prod", path, "application/json", text)
			if status != http.StatusBadRequest || !strings.Contains(string(answer), `"path":`+place) {
				t.Errorf("%s is %.20s: %d %.900s", place, number, status, answer)
			}
		}
	}

	// Metadata of batches and of transactions have none.
	for _, path := range []string{`"generation","event_index":0`, `"generation","event_index":0,"write_index":0`} {
		to, text := places[path]("2")
		text = strings.Replace(strings.Replace(text, `,"generation":2`, "", 1), `"metadata":{`,
			`"metadata":{"generation":2,`, 1)
		status, answer := h.try("POST", "prod", to, "application/json", text)
		if status != http.StatusBadRequest || !strings.Contains(string(answer), `"path":"metadata.generation"`) {
			t.Errorf("in the metadata of %s: %d %.300s", to, status, answer)
		}
	}
	if status, answer := h.try("GET", "prod", "/thing/"+id, "application/json", ""); status != http.StatusNotFound {
		t.Errorf("something was written: %d %s", status, answer)
	}
}
