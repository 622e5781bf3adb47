package httpapi

import (
	"net/http"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/work"
)

// put writes a part of an answer that has begun, and breaks the answer off where the client is gone. Empty parts are
// not written: the compressing writer would announce compression and then not compress.
func (c *call) put(w http.ResponseWriter, part []byte) {
	if len(part) == 0 {
		return
	}
	n, err := w.Write(part)
	c.bytes += int64(n)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// startLines begins an answer of JSON lines.
func (c *call) startLines(w http.ResponseWriter) {
	if c.status != 0 {
		return
	}
	c.status = http.StatusOK
	h := w.Header()
	h.Set("Content-Type", typeLines)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}

// lines is an answer of many objects, one a line or, as one document, in an array. An error before the first object is
// answered as such; after it, only breaking the answer off shows that it is incomplete.
type lines struct {
	c     *call
	w     http.ResponseWriter
	of    string
	whole bool
	begun bool
	// members, if not nil, stand in the document behind the array: a comma and members.
	members []byte
	// position is the position that an export of events has reached. It is known only at the end of the export, so it
	// can only be sent as a trailer.
	position j17.StreamID
}

// headerPosition says up to which position of an environment an answer has all events.
const headerPosition = "X-J17-Position"

// separator stands between the objects of a document.
const separator = ",\n"

// pass writes whole lines or, for a document, objects each of which has the separator in front.
func (l *lines) pass(objects []byte) {
	if len(objects) == 0 {
		return
	}
	l.start()
	if l.whole && !l.begun {
		objects = objects[len(separator):]
	}
	l.begun = true
	l.c.put(l.w, objects)
}

// passInTurn sends a piece of an export, which took some units of work to make. The request makes the next piece in a
// turn, for which it waits however long that takes, so that what the client already has is not wasted.
func (l *lines) passInTurn(piece []byte, units int) error {
	l.c.slot.Give() // what follows takes as long as the client likes
	l.pass(piece)
	for {
		b := work.New(l.c.request.Context(), work.Replay)
		if b.Spend(units) || j17.CodeOf(b.Err()) != j17.CodeBusy {
			return b.Err()
		}
	}
}

// appendTo appends an object to some that are passed together.
func (l *lines) appendTo(objects, object []byte) []byte {
	if l.whole {
		return append(append(objects, separator...), object...)
	}
	return append(append(objects, object...), '\n')
}

// start begins the answer.
func (l *lines) start() {
	if l.c.status != 0 {
		return
	}
	if l.of == "events" {
		l.w.Header().Set("Trailer", headerPosition)
	}
	if !l.whole {
		l.c.startLines(l.w)
		return
	}
	h := l.w.Header()
	h.Set("Content-Type", typeJSON)
	h.Set("Cache-Control", "no-store")
	l.c.status = http.StatusOK
	l.w.WriteHeader(http.StatusOK)
	l.c.put(l.w, []byte(`{"ok":true,"`+l.of+`":[`))
}

// close ends the answer, or breaks it off.
func (l *lines) close(err error) error {
	switch {
	case err != nil && l.c.status == 0:
		return err
	case err != nil:
		panic(http.ErrAbortHandler)
	}
	l.start()
	if l.whole {
		l.c.put(l.w, append(append([]byte{']'}, l.members...), '}'))
	}
	if l.of == "events" {
		l.w.Header().Set(headerPosition, l.position.PositionText())
	}
	return nil
}

// allowTime extends what the server allows for reading a request and for answering it.
func (c *call) allowTime(w http.ResponseWriter, d time.Duration) {
	until := clock.System{}.Now().Add(d) // of the connection, whatever the server's clock shows
	control := http.NewResponseController(w)
	// Where there is no connection, as in tests, there are no limits either.
	_ = control.SetReadDeadline(until)
	_ = control.SetWriteDeadline(until)
}
