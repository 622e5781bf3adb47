package httpapi

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/clock"
)

// stallTime is how long nothing of a body may arrive once the server is about to stop.
const stallTime = 5 * time.Second

// arrivals are the bodies of requests under way, so that none of which nothing comes any more holds up the end of the server.
type arrivals struct {
	mu  sync.Mutex
	all map[*arrival]struct{}
}

// arrival is a body that somebody may wait for.
type arrival struct {
	control *http.ResponseController
	// waiting tells that somebody waits for what comes next, came counts the times that something has come.
	waiting atomic.Bool
	came    atomic.Int64
	// seen is what came was at the last look, -1 before the first; the mutex of all guards it.
	seen int64
	// cut is set when nobody waits any longer.
	cut atomic.Bool
}

// add has the body of a request looked after by the connection that its answer goes to, until remove.
func (s *arrivals) add(w http.ResponseWriter) *arrival {
	a := &arrival{control: http.NewResponseController(w), seen: -1}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[a] = struct{}{}
	return a
}

// remove ends that: nothing is done to its connection from then on.
func (s *arrivals) remove(a *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, a)
}

// look ends the waiting for bodies of which nothing has come since the last look.
func (s *arrivals) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.all {
		came := a.came.Load()
		if !a.waiting.Load() {
			came = -1 // its client is not to blame
		}
		if came >= 0 && came == a.seen {
			a.cut.Store(true)
			_ = a.control.SetReadDeadline(clock.System{}.Now()) // where there is no connection, nobody waits for one
		}
		a.seen = came
	}
}

// EndStalled ends requests of whose bodies nothing comes for a while, until the context ends. It is for a server that is about to stop: those that
// go on arriving are read to their ends.
func (a *API) EndStalled(ctx context.Context) {
	for {
		a.arrivals.look()
		if a.Clock.Wait(ctx, a.Clock.Now().Add(stallTime)) != nil {
			return
		}
	}
}

// arriving is the body of a request that is looked after.
type arriving struct {
	io.ReadCloser
	*arrival
}

// Read reads what has come.
func (b arriving) Read(p []byte) (int, error) {
	b.waiting.Store(true)
	n, err := b.ReadCloser.Read(p)
	b.waiting.Store(false)
	b.came.Add(1)
	if err != nil && b.cut.Load() {
		err = j17.Errorf(j17.CodeUnavailable, "The server is about to stop, and nothing has come of the rest of the body for %d seconds. Nothing was stored. Send the request again.", stallTime/time.Second).Because(err)
	}
	return n, err
}
