package wasm

import (
	"context"
	"time"

	"github.com/tetratelabs/wazero/api"

	"j17/internal/base/clock"
	"j17/internal/code/wasm/instrument"
)

const (
	// quickTime is how long a call may run before it counts as a long one.
	quickTime = 2 * time.Millisecond
	// slice is how long a long call runs before it lets another one run.
	slice = 10 * time.Millisecond
	// tickTime is the code time of a tick: what the instructions of one budget take on a machine of moderate speed.
	tickTime = 200 * time.Microsecond
)

// scheduler shares the processors among calls. Every call begins in the quick queue, which has a place for each
// processor; most calls end there. A call that takes longer is parked until it gets one of the places for long calls,
// of which there is at least one less than processors, and gives it up from time to time to waiting calls. Waiting
// calls are served in the order of arrival. So endless loops slow each other down, occupy at most that many processors,
// and a quick call never waits for more than the quick time of those before it. Waiting does not count as running.
type scheduler struct {
	clock       clock.Clock
	quick, long chan struct{}
}

func newScheduler(c clock.Clock, processors int) *scheduler {
	return &scheduler{clock: c, quick: make(chan struct{}, processors), long: make(chan struct{}, max(1, processors-1))}
}

// run is one call or one start of an instance. It is used by one goroutine at a time.
type run struct {
	ctx   context.Context
	sched *scheduler
	// limit is how long the run may be at work in real time, most and work are the budgets that it may use and has
	// used.
	limit      time.Duration
	most, work int64
	// host counts what functions of the host have done since the last tick, in simple instructions.
	host int

	lane  chan struct{} // the lane that the run has a place in
	since time.Time
	used  time.Duration // before since

	// memory is where the run takes its memory from, charged how much it has taken. denied reports that it wanted more
	// than there was.
	memory  *memories
	charged int64
	denied  bool
	// ahead is what has been acquired for stacks in advance.
	ahead int64
	// function is what runs, stack what its stack may count with (freeStack and what has been taken).
	function api.Function
	stack    int64

	log   tail
	abort string // what the module has said about its end
}

// timeUp stops a run that has used up its code time.
type timeUp struct{}

func (timeUp) Error() string { return "the time is used up" }

// clockUp stops a run that has been at work far longer than its code time allows for.
type clockUp struct{}

func (clockUp) Error() string { return "the time on the clock is used up" }

// exit stops a run that has ended itself.
type exit struct{ code uint32 }

func (exit) Error() string { return "the module has ended itself" }

// begin waits for a place in the quick lane.
func (r *run) begin() error { return r.enter(r.sched.quick) }

func (r *run) enter(lane chan struct{}) error {
	select {
	case lane <- struct{}{}:
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	r.lane, r.since = lane, r.sched.clock.Now()
	return nil
}

func (r *run) leave() {
	r.used += r.sched.clock.Now().Sub(r.since)
	<-r.lane
	r.lane = nil
}

// acquire waits for the memory that the run begins with.
func (r *run) acquire(n int64) error {
	if err := r.memory.acquire(r.ctx, n); err != nil {
		return err
	}
	r.charged += n
	return nil
}

// extend reports whether the run can have more memory.
func (r *run) extend(n int64) bool {
	if !r.memory.extend(n) {
		r.denied = true
		return false
	}
	r.charged += n
	return true
}

// end gives up the place that the run has, if any, and its memory.
func (r *run) end() {
	r.memory.release(r.charged)
	r.charged = 0
	if r.lane != nil {
		r.leave()
	}
}

// may sets the limits of the run from now on.
func (r *run) may(code, real time.Duration) {
	r.most, r.limit = max(1, int64(code/tickTime)), real
	r.work, r.host, r.used, r.since = 0, 0, 0, r.sched.clock.Now()
}

// spend charges what a function of the host does in place of the module's own instructions, which nothing else counts.
// It stops the run as a tick does.
func (r *run) spend(cost int) {
	for r.host += cost; r.host >= instrument.Budget; r.host -= instrument.Budget {
		if err := r.tick(); err != nil {
			panic(err)
		}
	}
}

// tick is called by the module whenever it has used up its budget. It returns the reason for stopping the run, if any.
func (r *run) tick() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.work++; r.work > r.most {
		return timeUp{}
	}
	if err := r.deepen(); err != nil {
		return err
	}
	now := r.sched.clock.Now().Sub(r.since)
	switch {
	case r.used+now > r.limit:
		return clockUp{}
	case r.lane == r.sched.quick && now > quickTime, r.lane == r.sched.long && now > slice:
		r.leave()
		return r.enter(r.sched.long)
	default:
		return nil
	}
}

// maxLog is how many bytes are kept of what a module writes.
const maxLog = 8 << 10

// tail keeps the end of what is written to it.
type tail struct {
	b   []byte
	cut bool
}

func (t *tail) write(b []byte) {
	if len(b) > maxLog {
		b, t.cut = b[len(b)-maxLog:], true
	}
	if over := len(t.b) + len(b) - maxLog; over > 0 {
		t.b, t.cut = append(t.b[:0], t.b[over:]...), true
	}
	t.b = append(t.b, b...)
}
