package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
)

const (
	// mostUnits is about the number of units that a lane takes at a time.
	mostUnits = 256
	// mostBatchBytes is the size in bytes at which a batch takes no further units. The last unit may exceed it.
	mostBatchBytes = 4 << 20
)

// call is one call that waits for a lane.
type call = queue.Call[*batch]

// lane is a writer with its own connection. It works on tenants that no other lane works on at the same time.
type lane struct {
	*core

	// id is unique among all lanes of all starts. batches is how many batches the lane has written.
	id, batches int64
	conn        *pgx.Conn
	batch       *batch
	callers     callers
	// raced reports whether the last batch was in conflict with another transaction and is tried once more.
	raced bool
}

func newLane(c *core, n int) *lane {
	l := &lane{core: c, id: c.holder()*laneCount + int64(n)}
	l.callers.core = c
	l.batch = newBatch(l)
	return l
}

// run executes calls until the store is closed and no call waits.
func (l *lane) run() {
	var calls []*call
	for l.queue.Wait() {
		calls = l.queue.Take(calls[:0])
		if len(calls) == 0 {
			continue // another lane was faster
		}
		var tenants []j17.Tenant
		for _, c := range calls {
			tenants = append(tenants, c.Tenant)
		}
		l.callers.begin(tenants)
		l.work(calls)
		l.queue.Release(tenants...)
		clear(calls)
	}
	if l.conn != nil {
		hangUp(l.life, l.conn)
	}
}

// place is the progress of a call when a batch began.
type place struct {
	done  int
	split bool
}

func placesOf(calls []*call) []place {
	places := make([]place, len(calls))
	for i, c := range calls {
		places[i].done, places[i].split = c.Progress()
	}
	return places
}

// rewind resets calls to their progress at places.
func rewind(calls []*call, places []place) {
	for i, c := range calls {
		c.Rewind(places[i].done, places[i].split)
	}
}

// work executes and answers calls, as many at a time as fit into a batch.
func (l *lane) work(calls []*call) {
	for len(calls) > 0 {
		waiting, stop := l.callers.attend()
		l.raced = false
		places := placesOf(calls)
		done, err := l.commit(waiting, calls, places)
		stop()
		switch {
		case done == nil && err == nil:
			return // they were answered before their outcome was known
		case err != nil && len(calls) > 1 && ofOne(err):
			// One of the calls is the reason. The others must not fail for it.
			rewind(calls, places)
			for i := range calls {
				l.work(calls[i : i+1 : i+1])
			}
			return
		case err != nil:
			l.forget(calls)
			calls = l.refuse(calls, places, err)
		default:
			calls = l.answer(calls, places, done)
		}
	}
}

// ofOne reports whether an error may be caused by one call among several.
func ofOne(err error) bool {
	return !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrClosed) &&
		!errors.Is(err, store.ErrUnknown)
}

// refuse answers calls of which nothing was written. If disk space is missing, it returns the calls that free space,
// which are tried without the others.
func (l *lane) refuse(calls []*call, places []place, err error) (rest []*call) {
	if errors.Is(err, store.ErrFull) {
		var others []*call
		for i, c := range calls {
			c.Rewind(places[i].done, places[i].split)
			if c.Need() == queue.Ordinary {
				others = append(others, c)
			} else {
				rest = append(rest, c)
			}
		}
		if len(others) > 0 {
			queue.Refuse(others, err)
			return rest
		}
	}
	queue.Refuse(calls, err)
	return nil
}

// outcome is the outcome of a batch.
type outcome struct {
	// complete is how many of the calls are decided completely. The first parts calls have a part in the batch.
	complete, parts int
	// stale are the tenants that others have written to since they were read, for which nothing was written. For the
	// doubtful ones it is not known whether something was.
	stale, doubtful map[*tenant]bool
	// wrote reports whether something was written, lookedUp whether that had to be looked up.
	wrote, lookedUp bool
}

// answer answers the complete calls of tenants that are not stale, and returns the others, to be decided again.
func (l *lane) answer(calls []*call, places []place, done *outcome) (rest []*call) {
	for i, c := range calls {
		t := l.tenant(c.Tenant)
		if done.wrote && i < done.parts && !done.stale[t] {
			l.counts.units.Add(unitsSince(c, places[i]))
		}
		switch {
		case done.doubtful[t] && i < done.parts:
			c.Answer(queue.Unknown(errOverwritten))
		case done.stale[t]:
			c.Rewind(places[i].done, places[i].split)
			rest = append(rest, c)
		case i < done.complete:
			c.Finish()
		default:
			rest = append(rest, c)
		}
	}
	return rest
}

// unitsSince returns how many units of a call were decided since a place. An operation is one.
func unitsSince(c *call, from place) uint64 {
	if c.Op() != nil {
		return 1
	}
	done, _ := c.Progress()
	return uint64(done - from.done)
}

// forget makes the next batch read the tenants of calls again.
func (l *lane) forget(calls []*call) {
	for _, c := range calls {
		l.tenant(c.Tenant).forget()
	}
}

// commit decides calls and commits their writes. An error is the answer to all of them: nothing was written. If both
// results are nil, the calls were answered already.
func (l *lane) commit(ctx context.Context, calls []*call, places []place) (*outcome, error) {
	b := l.batch
	defer b.reset() // other lanes may have the tenants next
	for pause := time.Duration(0); ; pause = min(2*pause+retryAfter, retryMost) {
		if err := l.guard.admit(queue.Always); err != nil {
			return nil, err // they have waited since before writes stopped
		}
		if err := l.connect(ctx); err != nil {
			return nil, err
		}
		b.reset()
		err := b.prepare(calls)
		complete := 0
		if err == nil {
			complete = b.fill(calls)
		}
		var done *outcome
		if l.conn.IsClosed() {
			err = errLost // whatever the error was
		} else if err == nil {
			done, err = l.write(b, calls, places, complete)
		}
		if err == nil {
			return done, nil
		}
		if !l.again(err) {
			return nil, l.because(err)
		}
		rewind(calls, places)
		l.forget(calls)
		_ = wait(ctx, pause) // connect notices
	}
}

// errLost is the error of a batch whose connection was lost before it was sent.
var errLost = errors.New("the connection was lost")

// again reports whether a batch of which nothing was written is tried again.
func (l *lane) again(err error) bool {
	switch {
	case l.callers.tooLate() != nil:
		return false
	case errors.Is(err, errLost) || broken(err):
		l.callers.limitTo(patience, false)
		return true
	case raced(err) && !l.raced:
		l.raced = true
		return true
	}
	return false
}

// because returns the error of calls of which nothing was written, for the cause err.
func (l *lane) because(err error) error {
	if late := l.callers.tooLate(); late != nil {
		return late
	}
	if isFull(err) {
		l.full.note()
	}
	return fault("a commit", err)
}

// write commits the batch, which has all writes of complete calls, and perhaps a part of the next one. After an error,
// nothing was written.
func (l *lane) write(b *batch, calls []*call, places []place, complete int) (*outcome, error) {
	done := &outcome{complete: complete, parts: complete}
	if complete < len(calls) {
		if n, _ := calls[complete].Progress(); n > places[complete].done {
			done.parts++
		}
	}
	changes := len(b.changedTenants()) > 0
	switch {
	case !changes && len(b.decided) == 0:
		return done, nil
	case !changes:
		// What decisions relied on must not have changed.
		s := sessionOf(l.conn)
		s.warned = nil
		written, err := b.w.run(l, b)
		if err == nil {
			err = s.warning()
		}
		if err != nil {
			return nil, l.lost(err)
		}
		done.stale = b.staleOf(written)
	default:
		if err := l.callers.send(calls, done.parts); err != nil {
			return nil, err
		}
		begun := now()
		err := l.execute(b, done)
		if c := l.capture.Load(); c != nil && !errors.Is(err, store.ErrUnknown) {
			c.settled(b.id)
		}
		wanted := l.callers.decided()
		l.counts.commit(done, now().Sub(begun), err, wanted)
		if err == nil {
			b.publish(done.stale)
		}
		if !wanted {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return done, l.replaced(b, done)
}

// lost returns the error of a statement that wrote nothing. It closes the connection unless the server answered.
func (l *lane) lost(err error) error {
	if !refused(err) {
		l.hangUp()
		return errLost
	}
	return err
}

// execute commits the batch, and sets the outcome. After errors other than store.ErrUnknown nothing was written.
func (l *lane) execute(b *batch, done *outcome) error {
	if _, err := rand.Read(b.id[:]); err != nil {
		return err
	}
	s := sessionOf(l.conn)
	s.warned = nil
	began := l.primary.begins()
	l.batches++
	written, err := b.w.run(l, b)
	if err == nil {
		err = s.warning()
	}
	switch {
	case err == nil:
		if done.wrote = b.wrote(written); done.wrote {
			l.primary.acknowledge(s.server, began)
		}
	case ofNames(err):
		written = map[int32]bool{} // another store has created a tenant with one of the names
	case refused(err):
		if sqlState(err) == "25006" {
			l.primary.lose(s.server)
			l.hangUp()
		}
		for t := range b.decided {
			t.forget()
		}
		return err
	default:
		return l.settle(b, done, err)
	}
	done.stale = b.staleOf(written)
	return nil
}

// ofNames reports whether an error says that a tenant with a name exists already.
func ofNames(err error) bool {
	said, is := errors.AsType[*pgconn.PgError](err)
	return is && isUnique(err) && said.TableName == "names"
}

// replaced returns an error if nothing was written and another node is active.
func (l *lane) replaced(b *batch, done *outcome) error {
	n := l.o.Node
	if n == nil || done.stale == nil || slices.ContainsFunc(b.changedTenants(), func(t *tenant) bool {
		return !done.stale[t] && !done.doubtful[t]
	}) {
		return nil
	}
	var term int64
	if err := l.conn.QueryRow(l.ending, `SELECT term FROM cluster`).Scan(&term); err != nil {
		_ = l.lost(err) // the next try detects it
		return nil
	}
	if term != n.Term() {
		return fmt.Errorf("%w: %w", store.ErrBusy, ErrReplaced)
	}
	return nil
}

// connect makes a connection if the lane has none, and retries that as long as the callers wait.
func (l *lane) connect(ctx context.Context) error {
	for l.conn == nil || l.conn.IsClosed() {
		if err := l.callers.tooLate(); err != nil {
			return err
		}
		err := l.redial(ctx)
		switch {
		case err == nil:
		case l.ending.Err() != nil:
			return store.ErrClosed
		case ctx.Err() != nil:
		case !broken(err) && !crowded(err):
			return fault("the connection to the database", err)
		default:
			l.callers.limitTo(patience, false)
			_ = wait(ctx, retryAfter) // the loop notices
		}
	}
	return l.callers.tooLate()
}

// redial makes a new connection.
func (l *lane) redial(ctx context.Context) error {
	if l.conn != nil {
		l.hangUp()
	}
	conn, err := l.dial(ctx, &l.counts.writes)
	if err != nil {
		return err
	}
	l.conn = conn
	l.callers.use(conn.PgConn().Conn())
	return nil
}

// hangUp ends the lane's connection.
func (l *lane) hangUp() {
	l.callers.use(nil)
	hangUp(l.life, l.conn)
}

// failed returns the error of a statement of a lane whose effects, if any, need not be known.
func (l *lane) failed(what string, err error) error {
	if err != nil {
		_ = l.lost(err) // for its effect on the connection
	}
	return fault(what, err)
}
