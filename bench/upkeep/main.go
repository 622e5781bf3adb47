// Command upkeep measures what chains and the log of an environment take of the processor time of a server that is
// written to, and prints it beside its bar. It starts a development server of its own on loopback, which ends with it.
//
//	go run ./bench/upkeep -bin bin/j17 -time 10s
//
// The server's own profile says in which functions its time went: the leaf of each event and its link to the chain of
// its stream, in the commit, and the package that keeps the log, with all that it calls. Where the processors are what
// limits writes, that share is what would be won without chains and log. What the profile counts to others, the table
// files that tiles of the log stand in and the collection of garbage, is in what BenchmarkWrites of
// internal/custody/envlog compares.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"j17/bench/devserver"
)

const upkeepSpec = `{"agent_types": ["user"], "aggregate_types": {"order": {"events": {"was_placed": {"schema": {"type": "object", "required": ["customer_id", "lines"],
	"properties": {"customer_id": {"type": "string", "format": "uuid"}, "currency": {"type": "string"}, "lines": {"type": "array", "minItems": 1, "items": {"type": "object"}}}},
	"handler": [{"merge": {"target": "", "value": "$.data"}}]}}}}}`

const (
	// data is an order of two lines, metadata who has placed it: an event of some 400 bytes.
	data = `{"customer_id":"550e8400-e29b-41d4-a716-446655440003","currency":"EUR","lines":[{"sku":"LAMP-2","title":"Desk lamp","unit_price":39.90,"quantity":1},` +
		`{"sku":"BULB-E27","title":"Bulb, warm white","unit_price":4.35,"quantity":3}]}`
	metadata = `{"actor":{"type":"user","id":"global"}}`
	// bar is the greatest share that is wanted.
	bar = "10 %"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "upkeep:", err)
		stop()
		os.Exit(1)
	}
}

// load is a way to write: how many clients do it, and what each request is.
type load struct {
	name    string
	clients int
	path    string
	body    string
	events  int
}

func loads() []load {
	const batch = 100
	event := `{"type":"was_placed","data":` + data + `}`
	return []load{
		{
			"64 clients that write an event each", 64, "/was_placed",
			`{"data":` + data + `,"metadata":` + metadata + `}`, 1,
		},
		{"4 clients that write batches of 100 events", 4, "", `{"events":[` + strings.Repeat(event+",", batch-1) + event + `],"metadata":` + metadata + `}`, batch},
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("upkeep", flag.ContinueOnError)
	bin := flags.String("bin", "j17", "the program to start")
	long := flags.Duration("time", 10*time.Second, "how long each measurement takes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, l := range loads() {
		if err := measure(ctx, *bin, &l, *long, out); err != nil {
			return err
		}
	}
	return nil
}

// measure prints the row of a load, on a server of its own.
func measure(ctx context.Context, bin string, l *load, long time.Duration, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, long+time.Minute)
	defer cancel()
	server, err := devserver.Start(ctx, bin, upkeepSpec)
	if err != nil {
		return err
	}
	defer server.End()

	// Clients write until the profile is there.
	writing, over := context.WithCancel(ctx)
	defer over()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: l.clients}}
	var requests int
	var failed error
	var all sync.WaitGroup
	all.Go(func() { requests, failed = server.WriteNew(writing, client, l.clients, l.path, l.body) })
	before, err := server.Processor()
	if err != nil {
		return err
	}
	text, unread := fetch(
		ctx, client, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", server.Internal, int(long.Seconds())),
	)
	after, err := server.Processor()
	over()
	all.Wait()
	if err := errors.Join(failed, unread, err); err != nil {
		return err
	}
	p, err := profile.ParseData(text)
	if err != nil {
		return err
	}

	events := requests * l.events
	s := sharesOf(p)
	each := float64((after - before).Nanoseconds()) / 1e3 / float64(events)
	_, err = fmt.Fprintf(out, "| processor time that chains and the log take of a server, %s, %.1f µs an event | %.1f %%, chains %.1f and log %.1f | %s |\n",
		l.name, each, 100*(s.chains+s.log), 100*s.chains, 100*s.log, bar)
	return err
}

func fetch(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return devserver.Answer(client, r)
}
