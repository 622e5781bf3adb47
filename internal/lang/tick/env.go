package tick

import (
	"fmt"
	"slices"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
)

// MaxState is how many bytes a state may have as JSON, with the members that the engine adds. An operation that would
// make it larger changes nothing, and a larger state returned by custom code is refused.
const MaxState = 8 << 20

// MaxValues is how many values a state may be made of: members, elements and all that is in them, the state itself
// included. It bounds the cost of each element, however small the elements are.
const MaxValues = 1 << 20

// Largest is the weight that operations and custom code may reach. The members that the engine adds fit into the rest.
func Largest() value.Weight { return value.Weight{Bytes: MaxState - 96, Values: MaxValues - 2} }

const (
	// maxDepth is how deep a value that is copied from the state may be nested.
	maxDepth = 128
)

// maxHits is how many positions an Env keeps room for between events.
const maxHits = 4096

// Env is what expressions are evaluated in: an event, a state, the values of bindings and what "$" has beside the
// event. It is for one goroutine.
type Env struct {
	event *Event
	// state is "$.state", current is "@".
	state, current value.Value
	// slots has the values of bindings.
	slots []value.Value

	// The rest is used by handlers only.
	ed       *value.Editor
	faults   func(Fault)
	told     int
	data     picked
	metadata picked
	hits     []int
	// strict reports that the first operation that does not fit ends them all: broken says why it did not.
	strict bool
	broken *Misfit
	// work is what everything is charged to.
	work *work.Budget
	// misfit says why the operator that was last evaluated has no value, nil where all have one. The code that decides
	// what follows clears it. Where nobody asks for the reason it is untold.
	misfit *OperandError
	untold OperandError
	// total is the weight of the whole state, as it is now.
	total value.Weight

	// The rest is used outside of handlers only, where there is no editor.

	// look finds elements of arrays.
	look value.Lookups
	// members is what "$" has beside the parts of an event; more is the same as given.
	members value.Value
	more    []value.Member
	// reads are the states of other aggregates, by their places in the scope's list.
	reads []value.Value
	// left is how many bytes strings that are put together may still have; below 0 there were too many.
	left int
	// views are what expressions of steps read of an event in an older generation.
	views *viewed
}

// NewEnv returns an environment in which all work is charged to b. It is empty: see Renew.
func NewEnv(b *work.Budget) *Env { return &Env{work: b} }

// Renew prepares the environment for an event, without a state, bindings, reads and more members of "$". What it knows
// about arrays that it has searched is kept.
func (e *Env) Renew(ev *Event) {
	clear(e.slots)
	e.event, e.state, e.current, e.reads = ev, value.Value{}, value.Value{}, nil
	e.Extend(nil)
}

// SetState sets what "$.state" and "@" stand for. It need only be done for expressions that read the state.
func (e *Env) SetState(v value.Value) { e.state, e.current = v, v }

// Bind gives the binding at a place of the scope's list its value.
func (e *Env) Bind(slot int, v value.Value) {
	e.begin(slot + 1)
	e.slots[slot] = v
}

// SetReads sets what "$.reads" leads to, by the places of the scope's list: states, null where an aggregate has no
// events, missing for what no expression looks at. The slice must not change until the environment is renewed.
func (e *Env) SetReads(states []value.Value) { e.reads = states }

// enriched is the member of "$" that has all that Extend was given.
const enriched = "enriched"

// Extend adds members to "$", which hide the event's own. All of them together are "$.enriched", unless one of them has
// that name.
func (e *Env) Extend(more []value.Member) {
	e.more, e.members = more, value.Value{}
	if more == nil {
		return
	}
	e.members = value.ObjectValue(more...)
	if e.members.Get(enriched).IsMissing() {
		e.members = value.ObjectValue(append(slices.Clip(more), value.Member{Key: enriched, Value: e.members})...)
	}
}

// SetDocument sets what "$" is in scopes that are plain.
func (e *Env) SetDocument(v value.Value) { e.members = v }

// whole returns "$" as templates see it: the event, its state, and the added members.
func (e *Env) whole() value.Value {
	members := []value.Member{
		{Key: "key", Value: value.StringValue(e.event.Key)},
		{Key: "id", Value: value.StringValue(e.event.id())},
		{Key: "type", Value: value.StringValue(e.event.Type)},
		{Key: "data", Value: e.parse(&e.event.Data)},
		{Key: "metadata", Value: e.parse(&e.event.Metadata)},
		{Key: "state", Value: e.state},
	}
	own := members
	for _, m := range e.more {
		if !slices.ContainsFunc(own, func(o value.Member) bool { return o.Key == m.Key }) {
			members = append(members, m)
		}
	}
	return value.ObjectValue(slices.DeleteFunc(members, func(m value.Member) bool { return m.Value.IsMissing() })...)
}

// begin makes room for the bindings of an expression.
func (e *Env) begin(slots int) {
	if n := slots - len(e.slots); n > 0 {
		e.slots = append(e.slots, make([]value.Value, n)...)
	}
}

// reset releases everything that belongs to one event.
func (e *Env) reset() {
	e.event, e.ed, e.faults, e.work, e.told, e.misfit = nil, nil, nil, nil, 0, nil
	e.strict, e.broken = false, nil
	e.state, e.current = value.Value{}, value.Value{}
	clear(e.slots)
	e.data.reset()
	e.metadata.reset()
	if cap(e.hits) > maxHits {
		e.hits = nil
	}
}

// run applies operations one after the other, to the first one that does not fit where that ends them. Each costs a
// unit beside what it charges itself.
func (e *Env) run(ops []operation) {
	if !e.work.Spend(len(ops)) {
		return
	}
	for _, op := range ops {
		op.apply(e)
		if e.misfit != nil {
			op.origin().unfit(e)
		}
		if e.broken != nil {
			return
		}
		if n := e.ed.Moved(); n > 0 && !e.work.Spend(n/movedPerUnit) {
			return
		}
	}
}

// movedPerUnit is how many elements are copied in the time of one unit.
const movedPerUnit = 4

// room is by how much the state may grow.
func (e *Env) room() value.Weight { return Largest().Minus(e.total) }

// named is a member whose key may come from data, in a message. Why data cannot be upcast is told without any of it.
func (e *Env) named(key string) string {
	if e.strict {
		return "the member"
	}
	return diag.Quote(key)
}

// misfitWork is what it takes to say why an operator has no value.
const misfitWork = 16

// misfits notes that operands of the operator at a place do not fit, and returns what an evaluation without a value
// returns.
func (e *Env) misfits(at diag.Pointer, format string, args ...any) (value.Value, bool) {
	switch {
	case !e.spend(misfitWork):
	case e.ed != nil && !e.strict && (e.faults == nil || e.told >= maxFaults):
		e.misfit = &e.untold
	default:
		e.misfit = &OperandError{Pointer: at, Message: fmt.Sprintf(format, args...)}
	}
	return value.Value{}, false
}

// forgiven reports whether operands did not fit, and forgets it.
func (e *Env) forgiven() bool {
	was := e.misfit != nil
	e.misfit = nil
	return was
}

// spend takes n units of work from the budget and reports whether there were as many. If not, evaluation ends.
func (e *Env) spend(n int) bool { return e.work.Spend(n) }

// lookups returns what finds elements of arrays.
func (e *Env) lookups() *value.Lookups {
	if e.ed != nil {
		return e.ed.Lookups()
	}
	return &e.look
}

// contains reports whether an array has an element that equals v. ok is false when the budget has ended.
func (e *Env) contains(array, v value.Value) (has, ok bool) {
	var buf [1]int
	hits, n := e.lookups().Find(array, "", nil, v, true, buf[:0])
	return len(hits) > 0, e.spend(1 + n)
}

// parse returns the value of one of the event's documents.
func (e *Env) parse(d *Document) value.Value {
	if !d.parsed {
		var err error
		if d.tree, err = d.read(e.work); err != nil {
			e.work.End(err)
		}
		d.parsed = true
		e.spend(parseWork(d.tree.Weight()))
	}
	return d.tree
}

// parseWork is what it takes to parse something of that weight.
func parseWork(w value.Weight) int { return w.Bytes/work.BytesPerUnit + parsedUnits*w.Values }

// parsedUnits is what it takes to parse a value, beside its bytes.
const parsedUnits = 2

// keep makes sure that v, which is part of the state and is about to be kept in a second place, does not change there.
func (e *Env) keep(v value.Value) {
	if e.ed != nil {
		e.spend(e.ed.Release(v) / weighedPerUnit)
	}
}

// keepMade is keep for a value that was made of parts of the state.
func (e *Env) keepMade(v value.Value) {
	if e.ed != nil && isContainer(v) {
		e.ed.Freeze()
	}
}

func isContainer(v value.Value) bool { return v.Kind() == value.Array || v.Kind() == value.Object }
