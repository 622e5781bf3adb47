// Command beside measures how much slower writes are while a full backup is made, and prints it beside its bar. It
// starts a development server of its own on loopback, which ends with it, and loads it with events to be backed up.
//
//	go run ./bench/beside -bin bin/j17 -time 8s
//
// Writes without and with a backup are counted in turns, since no machine is the same from minute to minute. Clients
// and server share its processors, as does the backup: it is to rest while somebody writes.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"j17/bench/devserver"
)

const besideSpec = `{"agent_types": ["user"], "aggregate_types": {"order": {"events": {"was_placed": {"schema": {"type": "object"},
	"handler": [{"merge": {"target": "", "value": "$.data"}}]}}}}}`

const (
	// data is an order of a line, metadata who has placed it: an event of some 300 bytes.
	data     = `{"customer_id":"550e8400-e29b-41d4-a716-446655440003","currency":"EUR","lines":[{"sku":"LAMP-2","title":"Desk lamp","unit_price":39.90,"quantity":1}]}`
	metadata = `{"actor":{"type":"user","id":"global"}}`
	// clients write at once.
	clients = 16
	// bar is how many of the writes there are to be beside a backup.
	bar = "0.80"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "beside:", err)
		stop()
		os.Exit(1)
	}
}

// turn is how many writes a second there were without a backup, and beside one.
type turn struct{ plain, beside float64 }

func (t turn) share() float64 { return t.beside / t.plain }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("beside", flag.ContinueOnError)
	bin := flags.String("bin", "j17", "the program to start")
	events := flags.Int("events", 1_000_000, "how many events there are to be backed up")
	long := flags.Duration("time", 8*time.Second, "how long each turn takes, without a backup and with one")
	rounds := flags.Int("rounds", 5, "how many turns there are")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server, err := devserver.Start(ctx, *bin, besideSpec)
	if err != nil {
		return err
	}
	defer server.End()
	m := &measurement{
		server: server, long: *long, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}},
	}
	if err := m.load(ctx, *events); err != nil {
		return fmt.Errorf("the events to be backed up: %w", err)
	}

	var turns []turn
	for range *rounds {
		var t turn
		if t.plain, err = m.writes(ctx); err != nil {
			return err
		}
		if t.beside, err = m.besideABackup(ctx); err != nil {
			return err
		}
		turns = append(turns, t)
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.share(), b.share()) })
	mid := turns[len(turns)/2]
	_, err = fmt.Fprintf(out, "| writes beside a full backup of %d events, %d clients, to writes without one, the median of %d turns (%.2f to %.2f) | %.2f (%.0f to %.0f a second) | %s |\n",
		*events, clients, len(turns), turns[0].share(), turns[len(turns)-1].share(), mid.share(), mid.beside, mid.plain,
		bar)
	return err
}

// measurement counts writes to a server.
type measurement struct {
	server *devserver.Server
	long   time.Duration
	client *http.Client
}

// load fills the environment, ten events an aggregate.
func (m *measurement) load(ctx context.Context, events int) error {
	r, w := io.Pipe()
	go func() {
		b := bufio.NewWriterSize(w, 1<<16)
		for n := range events {
			_, _ = fmt.Fprintf(b, `{"key":"order:a0000000-0000-4000-8000-%012x","type":"was_placed","data":%s,"metadata":{"actor":{"type":"user","id":"global"},"timestamp":%d}}`+"\n",
				n*7919%max(1, events/10), data, 1_600_000_000+n/100) // the pipe has its error
		}
		_ = w.CloseWithError(b.Flush())
	}()
	_, err := m.server.Administer(ctx, m.client, http.MethodPost, "cold_start", r)
	return err
}

// besideABackup counts writes while a full backup is made, which has to last longer than they do.
func (m *measurement) besideABackup(ctx context.Context) (each float64, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	id, err := m.backup(ctx)
	if err != nil {
		return 0, err
	}
	each, err = m.writes(ctx)
	if err != nil {
		return 0, err
	}
	raw, err := m.server.Administer(ctx, m.client, http.MethodGet, "backups/"+id, nil)
	if err != nil {
		return 0, err
	}
	status, err := statusOf(raw)
	if err == nil && status != "running" {
		err = fmt.Errorf("the backup is %s before the writes end: take more events, or less time", status)
	}
	if err != nil {
		return 0, err
	}

	// It is given up, so that the next one begins anew.
	_, err = m.server.Administer(ctx, m.client, http.MethodDelete, "backups/"+id, nil)
	return each, err
}

// backup begins a full one and returns its id.
func (m *measurement) backup(ctx context.Context) (string, error) {
	raw, err := m.server.Administer(ctx, m.client, http.MethodPost, "backups", strings.NewReader(`{"kind":"full"}`))
	if err != nil {
		return "", err
	}
	var begun struct {
		Backup struct{ ID string }
	}
	if err := json.Unmarshal(raw, &begun); err != nil || begun.Backup.ID == "" {
		return "", fmt.Errorf("a backup is answered %s", raw)
	}
	return begun.Backup.ID, nil
}

func statusOf(raw []byte) (string, error) {
	var row struct {
		Backup struct{ Status, Error string }
	}
	if err := json.Unmarshal(raw, &row); err != nil || row.Backup.Status == "" {
		return "", fmt.Errorf("a backup is answered %s", raw)
	}
	return row.Backup.Status, nil
}

// writes has all clients write for a while, and returns how many writes a second there were.
func (m *measurement) writes(ctx context.Context) (float64, error) {
	ctx, over := context.WithTimeout(ctx, m.long)
	defer over()
	n, err := m.server.WriteNew(ctx, m.client, clients, "/was_placed", `{"data":`+data+`,"metadata":`+metadata+`}`)
	return float64(n) / m.long.Seconds(), err
}
