// Package client speaks the HTTP API of a server: the part of it that reads and writes the data of one environment.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
)

// Options configures a client. URL and Clock are required.
type Options struct {
	// URL is where the server is: scheme, host and port, and a path where a proxy has put it under one.
	URL string
	// Host is sent as the Host header, which picks instance and environment; "" leaves that to the URL.
	Host string
	// Key is an API key, or the token of an operator for the routes of operators; "" sends none.
	Key string
	// RootCAs are the authorities whose certificates are trusted; nil means those of the machine.
	RootCAs *x509.CertPool
	// Timeout bounds one attempt; 0 means 3 minutes.
	Timeout time.Duration
	// Clock measures the waits between attempts.
	Clock clock.Clock
	// Around, if not nil, wraps the transport that carries requests.
	Around func(http.RoundTripper) http.RoundTripper
	// Attempts is how often a request that may be repeated is sent at most; 0 means 6. A server that refuses
	// connections and has never answered is tried twice at most.
	Attempts int
	// Retrying, if not nil, is called before each wait of some length.
	Retrying func(err error, wait time.Duration)
	// Advice, if not nil, returns sentences that a refusal with a code ends with, "" for none: what the server cannot
	// know, such as where the key is from.
	Advice func(code j17.Code) string
}

const (
	defaultAttempts = 6
	firstWait       = 250 * time.Millisecond
	longestWait     = 8 * time.Second
	// mostRetryAfter bounds what a server may make a client wait at a time.
	mostRetryAfter = 2 * time.Minute
	requestTime    = 3 * time.Minute
	// maxReply bounds what is read of a reply.
	maxReply = 256 << 20
)

// Client sends requests to one environment of one instance. It is safe for concurrent use.
type Client struct {
	o Options
	// first is the place of the server by the options. node is the place where the instance turned out to be, nil where
	// that is first.
	first *place
	node  atomic.Pointer[place]
	// answered is true once there was a reply.
	answered atomic.Bool
	// administration is where an operator reads the environment, nil for the paths of API keys.
	administration []string
}

// place is an address that requests go to.
type place struct {
	base *url.URL
	// host is the Host header, "" for that of base.
	host string
	http *http.Client
}

// ParseURL reads the URL of a server, and says what is wrong with one that no client could use.
func ParseURL(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Hostname() == "" {
		return nil, fmt.Errorf("%q is no URL of a server; it has the form http://localhost:17000", text)
	}
	if base.RawQuery != "" || base.Fragment != "" || base.User != nil {
		return nil, errors.New("the URL of a server has no user, query or fragment; pass the key on its own")
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	return base, nil
}

// New returns a client. It fails where the URL is none.
func New(o Options) (*Client, error) {
	base, err := ParseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Attempts == 0 {
		o.Attempts = defaultAttempts
	}
	return &Client{o: o, first: &place{base: base, host: o.Host, http: o.carrier("")}}, nil
}

// URL returns where the client sends requests to, with the host that names the environment.
func (c *Client) URL() string {
	u := *c.first.base
	if c.o.Host != "" {
		host := c.o.Host
		if port := u.Port(); port != "" {
			host += ":" + port
		}
		u.Host = host
	}
	return u.String()
}

// NewEvent is an event to write. Data is JSON; empty data is left to the server's default in batches and is {} alone.
type NewEvent = wire.NewEvent

// WriteOptions is what goes with a write.
type WriteOptions struct {
	Actor j17.Agent
	// Target is nil where the event concerns nobody else.
	Target *j17.Agent
	// PreviousLength is nil where the length of the aggregate does not matter.
	PreviousLength *uint64
	SkipOCC        bool
	// Conditions are the JSON of an array of wire.Condition, nil for none. They are sent as they are.
	Conditions json.RawMessage
	// IdempotencyKey makes a write safe to repeat. Without one it is sent once.
	IdempotencyKey string
	// CorrelationID is a UUID that the metadata of the events keep; "" leaves it to the server.
	CorrelationID string
}

// Receipt is the reply to a write.
type Receipt struct {
	StreamIDs    []string
	Length       uint64
	ImpliedCount int
	// ID is that of the aggregate where the server has chosen it or the aggregate has more names, "" else.
	ID string
	// Handle and PublicID are its other names, "" where it has none.
	Handle, PublicID string
	// Replayed is true where an earlier request with the same idempotency key had written the events.
	Replayed bool
}

func (o WriteOptions) metadata() wire.Metadata {
	m := wire.Metadata{Actor: wire.Agent(o.Actor), PreviousLength: o.PreviousLength, SkipOCC: o.SkipOCC}
	if o.Target != nil {
		m.Target = (*wire.Target)(o.Target)
	}
	return m
}

// kept returns the error for a name of an aggregate type or of an aggregate that is reserved: such paths are the
// server's own routes, whose replies would not be about what was asked for, and some of which never end. It returns nil
// for all other names.
func kept(code j17.Code, what, name string) error {
	if !strings.HasPrefix(name, "_") {
		return nil
	}
	return j17.Errorf(code, "There is no %s '%s': names that begin with an underscore are the server's own.", what, j17.Printable(name))
}

func keptType(name string) error { return kept(j17.CodeUnknownType, "aggregate type", name) }

// PostEvent writes one event.
func (c *Client) PostEvent(ctx context.Context, key j17.Key, ev NewEvent, o WriteOptions) (Receipt, error) {
	r, err := eventRequest(key, ev, o)
	if err != nil {
		return Receipt{}, err
	}
	return c.write(ctx, r)
}

// eventRequest returns the request that writes one event.
func eventRequest(key j17.Key, ev NewEvent, o WriteOptions) (request, error) {
	if err := keptType(key.Type); err != nil {
		return request{}, err
	}
	if len(ev.Data) == 0 {
		ev.Data = json.RawMessage(`{}`)
	}
	body, err := encode(struct {
		wire.WriteEvent

		Conditions json.RawMessage `json:"conditions,omitempty"`
	}{
		wire.WriteEvent{Data: ev.Data, Metadata: wire.EventMetadata{Metadata: o.metadata(), Generation: ev.Generation}},
		o.Conditions,
	})
	return request{
		method: http.MethodPost, path: []string{key.Type, key.ID, ev.Type}, body: body,
		idempotencyKey: o.IdempotencyKey, correlationID: o.CorrelationID,
	}, err
}

// TryEvent asks what PostEvent would do, and writes nothing. It returns a wire.WriteDryRun as the server sent it: why
// the event would be refused is no error.
func (c *Client) TryEvent(ctx context.Context, key j17.Key, ev NewEvent, o WriteOptions) (json.RawMessage, error) {
	r, err := eventRequest(key, ev, o)
	if err != nil {
		return nil, err
	}
	return c.try(ctx, r)
}

// try sends a write that is not to be carried out. It may be sent again without an idempotency key.
func (c *Client) try(ctx context.Context, r request) (json.RawMessage, error) {
	r.query, r.repeatable = url.Values{"dry_run": {"true"}}, true
	reply, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	var tried struct {
		DryRun bool `json:"dry_run"`
	}
	if err := json.Unmarshal(reply.body, &tried); err != nil || !tried.DryRun {
		return nil, notOurs(reply, cmp.Or(err, errors.New("it is no dry run")))
	}
	return reply.body, nil
}

// PostBatch writes events of one aggregate, all or none. The same arguments make the same request, byte for byte.
func (c *Client) PostBatch(ctx context.Context, key j17.Key, events []NewEvent, o WriteOptions) (Receipt, error) {
	body, err := encode(struct {
		wire.WriteBatch

		Conditions json.RawMessage `json:"conditions,omitempty"`
	}{wire.WriteBatch{Events: events, Metadata: o.metadata()}, o.Conditions})
	if err != nil {
		return Receipt{}, err
	}
	return c.write(ctx, request{
		path: []string{key.Type, key.ID}, body: body, idempotencyKey: o.IdempotencyKey, correlationID: o.CorrelationID,
	})
}

// TransactionOptions is what goes with a transaction. Its fields are those of WriteOptions.
type TransactionOptions struct {
	IdempotencyKey string
	CorrelationID  string
}

// TransactionReceipt is the reply to a transaction.
type TransactionReceipt struct {
	wire.TransactionWritten

	// Replayed is true where an earlier request with the same idempotency key had written the events.
	Replayed bool
}

// Transaction writes events of several aggregates, all or none. body is the JSON of a wire.WriteTransaction, and is
// sent as it is.
func (c *Client) Transaction(
	ctx context.Context, body json.RawMessage, o TransactionOptions,
) (TransactionReceipt, error) {
	reply, err := c.do(ctx, transactionRequest(body, o))
	if err != nil {
		return TransactionReceipt{}, err
	}
	r := TransactionReceipt{Replayed: reply.header.Get(headerReplayed) == "true"}
	if err = json.Unmarshal(reply.body, &r.TransactionWritten); err == nil {
		err = needs(len(r.Writes) > 0, "writes")
	}
	if err != nil {
		return TransactionReceipt{}, notOurs(reply, err)
	}
	return r, nil
}

// transactionRequest returns the request that writes a transaction.
func transactionRequest(body json.RawMessage, o TransactionOptions) request {
	return request{
		method: http.MethodPost, path: []string{"_transaction"}, body: body, idempotencyKey: o.IdempotencyKey,
		correlationID: o.CorrelationID,
	}
}

// TryTransaction asks what Transaction would do, as TryEvent does for an event.
func (c *Client) TryTransaction(
	ctx context.Context, body json.RawMessage, o TransactionOptions,
) (json.RawMessage, error) {
	return c.try(ctx, transactionRequest(body, o))
}

func (c *Client) write(ctx context.Context, r request) (Receipt, error) {
	r.method = http.MethodPost
	reply, err := c.do(ctx, r)
	if err != nil {
		return Receipt{}, err
	}
	var b struct {
		wire.EventWritten
		StreamIDs []string `json:"stream_ids"`
	}
	if err := json.Unmarshal(reply.body, &b); err != nil {
		return Receipt{}, notOurs(reply, err)
	}
	if b.StreamID != "" {
		b.StreamIDs = []string{b.StreamID}
	}
	if len(b.StreamIDs) == 0 {
		return Receipt{}, notOurs(reply, errors.New("it has no stream_id"))
	}
	return Receipt{
		b.StreamIDs, b.Length, b.ImpliedCount, b.ID, b.Handle, b.PublicID, reply.header.Get(headerReplayed) == "true",
	}, nil
}

// StateOptions picks a state other than the present one. At most one of At and Length is set.
type StateOptions struct {
	// At is a time in Unix seconds.
	At     string
	Length *uint64
	// Synchronous has the server compute the state from the first event on.
	Synchronous bool
}

// State is the reply to a read of a state.
type State struct {
	Data   json.RawMessage
	Length uint64
	// Metadata is the whole of the reply's metadata.
	Metadata json.RawMessage
}

// State reads the state of an aggregate.
func (c *Client) State(ctx context.Context, key j17.Key, o StateOptions) (State, error) {
	if err := keptType(key.Type); err != nil {
		return State{}, err
	}
	q := url.Values{}
	if o.At != "" {
		q.Set("at", o.At)
	}
	if o.Length != nil {
		q.Set("length", strconv.FormatUint(*o.Length, 10))
	}
	if o.Synchronous {
		q.Set("synchronous", "true")
	}
	var b struct {
		Data     json.RawMessage `json:"data"`
		Metadata json.RawMessage `json:"metadata"`
	}
	var m struct {
		Length uint64 `json:"length"`
	}
	if err := c.get(ctx, c.route(key.Type, key.ID), q, &b, func() error {
		return errors.Join(needs(b.Data != nil, "data"), json.Unmarshal(b.Metadata, &m))
	}); err != nil {
		return State{}, err
	}
	return State{b.Data, m.Length, b.Metadata}, nil
}

// ProjectionOptions says which value of a projection is wanted.
type ProjectionOptions struct {
	// Params are those of the array form.
	Params map[string]string
	// At is a time in Unix seconds or as RFC 3339, "" for the present.
	At string
	// Synchronous has the server compute the value from the events.
	Synchronous bool
}

// Length returns the number of events of an aggregate, 0 where there are none.
func (c *Client) Length(ctx context.Context, key j17.Key) (uint64, error) {
	var b struct {
		Length *uint64 `json:"length"`
	}
	if err := keptType(key.Type); err != nil {
		return 0, err
	}
	err := c.get(
		ctx, c.route(key.Type, key.ID, "length"), nil, &b, func() error { return needs(b.Length != nil, "length") },
	)
	if err != nil {
		return 0, err
	}
	return *b.Length, nil
}

// maxPage is the largest page of a list.
const maxPage = 1000

// EventsOptions selects events of an aggregate.
type EventsOptions struct {
	// Start is the stream id after which they begin, "" for all of them; Count is how many at most, 0 for no limit.
	Start string
	Count uint64
	// Stored asks for the events as they are stored, instead of in the newest generation of their types.
	Stored bool
}

// Events goes through events of an aggregate, oldest first. Each is yielded as its canonical bytes. It ends after an
// error.
func (c *Client) Events(
	ctx context.Context, key j17.Key, o EventsOptions,
) func(yield func(json.RawMessage, error) bool) {
	return func(yield func(json.RawMessage, error) bool) {
		if err := keptType(key.Type); err != nil {
			yield(nil, err)
			return
		}
		start := o.Start
		for left := o.Count; o.Count == 0 || left > 0; {
			// A page.
			size := uint64(maxPage)
			if o.Count > 0 {
				size = min(left, maxPage)
			}
			query := pageQuery(start, size)
			if o.Stored {
				asStored(query)
			}
			var page struct {
				Events []json.RawMessage `json:"events"`
				Next   json.RawMessage   `json:"next"`
			}
			if err := c.get(ctx, c.route(key.Type, key.ID, "events"), query, &page, func() error {
				return errors.Join(needs(page.Events != nil, "events"), needs(page.Next != nil, "next"))
			}); err != nil {
				yield(nil, err)
				return
			}

			for _, ev := range page.Events {
				if !yield(ev, nil) {
					return
				}
			}

			// Where the next one starts. A page must lead on.
			var next string // which stays empty where the page is the last one
			if err := json.Unmarshal(page.Next, &next); err != nil {
				yield(nil, fmt.Errorf("the server sent a page of events whose next one cannot be found: %w", err))
				return
			}
			switch {
			case next == "":
				return
			case len(page.Events) == 0 || next == start:
				yield(nil, fmt.Errorf("the server sent a page of events whose next one starts where it did"))
				return
			}
			left -= min(uint64(len(page.Events)), left)
			start = next
		}
	}
}

// IDs goes through the ids of an aggregate type after start in byte order: at most count of them, 0 for no limit. It
// ends after an error.
func (c *Client) IDs(
	ctx context.Context, aggregateType, start string, count uint64,
) func(yield func(string, error) bool) {
	return func(yield func(string, error) bool) {
		if err := keptType(aggregateType); err != nil {
			yield("", err)
			return
		}
		for left := count; count == 0 || left > 0; {
			size := uint64(maxPage)
			if count > 0 {
				size = min(left, maxPage)
			}
			var page wire.IDs
			if err := c.get(
				ctx, []string{aggregateType}, pageQuery(start, size), &page,
				func() error { return needs(page.IDs != nil, "ids") },
			); err != nil {
				yield("", err)
				return
			}
			for _, id := range page.IDs {
				if !yield(id, nil) {
					return
				}
			}
			left -= min(uint64(len(page.IDs)), left)
			if page.Next == nil || *page.Next == start {
				return
			}
			start = *page.Next
		}
	}
}

func pageQuery(start string, size uint64) url.Values {
	q := url.Values{"count": {strconv.FormatUint(size, 10)}}
	if start != "" {
		q.Set("start", start)
	}
	return q
}

// asStored has a query ask for events as they are stored.
func asStored(q url.Values) { q.Set("generation", "stored") }

// get reads the reply to a GET into a value. complete then checks the value, since not all JSON is a reply of this API;
// an *Error that it returns is about a reply that is.
func (c *Client) get(ctx context.Context, path []string, query url.Values, into any, complete func() error) error {
	reply, err := c.do(ctx, request{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return err
	}
	if err = json.Unmarshal(reply.body, into); err == nil {
		err = complete()
	}
	if _, ours := errors.AsType[*Error](err); err != nil && !ours {
		return notOurs(reply, err)
	}
	return err
}

// needs is the error of a reply that lacks a member.
func needs(present bool, name string) error {
	if present {
		return nil
	}
	return fmt.Errorf("it has no %s", name)
}

// Names of headers.
const (
	headerIdempotencyKey = "Idempotency-Key"
	headerReplayed       = "X-Idempotency-Replayed"
	headerCorrelationID  = "X-Correlation-ID"
	headerIfMatch        = "If-Match"
	headerLastEvent      = "Last-Event-ID"
)

type request struct {
	method         string
	path           []string
	query          url.Values
	body           []byte
	content        *Content // in the place of body
	repeatable     bool
	nothingIfBusy  bool
	idempotencyKey string
	correlationID  string
	ifMatch        string
	lastEventID    string
	endless        bool // there is no time by which the reply has to be there whole
}

// again reports whether a request may be sent again where it is not known what has become of it.
func (r *request) again() bool {
	return r.method == http.MethodGet || r.idempotencyKey != "" || r.repeatable
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request, again if it failed in a way that may pass and repeating it is safe.
func (c *Client) do(ctx context.Context, r request) (reply, error) {
	wait := firstWait
	for attempt := 1; ; attempt++ {
		got, err := c.once(ctx, r)
		if err == nil || ctx.Err() != nil || attempt >= c.o.Attempts {
			return got, err
		}
		// A server that has never answered is unlikely to come back in a moment.
		absent := refused(err) && !c.answered.Load()
		pause, again := retryAfter(err, r.again() || r.nothingIfBusy && isBusy(err))
		if !again || absent && attempt > 1 {
			return got, err
		}
		pause = max(pause, wait)
		if c.o.Retrying != nil && !absent {
			c.o.Retrying(err, pause)
		}
		if waitErr := c.o.Clock.Wait(ctx, c.o.Clock.Now().Add(pause)); waitErr != nil {
			return got, waitErr
		}
		wait = min(2*wait, longestWait)
	}
}

func (c *Client) once(ctx context.Context, r request) (reply, error) {
	resp, err := c.open(ctx, r)
	if err != nil {
		return reply{}, err
	}
	got, err := c.whole(ctx, resp)
	if err == nil && (got.status < 200 || got.status > 299) {
		err = c.failure(got)
	}
	return got, err
}

// open sends a request to where the instance is, and returns the reply before its body is read.
func (c *Client) open(ctx context.Context, r request) (*http.Response, error) {
	to := cmp.Or(c.node.Load(), c.first)
	for {
		var body io.Reader
		switch {
		case r.content != nil:
			body = r.content.reader()
		case r.body != nil:
			body = bytes.NewReader(r.body)
		}
		req, err := c.request(ctx, to, r, body)
		if err != nil {
			return nil, err
		}
		switch {
		case r.content != nil:
			req.ContentLength = r.content.Size
			req.Header.Set("Content-Type", r.content.Type)
		case r.body != nil:
			req.Header.Set("Content-Type", "application/json")
		}
		carrier := to.http
		if r.endless {
			carrier = new(*to.http)
			carrier.Timeout = 0
		}
		resp, err := carrier.Do(req)
		if err != nil {
			c.leave(to)
			return nil, c.unreachable(ctx, to.base, err)
		}
		c.answered.Store(true)
		if resp.StatusCode != http.StatusMisdirectedRequest {
			return resp, nil
		}

		// Another node has the instance. Nothing was done here, so the request can go there.
		got, err := c.whole(ctx, resp)
		if err != nil {
			return nil, err
		}
		err = c.failure(got)
		next := c.nodeOf(err)
		if next == nil || to != c.first {
			c.leave(to)
			return nil, err
		}
		c.node.Store(next)
		to = next
	}
}

// leave forgets a node that does not answer or no longer has the instance: the next request goes to the first one
// again.
func (c *Client) leave(node *place) {
	if node != c.first {
		c.node.CompareAndSwap(node, nil)
	}
}

// whole reads a reply to its end.
func (c *Client) whole(ctx context.Context, resp *http.Response) (reply, error) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return reply{}, c.unreachable(ctx, resp.Request.URL, err)
	}
	return reply{resp.StatusCode, resp.Header, raw}, nil
}

// request returns what is sent to a place for r.
func (c *Client) request(ctx context.Context, to *place, r request, body io.Reader) (*http.Request, error) {
	u := *to.base
	for _, segment := range r.path {
		u.RawPath = u.EscapedPath() + "/" + url.PathEscape(segment)
		u.Path += "/" + segment
	}
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, err
	}
	if to.host != "" {
		req.Host = to.host
	}
	for name, v := range map[string]string{
		headerIdempotencyKey: r.idempotencyKey, headerCorrelationID: r.correlationID, headerIfMatch: r.ifMatch,
		headerLastEvent: r.lastEventID,
	} {
		if v != "" {
			req.Header.Set(name, v)
		}
	}
	if c.o.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.Key)
	}
	return req, nil
}

// encode returns compact JSON that leaves characters as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}
