package attention

import (
	"context"
	"log/slog"
	"strconv"
	"sync"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/panics"
	"j17/internal/plane/control"
)

const (
	// MaxRetried is how many things one request retries.
	MaxRetried = 1000
	// restFactor is how many times as long as a retry the pause after it lasts. The retry takes a quarter of the time,
	// and the writes of the work that it resumes at most as much again, so half of the rate of writes is left to
	// others.
	restFactor = 3
)

// retry identifies a retry of everything with one cause.
type retry struct {
	tenant      j17.Tenant
	kind, cause string
}

// one returns the function that retries a thing of a kind, and its action in the audit log; nil for a kind that cannot
// be retried.
func (s *Service) one(kind string) (
	try func(context.Context, j17.Tenant, string) (map[string]string, error), action string,
) {
	switch kind {
	case kindScheduled:
		return func(ctx context.Context, t j17.Tenant, id string) (map[string]string, error) {
			_, err := s.o.Schedule.Retry(ctx, t, id)
			return nil, err
		}, "scheduled.retry"
	case kindSaga:
		return func(ctx context.Context, t j17.Tenant, id string) (map[string]string, error) {
			g, err := s.o.Sagas.Retry(ctx, t, id)
			if err != nil {
				return nil, err
			}
			return map[string]string{"type": g.Type}, nil
		}, "saga.retry"
	case kindDelivery:
		return func(ctx context.Context, t j17.Tenant, id string) (map[string]string, error) {
			d, err := s.o.Listeners.Retry(ctx, t, id)
			return map[string]string{"listener": d.Listener}, err
		}, "delivery.retry"
	default:
		return nil, ""
	}
}

// Count returns how many things of a kind have a cause, as counted by Causes. Errors are *j17.Errors: CodeInvalidField
// for a kind that cannot be retried, CodeNotFound if nothing has the cause.
func (s *Service) Count(ctx context.Context, t j17.Tenant, kind, cause string) (int, error) {
	ids, err := s.ids(ctx, t, kind, cause, s.looked)
	return len(ids), err
}

// ids returns the ids of up to limit things with a cause.
func (s *Service) ids(ctx context.Context, t j17.Tenant, kind, cause string, limit int) ([]string, error) {
	if try, _ := s.one(kind); try == nil {
		return nil, j17.Errorf(j17.CodeInvalidField, "'kind' must be \"scheduled\", \"saga\" or \"delivery\": others cannot be retried").At("kind")
	}
	var ids []string
	_, err := s.each(ctx, t, kind, func(x thing) bool {
		if x.cause == cause {
			ids = append(ids, x.id)
		}
		return len(ids) < limit
	})
	if err == nil && len(ids) == 0 {
		err = j17.Errorf(j17.CodeNotFound, "Nothing of this kind waits for this cause. GET attention lists what waits.")
	}
	return ids, err
}

// Retry begins to retry up to MaxRetried things of a kind that have a cause, one after the other, and returns their
// number. It continues after it has returned, and ends with the process; what it has not retried by then waits as
// before. The audit log gets a record of the whole before it begins, and one for each thing. Errors are those of Count,
// and CodeConflict while the same retry is in progress.
func (s *Service) Retry(ctx context.Context, t j17.Tenant, kind, cause string) (int, error) {
	of := retry{t, kind, cause}
	turn, err := s.claim(of)
	if err != nil {
		return 0, err
	}
	ids, err := s.ids(ctx, t, kind, cause, MaxRetried)
	if err == nil {
		instance, env := instanceOf(t)
		err = s.o.Registry.Audit.Add(context.WithoutCancel(ctx), control.Record{
			Action: "attention.retry", Instance: instance, Environment: env, Target: kind,
			Details: map[string]string{"cause": cause, "count": strconv.Itoa(len(ids))},
		})
	}
	if err != nil {
		s.release(of)
		return 0, err
	}

	// The actor is kept; the end of the request does not end the retry.
	by := context.WithoutCancel(ctx)
	go func() {
		defer s.release(of)
		turn.Lock()
		defer turn.Unlock()
		work, cancel := context.WithCancel(by)
		defer cancel()
		defer context.AfterFunc(s.retrying, cancel)()
		err := panics.Caught(func() error { s.all(work, of, ids); return nil })
		if err != nil {
			s.o.Logger.LogAttrs(by, slog.LevelError, "a retry of all of one cause has ended early", slog.String("tenant", string(t)), slog.Any("error", err))
		}
	}()
	return len(ids), nil
}

// maxWaiting bounds the retries of all environments that are in progress or wait for their turn.
const maxWaiting = 100

// claim registers a retry, and returns the turn of its environment.
func (s *Service) claim(of retry) (*sync.Mutex, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.retrying.Err() != nil:
		return nil, j17.Errorf(j17.CodeUnavailable, "The server is shutting down. Nothing is retried; try again in a moment.")
	case s.retries[of]:
		return nil, j17.Errorf(j17.CodeConflict, "What waits for this cause is being retried already. Wait until that is done.")
	case len(s.retries) >= maxWaiting:
		return nil, j17.Errorf(j17.CodeBusy, "Too many retries are under way. Nothing is retried; try again in a moment.")
	}
	s.retries[of] = true
	s.under.Add(1)
	turn := s.turns[of.tenant]
	if turn == nil {
		turn = &sync.Mutex{}
		s.turns[of.tenant] = turn
	}
	return turn, nil
}

func (s *Service) release(of retry) {
	s.mu.Lock()
	delete(s.retries, of)
	s.mu.Unlock()
	s.under.Done()
}

// all retries things one after the other. Things that are gone, or were retried by others meanwhile, are skipped.
func (s *Service) all(ctx context.Context, of retry, ids []string) {
	instance, env := instanceOf(of.tenant)
	try, action := s.one(of.kind)
	machine := clock.System{}
	for _, id := range ids {
		began := machine.Now()
		details, err := try(ctx, of.tenant, id)
		if err == nil {
			err = s.o.Registry.Audit.Add(context.WithoutCancel(ctx), control.Record{
				Action: action, Instance: instance, Environment: env, Target: id, Details: details,
			})
		}
		switch code := j17.CodeOf(err); {
		case err == nil:
		case ctx.Err() != nil:
			return
		case code == j17.CodeConflict || code == j17.CodeNotFound:
			continue
		default:
			s.o.Logger.LogAttrs(ctx, slog.LevelWarn, "something that waits for a person could not be retried",
				slog.String("tenant", string(of.tenant)), slog.String("kind", of.kind), slog.String("id", id),
				slog.Any("error", err))
		}
		now := machine.Now()
		if machine.Wait(ctx, now.Add(restFactor*now.Sub(began))) != nil {
			return
		}
	}
}
