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
	"j17/internal/base/work"
	"j17/internal/code/sandbox"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/storage/store"
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
	if err == nil {
		return e.done(ctx, d, c, p, &r)
	}

	// Another try of the same command may have been stored meanwhile, and be what this one was refused for.
	if first, failure := e.first(ctx, c); first != nil {
		return e.replay(ctx, d, c, first)
	} else if failure != nil {
		err = failure
	}
	return Receipt{}, e.refused(ctx, c.Tenant, p, err)
}

// first returns what the command was stored as before, nil where it was not.
func (e *Engine) first(ctx context.Context, c *Command) (*store.Result, error) {
	if c.IdempotencyKey == "" {
		return nil, nil
	}
	first, err := e.store.Command(ctx, c.Tenant, commandID(c.IdempotencyKey))
	return first, StorageError(err)
}

// admit checks a command. first is not nil where it was carried out before.
func (e *Engine) admit(ctx context.Context, d *deployed, c *Command, b *work.Budget) (a *decider.Admitted, first *store.Result, err error) {
	if first, err = e.first(ctx, c); first != nil || err != nil {
		return nil, first, err
	}
	named := c.Named(func() string { return e.mintID(d) })
	a, err = d.Admit(&named, b, func(w *command.Write) (j17.Key, error) {
		if w.New {
			return d.Key(w.Type, w.ID)
		}
		return e.resolve(ctx, c.Tenant, d, w.Type, w.ID)
	})
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
	receipt, values := p.receipt(r), r.Assigned
	for i := range receipt.Writes {
		w := &receipt.Writes[i]
		w.Names, values = d.assigned(w.Key.Type, values)
	}
	return receipt, nil
}

// plan is one atomic append that carries out a command, and how to read its result.
type plan struct {
	unit store.Append
	// events are those of the unit. A recording has them in its file.
	events []decider.Event
	// writes are the aggregates of the command, own is the number of the command's own events; they come first. A recording has
	// neither.
	writes []planned
	own    int
	// byKey has the numbers of several writes, once somebody has asked for one.
	byKey map[j17.Key]int
	// of is the command.
	of *decider.Admitted
	// oneWrite and oneEvent are the room for writes and for events of the unit where there is one.
	oneWrite [1]planned
	oneEvent [1]store.NewEvent
	// before has the states that were looked at, after those after the commit that planning had to compute.
	before map[j17.Key]*decider.State
	after  []*decider.Computed
	// unique is what was looked at of unique values, and changed, nil for nothing.
	unique *decider.Values
	// lengths are those that were looked at without a state. They are no preconditions of the commit.
	lengths []store.Pre
	// failure describes why there is no plan, where that is worth knowing.
	failure *decider.ImplicationFailure
	// side is what the caller wants to be written beside the events. A conflict with it is the caller's to resolve: planning anew would
	// change nothing.
	side []store.Side
	// charged is how many of the unit's side writes were charged.
	charged int
	// full tell why the command is refused where its effects have no room.
	full []func(*store.SideConflict) error
	// changed are told what was decided on something old.
	changed []func(*store.SideConflict)
	// scheduled are the events that are to come later, and stored what is to be told of the commit.
	scheduled []decider.Scheduled
	stored    []func([]j17.StreamID)
	// entered are told of the commit by what is kept of the events.
	entered []func()
	// tried tells that nothing will be stored. Then refusals are all guards that do not hold, and consequences what the effects do.
	tried        bool
	refusals     []error
	consequences part.Consequences
}

// planned is the part of a plan that concerns one aggregate of the command.
type planned struct {
	*decider.AdmittedWrite
	// last is the number of the last event of the aggregate, which may be an implied one.
	last int
}

// plan turns an admitted command into an append. What it reads becomes a precondition: a stream that was not looked at
// cannot conflict. All work is charged to b. v, if not nil, is what a writer sees whose turn it is.
func (e *Engine) plan(ctx context.Context, d *deployed, c *Command, a *decider.Admitted, b *work.Budget, v *view) (*plan, error) {
	b.Release() // the states that an earlier plan has looked at
	p := &plan{own: len(a.Events), of: a, tried: c.tried}
	if p.writes = p.oneWrite[:]; len(a.Writes) != 1 {
		p.writes = make([]planned, len(a.Writes))
	}
	p.unit.Timestamp, p.unit.Decided = e.now(d.env), v != nil || a.Reacts()

	// What the caller expects.
	for i := range a.Writes {
		w := &a.Writes[i]
		p.writes[i].AdmittedWrite = w
		if w.Expected != nil {
			p.unit.Pre = append(p.unit.Pre, store.Pre{Key: w.Key, Length: *w.Expected})
		}
	}
	if len(c.IfMatch) > 0 {
		key := a.Writes[0].Key
		if err := v.settled(ctx, key); err != nil {
			return nil, err
		}
		head, err := e.matching(ctx, d, c, key)
		if err != nil {
			return nil, err
		}
		p.unit.Pre = append(p.unit.Pre, store.Pre{Key: key, Length: head.Length, Looked: true, Generation: head.Generation})
	}

	// The events, what they imply, and what else comes with them.
	p.events = a.Events
	p.write(a.Events, nil)
	if a.Reacts() || len(a.Conditions) > 0 {
		if err := e.expect(ctx, d, p, v); err != nil {
			return p, err
		}
		if err := e.absent(ctx, d, a, p, b); err != nil {
			return p, err
		}
	}
	if a.Reacts() {
		if err := e.react(ctx, d, a, p, b, v); err != nil {
			return p, err
		}
	}
	if err := p.chargeEvents(b); err != nil {
		return p, err
	}
	if err := p.chargeItems(b); err != nil {
		return p, err
	}
	if err := e.effects(ctx, d, c, p, b); err != nil {
		return p, err
	}
	if err := e.derive(ctx, d, p, p.events); err != nil {
		return p, err
	}
	if err := p.chargeItems(b); err != nil {
		return p, err
	}
	p.assign(d, e.mint)

	// What a retry finds.
	if c.IdempotencyKey != "" {
		p.unit.Command = &store.Command{
			ID:      commandID(c.IdempotencyKey),
			Memo:    memo(c.Fingerprint, p),
			Expires: e.clock.Now().Add(idempotencyWindow),
		}
	}
	return p, nil
}

// react adds to the plan all that the command's events bring about. The states that it looked at become preconditions.
func (e *Engine) react(ctx context.Context, d *deployed, a *decider.Admitted, p *plan, b *work.Budget, v *view) error {
	ctx = sandbox.ForCommand(ctx) // States that are looked at are folded as replays all the same.
	holders := e.holding(d, v)
	x, err := d.Expand(ctx, a, decider.Options{
		Timestamp: p.unit.Timestamp, MaxDepth: e.maxDepth, MaxImplied: e.maxImplied, Work: b,
		Lookup: func(ctx context.Context, key j17.Key) (*decider.State, error) { return e.look(ctx, d, key, b, v) },
		Length: func(ctx context.Context, key j17.Key) (uint64, error) {
			n, err := e.length(ctx, d, key, v)
			p.lengths = append(p.lengths, store.Pre{Key: key, Length: n})
			return n, err
		},
		Resolve: func(ctx context.Context, aggregateType, name string) (j17.Key, error) {
			key, absent, err := e.lookUp(ctx, d.env.tenant, d, aggregateType, name)
			p.unit.Fences = append(p.unit.Fences, absent...)
			return key, err
		},
		Holders: holders,
		All:     p.tried,
	})
	if err == nil {
		p.after, err = x.After(ctx)
	}
	p.before, p.failure, p.refusals, p.events, p.unique = x.Before, x.Failure, x.Refusals, x.Events, x.Unique
	for _, key := range x.Looked {
		before := x.Before[key]
		p.unit.Pre = append(p.unit.Pre, store.Pre{Key: key, Length: before.Length, Looked: true, Generation: before.Generation})
	}
	for _, key := range x.Absent {
		p.unit.Pre = append(p.unit.Pre, store.Pre{Key: key})
	}
	if err != nil {
		return err
	}
	p.scheduled = x.Scheduled
	p.write(x.Events[p.own:], nil)
	p.hold(holders)
	return nil
}

// expect compares the lengths that the caller expects with those that a writer with that view sees: whether the spec allows an event comes
// after that.
func (e *Engine) expect(ctx context.Context, d *deployed, p *plan, v *view) error {
	for i := range p.writes {
		w := &p.writes[i]
		if w.Expected == nil {
			continue
		}
		length, err := e.length(ctx, d, w.Key, v)
		if err != nil {
			return err
		}
		if length != *w.Expected {
			if !p.tried {
				e.counts.conflicts.Add(1)
			}
			return p.of.InWrite(conflict(store.StreamConflict{Key: w.Key, Expected: *w.Expected, Actual: length}), i)
		}
	}
	return nil
}

// write adds events to the unit, which happened at a Unix second, or for nil happen when the unit does. What is tagged with that is decided at it.
func (p *plan) write(events []decider.Event, at *int64) {
	if len(events) == 1 && p.unit.Events == nil {
		p.unit.Events = p.oneEvent[:0]
	}
	p.unit.Events = slices.Grow(p.unit.Events, len(events))
	for i := range events {
		o := &events[i]
		if n, ok := p.writeOf(o.Key); ok {
			p.writes[n].last = len(p.unit.Events)
		}
		p.unit.Decided = p.unit.Decided || at == nil && o.Timed()
		p.unit.Events = append(p.unit.Events, store.NewEvent{
			Key: o.Key, Type: o.Type, Data: o.JSON, Metadata: o.Metadata, Timestamp: at, Tags: o.TagsAt(p.timeOf(at)),
		})
	}
}

// timeOf returns when an event of the unit happens that has a time of its own or nil.
func (p *plan) timeOf(at *int64) int64 {
	if at == nil {
		return p.unit.Timestamp
	}
	return *at
}

// writeOf returns the number of the write to an aggregate.
func (p *plan) writeOf(key j17.Key) (int, bool) {
	if len(p.writes) < 2 {
		return 0, len(p.writes) == 1 && p.writes[0].Key == key
	}
	if p.byKey == nil {
		p.byKey = make(map[j17.Key]int, len(p.writes))
		for i := range p.writes {
			p.byKey[p.writes[i].Key] = i
		}
	}
	n, ok := p.byKey[key]
	return n, ok
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
	receipt := Receipt{Writes: make([]Written, len(p.writes)), Implied: len(r.IDs) - p.own}
	for i := range p.writes {
		w := &p.writes[i]
		receipt.Writes[i] = Written{Key: w.Key, IDs: r.IDs[w.From:w.To], Length: r.Lengths[w.last]}
	}
	return receipt
}

// refusal is the error of a plan that was overtaken where the caller named a length or a revision that does not hold. In all other
// cases a new plan from fresh state may succeed, or finds that no entity tag of the caller's matches any more.
func (p *plan) refusal(r *store.Result) error {
	for _, changed := range p.changed {
		for i := range r.Sides {
			changed(&r.Sides[i])
		}
	}
	for i := range p.writes {
		w := &p.writes[i]
		for _, c := range r.Streams {
			if w.Expected != nil && c.Key == w.Key && c.Expected == *w.Expected && c.Actual != c.Expected {
				return p.of.InWrite(conflict(c), i)
			}
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
	for _, tell := range p.entered {
		tell()
	}
	for _, c := range p.after {
		e.keep(stateKey{t, c.Key}, &c.State)
	}
	for i := range p.writes {
		w := &p.writes[i]
		last := r.Lengths[w.To-1]
		due := last/e.every != (last-uint64(w.To-w.From))/e.every
		if due || d.Types[w.Key.Type].Cache {
			e.enqueue(stateKey{t, w.Key})
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

// memo is what is kept with a command's result: the fingerprint of its request, and of its write the number of its own events, that of the
// last event of its aggregate, and the aggregate's id. Where there are several, a 0 and their number stand before, and of each the number
// of its first event and the length of its key as well, with the key in place of the id.
func memo(fingerprint [32]byte, p *plan) []byte {
	b := fingerprint[:]
	if len(p.writes) == 1 {
		w := &p.writes[0]
		b = binary.AppendUvarint(b, uint64(p.own))
		b = binary.AppendUvarint(b, uint64(w.last))
		return append(b, w.Key.ID...)
	}
	b = binary.AppendUvarint(b, 0)
	b = binary.AppendUvarint(b, uint64(len(p.writes)))
	for i := range p.writes {
		w := &p.writes[i]
		key := w.Key.String()
		for _, n := range []int{w.To - w.From, w.last, len(key)} {
			b = binary.AppendUvarint(b, uint64(n))
		}
		b = append(b, key...)
	}
	return b
}

// readMemo returns a plan with what a memo says of a command's writes. aggregateType is that of a single one.
func readMemo(memo []byte, aggregateType string, events int) (*plan, error) {
	ok := true
	number := func(most int) int {
		n, width := binary.Uvarint(memo)
		if ok = ok && width > 0 && n <= uint64(most); !ok {
			return 0
		}
		memo = memo[width:]
		return int(n)
	}
	p := &plan{own: number(events)}
	if p.own > 0 {
		w := planned{&decider.AdmittedWrite{To: p.own}, number(events - 1)}
		w.Key = j17.Key{Type: aggregateType, ID: string(memo)}
		p.writes = []planned{w}
	} else {
		for range number(events) {
			w := planned{&decider.AdmittedWrite{From: p.own}, 0}
			p.own += number(events - p.own)
			w.To, w.last = p.own, number(events-1)
			n := number(len(memo))
			key, known := j17.ParseKey(string(memo[:n]))
			ok, memo = ok && known && w.To > w.From, memo[n:]
			w.Key = key
			p.writes = append(p.writes, w)
		}
	}
	if !ok || p.own == 0 {
		return nil, StorageError(&store.CorruptionError{Where: "the record of an idempotency key", Err: fmt.Errorf("%d own events of %d", p.own, events)})
	}
	return p, nil
}

// replay answers a command that was carried out before.
func (e *Engine) replay(ctx context.Context, d *deployed, c *Command, first *store.Result) (Receipt, error) {
	if len(first.IDs) == 0 {
		return Receipt{}, j17.Errorf(j17.CodeIdempotencyErased, "A request with this idempotency key was carried out before, and what it wrote was erased since. Nothing was written. Use a new key for what is to be written anew.")
	}

	// It is the same request.
	reused := j17.Errorf(j17.CodeIdempotencyReuse, "The idempotency key was used before with a different request. Use a new key for a new operation.")
	if len(first.Memo) <= len(c.Fingerprint) || [32]byte(first.Memo) != c.Fingerprint {
		return Receipt{}, reused
	}
	p, err := readMemo(first.Memo[len(c.Fingerprint):], c.Writes[0].Type, len(first.IDs))
	if err != nil {
		return Receipt{}, err
	}
	if w := &c.Writes[0]; !c.Several && !w.New {
		// The aggregate, which the fingerprint does not have, may be called by another of its names.
		key, err := e.resolve(ctx, c.Tenant, d, w.Type, w.ID)
		if err != nil && j17.CodeOf(err) != j17.CodeAggregateNotFound && j17.CodeOf(err) != j17.CodeInvalidIdentifier {
			return Receipt{}, err
		}
		if key.ID != p.writes[0].Key.ID {
			return Receipt{}, reused
		}
	}

	// The names that its aggregates have now are those that they had then.
	r := p.receipt(first)
	r.Replayed = true
	for i := range r.Writes {
		w := &r.Writes[i]
		if typ := d.Types[w.Key.Type]; typ == nil || !decider.Named(typ) || w.Key.ID == "" {
			continue
		}
		if w.Names, err = e.Names(ctx, c.Tenant, d.Decider, w.Key); err != nil {
			return Receipt{}, err
		}
	}
	return r, nil
}
