package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/work/worktest"
	"j17/internal/edge/httpapi"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
	"j17/internal/storage/testopen"
)

// write writes a note and returns its stream_id.
func (f *fixture) write(tb testing.TB, path, data string) string {
	tb.Helper()
	got := f.do(tb, "POST", "/note/"+path, `{"data":`+data+`,`+actor+`}`)
	if got.status != http.StatusCreated {
		tb.Errorf("%d %s", got.status, got.body)
		return ""
	}
	return got.member(tb, "stream_id")
}

// feedPage is the answer to GET /_events.
type feedPage struct {
	Events []struct {
		StreamID string          `json:"stream_id"`
		Data     json.RawMessage `json:"data"`
	}
	Next     *string
	Position string
}

func (f *fixture) feed(tb testing.TB, query string) (p feedPage) {
	tb.Helper()
	got := f.do(tb, "GET", "/_events"+query, "")
	if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != http.StatusOK {
		tb.Errorf("%s: %d %s", query, got.status, got.body)
	}
	return p
}

// TestFeedPages reads pages of small events and of large ones, whose pages do not fit into one piece.
func TestFeedPages(t *testing.T) {
	f := newFixture(t, nil)
	var want []string
	for n := range 40 {
		id, size := noteID, 10
		if n%2 == 0 {
			id = "global"
		}
		if n >= 20 {
			size = 30 << 10
		}
		want = append(want, f.write(t, id+"/was_written", fmt.Sprintf(`{"n":%d,"s":%q}`, n, strings.Repeat("x", size))))
	}
	for _, count := range []string{"7", "40", "1000"} {
		var got []string
		for after := "0"; ; {
			p := f.feed(t, "?count="+count+"&after="+after)
			for _, ev := range p.Events {
				got = append(got, ev.StreamID)
			}
			if p.Position != got[len(got)-1] {
				t.Errorf("position %s after %s", p.Position, got[len(got)-1])
			}
			if p.Next == nil {
				break
			}
			after = *p.Next
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %s: %d events of %d", count, len(got), len(want))
		}
	}

	// The same as lines, and with a filter.
	lines := f.do(t, "GET", "/_events?type=note&event=was_written&actor=user:global&count=39", "", "Accept: application/x-ndjson")
	if n := strings.Count(lines.body, "\n"); n != 39 || lines.header.Get("X-J17-Next") != want[38] ||
		lines.header.Get("X-J17-Position") != want[38] {
		t.Errorf(
			"%d lines, next %s, position %s", n, lines.header.Get("X-J17-Next"), lines.header.Get("X-J17-Position"),
		)
	}
	for accept, want := range map[string]string{
		"APPLICATION/X-NDJSON": "application/x-ndjson", "application/json, application/x-ndjson; q=0.5": "application/json", "application/json; q=0.4, application/x-ndjson; q=0.5": "application/x-ndjson", "application/x-ndjson;q=0": "application/json",
		"application/x-ndjson; charset=utf-8; Q=0.000": "application/json", "application/x-ndjson;q=": "application/x-ndjson", "*/*": "application/json",
	} {
		for _, path := range []string{"/_events?count=1", "/note/global/events?count=1"} {
			got := f.do(t, "GET", path, "", "Accept: "+accept)
			if got.header.Get("Content-Type") != want || !slices.Contains(got.header.Values("Vary"), "Accept") {
				t.Errorf("%s with Accept %q: %q, which varies with %q", path, accept, got.header.Get("Content-Type"), got.header.Values("Vary"))
			}
		}
	}
	if p := f.feed(t, "?event=was_coded"); len(p.Events) != 0 || p.Next != nil || p.Position != want[39] {
		t.Errorf("nothing found is %+v", p)
	}
}

// TestAPageCostsWhatItMay: what nothing is found for is not looked for to the end at once, and goes on where it was.
func TestAPageCostsWhatItMay(t *testing.T) {
	f := newFixture(t, nil)
	f.SetPageWork(1000)
	for range 100 {
		f.write(t, "global/was_written", `{}`)
	}
	f.write(t, "global/was_coded", `{}`)
	pages, found := 0, 0
	for after := "0"; after != ""; pages++ {
		p := f.feed(t, "?event=was_coded&after="+after)
		found += len(p.Events)
		if after = ""; p.Next != nil {
			after = *p.Next
		}
	}
	if pages < 4 || found != 1 {
		t.Errorf("%d events in %d pages", found, pages)
	}
}

func specOf(tb testing.TB, source string) *spec.Compiled {
	tb.Helper()
	c, found := spec.Compile([]byte(source))
	if c == nil {
		tb.Fatal(found)
	}
	return c
}

func TestFeedRefusals(t *testing.T) {
	f := newFixture(t, nil)
	f.write(t, "global/was_written", `{}`)
	for query, path := range map[string]string{
		"after=x": "after", "after=": "after", "count=0": "count", "count=1001": "count", "wait=61s": "wait",
		"wait=-1s": "wait", "wait=5": "wait", "type=ghost": "type",
		"event=ghost": "event", "actor=user": "actor", "actor=user:x": "actor", "target=:x": "target",
		"heartbeat=1s": "heartbeat", "start=0": "start",
		"types=": "types", "types=was_written": "types", "types=ghost.*": "types", "types=note.*,note.ghost": "types",
		"types=note.*,": "types",
		"types=" + strings.Repeat("note.*,", 20) + "note.*": "types", "tags=": "tags", "tags=nope:1": "tags",
		"tags=actor:user": "tags", "tags=actor:user:x": "tags",
		"tags=" + strings.Repeat("actor:user:global,", 10) + "actor:user:global": "tags", "correlation=": "correlation",
		"correlation=x": "correlation",
		"correlation={0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10}": "correlation",
	} {
		if got := f.do(t, "GET", "/_events?"+query, ""); got.status != http.StatusBadRequest ||
			got.member(t, "path") != path {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
	for _, path := range []string{"/_events/stream", "/note/global/events/stream"} {
		for _, query := range []string{
			"after=x", "heartbeat=0s", "heartbeat=61s", "heartbeat=x", "count=1", "wait=1s",
		} {
			if got := f.do(t, "GET", path+"?"+query, ""); got.status != http.StatusBadRequest {
				t.Errorf("%s?%s: %d %s", path, query, got.status, got.body)
			}
		}
		if got := f.do(t, "GET", path, "", "Last-Event-ID: x"); got.status != http.StatusBadRequest ||
			got.member(t, "code") != "invalid_header" {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
		if got := f.do(t, "HEAD", path, ""); got.status != http.StatusOK ||
			got.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("HEAD %s: %d %v", path, got.status, got.header)
		}
	}
	for path, code := range map[string]string{
		"/ghost/global/events/stream": "unknown_aggregate_type", "/note/x/events/stream": "invalid_identifier",
	} {
		if got := f.do(t, "GET", path, ""); got.member(t, "code") != code {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// TestTypesOfEarlierSpecs: what may have events can be asked for, though the spec has it no more.
func TestTypesOfEarlierSpecs(t *testing.T) {
	f := newFixture(t, nil)
	tenant := j17.TenantOf(f.instance.ID, j17.Prod)
	f.write(t, "global/was_coded", `{}`)
	for i, source := range []string{apiSpec, `{"agent_types":["user"],"aggregate_types":{"doc":{"events":{"was_read":{"schema":{"type":"object"},"handler":[]}}}}}`} {
		if _, err := f.registry.Specs.Put(t.Context(), control.Deployment{
			Instance: f.instance.ID, Environment: j17.Prod, Source: []byte(source), Base: i,
		}); err != nil {
			t.Fatal(err)
		}
	}
	f.Engine.Deploy(tenant, specOf(t, `{"agent_types":["user"],"aggregate_types":{"doc":{"events":{"was_read":{"schema":{"type":"object"},"handler":[]}}}}}`), nil)
	for query, want := range map[string]int{
		"type=note": 1, "event=was_coded": 1, "type=note&event=was_coded": 1, "type=doc": 0, "event=was_read": 0,
	} {
		if p := f.feed(t, "?"+query); len(p.Events) != want {
			t.Errorf("%s: %+v", query, p)
		}
	}
	for _, query := range []string{"type=ghost", "event=was_lost"} {
		if got := f.do(t, "GET", "/_events?"+query, ""); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
}

// TestFeedWaits: a page waits for an event that the filter lets through, for as long as it was told to, or until the
// server stops.
func TestFeedWaits(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.write(t, "global/was_written", `{}`)
		begin := time.Now()
		if p := f.feed(t, "?event=was_coded&wait=60s"); len(p.Events) != 0 || time.Since(begin) != time.Minute {
			t.Errorf("%+v after %s", p, time.Since(begin))
		}
		answered := make(chan feedPage)
		for range 3 {
			go func() { answered <- f.feed(t, "?event=was_coded&wait=60s") }()
		}
		synctest.Wait()
		f.write(t, "global/was_written", `{}`)
		synctest.Wait()
		if len(answered) > 0 {
			t.Error("what does not match has ended the wait")
		}
		id := f.write(t, "global/was_coded", `{}`)
		for range 3 {
			if p := <-answered; len(p.Events) != 1 || p.Events[0].StreamID != id || p.Position != id {
				t.Errorf("%+v", p)
			}
		}
		go func() { answered <- f.feed(t, "?wait=60s&after="+id) }()
		synctest.Wait()
		begin = time.Now()
		f.Drain()
		if p := <-answered; len(p.Events) != 0 || p.Position != id || time.Since(begin) != 0 {
			t.Errorf("%+v after %s", p, time.Since(begin))
		}
	})
}

// pipes is a listener whose connections are in memory, so that they know the time of a test.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

// serve serves the API over connections in memory, by HTTP/1.1.
func (f *fixture) serve(tb testing.TB) *pipes {
	tb.Helper()
	var spoken http.Protocols
	spoken.SetHTTP1(true)
	return f.serveBy(tb, &spoken)
}

// serveBy is serve for the protocols.
func (f *fixture) serveBy(tb testing.TB, spoken *http.Protocols) *pipes {
	tb.Helper()
	p := &pipes{connections: make(chan net.Conn), closed: make(chan struct{})}
	s := &http.Server{
		Handler: f.handler, ConnContext: httpapi.ConnContext, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute,
		Protocols: spoken,
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(p) }()
	tb.Cleanup(func() {
		_ = s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			tb.Error(err)
		}
	})
	return p
}

// client is one of server-sent events.
type client struct {
	conn net.Conn
	body *bufio.Reader
	resp *http.Response
	// last is the id that it would go on after.
	last string
}

// connect opens a stream and reads its headers.
func (f *fixture) connect(tb testing.TB, conn net.Conn, path string, headers ...string) *client {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://app.j17.example"+path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.key)
	r.Header.Set("Accept-Encoding", "gzip, zstd")
	for _, h := range headers {
		switch name, v, _ := strings.Cut(h, ": "); {
		case name == "Host":
			r.Host = v
		case v == "":
			r.Header.Del(name)
		default:
			r.Header.Set(name, v)
		}
	}
	if err := r.Write(conn); err != nil {
		tb.Fatal(err)
	}
	c := &client{conn: conn}
	//nolint:bodyclose // it has no end: its connection is closed
	if c.resp, err = http.ReadResponse(bufio.NewReader(conn), r); err != nil {
		tb.Fatal(err)
	}
	c.body = bufio.NewReader(c.resp.Body)
	return c
}

func (f *fixture) stream(tb testing.TB, p *pipes, path string, headers ...string) *client {
	tb.Helper()
	here, there := net.Pipe()
	tb.Cleanup(func() { _ = here.Close() })
	p.connections <- there
	c := f.connect(tb, here, path, headers...)
	if c.resp.StatusCode != http.StatusOK || c.resp.Header.Get("Content-Type") != "text/event-stream" ||
		c.resp.Header.Get("Content-Encoding") != "" {
		tb.Fatalf("%s: %d %v", path, c.resp.StatusCode, c.resp.Header)
	}
	f.hold(tb, c.resp.Request, answer{c.resp.StatusCode, c.resp.Header, ""}) // what it sends has no end
	return c
}

// next returns the data of the next event; "" for a comment, or a block with nothing but an id.
func (c *client) next() (data string, err error) {
	for {
		line, err := c.body.ReadString('\n')
		if err != nil {
			return "", err
		}
		switch name, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); name {
		case "id":
			c.last = v
		case "data":
			data = v
		case "":
			return data, nil
		case ":":
		default:
			return "", fmt.Errorf("unknown line %q", line)
		}
	}
}

// event returns the stream_id of the next event, which it checks.
func (c *client) event(tb testing.TB) string {
	tb.Helper()
	for {
		data, err := c.next()
		if err != nil {
			tb.Fatal(err)
		}
		if data == "" {
			continue
		}
		var ev struct {
			StreamID string `json:"stream_id"`
		}
		if err := json.Unmarshal([]byte(data), &ev); err != nil || ev.StreamID != c.last {
			tb.Fatalf("%s after the id %s, %v", data, c.last, err)
		}
		return ev.StreamID
	}
}

// TestCorrelation finds the events with a correlation id, by the page and as a stream, in whatever case it is written.
func TestCorrelation(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, nil)
		p := f.serve(t)
		const of, other = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10", "1b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
		post := func(id string) string {
			t.Helper()
			got := f.do(t, "POST", "/note/global/was_written", `{"data":{},`+actor+`}`, "X-Correlation-ID: "+id)
			if got.status >= http.StatusBadRequest {
				t.Fatal(got.status, got.body)
			}
			return got.header.Get("X-Correlation-Id")
		}
		for _, id := range []string{of, other, strings.ToUpper(of)} {
			if got := post(id); got != strings.ToLower(id) {
				t.Errorf("%s became %s", id, got)
			}
		}
		for _, query := range []string{
			of, strings.ToUpper(of), of + "&type=note&actor=user:global", of + "&tags=actor:user:global",
		} {
			got := f.do(t, "GET", "/_events?correlation="+query, "", "Accept: application/x-ndjson")
			if got.status != http.StatusOK || strings.Count(got.body, "\n") != 2 || strings.Contains(got.body, other) {
				t.Errorf("%s: %d %s", query, got.status, got.body)
			}
		}
		c := f.stream(t, p, "/_events/stream?after=0&correlation="+of)
		first, second := c.event(t), c.event(t)
		post(other)
		post(of)
		if third := c.event(t); first >= second || second >= third {
			t.Errorf("%s %s %s", first, second, third)
		}
	})
}

// TestStreams has streams begin at all sorts of places, and goes on where one has ended.
func TestStreams(t *testing.T) {
	for _, tc := range []struct {
		path string
		want string // of the events of noteID and of global, those that a stream has: old ones, then new ones
	}{
		{"/_events/stream", "def"},
		{"/_events/stream?after=0", "abcdef"},
		{"/_events/stream?type=note&after=0", "abcdef"},
		{"/_events/stream?actor=user:global&after=0", "abcdef"},
		{"/_events/stream?event=was_coded&after=0", "bcef"},
		{"/_events/stream?event=was_coded&actor=user:global", "ef"},
		{"/_events/stream?types=note.was_coded&after=0", "bcef"},
		{"/_events/stream?tags=actor:user:global&types=note.was_written,note.was_coded&after=0", "abcdef"},
		{"/note/global/events/stream", "de"},
		{"/note/global/events/stream?after=0", "abde"},
		{"/note/" + noteID + "/events/stream?after=0", "cf"},
	} {
		testopen.Bubble(t, func(t *testing.T) {
			f := newFixture(t, nil)
			p := f.serve(t)
			ids := map[string]string{}
			three := func(names string) {
				ids[f.write(t, "global/was_written", `{"s":"é😀\n"}`)] = names[:1]
				ids[f.write(t, "global/was_coded", `{}`)] = names[1:2]
				ids[f.write(t, noteID+"/was_coded", `{}`)] = names[2:]
			}
			three("abc")
			c := f.stream(t, p, tc.path)
			done := make(chan struct{})
			go func() {
				three("def")
				close(done)
			}()
			var got []string
			for range tc.want {
				got = append(got, c.event(t))
			}
			<-done
			names := ""
			for _, id := range got {
				names += ids[id]
			}
			if names != tc.want {
				t.Errorf("%s: %s, want %s", tc.path, names, tc.want)
			}

			// Again, from its middle on.
			middle := len(got) / 2
			again := f.stream(t, p, tc.path, "Last-Event-ID: "+got[middle-1])
			for _, want := range got[middle:] {
				if id := again.event(t); id != want {
					t.Errorf("%s goes on with %s, want %s", tc.path, ids[id], ids[want])
				}
			}
		})
	}
}

// TestHeartbeats: a silent stream shows that it lives, and how far it has come.
func TestHeartbeats(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, nil)
		p := f.serve(t)
		f.write(t, "global/was_written", `{}`)
		c := f.stream(t, p, "/_events/stream?event=was_coded&heartbeat=20s")
		if _, err := c.next(); err != nil {
			t.Fatal(err)
		}
		id := f.write(t, "global/was_written", `{}`)
		for i := range 8 { // longer than answers may take elsewhere
			begin := time.Now()
			if data, err := c.next(); err != nil || data != "" || c.last != id {
				t.Fatalf("%d: %q, %v, at %s, want %s", i, data, err, c.last, id)
			}
			if took := time.Since(begin).Round(time.Second); took != 20*time.Second {
				t.Errorf("a heartbeat after %s", took)
			}
		}
		_ = c.conn.Close()
	})
}

// TestWhoTakesNothingIsCutOff: a client that does not read ends within seconds, and nobody else notices.
func TestWhoTakesNothingIsCutOff(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, nil)
		p := f.serve(t)
		for range 50 {
			stuck := f.stream(t, p, "/_events/stream?after=0")
			defer stuck.conn.Close() //nolint:errcheck // of the test
		}
		c := f.stream(t, p, "/_events/stream")
		synctest.Wait()
		begin := time.Now()
		for range 3 {
			go f.write(t, "global/was_written", `{"s":"`+strings.Repeat("x", 100<<10)+`"}`)
			_ = c.event(t)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("the client that reads has waited for %s", took)
		}
		if n := f.metric(t, "j17_streams"); n != 51 {
			t.Errorf("%v streams", n)
		}
		if err := (clock.System{}).Wait(t.Context(), time.Now().Add(6*time.Second)); err != nil {
			t.Fatal(err)
		}
		if open, cut := f.metric(t, "j17_streams"), f.metric(t, "j17_streams_cut_total"); open != 1 || cut != 50 {
			t.Errorf("%v streams are open, %v were cut off", open, cut)
		}
		_ = c.conn.Close()
	})
}

// slow is a connection of which a client reads a little each second, as long as it reads at all.
type slow struct {
	net.Conn
	tb    testing.TB
	taken atomic.Uint64
}

func (s *slow) Read(p []byte) (int, error) {
	if err := (clock.System{}).Wait(s.tb.Context(), time.Now().Add(time.Second)); err != nil {
		return 0, err
	}
	n, err := s.Conn.Read(p[:min(len(p), 200)])
	s.taken.Add(uint64(n))
	return n, err
}

// TestWhoTakesLittleIsNotCutOff: a client that takes a few bytes a second gets all that there is. When it takes nothing
// any more it is cut off.
func TestWhoTakesLittleIsNotCutOff(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, nil)
		p := f.serve(t)
		here, there := net.Pipe()
		s := &slow{Conn: here, tb: t}
		f.SetTaken(func(net.Conn) (uint64, bool) { return s.taken.Load(), true })
		id := f.write(t, "global/was_written", `{"s":"`+strings.Repeat("x", 40<<10)+`"}`)
		p.connections <- there
		c := f.connect(t, s, "/_events/stream?after=0")
		if got := c.event(t); got != id {
			t.Errorf("%s, not %s", got, id)
		}
		if cut := f.metric(t, "j17_streams_cut_total"); cut != 0 {
			t.Error("a client that takes little was cut off")
		}
		f.write(t, "global/was_written", `{"s":"`+strings.Repeat("x", 40<<10)+`"}`)
		if err := (clock.System{}).Wait(t.Context(), time.Now().Add(6*time.Second)); err != nil {
			t.Fatal(err)
		}
		if open, cut := f.metric(t, "j17_streams"), f.metric(t, "j17_streams_cut_total"); open != 0 || cut != 1 {
			t.Errorf("%v streams are open, %v were cut off", open, cut)
		}
		_ = here.Close()
	})
}

// metric reads a metric that has no labels.
func (f *fixture) metric(tb testing.TB, name string) float64 {
	tb.Helper()
	w := newAnswer()
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "/metrics", nil)
	if err != nil {
		tb.Fatal(err)
	}
	f.Internal().ServeHTTP(w, r)
	for line := range strings.Lines(w.body.String()) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil {
				tb.Fatal(err)
			}
			return n
		}
	}
	tb.Fatalf("there is no metric %s", name)
	return 0
}

type plainAnswer struct {
	header http.Header
	body   bytes.Buffer
}

func newAnswer() *plainAnswer { return &plainAnswer{header: http.Header{}} }

func (a *plainAnswer) Header() http.Header         { return a.header }
func (a *plainAnswer) Write(p []byte) (int, error) { return a.body.Write(p) }
func (*plainAnswer) WriteHeader(int)               {}

// TestStreamsEndWithTheirKey revokes keys, of a client that reads and of one that does not.
func TestStreamsEndWithTheirKey(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, nil)
		p := f.serve(t)
		key, token, err := f.registry.Keys.Create(t.Context(), control.NewKey{
			Instance: f.instance.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "r",
		})
		if err != nil {
			t.Fatal(err)
		}
		c := f.stream(t, p, "/_events/stream", "Authorization: Bearer "+token)
		kept := f.stream(t, p, "/_events/stream")
		if _, err := kept.next(); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if _, err := f.registry.Keys.Revoke(t.Context(), key.ID, time.Time{}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for err = nil; err == nil; {
			_, err = c.next()
		}
		if took := time.Since(begin); took > 10*time.Second || !errors.Is(err, io.EOF) {
			t.Errorf("the stream has ended after %s with %v", took, err)
		}
		go f.write(t, "global/was_written", `{}`)
		_ = kept.event(t)
		_ = kept.conn.Close()
	})
}

// TestStreamsEndWithTheServer stops the server under clients that read and under one that does not.
func TestStreamsEndWithTheServer(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, nil)
		p := f.serve(t)
		reads, stuck := f.stream(t, p, "/_events/stream"), f.stream(t, p, "/_events/stream")
		go f.write(t, "global/was_written", `{}`)
		_ = reads.event(t)
		synctest.Wait()
		begin := time.Now()
		f.Drain()
		if _, err := reads.next(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, stuck.conn)
		if took := time.Since(begin); took != 0 {
			t.Errorf("the streams have ended after %s", took)
		}
	})
}

// TestNumbersOfStreams: nobody has more streams than allowed, and those that have ended count no more.
func TestNumbersOfStreams(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, func(o *httpapi.Options) { o.StreamsPerKey, o.Streams = 3, 5 })
		p := f.serve(t)
		var open []*client
		for range 3 {
			open = append(open, f.stream(t, p, "/_events/stream"))
		}
		refused := func(of string, headers ...string) {
			t.Helper()
			for _, path := range []string{"/_events/stream", "/note/global/events/stream", "/_events?wait=1s"} {
				got := f.do(t, "GET", path, "", headers...)
				if got.status != http.StatusTooManyRequests || got.member(t, "code") != "too_many_streams" ||
					!strings.Contains(got.body, `"of":"`+of+`"`) || got.header.Get("Retry-After") == "" {
					t.Errorf("%s: %d %s", path, got.status, got.body)
				}
			}
		}
		refused("api-key")
		_, token, err := f.registry.Keys.Create(t.Context(), control.NewKey{
			Instance: f.instance.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "r",
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			open = append(open, f.stream(t, p, "/_events/stream", "Authorization: Bearer "+token))
		}
		refused("server", "Authorization: Bearer "+token)
		for _, c := range open {
			_ = c.conn.Close()
		}
		synctest.Wait()
		for range 50 { // it connects again and again
			c := f.stream(t, p, "/_events/stream")
			_ = c.conn.Close()
			synctest.Wait()
		}
		if n := f.metric(t, "j17_streams") + f.metric(t, "j17_feeds_followed"); n != 0 {
			t.Errorf("%v are left", n)
		}
	})
}

// TestIdleStreamsCostLittle measures heap and stacks of a thousand streams to which nothing happens.
func TestIdleStreamsCostLittle(t *testing.T) {
	f := newFixture(t, func(o *httpapi.Options) { o.StreamsPerKey = 2000 })
	p := f.serve(t)
	var open []net.Conn
	buffer := make([]byte, 4<<10)
	begin := func() {
		here, there := net.Pipe()
		p.connections <- there
		if _, err := fmt.Fprintf(here, "GET /_events/stream HTTP/1.1\r\nHost: app.j17.example\r\nAuthorization: Bearer %s\r\n\r\n", f.key); err != nil {
			t.Fatal(err)
		}
		if n, err := here.Read(buffer); err != nil || !bytes.HasPrefix(buffer[:n], []byte("HTTP/1.1 200 ")) {
			t.Fatalf("%s, %v", buffer[:n], err)
		}
		open = append(open, here)
	}
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	begin()
	before := used()
	for len(open) <= 1000 {
		begin()
	}
	bar := uint64(50 << 20)
	if worktest.RaceDetector {
		bar *= 4 // under which stacks are larger
	}
	if after := used(); after-min(before, after) > bar {
		t.Errorf("1,000 streams take %d bytes", after-before)
	} else {
		t.Logf("1,000 streams take %d bytes", after-min(before, after))
	}
	for _, c := range open {
		_ = c.Close()
	}
}
