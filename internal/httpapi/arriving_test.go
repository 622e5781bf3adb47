package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAServerThatStopsWaitsForBodiesThatArrive: a body of which nothing comes for a while is cut off, and its client told to send it again; one of
// which a little comes each time is read to its end.
func TestAServerThatStopsWaitsForBodiesThatArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		p := f.serve(t)
		body := `{"data":{"text":"` + strings.Repeat("x", 20_000) + `"},` + actor + `}`
		// half sends the first half of a request and returns how to send pieces of the rest, and how it is answered in the end.
		half := func() (rest func(n int), answered <-chan int) {
			here, there := net.Pipe()
			t.Cleanup(func() { _ = here.Close() })
			p.connections <- there
			status := make(chan int, 1)
			go func() {
				resp, err := http.ReadResponse(bufio.NewReader(here), nil)
				if err != nil {
					status <- 0
					return
				}
				_ = resp.Body.Close()
				status <- resp.StatusCode
			}()
			left := fmt.Sprintf("POST /note/global/was_written HTTP/1.1\r\nHost: app.j17.example\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", f.key, len(body), body)
			rest = func(n int) {
				n = min(n, len(left))
				_, _ = io.WriteString(here, left[:n]) // who was cut off finds out by the answer
				left = left[n:]
				synctest.Wait()
			}
			rest(len(left) / 2)
			return rest, status
		}
		_, silent := half()
		more, steady := half()
		late, last := half()

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.EndStalled(ctx)
		}()
		synctest.Wait()
		if len(silent)+len(steady)+len(last) > 0 {
			t.Fatal("a body is not waited for at all")
		}
		more(1000)
		late(1 << 20) // all of it
		if got := <-last; got != http.StatusCreated {
			t.Errorf("a body that has come to its end is answered %d", got)
		}
		for range 4 {
			f.clock.Advance(5 * time.Second)
			synctest.Wait()
			more(1000)
		}
		if got := <-silent; got != http.StatusServiceUnavailable {
			t.Errorf("a body of which nothing comes is answered %d", got)
		}
		if len(steady) > 0 {
			t.Fatalf("a body that goes on arriving is answered %d", <-steady)
		}
		more(1 << 20)
		if got := <-steady; got != http.StatusCreated {
			t.Errorf("a body that went on arriving is answered %d", got)
		}
		stop()
		<-ended
	})
}
