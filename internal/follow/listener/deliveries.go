package listener

import (
	"context"
	"errors"
	"strings"
	"time"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// Delivery is a message to a listener as shown to operators.
type Delivery struct {
	ID       string
	Listener string
	Status   DeliveryStatus
	// Attempts counts the tries since the first one, or since a retry was requested.
	Attempts int
	// LastStatus is the status of the last answer, 0 if there was none; LastError describes what was wrong.
	LastStatus int
	LastError  string
	StreamID   j17.StreamID
	Key        string
	Type       string
	// Next is when the next try is due; the zero time for never.
	Next    time.Time
	Created time.Time
}

// Try is a try of a delivery.
type Try struct {
	At time.Time
	// Status is 0 if there was no answer.
	Status int
	// Millis is the duration in milliseconds.
	Millis float64
	Error  string
	// Request and Response are the beginnings of the bodies.
	Request, Response string
}

// Filter selects deliveries. An empty field selects all.
type Filter struct {
	Listener string
	Key      string
	Status   DeliveryStatus
}

const (
	// lookWork is the work of finding and decoding a row for a list of deliveries.
	lookWork = 64
	// listWork bounds the work of one page of a list.
	listWork = 200_000 * lookWork
)

func (d *delivery) shown() Delivery {
	out := Delivery{
		ID: d.ID, Listener: d.Listener, Status: d.Status, Attempts: d.Attempts, LastStatus: d.LastStatus,
		LastError: d.LastError,
		StreamID:  d.StreamID, Key: d.Key, Type: d.Type, Created: time.Unix(0, d.Created).UTC(),
	}
	if d.Status == Pending {
		if out.Next = d.Next; out.Next.IsZero() {
			out.Next = out.Created
		}
	}
	return out
}

// Deliveries returns a page of the deliveries of an environment, the newest first: up to limit of those selected by the
// filter, after the first offset ones. It is a *j17.Error of CodeWorkLimit if too many rows would have to be looked at.
func (s *Service) Deliveries(ctx context.Context, t j17.Tenant, f Filter, offset, limit int) ([]Delivery, error) {
	var page []Delivery
	err := s.log.each(ctx, t, f, work.New(ctx, s.listWork), func(d *delivery) bool {
		if f.Listener != "" && d.Listener != f.Listener || f.Key != "" && d.Key != f.Key ||
			f.Status != "" && d.Status != f.Status {
			return true
		}
		if offset--; offset < 0 {
			page = append(page, d.shown())
		}
		return len(page) < limit
	})
	if j17.CodeOf(err) == j17.CodeWorkLimit {
		return nil, j17.Errorf(j17.CodeWorkLimit, "More than %d deliveries would have to be looked at. Ask for those of one listener and one status.", s.listWork/lookWork)
	}
	return page, failure(err)
}

// searched reports whether the next delivery of a lane is being searched for.
func searched(lane *store.Item) bool {
	_, id, err := worker.ReadAttempts(lane.Value)
	return err == nil && len(id) == 0
}

// cutKey splits the key of a lane or of a replay.
func cutKey(lane string) (name, track, key string) {
	name, rest, _ := strings.Cut(lane, "/")
	track, key, _ = strings.Cut(rest, "/")
	return name, track, key
}

// Delivery returns a delivery and its log, the first try first; a *j17.Error of CodeNotFound if there is none.
func (s *Service) Delivery(ctx context.Context, t j17.Tenant, id string) (Delivery, []Try, error) {
	d, err := s.log.delivery(ctx, t, id)
	if err != nil {
		return Delivery{}, nil, err
	}
	tries, _, err := read[[]try](ctx, s.o.Store, t, logSpace, d.logKey())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Delivery{}, nil, failure(err)
	}
	// The request is computed from the event again: so its data are stored in one place only, and erased there.
	request := ""
	if len(tries) > 0 {
		ev, err := s.log.event(ctx, job{at: at{t, d.Listener}, delivery: d})
		unreadable := upcast.Failure(err) != nil // there is no request then
		if err != nil && !unreadable {
			return Delivery{}, nil, failure(err)
		}
		_, env := s.o.Name(t)
		var secrets []string
		if l, err := s.find(ctx, t, d.Listener); err != nil {
			return Delivery{}, nil, failure(err)
		} else if l != nil {
			secrets = secretsOf(&l.state, l.definition)
		}
		if !unreadable {
			request = excerpt(d.message(env, ev).Body, secrets...)
		}
	}
	log := make([]Try, len(tries))
	for i, x := range tries {
		log[i] = Try{
			At: x.At, Status: x.Status, Millis: x.Millis, Error: x.Error, Request: request, Response: x.Response,
		}
	}
	return d.shown(), log, nil
}

// maxID is longer than the id of any delivery.
const maxID = 64

// Retry sends the message of a delivery again, whatever its status. A delivery that waits for its next try is tried at
// once. It is a *j17.Error of CodeConflict if the listener was removed or is not active.
func (s *Service) Retry(ctx context.Context, t j17.Tenant, id string) (Delivery, error) {
	for range maxTries {
		d, err := s.log.delivery(ctx, t, id)
		if err != nil {
			return Delivery{}, err
		}
		l, err := s.find(ctx, t, d.Listener)
		if err != nil {
			return Delivery{}, failure(err)
		}
		if l == nil {
			return Delivery{}, j17.Errorf(j17.CodeConflict, "The listener of the delivery is no longer in the spec.")
		}
		if err := mustBeActive(l); err != nil {
			return Delivery{}, err
		}
		sides, err := s.again(ctx, t, d)
		if err != nil {
			return Delivery{}, failure(err)
		}
		err = s.o.Store.Write(ctx, t, sides, l.state.fence(l.name))
		if overtaken(err) {
			continue
		}
		return d.shown(), failure(err)
	}
	return Delivery{}, failure(errContended)
}

// again returns the writes that make a delivery due at once.
func (s *Service) again(ctx context.Context, t j17.Tenant, d *delivery) ([]store.Side, error) {
	row, err := s.o.Store.Get(ctx, t, deliverySpace, d.ID)
	if err != nil {
		return nil, err
	}
	now := s.o.Clock.Now()
	known, err := store.Decode[*delivery](deliverySpace, &row)
	if err != nil {
		return nil, err
	}
	*d = *known // data erased since it was looked up must not come back

	// A delivery that waits for its next try keeps its lane; one that is due otherwise is being tried, or about to be.
	if d.Status == Pending {
		it, err := s.held(d, t)
		if err != nil || it.Rev == 0 || !d.Next.After(now) || !it.Due.Equal(d.Next) {
			return nil, err
		}
		return []store.Side{laneSide(d, now).On(it.Rev)}, nil
	}

	// A delivery that has ended gets a lane of its own: later events of its aggregate have been delivered.
	log, _, err := read[[]try](ctx, s.o.Store, t, logSpace, d.logKey())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	over := d.listKey(d.Status)
	d.Track, d.Status, d.Attempts, d.Again, d.Next = d.ID, Pending, 0, true, now
	return []store.Side{
		put(deliverySpace, d.ID, d, time.Time{}).On(row.Rev), laneSide(d, now).On(0), remove(listSpace, over),
		put(logSpace, d.logKey(), log, time.Time{}),
	}, nil
}
