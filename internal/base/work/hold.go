package work

import (
	"context"
	"errors"
)

// holding is what a request has of a pool.
type holding struct {
	pool   *Pool
	tenant string
	n      int64
}

// TryHold takes n units of a pool for a tenant, which are the request's until Release; false if there is too little.
func (b *Budget) TryHold(p *Pool, tenant string, n int64) bool {
	got, ok := p.TryTake(tenant, n)
	if ok {
		b.held = append(b.held, holding{p, tenant, got})
	}
	return ok
}

// Hold is TryHold for requests that can wait. The request gives back its turn on a processor meanwhile. The error is
// that of Busy, naming what, or that of the context.
func (b *Budget) Hold(p *Pool, tenant string, n int64, what string) error {
	got, err := b.Take(p, tenant, n, what)
	if err == nil {
		b.held = append(b.held, holding{p, tenant, got})
	}
	return err
}

// Take is Hold for units that the caller gives back to the pool itself: as many as it returns. A budget that is only
// counted does not wait.
func (b *Budget) Take(p *Pool, tenant string, n int64, what string) (int64, error) {
	if got, ok := p.TryTake(tenant, n); ok {
		return got, nil
	}
	if b.ctx == nil {
		return 0, Busy(what)
	}
	b.Rest()
	waiting, cancel := context.WithTimeout(b.ctx, Wait)
	defer cancel()
	got, err := p.Take(waiting, tenant, n)
	if errors.Is(err, context.DeadlineExceeded) && b.ctx.Err() == nil {
		err = Busy(what)
	}
	return got, err
}

// Holds reports whether the request holds anything.
func (b *Budget) Holds() bool { return len(b.held) > 0 }

// Release gives back all that the request holds.
func (b *Budget) Release() {
	for _, h := range b.held {
		h.pool.Give(h.tenant, h.n)
	}
	b.held = nil
}
