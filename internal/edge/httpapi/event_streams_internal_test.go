package httpapi

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"j17/internal/base/clock"
)

// manyStreams returns streams whose heartbeats are due and whose clients take nothing.
func manyStreams(t *testing.T, n int, conn func() net.Conn) (*streams, []*stream) {
	t.Helper()
	all := newStreams(&API{Options: Options{Logger: slog.New(slog.DiscardHandler)}}, none)
	all.unwatch = func() {}
	now := clock.System{}.Now()
	var open []*stream
	for range n {
		c := &call{request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)}
		s := &stream{
			all: all, call: c, control: http.NewResponseController(httptest.NewRecorder()), conn: conn(),
			heartbeat: time.Second, checked: now,
			pulse: make(chan struct{}, 1), failure: os.ErrDeadlineExceeded,
		}
		all.running[s] = struct{}{}
		all.byKey[""] = &keyStreams{open: n}
		all.byEnvironment[""]++
		open = append(open, s)
	}
	return all, open
}

// wait lets the time of a bubble pass.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	if err := (clock.System{}).Wait(t.Context(), time.Now().Add(d)); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

// TestHeartbeatsOfManyStreams: streams that have heartbeats at the same moment are woken one batch after the other.
func TestHeartbeatsOfManyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 3*wokenAtOnce + 1
		all, open := manyStreams(t, many, func() net.Conn { return nil })
		go all.watch(t.Context())
		wait(t, pulseInterval)
		for want := wokenAtOnce; ; want = min(want+wokenAtOnce, many) {
			woken := 0
			for _, s := range open {
				woken += len(s.pulse)
			}
			if woken != want {
				t.Errorf("%d were woken, want %d", woken, want)
			}
			if want == many {
				return
			}
			wait(t, wakeRest)
		}
	})
}

// slowToClose is a connection that takes a while to close.
type slowToClose struct {
	net.Conn
	began func()
	close <-chan struct{}
}

func (s *slowToClose) Close() error {
	s.began()
	<-s.close
	return nil
}

// TestManyClientsAreHungUpOn: of very many clients that take nothing at the same time, a few connections are closed at
// a time.
func TestManyClientsAreHungUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 5 * hungUpAtOnce
		var mu sync.Mutex
		closing := 0
		next := make(chan struct{})
		all, open := manyStreams(t, many, func() net.Conn {
			return &slowToClose{close: next, began: func() {
				mu.Lock()
				defer mu.Unlock()
				closing++
			}}
		})
		var ends sync.WaitGroup
		for _, s := range open {
			ends.Go(s.close)
		}
		for done := range many {
			synctest.Wait()
			if at := closing - done; at != min(hungUpAtOnce/2, many-done) {
				t.Fatalf("%d are closed at the same time", at)
			}
			next <- struct{}{}
		}
		ends.Wait()
		if n := all.count(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}
