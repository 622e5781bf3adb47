package httpapi

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
)

// stallTime is how long a body may stall once the server is about to stop.
const stallTime = 5 * time.Second

// arrivals are the bodies of requests under way, so that a stalled one does not hold up the end of the server.
type arrivals struct {
	mu  sync.Mutex
	all map[*arrival]struct{}
}

// arrival is a body that a handler may wait for.
type arrival struct {
	control *http.ResponseController
	// waiting reports that the handler waits for the next part; came counts the parts that have arrived.
	waiting atomic.Bool
	came    atomic.Int64
	// seen is what came was at the last look, -1 before the first; the mutex of arrivals guards it.
	seen int64
	// over reports that the handler has ended: what still arrives is read only so that the connection can be used
	// again.
	over atomic.Bool
	// cut is set when the wait has been ended.
	cut atomic.Bool
}

// add registers the body of a request, with the connection that its answer goes to, until remove.
func (s *arrivals) add(w http.ResponseWriter) *arrival {
	a := &arrival{control: http.NewResponseController(w), seen: -1}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[a] = struct{}{}
	return a
}

// remove unregisters a body: its connection is not touched from then on.
func (s *arrivals) remove(a *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, a)
}

// look ends the waits for bodies that have stalled since the last look, and for those whose handler has ended.
func (s *arrivals) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.all {
		came := a.came.Load()
		if !a.waiting.Load() {
			came = -1 // its client is not to blame
		}
		if a.over.Load() || came >= 0 && came == a.seen {
			a.cut.Store(true)
			_ = a.control.SetReadDeadline(clock.System{}.Now()) // without a connection, nothing waits
		}
		a.seen = came
	}
}

// EndStalled ends requests whose bodies have stalled, and those that only wait for the rest of a body that no handler
// wants, until the context ends. It is for a server that is about to stop: bodies that keep arriving are read to their
// ends.
func (a *API) EndStalled(ctx context.Context) {
	for {
		a.arrivals.look()
		if a.Clock.Wait(ctx, a.Clock.Now().Add(stallTime)) != nil {
			return
		}
	}
}

// arriving is the body of a registered request.
type arriving struct {
	io.ReadCloser
	*arrival
	// left is how much of the body is still to come, as announced by the client; ended reports that no more comes. Only
	// Read changes them, and only the request's own goroutine reads.
	left  int64
	ended bool
}

// Read reads what has come.
func (b *arriving) Read(p []byte) (int, error) {
	b.waiting.Store(true)
	n, err := b.ReadCloser.Read(p)
	b.waiting.Store(false)
	b.came.Add(1)
	b.left -= int64(n)
	b.ended = b.ended || err != nil
	if err != nil && b.cut.Load() {
		err = j17.Errorf(j17.CodeUnavailable, "The server is about to stop, and nothing has come of the rest of the body for %d seconds. Nothing was stored. Send the request again.", stallTime/time.Second).Because(err)
	}
	return n, err
}

// maxPassedOver is how much of a body that the handler has not read may come behind it, as in net/http
// (maxPostHandlerReadBytes).
const maxPassedOver = 256 << 10

// passOver reads what a request's handler has left of its body, as net/http would do over HTTP/1.1 before it sends the
// answer: many clients read no answer before they have sent everything. Only here is it known that the server waits for
// the rest. Where a client has asked whether to send a body, net/http answers at once and ends the connection, but only
// when the body has come: such a client may as well send nothing more, and has drainTime.
func (b *arriving) passOver(w http.ResponseWriter, r *http.Request) {
	if b.ended || b.left >= maxPassedOver || r.ProtoMajor != 1 || r.Close {
		return // net/http does not wait for the rest either
	}
	asked := r.Header.Get("Expect") != ""
	if asked || w.Header().Get("Connection") == "close" {
		_ = b.control.Flush() // where its connection ends, the answer need not wait; a client that has gone needs none
	}
	if asked {
		// Of the connection, whatever the server's clock shows.
		_ = b.control.SetReadDeadline(clock.System{}.Now().Add(drainTime))
	}
	b.over.Store(true)
	_, _ = io.CopyN(io.Discard, b, maxPassedOver+1)
}
