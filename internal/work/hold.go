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

// Hold is TryHold for who can wait. The request gives its turn on a processor back while it does. The error is one of Busy, about
// what, or that of the context.
func (b *Budget) Hold(p *Pool, tenant string, n int64, what string) error {
	b.Rest()
	waiting, cancel := context.WithTimeout(b.ctx, Wait)
	defer cancel()
	got, err := p.Take(waiting, tenant, n)
	switch {
	case err == nil:
		b.held = append(b.held, holding{p, tenant, got})
		return nil
	case errors.Is(err, context.DeadlineExceeded) && b.ctx.Err() == nil:
		return Busy(what)
	default:
		return err
	}
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
