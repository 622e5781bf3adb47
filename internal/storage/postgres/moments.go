package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"j17"
	"j17/internal/storage/store"
)

const (
	// longestMoment is how long a moment may be open: meanwhile the server keeps all old versions of rows.
	longestMoment = 30 * time.Second
	// patienceForMoments is how long callers wait while the most moments are open.
	patienceForMoments = 2 * time.Second
)

// moments is the store in the role of store.Moments.
type moments struct {
	*core

	// open has an element for each snapshot that is open.
	open chan struct{}
	// longest and patience are longestMoment and patienceForMoments, except in tests.
	longest, patience time.Duration
}

// newMoments returns the role for a number of connections of readers, a third of which is left to other readers.
func newMoments(c *core, readers int) *moments {
	most := min(mostMoments, max(1, readers*2/3))
	return &moments{
		core: c, open: make(chan struct{}, most), longest: longestMoment, patience: patienceForMoments,
	}
}

// snapshot is a transaction that shows a tenant as it was when the transaction began. It has its own connection, which
// serves one call at a time.
type snapshot struct {
	*core

	name j17.Tenant
	// row is the tenant's row, nil if it has none.
	row *tenantRow
	// lasting is the context of all statements. It ends with the snapshot, and has the cause of that.
	lasting context.Context //nolint:containedctx // the lifetime of the snapshot
	end     context.CancelCauseFunc

	mu   sync.Mutex
	conn *pgxpool.Conn
}

// A snapshot would not show rows that were copied after it began, so partitions must not be exchanged while it is open:
// each exchange waits for this lock.
const (
	beginSnapshot = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
	holdCells     = `LOCK TABLE ONLY events IN ACCESS SHARE MODE`
	endSnapshot   = `ROLLBACK`
)

// snapshot begins a snapshot of a tenant, which ends after longest if it is not closed before.
func (m *moments) snapshot(ctx context.Context, name j17.Tenant, longest time.Duration) (*snapshot, error) {
	if err := store.ValidTenant(name); err != nil {
		return nil, err
	}
	if err := m.admit(ctx); err != nil {
		return nil, err
	}
	s := &snapshot{core: m.core, name: name}
	err := m.retry(ctx, "a moment", func(ctx context.Context) (err error) {
		if s.conn != nil {
			s.conn.Release() // the one of an earlier try
		}
		s.conn, err = m.acquire(ctx, m.pool)
		if err != nil {
			s.conn = nil
			return err
		}
		q := &questions{}
		q.states.add(name)
		if err = q.ask(ctx, s.conn, beginSnapshot, holdCells); err != nil {
			s.conn.Release() // which closes it, since its transaction is open
			s.conn = nil
		}
		s.row = q.states.rows[name]
		if err == nil && m.confirm != nil {
			err = m.confirm(ctx)
		}
		return err
	})
	if err != nil {
		if s.conn != nil {
			s.conn.Release() // it was opened, and the store may not answer any more
		}
		<-m.open
		return nil, err
	}

	lasting, end := context.WithCancelCause(m.ending)
	s.lasting, s.end = lasting, end
	//nolint:forbidigo // what a snapshot costs does not depend on the store's clock
	late := time.AfterFunc(longest, func() {
		end(fmt.Errorf("%w: it was open for %s", store.ErrEnded, longest))
	})
	context.AfterFunc(lasting, func() {
		late.Stop()
		s.release()
		<-m.open
	})
	return s, nil
}

// admit waits until another snapshot may be opened. The error is store.ErrBusy if that takes too long.
func (m *moments) admit(ctx context.Context) error {
	select {
	case m.open <- struct{}{}:
		return nil
	default:
	}
	waiting, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	select {
	case m.open <- struct{}{}:
		return nil
	case <-m.ending.Done():
		return store.ErrClosed
	case <-waiting.Done():
		if err := ctx.Err(); err != nil {
			return err
		}
		m.counts.momentsRefused.Add(1)
		return &store.LackError{
			Of: store.OfConnections, Why: fmt.Sprintf("%d moments are open, which is the most", cap(m.open)),
		}
	}
}

// release returns the connection to the pool.
func (s *snapshot) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.life, time.Second)
	defer cancel()
	_, _ = s.conn.Exec(ctx, endSnapshot) // a connection that is still in a transaction is closed
	s.conn.Release()
	s.conn = nil
}

// use calls do with the connection, and returns when what it has read is kept.
func (s *snapshot) use(what string, do func(ctx context.Context, conn reading) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lasting.Err() != nil {
		return s.over()
	}
	err := do(s.lasting, s.conn)
	if err != nil && s.lasting.Err() != nil {
		return s.over()
	}
	if err == nil {
		err = s.primary.kept(s.lasting, sessionOf(s.conn.Conn()).server)
	}
	if err == nil {
		err = s.works()
	}
	return fault(what, err)
}

// over returns the error of a snapshot that has ended.
func (s *snapshot) over() error {
	if cause := context.Cause(s.lasting); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return store.ErrClosed
}

// moment is a store.Moment.
type moment struct{ *snapshot }

// Moment is part of store.Moments.
func (m *moments) Moment(ctx context.Context, t j17.Tenant) (store.Moment, error) {
	s, err := m.snapshot(ctx, t, m.longest)
	if err != nil {
		return nil, err
	}
	return moment{s}, nil
}

// Position is part of store.Moment.
func (s *snapshot) Position() j17.StreamID {
	if s.row == nil {
		return j17.StreamID{}
	}
	return s.row.last
}

// Heads is part of store.Moment.
func (s *snapshot) Heads(keys []j17.Key) (heads []store.Head, err error) {
	err = s.use("heads of streams", func(ctx context.Context, conn reading) error {
		q := &questions{}
		places := q.heads.addAll(s.name, keys)
		if !q.empty() {
			if err := q.ask(ctx, conn); err != nil {
				return err
			}
		}
		heads = q.heads.at(places)
		return nil
	})
	return heads, err
}

// Get is part of store.Moment.
func (s *snapshot) Get(space store.Space, key string) (item store.Item, err error) {
	err = s.use("a side item", func(ctx context.Context, conn reading) error {
		number, err := s.spaces.number(ctx, space)
		if err != nil {
			return err
		}
		if number == noSpace {
			return store.ErrNotFound
		}
		q := &questions{}
		q.items.add(s.name, number, key, true)
		if err := q.ask(ctx, conn); err != nil {
			return err
		}
		stored := &q.items.items[0]
		if !stored.Live(s.clock.Now().UnixNano()) {
			return store.ErrNotFound
		}
		item, err = s.itemOf(space, key, stored)
		return err
	})
	return item, err
}

// Scan is part of store.Moment.
func (s *snapshot) Scan(space store.Space, keys store.Range, limit int) (items []store.Item, err error) {
	err = s.use("side items", func(ctx context.Context, conn reading) (err error) {
		items, err = s.scanItems(ctx, conn, s.name, space, keys, limit)
		return err
	})
	return items, err
}

// Count is part of store.Moment.
func (s *snapshot) Count(space store.Space, keys store.Range, limit int) (n int, err error) {
	err = s.use("side items", func(ctx context.Context, conn reading) (err error) {
		n, err = s.countItems(ctx, conn, s.name, space, keys, limit)
		return err
	})
	return n, err
}

// Each is part of store.Moment. It holds the connection only while it reads a page, so do may read from the moment too.
func (s *snapshot) Each(space store.Space, keys store.Range, do func(key, value []byte) bool) error {
	for rows := firstRows; ; rows = min(rows*rowsGrow, mostRows) {
		var page []namedItem
		var more bool
		err := s.use("side items", func(ctx context.Context, conn reading) (err error) {
			page, more, err = s.pageOfItems(ctx, conn, s.name, space, keys, rows)
			return err
		})
		if err != nil {
			return err
		}
		for i := range page {
			item, err := s.itemOf(space, page[i].key, &page[i].storedItem)
			if err != nil {
				return err
			}
			if !do([]byte(item.Key), item.Value) {
				return nil
			}
		}
		if !more {
			return nil
		}
		keys = keys.Beyond(page[len(page)-1].key)
	}
}

// Close is part of store.Moment.
func (s *snapshot) Close() { s.end(store.ErrClosed) }
