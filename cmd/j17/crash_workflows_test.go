package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/uuid"
)

// workflowSpec is of orders: each is told to a listener, starts a saga of three steps, and schedules a reminder.
const workflowSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {
		"order": {"events": {"was_placed": {"allow_skip_occ": true, "schema": {"type": "object"}, "handler": [{"set": {"target": "", "value": "$.data"}}],
			"implications": [{"schedule": {"delay": "5m", "emit": {"aggregate_type": "reminder", "id": "$.key", "event_type": "was_sent", "data": {}}}}]}}},
		"reminder": {"events": {"was_sent": {"schema": {"type": "object"}, "handler": [{"increment": {"target": "n", "by": 1}}]}}},
		"work": {"events": {%s}}
	},
	"modules": {"sagas": {"fulfilment": {
		"trigger": {"aggregate_type": "order", "event_type": "was_placed"},
		"steps": [
			{"name": "reserve", "emit": {"aggregate_type": "work", "id": "$.key", "event_type": "was_reserved", "data": {}}},
			{"name": "charge", "emit": {"aggregate_type": "work", "id": "$.key", "event_type": "was_charged", "data": {}}},
			{"name": "pack", "emit": {"aggregate_type": "work", "id": "$.key", "event_type": "was_packed", "data": {}}}
		],
		"on_complete": {"aggregate_type": "work", "id": "$.key", "event_type": "was_done", "data": {}}
	}}},
	"listeners": {"all": {"url": %q, "events": ["order.*", "reminder.*", "work.*"]}}
}`

// receiver is an endpoint that listeners tell. Until it is well it refuses one request in nine, and all about some
// events.
type receiver struct {
	mu      sync.Mutex
	heard   map[string]int // by stream_id
	asked   int
	refuses func(key string) bool
	well    atomic.Bool
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var message struct {
		Event struct {
			StreamID string `json:"stream_id"`
			Key      string `json:"key"`
		} `json:"event"`
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(body, &message)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked++; err != nil || !r.well.Load() && (r.asked%9 == 0 || r.refuses(message.Event.Key)) {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.heard[message.Event.StreamID]++
}

// unheard returns the events of which the receiver was not told.
func (r *receiver) unheard(all []storedEvent) (missing []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range all {
		if r.heard[e.StreamID] == 0 {
			missing = append(missing, e.Key+" "+e.Type+" "+e.StreamID)
		}
	}
	return missing
}

type storedEvent struct {
	StreamID string `json:"stream_id"`
	Key      string `json:"key"`
	Type     string `json:"type"`
	Data     struct {
		N int `json:"n"`
	} `json:"data"`
}

// TestKillKeepsPromises kills the server with SIGKILL at random moments while orders are placed and the clock is moved,
// again and again on the same data folder. In the end a listener was told of each committed event, or its delivery
// stands as failed and one replay of what has failed tells it; each schedule has fired once; and no saga has repeated a
// step or left one out.
func TestKillKeepsPromises(t *testing.T) {
	dir := t.TempDir()
	hook, specFile := tellingOrders(t, dir)
	start := func() *process {
		t.Helper()
		p, err := startDev(t, dir, specFile, "--data", filepath.Join(dir, "data"), "--allow-private-listeners")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var acked atomic.Int64
	for range rounds(2, 50) {
		p := start()
		placeUntilKilled(t, p, rng.IntN(60)+20, &acked)
	}

	settleWorkflows(t, start(), hook, acked.Load())
}

// tellingOrders starts a receiver and writes a spec whose events it is told of.
func tellingOrders(t *testing.T, dir string) (hook *receiver, specFile string) {
	t.Helper()
	hook = &receiver{heard: map[string]int{}}
	hook.refuses = func(key string) bool { return strings.HasSuffix(key, "7") && strings.HasPrefix(key, "order:") }
	endpoint := httptest.NewServer(hook)
	t.Cleanup(endpoint.Close)
	var events []string
	for _, name := range []string{"was_reserved", "was_charged", "was_packed", "was_done"} {
		events = append(events, fmt.Sprintf(`%q: {"schema": {"type": "object"}, "handler": [{"append": {"target": "log", "value": %q}}]}`, name, name))
	}
	specFile = filepath.Join(dir, "spec.json")
	if err := os.WriteFile(
		specFile, fmt.Appendf(nil, workflowSpec, strings.Join(events, ", "), endpoint.URL), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	return hook, specFile
}

// settleWorkflows moves the clock of a server until all is done, in 72 hours even what was refused again and again, and
// checks what became of the orders, of which as many as acked were acknowledged. It ends the server.
func settleWorkflows(t *testing.T, p *process, hook *receiver, acked int64) {
	t.Helper()
	token := operatorToken(t, p)
	for _, by := range []string{"10m", "72h"} {
		if s := requested(
			t, p, "POST", "prod", "/_dev/clock/advance", token, `{"by":"`+by+`"}`, nil,
		); s != http.StatusOK {
			t.Fatalf("moving the clock by %s: %d", by, s)
		}
	}
	all := allEvents(t, p)
	if orders := checkWorkflows(t, all); int64(orders) < acked {
		t.Errorf("%d orders were acknowledged, %d are there", acked, orders)
	}
	checkTold(t, p, hook, all)
	checkProof(t, p)
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Log(p.err.String())
	}
}

// placeUntilKilled places orders and moves the clock until the server is killed after so many of them.
func placeUntilKilled(t *testing.T, p *process, after int, acked *atomic.Int64) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	token := operatorToken(t, p)
	place := func() bool {
		if postTo(client, p, "/order/"+uuid.New().String()+"/was_placed", p.ready.Keys["prod"].Write,
			`{"data":{},"metadata":{"actor":{"type":"user","id":"global"},"skip_occ":true}}`) != http.StatusCreated {
			return false
		}
		acked.Add(1)
		return true
	}
	untilKilled(t, p, after, slices.Repeat([]func() bool{place}, 8), []func() bool{
		func() bool { return postTo(client, p, "/_dev/clock/advance", token, `{"by":"2m"}`) == http.StatusOK },
	})
	client.CloseIdleConnections()
}

// untilKilled lets writers write and others do what they do, each again and again until it says that it cannot, and
// kills the server when the writers have written so often.
func untilKilled(t *testing.T, p *process, after int, writers, others []func() bool) {
	t.Helper()
	written := make(chan struct{}, 1000)
	ended := make(chan struct{})
	var work, writing sync.WaitGroup
	for _, write := range writers {
		writing.Go(func() {
			for write() {
				select {
				case written <- struct{}{}:
				case <-ended:
				}
			}
		})
	}
	for _, other := range others {
		work.Go(func() {
			for other() {
			}
		})
	}
	idle := make(chan struct{})
	work.Go(func() {
		writing.Wait()
		close(idle)
	})
	writes := 0
	for stopped := false; writes < after && !stopped; {
		select {
		case <-written:
			writes++
		case <-idle:
			stopped = true
		}
	}
	err := p.end(syscall.SIGKILL)
	close(ended)
	work.Wait()
	switch {
	case err == nil:
		t.Fatal("the server ended by itself")
	case writes < after:
		t.Fatalf("nothing is written any more\n%s", p.err.String())
	}
}

// postTo sends a request to the environment prod and returns the status, 0 where there was no answer.
func postTo(client *http.Client, p *process, path, token, body string) int {
	status, _ := askOf(client, p, http.MethodPost, "prod", path, token, body)
	return status
}

// askOf sends a request to one of the server's hosts and returns the status and the body, 0 where there was no answer.
func askOf(client *http.Client, p *process, method, site, path, token, body string) (status int, answer []byte) {
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	req.Host = strings.TrimPrefix(p.ready.URLs[site], "http://")
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if answer, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, answer
}

// operatorToken logs the operator of a development server in.
func operatorToken(t *testing.T, p *process) string {
	t.Helper()
	var login struct {
		Token string `json:"token"`
	}
	body := `{"email":"` + p.ready.Operator.Email + `","password":"` + p.ready.Operator.Password + `"}`
	if s := requested(t, p, "POST", "control", "/api/login", "", body, &login); s != http.StatusOK {
		t.Fatalf("login: %d", s)
	}
	return login.Token
}

// allEvents returns all events of the environment prod.
func allEvents(t *testing.T, p *process) (all []storedEvent) {
	t.Helper()
	for after := "0"; ; {
		var page struct {
			Events []storedEvent `json:"events"`
			Next   *string       `json:"next"`
		}
		if s := requested(
			t, p, "GET", "prod", "/_events?count=1000&after="+after, p.ready.Keys["prod"].Read, "", &page,
		); s != http.StatusOK {
			t.Fatalf("the feed: %d", s)
		}
		all = append(all, page.Events...)
		if page.Next == nil {
			return all
		}
		after = *page.Next
	}
}

// checkWorkflows checks that each order has one reminder and one saga with all its steps, and returns how many orders
// there are.
func checkWorkflows(t *testing.T, all []storedEvent) (orders int) {
	t.Helper()
	of := map[string][]string{}
	for _, e := range all {
		of[e.Key] = append(of[e.Key], e.Type)
	}
	var wrong []string
	for key := range of {
		_, id, _ := strings.Cut(key, ":")
		order, reminder, work := of["order:"+id], of["reminder:"+id], of["work:"+id]
		if strings.HasPrefix(key, "order:") {
			orders++
		}
		if !slices.Equal(order, []string{"was_placed"}) || !slices.Equal(reminder, []string{"was_sent"}) ||
			!slices.Equal(work, []string{"was_reserved", "was_charged", "was_packed", "was_done"}) {
			wrong = append(wrong, fmt.Sprintf("%s: %v, reminders %v, work %v", key, order, reminder, work))
		}
	}
	if len(wrong) > 0 {
		t.Errorf("%d of %d aggregates are wrong, such as %v", len(wrong), len(of), wrong[:min(len(wrong), 5)])
	}
	return orders
}

// checkTold checks that a listener was told of all events, but for those whose deliveries have failed, and that a
// replay tells them.
func checkTold(t *testing.T, p *process, hook *receiver, all []storedEvent) {
	t.Helper()
	token := operatorToken(t, p)
	missing := hook.unheard(all)
	hook.well.Store(true)
	if len(missing) == 0 {
		return
	}
	var replay struct {
		Count int `json:"count"`
	}
	s := requested(
		t, p, "POST", "prod", "/_admin/listeners/all/replay", token, `{"after":"0","only":"failed"}`, &replay,
	)
	// A try that the receiver has heard may have been lost with its answer, so there may be more.
	if s != http.StatusAccepted || replay.Count < len(missing) {
		t.Errorf("a replay of what has failed: %d, %d events; the listener was not told of %d, such as %v", s, replay.Count, len(missing), missing[:min(len(missing), 5)])
	}
	if s := requested(t, p, "POST", "prod", "/_dev/clock/advance", token, `{"by":"12h"}`, nil); s != http.StatusOK {
		t.Errorf("moving the clock: %d", s)
	}
	if left := hook.unheard(all); len(left) > 0 {
		t.Errorf("after the replay the listener was not told of %v", left)
	}
}

// checkProof checks what a server says about its subscriptions: it has compared what they have passed with the feed,
// and found no gap.
func checkProof(t *testing.T, p *process) {
	t.Helper()
	text := metrics(t, p)
	if !bytes.Contains(text, []byte("\nj17_subscription_gaps_total 0\n")) ||
		!bytes.Contains(text, []byte("\nj17_subscription_checks_total ")) ||
		bytes.Contains(text, []byte("\nj17_subscription_checks_total 0\n")) {
		t.Errorf("the proof of subscriptions:\n%s", text)
	}
}

// metrics returns what a server prints for Prometheus.
func metrics(t *testing.T, p *process) []byte {
	t.Helper()
	resp, err := http.Get(p.ready.URLs["internal"] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	return text
}
