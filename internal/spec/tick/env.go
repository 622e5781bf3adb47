package tick

import (
	"slices"

	"j17/internal/value"
	"j17/internal/work"
)

// MaxState is how many bytes a state may have as JSON, with the members that the engine adds. An operation that would make
// it larger changes nothing, and so may the state that custom code returns not be larger.
const MaxState = 8 << 20

// MaxUnstamped is how many bytes a state may have as JSON before the engine adds its members.
const MaxUnstamped = MaxState - 96

const (
	// maxState is how many bytes operations may fill. The members that the engine adds fit into the rest.
	maxState = MaxUnstamped
	// maxDepth is how deep a value that is copied from the state may be nested.
	maxDepth = 128
)

// maxHits is how many positions an Env that waits for its next event keeps room for.
const maxHits = 4096

// Scope is the list of names that an expression may use beside the event and the state: bindings ("$item") and
// members of "$" ("$.id").
type Scope []string

// Env is what predicates and templates are evaluated in: an event, a state and the values of a scope's names. It
// is for one goroutine.
type Env struct {
	scope Scope
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
	// work is what everything is charged to.
	work *work.Budget
	// total is the size of the whole state, as it is now.
	total int
	// look finds elements for predicates outside of handlers, where there is no editor.
	look value.Lookups
}

// Env returns the environment of one event, with all names of the scope missing. state is what "$.state" and "@"
// stand for, and b what all work is charged to.
func (s Scope) Env(ev *Event, state value.Value, b *work.Budget) *Env {
	return &Env{scope: s, event: ev, state: state, current: state, work: b, slots: make([]value.Value, len(s), len(s)+2)}
}

// Set gives a name of the scope its value.
func (e *Env) Set(name string, v value.Value) {
	if i := slices.Index(e.scope, name); i >= 0 {
		e.slots[i] = v
	}
}

// Renew makes the environment that of another event, with all names of the scope missing. What it knows about arrays that it
// has searched stays.
func (e *Env) Renew(ev *Event, state value.Value) {
	clear(e.slots)
	e.event, e.state, e.current = ev, state, state
}

// begin makes room for the bindings of an expression.
func (e *Env) begin(slots int) {
	if n := slots - len(e.slots); n > 0 {
		e.slots = append(e.slots, make([]value.Value, n)...)
	}
}

// reset lets go of everything that belongs to one event.
func (e *Env) reset() {
	e.event, e.ed, e.faults, e.work, e.told = nil, nil, nil, nil, 0
	e.state, e.current = value.Value{}, value.Value{}
	clear(e.slots)
	e.data.reset()
	e.metadata.reset()
	if cap(e.hits) > maxHits {
		e.hits = nil
	}
}

// run applies operations one after the other, which cost a unit each beside what they charge themselves.
func (e *Env) run(ops []operation) {
	if !e.work.Spend(len(ops)) {
		return
	}
	for _, op := range ops {
		op.apply(e)
		if n := e.ed.Moved(); n > 0 && !e.work.Spend(n/movedPerUnit) {
			return
		}
	}
}

// movedPerUnit is how many elements are copied in the time of one unit.
const movedPerUnit = 4

// spend takes n units of work from what is left and reports whether there were as many. If not, everything ends.
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
		e.spend(len(d.raw) / parsedPerUnit)
	}
	return d.Value()
}

// parsedPerUnit is how many bytes are parsed in the time of one unit.
const parsedPerUnit = 8

// keep gives up what the editor owns if v, which is about to be kept in a second place, is a container.
func (e *Env) keep(v value.Value) {
	if e.ed != nil && isContainer(v) {
		e.ed.Freeze()
	}
}

func isContainer(v value.Value) bool { return v.Kind() == value.Array || v.Kind() == value.Object }
