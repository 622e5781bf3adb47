package tick

import (
	"fmt"
	"strconv"

	"j17/internal/spec/jsonpath"
	"j17/internal/value"
)

// place is a place in the state.
type place struct {
	text  string
	steps []value.Step
}

// String names the place in messages.
func (p *place) String() string {
	if p.text == "" {
		return "the state"
	}
	return strconv.Quote(p.text)
}

// spot is what stands at a place, and how many bytes of keys and containers it takes to put something there, beside what is
// put.
type spot struct {
	v    value.Value
	room int
	// blocked says that nothing can be put there.
	blocked bool
}

// The following change a state that the editor owns where they stand, as they mostly can. They report false, and change nothing,
// where the place or the room has to be looked at more closely.

// swap makes v, which has size bytes, stand at the place.
func (p *place) swap(e *Env, v *value.Value, size int) bool {
	if len(p.steps) > 0 {
		last := len(p.steps) - 1
		return !p.steps[last].IsIndex && e.swapIn(p.steps[:last], p.steps[last].Key, v, size)
	}
	grown := size - e.current.Size()
	if grown > 0 && e.total+grown > maxState {
		return false
	}
	e.current = *v
	e.total += grown
	return true
}

// swapIn is swap for a member of the object at the end of steps.
func (e *Env) swapIn(steps []value.Step, key string, v *value.Value, size int) bool {
	if len(steps) == 0 {
		grown, ok := e.ed.Set(&e.current, key, v, size, maxState-e.total)
		e.total += grown
		return ok
	}
	w, ok := e.ed.Way(&e.current, steps)
	if !ok {
		return false
	}
	grown, ok := e.ed.Set(w.At, key, v, size, maxState-e.total)
	if ok {
		e.grow(&w, grown)
	}
	return ok
}

// grow counts by how many bytes the value at the end of a way has grown.
func (e *Env) grow(w *value.Way, by int) {
	w.Grow(by)
	e.total += by
}

// raise adds by to the number that stands at the place, or takes it away.
func (p *place) raise(e *Env, by *value.Value, subtract bool) bool {
	last := len(p.steps) - 1
	if last < 0 || p.steps[last].IsIndex {
		return false
	}
	w, ok := e.ed.Way(&e.current, p.steps[:last])
	if !ok {
		return false
	}
	grown, ok := e.ed.Add(w.At, p.steps[last].Key, by, subtract, maxState-e.total)
	if ok {
		e.grow(&w, grown)
	}
	return ok
}

// push appends v, which has size bytes, to the array at the place.
func (p *place) push(e *Env, v value.Value, size int) bool {
	w, ok := e.ed.Way(&e.current, p.steps)
	if !ok || w.At.Kind() != value.Array {
		return false
	}
	grown := comma(*w.At) + size
	if e.total+grown > maxState {
		return false
	}
	*w.At = e.ed.Append(*w.At, v)
	e.grow(&w, grown)
	return true
}

// merge sets the members of an object that has size bytes, and has been paid for, in the object at the place.
func (p *place) merge(e *Env, from value.Value, size int) bool {
	w, ok := e.ed.Way(&e.current, p.steps)
	if !ok || w.At.Kind() != value.Object || e.total+size > maxState { // it grows by less than that
		return false
	}
	before := w.At.Size()
	*w.At = e.ed.Merge(*w.At, from)
	e.grow(&w, w.At.Size()-before)
	return true
}

// find looks at the place.
func (p *place) find(e *Env) spot {
	old, room, ok := value.Room(e.current, p.steps)
	return spot{v: old, room: room, blocked: !ok}
}

// fits reports whether something can be put where s was found, and the state may grow by so many bytes, and counts them. It
// comes before anything is changed.
func (o *base) fits(e *Env, p *place, s spot, grown int) bool {
	if s.blocked {
		if o.tells(e) {
			o.fault(e, "%s", p.obstacle(e.current))
		}
		return false
	}
	if grown > 0 && e.total+grown > maxState {
		o.fault(e, "the state would be larger than %d MiB", MaxState>>20)
		return false
	}
	e.total += grown
	return true
}

// put makes v stand at the place, which something can be put at. It has to be the last thing that an operation does.
func (o *base) put(e *Env, p *place, v value.Value, grown int) {
	e.current, _ = e.ed.Put(e.current, p.steps, v, grown)
}

// replace makes v, which has size bytes, stand where s was found.
func (o *base) replace(e *Env, p *place, s spot, v value.Value, size int) {
	if grown := s.room + size - s.v.Size(); o.fits(e, p, s, grown) {
		o.put(e, p, v, grown)
	}
}

// obstacle says why nothing can be put at the place.
func (p *place) obstacle(v value.Value) string {
	for i := range p.steps {
		s := &p.steps[i]
		here := &place{text: jsonpath.StepsText(p.steps[:i])}
		if here.text != "" && here.text[0] == '.' {
			here.text = here.text[1:]
		}
		switch {
		case s.IsIndex && v.Kind() != value.Array:
			return fmt.Sprintf("%s leads to an element of %s, which is %s", p, here, kindOf(v))
		case s.IsIndex && v.Index(s.Index).IsMissing():
			return fmt.Sprintf("%s leads to element %d of %s, which has %d", p, s.Index, here, v.Len())
		case !s.IsIndex && v.Kind() != value.Object && !absent(v):
			return fmt.Sprintf("%s leads to a member of %s, which is %s", p, here, kindOf(v))
		case s.IsIndex:
			v = v.Index(s.Index)
		default:
			v = v.Get(s.Key)
		}
	}
	return fmt.Sprintf("%s cannot be written", p)
}

// kindOf names a value's kind with its article.
func kindOf(v value.Value) string {
	switch k := v.Kind(); k {
	case value.Missing:
		return "not there"
	case value.Null:
		return "null"
	case value.Array, value.Object:
		return "an " + k.String()
	case value.Bool, value.Number, value.String:
		return "a " + k.String()
	default:
		return k.String()
	}
}

// absent reports whether an operation may create its container or number in the place of v.
func absent(v value.Value) bool { return v.Kind() == value.Missing || v.Kind() == value.Null }
