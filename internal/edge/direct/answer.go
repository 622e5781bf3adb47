package direct

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// smallAnswer is how much of an answer is put together in memory, and keptAnswer the room that is kept for the next
// one.
const smallAnswer, keptAnswer = 16 << 10, 4 << 10

// answer is the http.ResponseWriter of one request. An answer goes out in one piece at the end, or, where it is long,
// behind its head.
type answer struct {
	conn   *connection
	header http.Header
	status int
	// length is the length of the body as the handler announced it, -1 where it did not; written is how much of the
	// body the handler has written, sent or not.
	length, written int64
	// buffered is the body so far while the head has not been sent. head reports that the head has been sent, failed
	// that sending has failed.
	buffered     []byte
	head, failed bool
	// late reports that a part of the request's body is missing.
	late bool
}

// Header returns the header, as of http.ResponseWriter.
func (w *answer) Header() http.Header { return w.header }

// SetReadDeadline is for http.ResponseController: the time until which to wait for the missing part of a body. It is
// http.ErrNotSupported for a body that is complete.
func (w *answer) SetReadDeadline(at time.Time) error {
	if !w.late {
		return http.ErrNotSupported
	}
	return w.conn.SetReadDeadline(at)
}

// WriteHeader fixes the status, as of http.ResponseWriter. Provisional answers are left out.
func (w *answer) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK {
		return
	}
	w.status, w.length = status, -1
	if given := w.header["Content-Length"]; len(given) == 1 {
		if n, err := strconv.ParseInt(given[0], 10, 64); err == nil && n >= 0 {
			w.length = n
		}
	}
	if w.length < 0 {
		delete(w.header, "Content-Length")
	}
}

// Write takes a part of the body, as of http.ResponseWriter.
func (w *answer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !hasBody(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if w.written += int64(len(b)); w.length >= 0 && w.written > w.length {
		return 0, http.ErrContentLength
	}
	if !w.head && len(w.buffered)+len(b) <= smallAnswer {
		w.buffered = append(w.buffered, b...)
		return len(b), nil
	}

	// A long one is sent as it comes.
	if !w.head {
		w.head = true
		if w.length < 0 {
			w.header["Transfer-Encoding"] = []string{"chunked"}
		}
		first := w.buffered
		if len(first) == 0 {
			first = b
		}
		w.send(w.appendHead(nil, first))
		w.sendPiece(w.buffered)
	}
	if w.sendPiece(b); w.failed {
		return 0, errGone
	}
	return len(b), nil
}

// errGone is the error of an answer that its client does not read.
var errGone = errors.New("direct: the client takes no more of the answer")

// sendPiece writes a piece of a long body, as a chunk where the length was not announced.
func (w *answer) sendPiece(b []byte) {
	switch {
	case len(b) == 0:
	case w.length >= 0:
		w.send(b)
	default:
		w.send(append(strconv.AppendInt(nil, int64(len(b)), 16), "\r\n"...))
		w.send(b)
		w.send([]byte("\r\n"))
	}
}

// send writes to the client, unless that has failed before.
func (w *answer) send(b []byte) {
	if w.failed {
		return
	}
	_, err := w.conn.Write(b)
	w.failed = err != nil
}

// end sends what is left of the answer, and reports whether the connection can be used again.
func (w *answer) end() bool {
	w.WriteHeader(http.StatusOK)
	if !w.head {
		body := w.buffered
		if w.length < 0 && hasBody(w.status) {
			w.header["Content-Length"] = []string{strconv.Itoa(len(body))}
		}
		whole := append(w.appendHead(w.conn.out[:0], body), body...)
		w.send(whole)
		if w.conn.body, w.conn.out = body[:0], whole[:0]; cap(whole) > keptAnswer {
			w.conn.body, w.conn.out = nil, nil
		}
	} else if w.length < 0 {
		w.send([]byte("0\r\n\r\n"))
	}
	complete := w.length < 0 || w.written == w.length || !hasBody(w.status)
	return complete && !w.failed && !strings.EqualFold(w.header.Get("Connection"), "close")
}

// appendHead appends the status line and the header of an answer; body is how its body begins.
func (w *answer) appendHead(b, body []byte) []byte {
	if len(body) > 0 && w.header["Content-Type"] == nil && w.header["Content-Encoding"] == nil {
		w.header["Content-Type"] = []string{http.DetectContentType(body)}
	}
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(w.status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(w.status)...)
	b = append(b, "\r\n"...)
	for name, values := range w.header {
		for _, v := range values {
			b = appendField(b, name, v)
		}
	}
	if _, given := w.header["Date"]; !given {
		b = append(b, "Date: "...)
		b = now().AppendFormat(b, http.TimeFormat)
		b = append(b, "\r\n"...)
	}
	if w.conn.front.ended() && w.header["Connection"] == nil {
		b = appendField(b, "Connection", "close")
	}
	return append(b, "\r\n"...)
}

// appendField appends a line of the header. A value cannot break out of its line.
func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	if strings.ContainsAny(value, "\r\n") {
		value = strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
	}
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// hasBody reports whether answers of a status have one.
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}
