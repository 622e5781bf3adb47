package loading

import (
	"context"
	"hash/maphash"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/lang/spec"
)

// exchanged has the holders of unique values after the events of a file so far, as far as they were looked up.
// Aggregates and values are identified by their hashes, as in a recorder: a file may have millions of them. A held
// value takes 56 bytes, and the overhead of the maps.
type exchanged struct {
	// holders has the holder of a value, 0 for nobody; held has what an aggregate holds in a set, the zero digest for
	// nothing.
	holders map[uint64]uint64
	held    map[uint64][32]byte
	// most is the limit of values; holders and keepers count separately.
	most int
	// taken is how many of both there is room for, out of that of all files.
	taken int64
}

const (
	// mostValues is how many unique values of one file are remembered; holder and held value take 100 bytes together.
	mostValues = 5_000_000
	// allValues is the same for all files of a server together, which take 600 MB.
	allValues = 6_000_000
	// takenAtOnce is how much of that a file reserves at a time; holders and keepers count separately.
	takenAtOnce = 4096
	// ofOneExchange is how many entries one exchange adds at most: the held value, and the holders of the old and the
	// new value.
	ofOneExchange = 3
)

// remember reserves room for the entries of one exchange.
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

// forget releases the room for the values of the file.
func (c *recorder) forget() {
	c.remembered.Add(-c.values.taken)
	c.values = exchanged{}
}

// valueOf and heldOf are hashed for the keys of holders and held.
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

// exchange lets an event of the file take values and give them back. Taking a value of another aggregate is a fault of
// the event. h knows the stored holders; nil if nothing is stored.
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

		// The old value is free, and the new one is its own.
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

// free and release remove the holder of a value, and what an aggregate holds; if the store may have other entries, an
// empty one is kept instead.
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
