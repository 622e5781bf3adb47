// Package work counts what a request costs the processor. One Budget goes with a command or a read through everything
// that is done for it: schemas, conditions, templates, handlers. What is done is charged in units as it is done, and
// when the budget is used up everything stops and the request is refused with j17.CodeWorkLimit.
//
// A unit is about what it takes to visit one element of an array and to do something simple with it: some twenty to
// fifty nanoseconds on a current machine, the memory that it takes included. Units are counted and not timed, so that a
// request is accepted or refused alike on every machine and at any load.
//
// The decisions behind it are in docs/internals/base.md.
package work

import (
	"context"
	"math"

	"j17"
)

// Sizes of budgets, in units.
const (
	// Command is the budget of a write: all that is done to check its events and to find out what follows from them. It
	// takes a fraction of a second.
	Command = 4 << 20
	// ReplayFactor is how many times the budget of a write the fold of one event may take. What was admitted can
	// therefore always be replayed by the handlers that admitted it, also where the replay has to look up again what
	// the write knew.
	ReplayFactor = 8
	// Replay is the budget for folding one event.
	Replay = ReplayFactor * Command
)

// BytesPerUnit is how many bytes of text are read or copied in the time of one unit.
const BytesPerUnit = 16

// lookEvery is how many units pass between two looks at the context. Where a slot has to know of them the first ones
// come earlier, since budgets may be many and small: after firstLook, then each time as much again was done.
const (
	lookEvery = 1 << 16
	firstLook = 1 << 8
)

// Budget is what may still be done for one request. It is for one goroutine. The zero Budget is used up; see New.
type Budget struct {
	// left is what may still be spent; below mark it is time for a look at the context, or for the end.
	left, mark int64
	limit      int64
	// ctx is nil where nothing but the count ends the budget.
	ctx context.Context //nolint:containedctx // lives as long as one request
	err error
	// slot is the request's turn on a processor, nil where it needs none; spent is what was spent before the budget was
	// last filled.
	slot  *Slot
	spent int64
	// told is the total spent when the slot was last updated, next the total at which the next update is due.
	told, next int64
	// held is what the request has of pools until Release.
	held []holding
}

// New returns a budget of limit units that also ends with ctx. Where ctx has a Slot, the budget takes a turn once
// HeavyAfter units are spent of this budget and the others with the Slot, and gives way to others after each Turn; if
// its wait for the first turn times out, it ends with the error of the Slot. The Slot knows of at least half of what
// was spent of a budget, except for less than some hundred units.
func New(ctx context.Context, limit int64) *Budget {
	b := &Budget{ctx: ctx, slot: slotOf(ctx)}
	if b.slot != nil {
		b.next = firstLook
	}
	b.Renew(limit)
	return b
}

// Counted returns a budget of limit units that nothing but its use ends, for work that no request waits for.
func Counted(limit int64) *Budget {
	b := &Budget{}
	b.Renew(limit)
	return b
}

// Renew fills the budget up to limit units and forgets that it was used up.
func (b *Budget) Renew(limit int64) {
	b.spent += b.Spent()
	b.limit, b.left, b.err = limit, limit, nil
	if b.next == 0 {
		b.next = lookEvery
	}
	b.mark = max(0, limit-max(0, b.next-b.spent)) // however often it is filled
}

// Spend takes n units, which is not negative, from what is left, and reports whether there were as many. When it
// reports false, Err says why, and every later Spend reports false too: the caller gives up, and nothing that it has
// found counts.
func (b *Budget) Spend(n int) bool {
	b.left -= int64(n)
	return b.left >= b.mark || b.look()
}

// End ends the budget with an error, unless it has ended: no work is taken from then on, and Err returns it.
func (b *Budget) End(err error) {
	if b.err == nil {
		b.err, b.mark = err, math.MaxInt64
	}
}

// SpendBytes takes what reading or copying n bytes costs, beside one unit.
func (b *Budget) SpendBytes(n int) bool { return b.Spend(1 + n/BytesPerUnit) }

// look finds out whether the budget is used up or its context has ended.
func (b *Budget) look() bool {
	switch {
	case b.err != nil:
	case b.left < 0:
		b.err = j17.Errorf(j17.CodeWorkLimit, "The request would take more work than the %d units that it may", b.limit)
	case b.ctx != nil && b.ctx.Err() != nil:
		b.err = b.ctx.Err()
	case b.slot != nil && b.turn() != nil:
	default:
		all, until := b.spent+b.Spent(), int64(lookEvery)
		if b.slot != nil {
			until = min(until, max(all, firstLook))
		}
		b.next = all + until
		b.mark = max(0, b.left-until)
		return true
	}
	b.left = -1 // stays below every mark
	return false
}

// turn tells the slot what was done since the last time. A heavy request works in a turn on a processor, for which it
// waits.
func (b *Budget) turn() error {
	all := b.spent + b.Spent()
	b.err = b.slot.work(b.ctx, all-b.told)
	b.told = all
	return b.err
}

// Rest gives back the turn that the request may hold, before it waits for something held by requests that may
// themselves be waiting for a turn. The budget takes a turn again when it is next spent from.
func (b *Budget) Rest() {
	if b.slot != nil {
		b.slot.Give()
	}
}

// Err returns why the budget ended: nil while it has not, a *j17.Error with CodeWorkLimit where it was used up or
// with CodeBusy where there was no turn, the context's error where that ended first.
func (b *Budget) Err() error { return b.err }

// Spent returns how many units have been taken since the budget was filled.
func (b *Budget) Spent() int64 { return b.limit - max(b.left, 0) }

// Left returns how many units there are left.
func (b *Budget) Left() int64 { return max(b.left, 0) }
