package container

import (
	"context"
	"errors"
	"slices"
	"time"

	"j17/internal/base/clock"
	"j17/internal/code/sandbox"
)

const (
	// clockFactor is how many times its processor time a call may last in real time. Only calls that wait, for which
	// there is no reason, or calls on a hopelessly busy machine last that long.
	clockFactor = 10
	// look is the shortest pause between two readings of the processor time of a call, eagerness the number of
	// processors that the call is expected to use at most until the next one.
	look      = 10 * time.Millisecond
	eagerness = 4
)

// errOverworked is the cause of a context that ends because the call has taken too much processor time.
var errOverworked = errors.New("the processor time of the call is used up")

// effort is what one call takes. Where the processor time of a worker can be read, it decides, so that the verdict does
// not depend on other work of the machine.
type effort struct {
	process  *process
	measured bool          // processor time counts
	code     time.Duration // of it
	clock    time.Duration // of real time
	begun    time.Time
	before   time.Duration // what the process had used before
	spent    time.Duration // what the call has taken in the end
	stop     context.CancelCauseFunc
}

// begin starts to measure a call. The context ends with the call's allowance; the effort's stop has to be called.
func (w *worker) begin(ctx context.Context, allowed sandbox.Allowance) (context.Context, *effort) {
	p := w.process
	// The work of a process can only be measured, not counted; real time counts, whatever the server's clock shows.
	var real clock.System
	e := &effort{process: p, measured: p.root != 0, code: allowed.Code, clock: allowed.Code, begun: real.Now()}
	if e.measured {
		e.clock = min(clockFactor*allowed.Code, allowed.Real)
		e.before = p.taken()
	}
	timed, cancel := context.WithTimeoutCause(ctx, e.clock, errTimedOut)
	timed, stop := context.WithCancelCause(timed)
	e.stop = func(cause error) {
		stop(cause)
		cancel()
	}
	if e.measured {
		go e.watch(timed)
	}
	return timed, e
}

// watch ends a call that has taken too much processor time.
func (e *effort) watch(ctx context.Context) {
	var real clock.System
	for left := e.code; left >= 0; left = e.code - e.used() {
		if real.Wait(ctx, real.Now().Add(max(look, left/eagerness))) != nil {
			return
		}
	}
	e.stop(errOverworked)
}

// used returns the processor time that the call has taken, or the real time where that cannot be known.
func (e *effort) used() time.Duration {
	if e.measured {
		return max(0, e.process.taken()-e.before)
	}
	var real clock.System
	return real.Now().Sub(e.begun)
}

// taken returns the processor time that a process and all that it has started have used.
func (p *process) taken() time.Duration {
	select {
	case <-p.done:
		return p.cpu
	default:
	}
	all := descendants(p.command.Pid)
	if !slices.Contains(all, p.root) {
		all = append(all, descendants(p.root)...)
	}
	return cpuOf(all)
}
