// Command views measures lists, the upkeep of their indexes, live views and questions about places of a server, and
// prints them beside their bars. It starts development servers of its own on loopback, which end with it.
//
//	go run ./bench/views -bin bin/j17 -rows 1000000 -time 10s
//
// Aggregates are loaded by a cold start, one event each; then a projection with three indexes is posted. Writers are
// paced by the rates of the bars, or as fast as 64 connections get.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"j17/bench/devserver"
	"j17/internal/base/clock"
)

// The types: orders have the projection, notes have none, spots have places.
const viewsSpec = `{"agent_types": ["user"], "aggregate_types": {
	"order": {"events": {"was_placed": {"allow_skip_occ": true, "schema": {"type": "object"}, "handler": [{"merge": {"target": "", "value": "$.data"}}]}}},
	"note": {"events": {"was_placed": {"allow_skip_occ": true, "schema": {"type": "object"}, "handler": [{"merge": {"target": "", "value": "$.data"}}]}}},
	"spot": {"events": {"was_placed": {"allow_skip_occ": true, "schema": {"type": "object"}, "handler": [{"merge": {"target": "", "value": "$.data"}}], "geo": {"type": "point", "path": "$.data.place"}}}}}}`

const viewsProjection = `{"name": "orders", "for_each": "order", "sources": {"order": "$key"}, "select": {"status": "$.order.status", "placed": "$.order.at", "customer": "$.order.customer", "sent": "$.order.sent?"},
	"index": [["status", "placed"], "customer", "placed"]}`

const (
	actor       = `"metadata":{"actor":{"type":"user","id":"global"}}`
	connections = 64
	statuses    = 10
	watchers    = 1000
	// settle is how long the server has before its memory is read.
	settle = 10 * time.Second
	// placesTime is the longest that a measurement of questions about places takes.
	placesTime = 10 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "views:", err)
		stop()
		os.Exit(1)
	}
}

// target is the server under test, and the environment that is asked.
type target struct {
	*devserver.Server

	env    string
	rows   int
	client *http.Client
	out    io.Writer
	// told is done when a failure was printed.
	told *sync.Once
	// values counts the writes: each gives its order values that it never had.
	values *atomic.Int64
}

// newTarget asks the environment prod of a server, which alone has the projection.
func newTarget(server *devserver.Server) *target {
	return &target{
		Server: server, env: "prod", client: devserver.Client(clock.System{}), told: &sync.Once{},
		values: &atomic.Int64{},
	}
}

// in asks another environment of the same server.
func (t *target) in(env string) *target {
	other := *t
	other.env = env
	return &other
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("views", flag.ContinueOnError)
	bin := flags.String("bin", "j17", "the program to start")
	rows := flags.Int("rows", 1_000_000, "how many rows there are, and points")
	each := flags.Duration("time", 10*time.Second, "how long each measurement takes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*(*each)+10*time.Minute)
	defer cancel()
	t, err := start(ctx, *bin)
	if err != nil {
		return err
	}
	defer t.End()
	t.rows, t.out = *rows, out

	// What was loaded, and then its projection.
	if err := t.load(ctx); err != nil {
		return err
	}
	t.row("measured", "result", "bar")
	t.row("---", "---", "---")
	began := now()
	if err := t.post(ctx); err != nil {
		return err
	}
	t.row(
		fmt.Sprintf("index of %d rows of one event built", t.rows), fmt.Sprintf("%.1f s", now().Sub(began).Seconds()),
		"",
	)
	if err := t.rest(ctx); err != nil {
		return err
	}
	t.lists(ctx, *each)
	if err := t.upkeep(ctx, *each); err != nil {
		return err
	}
	t.live(ctx, *each)
	if err := idle(ctx, *bin, out); err != nil {
		return err
	}
	return places(ctx, *bin, out, *rows, min(*each, placesTime))
}

func now() time.Time { return time.Now() } //nolint:forbidigo // this program measures the real time

func (t *target) row(cells ...string) {
	_, _ = fmt.Fprintln(t.out, "| "+strings.Join(cells, " | ")+" |")
}

// start starts a server that takes as many live views as are measured.
func start(ctx context.Context, bin string) (*target, error) {
	server, err := devserver.Start(ctx, bin, viewsSpec, "--streams", "2000", "--streams-per-key", "2000")
	if err != nil {
		return nil, err
	}
	return newTarget(server), nil
}

// admin sends a request to the internal listener.
func (t *target) admin(ctx context.Context, method, path string, body io.Reader) error {
	_, err := t.Administer(ctx, t.client, method, path, body)
	return err
}

// call sends a request to the environment and returns the open answer.
func (t *target) call(ctx context.Context, method, path, body string) (*http.Response, error) {
	r, err := t.Request(ctx, t.env, method, path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return t.client.Do(r)
}

// ask sends a request and returns how long the whole answer took, and its status.
func (t *target) ask(ctx context.Context, method, path, body string) (time.Duration, int, error) {
	began := now()
	resp, err := t.call(ctx, method, path, body)
	if err != nil {
		return 0, 0, err
	}
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode >= http.StatusBadRequest {
		t.told.Do(func() { t.row("the first request that failed", method+" "+path, resp.Status+" "+string(text)) })
	}
	return now().Sub(began), resp.StatusCode, errors.Join(err, resp.Body.Close())
}

func id(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(n)*2654435761, n) }

func data(n int, more string) string {
	return fmt.Sprintf(`{"status":"s%d","at":%d,"customer":"c%d","place":{"lat":%d.5,"lng":%d.25}%s}`, n%statuses, n, n%997, n%80, n%170, more)
}

// load fills the environment with orders.
func (t *target) load(ctx context.Context) error {
	from, to := io.Pipe()
	go func() {
		w := bufio.NewWriter(to)
		for n := range t.rows {
			_, _ = fmt.Fprintf(w, `{"key":"order:%s","type":"was_placed","data":%s,"metadata":{"actor":{"type":"user","id":"global"},"timestamp":%d}}`+"\n", id(n), data(n, ""), 1_600_000_000+n/100)
		}
		_ = to.CloseWithError(w.Flush())
	}()
	return t.admin(ctx, http.MethodPost, "cold_start", from)
}

// indexed is a list that needs the index, however many rows there are.
const indexed = "/_projections/orders?status=s0&order=placed&count=1"

// post posts the projection and waits until its lists are there.
func (t *target) post(ctx context.Context) error {
	if err := t.admin(ctx, http.MethodPost, "projections", strings.NewReader(viewsProjection)); err != nil {
		return err
	}
	for {
		_, status, err := t.ask(ctx, http.MethodGet, indexed, "")
		if err != nil || status == http.StatusOK {
			return err
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// rest waits until the server has digested what was loaded and built: until it has been idle for a while, at most two
// minutes.
func (t *target) rest(ctx context.Context) error {
	const (
		look  = time.Second
		looks = 120
		calm  = 3
		// busy is how much processor time a second is more than that of an idle server.
		busy = 50 * time.Millisecond
	)
	before, err := t.Processor()
	for n, idle := 0, 0; n < looks && idle < calm && err == nil; n++ {
		pause(ctx, look)
		var used time.Duration
		if used, err = t.Processor(); used-before < busy {
			idle++
		} else {
			idle = 0
		}
		before = used
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	system := clock.System{}
	_ = system.Wait(ctx, system.Now().Add(d)) // it is over in either case
}

// took is how long some requests took, in their order.
type took struct {
	mu   sync.Mutex
	all  []time.Duration
	fail atomic.Int64
}

func (k *took) add(d time.Duration, ok bool) {
	if !ok {
		k.fail.Add(1)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, d)
}

// p99 is the 99th percentile, with how many there were, and how many have failed.
func (k *took) p99() (time.Duration, string) {
	slices.Sort(k.all)
	if len(k.all) == 0 {
		return 0, fmt.Sprintf("none of %d", k.fail.Load())
	}
	p := k.all[len(k.all)*99/100]
	text := fmt.Sprintf("%.1f ms (%d)", float64(p.Microseconds())/1000, len(k.all))
	if n := k.fail.Load(); n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	return p, text
}

// repeat lets so many ask again and again for a while.
func repeat(
	ctx context.Context, each time.Duration, clients int, one func(ctx context.Context, n int) (time.Duration, bool),
) *took {
	limited, stop := context.WithTimeout(ctx, each)
	defer stop()
	k := &took{}
	var asking sync.WaitGroup
	var calls atomic.Int64
	for range clients {
		asking.Go(func() {
			for limited.Err() == nil {
				if d, ok := one(limited, int(calls.Add(1))); limited.Err() == nil {
					k.add(d, ok)
				}
			}
		})
	}
	asking.Wait()
	return k
}

// lists measures pages and counts.
func (t *target) lists(ctx context.Context, each time.Duration) {
	pages := repeat(ctx, each, 4, func(ctx context.Context, n int) (time.Duration, bool) { //nolint:mnd // the bar's
		d, status, err := t.ask(ctx, http.MethodGet, fmt.Sprintf("/_projections/orders?status=s%d&placed.gte=%d&order=placed&count=50", n%statuses, rand.IntN(t.rows)*9/10), "") //nolint:gosec // any will do
		return d, err == nil && status == http.StatusOK
	})
	_, text := pages.p99()
	t.row("page of 50 rows with their data, by equality and order, 4 clients, 99th percentile", text, "15 ms")
	counts := repeat(ctx, each/2, 1, func(ctx context.Context, n int) (time.Duration, bool) {
		d, status, err := t.ask(ctx, http.MethodGet, fmt.Sprintf("/_projections/orders/_count?status=s%d", n%statuses), "")
		return d, err == nil && status == http.StatusOK
	})
	_, text = counts.p99()
	t.row(fmt.Sprintf("count of %d rows, 99th percentile", t.rows/statuses), text, "50 ms")
	fresh := t.fresh(ctx, each, 5000) //nolint:mnd // the bar's
	t.row("first list after a write, beside 5,000 writes a second of the type, 99th percentile", fresh, "30 ms")
}

// fresh measures lists that follow a write at once, while others write so many orders a second.
func (t *target) fresh(ctx context.Context, each time.Duration, rate int) string {
	var text string
	var reading sync.WaitGroup
	reading.Go(func() {
		lists := repeat(ctx, each, 1, func(ctx context.Context, n int) (time.Duration, bool) {
			if _, status, err := t.write(ctx, "order", n); err != nil || status != http.StatusCreated {
				return 0, false
			}
			d, status, err := t.ask(ctx, http.MethodGet, fmt.Sprintf("/_projections/orders?status=s%d&order=placed&count=10", n%statuses), "")
			return d, err == nil && status == http.StatusOK
		})
		_, text = lists.p99()
	})
	written := t.writes(ctx, each, "order", rate)
	reading.Wait()
	return fmt.Sprintf("%s at %.0f writes a second", text, float64(len(written.all))/each.Seconds())
}

// write gives an aggregate new values: whatever indexes its row has, an entry of each changes.
func (t *target) write(ctx context.Context, typ string, n int) (time.Duration, int, error) {
	value := t.rows + int(t.values.Add(1))
	return t.ask(ctx, http.MethodPost, "/"+typ+"/"+id(n%t.rows)+"/was_placed", `{"data":`+data(value, `,"sent":`+strconv.FormatInt(now().UnixNano(), 10))+`,"metadata":{"actor":{"type":"user","id":"global"},"skip_occ":true}}`)
}

// writes lets 64 connections write, so many a second or as many as they can for 0.
func (t *target) writes(ctx context.Context, each time.Duration, typ string, rate int) *took {
	began := now()
	return repeat(ctx, each, connections, func(ctx context.Context, n int) (time.Duration, bool) {
		if rate > 0 {
			pause(ctx, began.Add(time.Duration(n)*time.Second/time.Duration(rate)).Sub(now()))
		}
		d, status, err := t.write(ctx, typ, n*7919)
		return d, err == nil && status == http.StatusCreated
	})
}

const (
	// turns is how many turns two kinds of writes take that are compared, each of a part of the time of a measurement:
	// how fast a turn is goes up and down by a third with the merges that fall on it.
	turns    = 12
	turnPart = 5
)

// against lets writes of one type and those of another one, perhaps elsewhere, take turns, and returns the median of
// the rates of each.
func (t *target) against(
	ctx context.Context, each time.Duration, typ string, other *target, otherType string,
) (this, that float64) {
	each /= turnPart
	var these, those []float64
	mine := func() { these = append(these, float64(len(t.writes(ctx, each, typ, 0).all))/each.Seconds()) }
	theirs := func() { those = append(those, float64(len(other.writes(ctx, each, otherType, 0).all))/each.Seconds()) }
	for turn := range turns {
		if turn%2 == 0 {
			mine()
			theirs()
		} else {
			theirs()
			mine()
		}
	}
	slices.Sort(these)
	slices.Sort(those)
	return these[turns/2], those[turns/2]
}

// shown asks for a list until it is answered, and returns how long that took.
func (t *target) shown(ctx context.Context) time.Duration {
	began := now()
	for {
		if _, status, err := t.ask(ctx, http.MethodGet, indexed, ""); ctx.Err() != nil ||
			err == nil && status == http.StatusOK {
			return now().Sub(began)
		}
	}
}

// upkeep compares writes of types with and without an index.
func (t *target) upkeep(ctx context.Context, each time.Duration) error {
	rate := func(k *took) float64 { return float64(len(k.all)) / each.Seconds() }
	loss := func(than, rate float64) string {
		return fmt.Sprintf("%.0f %% (%.0f to %.0f a second)", 100*(1-rate/than), than, rate)
	}

	// With the projection and without, which another environment is: that takes turns, since merges of what was written
	// before fall on both. What is compared writes to the same aggregates, which are there.
	without := t.in("staging")
	for _, there := range []*target{t, without} {
		there.writes(ctx, each/turnPart, "note", 0)
	}
	t.writes(ctx, each/turnPart, "spot", 0)
	if err := t.rest(ctx); err != nil {
		return err
	}
	alone, beside := without.against(ctx, each, "note", t, "note")
	t.row("writes of a type that no index concerns are slower beside a projection by", loss(alone, beside), "nothing")
	notes, spots := t.against(ctx, each, "note", t, "spot")
	t.row("writes with a place are slower by", loss(notes, spots), "10 %")

	// Without it.
	if err := errors.Join(t.admin(ctx, http.MethodDelete, "projections/orders", nil), t.rest(ctx)); err != nil {
		return err
	}
	orders := t.writes(ctx, each, "order", 0)
	if err := t.rest(ctx); err != nil {
		return err
	}
	half := int(rate(orders)) / 2
	plain, plainText := t.writes(ctx, each, "order", half).p99()
	if err := errors.Join(t.rest(ctx), t.post(ctx), t.rest(ctx)); err != nil {
		return err
	}

	// With it, at full speed.
	t.row("writes that three indexes follow are slower by", loss(rate(orders), rate(t.writes(ctx, each, "order", 0))), "15 %")
	t.row("after them, until a list shows all", fmt.Sprintf("%.2f s", t.shown(ctx).Seconds()), "2 s")
	if err := t.rest(ctx); err != nil {
		return err
	}
	pause(ctx, settle) // nobody asks

	// At half the rate.
	followed, followedText := t.writes(ctx, each, "order", half).p99()
	t.row(fmt.Sprintf("at %d writes a second, 99th percentile without the projection", half), plainText, "")
	t.row("the same of writes that three indexes follow", fmt.Sprintf("%s, %.2f times", followedText, float64(followed)/float64(max(plain, 1))), "1.2 times")
	t.shown(ctx)
	if err := t.rest(ctx); err != nil {
		return err
	}
	t.row("first list after a write at that rate, 99th percentile", t.fresh(ctx, each, half), "20 ms")
	return ctx.Err()
}

// watchAll opens live views, and returns when each has its first value. end closes them.
func (t *target) watchAll(ctx context.Context, late *took, measuring *atomic.Bool) (end func()) {
	watching, stop := context.WithCancel(ctx)
	var opened, ends sync.WaitGroup
	for n := range watchers {
		opened.Add(1)
		ends.Go(func() { t.watch(watching, n, opened.Done, late, measuring) })
	}
	opened.Wait()
	return func() {
		stop()
		ends.Wait()
	}
}

// live measures how late live views are.
func (t *target) live(ctx context.Context, each time.Duration) {
	late, measuring := &took{}, &atomic.Bool{}
	end := t.watchAll(ctx, late, measuring)
	defer end()
	measuring.Store(true)
	const rate = 2000
	began := now()
	written := repeat(ctx, each, connections, func(ctx context.Context, n int) (time.Duration, bool) {
		pause(ctx, began.Add(time.Duration(n)*time.Second/rate).Sub(now()))
		d, status, err := t.write(ctx, "order", n*7919%watchers)
		return d, err == nil && status == http.StatusCreated
	})
	_, text := late.p99()
	t.row(fmt.Sprintf("from the client's write to one of %d live views, at %.0f writes a second, 99th percentile", watchers, float64(len(written.all))/each.Seconds()), text, "50 ms")
}

// idle measures what live views take that nothing happens to, of a server that has done nothing else.
func idle(ctx context.Context, bin string, out io.Writer) error {
	t, err := start(ctx, bin)
	if err != nil {
		return err
	}
	defer t.End()
	t.rows, t.out = watchers, out
	if err := errors.Join(t.load(ctx), t.post(ctx)); err != nil {
		return err
	}
	pause(ctx, settle)
	before, err := t.Memory("VmRSS")
	if err != nil {
		return err
	}
	late := &took{}
	unwatch := t.watchAll(ctx, late, &atomic.Bool{})
	defer unwatch()
	pause(ctx, settle)
	after, err := t.Memory("VmRSS")
	if n := late.fail.Load(); n > 0 {
		return errors.Join(err, fmt.Errorf("%d of %d live views could not be opened", n, watchers))
	}
	t.row(fmt.Sprintf("%d idle live views", watchers), fmt.Sprintf("%d MB", after-before), "50 MB")
	return err
}

// watch follows one live view until ctx ends. opened is called at its first value.
func (t *target) watch(ctx context.Context, n int, opened func(), late *took, measuring *atomic.Bool) {
	once := sync.OnceFunc(opened)
	defer once()
	resp, err := t.call(ctx, http.MethodGet, "/_projections/orders/"+id(n)+"/stream", "")
	if err != nil {
		late.fail.Add(1)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		text, is := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !is {
			continue
		}
		var value struct{ Data struct{ Sent int64 } }
		if json.Unmarshal(text, &value) == nil && measuring.Load() && value.Data.Sent > 0 {
			late.add(now().Sub(time.Unix(0, value.Data.Sent)), true)
		}
		once()
	}
}
