package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"iter"
	"net/http"
	"strconv"

	"j17"
	"j17/internal/core/upcast"
	"j17/internal/follow/tail"
)

// Sizes of pages of events.
const (
	// maxPage is how many bytes of events a page has at most, unless its first event alone has more.
	maxPage = 8 << 20
	// maxPiece is how much of a page is in memory at once, beside one event.
	maxPiece = 256 << 10
)

// headerNext says where the next page starts, for pages that have no member to say it.
const headerNext = "X-J17-Next"

// eventPage is one page of the events of an aggregate, or of an environment: up to count of them and up to maxPage
// bytes, and at least one.
//
// The properties of a page have to be known before its first byte is written: its length, its entity tag, and where the
// next one starts. So a page that does not fit in one piece is read twice: first to find them out, then piece by piece
// to write it. Between two pieces nothing of the store is held, however slow the client is.
type eventPage struct {
	c *call
	// read yields the events after a position: count of them at least, if there are as many.
	read  func(after j17.StreamID, count int) (iter.Seq2[*j17.Event, error], error)
	after j17.StreamID
	count int
	// lines asks for one event a line and nothing else.
	lines bool
	// ofFeed makes it a page of an environment, which says how far was looked: as far as the last walk has come.
	ofFeed bool
	walk   *tail.Walk
	// outdated, if not nil, reports that the page would be a different one by now.
	outdated func() bool

	events int          // on the page
	size   int          // bytes of the events with what stands between them
	last   j17.StreamID // the last event on the page, or the position after which the next one begins
	more   bool         // there may be events behind it
	// position is how far was looked in an environment.
	position j17.StreamID
	digest   hash.Hash // of the events

	// piece holds the next events to be written; done is how many have been added so far, at the position of the last.
	piece []byte
	done  int
	at    j17.StreamID
}

// measure finds out what is on the page and keeps its first piece.
func (p *eventPage) measure() error {
	events, err := p.read(p.after, p.count+1)
	if err != nil {
		return err
	}
	p.digest, p.at = sha256.New(), p.after
	for ev, err := range events {
		if p.events > 0 && upcast.Failure(err) != nil {
			p.more = true // the next page is the error
			break
		}
		if err != nil {
			return err
		}
		if p.events == p.count || p.events > 0 && p.size+len(ev.Raw) > maxPage {
			p.more = true
			break
		}
		_, _ = p.digest.Write(ev.Raw) // never fails
		if p.done == p.events {
			p.add(ev)
		}
		if p.size += len(ev.Raw); p.lines || p.events > 0 {
			p.size++ // the end of a line, or a comma
		}
		p.events++
		p.last = ev.StreamID
	}
	p.c.slot.Give() // what follows takes as long as the client likes
	if !p.ofFeed {
		return nil
	}

	// How far the walk has looked. A walk that has found too little within its budget goes on with the next page.
	p.position = p.walk.Position()
	if !p.more {
		p.more, p.last = !p.walk.Ended(), p.position
	}
	return nil
}

// add appends an event to the piece, unless the piece would become too large.
func (p *eventPage) add(ev *j17.Event) bool {
	if len(p.piece) > 0 && len(p.piece)+len(ev.Raw) > maxPiece {
		return false
	}
	if p.done > 0 && !p.lines {
		p.piece = append(p.piece, ',')
	}
	p.piece = append(p.piece, ev.Raw...)
	if p.lines {
		p.piece = append(p.piece, '\n')
	}
	p.done++
	p.at = ev.StreamID
	return true
}

// write answers with the page.
func (p *eventPage) write(w http.ResponseWriter) error {
	// Headers: all that is known from measuring.
	w.Header().Add("Vary", "Accept")
	next := ""
	if p.more {
		next = p.last.PositionText()
	}
	head, tail, media := `{"ok":true,"events":[`, string(appendNext([]byte{']'}, next)), typeJSON
	if p.ofFeed {
		tail += `,"position":"` + p.position.PositionText() + `"`
	}
	tail += "}"
	_, _ = p.digest.Write([]byte(tail)) // never fails
	if p.lines {
		head, tail, media = "", "", typeLines
		if p.more {
			p.c.show(w.Header(), headerNext, p.last.PositionText())
		}
		if p.ofFeed {
			w.Header().Set(headerPosition, p.position.PositionText())
		}
	}
	_, _ = p.digest.Write([]byte(media)) // never fails
	if known, err := p.c.known(w, `"`+hex.EncodeToString(p.digest.Sum(nil)[:8])+`"`); known || err != nil {
		return err
	}
	p.c.show(w.Header(), "Content-Type", media)

	// One piece: nothing more to read.
	if p.done == p.events {
		p.c.write(w, http.StatusOK, []byte(head), p.piece, []byte(tail))
		return nil
	}

	// Several pieces, each read when the one before is written.
	if err := p.c.take(p.c.api.resources.replies, int64(max(maxPiece, len(p.piece))), "such a page"); err != nil {
		return err
	}
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(head) + p.size + len(tail))}
	p.c.status = http.StatusOK
	w.WriteHeader(http.StatusOK)
	if p.c.request.Method == http.MethodHead {
		return nil
	}
	p.c.put(w, []byte(head))
	p.c.put(w, p.piece)
	for written := len(p.piece); written < p.size; written += len(p.piece) {
		if p.done == p.events || !p.next() || written+len(p.piece) > p.size {
			panic(http.ErrAbortHandler) // The answer has begun: only breaking it off shows that it is incomplete.
		}
		p.c.put(w, p.piece)
	}
	p.c.put(w, []byte(tail))
	return nil
}

// next reads the next piece. It reports false where there is none, or where it is not the one that was measured.
func (p *eventPage) next() bool {
	events, err := p.read(p.at, p.events-p.done)
	if err != nil || p.outdated != nil && p.outdated() {
		return false
	}
	p.piece = p.piece[:0]
	for ev, err := range events {
		if err != nil {
			return false
		}
		if p.done == p.events || !p.add(ev) {
			break
		}
	}
	p.c.slot.Give()
	return len(p.piece) > 0
}
