//go:build linux

package httpapi

import (
	"io"
	"net"
	"testing"
)

// TestTaken: what the other side of a connection has taken grows while it reads, and not before.
func TestTaken(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // of the test
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // of the test
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	before, _ := taken(server)

	// More than both sides together can hold.
	const much = 64 << 20
	sent := make(chan error, 1)
	go func() {
		_, err := server.Write(make([]byte, much))
		sent <- err
	}()
	if _, err := io.CopyN(io.Discard, client, much); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	after, known := taken(server)
	if !known {
		t.Skip("the system does not tell what was taken of a TCP connection")
	}
	if after-before < much/4 {
		t.Errorf("%d bytes were taken", after-before)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, known := taken(server); known {
		t.Error("what is closed is known")
	}
	here, there := net.Pipe()
	defer here.Close()  //nolint:errcheck // of the test
	defer there.Close() //nolint:errcheck // of the test
	if _, known := taken(here); known {
		t.Error("what is no socket is known")
	}
}
