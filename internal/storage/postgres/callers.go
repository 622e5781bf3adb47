package postgres

import (
	"context"
	"net"
	"sync"
	"time"

	"j17"
	"j17/internal/storage/queue"
)

// longestCommit is how long callers wait for a commit of a server that works.
const longestCommit = time.Minute

// callers are those that a lane answers. Their calls belong to the lane while it decides them; to end their wait then
// is to close the connection. While the lane waits for the outcome of a commit, which is never broken off, they are
// answered beside it.
type callers struct {
	core *core

	mu sync.Mutex
	// batch is the number of the batch that they wait for, which cancel says is not waited for any more.
	batch  int64
	cancel context.CancelFunc
	// tenants are those that the lane is at work on. socket is that of its connection. late, if not nil, is why the
	// callers wait no longer.
	tenants []j17.Tenant
	socket  net.Conn
	late    error
	// sent are the calls whose outcome is being waited for, nil for none. The first ones, parts, are in what was sent.
	sent  []*call
	parts int
	// limit, if not nil, is when the callers have waited long enough for a connection or an outcome.
	limit *time.Timer
}

// begin says which tenants the lane is at work on.
func (c *callers) begin(tenants []j17.Tenant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenants = tenants
}

// use says which connection the lane has, nil for none.
func (c *callers) use(socket net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket = socket
}

// attend sees to it that the callers of a batch do not wait for too long. The context ends when they have.
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

// limitTo has the callers wait for a time at most. anew begins with a time that was set before.
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

// tooLate returns why the callers wait no longer, nil if they do.
func (c *callers) tooLate() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}

// giveUp ends the wait of the callers of a batch. A commit that is under way goes on, and the tenants remain the lane's
// until its outcome is known.
func (c *callers) giveUp(batch int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if batch != c.batch || c.late != nil {
		return
	}
	switch {
	case c.sent != nil:
		c.core.queue.Stall(err, c.tenants...)
		for i, one := range c.sent {
			if i < c.parts {
				one.Answer(queue.Unknown(err))
			} else {
				queue.Refuse(c.sent[i:i+1], err)
			}
		}
		c.sent = nil
	case c.socket != nil:
		_ = c.socket.Close() // nothing was sent that changes anything
	}
	c.late = err
	c.cancel()
}

// send says that something is sent, and that the first calls have a part in it. It returns an error if that is too
// late.
func (c *callers) send(calls []*call, parts int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late == nil {
		c.sent, c.parts = calls, parts
	}
	return c.late
}

// decided says that the outcome of what was sent is known. It reports whether the calls still want their answers.
func (c *callers) decided() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := c.sent != nil
	c.sent = nil
	return wanted
}
