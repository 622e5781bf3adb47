package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"j17"
	"j17/internal/decider"
	"j17/internal/sandbox"
	"j17/internal/store"
	"j17/internal/work"
)

// The store takes in one unit what one command may write.
const _ = uint(store.MaxUnitEvents - decider.MaxEvents)

// idempotencyWindow is how long the outcome of a command with an idempotency key is kept.
const idempotencyWindow = 24 * time.Hour

// Execute writes the events of a command. When it returns without an error they are durable. Errors are *j17.Error.
func (e *Engine) Execute(ctx context.Context, c *Command) (Receipt, error) {
	for {
		d, err := e.deployed(c.Tenant)
		if err != nil {
			return Receipt{}, err
		}
		r, err := e.execute(ctx, d, c)
		if !errors.Is(err, errRedeployed) {
			return r, err
		}
		if err := e.renew(ctx, d); err != nil {
			return Receipt{}, err
		}
	}
}

// execute is Execute under one spec. The error is errRedeployed where there is another one meanwhile.
func (e *Engine) execute(ctx context.Context, d *deployed, c *Command) (Receipt, error) {
	b := work.New(ctx, work.Command)
	defer b.Release()
	a, first, err := e.admit(ctx, d, c, b)
	switch {
	case err != nil:
		return Receipt{}, err
	case first != nil:
		return e.replay(ctx, d, c, first)
	}

	// Decide what it brings about, and store that.
	p, r, err := e.write(ctx, d, c, a, b)
	if err != nil {
		return Receipt{}, err
	}
	return e.done(ctx, d, c, p, &r)
}

// admit checks a command. first is not nil where it was carried out before.
func (e *Engine) admit(ctx context.Context, d *deployed, c *Command, b *work.Budget) (a *decider.Admitted, first *store.Result, err error) {
	if c.IdempotencyKey != "" {
		if first, err = e.store.Command(ctx, c.Tenant, commandID(c.IdempotencyKey)); err != nil {
			return nil, nil, StorageError(err)
		}
		if first != nil {
			return nil, first, nil
		}
	}
	id := c.ID
	if c.New {
		id = e.mintID(d)
	}
	a, err = d.Admit(&c.Command, b, func() (j17.Key, error) { return e.resolve(ctx, c.Tenant, d, c.Type, id) })
	return a, nil, err
}

// done does what has to follow a plan that is stored, now or before, and returns its receipt.
func (e *Engine) done(ctx context.Context, d *deployed, c *Command, p *plan, r *store.Result) (Receipt, error) {
	if r.Outcome == store.Duplicate {
		return e.replay(ctx, d, c, r)
	}
	for _, tell := range p.stored {
		tell(r.IDs)
	}
	e.committed(c.Tenant, d, p, r)
	receipt := p.receipt(r)
	if len(r.Assigned) > 0 && decider.Named(d.Types[p.key.Type]) {
		receipt.Names = d.assigned(p.key, r.Assigned)
	}
	return receipt, nil
}

// plan is one atomic append that carries out a command, and how to read its result.
type plan struct {
	unit store.Append
	// events are those of the unit. A recording has them in its file.
	events []decider.Event
	// key is the command's aggregate, own the number of the command's own events; they come first. A recording has no such
	// aggregate.
	key j17.Key
	own int
	// last is the number of the last event of the command's aggregate, which may be an implied one.
	last int
	// before has the states that were looked at, after those after the commit that planning had to compute.
	before map[j17.Key]*decider.State
	after  []*decider.Computed
	// failure describes why there is no plan, where that is worth knowing.
	failure *decider.ImplicationFailure
	// expected is the length that the caller expects, nil for none, and side what the caller wants to be written beside the
	// events. A conflict with them is the caller's to resolve: planning anew would change nothing.
	expected *uint64
	side     []store.Side
	// full tell why the command is refused where its effects have no room.
	full []func(*store.SideConflict) error
	// changed are told what was decided on something old.
	changed []func(*store.SideConflict)
	// scheduled are the events that are to come later, and stored what is to be told of the commit.
	scheduled []decider.Scheduled
	stored    []func([]j17.StreamID)
}

// plan turns an admitted command into an append. What it reads becomes a precondition: a stream that was not looked at
// cannot conflict. All work is charged to b. v, if not nil, is what a writer sees whose turn it is.
func (e *Engine) plan(ctx context.Context, d *deployed, c *Command, a *decider.Admitted, b *work.Budget, v *view) (*plan, error) {
	b.Release() // the states that an earlier plan has looked at
	p := &plan{key: a.Key, own: len(a.Events), expected: a.Expected}
	p.unit.Timestamp, p.unit.Decided = e.now(d.env), v != nil || a.Reacts()

	// What the caller expects.
	if a.Expected != nil {
		p.unit.Pre = append(p.unit.Pre, store.Pre{Key: a.Key, Length: *a.Expected})
	}
	if len(c.IfMatch) > 0 {
		if err := v.settled(ctx, a.Key); err != nil {
			return nil, err
		}
		head, err := e.matching(ctx, d, c, a.Key)
		if err != nil {
			return nil, err
		}
		p.unit.Pre = append(p.unit.Pre, store.Pre{Key: a.Key, Length: head.Length, Looked: true, Generation: head.Generation})
	}

	// The events, what they imply, and what else comes with them.
	p.events = a.Events
	p.write(a.Events)
	if a.Reacts() {
		if err := e.react(ctx, d, a, p, b, v); err != nil {
			return p, err
		}
	}
	if err := e.effects(ctx, d, c, p); err != nil {
		return p, err
	}
	if err := e.derive(ctx, d, p, p.events); err != nil {
		return p, err
	}
	p.assign(d, e.mint)

	// What a retry finds.
	if c.IdempotencyKey != "" {
		p.unit.Command = &store.Command{
			ID:      commandID(c.IdempotencyKey),
			Memo:    memo(c.Fingerprint, p, a.Key.ID),
			Expires: e.clock.Now().Add(idempotencyWindow),
		}
	}
	return p, nil
}

// react adds to the plan all that the command's events bring about. The states that it looked at become preconditions.
func (e *Engine) react(ctx context.Context, d *deployed, a *decider.Admitted, p *plan, b *work.Budget, v *view) error {
	ctx = sandbox.ForCommand(ctx) // States that are looked at are folded as replays all the same.
	x, err := d.Expand(ctx, a, decider.Options{
		Timestamp: p.unit.Timestamp, MaxDepth: e.maxDepth, MaxImplied: e.maxImplied, Work: b,
		Lookup: func(ctx context.Context, key j17.Key) (*decider.State, error) { return e.look(ctx, d, key, b, v) },
	})
	if err == nil {
		p.after, err = x.Handle(ctx)
	}
	p.before, p.failure = x.Before, x.Failure
	if err != nil {
		return err
	}
	p.events, p.scheduled = x.Events, x.Scheduled
	p.write(x.Events[p.own:])
	for _, key := range x.Looked {
		before := x.Before[key]
		p.unit.Pre = append(p.unit.Pre, store.Pre{Key: key, Length: before.Length, Looked: true, Generation: before.Generation})
	}
	return nil
}

// write adds events to the unit.
func (p *plan) write(events []decider.Event) {
	p.unit.Events = slices.Grow(p.unit.Events, len(events))
	for i := range events {
		o := &events[i]
		if o.Key == p.key {
			p.last = len(p.unit.Events)
		}
		p.unit.Events = append(p.unit.Events, store.NewEvent{Key: o.Key, Type: o.Type, Data: o.JSON, Metadata: o.Metadata, Tags: o.Tags})
	}
}

// matching returns the present head of the aggregate if it has one of the command's entity tags.
func (e *Engine) matching(ctx context.Context, d *deployed, c *Command, key j17.Key) (store.Head, error) {
	heads, err := e.store.Heads(ctx, c.Tenant, []j17.Key{key})
	if err != nil {
		return store.Head{}, StorageError(err)
	}
	present := d.Program(key.Type).EntityTag(heads[0].Length, heads[0].Generation)
	for _, tag := range c.IfMatch {
		if tag == present || (tag == "*" && heads[0].Length > 0) {
			return heads[0], nil
		}
	}
	return store.Head{}, preconditionFailed()
}

func (p *plan) receipt(r *store.Result) Receipt {
	return Receipt{ID: p.key.ID, IDs: r.IDs[:p.own], Length: r.Lengths[p.last], Implied: len(r.IDs) - p.own}
}

// refusal is the error of a plan that was overtaken where the caller named a length or a revision that does not hold. In all other
// cases a new plan from fresh state may succeed, or finds that no entity tag of the caller's matches any more.
func (p *plan) refusal(r *store.Result) error {
	for _, changed := range p.changed {
		for i := range r.Sides {
			changed(&r.Sides[i])
		}
	}
	for _, c := range r.Streams {
		if p.expected != nil && c.Key == p.key && c.Expected == *p.expected && c.Actual != c.Expected {
			return conflict(c)
		}
	}
	if c := p.refusedSide(r); c != nil {
		return j17.Errorf(j17.CodeConflict, "The item %s of %s has changed since it was read. Nothing was written. Read it again and decide anew.", c.Key, c.Space).Because(c)
	}
	return p.refusedFull(r)
}

// committed does what has to follow a write: counting, keeping states that are known, and making the snapshots and warm
// states that are due.
func (e *Engine) committed(t j17.Tenant, d *deployed, p *plan, r *store.Result) {
	e.counts.events.Add(uint64(len(r.IDs)))
	for _, c := range p.after {
		e.keep(stateKey{t, c.Key}, &c.State)
	}
	if p.own > 0 {
		last := r.Lengths[p.own-1]
		due := last/e.every != (last-uint64(p.own))/e.every
		if due || d.Types[p.key.Type].Cache {
			e.enqueue(stateKey{t, p.key})
		}
	}
	for i := p.own; i < len(r.Lengths); i++ {
		if key := p.unit.Events[i].Key; r.Lengths[i]%e.every == 0 || d.Types[key.Type].Cache {
			e.enqueue(stateKey{t, key})
		}
	}
}

// commandID names an idempotency key in the store.
func commandID(key string) store.CommandID {
	sum := sha256.Sum256([]byte(key))
	return store.CommandID(sum[:16])
}

// memo is what is kept with a command's result: the fingerprint of its request, the numbers of its own events and of the
// last event of its aggregate, and the aggregate's id.
func memo(fingerprint [32]byte, p *plan, id string) []byte {
	b := binary.AppendUvarint(fingerprint[:], uint64(p.own))
	b = binary.AppendUvarint(b, uint64(p.last))
	return append(b, id...)
}

// replay answers a command that was carried out before.
func (e *Engine) replay(ctx context.Context, d *deployed, c *Command, first *store.Result) (Receipt, error) {
	reused := j17.Errorf(j17.CodeIdempotencyReuse, "The idempotency key was used before with a different request. Use a new key for a new operation.")
	if len(first.Memo) <= len(c.Fingerprint) || [32]byte(first.Memo) != c.Fingerprint {
		return Receipt{}, reused
	}
	rest := first.Memo[len(c.Fingerprint):]
	own, n := binary.Uvarint(rest)
	last, m := binary.Uvarint(rest[max(n, 0):])
	if n <= 0 || m <= 0 || own == 0 || own > uint64(len(first.IDs)) || last >= uint64(len(first.IDs)) {
		return Receipt{}, StorageError(&store.CorruptionError{Where: "the record of an idempotency key", Err: fmt.Errorf("%d own events of %d", own, len(first.IDs))})
	}
	p := plan{key: j17.Key{Type: c.Type, ID: string(rest[n+m:])}, own: int(own), last: int(last)}
	if !c.New {
		// The aggregate may be called by another of its names.
		key, err := e.resolve(ctx, c.Tenant, d, c.Type, c.ID)
		if err != nil && j17.CodeOf(err) != j17.CodeAggregateNotFound && j17.CodeOf(err) != j17.CodeInvalidIdentifier {
			return Receipt{}, err
		}
		if key.ID != p.key.ID {
			return Receipt{}, reused
		}
	}
	r := p.receipt(first)
	r.Replayed = true
	if typ := d.Types[c.Type]; typ == nil || !decider.Named(typ) || p.key.ID == "" {
		return r, nil
	}
	var err error
	r.Names, err = e.Names(ctx, c.Tenant, d.Decider, p.key)
	return r, err
}
