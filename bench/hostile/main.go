// Command hostile measures what a light client of a server notices while others send it the worst that they may. It
// starts a development server of its own on loopback, and everything ends with it.
//
//	go run ./bench/hostile -bin bin/j17 -time 20s
//
// Eight connections send, in turn: bodies of ten million digits, reads that fold everything anew, pages of large
// events, implications over large arrays, lists of rows that are products of large arrays, one such row, polygons of
// ten thousand vertices over many points, bodies that are announced and never sent. One client writes small events to
// an environment of its own. The result is one line of JSON; the exit code is 1 when the light client's p99 or the
// memory is over its bound.
//
//	go run ./bench/hostile -bin bin/j17 -case lists
//
// measures one thing that costs much (cases.go): what of the processor and of the memory it takes, and the light client
// beside it.
//
//	go run ./bench/hostile -bin bin/j17 -case erase -size 1000000
//
// measures one kind of long work by itself (long.go has them): the line has its time, its processor time, the memory,
// and what a light client of another environment noticed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"j17/bench/devserver"
)

// The bounds that docs/operations.md promises.
const (
	maxLatency = 100 * time.Millisecond
	maxMemory  = 512 // MiB above idle
)

const hostileSpec = `{"agent_types": ["user"], "aggregate_types": {
	"pile": {"events": {"was_piled": {"schema": {"type": "object"}, "handler": [{"append": {"target": "log", "value": "$.data"}}]}}},
	"sum": {"events": {"was_added": {"schema": {"type": "object"}, "handler": [{"increment": {"target": "n", "by": "$.data.by"}}]}}},
	"item": {"events": {"was_made": {"schema": {"type": "object"}, "geo": {"type": "point", "path": "$.data.at"}, "handler": [{"set": {"target": "xs", "value": "$.data.xs"}}]}}},
	"pick": {"events": {
		"had_known": {"schema": {"type": "object"}, "handler": [{"set": {"target": "known", "value": "$.data.ids"}}]},
		"was_picked": {"schema": {"type": "object"}, "handler": [], "implications": [{"map": {"in": "$.data.ids", "as": "$i", "condition": {"in": ["$i", "@.known"]},
			"emit": {"aggregate_type": "sum", "id": "global", "event_type": "was_added", "data": {"by": 1}}}}]}}}
}, "projections": {"crossed": {"for_each": "item", "sources": {"item": "$key"}, "select": {"all": {
	"$map": "$.item.xs", "as": "$a", "to": {"$map": "$.item.xs", "as": "$b", "to": {"$map": "$.item.xs", "as": "$c", "to": "$c"}}}}}}}`

const actor = `"metadata":{"actor":{"type":"user","id":"global"}}`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		stop()
		os.Exit(1)
	}
}

// target is the server under test.
type target struct {
	*devserver.Server

	client *http.Client
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("hostile", flag.ContinueOnError)
	bin := flags.String("bin", "j17", "the program to start")
	long := flags.Duration("time", 20*time.Second, "how long to attack")
	connections := flags.Int("connections", 8, "how many connections attack")
	one := flags.String("case", "", "measure one of "+caseNames()+", or a kind of long work, in place of all kinds of requests")
	size := flags.Int("size", 100_000, "how large long work is")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if work, ok := costlies()[*one]; ok {
		return runLong(ctx, *bin, *one, work, *size, out)
	}
	if *one != "" {
		return runCase(ctx, *bin, *one, out)
	}
	ctx, cancel := context.WithTimeout(ctx, *long+2*time.Minute)
	defer cancel()
	// Blocks of stored data have as little as they ever have: how many of them fill it up is not what is measured here.
	server, err := devserver.Start(ctx, *bin, hostileSpec, "--store-cache", "96")
	if err != nil {
		return err
	}
	defer server.End()
	t := &target{server, &http.Client{Transport: &http.Transport{MaxConnsPerHost: 0}}}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	idle, err := t.Memory("VmRSS")
	if err != nil {
		return err
	}

	// The attack, and the light client beside it.
	attack, over := context.WithTimeout(ctx, *long)
	defer over()
	var wg sync.WaitGroup
	answers := newTally()
	for n := range *connections {
		wg.Go(func() { t.attack(attack, n, answers) })
	}
	latencies := t.light(attack)
	wg.Wait()
	peak, err := t.Memory("VmHWM")
	if err != nil {
		return err
	}
	if len(latencies) == 0 {
		return errors.New("the light client had no answer at all")
	}
	slices.Sort(latencies)
	p99 := latencies[len(latencies)*99/100]
	result := map[string]any{
		"light_requests": len(latencies), "light_p50_ms": milliseconds(latencies[len(latencies)/2]),
		"light_p99_ms": milliseconds(p99),
		"light_max_ms": milliseconds(latencies[len(latencies)-1]), "idle_mib": idle, "peak_mib": peak,
		"answers": answers.counts,
	}
	if err := json.NewEncoder(out).Encode(result); err != nil {
		return err
	}
	if p99 > maxLatency || peak-idle > maxMemory {
		return fmt.Errorf("over a bound: p99 %v (at most %v), %d MiB above idle (at most %d)", p99, maxLatency, peak-idle, maxMemory)
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// send sends a request to an environment and returns the status of the answer, whose body is read and forgotten.
func (t *target) send(ctx context.Context, env, method, path string, body io.Reader) (int, error) {
	r, err := t.Request(ctx, env, method, path, body)
	if err != nil {
		return 0, err
	}
	resp, err := t.client.Do(r)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body) // it may be cut off by the end
	return resp.StatusCode, resp.Body.Close()
}

// prepare writes what the reads of the attack read.
func (t *target) prepare(ctx context.Context) error {
	large := fmt.Sprintf(`{"data":{"t":%q},%s}`, strings.Repeat("x", 900_000), actor)
	many := `{"events":[` + strings.TrimSuffix(
		strings.Repeat(`{"type":"was_added","data":{"by":1}},`, 10_000), ",",
	) + `],` + actor + `}`
	writes := []struct{ path, body string }{
		{"/pick/global/had_known", `{"data":{"ids":` + numbers(40_000, 0) + `},` + actor + `}`},
	}
	for range 20 {
		writes = append(
			writes, struct{ path, body string }{"/pile/global/was_piled", large},
			struct{ path, body string }{"/sum/global", many},
		)
	}
	items := `{"events":[` + strings.TrimSuffix(
		strings.Repeat(`{"type":"was_made","data":{"xs":`+numbers(1000, 0)+`,"at":{"lat":52,"lng":13}}},`, 2), ",",
	) + `],` + actor + `}`
	for n := range rows {
		writes = append(writes, struct{ path, body string }{"/item/" + item(n), items})
	}
	for _, w := range writes {
		if status, err := t.send(ctx, "prod", http.MethodPost, w.path, strings.NewReader(w.body)); err != nil ||
			status != http.StatusCreated {
			return fmt.Errorf("preparing %s: %d %w", w.path, status, err)
		}
	}
	return nil
}

// rows is how many rows there are, each of them more than a reply may cost.
const rows = 500

// item is the id of one of them.
func item(n int) string { return fmt.Sprintf("7c0f6a38-91b2-4d6e-8f57-2b4e1a9%05d", n) }

// circle is an area of so many vertices around the items, as GeoJSON.
func circle(vertices int) string {
	var b strings.Builder
	b.WriteString(`{"type":"Polygon","coordinates":[[`)
	for i := range vertices + 1 {
		at := 2 * math.Pi * float64(i%vertices) / float64(vertices)
		fmt.Fprintf(&b, "%s[%.9f,%.9f]", strings.Repeat(",", min(i, 1)), 13+math.Cos(at), 52+math.Sin(at))
	}
	return b.String() + "]]}"
}

// numbers is an array of n different numbers from first on.
func numbers(n, first int) string {
	b := []byte{'['}
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(first+i), 10)
	}
	return string(append(b, ']'))
}

// silent is a body of which nothing comes before ctx ends.
type silent struct{ ctx context.Context } //nolint:containedctx // lives as long as one request

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// attack sends the worst of each kind, one after the other, beginning with the nth.
func (t *target) attack(ctx context.Context, n int, answers *tally) {
	digits := `{"events":[{"type":"was_piled","data":{"t":[` + strings.Repeat("0,", 1<<20) + `0]}}],` + actor + `}`
	picks := `{"data":{"ids":` + numbers(40_000, 1_000_000) + `},` + actor + `}`
	kinds := []struct{ name, method, path, body string }{
		{"digits", http.MethodPost, "/pile/_new", digits},
		{"page", http.MethodGet, "/pile/global/events?count=1000", ""},
		{"replay", http.MethodGet, "/sum/global?synchronous=true", ""},
		{"past", http.MethodGet, "/sum/global?length=199999", ""},
		{"implications", http.MethodPost, "/pick/global/was_picked", picks},
		{"state", http.MethodGet, "/pile/global?synchronous=true", ""},
		{"rows", http.MethodGet, "/_projections/crossed?count=1000", ""},
		{"row", http.MethodGet, "/_projections/crossed/" + item(0), ""},
		{"within", http.MethodPost, "/item/within?count=1000", circle(9_999)},
		{"announced", http.MethodPost, "/pile/global", "-"},
	}
	for ; ctx.Err() == nil; n++ {
		k := kinds[n%len(kinds)]
		var body io.Reader = strings.NewReader(k.body)
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		if k.body == "-" {
			cancel()
			one, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
			body = io.MultiReader(bytes.NewReader(bytes.Repeat([]byte(" "), 20_000)), silent{one})
		}
		status, err := t.send(one, "prod", k.method, k.path, body)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			answers.add(k.name + " none")
		case err == nil:
			answers.add(k.name + " " + strconv.Itoa(status))
		}
	}
}

// light writes small events until ctx ends and returns how long each took.
func (t *target) light(ctx context.Context) []time.Duration {
	var took []time.Duration
	for ctx.Err() == nil {
		began := time.Now() //nolint:forbidigo // this program measures the real time
		status, err := t.send(
			ctx, "staging", http.MethodPost, "/sum/_new/was_added", strings.NewReader(`{"data":{"by":1},`+actor+`}`),
		)
		if err == nil && status == http.StatusCreated {
			took = append(took, time.Since(began)) //nolint:forbidigo // as above
		}
	}
	return took
}

// tally counts answers by kind and status.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func newTally() *tally { return &tally{counts: map[string]int{}} }

func (t *tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[what]++
}
