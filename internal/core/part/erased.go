package part

import (
	"time"

	"j17"
)

// Erased tells which streams were rewritten.
type Erased struct {
	// Keys are the streams, each once. There are at most some thousands at a time: those of a larger tombstone come
	// in several calls.
	Keys []j17.Key
	// Ends has for each of them up to where it was erased. Without it that is up to Note.
	Ends []End
	// Note is a position of the feed: the notes about all of these streams stand up to there.
	Note j17.StreamID
	// TombstoneID is the handle of the tombstone, At when its execution began.
	TombstoneID string
	At          time.Time
}

// End is up to where in the feed something goes with the events of a stream that were replaced. What comes later
// stays, although it may be written before all who keep something of the stream are told.
type End struct {
	// Own is the position of the last event that was replaced: with it goes what followed from events of the
	// stream.
	Own j17.StreamID
	// Others is where the feed ended when that was about to be done: up to there goes what others have meant for
	// the stream.
	Others j17.StreamID
}

// Gone returns the ends of streams by the text of their keys.
func (e *Erased) Gone() map[string]End {
	gone := make(map[string]End, len(e.Keys))
	for i, key := range e.Keys {
		end := End{e.Note, e.Note}
		if e.Ends != nil {
			end = e.Ends[i]
		}
		gone[key.String()] = end
	}
	return gone
}

// Replaced is a stream whose events are replaced from the first one to that of the version To. Last tells that
// there are no more, and will be none when they are.
type Replaced struct {
	Key  j17.Key
	To   uint64
	Last bool
}
