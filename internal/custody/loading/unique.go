package loading

import (
	"context"
	"hash/maphash"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/lang/spec"
)

// exchanged is who holds which unique values after the events of a file that were gone through, of what was looked at.
// Aggregates and values are known by their hashes, as in a recorder: a file may have millions of them. A value that is
// held takes 56 bytes, and what the maps need for room.
type exchanged struct {
	// holders has who holds a value, 0 for nobody, and held what an aggregate holds in a set, the zero digest for
	// nothing.
	holders map[uint64]uint64
	held    map[uint64][32]byte
	// most is how many values there are at most, holders and keepers counted by themselves.
	most int
	// taken is how many of both there is room for, out of that of all files.
	taken int64
}

const (
	// mostValues is how many unique values of one file are remembered: of each who holds it, and that he does, 100
	// bytes together.
	mostValues = 5_000_000
	// allValues is how many those of all files of a server are together, which is 600 MB.
	allValues = 6_000_000
	// takenAtOnce is how much of that a file takes at a time, holders and keepers counted by themselves.
	takenAtOnce = 4096
	// ofOneExchange is how much one exchange adds at most: what is held, the holder of the value before and of the one
	// after.
	ofOneExchange = 3
)

// remember makes sure that there is room for what one exchange adds.
func (c *recorder) remember() error {
	e := &c.values
	n := len(e.holders) + len(e.held)
	switch {
	case n > 2*e.most:
		return j17.Errorf(j17.CodePayloadTooLarge, "The events of the file take more than %d unique values, which is as many as are remembered at a time. Nothing was stored. "+
			"Divide the file and import its parts one after the other: what is taken by one part counts for those behind it.", e.most)
	case int64(n+ofOneExchange) <= e.taken:
		return nil
	}
	if c.remembered.Add(takenAtOnce) > 2*allValues {
		c.remembered.Add(-takenAtOnce)
		return j17.Errorf(j17.CodeBusy, "Other files are loaded at this moment that take so many unique values that those of this file have no room beside them. Nothing was stored. Try again when they are through.")
	}
	e.taken += takenAtOnce
	return nil
}

// forget gives the room back that the values of the file had.
func (c *recorder) forget() {
	c.remembered.Add(-c.values.taken)
	c.values = exchanged{}
}

// valueOf and heldOf are what is hashed for holders and held.
type valueOf struct {
	set    *spec.UniqueSet
	digest [32]byte
}

type heldOf struct {
	set *spec.UniqueSet
	key j17.Key
}

func newExchanged() exchanged {
	return exchanged{holders: map[uint64]uint64{}, held: map[uint64][32]byte{}, most: mostValues}
}

// exchange lets an event of the file take values and give them back. A value that is another's is a fault of the event.
// h knows who holds what is stored; nil where nothing is.
func (c *recorder) exchange(ctx context.Context, ev *pastEvent, h part.Holding) (fault, err error) {
	o := &ev.Events[0]
	for i := range o.Exchanges {
		if err := c.remember(); err != nil {
			return nil, err
		}
		x := &o.Exchanges[i]
		keeper := maphash.Comparable(c.seed, heldOf{x.Set, o.Key})
		own, err := c.heldBy(ctx, x.Set, o.Key, keeper, h)
		if err != nil {
			return nil, err
		}
		none := own == [32]byte{}
		if x.Of == nil && none || x.Of != nil && own == x.Value {
			continue
		}
		if x.Of != nil {
			holder, err := c.holder(ctx, x, h)
			if err != nil {
				return nil, err
			}
			if holder != 0 {
				return decider.NotUnique(x, decider.RefusalDetails{Key: o.Key.String(), EventType: o.Type}), nil
			}
		}

		// What it has had is free, and what it takes is its own.
		if !none {
			c.values.free(maphash.Comparable(c.seed, valueOf{x.Set, own}), h != nil)
		}
		if x.Of != nil {
			c.values.holders[maphash.Comparable(c.seed, valueOf{x.Set, x.Value})] = keeper
			c.values.held[keeper] = x.Value
		} else {
			c.values.release(keeper, h != nil)
		}
		if c.exchanged == nil {
			continue
		}
		var before *[32]byte
		if !none {
			before = &own
		}
		if err := c.exchanged(ctx, o.Key, x, before); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// free and release forget who holds a value and what an aggregate holds; where something else may be stored, that
// nobody and nothing does is remembered.
func (e *exchanged) free(value uint64, stored bool) {
	if stored {
		e.holders[value] = 0
	} else {
		delete(e.holders, value)
	}
}

func (e *exchanged) release(keeper uint64, stored bool) {
	if stored {
		e.held[keeper] = [32]byte{}
	} else {
		delete(e.held, keeper)
	}
}

// heldBy returns what an aggregate holds, the zero digest for nothing.
func (c *recorder) heldBy(
	ctx context.Context, set *spec.UniqueSet, key j17.Key, keeper uint64, h part.Holding,
) ([32]byte, error) {
	if own, ok := c.values.held[keeper]; ok || h == nil {
		return own, nil
	}
	own, _, err := h.Held(ctx, set, key)
	if err != nil {
		return own, err
	}
	c.values.held[keeper] = own
	return own, nil
}

// holder returns the hash of the aggregate that holds a value, 0 for none.
func (c *recorder) holder(ctx context.Context, x *decider.Exchange, h part.Holding) (uint64, error) {
	at := maphash.Comparable(c.seed, valueOf{x.Set, x.Value})
	if holder, ok := c.values.holders[at]; ok || h == nil {
		return holder, nil
	}
	key, err := h.Holder(ctx, x.Set, x.Value)
	if err != nil || key == (j17.Key{}) {
		return 0, err
	}
	holder := maphash.Comparable(c.seed, heldOf{x.Set, key})
	c.values.holders[at] = holder
	return holder, nil
}
