package tick

import (
	"cmp"
	"fmt"
	"strconv"

	"j17/internal/base/value"
	"j17/internal/lang/jsonpath"
)

// place is a place in the state.
type place struct {
	text  string
	steps []value.Step
	// root is what the place is in, the state where it is "".
	root string
}

// String names the place in messages.
func (p *place) String() string {
	if p.text == "" {
		return cmp.Or(p.root, "the state")
	}
	return strconv.Quote(p.text)
}

// spot is the value at a place, and what the keys and containers take that are needed to put something there, beside
// that itself.
type spot struct {
	v    value.Value
	room value.Weight
	// blocked reports that nothing can be put there.
	blocked bool
}

// The following change a state that the editor owns in place, as is mostly possible. They report false, and change
// nothing, where the place or the room has to be examined more closely.

// swap puts v, of weight w, at the place.
func (p *place) swap(e *Env, v *value.Value, w value.Weight) bool {
	if len(p.steps) > 0 {
		last := len(p.steps) - 1
		return !p.steps[last].IsIndex && e.swapIn(p.steps[:last], p.steps[last].Key, v, w)
	}
	grown := w.Minus(e.current.Weight())
	if !grown.Fits(e.room()) {
		return false
	}
	e.current = *v
	e.total = e.total.Plus(grown)
	return true
}

// swapIn is swap for a member of the object at the end of steps.
func (e *Env) swapIn(steps []value.Step, key string, v *value.Value, w value.Weight) bool {
	if len(steps) == 0 {
		grown, ok := e.ed.Set(&e.current, key, v, w, e.room())
		e.total = e.total.Plus(grown)
		return ok
	}
	way, ok := e.ed.Way(&e.current, steps)
	if !ok {
		return false
	}
	grown, ok := e.ed.Set(way.At, key, v, w, e.room())
	if ok {
		e.grow(&way, grown)
	}
	return ok
}

// grow counts by how much the value at the end of a way has grown.
func (e *Env) grow(way *value.Way, by value.Weight) {
	way.Grow(by)
	e.total = e.total.Plus(by)
}

// raise adds by to the number that stands at the place, or takes it away.
func (p *place) raise(e *Env, by *value.Value, subtract bool) bool {
	last := len(p.steps) - 1
	if last < 0 || p.steps[last].IsIndex {
		return false
	}
	way, ok := e.ed.Way(&e.current, p.steps[:last])
	if !ok {
		return false
	}
	grown, ok := e.ed.Add(way.At, p.steps[last].Key, by, subtract, e.room())
	if ok {
		e.grow(&way, grown)
	}
	return ok
}

// push appends v, of weight w, to the array at the place.
func (p *place) push(e *Env, v value.Value, w value.Weight) bool {
	way, ok := e.ed.Way(&e.current, p.steps)
	if !ok || way.At.Kind() != value.Array {
		return false
	}
	grown := w.Plus(comma(*way.At))
	if !grown.Fits(e.room()) {
		return false
	}
	*way.At = e.ed.Append(*way.At, v)
	e.grow(&way, grown)
	return true
}

// merge sets the members of an object of weight w, which have been paid for, in the object at the place.
func (p *place) merge(e *Env, from value.Value, w value.Weight) bool {
	way, ok := e.ed.Way(&e.current, p.steps)
	if !ok || way.At.Kind() != value.Object || !w.Fits(e.room()) { // the growth is less than w
		return false
	}
	before := way.At.Weight()
	*way.At = e.ed.Merge(*way.At, from)
	e.grow(&way, way.At.Weight().Minus(before))
	return true
}

// find looks at the place.
func (p *place) find(e *Env) spot {
	old, room, ok := value.Room(e.current, p.steps)
	return spot{v: old, room: room, blocked: !ok}
}

// fits reports whether something can be put where s was found and the state may grow by so much, and counts the growth.
// It is called before anything is changed.
func (o *base) fits(e *Env, p *place, s spot, grown value.Weight) bool {
	if s.blocked {
		if o.tells(e) {
			o.fault(e, "%s", p.obstacle(e.current))
		}
		return false
	}
	if !grown.Fits(e.room()) {
		o.tooLarge(e, grown)
		return false
	}
	e.total = e.total.Plus(grown)
	return true
}

// tooLarge reports that the state may not grow by so much.
func (o *base) tooLarge(e *Env, grown value.Weight) {
	what := "the state"
	if e.strict {
		what = "the data"
	}
	if grown.Bytes > max(e.room().Bytes, 0) {
		o.fault(e, "%s would be larger than %d MiB", what, MaxState>>20)
		return
	}
	o.fault(e, "%s would have more than %d values", what, MaxValues)
}

// put puts v at the place, which must not be blocked. It has to be the last step of an operation.
func (o *base) put(e *Env, p *place, v value.Value, grown value.Weight) {
	e.current, _ = e.ed.Put(e.current, p.steps, v, grown)
}

// replace puts v, of weight w, where s was found.
func (o *base) replace(e *Env, p *place, s spot, v value.Value, w value.Weight) {
	if grown := s.room.Plus(w).Minus(s.v.Weight()); o.fits(e, p, s, grown) {
		o.put(e, p, v, grown)
	}
}

// obstacle says why nothing can be put at the place.
func (p *place) obstacle(v value.Value) string {
	for i := range p.steps {
		s := &p.steps[i]
		above := &place{text: jsonpath.StepsText(p.steps[:i]), root: p.root}
		if above.text != "" && above.text[0] == '.' {
			above.text = above.text[1:]
		}
		switch {
		case s.IsIndex && v.Kind() != value.Array:
			return fmt.Sprintf("%s leads to an element of %s, which is %s", p, above, kindOf(v))
		case s.IsIndex && v.Index(s.Index).IsMissing():
			return fmt.Sprintf("%s leads to element %d of %s, which has %d", p, s.Index, above, v.Len())
		case !s.IsIndex && v.Kind() != value.Object && !absent(v):
			return fmt.Sprintf("%s leads to a member of %s, which is %s", p, above, kindOf(v))
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
