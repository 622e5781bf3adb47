package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"j17/bench/devserver"
	"j17/internal/base/clock"
)

// liveSpec has notes, with a list of all of them, and one by their tags.
const liveSpec = `{"agent_types": ["user"], "aggregate_types": {
	"note": {"events": {"was_set": {"schema": {"type": "object"}, "handler": [{"merge": {"target": "", "value": "$.data"}}]}}},
	"sum": {"events": {"was_added": {"schema": {"type": "object"}, "handler": [{"increment": {"target": "n", "by": "$.data.by"}}]}}}
}, "projections": {
	"notes": {"for_each": "note", "sources": {"note": "$key"}, "select": {"text": "$.note.text", "n": "$.note.n", "tags": "$.note.tags"}, "index": ["tags", "n"]}}}`

// measure is a case: what is there before, and what is done so often. One time is enough for what opens streams.
type measure struct {
	name, about string
	prepare     func(ctx context.Context, t *target) error
	times       int
	pace        time.Duration
	do          func(ctx context.Context, t *target, n int) (status int, err error)
}

const (
	liveRows    = 1000
	liveStreams = 98
	taggedRows  = 4500
	rowTags     = 150
	fanStreams  = 9300
)

func cases() []measure {
	return []measure{
		{
			"lists", "98 streams of one key follow a list of 1,000 rows of 4 kB; one row changes", func(ctx context.Context, t *target) error {
				return errors.Join(t.notes(
					ctx, liveRows,
					func(n int) string { return fmt.Sprintf(`{"n":%d,"text":%q}`, n, strings.Repeat("x", 4000)) },
				),
					t.streams(ctx, liveStreams, func(int) string { return "/_projections/notes/_stream" }, true))
			}, 100, 100 * time.Millisecond,
			func(ctx context.Context, t *target, n int) (int, error) { return t.change(ctx, n) },
		},
		{
			"queries", "98 streams of one key follow 98 different lists of 1,000 rows of 4 kB; one row changes", func(ctx context.Context, t *target) error {
				return errors.Join(t.notes(
					ctx, liveRows,
					func(n int) string { return fmt.Sprintf(`{"n":%d,"text":%q}`, n, strings.Repeat("x", 4000)) },
				),
					t.streams(
						ctx, liveStreams, func(n int) string {
							return fmt.Sprintf("/_projections/notes/_stream?n.lt=%d", 10*liveRows+n)
						}, true,
					))
			}, 100, 100 * time.Millisecond,
			func(ctx context.Context, t *target, n int) (int, error) { return t.change(ctx, n) },
		},
		{
			"reverse", "the last page of 1,000 of 4,500 rows of 150 tags", tagged, 10, 0, func(ctx context.Context, t *target, _ int) (int, error) {
				return t.send(ctx, "prod", http.MethodGet, "/_projections/notes?tags.prefix=x&order=-tags&count=1000", http.NoBody)
			},
		},
		{
			"forward", "the first page of 1,000 of 4,500 rows of 150 tags", tagged, 10, 0, func(ctx context.Context, t *target, _ int) (int, error) {
				return t.send(ctx, "prod", http.MethodGet, "/_projections/notes?tags.prefix=x&order=tags&count=1000", http.NoBody)
			},
		},
		{
			"streams", "an event of 1 kB goes to 9,300 streams that are read", func(ctx context.Context, t *target) error {
				return t.streams(ctx, fanStreams, func(int) string { return "/_events/stream" }, true)
			}, 10, time.Second, func(ctx context.Context, t *target, _ int) (int, error) { return t.write(ctx, 1000) },
		},
		{
			"unread", "an event of 20 kB goes to 9,300 streams that nobody reads", func(ctx context.Context, t *target) error {
				return t.streams(ctx, fanStreams, func(int) string { return "/_events/stream" }, false)
			}, 20, 500 * time.Millisecond,
			func(ctx context.Context, t *target, _ int) (int, error) { return t.write(ctx, 20_000) },
		},
	}
}

func caseNames() string {
	var names []string
	for _, m := range cases() {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

// settleTime is how long a server has after what was prepared, and lastTime how long what was done goes on to be
// measured.
const (
	settleTime = 5 * time.Second
	lastTime   = 8 * time.Second
)

// runCase measures a case on a server of its own and prints one line of JSON.
func runCase(ctx context.Context, bin, name string, out io.Writer) error {
	all := cases()
	i := slices.IndexFunc(all, func(m measure) bool { return m.name == name })
	if i < 0 {
		return fmt.Errorf("there is no case %q; there are %s", name, caseNames())
	}
	m := &all[i]
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute) //nolint:mnd // more than any of them takes
	defer cancel()
	server, err := devserver.Start(ctx, bin, liveSpec, "--streams-per-key", "10000", "--streams", "10000")
	if err != nil {
		return err
	}
	defer server.End()
	t := &target{server, &http.Client{Transport: &http.Transport{MaxConnsPerHost: 0}}}
	if err := m.prepare(ctx, t); err != nil {
		return err
	}
	pause(ctx, settleTime)
	idle, over := context.WithTimeout(ctx, settleTime)
	defer over()
	start, err := t.Processor()
	if err != nil {
		return err
	}
	before := t.light(idle)
	alone, err := t.Processor()
	if err != nil {
		return err
	}
	memory, err := t.Memory("VmRSS")
	if err != nil {
		return err
	}
	answers := newTally()
	doing, done := context.WithCancel(ctx)
	go func() {
		defer done()
		for n := range m.times {
			status, err := m.do(ctx, t, n)
			answers.add(fmt.Sprint(status))
			if err != nil {
				answers.add(err.Error())
			}
			pause(ctx, m.pace)
		}
		if m.pace > 0 {
			pause(ctx, lastTime)
		}
	}()
	began := time.Now() //nolint:forbidigo // this program measures the real time
	during := t.light(doing)
	took := time.Since(began) //nolint:forbidigo // as above
	used, err := t.Processor()
	if err != nil {
		return err
	}
	peak, err := t.Memory("VmHWM")
	if err != nil {
		return err
	}

	// What the light client has taken of it is known from when it was alone.
	light := (alone - start) * time.Duration(len(during)) / time.Duration(max(len(before), 1))
	return json.NewEncoder(out).Encode(map[string]any{
		"case": m.name, "about": m.about, "times": m.times, "seconds": took.Seconds(), "answers": answers.counts,
		"processor_ms_each": milliseconds(used-alone-light) / float64(m.times), "light_alone": percentiles(before),
		"light":      percentiles(during),
		"memory_mib": memory, "peak_mib": peak,
	})
}

// percentiles are the median, the 99th percentile and the most, in milliseconds, of so many.
func percentiles(all []time.Duration) map[string]any {
	if len(all) == 0 {
		return map[string]any{"n": 0}
	}
	slices.Sort(all)
	return map[string]any{
		"n": len(all), "p50": milliseconds(all[len(all)/2]), "p99": milliseconds(all[len(all)*99/100]),
		"max": milliseconds(all[len(all)-1]),
	}
}

func pause(ctx context.Context, d time.Duration) {
	system := clock.System{}
	_ = system.Wait(ctx, system.Now().Add(d)) // it is over in either case
}

// notes writes so many, with the data that they are given.
func (t *target) notes(ctx context.Context, n int, data func(n int) string) error {
	for i := range n {
		status, err := t.send(
			ctx, "prod", http.MethodPost, "/note/"+item(i)+"/was_set",
			strings.NewReader(`{"data":`+data(i)+`,`+actor+`}`),
		)
		if err != nil || status != http.StatusCreated {
			return fmt.Errorf("note %d: %d %w", i, status, err)
		}
	}
	return nil
}

// tagged writes rows with many tags, which begin with the same letter.
func tagged(ctx context.Context, t *target) error {
	var tags []string
	for n := range rowTags {
		tags = append(tags, fmt.Sprintf(`"x-tag-%03d"`, n))
	}
	list := strings.Join(tags, ",")
	if err := t.notes(
		ctx, taggedRows, func(n int) string { return fmt.Sprintf(`{"n":%d,"tags":[%s]}`, n, list) },
	); err != nil {
		return err
	}
	for {
		status, err := t.send(ctx, "prod", http.MethodGet, "/_projections/notes?tags=x-tag-000&count=1", http.NoBody)
		if err != nil || status == http.StatusOK {
			return err
		}
		pause(ctx, time.Second)
	}
}

// change changes one of the notes.
func (t *target) change(ctx context.Context, n int) (int, error) {
	return t.send(
		ctx, "prod", http.MethodPost, "/note/"+item(n%liveRows)+"/was_set",
		strings.NewReader(fmt.Sprintf(`{"data":{"n":%d},%s}`, liveRows+n, actor)),
	)
}

// write writes an event of about so many bytes.
func (t *target) write(ctx context.Context, size int) (int, error) {
	return t.send(
		ctx, "prod", http.MethodPost, "/sum/_new/was_added",
		strings.NewReader(fmt.Sprintf(`{"data":{"by":1,"t":%q},%s}`, strings.Repeat("x", size), actor)),
	)
}

// streams opens streams, which are read until ctx ends, or not at all. It returns when the answer to each has begun.
func (t *target) streams(ctx context.Context, n int, path func(n int) string, read bool) error {
	const together = 50
	errs := make([]error, n)
	places := make(chan struct{}, together)
	var opened sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		opened.Go(func() {
			errs[i] = t.stream(ctx, path(i), read)
			<-places
		})
	}
	opened.Wait()
	return errors.Join(errs...)
}

func (t *target) stream(ctx context.Context, path string, read bool) error {
	r, err := t.Request(ctx, "prod", http.MethodGet, path, http.NoBody)
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.URL.Host)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err := r.Write(conn); err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 4<<10) //nolint:mnd // there are thousands of them
	line, err := in.ReadString('\n')
	if err == nil && !strings.Contains(line, " 200 ") {
		err = errors.New(line)
	}
	if err == nil && read {
		go func() { _, _ = io.Copy(io.Discard, in) }() // until the end
	}
	return err
}
