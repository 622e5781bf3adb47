package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/wire"
)

// FeedFilter selects events of an environment: those that meet all conditions given.
type FeedFilter struct {
	// Type is the aggregate type, Event the event type.
	Type, Event string
	// Types are patterns of which one has to fit, such as order.was_placed or order.*; Tags are tags of which an event
	// has to have all.
	Types, Tags []string
	// Actor and Target are nil where any will do.
	Actor, Target *j17.Agent
	// Correlation is a correlation id, a UUID.
	Correlation string
	// Since is a time in Unix seconds or as RFC 3339, before which events are left out. It counts only where reading
	// does not begin at a position.
	Since string
	// Stored asks for the events as they are stored, instead of in the newest generation of their types.
	Stored bool
}

func (f *FeedFilter) query() url.Values {
	q := url.Values{}
	set := func(name, v string) {
		if v != "" {
			q.Set(name, v)
		}
	}
	set("type", f.Type)
	set("event", f.Event)
	set("types", wire.JoinList(f.Types))
	set("tags", wire.JoinList(f.Tags))
	set("correlation", f.Correlation)
	set("since", f.Since)
	if f.Stored {
		asStored(q)
	}
	if f.Actor != nil {
		set("actor", j17.Key(*f.Actor).String())
	}
	if f.Target != nil {
		set("target", j17.Key(*f.Target).String())
	}
	return q
}

// FeedPage is a page of the feed of an environment.
type FeedPage struct {
	// Events are in their canonical bytes.
	Events []json.RawMessage `json:"events"`
	// Next is where the next page starts, nil where there is nothing more for now; Position is how far the server has
	// looked.
	Next     *string `json:"next"`
	Position string  `json:"position"`
}

// Feed reads up to count events of the environment after a position, "" for the beginning.
func (c *Client) Feed(ctx context.Context, f FeedFilter, after string, count uint64) (FeedPage, error) {
	q := f.query()
	q.Set("count", strconv.FormatUint(count, 10))
	if after != "" {
		beginAfter(q, after)
	}
	return c.feedPage(ctx, q)
}

// FeedBefore reads up to count events of the environment before a position, the newest first; "now" stands for the end.
// Next of the page is the position that the page after it starts from.
func (c *Client) FeedBefore(ctx context.Context, f FeedFilter, before string, count uint64) (FeedPage, error) {
	q := f.query()
	q.Set("count", strconv.FormatUint(count, 10))
	q.Set("before", before)
	return c.feedPage(ctx, q)
}

func (c *Client) feedPage(ctx context.Context, q url.Values) (FeedPage, error) {
	var page FeedPage
	err := c.get(ctx, c.route("_events"), q, &page, func() error {
		return errors.Join(needs(page.Events != nil, "events"), needs(page.Position != "", "position"))
	})
	return page, err
}

// beginAfter has a query begin after a position, in place of a time.
func beginAfter(q url.Values, after string) {
	q.Set("after", after)
	q.Del("since")
}

const (
	// silence is how long a stream may be silent before it is taken for dead: three heartbeats.
	silence = 45 * time.Second
	// maxLine bounds a line of a stream, and so an event.
	maxLine = 64 << 20
)

// Follow yields the events of the environment as they come, each as its canonical bytes: those after a position, or
// without one those from now on. Where the stream breaks off, it reconnects, for as long as it takes, and goes on after
// the last event. It ends after an error.
func (c *Client) Follow(ctx context.Context, f FeedFilter, after string) func(yield func(json.RawMessage, error) bool) {
	return c.FollowReady(ctx, f, after, func() {})
}

// FollowReady is Follow that calls ready when it is connected for the first time: from then on nothing is missed.
func (c *Client) FollowReady(
	ctx context.Context, f FeedFilter, after string, ready func(),
) func(yield func(json.RawMessage, error) bool) {
	return func(yield func(json.RawMessage, error) bool) {
		s := &follower{client: c, query: f.query(), last: after, ready: sync.OnceFunc(ready)}
		if after != "" {
			beginAfter(s.query, after)
		}
		wait := firstWait
		for attempt := 1; ; attempt++ {
			lines := s.lines
			more, err := s.run(ctx, yield)
			if !more {
				return
			}
			if ctx.Err() != nil {
				yield(nil, ctx.Err())
				return
			}

			// A fault of the request is not going to pass. A server that was never reached gets no more attempts than
			// elsewhere.
			if s.lines > lines {
				attempt, wait = 0, firstWait
			}
			asked, again := retryAfter(err, true)
			if err != nil && (!again || s.lines == 0 && attempt >= c.o.Attempts ||
				refused(err) && !c.answered.Load() && attempt > 1) {
				yield(nil, err)
				return
			}
			if err == nil {
				err = &Unreachable{URL: c.URL(), Err: errors.New("the stream has ended")}
			}
			pause := max(asked, wait)
			if c.o.Retrying != nil {
				c.o.Retrying(err, pause)
			}
			if err := c.o.Clock.Wait(ctx, c.o.Clock.Now().Add(pause)); err != nil {
				yield(nil, err)
				return
			}
			wait = min(2*wait, longestWait)
		}
	}
}

// follower is a stream over all of its connections.
type follower struct {
	client *Client
	query  url.Values
	// last is the id to go on after, "" while there is none; lines counts what came.
	last  string
	lines int
	// ready is called when a connection stands.
	ready func()
}

// run connects once and yields what arrives. It reports false when the caller wants no more; without an error the
// stream has ended.
func (s *follower) run(ctx context.Context, yield func(json.RawMessage, error) bool) (more bool, err error) {
	attempt, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := s.client.open(attempt, request{
		method: http.MethodGet, path: s.client.route("_events", "stream"), query: s.query, lastEventID: s.last,
		endless: true,
	})
	if err != nil {
		return true, err
	}
	if resp.StatusCode != http.StatusOK {
		got, err := s.client.whole(ctx, resp)
		if err == nil {
			err = s.client.failure(got)
		}
		return true, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	s.ready()

	// A connection of which nothing is heard is given up.
	var heard atomic.Int64
	go func() {
		for clk := s.client.o.Clock; ; {
			before := heard.Load()
			if clk.Wait(attempt, clk.Now().Add(silence)) != nil {
				return
			}
			if heard.Load() == before {
				cancel()
				return
			}
		}
	}()

	// The lines of blocks. What is neither an id nor data does not matter.
	body := bufio.NewReader(resp.Body)
	id, data := s.last, []byte(nil)
	for {
		line, err := readLine(body)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return true, nil
			}
			return true, s.client.unreachable(ctx, resp.Request.URL, err)
		}
		heard.Add(1)
		s.lines++
		name, v, _ := bytes.Cut(line, []byte(":"))
		v = bytes.TrimPrefix(v, []byte(" "))
		switch {
		case len(line) == 0:
			if len(data) > 0 && !yield(data, nil) {
				return false, nil
			}
			s.last, data = id, nil
		case string(name) == "id":
			id = string(v)
		case string(name) == "data" && data == nil:
			data = bytes.Clone(v)
		case string(name) == "data":
			data = append(append(data, '\n'), v...)
		}
	}
}

// readLine returns the next line without its end.
func readLine(r *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if long = append(long, part...); len(long) > maxLine {
				return nil, fmt.Errorf("a line of the stream is longer than %d bytes", maxLine)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if part = bytes.TrimSuffix(part[:len(part)-1], []byte("\r")); long == nil {
			return part, nil
		}
		return append(long, part...), nil
	}
}
