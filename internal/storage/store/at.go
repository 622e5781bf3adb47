package store

import (
	"context"

	"j17"
)

// EachAt calls do with the items of a space whose keys are StampedKeys of some positions, which must ascend. Its cost
// depends on how often positions and items alternate, not on how many items lie between positions. It ends with the
// first error of do.
func EachAt(
	ctx context.Context, from Sides, t j17.Tenant, space Space, positions []j17.StreamID,
	do func(at j17.StreamID, it *Item) error,
) error {
	const page = 16
	behind, n := "", 0
	for n < len(positions) {
		items, err := from.Scan(ctx, t, space, Range{From: max(behind, StampedKey(positions[n], ""))}, page)
		if err != nil {
			return err
		}
		jumps := false
		for i := range items {
			it := &items[i]
			place := it.Key[:min(len(it.Key), stampedKeyBytes)]
			for n < len(positions) && StampedKey(positions[n], "") < place {
				n++
			}
			if jumps = n < len(positions) && StampedKey(positions[n], "") > place; jumps || n == len(positions) {
				break
			}
			if err := do(positions[n], it); err != nil {
				return err
			}
			behind = it.Key + "\x00"
		}
		if !jumps && len(items) < page {
			return nil
		}
	}
	return nil
}
