package work

import (
	"container/list"
	"context"
	"sync"
)

// Pool is a bounded amount of something that requests need for a while, such as bytes of memory or turns on a
// processor. A request that finds too little left waits. Tenants are served fairly: the one that holds least goes
// first, among equals the one that has waited longest, and each tenant's requests in the order of their arrival. No
// tenant may hold more than its share, so that the others never wait for one alone.
type Pool struct {
	size, share int64

	mu   sync.Mutex
	used int64
	// queued is how many wait, asked how many have waited so far.
	queued int
	asked  uint64
	// users are the tenants that hold something or wait.
	users map[string]*user
}

// user is one tenant.
type user struct {
	held    int64
	waiting list.List // of *waiter, the first in line first
}

// waiter is a request that waits.
type waiter struct {
	n      int64
	number uint64        // in the order in which they came
	ready  chan struct{} // closed when it has what it asked for
	place  *list.Element // in the line of its tenant; nil then
}

// NewPool returns a pool of size units, of which one tenant may have share at a time.
func NewPool(size, share int64) *Pool {
	return &Pool{size: size, share: min(share, size), users: map[string]*user{}}
}

// Take takes n units for a tenant, at most its share, and returns how many it took: they have to be given back. It
// waits until there are as many, or until ctx ends, whose error it returns then.
func (p *Pool) Take(ctx context.Context, tenant string, n int64) (int64, error) {
	p.mu.Lock()
	n = min(n, p.share)
	u, w := p.ask(tenant, n)
	p.mu.Unlock()
	if err := p.wait(ctx, tenant, u, w); err != nil {
		return 0, err
	}
	return n, nil
}

// GiveWay is Give and Take in one step: waiting tenants come before the one that gives. After an error the tenant no
// longer has the n units.
func (p *Pool) GiveWay(ctx context.Context, tenant string, n int64) error {
	p.mu.Lock()
	u := p.users[tenant]
	p.used -= n
	u.held -= n
	u, w := p.ask(tenant, n)
	p.mu.Unlock()
	return p.wait(ctx, tenant, u, w)
}

// wait waits until a waiter has been granted what it asked for; a nil waiter already has. When ctx ends first, the
// waiter leaves the line, and the error is that of ctx.
func (p *Pool) wait(ctx context.Context, tenant string, u *user, w *waiter) error {
	if w == nil {
		return nil
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leave(tenant, u, w) {
		return ctx.Err()
	}
	return nil // it came at the last moment
}

// TryTake is Take without waiting; it reports false if there is too little.
func (p *Pool) TryTake(tenant string, n int64) (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = min(n, p.share)
	u, w := p.ask(tenant, n)
	if w == nil || !p.leave(tenant, u, w) {
		return n, true
	}
	return 0, false
}

// ask grants n units, or puts a waiter in line for them and returns it.
func (p *Pool) ask(tenant string, n int64) (*user, *waiter) {
	u := p.user(tenant)
	if p.queued == 0 && p.fits(u, n) {
		p.grant(u, n)
		return u, nil
	}
	p.asked++
	w := &waiter{n: n, number: p.asked, ready: make(chan struct{})}
	w.place = u.waiting.PushBack(w)
	p.queued++
	p.serve()
	if w.place == nil {
		return u, nil
	}
	return u, w
}

// user returns a tenant's entry, and makes one where there is none.
func (p *Pool) user(tenant string) *user {
	u := p.users[tenant]
	if u == nil {
		u = new(user)
		p.users[tenant] = u
	}
	return u
}

// leave takes a waiter out of the line; false if it has what it asked for.
func (p *Pool) leave(tenant string, u *user, w *waiter) bool {
	if w.place == nil {
		return false
	}
	u.waiting.Remove(w.place)
	p.queued--
	p.drop(tenant, u)
	p.serve() // requests behind it may need less
	return true
}

// Give gives back what a tenant has taken.
func (p *Pool) Give(tenant string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.users[tenant]
	p.used -= n
	u.held -= n
	p.drop(tenant, u)
	p.serve()
}

// Insist takes n units for a tenant at once, even beyond the size of the pool, for requests that cannot do without.
// Others wait until as many have been given back.
func (p *Pool) Insist(tenant string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grant(p.user(tenant), n)
}

// Wanted reports whether anybody waits.
func (p *Pool) Wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queued > 0
}

// Used returns how many units are taken.
func (p *Pool) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// drop forgets a tenant that has nothing and wants nothing.
func (p *Pool) drop(tenant string, u *user) {
	if u.held == 0 && u.waiting.Len() == 0 {
		delete(p.users, tenant)
	}
}

func (p *Pool) fits(u *user, n int64) bool { return p.used+n <= p.size && u.held+n <= p.share }

func (p *Pool) grant(u *user, n int64) {
	p.used += n
	u.held += n
}

// serve grants waiting requests what there is now enough for. The tenant that holds least is next, and if there is not
// enough for its first request no other one overtakes it.
func (p *Pool) serve() {
	for p.queued > 0 {
		var next *user
		for _, u := range p.users {
			if u.waiting.Len() > 0 && u.held+first(u).n <= p.share && (next == nil || u.before(next)) {
				next = u
			}
		}
		if next == nil || !p.fits(next, first(next).n) {
			return
		}
		w := first(next)
		next.waiting.Remove(w.place)
		w.place = nil
		p.queued--
		p.grant(next, w.n)
		close(w.ready)
	}
}

// before reports whether a tenant that waits is served before another one.
func (u *user) before(other *user) bool {
	return u.held < other.held || u.held == other.held && first(u).number < first(other).number
}

func first(u *user) *waiter {
	w, _ := u.waiting.Front().Value.(*waiter)
	return w
}
