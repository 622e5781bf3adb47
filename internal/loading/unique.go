package loading

import (
	"context"
	"hash/maphash"

	"j17"
	"j17/internal/decider"
	"j17/internal/engine"
	"j17/internal/spec"
)

// exchanged is who holds which unique values after the events of a file that were gone through. Aggregates are known by their hashes, as in
// a recorder: a file may have millions of them.
type exchanged struct {
	// holders has who holds a value, 0 for nobody, and held what an aggregate holds, nil for nothing: of what was looked at.
	holders map[valueOf]uint64
	held    map[heldOf]*[32]byte
}

type valueOf struct {
	set    *spec.UniqueSet
	digest [32]byte
}

type heldOf struct {
	set *spec.UniqueSet
	key uint64
}

func newExchanged() exchanged {
	return exchanged{holders: map[valueOf]uint64{}, held: map[heldOf]*[32]byte{}}
}

// exchange lets an event of the file take values and give them back. A value that is another's is a fault of the event. h knows who holds what
// is stored; nil where nothing is.
func (c *recorder) exchange(ctx context.Context, ev *pastEvent, h engine.Holding) (fault, err error) {
	o := &ev.Events[0]
	for i := range o.Exchanges {
		x := &o.Exchanges[i]
		keeper := heldOf{x.Set, maphash.Comparable(c.seed, o.Key)}
		own, err := c.heldBy(ctx, x.Set, o.Key, keeper, h)
		if err != nil {
			return nil, err
		}
		if x.Of == nil && own == nil || x.Of != nil && own != nil && *own == x.Value {
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
		if own != nil {
			c.values.holders[valueOf{x.Set, *own}] = 0
		}
		c.values.held[keeper] = nil
		if x.Of != nil {
			c.values.holders[valueOf{x.Set, x.Value}] = keeper.key
			c.values.held[keeper] = &x.Value
		}
		if c.exchanged != nil {
			if err := c.exchanged(ctx, o.Key, x, own); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// heldBy returns what an aggregate holds, nil for nothing.
func (c *recorder) heldBy(ctx context.Context, set *spec.UniqueSet, key j17.Key, at heldOf, h engine.Holding) (*[32]byte, error) {
	if own, ok := c.values.held[at]; ok || h == nil {
		return own, nil
	}
	digest, ok, err := h.Held(ctx, set, key)
	if err != nil {
		return nil, err
	}
	var own *[32]byte
	if ok {
		own = &digest
	}
	c.values.held[at] = own
	return own, nil
}

// holder returns the hash of who holds a value, 0 for nobody.
func (c *recorder) holder(ctx context.Context, x *decider.Exchange, h engine.Holding) (uint64, error) {
	at := valueOf{x.Set, x.Value}
	if holder, ok := c.values.holders[at]; ok || h == nil {
		return holder, nil
	}
	key, err := h.Holder(ctx, x.Set, x.Value)
	if err != nil || key == (j17.Key{}) {
		return 0, err
	}
	holder := maphash.Comparable(c.seed, key)
	c.values.holders[at] = holder
	return holder, nil
}
