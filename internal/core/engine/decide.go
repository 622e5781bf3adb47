package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// errCrowd tells that too many wait for a turn already.
var errCrowd = errors.New("engine: too many wait for their turn")

// maxPlanning is how many times its budget a write may use for planning anew.
const maxPlanning = 8

// write plans a command and stores its events, or finds that they are stored already. Who is alone plans from what is stored,
// and that is that. Whoever is overtaken, or comes to streams where others are in each other's way already, takes turns with
// them. The error is errRedeployed where there is another spec meanwhile.
func (e *Engine) write(ctx context.Context, d *deployed, c *Command, a *decider.Admitted, b *work.Budget) (*plan, store.Result, error) {
	t := &d.env.turns
	var want claims
	for i := range a.Writes {
		if key := a.Writes[i].Key; t.crowded(key) {
			want = want.with(key, true)
		}
	}

	// Alone, as long as nobody is in the way.
	for want == nil {
		b.Renew(work.Command)
		p, err := e.plan(ctx, d, c, a, b, nil)
		if err != nil {
			stands, failure := e.stands(ctx, d, p, nil)
			if failure != nil {
				return nil, store.Result{}, failure
			}
			if stands {
				return p, store.Result{}, err
			}
			want, _ = p.claims(t)
			break
		}
		var crowded bool
		if want, crowded = p.claims(t); crowded {
			break
		}
		r, err := e.append(ctx, d, &p.unit)
		if err != nil {
			return nil, store.Result{}, err
		}
		switch r.Outcome {
		case store.Committed, store.Duplicate:
			return p, r, nil
		case store.TooEarly:
			want = nil
		case store.Conflict:
			if err := p.refusal(&r); err != nil {
				e.counts.conflicts.Add(1)
				return nil, store.Result{}, err
			}
		}
		e.counts.replanned.Add(1)
	}

	// In turn; what brings about nothing does not have to wait for that.
	p, r, err := e.writeInTurn(ctx, d, c, a, b, want)
	if !errors.Is(err, errAside) {
		return p, r, err
	}
	if a.Reacts() {
		e.counts.busy.Add(1)
		return nil, r, j17.Errorf(j17.CodeBusy, "Others write to what this write looks at, and its turn has not come within %s. Nothing was written. Try again.", e.writeWait)
	}
	return e.writeAside(ctx, d, c, a, b)
}

// errAside tells that a write's turn has not come.
var errAside = errors.New("engine: the turn has not come")

// writeAside writes events that bring about nothing more without waiting for a turn: nothing was looked at, so nobody can
// overtake them.
func (e *Engine) writeAside(ctx context.Context, d *deployed, c *Command, a *decider.Admitted, b *work.Budget) (*plan, store.Result, error) {
	for try := 1; ; try++ {
		b.Renew(work.Command)
		p, err := e.plan(ctx, d, c, a, b, nil)
		if err != nil {
			return nil, store.Result{}, err
		}
		r, err := e.append(ctx, d, &p.unit)
		if err != nil || r.Outcome != store.Conflict && r.Outcome != store.TooEarly {
			return p, r, err
		}
		if r.Outcome == store.Conflict {
			if err := p.refusal(&r); err != nil {
				e.counts.conflicts.Add(1)
				return nil, store.Result{}, err
			}
		}
		if try == maxPlanning {
			// Names that were made up are taken, or the entity tag "*" is of a stream that many write to.
			e.counts.busy.Add(1)
			return nil, store.Result{}, j17.Errorf(j17.CodeBusy, "Others have been faster %s in a row. Nothing was written. Try again.", j17.Count(try, "time"))
		}
	}
}

// stands reports whether a plan that was refused is so for what was there at one moment; v is what the writer has seen, nil for one who is
// alone. What was looked at one after the other need not have been there together, and what others are about to store may never be.
func (e *Engine) stands(ctx context.Context, d *deployed, p *plan, v *view) (bool, error) {
	if v != nil && !v.stored(ctx) {
		return false, nil
	}
	if p == nil || v != nil && len(v.needs) > 0 {
		return true, nil // the turns have kept together what is stored by now
	}

	// What the caller expects was not looked at: it need not be so, and mostly is what the command is refused for.
	looked := *p
	looked.writes, looked.unit.Pre = nil, slices.Clone(p.lengths)
	for i := range p.unit.Pre {
		if p.unit.Pre[i].Looked {
			looked.unit.Pre = append(looked.unit.Pre, p.unit.Pre[i])
		}
	}
	if len(looked.unit.Pre)+len(looked.unit.Fences) < 2 {
		return true, nil
	}
	err := e.overtaken(ctx, d.env.tenant, &looked)
	if errors.Is(err, errOvertaken) {
		return false, nil
	}
	return err == nil, err
}

// refused keeps what is worth knowing of a plan that failed, and returns why it did.
func (e *Engine) refused(ctx context.Context, t j17.Tenant, p *plan, err error) error {
	if p != nil && p.failure != nil {
		e.keepFailure(context.WithoutCancel(ctx), t, p.failure)
	}
	return err
}

// claims returns the streams whose turn the plan needs: alone those that it writes after it has looked at them, or at the unique values
// that they hold, and those that it only writes where others take turns; shared those that it only looks at. crowded tells that others take
// turns at one of them. The claims are never nil.
func (p *plan) claims(t *turns) (want claims, crowded bool) {
	want = claims{}
	for key := range p.before {
		want = want.with(key, false)
		crowded = crowded || t.crowded(key)
	}
	for key := range p.keepers() {
		want = want.with(key, false)
		crowded = crowded || t.crowded(key)
	}
	for i := range p.unit.Events {
		key := p.unit.Events[i].Key
		if i > 0 && key == p.unit.Events[i-1].Key {
			continue
		}
		if _, looked := want.of(key); looked {
			want = want.with(key, true)
		} else if t.crowded(key) {
			want, crowded = want.with(key, true), true
		}
	}
	return want, crowded
}

// writeInTurn is write for those who have to take turns. The error is errAside where the turn has not come in time, or an
// event that brings about nothing was overtaken.
func (e *Engine) writeInTurn(ctx context.Context, d *deployed, c *Command, a *decider.Admitted, b *work.Budget, want claims) (*plan, store.Result, error) {
	// Waiting ends by the clock, and planning by what it has cost.
	deadline := e.clock.Now().Add(e.writeWait)
	waiting, stop := e.until(ctx, deadline)
	defer stop()
	spent := int64(0)
	for waited := false; ; {
		late := waiting.Err() != nil || !e.clock.Now().Before(deadline) // the clock is asked too: the context ends a little later
		if spent > maxPlanning*work.Command || late && ctx.Err() == nil {
			return nil, store.Result{}, errAside
		}

		// Wait for the turn, and decide.
		b.Rest() // who has the lane may wait for a turn on a processor
		b.Release()
		had, err := d.env.turns.take(waiting, want)
		if err != nil {
			return nil, store.Result{}, cmp.Or(ctx.Err(), errAside)
		}
		if had && !waited {
			waited = true
			e.counts.turns.Add(1)
		}
		v := &view{turns: &d.env.turns, held: want}
		b.Renew(work.Command)
		p, tk, more, err := func() (*plan, *ticket, claims, error) {
			defer d.env.turns.release(want) // whatever happens: nobody else gets the turn before
			return e.planInTurn(ctx, d, c, a, b, v)
		}()
		spent += b.Spent()
		switch {
		case more != nil:
			want = more
			continue
		case err != nil:
			stands, failure := e.stands(ctx, d, p, v)
			if stands {
				return p, store.Result{}, err
			}
			if failure = cmp.Or(failure, ctx.Err()); failure != nil {
				return nil, store.Result{}, failure
			}
			continue
		case tk == nil:
			e.counts.replanned.Add(1)
			continue
		}

		// See what becomes of it.
		if err := d.env.turns.await(ctx, tk); err != nil && !errors.Is(err, errOvertaken) {
			return nil, store.Result{}, err
		}
		switch tk.result.Outcome {
		case store.Committed, store.Duplicate:
			return p, tk.result, nil
		case store.Conflict:
			if err := p.refusal(&tk.result); err != nil {
				e.counts.conflicts.Add(1)
				return nil, store.Result{}, err
			}
		case store.TooEarly:
		}
		e.counts.replanned.Add(1)
		if !a.Reacts() {
			return nil, store.Result{}, errAside
		}
	}
}

// planInTurn plans a command from what its view shows, and puts the plan behind those of others. more is not nil where it
// needs turns that it does not have; the ticket is nil where what it was decided on has failed meanwhile.
func (e *Engine) planInTurn(
	ctx context.Context, d *deployed, c *Command, a *decider.Admitted, b *work.Budget, v *view,
) (p *plan, tk *ticket, more claims, err error) {
	p, err = e.plan(ctx, d, c, a, b, v)
	if err != nil {
		if p != nil && (len(v.needs) > 0 || len(p.before) > 1 || p.unique != nil) {
			// It was refused on several states, or on some that are not stored: all have to be of one moment.
			if want, _ := p.claims(v.turns); !v.held.cover(want) {
				for _, c := range v.held {
					want = want.with(c.key, c.alone)
				}
				return nil, nil, want, nil
			}
		}
		return p, nil, nil, err
	}

	// It needs the turn of everything that it looked at.
	if want, _ := p.claims(v.turns); !v.held.cover(want) {
		for _, c := range v.held {
			want = want.with(c.key, c.alone)
		}
		return nil, nil, want, nil
	}
	if err := p.unit.Validate(); err != nil {
		return p, nil, nil, StorageError(err)
	}

	// Who comes next decides on what it leaves behind.
	after := e.leaves(ctx, d, p, v)
	tk = &ticket{d: d, plan: p, needs: v.needs, after: after, done: make(chan struct{})}
	if !e.add(ctx, d.env, tk) {
		return nil, nil, nil, nil
	}
	return p, tk, nil, nil
}

// until returns a context that also ends when the clock shows the deadline.
func (e *Engine) until(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	limited, stop := context.WithCancel(ctx)
	go func() {
		if e.clock.Wait(limited, deadline) == nil {
			stop()
		}
	}()
	return limited, stop
}

// view is what a writer sees whose turn it is: the states that those before it leave behind, stored or not.
type view struct {
	turns *turns
	held  claims
	// needs are the tickets whose events it has seen.
	needs []*ticket
}

// pending returns the state that the last writer of a stream leaves behind, nil where all of it is stored.
func (v *view) pending(ctx context.Context, key j17.Key) (*decider.State, error) {
	if _, ok := v.held.of(key); !ok {
		return nil, nil
	}
	p := v.turns.peek(key)
	switch {
	case p == nil:
		return nil, nil
	case p.state == nil:
		return nil, v.settled(ctx, key)
	}
	v.needs = append(v.needs, p.ticket)
	return p.state, nil
}

// settled waits until nothing is pending in the lane of a stream, which the view holds or has no part in.
func (v *view) settled(ctx context.Context, key j17.Key) error {
	if v == nil {
		return nil
	}
	if _, ok := v.held.of(key); !ok {
		return nil
	}
	for p := v.turns.peek(key); p != nil; p = v.turns.peek(key) {
		select {
		case <-p.ticket.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// heldBy returns what an aggregate holds in a set, nil for nothing, when those are stored who had their turn before; known is false where
// what is stored says it.
func (v *view) heldBy(set *spec.UniqueSet, key j17.Key) (own *[32]byte, known bool) {
	if _, ok := v.held.of(key); !ok {
		return nil, false
	}
	p := v.turns.heldIn(key, set)
	if p.ticket == nil {
		return nil, false
	}
	v.needs = append(v.needs, p.ticket)
	return p.own, true
}

// stored waits until it is known whether what the view has shown was stored.
func (v *view) stored(ctx context.Context) bool {
	for _, tk := range v.needs {
		select {
		case <-tk.done:
		case <-ctx.Done():
			return false
		}
		if tk.result.Outcome != store.Committed || tk.drifted {
			return false
		}
	}
	return true
}

// look returns the present state of an aggregate, as a writer with that view sees it. Where it is large, the writer holds memory
// for it, for which it waits without the state.
func (e *Engine) look(ctx context.Context, d *deployed, key j17.Key, b *work.Budget, v *view) (*decider.State, error) {
	for waited := false; ; waited = true {
		if v != nil {
			if f, err := v.pending(ctx, key); f != nil || err != nil {
				return f, err
			}
		}
		f, err := e.storedState(ctx, d, key)
		if err != nil || waited || len(f.JSON) <= inlineBytes {
			return f, err
		}
		k := stateKey{d.env.tenant, key}
		if e.cache.get(k) == f { // which is charged for it
			return f, nil
		}
		size := measure(f)
		if b.TryHold(e.looked, string(k.tenant), size) {
			return f, nil
		}
		if err := b.Hold(e.looked, string(k.tenant), size, "memory for what such a write looks at"); err != nil {
			return nil, err
		}
	}
}

// length returns the present number of events of an aggregate, as a writer with that view sees it.
func (e *Engine) length(ctx context.Context, d *deployed, key j17.Key, v *view) (uint64, error) {
	if v != nil {
		if f, err := v.pending(ctx, key); err != nil {
			return 0, err
		} else if f != nil {
			return f.Length, nil
		}
	}
	heads, err := e.store.Heads(ctx, d.env.tenant, []j17.Key{key})
	if err != nil {
		return 0, StorageError(err)
	}
	return heads[0].Length, nil
}

// storedState returns the present state of an aggregate, as far as it is stored.
func (e *Engine) storedState(ctx context.Context, d *deployed, key j17.Key) (*decider.State, error) {
	heads, err := e.store.Heads(ctx, d.env.tenant, []j17.Key{key})
	if err != nil {
		return nil, StorageError(err)
	}
	if heads[0].Length == 0 {
		return d.Program(key.Type).First(), nil
	}
	f, err := e.stateOf(ctx, d.env.tenant, d, key, Version{heads[0].Length, heads[0].Generation}, false, false)
	return f, StorageError(err)
}

// leaves computes the states that a plan leaves behind in the lanes that it holds alone, and what is held there.
func (e *Engine) leaves(ctx context.Context, d *deployed, p *plan, v *view) []pendingState {
	var after []pendingState
	held := p.holds()
	for _, c := range v.held {
		if !c.alone || !p.touches(c.key) {
			continue
		}
		state := pendingState{key: c.key, held: held[c.key]}
		for _, known := range p.after {
			if known.Key == c.key {
				state.state = &known.State
			}
		}
		if state.state == nil {
			state.state = e.leave(ctx, d, p, v, c.key)
		}
		after = append(after, state)
	}
	return after
}

func (p *plan) touches(key j17.Key) bool {
	for i := range p.unit.Events {
		if p.unit.Events[i].Key == key {
			return true
		}
	}
	return false
}

// leave computes the state of a stream after a plan, nil where the one before it is not at hand.
func (e *Engine) leave(ctx context.Context, d *deployed, p *plan, v *view, key j17.Key) *decider.State {
	// Find the state before it.
	typ := d.Program(key.Type)
	base := p.before[key]
	if base == nil {
		// The plan has not looked at the stream, and shall not have to wait because others do.
		if last := v.turns.peek(key); last != nil {
			v.needs = append(v.needs, last.ticket)
			base = last.state
		} else if heads, err := e.store.Heads(ctx, d.env.tenant, []j17.Key{key}); err == nil {
			if f := e.cached(stateKey{d.env.tenant, key}, typ, Version{heads[0].Length, heads[0].Generation}, false); f != nil && f.Length == heads[0].Length {
				base = f
			} else if heads[0].Length == 0 {
				base = typ.First()
			}
		}
	}
	if base == nil {
		return nil
	}

	// Apply the events to it.
	f, ed, b := *base, value.NewEditor(), work.New(ctx, work.Replay)
	for i := range p.events {
		o := &p.events[i]
		if o.Key != key {
			continue
		}
		b.Renew(work.Replay)
		if err := typ.Apply(ctx, &f, ed, o.Stored(p.unit.Timestamp), b, nil); err != nil {
			return nil
		}
		f.Loose += len(o.JSON)
	}
	return &f
}

// keep caches a state that was computed while planning.
func (e *Engine) keep(k stateKey, f *decider.State) {
	kept := *f
	if err := kept.Finish(k.key.String()); err == nil {
		e.cache.put(k, &kept)
	}
}
