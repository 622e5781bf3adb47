package saga

import (
	"cmp"
	"context"
	"iter"

	"j17"
	"j17/internal/base/work"
	"j17/internal/storage/store"
)

// maxQueued bounds the queued sagas that Load counts.
const maxQueued = 1000

// Load returns how many sagas of an environment run, and how many are queued, counted up to maxQueued.
func (s *Service) Load(ctx context.Context, t j17.Tenant) (running, queued int, err error) {
	n, err := s.running(ctx, t)
	if err != nil {
		return 0, 0, store.UserError(err)
	}
	queued, err = s.store.Count(ctx, t, listSpace, store.Prefix(ofStatus+string(Queued)+"/"), maxQueued)
	return int(n), queued, store.UserError(err)
}

// lookWork is the work of finding and decoding a saga.
const lookWork = 256

// EachStuck passes the failed and dead-lettered sagas of an environment, the newest first, until do reports false. Each
// is charged to the budget; when that is used up, its error is returned.
func (s *Service) EachStuck(ctx context.Context, t j17.Tenant, b *work.Budget, do func(*Saga) bool) error {
	stuck := func(status Status) iter.Seq2[string, error] {
		return store.Places(ctx, s.store, t, listSpace, ofStatus+string(status)+"/", entriesPage)
	}
	for place, err := range store.Merge(cmp.Less[string], stuck(Failed), stuck(DeadLettered)) {
		if err != nil {
			return store.UserError(err)
		}
		if !b.Spend(lookWork) {
			return b.Err()
		}
		g, err := s.load(ctx, t, idAt(place))
		switch {
		case isAbsent(err): // it has just expired
		case err != nil:
			return store.UserError(err)
		case !g.Erased && !do(g):
			return nil
		}
	}
	return nil
}
