package envlog

import (
	"j17"
	"j17/internal/storage/store"
)

// Filling makes the log of an environment that has no events yet and is filled at once (store.Load), from the leaves in
// the order of the feed: so the events need not be read again for it.
type Filling struct {
	log log
	put func(store.ArchivedItem) error
}

// NewFilling returns a filling. put receives the items to be stored beside the events.
func NewFilling(put func(store.ArchivedItem) error) *Filling { return &Filling{put: put} }

// Add adds the leaf of the event at a position, which is greater than all before.
func (f *Filling) Add(at j17.StreamID, leaf [32]byte) error {
	l := &f.log
	l.add(at, leaf)
	for i := range l.fresh {
		full := &l.fresh[i]
		for _, side := range full.sides() {
			if err := f.put(archived(&side)); err != nil {
				return err
			}
		}
		if full.level == 0 {
			l.stored, l.storedTo = full.n+1, at
		}
	}
	l.fresh = l.fresh[:0]
	return nil
}

// End writes the head of the log. A log without a full tile is made when it is needed.
func (f *Filling) End() error {
	l := &f.log
	if l.stored == 0 {
		return nil
	}
	return f.put(archived(&store.Side{
		Space: headSpace, Key: headItem, Value: sealed(headItem, l.appendHead(l.stored, l.storedTo)),
	}))
}

func archived(side *store.Side) store.ArchivedItem {
	return store.ArchivedItem{Space: side.Space, Item: store.Item{Key: side.Key, Value: side.Value}}
}
