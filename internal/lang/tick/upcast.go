package tick

import (
	"math"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
)

// Upcast is a compiled step from one generation of an event type's data to the next. It is operations of handlers, at
// work on an event's data instead of a state, none of which may be passed over: the first one that does not fit ends
// the step. It may be used by many goroutines at the same time.
type Upcast struct {
	steps *Handler
	at    diag.Pointer
}

// Misfit says why data could not be brought to the next generation. It repeats nothing of the data.
type Misfit struct {
	// Pointer leads to the operation in the spec, or to what within it does not fit.
	Pointer diag.Pointer
	// Message is a sentence without a full stop.
	Message string
}

func (m *Misfit) Error() string { return m.Message }

// CompileUpcast compiles a step that is an array of operations or a single one. at is its place in the spec. It adds
// everything that is wrong to l and returns nil if that includes an error.
func CompileUpcast(v value.Value, at diag.Pointer, l *diag.List) *Upcast {
	c := &compiler{l: l, language: handlers, upcast: true}
	h := c.handler(v, at)
	if h == nil {
		return nil
	}
	h.rereads = c.reading(fromData) != nil || c.reading(fromEvent) != nil
	return &Upcast{steps: h, at: at}
}

// Empty reports whether the step has no operations, so that data stay as they are.
func (u *Upcast) Empty() bool { return len(u.steps.ops) == 0 }

// Apply returns the data after the step. ed makes all changes, so containers of data that ed owns are changed in place:
// data must not be used afterwards unless ed was frozen before. ev is the event; its Data are what "$.data" leads into,
// and have to be those before the step.
//
// All work is charged to b. The error is *Misfit where something does not fit, and that of b when it has ended. The
// data are then what they were before; but a caller that goes on with them must have frozen ed before Apply.
func (u *Upcast) Apply(ed *value.Editor, data value.Value, ev *Event, b *work.Budget) (value.Value, error) {
	h := u.steps
	if len(h.ops) == 0 {
		return data, nil
	}
	weight, n := data.Weigh()
	if !b.Spend(n / weighedPerUnit) {
		return data, b.Err()
	}

	// The operations.
	e := h.env()
	if h.rereads {
		ed.Freeze()
	}
	e.event, e.current, e.ed, e.strict = ev, data, ed, true
	e.work, e.total, e.left = b, weight, math.MaxInt
	e.run(h.ops)

	// Their result, which may be as large as a state.
	out, misfit := e.current, e.broken
	if misfit == nil && !e.total.Fits(Largest()) {
		misfit = &Misfit{Pointer: u.at, Message: "the data are larger than a state may be"}
	}
	e.reset()
	h.envs.Put(e)
	switch err := b.Err(); {
	case err != nil:
		return data, err
	case misfit != nil:
		return data, misfit
	}
	return out, nil
}
