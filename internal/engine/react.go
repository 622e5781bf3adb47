package engine

import (
	"context"

	"j17"
	"j17/internal/spec"
	"j17/internal/spec/diag"
	"j17/internal/value"
)

// reacts reports whether an event of the command brings about more than itself: implications, or custom code that may
// refuse it.
func (a *admitted) reacts() bool {
	for i := range a.events {
		if et := a.events[i].typ; et.Implications != nil || tried(et, a.events[i].data.Size()+len(a.metadata)) {
			return true
		}
	}
	return false
}

// tried reports whether an event of so many bytes has to be applied before it is written: custom code may refuse it, and a
// handler that may take more work than a replay has must not.
func tried(et *spec.EventType, size int) bool {
	return et.Code != nil || et.Handler != nil && et.Handler.Heavy(size)
}

// computed is the state of an aggregate as it will be after the commit.
type computed struct {
	key   j17.Key
	state folded
	ed    *value.Editor
}

// handle runs the handlers of all aggregates that get an event whose handler is custom code, which may refuse it, or may take
// more work than there is. It returns their states after the commit.
func (x *expansion) handle(ctx context.Context) ([]*computed, error) {
	byKey := map[j17.Key]*computed{}
	var all []*computed
	for i := range x.events {
		o := &x.events[i]
		if !tried(o.typ, o.data.Size()+len(o.metadata)) || byKey[o.key] != nil {
			continue
		}
		before, err := x.stateBefore(ctx, o.key)
		if err != nil {
			return nil, err
		}
		byKey[o.key] = &computed{key: o.key, state: *before, ed: value.NewEditor()}
		all = append(all, byKey[o.key])
	}
	for i := range x.events {
		o := &x.events[i]
		c := byKey[o.key]
		if c == nil {
			continue
		}
		err := x.d.program(o.key.Type).apply(ctx, &c.state, c.ed, o.stored(x.timestamp), x.work, nil)
		c.state.loose += len(o.json)
		switch {
		case err == nil:
		case j17.CodeOf(err) == j17.CodeWorkLimit:
			return nil, x.tooMuch(err, i, "its handler", inType(o.typ, "handler"))
		case o.cause >= 0:
			return nil, x.reject(i, nil, o.at, err)
		default:
			return nil, x.inOwn(err, i)
		}
	}
	return all, nil
}

// inType is the place of a part of an event type in the spec.
func inType(et *spec.EventType, part string) diag.Pointer {
	return diag.Pointer("/aggregate_types").Key(et.AggregateType).Key("events").Key(et.Name).Key(part)
}
