// Package stores_test measures the server on its stores beside each other: the embedded one, a PostgreSQL server, and
// three PostgreSQL servers of which two confirm each commit. `make bench-postgres` runs it.
package stores_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"j17/bench/devserver"
	"j17/internal/base/clock"
	"j17/internal/storage/postgres/pgtest"
)

const (
	actor = `"metadata":{"actor":{"type":"customer","id":"550e8400-e29b-41d4-a716-446655440003"}}`
	order = `{"data":{"customer_id":"550e8400-e29b-41d4-a716-446655440003","currency":"EUR","lines":[{"sku":"LAMP-2","title":"Desk lamp","unit_price":39.90,"quantity":1}]},` + actor + `}`

	// lists is a projection with five indexes. Its rows are the items that are loaded first.
	lists = `{"name": "items", "for_each": "item", "sources": {"item": "$key"}, "select": {"name": "$.item.name", "price": "$.item.price", "shop": "$.item.shop"},
		"index": [["shop", "price"], "name", "price", "shop", ["price", "name"]]}`

	// callers is how many requests are in progress at a time.
	callers = 64
	// shops is how many values the rows of a list have in common.
	shops = 10
)

// engine is a server on one of the stores.
type engine struct {
	*devserver.Server

	name   string
	client *http.Client
	// databases are the PostgreSQL servers of its store; the first one is the primary.
	databases []*pgtest.Server
	rows      int
	// importing is how long it took to load the rows.
	importing time.Duration
}

// result is what a turn of requests has come to.
type result struct {
	// rate is in requests per second. node and database are the processor time per request of the server and of all
	// PostgreSQL servers, p99 is the 99th percentile of how long a request took.
	rate                float64
	node, database, p99 time.Duration
}

// kind is a kind of requests.
type kind struct {
	name string
	// least is the least ratio of the rate on PostgreSQL to that of the embedded engine, "" where it has none.
	least string
	// request returns the n-th request: its method, path and body.
	request func(e *engine, n int) (method, path, body string)
}

func kinds() []kind {
	post := func(path, body string) (string, string, string) { return http.MethodPost, path, body }
	get := func(path string) (string, string, string) { return http.MethodGet, path, "" }
	return []kind{
		{"write, distinct aggregates", "0.50", func(*engine, int) (string, string, string) {
			return post("/order/"+uuid.NewString()+"/was_placed", order)
		}},
		{"write, five lists", "0.25", func(e *engine, n int) (string, string, string) {
			return post("/item/"+id(n%e.rows)+"/was_made", `{"data":`+item(e.rows+n)+`,`+strings.TrimSuffix(actor,
				"}")+`,"skip_occ":true}}`)
		}},
		{"cached state", "0.50", func(*engine, int) (string, string, string) { return get("/order/ABC123XYZ") }},
		{"kept projection", "0.40", func(*engine, int) (string, string, string) {
			return get("/_projections/basket/ABC123XYZ")
		}},
		{"page of 50 of a list", "0.25", func(e *engine, n int) (string, string, string) {
			from := (n * 7919) % max(1, e.rows*9/10)
			return get(fmt.Sprintf("/_projections/items?shop=s%d&price.gte=%d&order=price&count=50", n%shops, from))
		}},
	}
}

func id(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(n)*2654435761, n) }

func item(n int) string {
	return fmt.Sprintf(`{"name":"Item %d","price":%d,"shop":"s%d"}`, n%9973, n, n%shops)
}

// TestServers prints two tables: ratios of requests to PostgreSQL and to the embedded engine, and the rates on each
// store. No result is a failure, since other load on the machine changes the numbers.
func TestServers(t *testing.T) {
	if os.Getenv("J17_BENCH") == "" {
		t.Skip("NOT TESTED: it measures, and is run by make bench-postgres")
	}
	rounds, rows := number(t, "ROUNDS", 3), number(t, "ROWS", 1_000_000)
	each, err := time.ParseDuration(cmp.Or(os.Getenv("EACH"), "3s"))
	if err != nil {
		t.Fatal(err)
	}
	single, cluster := pgtest.Start(t), pgtest.StartCluster(t, 3)
	program := build(t)
	on := func(s *pgtest.Server, more ...string) []string {
		address, password := withoutPassword(t, s.Address())
		return append([]string{
			"--store", address, "--store-password-file", password, "--store-schema", s.Schema(t),
		}, more...)
	}
	engines := []*engine{
		start(t, program, "embedded", rows, nil),
		start(t, program, "PostgreSQL", rows, []*pgtest.Server{single}, on(single, "--store-allow-single")...),
		start(t, program, "1 of 2 standbys", rows/10, cluster.Servers, on(cluster.Primary())...),
		start(
			t, program, "the same, quorum", rows/10, cluster.Servers,
			on(cluster.Primary(), "--store-reads", "quorum")...,
		),
	}

	// Measure in turns. The median of the rounds counts.
	ratios := tabwriter.NewWriter(t.Output(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(ratios, "PostgreSQL to embedded\tratio\tat least\t99th percentile, times")
	rates := tabwriter.NewWriter(t.Output(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(rates, "requests\tstore\ta second\t99th percentile\tµs node\tdatabase")
	for _, k := range kinds() {
		results := make([][]result, len(engines))
		var shares, tails []float64
		for range rounds {
			for i, e := range engines {
				results[i] = append(results[i], e.measure(t, k, each))
			}
			embedded, postgres := results[0][len(results[0])-1], results[1][len(results[1])-1]
			shares = append(shares, postgres.rate/embedded.rate)
			tails = append(tails, float64(postgres.p99)/float64(embedded.p99))
		}
		_, _ = fmt.Fprintf(ratios, "%s\t%.2f\t%s\t%.1f\n", k.name, median(shares), k.least, median(tails))
		for i, e := range engines {
			slices.SortFunc(results[i], func(a, b result) int { return cmp.Compare(a.rate, b.rate) })
			r := results[i][len(results[i])/2]
			_, _ = fmt.Fprintf(
				rates, "%s\t%s\t%.0f\t%.1f ms\t%d\t%d\n", k.name, e.name, r.rate,
				float64(r.p99)/float64(time.Millisecond),
				r.node.Microseconds(), r.database.Microseconds(),
			)
		}
	}
	_, _ = fmt.Fprintf(
		ratios, "import of %d events\t%.2f\t0.20\t\n", rows,
		engines[0].importing.Seconds()/engines[1].importing.Seconds(),
	)
	for _, e := range engines {
		_, _ = fmt.Fprintf(
			rates, "import of %d events\t%s\t%.0f\t\t\t\n", e.rows, e.name, float64(e.rows)/e.importing.Seconds(),
		)
	}
	_ = ratios.Flush()
	_, _ = fmt.Fprintln(t.Output())
	_ = rates.Flush()
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// number returns the value of a variable of the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s is not a number of at least 1", name, text)
	}
	return n
}

// withoutPassword returns an address of a store without its password, and a file that has that.
func withoutPassword(t *testing.T, address string) (without, file string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	file = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	u.User = url.User(u.User.Username())
	return u.String(), file
}

// build builds the program as it is released.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "j17")
	c := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "../../cmd/j17")
	c.Env = append(c.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// start starts a server, loads rows of items, makes lists of them, and writes what the other requests read.
func start(
	t *testing.T, program, name string, rows int, databases []*pgtest.Server, flags ...string,
) *engine {
	t.Helper()
	spec, err := os.ReadFile("../spec.json")
	if err != nil {
		t.Fatal(err)
	}
	server, err := devserver.Start(t.Context(), program, string(spec), flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.End)
	e := &engine{
		Server: server, name: name, client: devserver.Client(clock.System{}), databases: databases, rows: rows,
	}
	began := now()
	if err := e.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.importing = now().Sub(began)
	if _, err := e.Administer(
		t.Context(), e.client, http.MethodPost, "projections", strings.NewReader(lists),
	); err != nil {
		t.Fatal(err)
	}
	system := clock.System{}
	for e.ask(t.Context(), http.MethodGet, "/_projections/items?shop=s0&order=price&count=1", "") != nil {
		if err := system.Wait(t.Context(), system.Now().Add(100*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}

	// An order, and a basket with its items.
	var lines []string
	for n := range 10 {
		lines = append(lines, fmt.Sprintf(`{"product_id":%q,"quantity":1}`, id(n)))
	}
	basket := fmt.Sprintf(
		`{"customer_id":%q,"shop_id":%q,"lines":[%s]}`, id(10), id(11), strings.Join(lines, ","), //nolint:mnd // the next ones
	)
	if err := errors.Join(
		e.ask(t.Context(), http.MethodPost, "/order/ABC123XYZ/was_placed", order),
		e.ask(t.Context(), http.MethodPost, "/basket/ABC123XYZ/was_made", `{"data":`+basket+`,`+actor+`}`),
	); err != nil {
		t.Fatal(err)
	}
	return e
}

func now() time.Time { return time.Now() }

// load fills the environment with an event for each row.
func (e *engine) load(ctx context.Context) error {
	from, to := io.Pipe()
	go func() {
		w := bufio.NewWriter(to)
		for n := range e.rows {
			_, _ = fmt.Fprintf(
				w, `{"key":"item:%s","type":"was_made","data":%s,"metadata":{"actor":{"type":"customer","id":"global"},"timestamp":%d}}`+"\n",
				id(n), item(n), 1_600_000_000+n/100, //nolint:mnd // a hundred a second
			)
		}
		_ = to.CloseWithError(w.Flush())
	}()
	answer, err := e.Administer(ctx, e.client, http.MethodPost, "cold_start", from)
	if err == nil && !json.Valid(answer) {
		err = fmt.Errorf("the import ends with %s", answer)
	}
	return err
}

// ask sends a request to the environment.
func (e *engine) ask(ctx context.Context, method, path, body string) error {
	r, err := e.Request(ctx, "prod", method, path, strings.NewReader(body))
	if err == nil {
		_, err = devserver.Answer(e.client, r)
	}
	return err
}

// next counts requests, so that each one of a kind differs from those before.
var next atomic.Int64

// measure has callers send requests of a kind for a time.
func (e *engine) measure(t *testing.T, k kind, each time.Duration) result {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), each)
	defer stop()
	node, database, began := e.node(t), e.database(t), now()
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var asking sync.WaitGroup
	for range callers {
		asking.Go(func() {
			var own []time.Duration
			var err error
			for err == nil && ctx.Err() == nil {
				method, path, body := k.request(e, int(next.Add(1)))
				sent := now()
				// A request in progress at the end is completed, so that no store is left with work.
				err = e.ask(t.Context(), method, path, body)
				own = append(own, now().Sub(sent))
			}
			mu.Lock()
			defer mu.Unlock()
			took, failed = append(took, own...), cmp.Or(failed, err)
		})
	}
	asking.Wait()
	if failed != nil {
		t.Fatalf("%s, %s: %v", k.name, e.name, failed)
	}
	slices.Sort(took)
	n := time.Duration(len(took))
	return result{
		rate: float64(n) / now().Sub(began).Seconds(), p99: took[len(took)*99/100], node: (e.node(t) - node) / n,
		database: (e.database(t) - database) / n,
	}
}

// node returns the processor time of the server so far.
func (e *engine) node(t *testing.T) time.Duration {
	t.Helper()
	took, err := e.Processor()
	if err != nil {
		t.Fatal(err)
	}
	return took
}

// database returns the processor time of the PostgreSQL servers so far.
func (e *engine) database(t *testing.T) (sum time.Duration) {
	t.Helper()
	for _, s := range e.databases {
		sum += s.Processor(t)
	}
	return sum
}
