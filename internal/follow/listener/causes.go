package listener

import (
	"context"
	"errors"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// keepFound is how long a delivery can be found by its event: longer than most are kept.
const keepFound = keepFailed + keepDelivered

// found returns the write by which a delivery is found by its event.
func (d *delivery) found(now time.Time) store.Side {
	return store.Side{
		Op: store.Put, Space: eventSpace, Key: store.StampedKey(d.StreamID, "/"+d.ID), Expires: now.Add(keepFound),
	}
}

// OfEvents calls do with the deliveries of events at some positions, in order, until it has enough.
func (s *Service) OfEvents(
	ctx context.Context, t j17.Tenant, positions []j17.StreamID, do func(Delivery) (more bool),
) error {
	enough := errors.New("there are enough")
	err := store.EachAt(ctx, s.o.Store, t, eventSpace, positions, func(_ j17.StreamID, it *store.Item) error {
		_, id, _ := strings.Cut(it.Key, "/")
		d, err := s.log.delivery(ctx, t, id)
		if j17.CodeOf(err) == j17.CodeNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		if !do(d.shown()) {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		return nil
	}
	return store.UserError(err)
}
