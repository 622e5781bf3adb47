package engine

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"

	"j17"
	"j17/internal/sandbox"
	"j17/internal/spec"
	"j17/internal/spec/diag"
	"j17/internal/spec/tick"
	"j17/internal/store"
	"j17/internal/value"
	"j17/internal/work"
)

// Functions has the function of each custom code of a spec.
type Functions map[*spec.Code]sandbox.Function

// deployed is the spec of one tenant with what runs it.
type deployed struct {
	spec      *spec.Compiled
	functions Functions
	// env is where it is deployed, nil where events are only tried.
	env *environment
	// fences hold as long as it is deployed, for all who write to the store; replaced is closed when this engine has another one.
	fences   []store.Fence
	replaced chan struct{}
	programs map[string]*program
}

func newDeployed(c *spec.Compiled, functions Functions) *deployed {
	d := &deployed{spec: c, functions: functions, programs: make(map[string]*program, len(c.Types))}
	for name, typ := range c.Types {
		d.programs[name] = newProgram(typ, functions)
	}
	return d
}

// program computes the states of one aggregate type.
type program struct {
	*spec.AggregateType
	functions Functions
	// fingerprint changes whenever the handlers do, or the functions of those in custom code.
	fingerprint [32]byte
}

func newProgram(typ *spec.AggregateType, functions Functions) *program {
	p := &program{AggregateType: typ, functions: functions, fingerprint: typ.Fingerprint}
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
	p.fingerprint = [32]byte(h.Sum(nil))
	return p
}

// first is the state before the first event.
func (p *program) first() *folded {
	return &folded{fingerprint: p.fingerprint, data: value.ObjectValue()}
}

// apply takes one more event into the state. faults, if not nil, is told of the operations that did not fit. All work
// is charged to b. The error is that of b or of custom code; the state is then what it was, but whoever goes on with it must
// have frozen ed before.
func (p *program) apply(ctx context.Context, f *folded, ed *value.Editor, ev *tick.Event, b *work.Budget, faults func(tick.Fault)) error {
	if et := p.Events[ev.Type]; et != nil {
		switch {
		case et.Handler != nil:
			state, err := et.Handler.Apply(ed, f.data, ev, b, faults)
			if err != nil {
				return err
			}
			f.data = state
		case et.Code != nil:
			state, err := p.functions.handle(ctx, et.Code, f.data, ev, b)
			if err != nil {
				return err
			}
			f.data = state
		}
	}
	f.pass(ed, ev)
	return nil
}

// pass counts an event whose handler has run.
func (f *folded) pass(ed *value.Editor, ev *tick.Event) {
	if f.length++; f.length == 1 {
		f.created = ev.Timestamp
	}
	f.data = tick.Stamp(ed, f.data, f.created, ev.Timestamp)
}

// program returns what computes the states of an aggregate type that the spec has.
func (d *deployed) program(aggregateType string) *program { return d.programs[aggregateType] }

func (d *deployed) aggregateType(name string) (*spec.AggregateType, error) {
	if at := d.spec.Types[name]; at != nil {
		return at, nil
	}
	return nil, j17.Errorf(j17.CodeUnknownType, "Aggregate type '%s' not found in spec%s", j17.Printable(name), diag.Meant(name, maps.Keys(d.spec.Types)))
}

// key checks the two halves of an aggregate key that came from outside.
func (d *deployed) key(aggregateType, id string) (j17.Key, error) {
	canonical, _, err := d.spec.IDs.Check(id)
	if err != nil {
		return j17.Key{}, j17.At(err, "key")
	}
	return j17.Key{Type: aggregateType, ID: canonical}, nil
}
