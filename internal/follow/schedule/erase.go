package schedule

import (
	"context"
	"errors"
	"slices"

	"j17"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// erasedPage is how many rows are read at a time.
const erasedPage = 500

// Erase cancels pending events for rewritten streams, and those that these have scheduled. The rows of such events,
// even of long ended ones, lose their data and errors. Events scheduled after the erasure are not affected.
func (s *Service) Erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	gone := e.Gone()
	is := func(r *row) bool {
		own, by := gone[r.by]
		other, to := gone[r.Type+":"+r.ID]
		return by && r.at.Compare(own.Own) <= 0 || to && r.at.Compare(other.Others) <= 0
	}
	for keys := (store.Range{}); ; {
		items, err := s.Store.Scan(ctx, t, rows, keys, erasedPage)
		if err != nil {
			return err
		}
		var some []*row
		for i := range items {
			keys = keys.After(items[i].Key)
			r, err := readRow(&items[i])
			if err != nil {
				return err
			}
			if is(r) {
				some = append(some, r)
			}
		}
		if err := s.clearAll(ctx, t, some); err != nil {
			return err
		}
		if len(items) < erasedPage {
			return nil
		}
	}
}

// clearAll removes the data from rows: from all in one commit or, on a conflict, from one after the other.
func (s *Service) clearAll(ctx context.Context, t j17.Tenant, all []*row) error {
	for some := range slices.Chunk(all, swept) {
		var sides []store.Side
		canceled := 0
		for _, r := range some {
			more, ends, err := s.cleared(ctx, t, r)
			if err != nil {
				return err
			}
			if sides = append(sides, more...); ends {
				canceled++
			}
		}
		if len(sides) == 0 {
			continue
		}
		err := s.Store.Write(ctx, t, sides)
		if err == nil {
			s.counts.canceled.Add(uint64(canceled))
		}
		if err = lost(err); err != nil {
			return err
		}
		for _, r := range some {
			if err := s.clear(ctx, t, r.key()); err != nil {
				return err
			}
		}
	}
	return nil
}

// clear removes the data from a row, and tries again on conflicts.
func (s *Service) clear(ctx context.Context, t j17.Tenant, key string) error {
	for range tries {
		r, err := s.load(ctx, t, key)
		if err != nil || r == nil {
			return err
		}
		sides, canceled, err := s.cleared(ctx, t, r)
		if err != nil || len(sides) == 0 {
			return err
		}
		err = s.Store.Write(ctx, t, sides)
		if err == nil && canceled {
			s.counts.canceled.Add(1)
		}
		if err = lost(err); err != nil {
			return err
		}
	}
	return errors.New("others change the same scheduled event over and over; it is tried again")
}

// cleared returns the writes that remove the data from a row and end the waiting of its event, none if that has been
// done. canceled reports that it was waiting.
func (s *Service) cleared(ctx context.Context, t j17.Tenant, r *row) (sides []store.Side, canceled bool, err error) {
	// It may wait for its time, or for an operator who may retry it.
	for _, status := range []Status{Pending, DeadLetter, Refused} {
		item, err := s.Store.Get(ctx, t, status.space(), r.order())
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if canceled = status == Pending; canceled {
			sides = r.over()
		}
		sides = append(sides,
			store.Side{Op: store.Delete, Space: status.space(), Key: item.Key, Cond: store.IfRev, Rev: item.Rev},
			s.list(Canceled, r.at, r.N, r.key()))
		break
	}

	const nothing = "null"
	if string(r.data) == nothing && r.LastError == "" && r.CorrelationID == "" {
		return sides, canceled, nil
	}
	empty := *r
	empty.data, empty.LastError, empty.LastCode, empty.CorrelationID = []byte(nothing), "", "", ""
	return append(sides, empty.put()), canceled, nil
}
