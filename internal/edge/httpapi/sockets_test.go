//go:build unix

package httpapi_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"j17/internal/edge/httpapi"
)

// TestManyStreamsOverSockets opens many streams over real connections, with J17_SOAK as many as descriptors allow. All
// of them get what is written, and when they go nothing of them is left.
func TestManyStreamsOverSockets(t *testing.T) {
	streams := 150
	if os.Getenv("J17_SOAK") != "" {
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		const spare, ends = 200, 2
		streams = int(min(max(limit.Cur, 2*spare)-spare, 20_000) / ends)
	}
	f := newFixture(t, func(o *httpapi.Options) { o.StreamsPerKey, o.Streams = 2*streams, 2*streams })
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: f.handler, ConnContext: httpapi.ConnContext, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	defer func() {
		_ = s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()

	// All of them connect.
	clients := make([]*client, streams)
	for i := range clients {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // of the test
		if clients[i] = f.connect(t, conn, "/_events/stream"); clients[i].resp.StatusCode != http.StatusOK {
			t.Fatal(clients[i].resp.Status)
		}
	}
	if n := f.metric(t, "j17_streams"); n != float64(streams) {
		t.Errorf("%v of %d streams are open", n, streams)
	}

	// Each gets all events.
	const events = 3
	var want []string
	for range events {
		want = append(want, f.write(t, "global/was_written", `{}`))
	}
	var reading sync.WaitGroup
	for _, c := range clients {
		reading.Go(func() {
			for _, id := range want {
				for data := ""; data == ""; {
					var err error
					if data, err = c.next(); err != nil {
						t.Error(err)
						return
					}
				}
				if c.last != id {
					t.Errorf("%s, not %s", c.last, id)
				}
			}
		})
	}
	reading.Wait()
	if cut := f.metric(t, "j17_streams_cut_total"); cut != 0 {
		t.Errorf("%v were cut off", cut)
	}

	// When the server stops, so do they.
	f.Drain()
	for _, c := range clients {
		for err := error(nil); err == nil; {
			_, err = c.next()
		}
	}
}
