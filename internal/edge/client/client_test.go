package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/edge/client"
)

// served returns a client of a server that answers with the handler, and the waits that it has announced. Its clock
// stands still.
func served(t *testing.T, handle http.HandlerFunc, change func(*client.Options)) (*client.Client, *[]time.Duration) {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	manual := clock.NewManual(time.Unix(1_800_000_000, 0))
	var waits []time.Duration
	o := client.Options{URL: s.URL, Key: "secret", Clock: manual, Retrying: func(_ error, wait time.Duration) {
		waits = append(waits, wait)
	}}
	if change != nil {
		change(&o)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c, &waits
}

// stepped is a clock on which every wait is over at once; it notes what was waited.
type stepped struct {
	clock.Manual
	waits []time.Duration
}

// Wait notes the wait until t.
func (s *stepped) Wait(ctx context.Context, t time.Time) error {
	s.waits = append(s.waits, t.Sub(s.Now()))
	return ctx.Err()
}

func answer(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

var note = j17.Key{Type: "note", ID: "global"}

func TestPostEvent(t *testing.T) {
	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		want := `{"data":{"n":0.10,"s":"<&>"},"metadata":{"actor":{"type":"user","id":"u:tag"},"target":{"type":"room","id":"r"},"previous_length":0,"skip_occ":true}}`
		if string(body) != want {
			t.Errorf("sent %s", body)
		}
		if got := r.Method + " " + r.URL.EscapedPath(); got != "POST /note/a%2Fb:c/was_written" {
			t.Error(got)
		}
		if r.Host != "app-test.localhost" || r.Header.Get("Authorization") != "Bearer secret" ||
			r.Header.Get("Idempotency-Key") != "k" || r.Header.Get("Content-Type") != "application/json" {
			t.Error(r.Host, r.Header)
		}
		w.Header().Set("X-Idempotency-Replayed", "true")
		answer(w, 201, `{"ok":true,"stream_id":"1700000000000-0","length":7,"implied_count":2,"id":"u","handle":"nte_1","public_id":"N-1"}`)
	}, func(o *client.Options) { o.Host = "app-test.localhost" })
	var zero uint64
	got, err := c.PostEvent(t.Context(), j17.Key{Type: "note", ID: "a/b:c"},
		client.NewEvent{Type: "was_written", Data: json.RawMessage(`{"n": 0.10, "s":"<&>"}`)},
		client.WriteOptions{
			Actor: j17.Agent{Type: "user", ID: "u:tag"}, Target: &j17.Agent{Type: "room", ID: "r"},
			PreviousLength: &zero, SkipOCC: true, IdempotencyKey: "k",
		})
	if err != nil || fmt.Sprint(got) != "{[1700000000000-0] 7 2 u nte_1 N-1 true}" {
		t.Error(got, err)
	}
}

func TestTransaction(t *testing.T) {
	const sent = `{"writes": [{"key": "note:_new", "as": "n", "events": [{"type": "was_written", "data": {"n": 0.10}}]}]}`
	answers := []string{
		`{"ok":true,"writes":[{"key":"note:u","id":"u","as":"n","public_id":"N-1","stream_ids":["1700000000000-0"],"count":1,"length":1}],"count":1,"implied_count":2}`,
		`{"ok":true,"writes":[]}`,
	}
	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != sent || r.Method+" "+r.URL.Path != "POST /_transaction" ||
			r.Header.Get("Idempotency-Key") != "k" || r.Header.Get("X-Correlation-ID") != "c" {
			t.Error(r.Method, r.URL, r.Header, string(body))
		}
		w.Header().Set("X-Idempotency-Replayed", "true")
		answer(w, 201, answers[0])
		answers = answers[1:]
	}, nil)
	o := client.TransactionOptions{IdempotencyKey: "k", CorrelationID: "c"}
	got, err := c.Transaction(t.Context(), json.RawMessage(sent), o)
	if err != nil || fmt.Sprint(got) != "{{[{note:u u n { N-1} [1700000000000-0] 1 1}] 1 2} true}" {
		t.Error(got, err)
	}
	if got, err := c.Transaction(t.Context(), json.RawMessage(sent), o); err == nil {
		t.Error("an answer without writes is taken for one of ours:", got)
	}
}

func TestTryEvent(t *testing.T) {
	answers := []string{`{"ok":true,"dry_run":true,"accepted":false,"refusals":[{"status":409,"code":"conflict","error":"No"}],"events":[],"states":[]}`, `{"ok":true,"stream_id":"1-0","length":1}`}
	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		const want = `{"data":{"n":0.10},"metadata":{"actor":{"type":"user","id":"u"}},"conditions":[{"odd":1}]}`
		if string(body) != want || r.Method+" "+r.URL.String() != "POST /note/global/was_written?dry_run=true" {
			t.Error(r.Method, r.URL, string(body))
		}
		answer(w, 200, answers[0])
		answers = answers[1:]
	}, nil)
	o := client.WriteOptions{Actor: j17.Agent{Type: "user", ID: "u"}, Conditions: json.RawMessage(`[{"odd":1}]`)}
	key, ev := j17.Key{Type: "note", ID: "global"},
		client.NewEvent{Type: "was_written", Data: json.RawMessage(`{"n":0.10}`)}
	want := answers[0]
	if got, err := c.TryEvent(t.Context(), key, ev, o); err != nil || string(got) != want {
		t.Error(string(got), err)
	}
	if got, err := c.TryEvent(t.Context(), key, ev, o); err == nil {
		t.Error("a write is taken for a dry run:", string(got))
	}
}

// TestTryTransaction checks that a dry run of a transaction has no idempotency key but the caller's, and may be
// repeated all the same.
func TestTryTransaction(t *testing.T) {
	const sent = `{"writes": []}`
	const want = `{"ok":true,"dry_run":true,"accepted":true}`
	var calls atomic.Int32
	waiting := &stepped{}
	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != sent || r.Method+" "+r.URL.String() != "POST /_transaction?dry_run=true" ||
			r.Header.Get("Idempotency-Key") != "" {
			t.Error(r.Method, r.URL, r.Header, string(body))
		}
		if calls.Add(1) == 1 {
			answer(w, 503, `{"ok":false,"status":503,"error":"Busy","code":"busy"}`)
			return
		}
		answer(w, 200, want)
	}, func(o *client.Options) { o.Clock = waiting })
	got, err := c.TryTransaction(t.Context(), json.RawMessage(sent), client.TransactionOptions{})
	if err != nil || string(got) != want || calls.Load() != 2 {
		t.Error(string(got), err, calls.Load())
	}
}

// TestErrors checks that a refusal arrives whole.
func TestErrors(t *testing.T) {
	c, waits := served(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 400, `{"ok":false,"status":400,"error":"The data does not fit.","code":"validation_failed","path":"data.n","event_index":3,"details":{"field":"n"},"errors":[{"pointer":"/data/n","message":"Too small."}]}`)
	}, nil)
	_, err := c.PostBatch(t.Context(), note, []client.NewEvent{{Type: "x"}}, client.WriteOptions{IdempotencyKey: "k"})
	e, ok := errors.AsType[*j17.Error](err)
	refused, ok2 := errors.AsType[*client.Error](err)
	if !ok || !ok2 || e.Code != j17.CodeSchemaViolation || e.Path != "data.n" || *e.EventIndex != 3 ||
		e.Errors[0].Message != "Too small." || refused.Status != 400 {
		t.Fatalf("%+v", err)
	}
	if raw, _ := e.Details.(json.RawMessage); string(raw) != `{"field":"n"}` {
		t.Errorf("details %s", raw)
	}
	if len(*waits) > 0 {
		t.Error("a refusal was repeated")
	}
}

// TestRetries checks what is repeated, and when.
func TestRetries(t *testing.T) {
	for _, tc := range []struct {
		name      string
		status    []int // of the replies in turn; 0 is no reply
		header    string
		key       string
		want      int // requests
		ok        bool
		wantWaits []time.Duration
	}{
		{
			name: "safe with a key", status: []int{0, 503, 502, 201}, key: "k", want: 4, ok: true,
			wantWaits: []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second},
		},
		{name: "not safe without", status: []int{503, 201}, want: 1},
		{name: "lost without a key", status: []int{0, 201}, want: 1},
		{
			name: "refused for the rate", status: []int{429, 201}, header: "7", want: 2, ok: true,
			wantWaits: []time.Duration{7 * time.Second},
		},
		{name: "the server asks for more time than is sensible", status: []int{503, 201}, key: "k", header: "99999", want: 2, ok: true, wantWaits: []time.Duration{2 * time.Minute}},
		{name: "a fault is not looked for again", status: []int{500, 201}, key: "k", want: 1},
		{name: "a conflict stays one", status: []int{409, 201}, key: "k", want: 1},
		{
			name: "it gives up", status: []int{503, 503, 503, 503, 503, 503, 201}, key: "k", want: 6,
			wantWaits: []time.Duration{250e6, 500e6, 1e9, 2e9, 4e9},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var count atomic.Int32
			waiting := &stepped{}
			c, _ := served(t, func(w http.ResponseWriter, _ *http.Request) {
				status := tc.status[count.Add(1)-1]
				if status == 0 {
					panic(http.ErrAbortHandler)
				}
				if tc.header != "" {
					w.Header().Set("Retry-After", tc.header)
				}
				if status == 201 {
					answer(w, status, `{"ok":true,"stream_id":"1700000000000-0","length":1}`)
					return
				}
				answer(w, status, `{"ok":false,"error":"No.","code":"unavailable"}`)
			}, func(o *client.Options) { o.Clock, o.Retrying = waiting, nil })
			_, err := c.PostEvent(t.Context(), note, client.NewEvent{Type: "x"}, client.WriteOptions{
				IdempotencyKey: tc.key,
			})
			if requests := int(count.Load()); requests != tc.want || (err == nil) != tc.ok ||
				!slices.Equal(waiting.waits, tc.wantWaits) {
				t.Errorf("%d requests, waits %v, %v", requests, waiting.waits, err)
			}
		})
	}
}

// TestWaitsEndWithTheContext stops a client that waits for its next attempt.
func TestWaitsEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := served(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 503, `{"code":"unavailable"}`) },
		func(o *client.Options) { o.Retrying = func(error, time.Duration) { cancel() } })
	if _, err := c.Length(ctx, note); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPages checks that lists go on where the page before has ended.
func TestPages(t *testing.T) {
	var asked []string
	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		q := r.URL.Query()
		var rows []string
		n := 0
		_, _ = fmt.Sscanf(q.Get("start"), "%d", &n)
		if strings.HasSuffix(r.URL.Path, "/events") {
			next := "null"
			for i := n + 1; i <= 1500; i++ {
				if len(rows) == 700 || fmt.Sprint(len(rows)) == q.Get("count") {
					// a page may end before it has as many as were asked for
					next = fmt.Sprintf(`"%d"`, i-1)
					break
				}
				rows = append(rows, fmt.Sprintf(`{"stream_id":"%d"}`, i))
			}
			answer(w, 200, `{"ok":true,"events":[`+strings.Join(rows, ",")+`],"next":`+next+`}`)
			return
		}
		next := `"b"`
		if q.Get("start") == "b" {
			next = "null"
		}
		answer(w, 200, `{"ok":true,"ids":["a","b"],"next":`+next+`}`)
	}, nil)
	count := func(limit uint64) (n int) {
		for ev, err := range c.Events(t.Context(), note, client.EventsOptions{Count: limit}) {
			if n++; err != nil || string(ev) != fmt.Sprintf(`{"stream_id":"%d"}`, n) {
				t.Fatal(n, string(ev), err)
			}
		}
		return n
	}
	if n := count(0); n != 1500 {
		t.Error(n, "events")
	}
	if n := count(1200); n != 1200 {
		t.Error(n, "events")
	}
	for _, err := range c.Events(t.Context(), note, client.EventsOptions{Count: 1, Stored: true}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{
		"/note/global/events?count=1000", "/note/global/events?count=1000&start=700", "/note/global/events?count=1000&start=1400",
		"/note/global/events?count=1000", "/note/global/events?count=500&start=700",
		"/note/global/events?count=1&generation=stored",
	}; !slices.Equal(asked, want) {
		t.Error(asked)
	}
	var ids []string
	for id, err := range c.IDs(t.Context(), "note", "", 0) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if len(ids) != 4 {
		t.Error(ids)
	}
}

// TestOtherServers checks what a reply that is none of ours becomes.
func TestOtherServers(t *testing.T) {
	c, _ := served(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 404, "<html>nothing here</html>") }, nil)
	if _, err := c.State(t.Context(), note, client.StateOptions{}); j17.CodeOf(err) != j17.CodeInternal ||
		!strings.Contains(err.Error(), "not that of a j17 server") {
		t.Error(err)
	}
	c, _ = served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/note/global" {
			t.Error("the redirect was followed with the key")
		}
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}, nil)
	if _, err := c.State(t.Context(), note, client.StateOptions{}); err == nil {
		t.Error("a redirect passed for a state")
	}
	for _, body := range []string{`{"ok":true}`, `[]`, `{"events":null,"ids":7,"metadata":null}`, ""} {
		c, _ := served(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, body) }, nil)
		_, lengthErr := c.Length(t.Context(), note)
		_, postErr := c.PostEvent(t.Context(), note, client.NewEvent{Type: "was_written"}, client.WriteOptions{})
		errs := []error{lengthErr, postErr}
		for _, err := range c.Events(t.Context(), note, client.EventsOptions{}) {
			errs = append(errs, err)
		}
		for _, err := range c.IDs(t.Context(), "note", "", 0) {
			errs = append(errs, err)
		}
		for _, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "not that of a j17 server") {
				t.Errorf("%s: %v", body, err)
			}
		}
		if len(errs) != 4 {
			t.Errorf("%s: %v", body, errs)
		}
	}
	for _, bad := range []string{"localhost:17000", "ftp://x", "", "http://", "http://u:p@h", "http://h?x=1"} {
		if _, err := client.New(client.Options{URL: bad}); err == nil {
			t.Errorf("%q passed for the URL of a server", bad)
		}
	}
}

// TestAddressesThatWillNotAnswer checks that nobody is made to wait for what cannot get better.
func TestAddressesThatWillNotAnswer(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	raw, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	go func() {
		for {
			conn, err := raw.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 mail.example.com ready\r\n"))
			_ = conn.Close()
		}
	}()
	for address, want := range map[string]string{
		secure.URL: "certificate cannot be trusted",
		"https" + strings.TrimPrefix(plain.URL, "http"): "try the address with http://",
		"http://" + raw.Addr().String():                 "no HTTP server",
	} {
		c, err := client.New(client.Options{
			URL: address, Key: "k", Clock: clock.System{},
			Retrying: func(err error, _ time.Duration) { t.Errorf("tried again after %v", err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.State(t.Context(), note, client.StateOptions{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestAMissingServer checks that somebody who has no server running is told at once, and that a server which has
// answered is waited for.
func TestAMissingServer(t *testing.T) {
	s := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"ok":true,"length":0}`) }),
	)
	told := 0
	for _, tc := range []struct {
		answered bool
		waits    []time.Duration
		told     int
	}{
		{true, []time.Duration{250e6, 500e6, 1e9, 2e9, 4e9}, 5},
		{false, []time.Duration{250e6}, 0},
	} {
		waiting := &stepped{}
		c, err := client.New(client.Options{
			URL: s.URL, Clock: waiting, Retrying: func(error, time.Duration) { told++ },
		})
		if err != nil {
			t.Fatal(err)
		}
		if tc.answered {
			if _, err := c.Length(t.Context(), note); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		if _, err := c.Length(t.Context(), note); err == nil ||
			!strings.Contains(err.Error(), "Is the server running") {
			t.Error(err)
		}
		if !slices.Equal(waiting.waits, tc.waits) || told != tc.told {
			t.Errorf("%v: waits %v, told %d times", tc.answered, waiting.waits, told)
		}
		told = 0
	}
}

// TestAnotherNode has the first node name another one, which is asked in its place where it is certain to be one of the
// same servers.
func TestAnotherNode(t *testing.T) {
	var asked []string
	worker := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Host+" "+r.Header.Get("Authorization"))
		answer(w, 200, `{"ok":true,"length":3}`)
	})
	plain, secure := httptest.NewServer(worker), httptest.NewTLSServer(worker) // with a certificate for example.com
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	//nolint:forcetypeassert,errcheck // what net/http/httptest makes
	roots := secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	misdirecting := func(node string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer(w, 421, `{"ok":false,"error":"The instance is on another node.","code":"misdirected","details":{"url":"`+node+`"}}`)
		})
	}
	for _, tc := range []struct {
		name, node, host string
		https            bool
		ok               bool
	}{
		{"this machine", plain.URL, "shop.example.com", false, true},
		{"a certificate for the host name", secure.URL, "example.com", true, true},
		{"a certificate for another name", secure.URL, "shop.example.org", true, false},
		{"not as safe as the first one", plain.URL, "example.com", true, false},
		{"another machine, unproven", "http://192.0.2.1:9", "example.com", false, false},
		{"no address", "worker-1", "example.com", false, false},
		{"with a user", strings.Replace(plain.URL, "http://", "http://u@", 1), "example.com", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked = nil
			first := httptest.NewUnstartedServer(misdirecting(tc.node))
			if first.Start(); tc.https {
				first.Close()
				first = httptest.NewTLSServer(misdirecting(tc.node))
			}
			t.Cleanup(first.Close)
			c, err := client.New(client.Options{
				URL: first.URL, Host: tc.host, Key: "k", Clock: clock.System{}, RootCAs: roots, Attempts: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				n, err := c.Length(t.Context(), note)
				if (err == nil && n == 3) != tc.ok {
					t.Errorf("%d, %v", n, err)
				}
				if refused, ok := errors.AsType[*client.Error](err); ok &&
					!strings.Contains(err.Error(), refused.Node) {
					t.Error(err)
				}
			}
			want := []string{tc.host + " Bearer k", tc.host + " Bearer k"}
			if !tc.ok {
				want = nil
			}
			if !slices.Equal(asked, want) {
				t.Errorf("asked %q", asked)
			}
		})
	}
}

// TestNodesDoNotSendEachOther has two nodes name each other: the second one's refusal stays.
func TestNodesDoNotSendEachOther(t *testing.T) {
	var count atomic.Int32
	var other string
	send := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		count.Add(1)
		answer(w, 421, `{"ok":false,"error":"Elsewhere.","code":"misdirected","details":{"url":"`+other+`"}}`)
	})
	s := httptest.NewServer(send)
	t.Cleanup(s.Close)
	other = s.URL
	c, err := client.New(client.Options{URL: s.URL, Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Length(t.Context(), note); j17.CodeOf(err) != j17.CodeMisdirected || count.Load() != 2 {
		t.Error(count.Load(), err)
	}
}

// TestRoutesOfTheServer: what begins with an underscore is no data of an environment, and no request is sent for it.
func TestRoutesOfTheServer(t *testing.T) {
	c, _ := served(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }, nil)
	key := j17.Key{Type: "_projections", ID: "card"}
	_, stateErr := c.State(t.Context(), key, client.StateOptions{})
	_, placesErr := c.Places(t.Context(), key.Type, "nearby", nil)
	_, writeErr := c.PostEvent(t.Context(), key, client.NewEvent{Type: "was_made"}, client.WriteOptions{})
	var eventsErr, idsErr error
	for _, err := range c.Events(t.Context(), key, client.EventsOptions{Count: 1}) {
		eventsErr = err
	}
	for _, err := range c.IDs(t.Context(), key.Type, "", 1) {
		idsErr = err
	}
	for _, err := range []error{stateErr, placesErr, writeErr, eventsErr, idsErr} {
		if j17.CodeOf(err) != j17.CodeUnknownType || !strings.Contains(err.Error(), "There is no aggregate type '_projections': names that begin with an underscore") {
			t.Error(err)
		}
	}
	if _, err := c.Projection(
		t.Context(), "card", "_stream", client.ProjectionOptions{},
	); j17.CodeOf(err) != j17.CodeInvalidIdentifier {
		t.Error(err)
	}
}

// TestHeadersThatAreTooLong: who refuses them need not be a j17 server, and net/http does so without a body of ours.
func TestHeadersThatAreTooLong(t *testing.T) {
	for _, status := range []int{http.StatusRequestHeaderFieldsTooLarge, http.StatusRequestURITooLong} {
		c, _ := served(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, status, "no") }, nil)
		_, err := c.State(t.Context(), note, client.StateOptions{})
		if j17.CodeOf(err) != j17.CodeHeaderTooLarge || !strings.Contains(err.Error(), "Ask for less at a time") {
			t.Error(err)
		}
	}
}

// TestState checks the parameters of reads and the reply.
func TestState(t *testing.T) {
	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/base/note/global?at=5&synchronous=true" {
			t.Error(r.URL.RequestURI())
		}
		answer(w, 200, `{"ok":true,"data":{"n":0.10},"metadata":{"length":3,"handle":"nte_1"}}`)
	}, func(o *client.Options) { o.URL += "/base/" })
	s, err := c.State(t.Context(), note, client.StateOptions{At: "5", Synchronous: true})
	if err != nil || string(s.Data) != `{"n":0.10}` || s.Length != 3 ||
		string(s.Metadata) != `{"length":3,"handle":"nte_1"}` {
		t.Errorf("%+v %v", s, err)
	}
}
