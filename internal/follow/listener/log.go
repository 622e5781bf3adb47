package listener

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// deliveryLog accesses the stored deliveries, and the logs of their tries.
type deliveryLog struct{ o *Options }

// each passes the deliveries that a filter may select, the newest first, until do reports false. Each row is charged to
// the budget; when that is used up, its error is returned.
func (s *deliveryLog) each(ctx context.Context, t j17.Tenant, f Filter, b *work.Budget, do func(*delivery) bool) error {
	var lists []iter.Seq2[string, error]
	const page = 128
	switch {
	case f.Key != "":
		// Deliveries that were tried have a log; the others are in their lanes.
		lists = append(lists, store.Places(ctx, s.o.Store, t, logSpace, f.Key+"/", page))
	case f.Status != Pending:
		names := []string{f.Listener}
		if f.Listener == "" {
			var err error
			if names, err = s.names(ctx, t); err != nil {
				return err
			}
		}
		for _, name := range names {
			for _, status := range []DeliveryStatus{Delivered, Failed} {
				if f.Status == "" || f.Status == status {
					prefix := name + "/" + string(status) + "/"
					lists = append(lists, store.Places(ctx, s.o.Store, t, listSpace, prefix, page))
				}
			}
		}
	}
	if f.Status == "" || f.Status == Pending {
		lanes, err := s.underWay(ctx, t, f, b)
		if err != nil {
			return err
		}
		lists = append(lists, func(yield func(string, error) bool) {
			for _, place := range lanes {
				if !yield(place, nil) {
					return
				}
			}
		})
	}

	// Merged by order, each once.
	last := ""
	for place, err := range store.Merge(cmp.Less[string], lists...) {
		if err != nil {
			return err
		}
		if !b.Spend(lookWork) {
			return b.Err()
		}
		if place == last {
			continue
		}
		last = place
		d, _, err := read[*delivery](ctx, s.o.Store, t, deliverySpace, idOf(place))
		if errors.Is(err, store.ErrNotFound) {
			continue // it has just been removed
		}
		if err != nil || !do(d) {
			return err
		}
	}
	return nil
}

// names returns the names of all listeners that the environment has had.
func (s *deliveryLog) names(ctx context.Context, t j17.Tenant) (names []string, err error) {
	const page = 1000
	for it, err := range store.Items(ctx, s.o.Store, t, stateSpace, store.Range{}, page) {
		if err != nil {
			return nil, err
		}
		names = append(names, it.Key)
	}
	return names, nil
}

// underWay returns the places in a list of the deliveries that have not ended.
func (s *deliveryLog) underWay(
	ctx context.Context, t j17.Tenant, f Filter, b *work.Budget,
) (orders []string, err error) {
	// The lanes.
	keys := store.Range{}
	if f.Listener != "" {
		keys = store.Prefix(f.Listener + "/")
	}
	const page = 1000
	for it, err := range store.Items(ctx, s.o.Store, t, laneSpace, keys, page) {
		if err != nil {
			return nil, err
		}
		if !b.Spend(lookWork) {
			return nil, b.Err()
		}
		if _, _, key := cutKey(it.Key); f.Key != "" && key != f.Key {
			continue
		}

		// The delivery in it.
		_, id, err := worker.ReadAttempts(it.Value)
		if err != nil {
			return nil, err
		}
		if len(id) == 0 {
			continue // the next delivery of the lane is being searched for
		}
		d, _, err := read[*delivery](ctx, s.o.Store, t, deliverySpace, string(id))
		if errors.Is(err, store.ErrNotFound) || err == nil && f.Key != "" && (d.Attempts > 0 || d.Track == d.ID) {
			continue // with a key, deliveries that have a log are found by that
		}
		if err != nil {
			return nil, err
		}
		orders = append(orders, d.order())
	}
	slices.Sort(orders)
	return orders, nil
}

func (s *deliveryLog) delivery(ctx context.Context, t j17.Tenant, id string) (*delivery, error) {
	none := j17.Errorf(j17.CodeNotFound, "There is no delivery of that id. Delivered ones are kept for 7 days, failed ones for 30.")
	if len(id) > maxID {
		return nil, none
	}
	d, _, err := read[*delivery](ctx, s.o.Store, t, deliverySpace, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, none
	}
	return d, failure(err)
}

// event reads the event of a delivery. With the error of an event that cannot be read it returns what is known of it.
func (s *deliveryLog) event(ctx context.Context, j job) (*j17.Event, error) {
	for ev, err := range s.o.Store.ReadStream(
		ctx, j.at.tenant, j.delivery.parsedKey(), j.delivery.Version, j.delivery.Version,
	) {
		if err != nil {
			return nil, err
		}
		shown, err := s.o.Shown.Show(ctx, j.at.tenant, ev)
		if shown == nil {
			return nil, err
		}
		return shown.Clone(), err
	}
	return nil, &store.CorruptionError{Where: "delivery " + j.delivery.ID, Err: errors.New("its event is not there")}
}

// eraseLogs removes the texts from the logs of an aggregate's deliveries.
func (s *deliveryLog) eraseLogs(ctx context.Context, t j17.Tenant, prefix string) error {
	const page = 200
	for it, err := range store.Items(ctx, s.o.Store, t, logSpace, store.Prefix(prefix), page) {
		if err != nil {
			return err
		}
		if err := s.eraseLog(ctx, t, it.Key, it.Key[len(prefix):]); err != nil {
			return err
		}
	}
	return nil
}

// eraseLog removes the texts from a log, and from the delivery at a place in lists.
func (s *deliveryLog) eraseLog(ctx context.Context, t j17.Tenant, key, place string) error {
	for range maxTries {
		// The log, which keeps its expiry.
		it, err := s.o.Store.Get(ctx, t, logSpace, key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		tries, err := store.Decode[[]try](logSpace, &it)
		if err != nil {
			return err
		}
		for i := range tries {
			tries[i].Error, tries[i].Response = "", ""
		}
		sides := []store.Side{put(logSpace, key, tries, it.Expires).On(it.Rev)}

		// The delivery.
		row, err := s.o.Store.Get(ctx, t, deliverySpace, idOf(place))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err == nil {
			d, err := store.Decode[*delivery](deliverySpace, &row)
			if err != nil {
				return err
			}
			d.LastError = ""
			sides = append(sides, put(deliverySpace, d.ID, d, row.Expires).On(row.Rev))
		}
		if err = s.o.Store.Write(ctx, t, sides); !overtaken(err) {
			return err
		}
	}
	return errContended
}

func (s *deliveryLog) generation(ctx context.Context, j job) (uint64, error) {
	heads, err := s.o.Store.Heads(ctx, j.at.tenant, []j17.Key{j.delivery.parsedKey()})
	if err != nil {
		return 0, err
	}
	return heads[0].Generation, nil
}

// present returns a job with its event as it is now. If the stream was ever rewritten, the event in memory may be
// outdated, and is read again.
func (s *deliveryLog) present(ctx context.Context, j job) (job, error) {
	var err error
	if j.generation, err = s.generation(ctx, j); err != nil {
		return j, err
	}
	if j.event == nil || j.generation > 0 {
		j.event, err = s.event(ctx, j)
	}
	return j, err
}

// withoutErased removes the endpoint's texts from the outcome of a try, if the event was erased since the try began, or
// if there is no listener whose fence would detect an erasure.
func (s *deliveryLog) withoutErased(ctx context.Context, l *listener, j job, o outcome) (outcome, error) {
	if o.try.Error == "" && o.try.Response == "" || o.over {
		return o, nil
	}
	generation, err := s.generation(ctx, j)
	if err == nil && (l == nil || generation != j.generation) {
		o.try.Error, o.try.Response = "", ""
	}
	return o, err
}
