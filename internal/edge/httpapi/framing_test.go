package httpapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"j17/internal/edge/httpapi"
)

// wire is one connection to a server of the fixture.
type wire struct {
	net.Conn
	in *bufio.Reader
}

func (f *fixture) wire(t *testing.T) *wire {
	t.Helper()
	server := httptest.NewServer(f.handler)
	t.Cleanup(server.Close)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // before the server, which waits for it
	return &wire{conn, bufio.NewReader(conn)}
}

// post sends a request with headers and a body as they are. It returns the status of the answer, and whether that
// closes the connection.
func (c *wire) post(t *testing.T, f *fixture, path, headers, body string) (status int, closes bool) {
	t.Helper()
	_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: app.j17.example\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s\r\n\r\n%s", path, f.key, headers, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Close
}

// TestTooLargeIsSaidBeforeTheBodyComes announces bodies that are too large and sends nothing of them. Without an answer
// the test would not end.
func TestTooLargeIsSaidBeforeTheBodyComes(t *testing.T) {
	f := newFixture(t, func(o *httpapi.Options) { o.MaxEventBytes = 1000 })
	for _, announced := range []int{1001, 200_000, 2_000_000} {
		c := f.wire(t)
		if status, _ := c.post(
			t, f, "/note/global/was_written", fmt.Sprintf("Content-Length: %d", announced), "",
		); status != http.StatusRequestEntityTooLarge {
			t.Errorf("%d bytes: %d", announced, status)
		}
		_ = c.Close()
	}
}

// TestChunkedRequestsEndTheirConnection: what follows one that had a length as well is not to be trusted.
func TestChunkedRequestsEndTheirConnection(t *testing.T) {
	f := newFixture(t, nil)
	event := `{"data":{},` + actor + `}`
	chunks := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(event), event)
	for name, headers := range map[string]string{
		"both": fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked", len(chunks)), "chunked": "Transfer-Encoding: chunked",
	} {
		c := f.wire(t)
		if status, closes := c.post(t, f, "/note/global/was_written", headers, chunks); status != http.StatusCreated ||
			!closes {
			t.Errorf("%s: %d, closes: %v", name, status, closes)
		}
		if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the connection goes on: %v", name, err)
		}
	}
	c := f.wire(t)
	for range 2 {
		if status, closes := c.post(
			t, f, "/note/global/was_written", fmt.Sprintf("Content-Length: %d", len(event)), event,
		); status != http.StatusCreated || closes {
			t.Errorf("a request with a length: %d, closes: %v", status, closes)
		}
	}
}
