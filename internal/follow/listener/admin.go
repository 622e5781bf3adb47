package listener

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/worker"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Listener is a listener of an environment as shown to operators.
type Listener struct {
	Name   string
	Status Status
	URL    string
	Events []spec.Pattern
	Format string
	Secret string
	// Previous is the previous secret, valid until PreviousUntil; "" for none.
	Previous      string
	PreviousUntil time.Time
	// Lag is the number of events that have not been delivered to the listener yet.
	Lag int
}

// Prepare sets up the listeners of a spec that the previous one lacks, so that they receive events from now on; it is
// called right before the spec is deployed. If the spec is not deployed after all, they receive nothing.
func (s *Service) Prepare(ctx context.Context, t j17.Tenant, before, after *spec.Compiled) error {
	_, env := s.o.Name(t)
	for _, name := range namesIn(after, env) {
		if before != nil && before.Listeners[name] != nil && before.Listeners[name].URLs[env] != "" {
			continue
		}
		// A listener of that name that was removed earlier may have left a state behind.
		if before != nil {
			if err := s.o.Feed.Unsubscribe(ctx, t, kind, name); err != nil {
				return err
			}
			err := s.states.change(ctx, t, name, func(st *state) bool { st.Status = Active; return true },
				func(Status) ([]store.Side, []store.Fence, error) {
					sides, _, err := s.states.unpark(ctx, t, name)
					return sides, nil, err
				})
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		if err := s.states.ensure(ctx, t, name); err != nil {
			return err
		}
	}
	return nil
}

// Adopted brings the listeners of an environment in line with its deployed spec.
func (s *Service) Adopted(ctx context.Context, t j17.Tenant) error {
	_, env := s.o.Name(t)
	there, err := s.o.Feed.List(ctx, t, kind)
	if err != nil {
		return err
	}
	names := namesIn(s.o.Spec(t), env)
	for _, name := range names {
		if err := s.states.ensure(ctx, t, name); err != nil {
			return err
		}
	}
	for i := range there {
		name := there[i].Name
		if slices.Contains(names, name) {
			if there[i].Paused {
				if err := s.states.align(ctx, t, name); err != nil {
					return err
				}
			}
			continue
		}
		// The listener is gone: what waits for it ends now. The subscription is removed last, since the listener is
		// found by it.
		if err := s.states.endWaiting(ctx, t, name); err != nil {
			return err
		}
		if err := s.o.Feed.Unsubscribe(ctx, t, kind, name); err != nil {
			return err
		}
	}
	return nil
}

// endedAtOnce is how many lanes of a removed listener are made due in one commit.
const endedAtOnce = 64

// namesIn returns the names of the listeners that a spec has for an environment.
func namesIn(c *spec.Compiled, env j17.Environment) (names []string) {
	if c == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.Listeners)) {
		if c.Listeners[name].URLs[env] != "" {
			names = append(names, name)
		}
	}
	return names
}

// List returns up to limit listeners of an environment by name, after the first offset ones.
func (s *Service) List(ctx context.Context, t j17.Tenant, offset, limit int) ([]Listener, error) {
	_, env := s.o.Name(t)
	names := namesIn(s.o.Spec(t), env)
	names = names[min(offset, len(names)):]
	names = names[:min(limit, len(names))]
	all := make([]Listener, 0, len(names))
	b, left := work.New(ctx, 0), s.lagWork
	for i, name := range names {
		b.Renew(left / int64(len(names)-i)) // most have nothing to count, and leave their part to others
		l, err := s.get(ctx, t, name, b)
		if err != nil {
			return nil, err
		}
		left -= b.Spent()
		all = append(all, l)
	}
	return all, nil
}

// Get returns a listener of an environment; a *j17.Error of CodeNotFound if there is none.
func (s *Service) Get(ctx context.Context, t j17.Tenant, name string) (Listener, error) {
	return s.get(ctx, t, name, work.New(ctx, s.lagWork))
}

// get is Get on a budget: events that the budget does not suffice for are not counted in Lag.
func (s *Service) get(ctx context.Context, t j17.Tenant, name string, b *work.Budget) (Listener, error) {
	l, err := s.known(ctx, t, name)
	if err != nil {
		return Listener{}, err
	}
	out := Listener{
		Name: name, Status: l.state.Status, URL: l.definition.URLs[l.env], Events: l.definition.Events,
		Format: cmp.Or(l.definition.Format, spec.FormatJ17), Secret: l.state.Secret,
	}
	if l.state.Previous != "" && s.o.Clock.Now().Before(l.state.PreviousUntil) {
		out.Previous, out.PreviousUntil = l.state.Previous, l.state.PreviousUntil
	}
	if out.Lag, err = s.lag(ctx, l, b); j17.CodeOf(err) == j17.CodeWorkLimit {
		err = nil
	}
	return out, failure(err)
}

// known is find for a name given by a user.
func (s *Service) known(ctx context.Context, t j17.Tenant, name string) (*listener, error) {
	l, err := s.find(ctx, t, name)
	if err != nil {
		return nil, failure(err)
	}
	if l == nil {
		return nil, j17.Errorf(j17.CodeNotFound, "The environment has no listener of that name. Listeners are declared in the spec, under 'listeners'.")
	}
	return l, nil
}

// Pause stops deliveries to a listener until it is resumed. A paused or disabled listener stays as it is.
func (s *Service) Pause(ctx context.Context, t j17.Tenant, name string) error {
	if _, err := s.known(ctx, t, name); err != nil {
		return err
	}
	err := s.states.change(ctx, t, name, func(st *state) bool {
		paused := st.Status == Active
		if paused {
			st.Status = Paused
		}
		return paused
	})
	if err == nil {
		err = s.states.align(ctx, t, name)
	}
	return failure(err)
}

// Resume continues deliveries to a listener where they were stopped.
func (s *Service) Resume(ctx context.Context, t j17.Tenant, name string) error {
	if _, err := s.known(ctx, t, name); err != nil {
		return err
	}
	// The feed is resumed first: if this process ends in between, the listener is still paused, and can be resumed
	// again.
	if err := s.o.Feed.Resume(ctx, t, kind, name); err != nil {
		return failure(err)
	}
	err := s.states.change(ctx, t, name, func(st *state) bool {
		st.Status = Active
		return true
	}, func(before Status) ([]store.Side, []store.Fence, error) {
		sides, fences, err := s.states.unpark(ctx, t, name)
		if before == Active {
			fences = nil // no delivery begins to wait, and many may be under way
		}
		return sides, fences, err
	})
	if err == nil {
		err = s.states.align(ctx, t, name)
	}
	return failure(err)
}

// Rotate gives a listener a new secret. The previous one stays valid for another day.
func (s *Service) Rotate(ctx context.Context, t j17.Tenant, name string) error {
	if _, err := s.known(ctx, t, name); err != nil {
		return err
	}
	return failure(s.states.change(ctx, t, name, func(st *state) bool {
		st.Previous, st.PreviousUntil = st.Secret, s.o.Clock.Now().Add(secretOverlap).Truncate(time.Second)
		st.Secret = NewSecret()
		return true
	}))
}

// tell notifies operators that the endpoint of a listener is gone, and stops its subscription.
func (s *Service) tell(ctx context.Context, c *worker.Claim) error {
	n, err := store.Decode[notice](noticeSpace, &store.Item{Key: c.Key, Value: c.Value})
	if err != nil {
		return err
	}
	if err := s.states.align(ctx, c.Tenant, c.Key); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err := s.o.Disabled(ctx, c.Tenant, c.Key, n.Delivery); err != nil {
		return err
	}
	return s.o.Store.Write(ctx, c.Tenant, []store.Side{c.Remove()})
}

const (
	// maxCounted bounds the events that are looked at to count the undelivered ones, lagWork the work of one request
	// for listeners: beyond these the Lag is a lower bound.
	maxCounted = 100_000
	lagWork    = 4 * work.Command
)

// lag counts the events not delivered to a listener. If the budget ends, the number is what was counted until then.
func (s *Service) lag(ctx context.Context, l *listener, b *work.Budget) (n int, err error) {
	status, err := s.o.Feed.Status(ctx, l.tenant, kind, l.name)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}

	// Deliveries under way.
	lanes, err := s.o.Store.Scan(ctx, l.tenant, laneSpace, store.Prefix(l.name+"/"), maxLanes+maxWindow)
	if err != nil {
		return 0, err
	}
	if !b.Spend(len(lanes)) {
		return len(lanes), b.Err()
	}
	for i := range lanes {
		if !searched(&lanes[i]) {
			n++
		}
	}

	// Events that wait for these.
	matches, left := matcher(l.definition, b), maxCounted
	notes, err := s.o.Store.Scan(ctx, l.tenant, behindSpace, store.Prefix(l.name+"/"), maxLanes+maxWindow)
	if err != nil {
		return 0, err
	}
	for i := range notes {
		if !b.Spend(unitsPerEvent) {
			return n, b.Err()
		}
		more, err := s.countWaiting(ctx, l, &notes[i], matches, &left)
		if n += more; err != nil {
			return n, err
		}
	}

	// Events that the feed has not handed out.
	for ev, err := range s.o.Store.ReadFeed(ctx, l.tenant, status.After, max(left, 1)) {
		if err != nil {
			return 0, err
		}
		if ev, err = s.o.shown(ctx, l.tenant, ev); err != nil {
			return n, err
		}
		is, err := matches(ev)
		if err != nil {
			return n, err
		}
		if is {
			n++
		}
	}
	return n, nil
}

// countWaiting counts the events that wait behind a lane. On an error the number is what was counted until then.
func (s *Service) countWaiting(
	ctx context.Context, l *listener, note *store.Item, matches func(*j17.Event) (bool, error), left *int,
) (n int, err error) {
	waits, err := store.Decode[behind](behindSpace, note)
	if err != nil || len(waits.Listed) > 0 {
		return len(waits.Listed), err
	}

	// The delivery that they wait for, which may have ended by now.
	lane, err := s.o.Store.Get(ctx, l.tenant, laneSpace, note.Key)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	_, id, err := worker.ReadAttempts(lane.Value)
	if err != nil {
		return 0, err
	}
	_, _, of := cutKey(note.Key)
	d := &delivery{Key: of}
	if len(id) > 0 {
		d, _, err = read[*delivery](ctx, s.o.Store, l.tenant, deliverySpace, string(id))
		if errors.Is(err, store.ErrNotFound) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
	}
	from := max(d.Version+1, waits.From)
	if from > waits.Last {
		return 0, nil
	}

	// The later events of its aggregate.
	for ev, err := range s.o.Store.ReadStream(ctx, l.tenant, d.parsedKey(), from, waits.Last) {
		if err != nil {
			return n, err
		}
		if *left--; *left < 0 {
			break
		}
		if ev, err = s.o.shown(ctx, l.tenant, ev); err != nil {
			return n, err
		}
		is, err := matches(ev)
		if err != nil {
			return n, err
		}
		if is {
			n++
		}
	}
	return n, nil
}

// failure turns an error of the store or the feed into one for users.
func failure(err error) error {
	if err == nil {
		return nil
	}
	var told *j17.Error
	switch {
	case errors.As(err, &told):
		return err
	case errors.Is(err, errContended):
		told = j17.Errorf(j17.CodeBusy, "The listener is being changed by others. Nothing was changed; try again in a moment.")
	case errors.Is(err, store.ErrFull):
		told = j17.Errorf(j17.CodeStorageFull, "The server is short of disk space and accepts no changes until there is room again.")
	case errors.Is(err, store.ErrUnknown):
		told = j17.Errorf(j17.CodeOutcomeUnknown, "It is not known whether the change was saved. Look it up before you try again.")
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrClock), errors.Is(err, store.ErrClosed),
		errors.Is(err, store.ErrFailed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		told = j17.Errorf(j17.CodeUnavailable, "The server did not finish in time, or cannot save anything now. Try again.")
	default:
		told = j17.Errorf(j17.CodeInternal, "The server could not read or write its deliveries.")
	}
	return told.Because(err)
}
