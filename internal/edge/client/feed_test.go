package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/edge/client"
)

func TestFeed(t *testing.T) {
	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		want := url.Values{"type": {"note"}, "actor": {"user:u:tag"}, "after": {"1700000000000-0"}, "count": {"7"}}
		if diff := cmp.Diff(want, r.URL.Query()); r.URL.Path != "/_events" || diff != "" {
			t.Error(r.URL.Path, diff)
		}
		answer(w, 200, `{"ok":true,"events":[{"n":1.0}],"next":null,"position":"1700000000000-9"}`)
	}, nil)
	got, err := c.Feed(
		t.Context(), client.FeedFilter{Type: "note", Actor: &j17.Agent{Type: "user", ID: "u:tag"}}, "1700000000000-0",
		7,
	)
	if err != nil || len(got.Events) != 1 || string(got.Events[0]) != `{"n":1.0}` || got.Next != nil ||
		got.Position != "1700000000000-9" {
		t.Errorf("%+v, %v", got, err)
	}
}

// carried answers requests in the place of a network.
type carried func(*http.Request) (*http.Response, error)

func (c carried) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

// silent is a body that ends with the request only.
type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// TestFollow has a stream break off in all sorts of ways. It goes on after the last event each time, until it may no
// more.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type connection struct {
			last, body string
			status     int
			fails      error
			silent     bool
		}
		long := strings.Repeat("x", 100_000)
		script := []connection{
			{last: "", body: ": hello\n\nid: 1\n\n"},
			{last: "1", body: "id: 2\ndata: {\"n\":2}\n\n:\n\nid: 3\ndata: {\"n\":3"}, // cut in its middle
			{last: "2", fails: fmt.Errorf("broken")},
			{last: "2", status: 503, body: `{"code":"unavailable","error":"Later."}`},
			{last: "2", status: 429, body: `{"code":"too_many_streams","error":"Too many."}`},
			{last: "2", body: "id: 3\r\ndata:{\"n\":3}\r\n\r\nid: 4\ndata: {\"n\":4,\ndata: \"m\":1}\n\nid: 5\ndata: {\"s\":\"" + long + "\"}\n\nid: 9\n\n", silent: true},
			{last: "9", status: 401, body: `{"code":"unauthorized","error":"Invalid API key"}`},
		}
		at := 0
		var told int
		c, err := client.New(client.Options{
			URL: "http://j17.example", Key: "secret", Clock: clock.System{},
			Retrying: func(error, time.Duration) { told++ },
			Around: func(http.RoundTripper) http.RoundTripper {
				return carried(func(r *http.Request) (*http.Response, error) {
					step := script[at]
					at++
					if got := r.Header.Get("Last-Event-ID"); r.URL.Path != "/_events/stream" || r.URL.Query().
						Encode() != "generation=stored&type=note" || got != step.last ||
						r.Header.Get("Authorization") != "Bearer secret" {
						t.Errorf("connection %d: %s after %q", at, r.URL, got)
					}
					if step.fails != nil {
						return nil, step.fails
					}
					body := io.Reader(strings.NewReader(step.body))
					if step.silent {
						body = io.MultiReader(body, silent{r.Context()})
					}
					return &http.Response{
						StatusCode: max(step.status, http.StatusOK), Header: http.Header{}, Body: io.NopCloser(body),
						Request: r,
					}, nil
				})
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for ev, failed := range c.Follow(t.Context(), client.FeedFilter{Type: "note", Stored: true}, "") {
			if err = failed; err == nil {
				got = append(got, string(ev))
			}
		}
		want := []string{`{"n":2}`, `{"n":3}`, "{\"n\":4,\n\"m\":1}", `{"s":"` + long + `"}`}
		if j17.CodeOf(err) != j17.CodeUnauthorized || !slices.Equal(got, want) || at != len(script) ||
			told != len(script)-1 {
			t.Errorf("%d connections, %d waits, %.200q, %v", at, told, got, err)
		}
	})
}

// TestFollowEnds: with its context, and where nobody was ever there.
func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		follow := func(answer carried) (connections int, err error) {
			c, err := client.New(client.Options{
				URL: "http://j17.example", Clock: clock.System{}, Attempts: 3,
				Around: func(http.RoundTripper) http.RoundTripper {
					return carried(func(r *http.Request) (*http.Response, error) {
						connections++
						return answer(r)
					})
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, failed := range c.Follow(ctx, client.FeedFilter{}, "0") {
				err = failed
			}
			return connections, err
		}
		if n, err := follow(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }); n != 3 ||
			err == nil {
			t.Errorf("%d connections, %v", n, err)
		}
		n, err := follow(func(r *http.Request) (*http.Response, error) {
			cancel()
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(silent{r.Context()}), Request: r,
			}, nil
		})
		if n != 1 || err == nil || ctx.Err() == nil {
			t.Errorf("%d connections, %v", n, err)
		}
	})
}

// TestOperatorsRead has a client read by the routes of operators: the same as with an API key, below the administration
// of the environment.
func TestOperatorsRead(t *testing.T) {
	var asked []string
	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.EscapedPath()+"?"+r.URL.RawQuery)
		answer(w, 200, `{"ok":true,"data":{},"metadata":{"length":1},"length":1,"events":[],"next":null,"position":"0","keys":[]}`)
	}, nil)
	own, at := c, []string{"api", "instances", "ins_1", "ops", "prod"}
	for _, c := range []*client.Client{own, own.ForOperator(at)} {
		key := j17.Key{Type: "note", ID: "a/b"}
		_, err := c.State(t.Context(), key, client.StateOptions{})
		_, lengthErr := c.Length(t.Context(), key)
		for _, eventsErr := range c.Events(t.Context(), key, client.EventsOptions{Count: 1}) {
			err = errors.Join(err, eventsErr)
		}
		_, feedErr := c.Feed(t.Context(), client.FeedFilter{Since: "17"}, "", 1)
		// Goes on where the page before ended.
		_, pageErr := c.Feed(t.Context(), client.FeedFilter{Since: "17"}, "9-0", 1)
		_, beforeErr := c.FeedBefore(t.Context(), client.FeedFilter{Correlation: "x"}, "now", 2)
		var keys any
		keysErr := c.Audit(t.Context(), []string{"keys"}, nil, &keys)
		_, checkpointErr := c.Checkpoint(t.Context())
		if err := errors.Join(err, lengthErr, feedErr, pageErr, beforeErr, keysErr, checkpointErr); err != nil {
			t.Error(err)
		}
		for _, err := range []error{
			kept(c.State(t.Context(), j17.Key{Type: "_events", ID: "x"}, client.StateOptions{})),
			kept(c.Length(t.Context(), j17.Key{Type: "_events", ID: "x"})),
		} {
			if j17.CodeOf(err) != j17.CodeUnknownType {
				t.Errorf("a name of the server's own: %v", err)
			}
		}
	}
	below := "/api/instances/ins_1/ops/prod"
	want := []string{
		"/note/a%2Fb?", "/note/a%2Fb/length?", "/note/a%2Fb/events?count=1", "/_events?count=1&since=17",
		"/_events?after=9-0&count=1",
		"/_events?before=now&correlation=x&count=2", "/_audit/keys?", "/_audit/checkpoint?",
		below + "/aggregates/note/a%2Fb?", below + "/aggregates/note/a%2Fb/length?",
		below + "/aggregates/note/a%2Fb/events?count=1",
		below + "/events?count=1&since=17", below + "/events?after=9-0&count=1",
		below + "/events?before=now&correlation=x&count=2", below + "/audit/keys?", below + "/audit/checkpoint?",
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
}

func kept[T any](_ T, err error) error { return err }
