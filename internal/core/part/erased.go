package part

import (
	"time"

	"j17"
)

// Erased describes streams that were rewritten.
type Erased struct {
	// Keys are the streams, each once. There are at most some thousands at a time: those of a larger tombstone come
	// in several calls.
	Keys []j17.Key
	// Ends has for each stream the position up to which it was erased. If it is empty, that is Note for all of them.
	Ends []End
	// Note is a position of the feed: the notes about all of these streams are at or before it.
	Note j17.StreamID
	// TombstoneID is the handle of the tombstone, At when its execution began.
	TombstoneID string
	At          time.Time
}

// End has the positions of the feed up to which data is removed together with the replaced events of a stream. Later
// data stays, although it may be written before all parts are told of the erasure.
type End struct {
	// Own is the position of the last replaced event: data that followed from the stream's own events is removed up to
	// there.
	Own j17.StreamID
	// Others is where the feed ended right before the events were replaced: data that other streams meant for this one
	// is removed up to there.
	Others j17.StreamID
}

// Gone returns the ends of the streams by the text of their keys.
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

// Replaced is a stream whose events are replaced from the first one to that of version To. Last reports that the stream
// has no others, nor will have when they are replaced.
type Replaced struct {
	Key  j17.Key
	To   uint64
	Last bool
}
