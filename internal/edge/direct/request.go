package direct

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// request is a request that arrived whole, with nothing unusual about it. It has room for the forms in which handlers
// read and answer it.
type request struct {
	method, path, host string
	header             http.Header
	url                url.URL
	body               body
	asHTTP             http.Request
	answer             answer
	// missing is how many bytes of the body have not come. They are read from a connection where rest is not nil.
	missing int
	rest    coming
}

// coming is a body part of which is still to come: when the server ends, handlers begin without waiting for it.
type coming struct {
	net.Conn

	first strings.Reader
	left  int
}

// Read returns what is there first.
func (b *coming) Read(p []byte) (int, error) {
	if b.first.Len() > 0 {
		return b.first.Read(p)
	}
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	if b.left -= n; errors.Is(err, io.EOF) && b.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close does nothing: the connection is not the body's.
func (*coming) Close() error { return nil }

// body is what a request brings, in memory.
type body struct {
	strings.Reader

	text string
}

// Close does nothing.
func (*body) Close() error { return nil }

// Text returns the whole body, read or not, so that handlers that want it as a string need not copy it.
func (b *body) Text() string { return b.text }

// http returns the request as handlers expect it: a copy of like with the request's own parts.
func (p *request) http(like *http.Request) *http.Request {
	p.url.Path = p.path
	r := &p.asHTTP
	*r = *like
	r.Method, r.URL, r.RequestURI, r.Host, r.Header = p.method, &p.url, p.path, p.host, p.header
	r.Body = http.NoBody
	if n := p.body.Len(); p.missing > 0 {
		r.Body, r.ContentLength = &p.rest, int64(n+p.missing)
	} else if n > 0 {
		r.Body, r.ContentLength = &p.body, int64(n)
	}
	return r
}

// parse reads a request, nil where it is not one to be answered directly. more reports that the rest of it may still
// come: only that of the body, where there is a request.
//
// It accepts a small part of HTTP, on whose meaning all servers agree: GET without a body, or POST with a length; a
// path of plain letters; one field a line, each only once, with plain text after one space; a host. FuzzParse compares
// it with net/http.
func parse(b []byte) (p *request, more bool) {
	// The whole of the head is there.
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return nil, plainSoFar(b)
	}
	bodyAt := end + len("\r\n\r\n")
	text := string(b)
	line, fields, _ := strings.Cut(text[:end+len("\r\n")], "\r\n")

	// The first line.
	p = &request{}
	var version string
	p.method, line, _ = strings.Cut(line, " ")
	p.path, version, _ = strings.Cut(line, " ")
	if p.method != http.MethodPost && p.method != http.MethodGet || version != "HTTP/1.1" || !plainPath(p.path) {
		return nil, false
	}

	// The fields.
	values := make([]string, strings.Count(fields, "\n"))
	p.header = make(http.Header, len(values))
	length := -1
	for i := range values {
		var name, value string
		line, fields, _ = strings.Cut(fields, "\r\n")
		name, value, ok := strings.Cut(line, ":")
		if !ok || !plainName(name) {
			return nil, false
		}
		if value, ok = plainValue(value); !ok {
			return nil, false
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		switch name {
		case "Host":
			if p.host != "" || !plainHost(value) {
				return nil, false
			}
			p.host = value
			continue
		case "Content-Length":
			if length, ok = plainLength(value); !ok {
				return nil, false
			}
		case "Connection":
			if value != "keep-alive" {
				return nil, false
			}
		case "Transfer-Encoding", "Te", "Trailer", "Expect", "Upgrade", "Http2-Settings", "Keep-Alive",
			"Proxy-Connection", "Pragma":
			return nil, false // they change how a request or its connection is to be treated, or did once
		}
		if p.header[name] != nil {
			return nil, false
		}
		values[i] = value
		p.header[name] = values[i : i+1 : i+1]
	}
	if p.host == "" || (length >= 0) != (p.method == http.MethodPost) {
		return nil, false
	}

	// The body, and nothing behind it.
	switch has := len(b) - bodyAt; {
	case has < max(length, 0):
		p.missing = length - has
	case has > max(length, 0):
		return nil, false
	}
	p.body.text = text[bodyAt:]
	p.body.Reset(p.body.text)
	return p, p.missing > 0
}

// plainSoFar reports whether the part of a head that has arrived may become that of a request to be answered directly.
// Where it cannot, the client may already be waiting for an answer.
func plainSoFar(b []byte) bool {
	line, _, whole := bytes.Cut(b, []byte("\r\n"))
	if whole && !bytes.HasSuffix(line, []byte(" HTTP/1.1")) {
		return false
	}
	for i, c := range b {
		switch {
		case c == '\r' && i+1 < len(b) && b[i+1] != '\n', c == '\n' && (i == 0 || b[i-1] != '\r'):
			return false
		case c != '\r' && c != '\n' && (c < ' ' || c > '~'):
			return false
		}
	}
	return true
}

// plainPath reports whether a path is literal: without a query or escapes.
func plainPath(s string) bool {
	if s == "" || s[0] != '/' || strings.HasPrefix(s, "//") {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '/' && c != '-' && c != '_' && c != '.' && c != '~' {
			return false
		}
	}
	return true
}

func plainName(s string) bool {
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '-' {
			return false
		}
	}
	return s != ""
}

// plainValue returns a value without the one space that may stand before it.
func plainValue(s string) (string, bool) {
	s = strings.TrimPrefix(s, " ")
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return "", false
		}
	}
	return s, s == "" || s[0] != ' ' && s[len(s)-1] != ' '
}

// plainHost reports whether a host is a name or an IPv4 address, with or without a port.
func plainHost(s string) bool {
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '-' && c != '.' && c != ':' && c != '_' {
			return false
		}
	}
	return s != ""
}

// plainLength reads the length of a body that fits into what is read at once.
func plainLength(s string) (int, bool) {
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' || i > 0 && n == 0 {
			return 0, false
		}
		if n = n*10 + int(s[i]-'0'); n > longest {
			return 0, false
		}
	}
	return n, s != ""
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
