package tick

import (
	"fmt"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
)

// operation is a compiled operation. It either changes the state that it was meant to change or leaves it as it was.
type operation interface {
	apply(e *Env)
	// origin returns what all operations have, to which faults are reported.
	origin() *base
}

// Every operation evaluates its operands first, in the order of its fields, then looks at its target, then changes the
// state. So it may give up until the last moment, and the state is frozen by operands before anything is changed.

// base is what all operations have.
type base struct {
	at   diag.Pointer
	name string
}

func (o *base) origin() *base { return o }

// unfit reports that the operation was left out because its operands did not fit.
func (o *base) unfit(e *Env) {
	misfit := *e.misfit
	e.misfit = nil
	switch {
	case e.strict:
		e.broken = &Misfit{Pointer: misfit.Pointer, Message: misfit.Message}
	case o.tells(e):
		o.fault(e, "%s", misfit.Message)
	}
}

// tells reports whether one more fault is wanted.
func (o *base) tells(e *Env) bool { return e.strict || e.faults != nil && e.told < maxFaults }

// maxFaults is how many faults of one event are reported.
const maxFaults = 1000

func (o *base) fault(e *Env, format string, args ...any) {
	switch {
	case e.strict:
		e.broken = &Misfit{Pointer: o.at, Message: o.name + " does not fit: " + fmt.Sprintf(format, args...)}
	case o.tells(e):
		e.told++
		e.faults(Fault{Pointer: o.at, Message: o.name + " changes nothing: " + fmt.Sprintf(format, args...)})
	}
}

// operand is a value that ends up in the state.
type operand struct {
	node
	// deep reports that it may hold a part of the state, which operations may have nested deeper.
	deep bool
	// weight is that of a literal.
	weight value.Weight
	// source is what the operand of an upcast was compiled from.
	source value.Value
}

// take evaluates an operand that is to be kept, and returns its weight. It reports false when the operation has to be
// left out.
func (o *base) take(e *Env, v *operand) (got value.Value, w value.Weight, ok bool) {
	if got, ok = v.eval(e); !ok || v.isLight() {
		return got, v.weight, ok
	}
	w, n := got.Weigh()
	if !e.spend(n / weighedPerUnit) {
		return got, w, false
	}
	if !w.Fits(Largest()) {
		o.tooLarge(e, w)
		return got, w, false
	}
	if !v.deep || !isContainer(got) {
		return got, w, true
	}
	flat, n := got.Nested(maxDepth)
	if !e.spend(n / weighedPerUnit) {
		return got, w, false
	}
	if !flat {
		o.fault(e, "the value is nested more than %d levels deep", maxDepth)
	}
	return got, w, flat
}

// isLight reports whether the operand is a literal that a state has room for.
func (v *operand) isLight() bool { return v.weight.Bytes > 0 && v.weight.Fits(Largest()) }

// weighedPerUnit is how many values are visited in the time of one unit.
const weighedPerUnit = 4

// array returns the array at the place, or the zero Value if there is nothing, with the room that an empty one takes.
// It reports false for anything else.
func (o *base) array(e *Env, p *place) (spot, bool) { return o.container(e, p, value.Array) }

// object is array for objects.
func (o *base) object(e *Env, p *place) (spot, bool) { return o.container(e, p, value.Object) }

func (o *base) container(e *Env, p *place, kind value.Kind) (spot, bool) {
	s := p.find(e)
	switch {
	case s.v.Kind() == kind:
		return s, true
	case absent(s.v):
		return spot{room: s.room.Plus(empty()).Minus(s.v.Weight()), blocked: s.blocked}, true
	default:
		o.fault(e, "%s is %s, not an %s", p, kindOf(s.v), kind)
		return s, false
	}
}

// empty is the weight of an empty container.
func empty() value.Weight { return value.Weight{Bytes: 2, Values: 1} }

// comma is the separator that one more element or member takes beside those that are there.
func comma(container value.Value) value.Weight { return value.Weight{Bytes: min(container.Len(), 1)} }

// entry is what a new member of an object takes beside its value.
func entry(obj value.Value, key string) value.Weight {
	return comma(obj).Plus(value.Weight{Bytes: value.StringSize(key) + 1})
}

type setOp struct {
	base
	value  operand
	target place
}

func (o *setOp) apply(e *Env) {
	if n, ok := o.value.node.(*literal); ok && o.value.isLight() && o.target.swap(e, &n.v, o.value.weight) {
		return
	}
	v, w, ok := o.take(e, &o.value)
	if ok && !o.target.swap(e, &v, w) {
		o.replace(e, &o.target, o.target.find(e), v, w)
	}
}

type mergeOp struct {
	base
	value  operand
	target place
}

func (o *mergeOp) apply(e *Env) {
	v, w, ok := o.takeObject(e, &o.value)
	if !ok || !e.spend(memberWork*v.Len()) || o.target.merge(e, v, w) {
		return
	}
	s, ok := o.object(e, &o.target)
	if !ok {
		return
	}
	if grown := s.room.Plus(merged(s.v, v)); o.fits(e, &o.target, s, grown) {
		o.put(e, &o.target, e.ed.Merge(s.v, v), grown)
	}
}

// merged returns by how much an object, or an empty one where there is none, grows when the members of another are set.
func merged(obj, from value.Value) (grown value.Weight) {
	separated := comma(obj).Bytes
	for _, m := range from.Members() {
		grown = grown.Plus(m.Value.Weight())
		if old := obj.Get(m.Key); !old.IsMissing() {
			grown = grown.Minus(old.Weight())
			continue
		}
		grown.Bytes += value.StringSize(m.Key) + 1 + separated
		separated = 1
	}
	return grown
}

// takeObject is take for an operand that has to be an object.
func (o *base) takeObject(e *Env, v *operand) (obj value.Value, w value.Weight, ok bool) {
	obj, w, ok = o.take(e, v)
	if ok && obj.Kind() != value.Object {
		o.fault(e, "the value to merge is %s, not an object", kindOf(obj))
		return obj, w, false
	}
	return obj, w, ok
}

type appendOp struct {
	base
	value  operand
	target place
}

func (o *appendOp) apply(e *Env) {
	v, w, ok := o.take(e, &o.value)
	if !ok || o.target.push(e, v, w) {
		return
	}
	if s, ok := o.array(e, &o.target); ok {
		o.push(e, &o.target, s, v, w)
	}
}

// push appends v to the array that was found.
func (o *base) push(e *Env, p *place, s spot, v value.Value, w value.Weight) {
	if grown := s.room.Plus(comma(s.v)).Plus(w); o.fits(e, p, s, grown) {
		o.put(e, p, e.ed.Append(s.v, v), grown)
	}
}

// appendUniqueOp is "append_unique".
type appendUniqueOp struct {
	base
	value  operand
	target place
	// by is the field that has to be unique; without one it is the whole value.
	by *place
}

func (o *appendUniqueOp) apply(e *Env) {
	v, w, ok := o.take(e, &o.value)
	if !ok {
		return
	}
	var by place
	if o.by != nil {
		by = *o.by
	}
	id := v.At(by.steps)
	if id.IsMissing() {
		o.fault(e, "the value has no field %s to tell it from others", o.by)
		return
	}
	s, ok := o.array(e, &o.target)
	if !ok {
		return
	}
	hits, n := e.lookups().Find(s.v, by.text, by.steps, id, true, e.hits[:0])
	if e.hits = hits; e.spend(1+n) && len(hits) == 0 {
		o.push(e, &o.target, s, v, w)
	}
}

// addOp is "increment" and "decrement".
type addOp struct {
	base
	by       node
	target   place
	subtract bool
}

func (o *addOp) apply(e *Env) {
	if n, ok := o.by.(*literal); ok && o.target.raise(e, &n.v, o.subtract) {
		return
	}
	by, ok := o.by.eval(e)
	if !ok || o.target.raise(e, &by, o.subtract) {
		return
	}
	s := o.target.find(e)
	if sum, ok := o.add(e, s.v, by, o.subtract, &o.target, ""); ok {
		o.replace(e, &o.target, s, sum, sum.Weight())
	}
}

// sumWork is what it takes to add two numbers.
func sumWork(a, b value.Value) int { return (a.Digits() + b.Digits()) / digitsPerUnit }

// digitsPerUnit is how many digits are added in the time of one unit.
const digitsPerUnit = 4

// add adds by to a number, or to zero where there is none. The number stands at p or is a member of what stands there.
func (o *base) add(e *Env, number, by value.Value, subtract bool, p *place, member string) (value.Value, bool) {
	if absent(number) {
		number = value.Int(0)
	}
	if !e.spend(sumWork(number, by)) {
		return value.Value{}, false
	}
	total := value.Add
	if subtract {
		total = value.Sub
	}
	sum, ok := total(number, by)
	switch {
	case ok:
	case by.Kind() != value.Number:
		o.fault(e, "the amount is %s, not a number", kindOf(by))
	case !o.tells(e):
	case number.Kind() != value.Number && member != "":
		o.fault(e, "%s in %s is %s, not a number", e.named(member), p, kindOf(number))
	case number.Kind() != value.Number:
		o.fault(e, "%s is %s, not a number", p, kindOf(number))
	default:
		o.fault(e, "the sum would have more than %d digits", value.MaxDigits)
	}
	return sum, ok
}

// removeOp is "remove" by a match.
type removeOp struct {
	base
	match  *match
	target place
}

func (o *removeOp) apply(e *Env) {
	probe, ok := o.match.begin(e)
	if !ok {
		return
	}
	if s, ok := o.array(e, &o.target); ok && probe.all(e, s.v) {
		o.removeHits(e, &o.target, s)
	}
}

// removeHits leaves out the elements at e.hits.
func (o *base) removeHits(e *Env, p *place, s spot) {
	arr := s.v
	if len(e.hits) == 0 {
		return
	}
	grown := value.Weight{}.Minus(without(arr, e.hits))
	if !o.fits(e, p, s, grown) {
		return
	}
	if len(e.hits) == 1 {
		o.put(e, p, e.ed.RemoveElem(arr, e.hits[0]), grown)
		return
	}
	o.put(e, p, e.ed.Array(remaining(arr.Elems(), e.hits, 0), arr.Weight().Plus(grown)), grown)
}

// without returns by how much an array shrinks without the elements at the positions hits.
func without(arr value.Value, hits []int) value.Weight {
	shrunk := value.Weight{Bytes: max(arr.Len()-1, 0) - max(arr.Len()-len(hits)-1, 0)}
	for _, i := range hits {
		shrunk = shrunk.Plus(arr.Index(i).Weight())
	}
	return shrunk
}

// remaining returns the elements that are not at the positions hits, with room for more.
func remaining(elems []value.Value, hits []int, more int) []value.Value {
	out := make([]value.Value, 0, len(elems)-len(hits)+more)
	from := 0
	for _, i := range hits {
		out = append(out, elems[from:i]...)
		from = i + 1
	}
	return append(out, elems[from:]...)
}

// removeValueOp is "remove" by value.
type removeValueOp struct {
	base
	value  node
	target place
}

func (o *removeValueOp) apply(e *Env) {
	v, ok := o.value.eval(e)
	if !ok {
		return
	}
	s, ok := o.array(e, &o.target)
	if !ok {
		return
	}
	hits, n := e.lookups().Find(s.v, "", nil, v, false, e.hits[:0])
	if e.hits = hits; e.spend(1 + n) {
		o.removeHits(e, &o.target, s)
	}
}

// filterOp is "filter": remove for everything that does not match.
type filterOp struct {
	base
	keep   *match
	target place
}

func (o *filterOp) apply(e *Env) {
	probe, ok := o.keep.begin(e)
	if !ok {
		return
	}
	s, ok := o.array(e, &o.target)
	if !ok || !probe.all(e, s.v) || len(e.hits) == s.v.Len() {
		return
	}
	elems := s.v.Elems()
	kept, w := make([]value.Value, len(e.hits)), empty()
	w.Bytes += max(len(e.hits)-1, 0)
	for i, hit := range e.hits {
		kept[i] = elems[hit]
		w = w.Plus(kept[i].Weight())
	}
	if grown := w.Minus(s.v.Weight()); o.fits(e, &o.target, s, grown) {
		o.put(e, &o.target, e.ed.Array(kept, w), grown)
	}
}

// updateWhereOp is "update_where".
type updateWhereOp struct {
	base
	match *match
	merge operand
	// freezes reports that the value to merge may hold elements of the target.
	freezes bool
	target  place
}

func (o *updateWhereOp) apply(e *Env) {
	probe, ok := o.match.begin(e)
	if !ok {
		return
	}
	s, ok := o.array(e, &o.target)
	if !ok || !probe.all(e, s.v) || len(e.hits) == 0 {
		return
	}
	if o.freezes {
		e.keep(s.v)
	}
	arr := s.v
	fields, ok := o.fields(e, arr)
	if !ok {
		return
	}
	if all := times(fields[0].Weight(), len(e.hits)); !o.freezes && !all.Fits(Largest()) {
		// Each element would have all of it.
		o.tooLarge(e, all)
		return
	}
	most := value.Weight{}
	for n := range e.hits {
		from := fields[n%len(fields)]
		if most = most.Plus(from.Weight()); !e.spend(memberWork * from.Len()) {
			return
		}
	}

	// The growth has to be known before anything is changed, unless there is room for the largest possible.
	if !most.Fits(e.room()) {
		total := value.Weight{}
		for n, i := range e.hits {
			total = total.Plus(merged(arr.Index(i), fields[n%len(fields)]))
		}
		if !o.fits(e, &o.target, s, total) {
			return
		}
		e.total = e.total.Minus(total)
	}

	total := value.Weight{}
	for n, i := range e.hits {
		elem := arr.Index(i)
		before := elem.Weight()
		elem = e.ed.Merge(elem, fields[n%len(fields)])
		grown := elem.Weight().Minus(before)
		arr = e.ed.SetElem(arr, i, elem, grown)
		total = total.Plus(grown)
	}
	e.total = e.total.Plus(total)
	o.put(e, &o.target, arr, total)
}

func times(w value.Weight, n int) value.Weight {
	return value.Weight{Bytes: w.Bytes * n, Values: w.Values * n}
}

// fields returns the values to merge into the elements at e.hits: one for each of them, or one for all of them.
func (o *updateWhereOp) fields(e *Env, arr value.Value) ([]value.Value, bool) {
	for _, i := range e.hits {
		if elem := arr.Index(i); elem.Kind() != value.Object {
			o.fault(e, "element %d of %s is %s, not an object", i, &o.target, kindOf(elem))
			return nil, false
		}
	}
	if !o.freezes {
		v, _, ok := o.takeObject(e, &o.merge)
		return []value.Value{v}, ok
	}
	out := make([]value.Value, len(e.hits))
	outer := e.slots[o.match.slot]
	defer func() { e.slots[o.match.slot] = outer }()
	for n, i := range e.hits {
		e.slots[o.match.slot] = arr.Index(i)
		v, _, ok := o.takeObject(e, &o.merge)
		if !ok || !e.spend(1) {
			return nil, false
		}
		out[n] = v
	}
	return out, true
}

type upsertOp struct {
	base
	value  operand
	match  *match
	target place
}

func (o *upsertOp) apply(e *Env) {
	v, w, ok := o.take(e, &o.value)
	if !ok {
		return
	}
	probe, ok := o.match.begin(e)
	if !ok {
		return
	}
	s, ok := o.array(e, &o.target)
	if !ok || !probe.all(e, s.v) {
		return
	}
	if len(e.hits) == 0 {
		o.push(e, &o.target, s, v, w)
		return
	}
	grown := w.Minus(without(s.v, e.hits)).Plus(value.Weight{Bytes: min(s.v.Len()-len(e.hits), 1)})
	if !o.fits(e, &o.target, s, grown) {
		return
	}
	arr := s.v
	if len(e.hits) == 1 {
		arr = e.ed.Append(e.ed.RemoveElem(arr, e.hits[0]), v)
	} else {
		arr = e.ed.Array(append(remaining(arr.Elems(), e.hits, 1), v), arr.Weight().Plus(grown))
	}
	o.put(e, &o.target, arr, grown)
}

// mapOp is "map" and "map_values".
type mapOp struct {
	base
	target place
	// over is what the target is: an array, or an object whose values are gone through.
	over value.Kind
	slot int
	// freezes reports that the binding is read, so that its value must not change while the element does.
	freezes bool
	// lets are the slots that operations inside bind; they are forgotten after each element.
	lets []int
	ops  []operation
}

func (o *mapOp) apply(e *Env) {
	s, ok := o.container(e, &o.target, o.over)
	if !ok || s.v.IsMissing() {
		return
	}
	if o.freezes {
		e.keep(s.v)
	}
	out := make([]value.Value, s.v.Len())
	copy(out, s.v.Elems())
	for i, m := range s.v.Members() {
		out[i] = m.Value
	}
	w, total := s.v.Weight(), e.total
	root, item := e.current, e.slots[o.slot]
	var outer []value.Value
	for _, slot := range o.lets {
		outer = append(outer, e.slots[slot])
	}
	for i := range out {
		if !e.spend(1) {
			return
		}
		e.slots[o.slot], e.current = out[i], out[i]
		e.run(o.ops)
		if e.broken != nil {
			return
		}
		out[i] = e.current
		for j, slot := range o.lets {
			e.slots[slot] = outer[j]
		}
	}
	e.slots[o.slot], e.current = item, root
	grown := e.total.Minus(total) // the operations inside have counted it
	if o.over == value.Object {
		o.put(e, &o.target, e.ed.SetValues(s.v, out, grown), grown)
		return
	}
	o.put(e, &o.target, e.ed.Array(out, w.Plus(grown)), grown)
}

type setAtOp struct {
	base
	key    node
	value  operand
	target place
}

func (o *setAtOp) apply(e *Env) {
	key, ok := o.lookKey(e, o.key)
	if !ok {
		return
	}
	v, w, ok := o.take(e, &o.value)
	if !ok {
		return
	}
	if s, ok := o.object(e, &o.target); ok {
		o.setMember(e, &o.target, s, key, v, w)
	}
}

// setMember sets a member of the object that was found.
func (o *base) setMember(e *Env, p *place, s spot, key string, v value.Value, w value.Weight) {
	if e.swapIn(p.steps, key, &v, w) {
		return
	}
	grown := s.room.Plus(w)
	if old := s.v.Get(key); old.IsMissing() {
		grown = grown.Plus(entry(s.v, key))
	} else {
		grown = grown.Minus(old.Weight())
	}
	if o.fits(e, p, s, grown) {
		o.put(e, p, e.ed.SetMember(s.v, key, v), grown)
	}
}

// lookKey evaluates an operand that has to be a member's key.
func (o *base) lookKey(e *Env, n node) (string, bool) {
	key, ok := n.eval(e)
	if ok && key.Kind() != value.String {
		o.fault(e, "the key is %s, not a string", kindOf(key))
		return "", false
	}
	return key.Str(), ok && e.spend(len(key.Str())/work.BytesPerUnit)
}

type mergeAtOp struct {
	base
	key    node
	value  operand
	target place
}

func (o *mergeAtOp) apply(e *Env) {
	// What is merged, and into what.
	key, ok := o.lookKey(e, o.key)
	if !ok {
		return
	}
	v, _, ok := o.takeObject(e, &o.value)
	if !ok {
		return
	}
	s, ok := o.object(e, &o.target)
	if !ok {
		return
	}

	// The member is an object or is to become one.
	old := s.v.Get(key)
	if old.Kind() != value.Object && !absent(old) {
		if o.tells(e) {
			o.fault(e, "%s in %s is %s, not an object", e.named(key), &o.target, kindOf(old))
		}
		return
	}

	// The growth must fit into the state.
	if !e.spend(memberWork * v.Len()) {
		return
	}
	inside := merged(old, v)
	if old.Kind() != value.Object {
		inside = inside.Plus(empty()).Minus(old.Weight())
	}
	if old.IsMissing() {
		inside = inside.Plus(entry(s.v, key))
	}
	if grown := s.room.Plus(inside); o.fits(e, &o.target, s, grown) {
		o.put(e, &o.target, e.ed.SetGrown(s.v, key, e.ed.Merge(old, v), inside), grown)
	}
}

type removeAtOp struct {
	base
	key    node
	target place
}

func (o *removeAtOp) apply(e *Env) {
	key, ok := o.lookKey(e, o.key)
	if !ok {
		return
	}
	s, ok := o.object(e, &o.target)
	if !ok {
		return
	}
	old := s.v.Get(key)
	if old.IsMissing() {
		return
	}
	grown := value.Weight{Bytes: -(value.StringSize(key) + 1 + min(s.v.Len()-1, 1))}.Minus(old.Weight())
	if o.fits(e, &o.target, s, grown) {
		o.put(e, &o.target, e.ed.RemoveMember(s.v, key), grown)
	}
}

// incrementAtOp is "increment_at" and "decrement_at".
type incrementAtOp struct {
	base
	key      node
	by       node
	target   place
	subtract bool
}

func (o *incrementAtOp) apply(e *Env) {
	key, ok := o.lookKey(e, o.key)
	if !ok {
		return
	}
	by, ok := o.by.eval(e)
	if !ok {
		return
	}
	s, ok := o.object(e, &o.target)
	if !ok {
		return
	}
	if sum, ok := o.add(e, s.v.Get(key), by, o.subtract, &o.target, key); ok {
		o.setMember(e, &o.target, s, key, sum, sum.Weight())
	}
}

type ifOp struct {
	base
	when         predicate
	then, orElse []operation
}

func (o *ifOp) apply(e *Env) {
	switch o.when.test(e) {
	case yes:
		e.run(o.then)
	case no:
		e.run(o.orElse)
	case skip:
	}
}

// letOp is "let".
type letOp struct {
	base
	in    node
	match *match
	slot  int
	// keeps reports that the array is part of the state, so that the element will be in two places; keepsMade that it
	// is made of what may be part of it.
	keeps, keepsMade bool
}

func (o *letOp) apply(e *Env) {
	arr, ok := o.in.eval(e)
	if !ok {
		return
	}
	probe, ok := o.match.begin(e)
	if !ok {
		return
	}
	if arr.Kind() != value.Array && !absent(arr) {
		o.fault(e, "it searches %s, not an array", kindOf(arr))
		e.slots[o.slot] = value.Value{}
		return
	}
	i, ok := probe.find(e, arr)
	if !ok {
		return
	}
	found := value.Value{}
	if i >= 0 {
		found = arr.Index(i)
	}
	switch {
	case o.keeps:
		e.keep(found)
	case o.keepsMade:
		e.keepMade(found)
	}
	e.slots[o.slot] = found
}
