package tick

import (
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
)

// Upcast is a compiled step from one generation of an event type's data to the next.
type Upcast struct{ h *Handler }

// Misfit says why data could not be brought to the next generation.
type Misfit struct {
	Pointer diag.Pointer
	Message string
}

// Error returns the message.
func (m *Misfit) Error() string { return m.Message }

// CompileUpcast compiles one operation or an array of them. It adds everything that is wrong to l and returns nil if
// that includes an error.
func CompileUpcast(v value.Value, at diag.Pointer, l *diag.List) *Upcast {
	h := CompileHandler(v, at, l)
	if h == nil {
		return nil
	}
	return &Upcast{h}
}

// Empty reports whether there are no operations.
func (u *Upcast) Empty() bool { return len(u.h.ops) == 0 }

// Apply returns the data after the step.
func (u *Upcast) Apply(ed *value.Editor, data value.Value, ev *Event, b *work.Budget) (value.Value, error) {
	return u.h.Apply(ed, data, ev, b, nil)
}
