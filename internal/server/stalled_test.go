package server_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"j17/internal/base/clock"
)

// drained is a clock that tells when somebody begins to wait for it who has a limited time, as all have who end a
// server.
type drained struct {
	*clock.Manual
	waits chan struct{}
}

func (c drained) Wait(ctx context.Context, t time.Time) error {
	if _, limited := ctx.Deadline(); limited {
		select {
		case c.waits <- struct{}{}:
		case <-ctx.Done():
		}
	}
	return c.Manual.Wait(ctx, t)
}

// TestAServerThatStopsEndsHalfABody stops a server while a body of which nothing more comes is waited for. Its client
// is told to send it again when the clock has moved on a little, long before the rest of the server's time to stop is
// over.
func TestAServerThatStopsEndsHalfABody(t *testing.T) {
	for name, encrypted := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			clk := drained{clock.NewManual(clock.System{}.Now()), make(chan struct{})}
			o := options(t)
			o.Clock, o.DrainTime = clk, time.Hour
			scheme := "http"
			if encrypted {
				scheme = "https"
				o.Certificate.CertFile, o.Certificate.KeyFile = certificate(
					t, t.TempDir(), "first", "control.example.test",
				)
			}
			n := start(t, o)
			address := n.serve.Ready().Addresses["public"]

			// A request whose body somebody waits for.
			const patience = 5 * time.Minute
			transport := &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
				ExpectContinueTimeout: patience,
				DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
					var d net.Dialer
					return d.DialContext(ctx, network, address)
				},
			}
			defer transport.CloseIdleConnections()
			waited := make(chan struct{})
			guard, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			body, sent := io.Pipe()
			defer sent.Close() //nolint:errcheck // a pipe
			r, err := http.NewRequestWithContext(httptrace.WithClientTrace(guard, &httptrace.ClientTrace{
				Got100Continue: func() { close(waited) },
			}),
				http.MethodPost, scheme+"://control.example.test/api/login", body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = 100
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Expect", "100-continue")
			answers := make(chan *http.Response, 1)
			go func() {
				resp, err := transport.RoundTrip(r)
				if err != nil {
					t.Error(err)
				} else {
					_ = resp.Body.Close()
				}
				answers <- resp
			}()
			select {
			case <-waited:
			case resp := <-answers:
				t.Fatalf("answered before its body has come: %+v", resp)
			}

			n.stop()
			for {
				select {
				case <-clk.waits:
					clk.Advance(5 * time.Second)
					continue
				case resp := <-answers:
					if resp != nil && (resp.StatusCode != http.StatusServiceUnavailable || resp.Proto != name) {
						t.Errorf("%s %s", resp.Proto, resp.Status)
					}
				}
				break
			}
		})
	}
}
