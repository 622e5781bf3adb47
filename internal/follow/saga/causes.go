package saga

import (
	"context"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// causes returns the write that records a saga as triggered or answered by event number i of a command.
func causes(id string, i int) store.Side {
	return store.Side{Op: store.Put, Space: causeSpace, Key: "/" + id, Stamps: []int{i}, StampKey: true}
}

// Causes calls do with the positions of the triggering event, which comes first, and of the answers.
func (g *Saga) Causes(do func(position string)) {
	do(g.Trigger.StreamID)
	for _, e := range g.Timeline {
		if e.What == WasAnswered && e.StreamID != "" {
			do(e.StreamID)
		}
	}
}

// forgetCauses returns the writes that make the records of a saga's causes expire together with the saga.
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

// CausedBy calls do with the sagas that events at some positions have triggered or answered, in the order of the
// positions. A saga may be passed several times.
func (s *Service) CausedBy(
	ctx context.Context, t j17.Tenant, positions []j17.StreamID, do func(id string) error,
) error {
	err := store.EachAt(ctx, s.store, t, causeSpace, positions, func(_ j17.StreamID, it *store.Item) error {
		_, id, _ := strings.Cut(it.Key, "/")
		return do(id)
	})
	return store.UserError(err)
}
