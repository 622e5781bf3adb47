package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/code/sandbox"
	"j17/internal/core/decider"
	"j17/internal/core/fold"
	"j17/internal/core/part"
	"j17/internal/lang/diag"
	"j17/internal/storage/store"
)

// Recorder stores events that happened before, here or elsewhere, as they were: with their time, their actors and the
// names of their aggregates. Nothing reacts to them, since their effects happened back then. It works with the spec
// that was deployed when it was made, and counts the work of trying its events. It is for one goroutine.
type Recorder struct {
	e *Engine
	d *deployed
	// spent is what trying the events has cost so far, in units of package work.
	spent int64
}

// Past is a unit of events that are stored together.
type Past struct {
	// ID names the unit, so that it is stored once.
	ID     store.CommandID
	Events []PastEvent
	// Side is written in the same commit.
	Side []store.Side
}

// PastEvent is one event that happened before.
type PastEvent struct {
	*decider.Examined
	// Names are the names that the aggregate had; empty ones are generated if its type has such names.
	Names j17.Names
}

// Recorder returns a recorder of a tenant's past.
func (e *Engine) Recorder(t j17.Tenant) (*Recorder, error) {
	d, err := e.deployed(t)
	if err != nil {
		return nil, err
	}
	return &Recorder{e: e, d: d}, nil
}

// Decider returns the decider that examines events to be stored.
func (r *Recorder) Decider() *decider.Decider { return r.d.Decider }

// Now returns the time, in Unix seconds, of events that have no time of their own.
func (r *Recorder) Now() int64 { return r.d.env.now() }

// Position returns the position that an event stored now gets, if the feed has nothing there or later.
func (r *Recorder) Position() j17.StreamID { return j17.StreamID{Ms: r.e.clock.Now().UnixMilli()} }

// Current reports whether the recorder's spec is still deployed.
func (r *Recorder) Current() bool {
	d, err := r.e.deployed(r.d.env.tenant)
	return err == nil && d == r.d
}

// Fences returns fences that hold as long as the recorder's spec is deployed, for callers that store events themselves.
func (r *Recorder) Fences() []store.Fence { return r.d.fences }

// Derivation is the derived data of events, for callers that store the events themselves.
type Derivation struct {
	Sides []store.Side
	// Stored have to be called once events and Sides are stored, which may only happen while Fences hold. If a fence
	// does not hold, all of Changed have to be called.
	Stored  []func()
	Fences  []store.Fence
	Changed []func(*store.SideConflict)
}

// Derived returns the derived data of events.
func (r *Recorder) Derived(ctx context.Context, events []decider.Event) (Derivation, error) {
	sides, entering, err := r.d.derived(ctx, events)
	return Derivation{sides, entering.Stored, entering.Required, entering.Changed}, err
}

// Holding returns the holders of unique values, nil if there are none.
func (r *Recorder) Holding() part.Holding { return r.d.holding(nil) }

// Exchanged returns the writes for a value that an aggregate takes or gives back; own is the value that it has held so
// far, nil for none.
func (r *Recorder) Exchanged(
	ctx context.Context, key j17.Key, x *decider.Exchange, own *[32]byte,
) ([]store.Side, error) {
	if h := r.d.holding(nil); h != nil {
		return h.Exchanged(ctx, key, x, own)
	}
	return nil, nil
}

// Named returns the writes for the names of an aggregate. A handle that is "" is generated if its type has handles; a
// public id is not.
func (r *Recorder) Named(key j17.Key, names j17.Names) (sides []store.Side) {
	typ := r.d.Types[key.Type]
	if typ.Handle != "" {
		sides = appendName(sides, handles, handleIndex, key, cmp.Or(names.Handle, r.e.mint.Handle(typ.Handle)))
	}
	if number, ok := r.d.Number(names.PublicID); ok && typ.Sequence {
		sides = appendName(sides, numbers, numberIndex, key, number)
	}
	return sides
}

// Numbered returns the writes for the public id of an aggregate, by its number.
func (r *Recorder) Numbered(key j17.Key, number uint64) []store.Side {
	return appendName(nil, numbers, numberIndex, key, strconv.FormatUint(number, 10))
}

// appendName appends the writes for one name of an aggregate.
func appendName(sides []store.Side, space, index store.Space, key j17.Key, name string) []store.Side {
	return append(sides,
		store.Side{Op: store.Put, Space: space, Key: key.String(), Value: []byte(name)},
		store.Side{Op: store.Put, Space: index, Key: name, Value: []byte(key.String())})
}

// Counted returns the write for the highest number of a public id.
func (r *Recorder) Counted(number uint64) store.Side {
	return store.Side{Op: store.Put, Space: numberIndex, Key: numberLatest, Value: strconv.AppendUint(nil, number, 10)}
}

// Storing calls do, which stores events without the recorder, when no Hold is under way.
func (r *Recorder) Storing(do func() error) error {
	r.d.env.storing.RLock()
	defer r.d.env.storing.RUnlock()
	return do()
}

// Loaded counts events that were stored without the recorder.
func (r *Recorder) Loaded(events int) { r.e.counts.events.Add(uint64(events)) }

// known reports whether a unit was stored before and its id is not forgotten yet.
func (r *Recorder) known(ctx context.Context, id store.CommandID) (bool, error) {
	first, err := r.e.store.Command(ctx, r.d.env.tenant, id)
	return first != nil, store.UserError(err)
}

// Reserve ensures that from now on no aggregate is given a number up to that one. Numbers given out before are already
// stored.
func (r *Recorder) Reserve(ctx context.Context, number uint64) error {
	side := store.Side{
		Op: store.Raise, Space: numberIndex, Key: numberLatest, Value: strconv.AppendUint(nil, number, 10),
	}
	return store.UserError(r.e.store.Write(ctx, r.d.env.tenant, []store.Side{side}))
}

// Owners are the keys of the aggregates that names belong to, "" if a name is free.
type Owners struct{ Handle, PublicID string }

// Owners returns the owners of names.
func (r *Recorder) Owners(ctx context.Context, names j17.Names) (Owners, error) {
	var o Owners
	var err error
	if names.Handle != "" {
		if o.Handle, err = r.e.names.name(ctx, r.d.env.tenant, handleIndex, names.Handle); err != nil {
			return o, err
		}
	}
	if number, ok := r.d.Number(names.PublicID); ok {
		o.PublicID, err = r.e.names.name(ctx, r.d.env.tenant, numberIndex, number)
	}
	return o, err
}

// Store stores a unit, or finds that it is stored already. An error that one of its events causes has the number of
// that event; if a condition of its side writes does not hold, the error is CodeConflict with a *store.SideConflict as
// its cause.
func (r *Recorder) Store(ctx context.Context, u *Past) (known bool, err error) {
	for deadline := r.e.clock.Now().Add(r.e.writeWait); ; {
		// Decide from what the store has now.
		p, err := r.plan(ctx, u)
		if code := j17.CodeOf(err); code == j17.CodeConflict || code == j17.CodeNotUnique {
			// The conflict may be with the same unit, stored by somebody else.
			if known, failure := r.known(ctx, u.ID); known || failure != nil {
				return known, failure
			}
		}
		if err != nil {
			return false, err
		}
		if err := r.try(ctx, u, p); err != nil {
			return false, err
		}

		// Store it, or find that another writer was faster.
		result, err := r.d.append(ctx, &p.unit)
		if errors.Is(err, errRedeployed) {
			return false, j17.Errorf(j17.CodeConflict, "Another spec was deployed while the file was stored, and the rest of it is to be checked against that one. Import the file again.")
		}
		if err != nil {
			return false, err
		}
		switch result.Outcome {
		case store.Committed:
			r.d.committed(p, &result)
			return false, nil
		case store.Duplicate:
			return true, nil
		case store.Conflict:
			if err := p.refusal(&result); err != nil {
				return false, err
			}
			r.e.counts.replanned.Add(1)
		case store.TooEarly: // the next plan is for a later time
		}
		if !r.e.clock.Now().Before(deadline) {
			r.e.counts.busy.Add(1)
			return false, j17.Errorf(j17.CodeBusy, "Others write to the aggregates of the file, or take their names, while it is stored. Import the file again: it goes on where it was.")
		}
	}
}

// plan turns a unit into an append, from what the store has now.
func (r *Recorder) plan(ctx context.Context, u *Past) (*plan, error) {
	p := &plan{}
	p.side = u.Side
	p.unit.Timestamp, p.unit.Decided, p.unit.Side = r.Now(), true, slices.Clip(u.Side)
	p.unit.Command = &store.Command{ID: u.ID, Expires: r.e.clock.Now().Add(idempotencyWindow)}

	// Collect the events and their aggregates.
	var keys []j17.Key
	var events []decider.Event
	first := map[j17.Key]*PastEvent{}
	for i := range u.Events {
		ev := &u.Events[i]
		if first[ev.Key] == nil {
			first[ev.Key] = ev
			keys = append(keys, ev.Key)
		}
		p.write(ev.Events, ev.Timestamp)
		events = append(events, ev.Events...)
	}
	if err := p.derive(ctx, r.d, events); err != nil {
		return nil, err
	}
	heads, err := r.e.store.Heads(ctx, r.d.env.tenant, keys)
	if err != nil {
		return nil, store.UserError(err)
	}

	// Add the preconditions on the aggregates, and their names.
	last := make(map[j17.Key]int64, len(keys))
	for i, key := range keys {
		p.unit.Pre = append(p.unit.Pre, store.Pre{
			Key: key, Length: heads[i].Length, Looked: true, Generation: heads[i].Generation,
		})
		last[key] = heads[i].LastTime
		p.unit.Assign = append(p.unit.Assign, r.names(key, first[key].Names)...)
	}

	// Unique values that the events take must be free.
	if err := r.exchange(ctx, u, p); err != nil {
		return nil, err
	}

	// Time must not run backward in an aggregate.
	for i := range u.Events {
		key, at := u.Events[i].Key, p.timeOf(p.unit.Events[i].Timestamp)
		if at < last[key] {
			return nil, j17.InEvent(j17.Errorf(j17.CodeConflict, "the event lies before the last one of %s, at %d: somebody else has written to the aggregate meanwhile, or an event without a time in front of it happens now", key, last[key]), i)
		}
		last[key] = at
	}
	return p, nil
}

// exchange lets the events of a unit, in order, take unique values and give them back.
func (r *Recorder) exchange(ctx context.Context, u *Past, p *plan) error {
	holding := r.Holding()
	var after *decider.Values
	for i := range u.Events {
		o := &u.Events[i].Events[0]
		if len(o.Exchanges) == 0 || holding == nil {
			continue
		}
		if after == nil {
			after = decider.NewValues(holding)
		}
		taken, holder, err := after.Apply(ctx, o.Key, o.Exchanges)
		if err != nil {
			return err
		}
		if taken != nil {
			return j17.InEvent(decider.NotUnique(taken, decider.RefusalDetails{
				Key: o.Key.String(), EventType: o.Type, Holder: holder.String(),
			}), i)
		}
	}
	p.unique = after
	p.hold(holding)
	return nil
}

// names returns the assignments for the names of an aggregate.
func (r *Recorder) names(key j17.Key, names j17.Names) []store.Assignment {
	var all []store.Assignment
	typ := r.d.Types[key.Type]
	if typ.Handle != "" {
		all = append(all, store.Assignment{
			Space: handles, Owner: key.String(), Index: handleIndex,
			Value: cmp.Or(names.Handle, r.e.mint.Handle(typ.Handle)),
		})
	}
	if typ.Sequence {
		a := store.Assignment{Space: numbers, Owner: key.String(), Index: numberIndex, Counter: numberLatest}
		if number, ok := r.d.Number(names.PublicID); ok {
			a.Value, a.Counter = number, ""
		}
		all = append(all, a)
	}
	return all
}

// maxTrying bounds the work of trying the events of one import, in units of package work: many seconds.
const maxTrying = 64 * work.Replay

// mostTried bounds the work of trying one event: less than that of a replay, which may have to compute again what is
// known here.
const mostTried = work.Replay / 2

// try applies the events of a unit whose handlers may exceed the work of a replay, and the unit's other events of their
// aggregates: a stored event that cannot be replayed would make its aggregate unreadable for good. It uses the states
// that the plan expects.
func (r *Recorder) try(ctx context.Context, u *Past, p *plan) error {
	// Find the aggregates.
	states := map[j17.Key]*decider.Computed{}
	for i := range u.Events {
		o := &u.Events[i].Events[0]
		if o.Spec != nil && o.Spec.Handler != nil && o.Spec.Handler.Heavy(len(o.JSON)+len(o.Metadata)) {
			states[o.Key] = nil
		}
	}
	if len(states) == 0 {
		return nil
	}

	// Take their states as the plan expects them.
	for _, pre := range p.unit.Pre {
		if _, ok := states[pre.Key]; !ok {
			continue
		}
		f := r.d.Program(pre.Key.Type).First()
		if pre.Length > 0 {
			var err error
			if f, err = r.e.states.State(
				ctx, r.d.env.tenant, r.d.Program(pre.Key.Type), pre.Key,
				fold.Version{Length: pre.Length, Generation: pre.Generation}, false, false,
			); err != nil {
				return store.UserError(err)
			}
			if f.Length != pre.Length {
				return nil // somebody else has written to it, so the unit will be planned again
			}
		}
		states[pre.Key] = &decider.Computed{Key: pre.Key, State: *f, Editor: value.NewEditor()}
	}

	// Apply the events. Each may cost at most mostTried, and all of the import at most maxTrying.
	b, replaying := work.New(ctx, work.Replay), sandbox.ForReplay(ctx)
	for i := range u.Events {
		o := &u.Events[i].Events[0]
		s := states[o.Key]
		if s == nil {
			continue
		}
		at := p.timeOf(p.unit.Events[i].Timestamp)
		if r.spent >= maxTrying {
			return r.untried(u, i)
		}
		b.Renew(min(mostTried, maxTrying-r.spent))
		err := r.d.Program(o.Key.Type).Apply(replaying, &s.State, s.Editor, o.Stored(at), b, nil)
		r.spent += b.Spent()
		switch {
		case err == nil:
		case j17.CodeOf(err) == j17.CodeWorkLimit:
			return r.untried(u, i)
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			// An error of custom code does not refuse a past event. The next deployment shows what a fold makes of it.
			delete(states, o.Key)
			continue
		}
		s.State.Loose += len(o.JSON)
	}

	// The results are the states after the commit.
	for _, s := range states {
		p.after = append(p.after, s)
	}
	return nil
}

// untried is the error for an event that cannot be applied within its limits.
func (r *Recorder) untried(u *Past, i int) error {
	o := &u.Events[i].Events[0]
	place := diag.Pointer("/aggregate_types").Key(o.Key.Type).Key("events").Key(o.Type).Key("handler")
	out := j17.Errorf(j17.CodeWorkLimit, "the handler at %s takes more work than one event may. Deploy a handler that does less, or leave the event out", place)
	if r.spent >= maxTrying {
		out.Message = "the handlers of the events so far have taken all the work that one import may. Import the rest in another file, or the same file again, which goes on where it was"
	}
	out.Details = decider.WorkDetails{Key: o.Key.String(), EventType: o.Type, Pointer: place}
	return j17.InEvent(out, i)
}
