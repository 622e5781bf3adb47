package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/base/panics"
)

const (
	// A store that shares its schema asks for the changes of other stores every pollEvery, and every pollSoon while a
	// caller waits for a change.
	pollEvery = 100 * time.Millisecond
	pollSoon  = 20 * time.Millisecond
	// seenFor is how long an answer is valid, which bounds how long content that another store has erased is handed
	// out. A rewrite returns after outlasts, when seenFor has passed on all machines.
	seenFor  = 400 * time.Millisecond
	outlasts = 500 * time.Millisecond
)

// beside finds out what other stores on the same schema change. Each of their lanes numbers its batches, and stores the
// number in the rows of the tenants that it writes to. A lane commits one batch after the other, so all earlier batches
// of a lane are visible with a later one.
type beside struct {
	*core

	// waiting counts the callers that wait for a change.
	waiting atomic.Int32
	// asked is the time of the last question that the database has answered.
	asked atomic.Pointer[time.Time]

	// asking is held while the database is asked.
	asking sync.Mutex
	// lanes are the lanes of all other stores opened so far, and batches the last batch seen of each. Lanes of stores
	// that have ended stay, since nothing tells that they have. places maps lanes to their indexes.
	lanes, batches []int64
	places         map[int64]int
	// next is the number of the first lane of stores that were opened later.
	next int64
	// counted is the count of rewrites by all stores.
	counted int64
}

// load initializes the state from the database. s.start must be set.
func (s *beside) load(ctx context.Context, conn reading) error {
	s.lanes, s.batches, s.places, s.next = nil, nil, map[int64]int{}, 0
	s.know(s.start)
	if err := conn.QueryRow(ctx, selectRewrites).Scan(&s.counted); err != nil {
		return err
	}
	rows, err := conn.Query(ctx, `SELECT lane, max(lane_n) FROM tenants GROUP BY lane`)
	if err != nil {
		return err
	}
	var lane, batch int64
	_, err = pgx.ForEachRow(rows, []any{&lane, &batch}, func() error {
		s.saw(lane, batch)
		return nil
	})
	return err
}

// know adds the lanes of the stores up to a start.
func (s *beside) know(start int64) {
	for ; s.next < (start+1)*laneCount; s.next++ {
		if s.next/laneCount != s.start {
			s.places[s.next] = len(s.lanes)
			s.lanes, s.batches = append(s.lanes, s.next), append(s.batches, 0)
		}
	}
}

// saw records that a batch of a lane was seen.
func (s *beside) saw(lane, batch int64) {
	s.know(lane / laneCount)
	if at, others := s.places[lane]; others {
		s.batches[at] = max(s.batches[at], batch)
	}
}

// run asks periodically until the store is closed.
func (s *beside) run() error {
	for n := 1; wait(s.closing, pollSoon) == nil; n++ {
		if s.waiting.Load() > 0 || n >= int(pollEvery/pollSoon) {
			n = 0
			// After an error the next question finds the same changes.
			_ = panics.Caught(func() error { return s.ask(s.closing) })
		}
	}
	return nil
}

const (
	selectRewrites = `SELECT rewrites FROM cluster`
	// selectBatches selects the tenants that lanes have written to after some batches, and those of new lanes.
	selectBatches = `SELECT x.lane, x.lane_n, nm.name, x.t, x.ms, x.n
FROM unnest($1::bigint[], $2::bigint[]) u (lane, n),
LATERAL (SELECT * FROM tenants x WHERE x.lane = u.lane AND x.lane_n > u.n) x LEFT JOIN names nm ON nm.t = x.t
UNION ALL
SELECT x.lane, x.lane_n, nm.name, x.t, x.ms, x.n FROM tenants x LEFT JOIN names nm ON nm.t = x.t WHERE x.lane >= $3`
)

// ask records what other stores have changed so far.
func (s *beside) ask(ctx context.Context) error {
	type seen struct {
		lane, batch int64
		name        []byte
		t           uint32
		last        j17.StreamID
	}
	s.asking.Lock()
	defer s.asking.Unlock()
	began := time.Now() //nolint:forbidigo // all stores compare times of their machines
	var list []seen
	var counted int64
	err := s.read(ctx, "what others have changed", func(conn reading) error {
		b := &pgx.Batch{}
		b.Queue(selectRewrites).QueryRow(func(row pgx.Row) error { return row.Scan(&counted) })
		b.Queue(selectBatches, s.lanes, s.batches, s.next).Query(func(rows pgx.Rows) (err error) {
			list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c seen, err error) {
				err = row.Scan(&c.lane, &c.batch, &c.name, &c.t, &c.last.Ms, &c.last.Seq)
				return c, err
			})
			return err
		})
		return conn.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return err
	}

	for i := range list {
		c := &list[i]
		s.saw(c.lane, c.batch)
		if c.name != nil {
			s.changes.observe(s.core, j17.Tenant(c.name), c.t, c.last)
		}
	}
	if len(list) > 0 {
		s.changes.noteDue(s.core)
	}
	s.rewrites.Add(uint64(counted - s.counted))
	s.counted = counted
	s.asked.Store(&began)
	return nil
}

// rewritten returns the count of rewrites. It grows if another store may have rewritten events and this store cannot
// know.
func (c *core) rewritten() uint64 {
	if c.works() != nil || c.o.Shared && !c.beside.current() {
		c.rewrites.Add(1)
	}
	return c.rewrites.Load()
}

// current reports whether it is known what others have changed.
func (s *beside) current() bool {
	asked := s.asked.Load()
	return asked != nil && time.Since(*asked) < seenFor || s.ask(s.closing) == nil //nolint:forbidigo // see ask
}

// countRewrite is the part of a batch by which other stores learn that it rewrites events.
const countRewrite = `cr AS (
	UPDATE cluster SET rewrites = rewrites + 1 WHERE EXISTS (SELECT 1 FROM h)
)`

// outlast waits until no store hands out what a previous batch has overwritten.
func (s *beside) outlast() { _ = wait(s.closing, outlasts) }

// look checks that a feed known to have entries after a position still has them: another store may have removed the
// tenant.
func (s *beside) look(ctx context.Context, t *tenant, after j17.StreamID) error {
	s.mu.Lock()
	has, life, number := t.last.Compare(after) > 0, t.life, t.number
	s.mu.Unlock()
	if !has {
		return nil
	}
	there := false
	err := s.read(ctx, "whether a tenant is there", func(conn reading) error {
		return conn.QueryRow(
			ctx, `SELECT EXISTS (SELECT 1 FROM names WHERE name = $1 AND t = $2)`, []byte(t.name), life,
		).Scan(&there)
	})
	if err != nil || there {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.number == number {
		t.last, t.number = j17.StreamID{}, 0
	}
	return nil
}
