package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

const (
	// beatInterval is the time between two beats of the active node, and between two looks of waiting nodes.
	beatInterval = time.Second
	// leaseTime is how long the active node may answer after the beginning of its last committed beat.
	leaseTime = 3 * time.Second
	// deadAfter is how long a waiting node must have seen the same beat before it takes over. The active node no longer
	// answers by then, as long as neither clock runs faster than the other by half.
	deadAfter = 5 * time.Second
)

// ErrReplaced is the error of a node that is no longer active, since another one is.
var ErrReplaced = errors.New("another node works now")

// Node is one of several processes on a schema, of which one is active at a time. The row of cluster says which: its
// term changes with each take-over, and every statement that writes checks the term. So a node that was replaced, and
// does not know it yet, writes nothing.
type Node struct {
	core *core
	name string
	url  string
	// clock is the machine's: the silence of other nodes is not measured by a clock that can be moved.
	clock clock.Clock
	// incarnation is a random number that identifies this process among all of its name.
	incarnation int64

	conn *pgx.Conn
	// order numbers the commits of the node and of its store in the order in which they begin.
	order atomic.Int64

	mu   sync.Mutex
	term int64
	// good is when the last committed beat began, goodOrder its order, and at the server that has acknowledged it.
	good      time.Time
	goodOrder int64
	at        *server
	lost      chan struct{}
	// stop ends the beats. stopped is closed when they have ended.
	stop    context.CancelFunc
	stopped chan struct{}
}

// Worker is the active node, as the others see it.
type Worker struct {
	Name, URL string
	// Beat changes as long as the node lives.
	Beat int64
}

// Join makes this process one of the nodes on a schema, whose tables it creates if they do not exist. name is unique
// among the nodes. url, where others can reach it, is for messages only. c is the machine's clock.
func Join(ctx context.Context, o Options, name, url string, c clock.Clock) (*Node, error) {
	logger := o.Logger
	o.Logger = slog.New(slog.DiscardHandler) // findings on the settings are logged when the store is opened
	o.Restoring = true                       // a node waits for the end of a restoration, too
	s, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	if logger != nil {
		s.logger = logger
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	n := &Node{
		core: s, name: name, url: url, clock: c, incarnation: int64(binary.BigEndian.Uint64(id[:]) >> 1),
		lost: make(chan struct{}),
	}
	return n, nil
}

// clusterRow is the row of the active node.
type clusterRow struct {
	active, url             string
	incarnation, term, beat int64
}

const selectCluster = `SELECT active, url, incarnation, term, beat FROM cluster`

// Await returns when this node is active. Until then it calls waiting, if it is not nil, each time it has looked which
// node is. A node with the name of the active one takes over at once: it has the addresses of that process, which
// therefore has ended.
func (n *Node) Await(ctx context.Context, waiting func(Worker)) error {
	var seen clusterRow
	var since time.Time
	for {
		row, err := n.look(ctx)
		switch {
		case err != nil && ctx.Err() == nil && broken(err):
			// Silence does not count while the database cannot be asked.
			seen, since = clusterRow{}, time.Time{}
		case sqlState(err) == "42P01":
			return fmt.Errorf("the schema %s has no tables any longer, as after a restoration that has failed: start again, or run 'j17 backup restore' first", n.core.o.Schema)
		case err != nil:
			return fault("which node works", err)
		default:
			now := n.clock.Now()
			if row != seen || since.IsZero() {
				seen, since = row, now
			}
			if row.active == "" || row.active == n.name || now.Sub(since) >= deadAfter {
				taken, err := n.takeOver(ctx, &row)
				if err == nil && taken {
					return nil
				}
				if err != nil && !broken(err) {
					return fault("taking over", err)
				}
				seen, since = clusterRow{}, time.Time{}
				break
			}
			if waiting != nil {
				waiting(Worker{Name: row.active, URL: row.url, Beat: row.beat})
			}
		}
		if err := n.clock.Wait(ctx, n.clock.Now().Add(beatInterval)); err != nil {
			return err
		}
	}
}

// connect makes a connection if the node has none.
func (n *Node) connect(ctx context.Context) error {
	if n.conn != nil && !n.conn.IsClosed() {
		return nil
	}
	if n.conn != nil {
		hangUp(n.core.life, n.conn)
	}
	conn, err := n.core.dial(ctx, &n.core.counts.other)
	if err == nil {
		n.conn = conn
	}
	return err
}

// look reads which node is active.
func (n *Node) look(ctx context.Context) (row clusterRow, err error) {
	trip, cancel := context.WithTimeout(ctx, beatInterval)
	defer cancel()
	if err := n.connect(trip); err != nil {
		return row, err
	}
	err = n.conn.QueryRow(trip, selectCluster).Scan(&row.active, &row.url, &row.incarnation, &row.term, &row.beat)
	return row, err
}

// updateCluster takes over from the node that was seen, if it has made no beat since. It also changes the row of the
// system tenant, which waits for a write in progress and makes later ones of that node fail.
const updateCluster = `WITH c AS (
	UPDATE cluster SET active = $1, url = $2, incarnation = $3, term = term + 1, beat = beat + 1
	WHERE term = $4 AND beat = $5 RETURNING term
), r AS (
	UPDATE tenants x SET term = x.term + 1, ver = x.ver + 1 FROM names nm, c WHERE nm.name = $6 AND x.t = nm.t
)
SELECT term FROM c`

// takeOver tries to make this node the active one, and reports whether it has.
func (n *Node) takeOver(ctx context.Context, from *clusterRow) (bool, error) {
	began, order := n.clock.Now(), n.order.Add(1)
	var term int64
	err := n.conn.QueryRow(
		ctx, updateCluster, n.name, n.url, n.incarnation, from.term, from.beat, []byte(j17.System),
	).Scan(&term)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err == nil {
		err = sessionOf(n.conn).warning()
	}
	if err != nil {
		return false, err // if it was committed, the node finds its own name and takes over again
	}
	if from.active != "" && from.active != n.name {
		n.core.logger.WarnContext(ctx, "this node works from now on", slog.String("instead_of", from.active))
	}
	n.mu.Lock()
	n.term, n.good, n.goodOrder, n.at = term, began, order, sessionOf(n.conn).server
	n.mu.Unlock()
	beats, stop := context.WithCancel(n.core.life)
	n.stop, n.stopped = stop, make(chan struct{})
	go func() {
		defer close(n.stopped)
		n.beatLoop(beats)
	}()
	return true, nil
}

const updateBeat = `UPDATE cluster SET beat = beat + 1 WHERE term = $1 RETURNING term`

// beatLoop commits a beat each second, until the node is stopped or replaced.
func (n *Node) beatLoop(ctx context.Context) {
	for n.clock.Wait(ctx, n.clock.Now().Add(beatInterval)) == nil {
		if errors.Is(n.beat(ctx), ErrReplaced) {
			close(n.lost)
			return
		}
	}
}

// beat commits one beat.
func (n *Node) beat(ctx context.Context) error {
	began := n.clock.Now()
	trip, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	if err := n.connect(trip); err != nil {
		return err
	}
	order := n.order.Add(1)
	var term int64
	err := n.conn.QueryRow(trip, updateBeat, n.term).Scan(&term)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		n.core.logger.ErrorContext(ctx, "another node works now, this one stops")
		return ErrReplaced
	case err != nil:
		return err
	}
	if err := sessionOf(n.conn).warning(); err != nil {
		return err // a beat that was not replicated may be lost, and the node with it
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.good, n.goodOrder, n.at = began, order, sessionOf(n.conn).server
	return nil
}

// hasLeft reports whether a beat was committed on another server than s that began after the commit with an order, the
// last one that s has acknowledged: s is not the primary any more then.
func (n *Node) hasLeft(s *server, order int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at != nil && (n.at.name() != s.name() || n.at.started != s.started) && n.goodOrder > order
}

// Term returns the number of the take-over by which this node became active.
func (n *Node) Term() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.term
}

// Works reports whether this node may answer: its last committed beat is younger than leaseTime, both by the wall clock
// and by the monotonic clock, which stops while some machines sleep. With ReadPrimary it may until it knows that it was
// replaced.
func (n *Node) Works() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.core.o.Reads == ReadPrimary {
		select {
		case <-n.lost:
			return false
		default:
			return !n.good.IsZero()
		}
	}
	now := n.clock.Now()
	return !n.good.IsZero() && now.Sub(n.good) < leaseTime && now.Round(0).Sub(n.good.Round(0)) < leaseTime
}

// BeatAge returns the age of the last committed beat.
func (n *Node) BeatAge() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.clock.Now().Sub(n.good)
}

// Lost returns a channel that is closed when another node has become active.
func (n *Node) Lost() <-chan struct{} { return n.lost }

const giveUp = `UPDATE cluster SET active = '', beat = beat + 1 WHERE term = $1`

// Leave ends the node. If it was active, another one may take over at once: the caller must answer nothing later.
func (n *Node) Leave(ctx context.Context) error {
	worked := n.endBeats()
	var err error
	if n.conn != nil {
		if worked && !n.conn.IsClosed() {
			_, err = n.conn.Exec(ctx, giveUp, n.term)
		}
		hangUp(ctx, n.conn)
	}
	n.core.close()
	return err
}

// endBeats makes the node inactive, and reports whether it was active.
func (n *Node) endBeats() (worked bool) {
	if n.stop != nil {
		n.stop()
		<-n.stopped
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	worked = !n.good.IsZero()
	n.good = time.Time{}
	return worked
}

// ofNode is the condition that a statement comes from the active node.
const ofNode = ` AND EXISTS (SELECT 1 FROM cluster WHERE term = ?)`

// works returns an error if the store belongs to a node that may not answer. A restoration answers nobody, and its end
// is refused if another node is active by then.
func (c *core) works() error {
	if n := c.o.Node; n != nil && !c.o.Restoring && !n.Works() {
		return fmt.Errorf("%w: this node has shown no sign of life to the database for %s", store.ErrBusy, leaseTime)
	}
	return nil
}
