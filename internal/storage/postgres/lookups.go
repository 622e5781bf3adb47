package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/store"
)

// lookups answers questions about single items. Concurrent questions share a round trip, which begins after all of them
// were asked: the answers have everything that was acknowledged before.
type lookups struct {
	*core

	mu      sync.Mutex
	waiting *group
	running int

	known knownHeads
}

// group is questions that share a round trip.
type group struct {
	questions

	// callers is how many calls wait for the answers.
	callers int
	// server is the server that has answered.
	server *server
	done   chan struct{}
	err    error
}

func newLookups(c *core) *lookups { return &lookups{core: c} }

// confirm returns when a round trip with a commit has ended that began after the call.
func (l *lookups) confirm(ctx context.Context) error {
	_, err := l.ask(ctx, "a commit that confirms a read", func(*questions) {})
	return err
}

// ask adds questions to the next round trip and waits for its answers.
func (l *lookups) ask(ctx context.Context, what string, add func(q *questions)) (*group, error) {
	if l.isClosed() {
		return nil, store.ErrClosed
	}
	l.mu.Lock()
	if l.waiting == nil {
		l.waiting = &group{done: make(chan struct{})}
		l.waiting.commits = l.o.Reads == ReadQuorum
	}
	g := l.waiting
	g.callers++
	add(&g.questions)
	if l.running < lookupCount {
		l.running++
		l.working.Go(l.run)
	}
	l.mu.Unlock()
	select {
	case <-g.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if g.err != nil {
		return nil, ofQuestion(what, g.err)
	}
	return g, nil
}

// ofQuestion returns the error of a round trip for one of its callers. Each gets its own CorruptionError.
func ofQuestion(what string, err error) error {
	if damage, is := errors.AsType[*store.CorruptionError](err); is {
		return &store.CorruptionError{Where: damage.Where, Item: damage.Item, Err: damage.Err}
	}
	return fault(what, err)
}

// run makes round trips as long as there are questions.
func (l *lookups) run() {
	for {
		l.mu.Lock()
		g := l.waiting
		l.waiting = nil
		if g == nil {
			l.running--
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		g.err = panics.Caught(func() error {
			return l.readFrom(l.ending, l.lookupPool, "look-ups", func(conn reading) error {
				if c, is := conn.(*pgxpool.Conn); is {
					g.server = sessionOf(c.Conn()).server
				}
				return g.ask(l.ending, conn)
			})
		})
		close(g.done)
	}
}

// Heads is part of store.Aggregates.
func (l *lookups) Heads(ctx context.Context, t j17.Tenant, keys []j17.Key) ([]store.Head, error) {
	if err := l.admits(t); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(keys, canExist) {
		return make([]store.Head, len(keys)), nil
	}
	if heads, err := l.remembered(ctx, t, keys); heads != nil || err != nil {
		return heads, err
	}
	var places []int
	change := l.changeOf(t)
	g, err := l.ask(ctx, "heads of streams", func(q *questions) {
		q.states.add(t)
		q.again, places = true, q.heads.addAll(t, keys)
	})
	if err != nil {
		return nil, err
	}
	heads := g.heads.at(places)
	if row := g.states.rows[t]; row.same(g.after.rows[t]) {
		l.known.remember(t, g.server, row, change, keys, heads)
	}
	return heads, nil
}

// remembered returns heads that were found before, if the tenant's row shows that nothing has been written since; nil
// if something was, or if not all of them are known.
func (l *lookups) remembered(ctx context.Context, t j17.Tenant, keys []j17.Key) ([]store.Head, error) {
	heads, as := l.known.heads(t, l.changeOf(t), keys)
	if heads == nil {
		return nil, nil
	}
	g, err := l.ask(ctx, "heads of streams", func(q *questions) { q.states.add(t) })
	if err != nil {
		return nil, err
	}
	if g.server != as.server || !as.row.same(g.states.rows[t]) {
		return nil, nil
	}
	return heads, nil
}

// Get is part of store.Sides.
func (l *lookups) Get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	items, err := l.items(ctx, t, space, key)
	if err != nil {
		return store.Item{}, err
	}
	if items[0] == nil {
		return store.Item{}, store.ErrNotFound
	}
	return *items[0], nil
}

// items returns the live items with the given keys, nil for each that does not exist.
func (l *lookups) items(
	ctx context.Context, t j17.Tenant, space store.Space, keys ...string,
) ([]*store.Item, error) {
	if err := l.admits(t); err != nil {
		return nil, err
	}
	list := make([]*store.Item, len(keys))
	number, err := l.spaces.number(ctx, space)
	if err != nil || number == noSpace {
		return list, err
	}
	first := 0
	q, err := l.ask(ctx, "side items", func(q *questions) {
		first = len(q.items.names)
		for _, key := range keys {
			q.items.add(t, number, key, true)
		}
	})
	if err != nil {
		return nil, err
	}
	now := l.clock.Now().UnixNano()
	for i, key := range keys {
		stored := q.items.items[first+i]
		if !stored.Live(now) {
			continue
		}
		item, err := l.itemOf(space, key, &stored)
		if err != nil {
			return nil, err
		}
		list[i] = &item
	}
	return list, nil
}

// Extent is part of store.Feed.
func (l *lookups) Extent(ctx context.Context, t j17.Tenant) (extent store.Extent, err error) {
	if err := l.admits(t); err != nil {
		return extent, err
	}
	g, err := l.ask(ctx, "the extent of a tenant", func(q *questions) { q.states.add(t) })
	if err != nil {
		return extent, err
	}
	if row := g.states.rows[t]; row != nil {
		extent = store.Extent{Events: uint64(row.events), Last: row.last, Life: uint64(row.t)}
	}
	return extent, nil
}
