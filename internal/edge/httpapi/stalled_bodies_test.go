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

	"j17/internal/storage/testopen"
)

// TestAServerThatStopsWaitsForBodiesThatArrive: a body of which nothing comes for a while is cut off, and its client
// told to send it again; one of which a little comes each time is read to its end. With HTTP/2, all of them share a
// connection.
func TestAServerThatStopsWaitsForBodiesThatArrive(t *testing.T) {
	for name, speak := range map[string]func(*http.Protocols, bool){
		"HTTP/1.1": (*http.Protocols).SetHTTP1, "HTTP/2": (*http.Protocols).SetUnencryptedHTTP2,
	} {
		t.Run(name, func(t *testing.T) { testopen.Bubble(t, func(t *testing.T) { testStalledBodies(t, speak) }) })
	}
}

func testStalledBodies(t *testing.T, speak func(*http.Protocols, bool)) {
	t.Helper()
	f := newFixture(t, nil)
	spoken := &http.Protocols{}
	speak(spoken, true)
	p, dialled := f.serveBy(t, spoken), 0
	transport := &http.Transport{
		Protocols: spoken,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			p.connections <- there
			dialled++
			return here, nil
		},
	}
	defer transport.CloseIdleConnections()
	body := `{"data":{"text":"` + strings.Repeat("x", 20_000) + `"},` + actor + `}`

	// half sends the first half of a request and returns how to send pieces of the rest, and how it is answered in the
	// end.
	half := func() (rest func(n int), answered <-chan int) {
		arriving, sent := io.Pipe()
		t.Cleanup(func() { _ = sent.Close() })
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://app.j17.example/note/global/was_written", arriving)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = int64(len(body))
		r.Header.Set("Authorization", "Bearer "+f.key)
		r.Header.Set("Content-Type", "application/json")
		status := make(chan int, 1)
		go func() {
			resp, err := transport.RoundTrip(r)
			if err != nil {
				status <- 0
				return
			}
			_ = resp.Body.Close()
			status <- resp.StatusCode
		}()
		left := body
		rest = func(n int) {
			n = min(n, len(left))
			_, _ = io.WriteString(sent, left[:n]) // who was cut off finds out by the answer
			if left = left[n:]; left == "" {
				_ = sent.Close()
			}
			synctest.Wait()
		}
		rest(len(left) / 2)
		return rest, status
	}
	_, silent := half()
	more, steady := half()
	late, last := half()
	if want := map[bool]int{true: 3, false: 1}[spoken.HTTP1()]; dialled != want {
		t.Fatalf("there are %d connections", dialled)
	}

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
}

// exchange is a connection, with the statuses of the answers as they come; ended is closed when the server ends it.
type exchange struct {
	net.Conn
	statuses chan int
	ended    chan struct{}
}

func (x exchange) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(x, text); err != nil {
		t.Fatal(err)
	}
}

// refused sends a request that is refused before its body has come, with some of that.
func (p *pipes) refused(t *testing.T, fields, body string) exchange {
	t.Helper()
	here, there := net.Pipe()
	p.connections <- there
	x := exchange{here, make(chan int, 10), make(chan struct{})}
	go func() {
		defer close(x.ended)
		in := bufio.NewReader(here)
		for {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			x.statuses <- resp.StatusCode
		}
	}()
	x.send(t, "POST /note/global/was_written HTTP/1.1\r\nHost: app.j17.example\r\nAuthorization: Bearer nobody\r\n"+fields+"\r\n\r\n"+body)
	return x
}

// TestAServerThatStopsDoesNotReadWhatItHasRefused: a request that is refused before its body has come waits for the
// rest as net/http does, so that its connection can be used again, but not once the server is about to stop.
func TestAServerThatStopsDoesNotReadWhatItHasRefused(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, nil)
		spoken := &http.Protocols{}
		spoken.SetHTTP1(true)
		p := f.serveBy(t, spoken)
		const length = 20_000
		half := strings.Repeat("x", length/2)
		post := func(fields, body string) exchange { return p.refused(t, fields, body) }

		// What has all come leaves a connection that is of use, half of it one that waits.
		known := fmt.Sprintf("Content-Length: %d", length)
		whole, left := post(known, half), post(known, half)
		chunked := post("Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s", length, half))
		asked := post(known+"\r\nExpect: 100-continue", half)
		large := post(fmt.Sprintf("Content-Length: %d", 1<<20), "")
		synctest.Wait()
		if got, want := [5]int{
			len(whole.statuses), len(left.statuses), len(chunked.statuses), len(asked.statuses), len(large.statuses),
		}, [5]int{0, 0, 1, 1, 1}; got != want {
			t.Errorf("%d answers have come, want %d", got, want)
		}
		whole.send(t, half+"GET /note/global HTTP/1.1\r\nHost: app.j17.example\r\n\r\n")
		for range 2 {
			if got := <-whole.statuses; got != http.StatusUnauthorized {
				t.Errorf("a request that has all come is answered %d", got)
			}
		}

		// None of them holds up the end.
		ctx, stop := context.WithCancel(t.Context())
		looked := make(chan struct{})
		go func() {
			defer close(looked)
			f.EndStalled(ctx)
		}()
		synctest.Wait()
		for name, x := range map[string]exchange{"of a known length": left, "in chunks": chunked, "unasked": asked} {
			select {
			case <-x.ended:
			default:
				t.Errorf("a connection on which half a body %s has come waits for the rest", name)
			}
			if len(x.statuses) != 1 || <-x.statuses != http.StatusUnauthorized {
				t.Errorf("a request half of which has come %s is not refused", name)
			}
		}
		stop()
		<-looked
		_ = whole.Close()
		for _, x := range []exchange{whole, left, chunked, asked, large} {
			<-x.ended
			_ = x.Close()
		}
	})
}

// TestWhoAsksWhetherToSendABody: a request that is refused is answered at once, and its connection ends soon, whether
// its client has sent nothing of the body or a part that it was not asked for.
func TestWhoAsksWhetherToSendABody(t *testing.T) {
	for name, c := range map[string]struct{ fields, sent string }{
		"nothing":          {"Content-Length: 100", ""},
		"a part":           {"Content-Length: 100", `{"data":`},
		"a part in chunks": {"Transfer-Encoding: chunked", "64\r\n{"},
	} {
		t.Run(name, func(t *testing.T) {
			testopen.Bubble(t, func(t *testing.T) {
				f := newFixture(t, nil)
				spoken := &http.Protocols{}
				spoken.SetHTTP1(true)
				began := time.Now()
				x := f.serveBy(t, spoken).refused(t, c.fields+"\r\nExpect: 100-continue", c.sent)
				if got := <-x.statuses; got != http.StatusUnauthorized {
					t.Errorf("it is answered %d", got)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("the answer comes after %v", took)
				}
				<-x.ended // the time of the test goes on by itself
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("the connection ends after %v", took)
				}
				_ = x.Close()
			})
		})
	}
}
