package tick

import (
	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// The operations that change where members are, or whether they are there.

// moveOp is "move".
type moveOp struct {
	base
	from, to place
}

func (o *moveOp) apply(e *Env) {
	// What moves. Elements of arrays stay where they are.
	v := e.current.At(o.from.steps)
	switch {
	case v.IsMissing():
		return
	case o.from.isElement():
		o.fault(e, "%s leads to an element of an array, and only members move", &o.from)
		return
	case isContainer(v):
		flat, n := v.Nested(maxDepth)
		if !e.spend(n / weighedPerUnit) {
			return
		}
		if !flat {
			o.fault(e, "what is moved is nested more than %d levels deep", maxDepth)
			return
		}
	}

	// It is taken out first, which decides what it takes to put it where it comes to.
	taken := o.from.taken(e)
	s := o.to.find(e)
	switch same := sharedSteps(e.current, o.from.steps, o.to.steps); {
	case same == len(o.from.steps):
		_, room, ok := value.Room(value.Value{}, o.to.steps[same:])
		if !ok {
			o.fault(e, "%s leads to an element of what is moved", &o.to)
			return
		}
		s = spot{room: room.Plus(taken).Minus(v.Weight())} // its key and its comma are needed again
	case !s.v.IsMissing():
		o.fault(e, "%s is there already", &o.to)
		return
	case same == len(o.from.steps)-1 && same < len(o.to.steps) && e.current.At(o.from.steps[:same]).Len() == 1:
		s.room.Bytes-- // the comma behind what was the only member
	}

	brought := s.room.Plus(v.Weight())
	if o.fits(e, &o.to, s, brought.Minus(taken)) {
		o.takeOut(e, &o.from, taken)
		o.put(e, &o.to, v, brought)
	}
}

// sharedSteps returns how many of their first steps two paths from v have in common. An index from the end is the same
// as one from the start that leads to the same element.
func sharedSteps(v value.Value, a, b []value.Step) int {
	for i := range min(len(a), len(b)) {
		from, to := a[i], b[i]
		if from.IsIndex && from.Index < 0 {
			from.Index += v.Len()
		}
		if to.IsIndex && to.Index < 0 {
			to.Index += v.Len()
		}
		if from != to {
			return i
		}
		v = v.At(a[i : i+1])
	}
	return min(len(a), len(b))
}

// isElement reports whether the place is that of an element of an array.
func (p *place) isElement() bool { return len(p.steps) > 0 && p.steps[len(p.steps)-1].IsIndex }

// taken returns by how much everything becomes smaller without the member at the place, which is there.
func (p *place) taken(e *Env) value.Weight {
	last := len(p.steps) - 1
	if last < 0 {
		return e.current.Weight()
	}
	obj, key := e.current.At(p.steps[:last]), p.steps[last].Key
	return obj.Get(key).Weight().Plus(value.Weight{Bytes: value.StringSize(key) + 1 + min(obj.Len()-1, 1)})
}

// takeOut takes away the member at the place, which is there and takes so much.
func (o *base) takeOut(e *Env, p *place, taken value.Weight) {
	last := len(p.steps) - 1
	if last < 0 {
		e.current = value.Value{}
		return
	}
	parent := place{steps: p.steps[:last]}
	obj := e.current.At(parent.steps)
	o.put(e, &parent, e.ed.RemoveMember(obj, p.steps[last].Key), value.Weight{}.Minus(taken))
}

// dropOp is "drop".
type dropOp struct {
	base
	target place
}

func (o *dropOp) apply(e *Env) {
	switch {
	case len(o.target.steps) == 0:
		o.fault(e, "%s is no member", &o.target)
	case e.current.At(o.target.steps).IsMissing():
	case o.target.isElement():
		o.fault(e, "%s leads to an element of an array, and only members are dropped", &o.target)
	default:
		taken := o.target.taken(e)
		e.total = e.total.Minus(taken)
		o.takeOut(e, &o.target, taken)
	}
}

// defaultOp is "default". Its value is needed only where there is none.
type defaultOp struct {
	base
	value  operand
	target place
}

func (o *defaultOp) apply(e *Env) {
	if !e.current.At(o.target.steps).IsMissing() {
		return
	}
	v, w, ok := o.take(e, &o.value)
	if ok && !o.target.swap(e, &v, w) {
		o.replace(e, &o.target, o.target.find(e), v, w)
	}
}

func (c operationCompiler) move(b base, v value.Value, at diag.Pointer) operation {
	m, ok := c.members(v, at, b.name, "from", "to")
	if !ok {
		return nil
	}
	errors := c.l.Errors()
	op := &moveOp{b, c.place(m[0], at, b.name, "from"), c.place(m[1], at, b.name, "to")}
	from, to := op.from.steps, op.to.steps
	switch {
	case c.l.Errors() > errors:
	case op.from.isElement():
		c.l.Warnf(at.Key("from"), "elements of arrays do not move, so that this never fits").
			Hintf("set a member to the element, and take the element away with filter or remove")
	case op.to.isElement():
		c.l.Warnf(at.Key("to"), "nothing moves to an element of an array, so that this never fits").
			Hintf(`use append, or name a member, as in "items[0].name"`)
	case len(to) < len(from) && sharedSteps(value.Value{}, from, to) == len(to):
		c.l.Warnf(at.Key("to"), "this is there wherever something can be moved out of it, so that it never fits").
			Hintf("use set to put the one in the place of the other")
	}
	return op
}

func (c operationCompiler) drop(b base, v value.Value, at diag.Pointer) operation {
	m, ok := c.members(v, at, b.name, "target")
	if !ok {
		return nil
	}
	errors := c.l.Errors()
	op := &dropOp{b, c.target(m[0], at, b.name)}
	switch {
	case c.l.Errors() > errors:
	case op.target.isElement():
		c.l.Warnf(at.Key("target"), "elements of arrays are not dropped, so that this never fits").
			Hintf("take the element away with filter or remove")
	case len(op.target.steps) == 0:
		c.l.Warnf(at.Key("target"), "this is no member, so that it never fits").Hintf("name the member that goes")
	}
	return op
}

// defaulting compiles "default".
func (c operationCompiler) defaulting(b base, v value.Value, at diag.Pointer) operation {
	m, ok := c.members(v, at, b.name, "target", "value")
	if !ok {
		return nil
	}
	target := c.target(m[0], at, b.name)
	return &defaultOp{b, c.keptMember(m[1], at, b.name), target}
}
