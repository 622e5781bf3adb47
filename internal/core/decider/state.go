package decider

import (
	"fmt"

	"j17/internal/base/value"
	"j17/internal/lang/tick"
)

// State is the state of an aggregate after the first Length events of its stream. It is immutable.
type State struct {
	// Fingerprint is that of the aggregate type whose handlers made the state.
	Fingerprint [32]byte
	Length      uint64
	// Generation is that of the events which the state was made of: how often events of the stream had been rewritten.
	Generation uint64
	// Created is the timestamp of the first event.
	Created int64
	Data    value.Value
	JSON    []byte
	// Loose is how many bytes of events were folded since Data was last copied: it may hold on to all of them.
	Loose int
	// Since is how many bytes of events, and Cost how many units of work, were folded since a state on the way was last
	// kept.
	Since int
	Cost  int64
	// Snapshot is the length of the latest snapshot that was seen on the way here.
	Snapshot uint64
}

// Pass counts an event whose handler has run.
func (f *State) Pass(ed *value.Editor, ev *tick.Event) {
	if f.Length++; f.Length == 1 {
		f.Created = ev.Timestamp
	}
	f.Data = tick.Stamp(ed, f.Data, f.Created, ev.Timestamp)
}

// CompactAbove is how many times the size of a state its events must have before it is copied to let go of them.
const CompactAbove = 4

// Finish encodes a state, and copies it where it holds on to much more than itself.
func (f *State) Finish(name string) error {
	f.JSON = f.Data.AppendJSON(nil)
	if f.Loose > CompactAbove*len(f.JSON) {
		compact, err := value.ParseStored(string(f.JSON))
		if err != nil {
			return fmt.Errorf("decider: the state of %s cannot be read back: %w", name, err)
		}
		f.Data, f.Loose = compact, 0
	}
	return nil
}

// Whole returns the state with its tree, where only its text was kept.
func (f *State) Whole(name string) (*State, error) {
	if !f.Data.IsMissing() {
		return f, nil
	}
	data, err := value.ParseStored(string(f.JSON))
	if err != nil {
		return nil, fmt.Errorf("decider: the state of %s cannot be read back: %w", name, err)
	}
	all := *f
	all.Data, all.Loose = data, 0
	return &all, nil
}
