package tick

import (
	"fmt"
	"slices"

	"j17/internal/value"
	"j17/internal/work"
)

// Limits of what one event may cost. They count what a handler does, not how long it takes, so that every replay
// decides alike.
const (
	// maxCopied is how much JSON, in bytes, may be copied from the state, or into several elements.
	maxCopied = 16 << 20
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
	data     picked
	metadata picked
	hits     []int
	// work is what everything is charged to.
	work *work.Budget
	// copies is what is left of maxCopied.
	copies int
	// problem says which limit made an evaluation stop.
	problem string
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

// begin makes room for the bindings of an expression and renews the limits.
func (e *Env) begin(slots int) {
	if n := slots - len(e.slots); n > 0 {
		e.slots = append(e.slots, make([]value.Value, n)...)
	}
	e.copies, e.problem = maxCopied, ""
}

// reset lets go of everything that belongs to one event.
func (e *Env) reset() {
	e.event, e.ed, e.faults, e.work = nil, nil, nil, nil
	e.state, e.current = value.Value{}, value.Value{}
	clear(e.slots)
	e.data.reset()
	e.metadata.reset()
	e.problem = ""
	if cap(e.hits) > maxHits {
		e.hits = nil
	}
}

func (e *Env) run(ops []operation) {
	for _, op := range ops {
		if !e.work.Spend(1) {
			return
		}
		op.apply(e)
	}
}

// spend takes n units of work from what is left and reports whether there were as many. If not, everything ends.
func (e *Env) spend(n int) bool { return e.work.Spend(n) }

// charge takes the size of v from what may be copied and reports whether that was enough.
func (e *Env) charge(v value.Value) bool {
	left, ok := v.Measure(e.copies, maxDepth)
	e.copies = left
	if !ok {
		e.problem = fmt.Sprintf("the value is nested more than %d levels deep, or the event copies more than %d MiB within the state", maxDepth, maxCopied>>20)
	}
	return ok
}

// keep gives up what the editor owns if v, which is about to be kept in a second place, is a container.
func (e *Env) keep(v value.Value) {
	if e.ed != nil && isContainer(v) {
		e.ed.Freeze()
	}
}

func isContainer(v value.Value) bool { return v.Kind() == value.Array || v.Kind() == value.Object }
