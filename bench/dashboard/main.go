// Command dashboard measures the dashboard in Chromium, and prints what it reaches beside its bars. It starts a
// development server of its own on loopback, which ends with it.
//
//	go run ./bench/dashboard -bin bin/j17 -time 10s -events 360000
//
// The processors that the browser, the server and this program share are what it measures with: on a machine that
// others use, frames and times say more about them than about the dashboard.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"j17/bench/chromium"
	"j17/bench/devserver"
	"j17/internal/base/clock"
)

// The types: ticks are counted, orders are written by the benchmark of writes, and a fan implies many leaves.
const dashboardSpec = `{"agent_types": ["user"], "aggregate_types": {
	"tick": {"events": {"was_ticked": {"schema": {"type": "object"}, "handler": [{"increment": {"target": "total", "by": "$.data.n"}}, {"set": {"target": "last", "value": "$.data.text"}}]}}},
	"order": {"events": {"was_placed": {"schema": {"type": "object"}, "handler": [{"merge": {"target": "", "value": "$.data"}}]}}},
	"fan": {"events": {"was_opened": {"schema": {"type": "object"}, "handler": [], "implications": [
		{"map": {"in": "$.data.leaves", "as": "$leaf", "emit": {"aggregate_type": "leaf", "id": "$leaf", "event_type": "was_made", "data": {}}}}]}}},
	"leaf": {"events": {"was_made": {"schema": {"type": "object"}, "handler": []}}}}}`

const (
	metadata = `"metadata":{"actor":{"type":"user","id":"550e8400-e29b-41d4-a716-446655440001"}}`
	// versions is how many events the aggregate has whose page is measured, rows how many events the list shows.
	versions = 10_000
	rows     = 100_000
	// batch is how many events a request writes.
	batch = 100
	// nodes is how many nodes the trace has.
	nodes = 500
	// loads is how often the overview is loaded.
	loads = 5
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		stop()
		os.Exit(1)
	}
}

// site is the server under test, and the page that looks at it.
type site struct {
	*devserver.Server

	client *http.Client
	page   *chromium.Page
	out    io.Writer
	// each is how long a measurement takes that goes on for a while.
	each time.Duration
	// environment is the address of the pages of the environment prod.
	environment string
	token       string
	// ticks is the aggregate with many versions.
	ticks string
	// count numbers the events.
	count int
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("dashboard", flag.ContinueOnError)
	bin := flags.String("bin", "j17", "the program to start")
	each := flags.Duration("time", 10*time.Second, "how long each measurement takes")
	tail := flags.Int("events", 360_000, "how many events are tailed while memory is looked at: an hour of 100 a second")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	server, err := devserver.Start(ctx, *bin, dashboardSpec, "--implications-max-total", fmt.Sprint(2*nodes))
	if err != nil {
		return err
	}
	defer server.End()
	browser, end, err := chromium.Open(ctx)
	if err != nil {
		return err
	}
	defer end()
	page, err := browser.Page()
	if err != nil {
		return err
	}
	s := &site{
		Server: server, client: devserver.Client(clock.System{}), page: page, out: out, each: *each,
		environment: server.Dashboard + "i/" + server.Name + "/prod/",
		ticks:       uuid.NewString(),
	}
	if err := errors.Join(s.signIn(ctx), s.load(ctx)); err != nil {
		return err
	}

	s.row("measured", "result", "bar")
	s.row("---", "---", "---")
	for _, measure := range []func(context.Context) error{
		s.size, s.start, s.latency, s.tail, s.slider, s.routes, s.trace, s.scroll,
		func(ctx context.Context) error { return s.memory(ctx, *tail) }, s.many,
	} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

func now() time.Time { return time.Now() } //nolint:forbidigo // this program measures the real time

// wait waits until a time.
func wait(ctx context.Context, until time.Time) error { return clock.System{}.Wait(ctx, until) }

func (s *site) row(cells ...string) {
	_, _ = fmt.Fprintln(s.out, "| "+strings.Join(cells, " | ")+" |")
}

func milliseconds(d float64) string { return fmt.Sprintf("%.0f ms", d) }

// quantile is the value below which a share of all values is, which are sorted by it.
func quantile(all []float64, share float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(share*float64(len(all))))]
}

// signIn signs the page in by the link, and this program by the operator's password.
func (s *site) signIn(ctx context.Context) error {
	if err := errors.Join(s.page.Load(s.LoginLink), s.page.Settled("Overview")); err != nil {
		return err
	}
	var session struct{ Token string }
	body := fmt.Sprintf(`{"email":%q,"password":%q}`, s.Operator.Email, s.Operator.Password)
	raw, err := s.control(ctx, http.MethodPost, "login", strings.NewReader(body))
	if err != nil {
		return err
	}
	err = json.Unmarshal(raw, &session)
	s.token = session.Token
	return err
}

// control asks the control API, as the operator once there is a token.
func (s *site) control(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	r, err := s.controlRequest(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	return devserver.Answer(s.client, r)
}

func (s *site) controlRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.URL+"/api/"+path, body)
	if err != nil {
		return nil, err
	}
	r.Host = "control.localhost"
	r.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	return r, nil
}

// ops is the path of a route of the environment prod, below the control API's.
func (s *site) ops(path string) string { return "instances/" + s.Instance + "/ops/prod/" + path }

// load writes the aggregate with many versions, and as many others as the list has to show.
func (s *site) load(ctx context.Context) error {
	for written := 0; written < versions; written += batch {
		if err := s.write(ctx, s.ticks, batch); err != nil {
			return err
		}
	}
	for written := versions; written < rows+batch; written += batch {
		if err := s.write(ctx, uuid.NewString(), batch); err != nil {
			return err
		}
	}
	return nil
}

// write writes some events to an aggregate, in one request.
func (s *site) write(ctx context.Context, id string, events int) error {
	var body strings.Builder
	body.WriteString(`{"events":[`)
	for i := range events {
		if i > 0 {
			body.WriteByte(',')
		}
		s.count++
		fmt.Fprintf(&body, `{"type":"was_ticked","data":{"n":%d,"text":"the tick of number %d"}}`, s.count, s.count)
	}
	body.WriteString(`],` + metadata + `}`)
	r, err := s.Request(ctx, "prod", http.MethodPost, "/tick/"+id, strings.NewReader(body.String()))
	if err == nil {
		_, err = devserver.Answer(s.client, r)
	}
	return err
}

// pace writes events at a rate until the context ends, each request to an aggregate of its own.
func (s *site) pace(ctx context.Context, rate, each int) error {
	began, written := now(), 0
	for ctx.Err() == nil {
		if err := s.write(ctx, uuid.NewString(), each); err != nil && ctx.Err() == nil {
			return err
		}
		written += each
		due := began.Add(time.Duration(written) * time.Second / time.Duration(rate))
		if due.After(now()) {
			_ = wait(ctx, due) // the loop sees that the context has ended
		}
	}
	return nil
}

// while writes at a rate while something is measured.
func (s *site) while(ctx context.Context, rate, each int, measure func() error) error {
	writing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.pace(writing, rate, each) }()
	err := measure()
	stop()
	return errors.Join(err, <-ended)
}
