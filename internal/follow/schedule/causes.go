package schedule

import (
	"context"
	"errors"
	"strings"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/storage/store"
)

// Caused is a scheduled event with the events that it is related to.
type Caused struct {
	wire.Scheduled
	// By is the position of the event that scheduled it, Ended that of the one that canceled it, zero if there is none.
	By, Ended j17.StreamID
	FireAt    int64
}

// endedBy returns the writes that link event number i of a command with a scheduled event that it has canceled, in both
// directions.
func (s *Service) endedBy(id string, i int) []store.Side {
	until := s.forgottenAt()
	return []store.Side{
		{Op: store.Put, Space: enders, Key: "/" + id, Stamps: []int{i}, StampKey: true, Expires: until},
		{Op: store.Put, Space: ended, Key: id, Stamps: []int{i}, Expires: until},
	}
}

// endedAt is endedBy for a stored event.
func (s *Service) endedAt(id string, at j17.StreamID) []store.Side {
	until := s.forgottenAt()
	return []store.Side{
		{
			Op: store.Put, Space: enders, Key: store.StampedKey(at, "/"+id), Value: store.AppendStamp(nil, at),
			Expires: until,
		},
		{Op: store.Put, Space: ended, Key: id, Value: store.AppendStamp(nil, at), Expires: until},
	}
}

// CausedBy calls do with the IDs of what events at some positions have scheduled or canceled, in the order of the
// positions.
func (s *Service) CausedBy(
	ctx context.Context, t j17.Tenant, positions []j17.StreamID, do func(id string) error,
) error {
	for _, status := range Statuses() {
		err := store.EachAt(ctx, s.Store, t, status.space(), positions, func(_ j17.StreamID, it *store.Item) error {
			key, err := rowOf(it.Value)
			if err != nil {
				return err
			}
			_, id, _ := cutLast(key)
			return do(id)
		})
		if err != nil {
			return store.UserError(err)
		}
	}
	err := store.EachAt(ctx, s.Store, t, enders, positions, func(_ j17.StreamID, it *store.Item) error {
		_, id, _ := strings.Cut(it.Key, "/")
		return do(id)
	})
	return store.UserError(err)
}

// Caused returns a scheduled event by its ID; CodeNotFound if there is none.
func (s *Service) Caused(ctx context.Context, t j17.Tenant, id string) (*Caused, error) {
	f, err := s.find(ctx, t, id)
	if err != nil {
		return nil, err
	}
	c := &Caused{Scheduled: f.shown(f.status), By: f.at, FireAt: f.FireAt}
	it, err := s.Store.Get(ctx, t, ended, id)
	if errors.Is(err, store.ErrNotFound) || f.status != Canceled {
		return c, nil
	}
	if err == nil {
		c.Ended, _, err = store.ReadStamp(it.Value)
	}
	return c, store.UserError(err)
}
