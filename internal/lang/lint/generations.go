package lint

import (
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// upcasts warns of steps between generations that can never be right.
func (l *linter) upcasts(e *spec.EventType, v value.Value, at diag.Pointer) {
	for _, g := range e.Older {
		older := v.Get("generations").Get(strconv.Itoa(g.Number))
		l.upcast(upcast{
			v: older.Get("upcast"), at: at.Key("generations").Key(strconv.Itoa(g.Number)).Key("upcast"),
			from: outline.Of(older.Get("schema"), l.root.Get("$defs")),
			to:   l.spec.SchemaOf(e.AggregateType, e.Name, g.Number+1),
		})
	}
	if as := v.Get("retired"); e.As != nil && !as.Get("upcast").IsMissing() {
		l.upcast(upcast{
			v: as.Get("upcast"), at: at.Key("retired").Key("upcast"), from: l.schemaOfEvent(at, v),
			to: l.spec.SchemaOf(e.AggregateType, e.As.Type.Name, e.As.Generation),
		})
	}
}

// upcast is a step between two generations, with the schemas of both.
type upcast struct {
	v        value.Value
	at       diag.Pointer
	from, to outline.Schema
	// taken are the places that something is taken away from, if only under a condition. whole reports that all of the
	// data may be put there anew.
	taken [][]value.Step
	whole bool
}

func (l *linter) upcast(u upcast) {
	// What may be there while the step is at work, and where it leads to.
	during := l.written(u, false)
	r := reader{linter: l, schema: u.from, state: during}
	r.operations(u.v, u.at)
	if !l.pathsLead(u.v, u.from) {
		l.dataPaths(u.v, u.from, u.at)
	}

	// What comes of it.
	for op := range tick.Operations(u.v, u.at) {
		switch {
		case !l.spend(1):
			return
		case op.Effect == tick.Moves:
			u.taken = append(u.taken, op.From.Steps)
			u.whole = u.whole || len(op.From.Steps) == 0
		case op.Effect == tick.Drops:
			u.taken = append(u.taken, op.Target.Steps)
		case op.Makes && op.Effect != tick.Merges && len(op.Target.Steps) == 0:
			u.whole = true
		}
	}
	for op := range tick.Operations(u.v, u.at) {
		l.idle(&u, op)
		l.put(&u, op)
	}
	if !u.whole {
		l.outcome(&u, l.written(u, true))
	}
}

// written returns what the schema before a step lets through, and what the step writes; without what it takes away in
// any case, if after is set.
func (l *linter) written(u upcast, after bool) *written {
	root := &written{data: true}
	var changes []change
	s := states{l, u.from, &changes}
	s.fromSchema(root, u.from)
	ops := []value.Value{u.v}
	if u.v.Kind() == value.Array {
		ops = u.v.Elems()
	}
	for _, op := range ops {
		from := op.Get("move").Get("from")
		if from.IsMissing() {
			from = op.Get("drop").Get("target")
		}
		if p, err := jsonpath.ParseState(from.Str()); after && from.Kind() == value.String && err == nil {
			root.remove(p.Steps)
		}
	}
	s.operations(root, u.v)
	l.settle(root, changes)
	return root
}

// remove takes away the member at the end of steps.
func (w *written) remove(steps []value.Step) {
	for i, step := range steps {
		if i == len(steps)-1 && !step.IsIndex {
			delete(w.members, step.Key)
			return
		}
		if w = w.next(step); w == nil {
			return
		}
	}
}

// comes warns of an event type that something waits for although it is retired. v names the aggregate type, and event
// the event type, which stands at a place.
func (l *linter) comes(v, event value.Value, at diag.Pointer) {
	et := l.spec.EventType(v.Get("aggregate_type").Str(), event.Str())
	if et == nil || !et.Retired {
		return
	}
	hint := "take it out, or wait for what is written instead of it"
	if newest := et.Newest(); newest != et {
		hint = "write " + diag.Quote(newest.Name) + ", which its events are read as"
	}
	l.Report(at, neverComes, diag.Quote(et.Name), hint)
}

// idle warns of an operation that never changes anything.
func (l *linter) idle(u *upcast, op *tick.Operation) {
	switch {
	case op.Effect == tick.Puts && op.Written.Str() == "@."+op.Target.Text && op.Target.Text != "":
		l.Report(op.At, putsItself, op.Target.Text)
	case op.Effect != tick.Fills || len(op.Target.Steps) != 1 || u.whole || u.takes(op.Target.Steps):
	default:
		if name := op.Target.Steps[0].Key; requires(u.from, name) {
			l.Report(op.At, fillsNothing, name)
		}
	}
}

// requires reports whether a schema itself requires a member.
func requires(schema outline.Schema, name string) bool {
	return slices.ContainsFunc(schema.Get("required").Elems(), func(v value.Value) bool { return v.Str() == name })
}

// takes reports whether something is taken from a place, what is around it or what is in it.
func (u *upcast) takes(steps []value.Step) bool {
	return slices.ContainsFunc(u.taken, func(of []value.Step) bool {
		n := min(len(of), len(steps))
		return slices.Equal(of[:n], steps[:n])
	})
}

// put warns of an operation that puts something where the schema of the next generation lets nothing be, and where
// nothing takes it away again.
func (l *linter) put(u *upcast, op *tick.Operation) {
	if !op.Makes || u.whole || u.takes(op.Target.Steps) {
		return
	}
	if parent, name, declared := l.closedAt(u.to, op.Target.Steps); name != "" {
		l.Suggest(l.Report(op.TargetAt, neverTaken, "data"+parent, name), name, declared)
	}
}

// outcome warns of a step whose result never fits the schema of the next generation. after is what may be there then.
func (l *linter) outcome(u *upcast, after *written) {
	if after.open || !l.spend(1+len(after.members)) {
		return
	}
	ways, ok := l.alternatives([]outline.Schema{u.to})
	if !ok || len(ways) != 1 {
		return
	}

	// What has to be there.
	for _, schema := range ways[0] {
		for _, required := range schema.Get("required").Elems() {
			name := required.Str()
			place := after.members[name]
			if place == nil {
				l.Report(u.at, neverMade, name)
				continue
			}
			k := place.kinds()
			if to := u.to.Follow([]value.Step{{Key: name}}).Kinds(); k&to == 0 {
				l.Report(u.at, neverOfNext, name, to.Phrase(), k.Phrase())
			}
		}
	}

	// What is always there.
	for _, required := range u.from.Get("required").Elems() {
		name := []value.Step{{Key: required.Str()}}
		if _, gone, _ := l.closedAt(u.to, name); gone != "" && !u.takes(name) {
			l.Report(u.at, neverGone, strings.TrimPrefix(jsonpath.StepsText(name), "."))
		}
	}
}
