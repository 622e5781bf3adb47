package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"j17/internal/base/clock"
)

// restartSpec is of orders that a listener is told of, and alarms that ring a bell later.
const restartSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {
		"order": {"events": {"was_placed": {"schema": {"type": "object"}, "handler": []}}},
		"alarm": {"events": {"was_set": {"schema": {"type": "object"}, "handler": [],
			"implications": [{"schedule": {"delay": "5m", "emit": {"aggregate_type": "bell", "id": "$.key", "event_type": "was_rung", "data": {"n": "$.data.n"}}}}]}}},
		"bell": {"events": {"was_rung": {"schema": {"type": "object"}, "handler": []}}}
	},
	"listeners": {"hook": {"url": "ENDPOINT", "events": ["order.*"]}}
}`

// holding is an endpoint that keeps those who tell it waiting while it holds.
type holding struct {
	mu   sync.Mutex
	got  map[string][]int // the numbers of the events, by key
	gate chan struct{}
}

// ServeHTTP implements http.Handler.
func (h *holding) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	var message struct{ Event storedEvent }
	if err := json.NewDecoder(req.Body).Decode(&message); err != nil {
		return
	}
	h.mu.Lock()
	h.got[message.Event.Key] = append(h.got[message.Event.Key], message.Event.Data.N)
	gate := h.gate
	h.mu.Unlock()
	select {
	case <-gate:
	case <-req.Context().Done():
	}
}

// hold keeps those who tell from now on waiting until letGo.
func (h *holding) hold() (letGo func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gate := make(chan struct{})
	h.gate = gate
	return func() { close(gate) }
}

// of returns what was told of some aggregates, and forgets it if taken is set.
func (h *holding) of(keys []string, taken bool) (all [][]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		all = append(all, slices.Clone(h.got[key]))
		if taken {
			delete(h.got, key)
		}
	}
	return all
}

// soon is how long what was under way may take to go on after a start: less than the shortest lease, which is 30
// seconds and begins before the start, and enough for a busy machine.
const soon = 25 * time.Second

// TestKillHoldsNothingUp kills the server with SIGKILL while an endpoint is told of events, of a replay, and while
// scheduled events are written. After the start all of it goes on at once, in order: nothing waits until what the
// killed process had claimed is given up.
func TestKillHoldsNothingUp(t *testing.T) {
	dir := t.TempDir()
	hook := &holding{got: map[string][]int{}}
	letGo := hook.hold()
	endpoint := httptest.NewServer(hook)
	t.Cleanup(endpoint.Close)
	specFile := filepath.Join(dir, "spec.json")
	if err := os.WriteFile(
		specFile, []byte(strings.ReplaceAll(restartSpec, "ENDPOINT", endpoint.URL)), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	start := func() *process {
		t.Helper()
		p, err := startDev(t, dir, specFile, "--data", filepath.Join(dir, "data"), "--allow-private-listeners")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := start()
	restart := func() (begun time.Time) {
		t.Helper()
		_ = p.end(syscall.SIGKILL) // it ends by the signal
		p = start()
		return clock.System{}.Now()
	}
	post := func(path string, n int) {
		t.Helper()
		body := fmt.Sprintf(`{"data":{"n":%d},"metadata":{"actor":{"type":"user","id":"global"}}}`, n)
		if s := requested(t, p, "POST", "prod", path, p.ready.Keys["prod"].Write, body, nil); s != http.StatusCreated {
			t.Fatalf("%s: %d", path, s)
		}
	}
	// within fails the test where something has not come about soon.
	within := func(begun time.Time, what string, is func() bool) {
		t.Helper()
		await(t, what, is)
		if took := (clock.System{}).Now().Sub(begun); took > soon {
			t.Errorf("%s: it has taken %s", what, took)
		}
	}

	// Deliveries that are under way, with others behind them.
	keys := []string{"order:" + holderID(1), "order:" + holderID(2), "order:" + holderID(3)}
	for n := range 3 {
		for _, key := range keys {
			post("/"+strings.Replace(key, ":", "/", 1)+"/was_placed", n)
		}
	}
	each := func(n int) func() bool {
		return func() bool {
			return !slices.ContainsFunc(hook.of(keys, false), func(told []int) bool { return len(told) < n })
		}
	}
	await(t, "an event of each order is told", each(1))
	begun := restart()
	letGo()
	within(begun, "the deliveries go on", each(4))
	for i, told := range hook.of(keys, true) {
		if !slices.Equal(told, []int{0, 0, 1, 2}) {
			t.Errorf("the events of %s were told as %v", keys[i], told)
		}
	}

	// A replay.
	letGo = hook.hold()
	if s := requested(
		t, p, "POST", "prod", "/_admin/listeners/hook/replay", operatorToken(t, p), `{"after":"0"}`, nil,
	); s != http.StatusAccepted {
		t.Fatalf("replay: %d", s)
	}
	await(t, "an event of each order is told again", each(1))
	begun = restart()
	letGo()
	within(begun, "the replay goes on", each(4))
	for i, told := range hook.of(keys, true) {
		if !slices.Equal(told, []int{0, 0, 1, 2}) {
			t.Errorf("the events of %s were told again as %v", keys[i], told)
		}
	}

	// Scheduled events.
	const alarms = 60
	for n := range alarms {
		post("/alarm/"+holderID(1)+"/was_set", n)
	}
	rung := func() (numbers []int) {
		for _, e := range allEvents(t, p) {
			if e.Type == "was_rung" {
				numbers = append(numbers, e.Data.N)
			}
		}
		return numbers
	}
	client := &http.Client{}
	moved := make(chan int, 1)
	token := operatorToken(t, p)
	moving := p
	go func() { moved <- postTo(client, moving, "/_dev/clock/advance", token, `{"by":"6m"}`) }()
	await(t, "a bell is rung", func() bool { return len(rung()) > 0 })
	begun = restart()
	<-moved
	within(begun, "the scheduled events go on", func() bool { return len(rung()) >= alarms })
	want := make([]int, 0, alarms)
	for n := range alarms {
		want = append(want, n)
	}
	if got := rung(); !slices.Equal(got, want) {
		t.Errorf("bells were rung in the order %v", got)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
