package direct

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"reflect"
	"testing"
)

const post = "POST /order/1/was_placed HTTP/1.1\r\nHost: app.localhost:17000\r\nauthorization: Bearer x\r\nContent-Length: 7\r\n\r\n{\"a\":1}"

// FuzzParse holds what is answered directly against what net/http reads in the same bytes.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		post,
		"GET /order/1 HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nAccept: */*\r\nIf-None-Match: \"a\"\r\n\r\n",
		"POST /a/b/c HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"POST /a/b/c HTTP/1.1\r\nHost:x\r\nA:\r\nB: c  d\r\nContent-Length: 2\r\n\r\nab",
		"GET /a/../b HTTP/1.1\r\nHost: x\r\n\r\n", "GET /~a HTTP/1.1\r\nHost: a_b.c:1:2\r\n\r\n", "GET / HTTP/1.1\r\nhost: -\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	for _, seed := range unusual() {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, more := whole(b)
		if p == nil {
			return
		}
		if more {
			t.Fatal("there is a request, and more of it")
		}
		in := bufio.NewReader(bytes.NewReader(b))
		want, err := http.ReadRequest(in)
		if err != nil {
			t.Fatalf("net/http refuses it: %v", err)
		}
		got := p.http(&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1})
		wantBody, err := io.ReadAll(want.Body)
		if err != nil {
			t.Fatal(err)
		}
		gotBody, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(gotBody, wantBody) || in.Buffered() > 0 {
			t.Errorf("the body is %q, net/http says %q and leaves %d bytes", gotBody, wantBody, in.Buffered())
		}
		if whole, ok := got.Body.(interface{ Text() string }); ok != (len(wantBody) > 0) ||
			ok && whole.Text() != string(wantBody) {
			t.Errorf("the body as a text is not %q", wantBody)
		}
		got.Body, want.Body = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%+v\nnet/http says\n%+v", got, want)
		}
		for i := range b {
			if p, _ := whole(b[:i]); p != nil {
				t.Fatalf("the first %d bytes are a request as well", i)
			}
		}
	})
}

// TestPieces checks that a request that has not come whole is waited for.
func TestPieces(t *testing.T) {
	for i := range len(post) {
		if p, more := whole([]byte(post[:i])); p != nil || !more {
			t.Fatalf("the first %d bytes: %v, more: %v", i, p, more)
		}
	}
	if p, _ := parse([]byte(post)); p == nil {
		t.Fatal("the whole is not taken")
	}
}

// TestUnusual checks that whatever there is more to say about is left to net/http.
func TestUnusual(t *testing.T) {
	for _, text := range unusual() {
		if p, more := parse([]byte(text)); p != nil || more {
			t.Errorf("%q: %v, more: %v", text, p, more)
		}
	}
}

func unusual() []string {
	with := func(field string) string {
		return "POST /a/b/c HTTP/1.1\r\nHost: x\r\n" + field + "\r\nContent-Length: 2\r\n\r\n{}"
	}
	all := []string{
		post + "GET", "PUT" + post[len("POST"):], "POST /a/b/c HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
		"POST /a/b/c HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", "POST /a/b/c HTTP/1.1\r\nHost: x\r\n\r\n", "GET /a/b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET a HTTP/1.1\r\nHost: x\r\n\r\n", "GET //a HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /a%2Fb HTTP/1.1\r\nHost: x\r\n\r\n", "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n", "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", "GET /ä HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET  /a HTTP/1.1\r\nHost: x\r\n\r\n", "GET /a HTTP/1.1 \r\nHost: x\r\n\r\n", "GET /a HTTP/1.1\nHost: x\n\r\n\r\n", "\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n",
		// To these an answer may be expected before an empty line has come: other ends of lines, other versions, a
		// client that begins with TLS.
		"GET /a HTTP/1.1\nHost: x\n\n", "GET /a HTTP/1.1\r\nHost: x\n\n", "GET /a HTTP/1.1\rHost: x\r\r", "GET /a\r\n",
		"PING\r\n", "GET /a HTTP/1.0\r\n", "\x16\x03\x01\x02\x00\x01",
	}
	for _, field := range []string{
		"Transfer-Encoding: chunked", "transfer-encoding: identity", "Expect: 100-continue", "Connection: close",
		"Connection: keep-alive, upgrade",
		"Connection: keep-alive\r\nConnection: keep-alive", "Upgrade: h2c", "Trailer: X", "Te: trailers", "Pragma: no-cache", "Host: y", "Content-Length: 2",
		"A : b", "A\t: b", " a: b", "A: b\r\n c", "A:  b", "A: b ", "A: \tb", "A: \x00", "A: ä", "A", ": b",
		"A: b\r\na: c", "A: b\nC: d", "A: b\rC: d",
	} {
		all = append(all, with(field))
	}
	for _, length := range []string{"", "+2", "-2", "02", "0x2", "2, 2", "2 2", "99999999999999999999", "4097"} {
		all = append(all, "POST /a/b/c HTTP/1.1\r\nHost: x\r\nContent-Length: "+length+"\r\n\r\n{}")
	}
	for _, host := range []string{"", "a b", "a/b", "[::1]", "a,b", "a@b"} {
		all = append(all, "GET /a HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
	}
	return all
}

// whole is parse for requests of which nothing is missing.
func whole(b []byte) (p *request, more bool) {
	if p, more = parse(b); more {
		return nil, true
	}
	return p, false
}
