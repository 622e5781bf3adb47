package decider

import (
	"fmt"

	"j17/internal/base/value"
	"j17/internal/lang/tick"
)

// State is the state of an aggregate after the first Length events of its stream. It is immutable.
type State struct {
	// Fingerprint is the fingerprint of the handlers that made the state.
	Fingerprint [32]byte
	Length      uint64
	// Generation is the generation of the folded events: how often events of the stream had been rewritten.
	Generation uint64
	// Created is the timestamp of the first event.
	Created int64
	Data    value.Value
	JSON    []byte
	// Loose is how many bytes of events were folded since Data was last copied: Data may keep all of them in memory.
	Loose int
	// Since is how many bytes of events, and Cost how many units of work, were folded since the last past state was
	// kept.
	Since int
	Cost  int64
	// Snapshot is the length of the latest snapshot met in the fold.
	Snapshot uint64
}

// Pass counts an event whose handler has run.
func (f *State) Pass(ed *value.Editor, ev *tick.Event) {
	if f.Length++; f.Length == 1 {
		f.Created = ev.Timestamp
	}
	f.Data = tick.Stamp(ed, f.Data, f.Created, ev.Timestamp)
}

// CompactAbove is how many times the size of a state its events may have before it is copied, to release them.
const CompactAbove = 4

// Finish encodes a state, and copies it if it keeps much more memory than its own.
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

// Whole returns the state with its tree, which is parsed if only the text was kept.
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
