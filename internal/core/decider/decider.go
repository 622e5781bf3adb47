// Package decider turns a command into events, and events into a state. It is pure: states that a decision reads are
// passed in, time is a number, and the results are written elsewhere.
//
// Admit checks a command (admit.go), Expand adds what its events imply (imply.go) and Handle applies those whose
// handlers may refuse them (code.go). Program.Apply is one step of a fold.
//
// The decisions behind it are in docs/internals/core.md.
package decider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/code/sandbox"
	"j17/internal/core/upcast"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// Functions has the function of each custom code of a spec.
type Functions map[*spec.Code]sandbox.Function

// Decider is a spec with the functions of its custom code. It decides commands and computes states.
type Decider struct {
	*spec.Compiled

	Functions Functions
	// Tried says which stored events are known to fit the spec.
	Tried    *upcast.Tried
	programs map[string]*Program
}

// New returns a decider of a spec: event types whose custom code has no function are refused with CodeCustomCodeFailed.
func New(c *spec.Compiled, functions Functions) *Decider {
	d := &Decider{
		Compiled: c, Functions: functions, Tried: &upcast.Tried{}, programs: make(map[string]*Program, len(c.Types)),
	}
	for name, typ := range c.Types {
		d.programs[name] = NewProgram(typ, functions)
		d.programs[name].Tried = d.Tried
	}
	return d
}

// Program computes the states of one aggregate type.
type Program struct {
	*spec.AggregateType
	Functions Functions
	// Fingerprint changes whenever the handlers do, or the functions of those in custom code.
	Fingerprint [32]byte
	// Tried is that of the decider, nil without one.
	Tried *upcast.Tried
}

// NewProgram returns the program of one aggregate type.
func NewProgram(typ *spec.AggregateType, functions Functions) *Program {
	p := &Program{AggregateType: typ, Functions: functions, Fingerprint: typ.Fingerprint}
	var names []string
	for name, et := range typ.Events {
		if et.Code != nil {
			names = append(names, name)
		}
	}
	if names == nil {
		return p
	}
	slices.Sort(names)
	h := sha256.New()
	h.Write(typ.Fingerprint[:])
	for _, name := range names {
		var digest [32]byte
		if f := functions[typ.Events[name].Code]; f != nil {
			digest = f.Digest()
		}
		h.Write(digest[:])
	}
	p.Fingerprint = [32]byte(h.Sum(nil))
	return p
}

// First returns the state before the first event.
func (p *Program) First() *State {
	return &State{Fingerprint: p.Fingerprint, Data: value.ObjectValue()}
}

// Apply applies one more event to the state. faults, if not nil, is called for operations that did not fit. All work is
// charged to b. The error is that of b or of custom code; the state is then unchanged, but can only be used further if
// ed was frozen before.
func (p *Program) Apply(
	ctx context.Context, f *State, ed *value.Editor, ev *tick.Event, b *work.Budget, faults func(tick.Fault),
) error {
	if et := p.Events[ev.Type]; et != nil {
		switch {
		case et.Handler != nil:
			state, err := et.Handler.Apply(ed, f.Data, ev, b, faults)
			if err != nil {
				return err
			}
			f.Data = state
		case et.Code != nil:
			state, err := p.Functions.Handle(ctx, et.Code, f.Data, ev, b)
			if err != nil {
				return err
			}
			f.Data = state
		}
	}
	f.Pass(ed, ev)
	return nil
}

// Steps is Apply for callers that need the effect of each operation of the handler: step is called with the place of
// the operation in the spec, or that of the handler if it is custom code, and the state after it.
func (p *Program) Steps(
	ctx context.Context, f *State, ed *value.Editor, ev *tick.Event, b *work.Budget,
	step func(at diag.Pointer, state value.Value),
) error {
	et := p.Events[ev.Type]
	if et == nil || et.Handler == nil {
		if err := p.Apply(ctx, f, ed, ev, b, nil); err != nil {
			return err
		}
		if et != nil && et.Code != nil {
			step(diag.Pointer("/aggregate_types").Key(p.Name).Key("events").Key(ev.Type).Key("handler"), f.Data)
		}
		return nil
	}
	state, err := et.Handler.Steps(ed, f.Data, ev, b, step)
	if err != nil {
		return err
	}
	f.Data = state
	f.Pass(ed, ev)
	return nil
}

// Program returns the program of an aggregate type of the spec.
func (d *Decider) Program(aggregateType string) *Program { return d.programs[aggregateType] }

// AggregateType returns the declaration of an aggregate type; the error is CodeUnknownType if the spec has none.
func (d *Decider) AggregateType(name string) (*spec.AggregateType, error) {
	if at := d.Types[name]; at != nil {
		return at, nil
	}
	return nil, j17.Errorf(j17.CodeUnknownType, "Aggregate type '%s' not found in spec%s", j17.Printable(name), diag.Meant(name, maps.Keys(d.Types)))
}

// Key checks the two halves of an aggregate key that came from outside.
func (d *Decider) Key(aggregateType, id string) (j17.Key, error) {
	canonical, _, err := d.IDs.Check(id)
	if err != nil {
		return j17.Key{}, j17.At(err, "key")
	}
	return j17.Key{Type: aggregateType, ID: canonical}, nil
}

// EntityTag names the state of an aggregate after length events of a generation under the type's present handlers.
func (p *Program) EntityTag(length, generation uint64) string {
	var buf [64]byte
	b := append(buf[:0], '"')
	b = strconv.AppendUint(b, length, 10)
	if generation > 0 {
		b = strconv.AppendUint(append(b, '.'), generation, 10)
	}
	b = append(b, '-')
	b = hex.AppendEncode(b, p.Fingerprint[:4])
	return string(append(b, '"'))
}

// Diagnose returns the diagnostic of a handler's fault, with its place in the spec.
func Diagnose(c *spec.Compiled, f tick.Fault) diag.Diagnostic {
	line, column := c.Position(f.Pointer)
	return diag.Diagnostic{Severity: diag.Warning, Pointer: f.Pointer, Line: line, Column: column, Message: f.Message}
}
