package engine

import (
	"context"
	"slices"

	"j17"
	"j17/internal/code/sandbox"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// plan is one atomic append that carries out a command or a unit of a recording: what was decided, what the commit
// checks, and the functions that are called afterwards.
type plan struct {
	unit store.Append
	decision
	checks
	notices
}

// decision is the result of deciding a command.
type decision struct {
	// of is the command, nil for a recording.
	of *decider.Admitted
	// events are the events of the unit. For a recording they are in its file.
	events []decider.Event
	// writes are the writes of the command, own is the number of its own events, which come first. A recording has
	// neither.
	writes []plannedWrite
	own    int
	// byKey has the indexes of writes by key; it is made on first use if there are several.
	byKey map[j17.Key]int
	// oneWrite and oneEvent save allocations if there is only one.
	oneWrite [1]plannedWrite
	oneEvent [1]store.NewEvent
	// after has the states after the commit that planning had to compute.
	after []*decider.Computed
	// scheduled are the events that are to come later.
	scheduled []decider.Scheduled
	// charged is how many of the unit's side writes were charged to the budget.
	charged int
	// failure describes why the plan failed because of an implied event, if it did.
	failure *decider.ImplicationFailure
	// tried is set for a dry run: refusals then has all failed guards, and consequences what the effects would do.
	tried        bool
	refusals     []error
	consequences part.Consequences
}

// checks has what a plan was decided on, and explains a commit that was refused because that has changed.
type checks struct {
	// before has the states that were read.
	before map[j17.Key]*decider.State
	// unique has the unique values that were read or changed, nil for none.
	unique *decider.Values
	// lengths are those that were read without a state. They are not preconditions of the commit.
	lengths []store.Pre
	// side are the caller's side writes. A conflict with them is the caller's to resolve: planning again would change
	// nothing.
	side []store.Side
	// full return the error of the command if the additions of its effects exceed a bound.
	full []func(*store.SideConflict) error
}

// notices are the functions that are called once the outcome of the commit is known.
type notices struct {
	// changed are called with each side item that had changed: caches drop it before the command is decided again.
	changed []func(*store.SideConflict)
	// stored are called with the positions of the events, entered when the events are stored.
	stored  []func([]j17.StreamID)
	entered []func()
}

// plannedWrite is the part of a plan that concerns one aggregate of the command.
type plannedWrite struct {
	*decider.AdmittedWrite
	// last is the index in the unit of the aggregate's last event, which may be an implied one.
	last int
}

// plan turns an admitted command into an append. Streams that it reads become preconditions; others cannot conflict.
// All work is charged to the budget.
func (x *execution) plan(ctx context.Context) (*plan, error) {
	x.b.Release() // the memory of states that an earlier plan has read
	p := &plan{}
	p.of, p.own, p.tried = x.a, len(x.a.Events), x.tried
	if p.writes = p.oneWrite[:]; len(x.a.Writes) != 1 {
		p.writes = make([]plannedWrite, len(x.a.Writes))
	}
	p.unit.Timestamp, p.unit.Decided = x.d.env.now(), x.view != nil || x.a.Reacts()

	// Add the caller's expectations.
	for i := range x.a.Writes {
		w := &x.a.Writes[i]
		p.writes[i].AdmittedWrite = w
		if w.Expected != nil {
			p.unit.Pre = append(p.unit.Pre, store.Pre{Key: w.Key, Length: *w.Expected})
		}
	}
	if len(x.c.IfMatch) > 0 {
		key := x.a.Writes[0].Key
		if err := x.view.Settle(ctx, key); err != nil {
			return nil, err
		}
		head, err := x.matching(ctx, key)
		if err != nil {
			return nil, err
		}
		p.unit.Pre = append(p.unit.Pre, store.Pre{
			Key: key, Length: head.Length, Looked: true, Generation: head.Generation,
		})
	}

	// Add the events, those that they imply, and the side writes that come with them.
	p.events = x.a.Events
	p.write(x.a.Events, nil)
	if x.a.Reacts() || len(x.a.Conditions) > 0 {
		if err := x.expect(ctx, p); err != nil {
			return p, err
		}
		if err := x.absent(ctx, p); err != nil {
			return p, err
		}
	}
	if x.a.Reacts() {
		if err := x.react(ctx, p); err != nil {
			return p, err
		}
	}
	if err := p.chargeEvents(x.b); err != nil {
		return p, err
	}
	if err := p.chargeItems(x.b); err != nil {
		return p, err
	}
	if err := x.effects(ctx, p); err != nil {
		return p, err
	}
	if err := p.derive(ctx, x.d, p.events); err != nil {
		return p, err
	}
	if err := p.chargeItems(x.b); err != nil {
		return p, err
	}
	p.assign(x.d, x.e.mint)

	// Add the record for a retry.
	if x.c.IdempotencyKey != "" {
		p.unit.Command = &store.Command{
			ID:      commandID(x.c.IdempotencyKey),
			Memo:    memo(x.c.Fingerprint, p),
			Expires: x.e.clock.Now().Add(idempotencyWindow),
		}
	}
	return p, nil
}

// react adds to the plan everything that the command's events imply. The states that it has read become preconditions.
func (x *execution) react(ctx context.Context, p *plan) error {
	ctx = sandbox.ForCommand(ctx) // States that are read are folded as replays all the same.
	holders := x.d.holding(x.view)
	all, err := x.d.Expand(ctx, x.a, decider.Options{
		Timestamp: p.unit.Timestamp, MaxDepth: x.e.maxDepth, MaxImplied: x.e.maxImplied, Work: x.b,
		Lookup: func(ctx context.Context, key j17.Key) (*decider.State, error) { return x.look(ctx, key) },
		Length: func(ctx context.Context, key j17.Key) (uint64, error) {
			n, err := x.length(ctx, key)
			p.lengths = append(p.lengths, store.Pre{Key: key, Length: n})
			return n, err
		},
		Resolve: func(ctx context.Context, aggregateType, name string) (j17.Key, error) {
			key, absent, err := x.e.names.lookUp(ctx, x.d.env.tenant, x.d, aggregateType, name)
			p.unit.Fences = append(p.unit.Fences, absent...)
			return key, err
		},
		Holders: holders,
		All:     p.tried,
	})
	if err == nil {
		p.after, err = all.After(ctx)
	}
	p.before, p.failure, p.refusals, p.events, p.unique = all.Before, all.Failure, all.Refusals, all.Events, all.Unique
	for _, key := range all.Looked {
		before := all.Before[key]
		p.unit.Pre = append(p.unit.Pre, store.Pre{
			Key: key, Length: before.Length, Looked: true, Generation: before.Generation,
		})
	}
	for _, key := range all.Absent {
		p.unit.Pre = append(p.unit.Pre, store.Pre{Key: key})
	}
	if err != nil {
		return err
	}
	p.scheduled = all.Scheduled
	p.write(all.Events[p.own:], nil)
	p.hold(holders)
	return nil
}

// expect compares the lengths that the caller expects with those that the writer sees, before the events are checked
// against the spec.
func (x *execution) expect(ctx context.Context, p *plan) error {
	for i := range p.writes {
		w := &p.writes[i]
		if w.Expected == nil {
			continue
		}
		length, err := x.length(ctx, w.Key)
		if err != nil {
			return err
		}
		if length != *w.Expected {
			if !p.tried {
				x.e.counts.conflicts.Add(1)
			}
			return p.of.InWrite(conflict(store.StreamConflict{Key: w.Key, Expected: *w.Expected, Actual: length}), i)
		}
	}
	return nil
}

// matching returns the present head of the aggregate if it has one of the command's entity tags; otherwise the error is
// CodePreconditionFailed.
func (x *execution) matching(ctx context.Context, key j17.Key) (store.Head, error) {
	heads, err := x.e.store.Heads(ctx, x.c.Tenant, []j17.Key{key})
	if err != nil {
		return store.Head{}, store.UserError(err)
	}
	present := x.d.Program(key.Type).EntityTag(heads[0].Length, heads[0].Generation)
	for _, tag := range x.c.IfMatch {
		if tag == present || (tag == "*" && heads[0].Length > 0) {
			return heads[0], nil
		}
	}
	return store.Head{}, preconditionFailed()
}

// write adds events to the unit. at is the Unix second at which they happened, nil for the time of the unit. If their
// tags depend on the time of the unit, it counts as decided at that time.
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
		typ, data, metadata := o.Kept()
		p.unit.Events = append(p.unit.Events, store.NewEvent{
			Key: o.Key, Type: typ, Data: data, Metadata: metadata, Timestamp: at, Tags: o.TagsAt(p.timeOf(at)),
		})
	}
}

// timeOf returns the Unix second of an event of the unit: at, or for nil the time of the unit.
func (p *plan) timeOf(at *int64) int64 {
	if at == nil {
		return p.unit.Timestamp
	}
	return *at
}

// writeOf returns the index of the write to an aggregate, false if there is none.
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

func (p *plan) receipt(r *store.Result) Receipt {
	receipt := Receipt{Writes: make([]Written, len(p.writes)), Implied: len(r.IDs) - p.own}
	for i := range p.writes {
		w := &p.writes[i]
		receipt.Writes[i] = Written{Key: w.Key, IDs: r.IDs[w.From:w.To], Length: r.Lengths[w.last]}
	}
	return receipt
}
