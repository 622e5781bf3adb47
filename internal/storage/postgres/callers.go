package postgres

import (
	"context"
	"net"
	"sync"
	"time"

	"j17"
	"j17/internal/storage/queue"
)

// longestCommit is how long callers wait for a commit while the server works.
const longestCommit = time.Minute

// callers are the callers that a lane answers. The lane owns their calls while it decides them, so only closing its
// connection ends their wait then. While the lane waits for the outcome of a commit, which is never cancelled, they are
// answered by another goroutine.
type callers struct {
	core *core

	mu sync.Mutex
	// batch is the number of the batch that they wait for; cancel ends the context that attend has returned for it.
	batch  int64
	cancel context.CancelFunc
	// tenants are the tenants that the lane works on, socket is that of its connection, and late, if not nil, is why
	// the callers no longer wait.
	tenants []j17.Tenant
	socket  net.Conn
	late    error
	// sent are the calls whose outcome is not known yet, nil for none. The first parts of them are in the commit.
	sent  []*call
	parts int
	// limit, if not nil, fires when the callers have waited long enough for a connection or an outcome.
	limit *time.Timer
}

// begin sets the tenants that the lane works on.
func (c *callers) begin(tenants []j17.Tenant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenants = tenants
}

// use sets the connection of the lane, nil for none.
func (c *callers) use(socket net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket = socket
}

// attend bounds how long the callers of a batch wait. The context ends when that time is over.
func (c *callers) attend() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(c.core.ending)
	c.mu.Lock()
	c.late, c.cancel = nil, cancel
	c.batch++
	batch := c.batch
	c.mu.Unlock()
	stopWatching := c.core.primary.attend(func(err error) { c.giveUp(batch, err) })
	longest := c.giveUpAfter(batch, longestCommit)
	return ctx, func() {
		stopWatching()
		longest.Stop()
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.batch++
		if c.limit != nil {
			c.limit.Stop()
			c.limit = nil
		}
	}
}

func (c *callers) giveUpAfter(batch int64, d time.Duration) *time.Timer {
	//nolint:forbidigo // see now
	return time.AfterFunc(d, func() { c.giveUp(batch, c.core.primary.unreachable()) })
}

// limitTo bounds how much longer the callers wait. anew restarts a limit that was set before.
func (c *callers) limitTo(d time.Duration, anew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.limit == nil:
		c.limit = c.giveUpAfter(c.batch, d)
	case anew:
		c.limit.Reset(d)
	}
}

// tooLate returns why the callers no longer wait, nil if they do.
func (c *callers) tooLate() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}

// giveUp ends the wait of the callers of a batch. A commit in progress continues, and the lane keeps the tenants until
// its outcome is known.
func (c *callers) giveUp(batch int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if batch != c.batch || c.late != nil {
		return
	}
	switch {
	case c.sent != nil:
		c.core.queue.Stall(err, c.tenants...)
		c.core.counts.unknown.Add(1)
		for i, one := range c.sent {
			if i < c.parts {
				one.Answer(queue.Unknown(err))
			} else {
				queue.Refuse(c.sent[i:i+1], err)
			}
		}
		c.sent = nil
	case c.socket != nil:
		_ = c.socket.Close() // no change was sent
	}
	c.late = err
	c.cancel()
}

// send records that a commit is sent in which the first parts calls have a part. It returns an error if the callers no
// longer wait.
func (c *callers) send(calls []*call, parts int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late == nil {
		c.sent, c.parts = calls, parts
	}
	return c.late
}

// decided records that the outcome of what was sent is known. It reports whether the calls are still unanswered.
func (c *callers) decided() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := c.sent != nil
	c.sent = nil
	return wanted
}
