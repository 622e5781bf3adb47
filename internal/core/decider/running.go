package decider

import (
	"context"
	"maps"
	"slices"

	"j17"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
)

// MayRefuse reports whether an event of so many bytes has to be applied before it is written: custom code may refuse
// it, and a handler must not take more work than a replay has.
func MayRefuse(et *spec.EventType, size int) bool {
	return et.Code != nil || et.Handler != nil && et.Handler.Heavy(size)
}

// Computed is the state of an aggregate as it will be after the commit.
type Computed struct {
	Key    j17.Key
	State  State
	Editor *value.Editor
}

// running is the state of an aggregate at a place in the write: the state before the write with the aggregate's events
// before the place applied.
type running struct {
	Computed
	// passed is how many of the aggregate's events in the write are applied.
	passed int
}

// number returns how many events of an aggregate come before event number i.
func (x *Decision) number(key j17.Key, i int) int {
	switch {
	case i == 0:
		return 0
	case len(x.Events) == 1: // the usual case, which needs no table
		if x.Events[0].Key == key {
			return 1
		}
		return 0
	case x.of == nil:
		x.of = map[j17.Key][]int{}
	}
	for ; x.numbered < len(x.Events); x.numbered++ {
		key := x.Events[x.numbered].Key
		x.of[key] = append(x.of[key], x.numbered)
	}
	n, _ := slices.BinarySearch(x.of[key], i)
	return n
}

// nth returns the number of an aggregate's nth event in the write, counted from 0. number must have been called before.
func (x *Decision) nth(key j17.Key, n int) int {
	if x.of == nil {
		return 0
	}
	return x.of[key][n]
}

// at returns the state of an aggregate as event number i sees it. The result is valid until a later state of it is
// requested.
func (x *Decision) at(ctx context.Context, key j17.Key, i int) (*running, error) {
	r := x.running[key]
	if r == nil {
		before, err := x.stateBefore(ctx, key)
		if err != nil {
			return nil, err
		}
		r = &running{Computed: Computed{Key: key, State: *before, Editor: value.NewEditor()}}
		if x.running == nil {
			x.running = map[j17.Key]*running{}
		}
		x.running[key] = r
	}
	for n := x.number(key, i); r.passed < n; r.passed++ {
		if err := x.apply(ctx, r, x.nth(key, r.passed)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// apply applies event number i to the state of its aggregate.
func (x *Decision) apply(ctx context.Context, r *running, i int) error {
	o := &x.Events[i]
	program := x.d.Program(o.Key.Type)
	if o.Spec.Code != nil && x.Skipped != nil && x.d.Functions[o.Spec.Code] == nil {
		x.Skipped(inType(o.Spec, "handler"), o.Spec.Code)
		r.State.Pass(r.Editor, o.Stored(x.Timestamp))
		return nil
	}
	err := program.Apply(ctx, &r.State, r.Editor, o.Stored(x.Timestamp), x.Work, nil)
	r.State.Loose += len(o.JSON)
	switch {
	case err == nil:
		return nil
	case j17.CodeOf(err) == j17.CodeWorkLimit:
		return x.tooMuch(err, i, "its handler", inType(o.Spec, "handler"))
	case o.Cause >= 0:
		return x.Reject(i, nil, o.At, err)
	default:
		return x.inOwn(err, i)
	}
}

// handle applies event number i if its handler may refuse it.
func (x *Decision) handle(ctx context.Context, i int) error {
	o := &x.Events[i]
	if x.Skipped != nil || !MayRefuse(o.Spec, o.Data.Size()+len(o.Metadata)) {
		return nil
	}
	_, err := x.at(ctx, o.Key, i+1)
	return err
}

// After returns the states after the commit of the aggregates that get an event and whose states the decision has
// computed.
func (x *Decision) After(ctx context.Context) ([]*Computed, error) {
	var all []*Computed
	for _, key := range slices.SortedFunc(maps.Keys(x.running), j17.Key.Compare) {
		r, err := x.at(ctx, key, len(x.Events))
		if err != nil {
			return nil, err
		}
		if r.passed > 0 {
			all = append(all, &r.Computed)
		}
	}
	return all, nil
}

// inType returns the place of a part of an event type in the spec.
func inType(et *spec.EventType, part string) diag.Pointer { return et.Pointer.Key(part) }
