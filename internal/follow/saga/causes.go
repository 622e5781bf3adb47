package saga

import (
	"context"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// causes is the write that leads from the event number i of a command to a saga that it has triggered or answered.
func causes(id string, i int) store.Side {
	return store.Side{Op: store.Put, Space: causeSpace, Key: "/" + id, Stamps: []int{i}, StampKey: true}
}

// Causes calls do with the positions of the events that have triggered the saga, which is the first one, or answered
// it.
func (g *Saga) Causes(do func(position string)) {
	do(g.Trigger.StreamID)
	for _, e := range g.Timeline {
		if e.What == WasAnswered && e.StreamID != "" {
			do(e.StreamID)
		}
	}
}

// forgetCauses returns the writes by which what leads to the saga goes at the same time as the saga.
func (g *Saga) forgetCauses(at time.Time) (sides []store.Side) {
	seen := map[j17.StreamID]bool{}
	g.Causes(func(position string) {
		id, err := j17.ParseStreamID(position)
		if err != nil || seen[id] {
			return // an answer that is written in this commit
		}
		seen[id] = true
		sides = append(sides, store.Side{
			Op: store.Put, Space: causeSpace, Key: store.StampedKey(id, "/"+g.ID), Value: store.AppendStamp(nil, id),
			Expires: at,
		})
	})
	return sides
}

// CausedBy calls do with the sagas that events at some positions, which are in their order, have triggered or answered.
// One may come several times.
func (s *Service) CausedBy(
	ctx context.Context, t j17.Tenant, positions []j17.StreamID, do func(id string) error,
) error {
	err := store.EachAt(ctx, s.store, t, causeSpace, positions, func(_ j17.StreamID, it *store.Item) error {
		_, id, _ := strings.Cut(it.Key, "/")
		return do(id)
	})
	return store.UserError(err)
}
