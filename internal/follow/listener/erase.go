package listener

import (
	"context"
	"errors"

	"j17"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// An erasure and tries that are under way meet at the state of the listener: Erase changes its revision, on which whoever commits what came
// of a try has a fence. Who is refused for that, or begins later, sees the stream's new generation.

// Erase takes out of the logs of deliveries, and out of the deliveries, what endpoints have said of events of streams that were
// rewritten. What came of each try stays.
func (s *Service) Erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	// What tries under way come to is decided anew.
	names, err := s.names(ctx, t)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.change(ctx, t, name, func(*state) bool { return true }); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}

	for _, key := range e.Keys {
		if err := s.eraseLogs(ctx, t, key.String()+"/"); err != nil {
			return err
		}
	}
	return nil
}

// eraseLogs takes the texts out of the logs of an aggregate's deliveries.
func (s *Service) eraseLogs(ctx context.Context, t j17.Tenant, prefix string) error {
	const page = 200
	for keys := store.Prefix(prefix); ; {
		items, err := s.o.Store.Scan(ctx, t, logSpace, keys, page)
		if err != nil {
			return err
		}
		for i := range items {
			keys = keys.After(items[i].Key)
			if err := s.eraseLog(ctx, t, items[i].Key, items[i].Key[len(prefix):]); err != nil {
				return err
			}
		}
		if len(items) < page {
			return nil
		}
	}
}

// eraseLog takes the texts out of a log, and out of the delivery that stands at a place in lists.
func (s *Service) eraseLog(ctx context.Context, t j17.Tenant, key, place string) error {
	for range maxTries {
		// The log, which goes when it would have.
		it, err := s.o.Store.Get(ctx, t, logSpace, key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		tries, err := decode[[]try](logSpace, &it)
		if err != nil {
			return err
		}
		for i := range tries {
			tries[i].Error, tries[i].Response = "", ""
		}
		sides := []store.Side{on(it.Rev, put(logSpace, key, tries, it.Expires))}

		// The delivery.
		row, err := s.o.Store.Get(ctx, t, deliverySpace, idOf(place))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err == nil {
			d, err := decode[*delivery](deliverySpace, &row)
			if err != nil {
				return err
			}
			d.LastError = ""
			sides = append(sides, on(row.Rev, put(deliverySpace, d.ID, d, row.Expires)))
		}
		if err = s.o.Store.Write(ctx, t, sides); !overtaken(err) {
			return err
		}
	}
	return errContended
}

// present returns a job that is about to be tried with its event as it is now. What is kept of one whose stream was ever rewritten may be
// what it was before, and is read anew.
func (s *Service) present(ctx context.Context, j job) (job, error) {
	var err error
	if j.generation, err = s.generation(ctx, j); err != nil {
		return j, err
	}
	if j.event == nil || j.generation > 0 {
		j.event, err = s.event(ctx, j)
	}
	return j, err
}

func (s *Service) generation(ctx context.Context, j job) (uint64, error) {
	heads, err := s.o.Store.Heads(ctx, j.at.tenant, []j17.Key{j.delivery.parsedKey()})
	if err != nil {
		return 0, err
	}
	return heads[0].Generation, nil
}

// withoutErased takes what an endpoint has said out of the outcome of a try, where the event was erased since the try began, or where no
// fence of a listener tells of an erasure.
func (s *Service) withoutErased(ctx context.Context, l *listener, j job, o outcome) (outcome, error) {
	if o.try.Error == "" && o.try.Response == "" || o.over {
		return o, nil
	}
	generation, err := s.generation(ctx, j)
	if err == nil && (l == nil || generation != j.generation) {
		o.try.Error, o.try.Response = "", ""
	}
	return o, err
}
