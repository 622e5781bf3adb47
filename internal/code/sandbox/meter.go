package sandbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// What custom code may do is counted in code time: the time that it takes on a machine of a fixed, moderate speed.
// Sandboxes count it by what the code does, so that a call is judged alike on every machine and at any load. Where they
// cannot, they use the processor time that the code has taken. Real clocks only limit code that waits.
const (
	// CommandTime is the code time that all calls for one command may take together, unless one of them may take more
	// by itself.
	CommandTime = time.Second
	// ReplayFactor is how many times its code time a call may take for an event that is stored already. A call that was
	// accepted takes no longer in a replay, so the factor leaves room for other versions of the code.
	ReplayFactor = 10
	// patience is how many times its code time a call may take in real time before it is given up, and maxPatience the
	// most that it may take beyond its code time.
	patience    = 20
	maxPatience = 30 * time.Second
	// timePerByte is the code time for each byte that goes into a call or comes out of it, timePerCall that for the
	// call.
	timePerByte = 4 * time.Nanosecond
	timePerCall = 10 * time.Microsecond
)

type meterKey struct{}

// meter counts the code time of a command. That of a replay has no limit.
type meter struct {
	replay bool
	used   atomic.Int64 // in nanoseconds
}

// ForCommand returns a context for calls on behalf of one command, which take from one allowance.
func ForCommand(ctx context.Context) context.Context {
	return context.WithValue(ctx, meterKey{}, &meter{})
}

// ForReplay returns a context for calls for events that are stored already.
func ForReplay(ctx context.Context) context.Context {
	return context.WithValue(ctx, meterKey{}, &meter{replay: true})
}

// Replaying reports whether calls are for events that are stored already.
func Replaying(ctx context.Context) bool {
	m, _ := ctx.Value(meterKey{}).(*meter)
	return m != nil && m.replay
}

// Allowance is what one call may take.
type Allowance struct {
	// Code is the code time, Real the time on a clock while the code is at work.
	Code, Real time.Duration
	// Replay says that the event is stored already.
	Replay bool
	// short reports that the allowance is what the command has left, and less than the call's own limit.
	short bool
	meter *meter
}

// Allow returns what a call with a limit of its own may take. The error is a *Fault of kind Exhausted where its command
// has nothing left.
func Allow(ctx context.Context, limit time.Duration) (Allowance, error) {
	m, _ := ctx.Value(meterKey{}).(*meter)
	a := Allowance{Code: limit, meter: m}
	switch {
	case m == nil:
	case m.replay:
		a.Code, a.Replay = ReplayFactor*limit, true
	default:
		left := max(CommandTime, limit) - time.Duration(m.used.Load())
		if left <= 0 {
			return a, exhausted()
		}
		if left < limit {
			a.Code, a.short = left, true
		}
	}
	a.Real = a.Code + min(patience*a.Code, maxPatience)
	if a.Replay {
		a.Real = a.Code * patience
	}
	return a, nil
}

// Spend takes the code time of a call, with the bytes that went in and came out of it, from the allowance of the
// command.
func (a Allowance) Spend(code time.Duration, bytes int) {
	if a.meter != nil {
		a.meter.used.Add(int64(timePerCall + code + time.Duration(bytes)*timePerByte))
	}
}

// Over returns the fault of a call that has used up its allowance: late, unless that was less than its own limit.
func (a Allowance) Over(late *Fault) *Fault {
	if a.short {
		return exhausted()
	}
	return late
}

func exhausted() *Fault {
	return &Fault{
		Kind: Exhausted, Detail: fmt.Sprintf("all calls of custom code for this request together would take more than %v", CommandTime),
		Hint: "Send fewer events in one request, or do less in each call.",
	}
}
