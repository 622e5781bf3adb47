package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// reshaper deploys one spec after the other, each of which reads all stored events in another way, while others write.
type reshaper struct {
	instance string
	// texts are the texts that the steps of the present spec take for a number, beside numbers; number counts the
	// specs.
	texts  []string
	number int
	// last is the spec that was acknowledged last, tried are those that were sent since.
	last  string
	tried []string
	// deployed counts the specs that were deployed beside an import, imported the imports that came before one, and
	// refused the specs that came too late.
	deployed, imported, refused int
	// broken says what must not be.
	broken atomic.Pointer[string]

	mu sync.Mutex
	// acked are the values of "w" of events that were acknowledged.
	acked []string
	next  atomic.Int64
}

// spec is a spec whose steps make numbers of texts, and know what some texts stand for.
func (r *reshaper) spec(texts []string) string {
	r.number++
	var of []string
	for _, text := range texts {
		of = append(of, fmt.Sprintf(`[%q,"0"]`, text))
	}
	return fmt.Sprintf(`{"agent_types":["user"],"aggregate_types":{"order":{"events":{"was_placed":{"allow_skip_occ":true,
		"generations":{"1":{"schema":{"type":"object","required":["n","w"]},"upcast":[
			{"set":{"target":"n","value":{"$number":{"$case":"@.n","of":[["none","0"]%s],"else":"@.n"}}}},
			{"move":{"from":"n","to":"m"}},{"set":{"target":"by","value":%d}}]}},
		"schema":{"type":"object","properties":{"m":{"type":"number"}},"required":["m","w"]},
		"handler":[{"increment":{"target":"sum","by":1}}]}}}}}`, strings.Join(append([]string{""}, of...), ","), r.number)
}

// deploy deploys a spec if another one is deployed, and returns the status, 0 for no answer.
func (r *reshaper) deploy(client *http.Client, p *process, token, spec, over string) int {
	req, err := http.NewRequest(http.MethodPost, p.url+"/api/instances/"+r.instance+"/spec?environment=prod",
		strings.NewReader(spec))
	if err != nil {
		return 0
	}
	req.Host = strings.TrimPrefix(p.ready.URLs["control"], "http://")
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("If-Match", `"`+hashOf(over)+`"`)
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close() //nolint:errcheck // only its status counts
	return resp.StatusCode
}

func hashOf(spec string) string {
	sum := sha256.Sum256([]byte(spec))
	return hex.EncodeToString(sum[:])
}

// past is a line of an event of the first generation that happened before.
func (r *reshaper) past(n int, text, w string) string {
	return fmt.Sprintf(`{"key":"order:%s","type":"was_placed","data":{"n":%q,"w":%q},"metadata":{"actor":{"type":"user","id":"global"},"timestamp":1700000000}}`+"\n", holderID(n), text, w)
}

func (r *reshaper) acknowledge(w string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked = append(r.acked, w)
}

// write returns a writer in a generation.
func (r *reshaper) write(client *http.Client, p *process, older bool) func() bool {
	return func() bool {
		n := r.next.Add(1)
		w := fmt.Sprint("w", n)
		body := fmt.Sprintf(`{"data":{"m":1,"w":%q},"metadata":{"actor":{"type":"user","id":"global"},"skip_occ":true}}`, w)
		if older {
			body = fmt.Sprintf(`{"data":{"n":"1","w":%q},"metadata":{"actor":{"type":"user","id":"global"},"skip_occ":true,"generation":1}}`, w)
		}
		status := postTo(client, p, "/order/"+holderID(int(n%50))+"/was_placed", p.ready.Keys["prod"].Write, body)
		if status == http.StatusCreated {
			r.acknowledge(w)
		}
		return status == http.StatusCreated || status == http.StatusServiceUnavailable
	}
}

// round deploys a spec that does not know a text while an event with that text is imported, and another one at the same
// time over the same spec; and then one that knows the text. It reports false when the server is gone.
func (r *reshaper) round(client *http.Client, p *process, token string) func() bool {
	return func() bool {
		fresh := fmt.Sprint("text ", r.number)
		strict, rival := r.spec(r.texts), r.spec(r.texts)
		r.tried = append(r.tried, strict, rival)
		var statuses [3]int
		var all sync.WaitGroup
		for i, spec := range []string{strict, rival} {
			all.Go(func() { statuses[i] = r.deploy(client, p, token, spec, r.last) })
		}
		all.Go(func() {
			statuses[2], _ = askOf(client, p, http.MethodPost, "prod", "/_admin/import_jsonl?generation=1", token,
				r.past(60, fresh, fresh))
		})
		all.Wait()
		for _, status := range statuses[:2] {
			if status == http.StatusPreconditionFailed {
				r.refused++
			}
		}
		deployed := statuses[0] == http.StatusCreated || statuses[1] == http.StatusCreated
		imported := statuses[2] == http.StatusOK || statuses[2] == http.StatusCreated
		switch {
		case statuses[0] == http.StatusCreated && statuses[1] == http.StatusCreated:
			r.broken.Store(new("two specs were deployed over the same one"))
		case statuses[0] == http.StatusCreated:
			r.last, r.tried = strict, nil
		case statuses[1] == http.StatusCreated:
			r.last, r.tried = rival, nil
		}
		if deployed {
			r.deployed++
		}
		if imported {
			r.imported++
			r.texts = append(r.texts, fresh)
			r.acknowledge(fresh)
		}
		if deployed && imported {
			r.broken.Store(new("an event was imported that the deployed spec cannot read: " + fmt.Sprint(statuses)))
		}
		if statuses[0] == 0 || statuses[1] == 0 || statuses[2] == 0 {
			r.texts = append(r.texts, fresh) // it may be there
			return false
		}

		// What takes the next text.
		next := r.spec(append(r.texts, fmt.Sprint("text ", r.number+1)))
		r.tried = append(r.tried, next)
		status := r.deploy(client, p, token, next, r.last)
		if status == http.StatusCreated {
			r.last, r.tried = next, nil
		}
		return status != 0
	}
}

// settle looks at what is there: the spec that was acknowledged last or one that was sent later, and each event that
// was acknowledged, once, and readable.
func (r *reshaper) settle(t *testing.T, p *process, token string) {
	t.Helper()
	if what := r.broken.Load(); what != nil {
		t.Fatal(*what)
	}
	var now struct{ Deployment struct{ Hash string } }
	if s := requested(
		t, p, "GET", "control", "/api/instances/"+r.instance+"/spec?environment=prod", token, "", &now,
	); s != http.StatusOK {
		t.Fatalf("the spec: %d", s)
	}
	found := ""
	for _, spec := range append(r.tried, r.last) {
		if hashOf(spec) == now.Deployment.Hash {
			found = spec
		}
	}
	if found == "" {
		t.Fatal("another spec is deployed than was sent last")
	}
	r.last, r.tried = found, nil

	there := map[string]int{}
	for after := "0"; ; {
		var page struct {
			Events []struct {
				Data struct {
					M *float64
					W string
				}
			}
			Error string
			Next  *string
		}
		if s := requested(
			t, p, "GET", "prod", "/_events?count=1000&after="+after, p.ready.Keys["prod"].Read, "", &page,
		); s != http.StatusOK {
			t.Fatalf("the feed: %d %s", s, page.Error)
		}
		for _, ev := range page.Events {
			if there[ev.Data.W]++; ev.Data.M == nil {
				t.Errorf("%s is not in the newest generation", ev.Data.W)
			}
		}
		if page.Next == nil {
			break
		}
		after = *page.Next
	}
	for _, w := range r.acked {
		if there[w] != 1 {
			t.Errorf("%s was acknowledged, and is there %d times", w, there[w])
		}
	}
	var generations struct{ Trial struct{ Events, Failed int } }
	if s := requested(
		t, p, "GET", "prod", "/_admin/generations", token, "", &generations,
	); s != http.StatusOK || generations.Trial.Failed != 0 || generations.Trial.Events == 0 {
		t.Errorf("the trial: %d %+v", s, generations)
	}
}

// TestKillWhileEventsAreTried kills the server while specs are deployed that read all stored events in another way, at
// moments that come during a trial, at the switch and behind it, with writers in two generations and imports of older
// events: then the old spec or the new one is deployed, each acknowledged event is there and can be read, and no spec
// was deployed under which one of them cannot.
func TestKillWhileEventsAreTried(t *testing.T) {
	dir := t.TempDir()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 12}}
	start := func() (*process, string) {
		t.Helper()
		p, err := startDev(t, dir, "--data", filepath.Join(dir, "data"))
		if err != nil {
			t.Fatal(err)
		}
		return p, operatorToken(t, p)
	}
	p, token := start()
	r := &reshaper{instance: p.ready.Instance.ID}
	r.last = r.spec(nil)
	path := "/api/instances/" + r.instance + "/spec?environment=prod"
	if s := requested(t, p, "POST", "control", path, token, r.last, nil); s != http.StatusCreated {
		t.Fatalf("the first spec: %d", s)
	}
	var lines strings.Builder
	for n := range 3000 {
		w := fmt.Sprint("old ", n)
		lines.WriteString(r.past(n%50, fmt.Sprint(n), w))
		r.acked = append(r.acked, w)
	}
	if s := requested(
		t, p, "POST", "prod", "/_admin/import_jsonl?generation=1", token, lines.String(), nil,
	); s >= 300 {
		t.Fatalf("the import: %d", s)
	}

	for round := range rounds(2, 50) {
		writers := []func() bool{
			r.write(client, p, true), r.write(client, p, true), r.write(client, p, false), r.write(client, p, false),
		}
		untilKilled(t, p, 40+round*67%400, writers, []func() bool{r.round(client, p, token)})
		client.CloseIdleConnections()
		p, token = start()
		r.settle(t, p, token)
	}

	// Once more without an end, since a slow machine may have come to nothing before each of the others.
	if !r.round(client, p, token)() {
		t.Error("the server does not answer")
	}
	r.settle(t, p, token)
	t.Logf("%d specs were deployed beside imports, %d imports came first, %d specs were too late", r.deployed, r.imported, r.refused)
	if r.deployed+r.imported == 0 {
		t.Error("no spec was deployed, and nothing imported")
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
