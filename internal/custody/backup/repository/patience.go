package repository

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"j17/internal/base/clock"
)

// How long an object store may keep its caller waiting. Each request may take requestTime, and a second for each
// slowest bytes that it moves; more than that is deducted from the grace, which fast requests refill.
const (
	grace       = 2 * time.Minute
	requestTime = 5 * time.Second
	slowest     = 16 << 10
)

// maxAnswer bounds an answer that is not the content of an object, in bytes: a page of a listing has a thousand names.
const maxAnswer = 8 << 20

// errSlow is the error of an object store that has used up the time that it may take.
var errSlow = errors.New("the server is too slow: it takes more than 5 seconds a request, or sends and takes less than 16 KiB a second, for too long")

// patience is a transport that waits for a server as long as it makes progress, measured in bytes and requests. A
// server that hangs, or sends only a byte now and then, is soon given up, and stays so. A server that is just fast
// enough is waited for as long as there are requests; those of a listing are limited.
type patience struct {
	next  http.RoundTripper
	clock clock.Clock

	mu   sync.Mutex
	left time.Duration
	over bool
}

func newPatience(next http.RoundTripper) *patience {
	// The real clock, whatever the server's clock shows.
	return &patience{next: next, clock: clock.System{}, left: grace}
}

// RoundTrip makes one request.
func (p *patience) RoundTrip(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	w := &wait{of: p, began: p.clock.Now(), allowed: p.left + requestTime}
	var refused error
	if p.over {
		refused = errSlow
	}
	p.mu.Unlock()
	if l, ok := req.Context().Value(listingKey{}).(*listing); ok && refused == nil {
		refused = l.page()
	}
	if refused != nil {
		if req.Body != nil {
			_ = req.Body.Close() // it was only read
		}
		return nil, refused
	}
	ctx, cut := context.WithCancelCause(req.Context())
	w.moved.Store(max(req.ContentLength, 0))
	w.end = sync.OnceFunc(func() {
		cut(nil)
		w.settle()
	})
	go w.watch(ctx, cut)

	answer, err := p.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		if errors.Is(context.Cause(ctx), errSlow) {
			err = errSlow
		}
		w.end()
		return nil, err
	}
	body := &watched{ReadCloser: answer.Body, ctx: ctx, wait: w}
	object := req.Method == http.MethodGet && req.URL.RawQuery == "" // whose size its reader limits
	if !object || answer.StatusCode != http.StatusOK {
		body.limit = maxAnswer
	}
	answer.Body = body
	return answer, nil
}

// wait is a request in progress.
type wait struct {
	of *patience
	// began is its start, allowed how long it may take beside the time for its bytes.
	began   time.Time
	allowed time.Duration
	// moved counts bytes: those of the request from its beginning, those of the answer as they arrive.
	moved atomic.Int64
	end   func()
}

// until is when the request has to end unless more bytes arrive.
func (w *wait) until() time.Time {
	return w.began.Add(w.allowed + time.Duration(w.moved.Load())*time.Second/slowest)
}

// watch cancels the request when its time is over.
func (w *wait) watch(ctx context.Context, cut context.CancelCauseFunc) {
	for {
		until := w.until()
		if w.of.clock.Wait(ctx, until) != nil {
			return
		}
		if w.until().After(until) {
			continue
		}
		w.of.mu.Lock()
		w.of.over = true
		w.of.mu.Unlock()
		cut(errSlow)
		return
	}
}

// settle deducts the time of an ended request from the grace, or refills it.
func (w *wait) settle() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	usual := requestTime + time.Duration(w.moved.Load())*time.Second/slowest
	w.of.left = min(max(w.of.left+usual-w.of.clock.Now().Sub(w.began), 0), grace)
}

// watched is the body of an answer.
type watched struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // that of the request, which ends with the body
	wait *wait
	// limit, if not 0, is the maximum size in bytes.
	limit int64
	read  int64
}

// Read reads the bytes that have arrived.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.wait.moved.Add(int64(n))
	if w.read += int64(n); w.limit > 0 && w.read > w.limit {
		return n, errTooLarge
	}
	if err != nil && errors.Is(context.Cause(w.ctx), errSlow) {
		err = errSlow
	}
	return n, err
}

// Close ends the request.
func (w *watched) Close() error {
	err := w.ReadCloser.Close()
	w.wait.end()
	return err
}
