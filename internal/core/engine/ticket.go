package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// ticket is a plan that was made in its turn and waits to be stored.
type ticket struct {
	d    *deployed
	plan *plan
	// needs are the tickets on whose events the plan was decided.
	needs []*ticket
	// after has the states that the plan leaves behind in lanes.
	after []pendingState
	// done is closed when it is known what became of the plan: result or err. turns.mu guards state, and the others until then.
	done   chan struct{}
	state  ticketState
	result store.Result
	err    error
	// drifted tells that the plan was stored behind events that came in between, so that the states that were computed with it
	// never existed.
	drifted bool
}

// exact reports whether a state that was computed with the plan is the one that the plan's events have left behind: an event
// that brings about nothing has no precondition, so events of writers outside of the lane may stand before it.
func (tk *ticket) exact(a pendingState, r *store.Result) bool {
	for i, length := range slices.Backward(r.Lengths) {
		if tk.plan.unit.Events[i].Key == a.key {
			return length == a.state.Length
		}
	}
	return false
}

// pendingState is the state of one stream after a ticket, nil where it is not known, and what it holds in the sets of unique values that the
// ticket's plan has looked at.
type pendingState struct {
	key   j17.Key
	state *decider.State
	held  map[*spec.UniqueSet]*[32]byte
}

type ticketState uint8

const (
	ticketOpen ticketState = iota
	ticketFlying
	ticketStored
	// ticketFailed: the plan was not stored and will not be.
	ticketFailed
)

// open reports whether it is not known yet what becomes of the ticket. turns.mu is held.
func (tk *ticket) open() bool { return tk.state == ticketOpen || tk.state == ticketFlying }

// errOvertaken tells that a plan was not stored because something that it was decided on was not, or that it has changed since.
var errOvertaken = errors.New("engine: what the write was decided on was not stored")

const (
	// flightTickets and flightBytes bound what one append stores. The last ticket may exceed the bytes.
	flightTickets = 256
	flightBytes   = 4 << 20
)

// add puts a ticket behind the others, and what it leaves behind into the lanes, which the caller holds. It reports false when
// something that the ticket needs has failed.
func (e *Engine) add(ctx context.Context, env *environment, tk *ticket) bool {
	t := &env.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(tk.needs, func(n *ticket) bool { return n.state == ticketFailed }) {
		return false
	}
	t.open = append(t.open, tk)
	for _, a := range tk.after {
		l := t.lane(a.key)
		l.pending = &pending{ticket: tk, state: a.state, held: l.holds(tk, a.held)}
	}
	if !t.flying {
		t.flying = true
		go e.fly(context.WithoutCancel(ctx), env)
	}
	return true
}

// await waits for what becomes of a ticket. One that is still open when ctx ends is given up.
func (t *turns) await(ctx context.Context, tk *ticket) error {
	select {
	case <-tk.done:
		return tk.err
	case <-ctx.Done():
	}
	t.mu.Lock()
	if tk.state == ticketOpen {
		t.end(tk, ticketFailed, ctx.Err())
	}
	t.mu.Unlock()
	<-tk.done
	return tk.err
}

// end tells what became of a ticket. The caller holds mu.
func (t *turns) end(tk *ticket, state ticketState, err error) {
	tk.state, tk.err, tk.needs = state, err, nil // what it needed is known, and kept by nobody else
	for _, a := range tk.after {
		if l := t.lanes[a.key]; l != nil && l.pending != nil && l.pending.ticket == tk {
			l.pending = nil
			t.settle(l)
		}
	}
	close(tk.done)
}

// fly stores open tickets until there are none.
func (e *Engine) fly(ctx context.Context, env *environment) {
	for {
		// Whoever is about to add a ticket comes along.
		for waiting := -1; ; runtime.Gosched() {
			n := env.turns.waiting()
			if n == waiting || n >= flightTickets {
				break
			}
			waiting = n
		}
		if !e.flight(ctx, env) {
			return
		}
	}
}

func (t *turns) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// flight stores as many tickets as one append takes. It reports false when there were none.
func (e *Engine) flight(ctx context.Context, env *environment) bool {
	tickets, units := env.turns.board(env.current.Load())
	if tickets == nil {
		return false
	}
	if len(units) == 0 {
		return true
	}
	var results []store.Result
	committing := true
	err := panics.Caught(func() (err error) {
		results, err = e.commit(ctx, env, units)
		committing = false
		return err
	})
	if committing {
		results, err = nil, fmt.Errorf("%w: %w", store.ErrUnknown, err) // it panicked
	}
	err = ofEach(err, len(units))
	for i := range results {
		env.observe(results[i].Timestamp)
	}
	fault := panics.Caught(func() error {
		e.keepLast(env.tenant, tickets, results)
		return nil
	})
	if fault != nil {
		e.logger.LogAttrs(ctx, slog.LevelError, "what a write left behind could not be cached", slog.String("tenant", string(env.tenant)), slog.Any("error", fault))
	}
	env.turns.land(tickets, results, err)
	return true
}

// ofEach returns what an error of an append means for each of its units.
func ofEach(err error, units int) error {
	if err != nil && units > 1 && !refusedWhole(err) {
		// It is the error of one unit; those before it may be stored.
		err = fmt.Errorf("%w: %v", store.ErrUnknown, err) //nolint:errorlint // what it wraps concerns another write
	}
	return err
}

// refusedWhole reports whether an error of an append says of all its units what became of them.
func refusedWhole(err error) bool {
	return errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrUnknown) ||
		errors.Is(err, store.ErrClock)
}

// board takes the next tickets. Those that were decided under another spec, or on what was not stored, end here. tickets is nil
// when there were none at all; then nobody is flying any more.
func (t *turns) board(d *deployed) (tickets []*ticket, units []store.Append) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) == 0 {
		t.flying, t.open = false, nil
		return nil, nil
	}

	// Each takes the place behind those that it was decided on.
	tickets = []*ticket{}
	n, size := 0, 0
	for _, tk := range t.open {
		if len(units) >= flightTickets || size >= flightBytes {
			break
		}
		n++
		unit := tk.plan.unit
		unit.Fences = tk.d.fence(unit.Fences)
		switch {
		case tk.state == ticketFailed: // given up
			continue
		case tk.d != d:
			t.end(tk, ticketFailed, errRedeployed)
			continue
		case slices.ContainsFunc(tk.needs, func(n *ticket) bool { return n.state == ticketFailed }):
			t.end(tk, ticketFailed, errOvertaken)
			continue
		}
		for _, need := range tk.needs {
			if i := slices.Index(tickets, need); i >= 0 {
				unit.After = append(unit.After, i)
			}
		}
		tk.state = ticketFlying
		tickets, units = append(tickets, tk), append(units, unit)
		size += unitBytes(&unit)
	}
	t.open = slices.Delete(t.open, 0, n)
	return tickets, units
}

func unitBytes(u *store.Append) int {
	size := 0
	for i := range u.Events {
		size += len(u.Events[i].Data) + len(u.Events[i].Metadata)
	}
	return size
}

// land tells the tickets of a flight what became of them.
func (t *turns) land(tickets []*ticket, results []store.Result, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, tk := range tickets {
		switch {
		case err != nil:
			t.end(tk, ticketFailed, StorageError(err))
		case results[i].Outcome == store.Committed:
			tk.result = results[i]
			for _, a := range tk.after {
				tk.drifted = tk.drifted || a.state != nil && !tk.exact(a, &results[i])
			}
			t.end(tk, ticketStored, nil)
		case tk.d.fenced(&results[i]):
			t.end(tk, ticketFailed, errRedeployed)
		default:
			tk.result = results[i]
			t.end(tk, ticketFailed, nil)
		}
	}
}

// keepLast caches the last state of each stream that the tickets of a flight have left behind.
func (e *Engine) keepLast(t j17.Tenant, tickets []*ticket, results []store.Result) {
	if results == nil {
		return
	}
	kept := map[j17.Key]bool{}
	for i, tk := range slices.Backward(tickets) {
		if results[i].Outcome != store.Committed {
			continue
		}
		for _, a := range tk.after {
			if !kept[a.key] && a.state != nil && tk.exact(a, &results[i]) {
				kept[a.key] = true
				e.keep(stateKey{t, a.key}, a.state)
			}
		}
	}
}
