package tick

import (
	"fmt"
	"strconv"

	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/value"
)

// operation is a compiled operation. It either changes the state that it was meant to change or leaves it as it was.
type operation interface {
	apply(e *Env)
}

// Every operation evaluates its operands first, in the order of its fields, then looks at its target, then changes the
// state. So it may give up until the last moment, and what the operands freeze is frozen before anything is changed.

// base is what all operations have.
type base struct {
	at   diag.Pointer
	name string
}

func (o *base) fault(e *Env, format string, args ...any) {
	if e.faults != nil {
		e.faults(Fault{Pointer: o.at, Message: o.name + " changes nothing: " + fmt.Sprintf(format, args...)})
	}
}

// skipped ends an operation whose operands are not there. That is a fault only if a limit is the reason.
func (o *base) skipped(e *Env) {
	if e.problem != "" {
		o.fault(e, "%s", e.problem)
		e.problem = ""
	}
}

// place is a place in the state.
type place struct {
	text  string
	steps []value.Step
}

func (p *place) get(e *Env) value.Value { return e.current.At(p.steps) }

// String names the place in messages.
func (p *place) String() string {
	if p.text == "" {
		return "the state"
	}
	return strconv.Quote(p.text)
}

// put makes v stand at the place. It has to be the last thing that an operation does.
func (o *base) put(e *Env, p *place, v value.Value) {
	next, ok := e.ed.Put(e.current, p.steps, v)
	if !ok {
		o.fault(e, "%s", p.obstacle(e.current))
		return
	}
	e.current = next
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

// operand is a value that ends up in the state.
type operand struct {
	node
	// charged says that what is copied has to stay within bounds: it comes from the state, or ends up in several elements.
	charged bool
}

// take evaluates an operand that is to be kept. It reports false when the operation has to be left out.
func (o *base) take(e *Env, v *operand) (value.Value, bool) {
	got, ok := v.eval(e)
	if ok && v.charged {
		ok = e.charge(got)
	}
	if !ok {
		o.skipped(e)
	}
	return got, ok
}

// look evaluates an operand that is not kept.
func (o *base) look(e *Env, n node) (value.Value, bool) {
	v, ok := n.eval(e)
	if !ok {
		o.skipped(e)
	}
	return v, ok
}

// array returns the array at the place, or the zero Value if there is nothing. It reports false for anything else.
func (o *base) array(e *Env, p *place) (value.Value, bool) {
	arr := p.get(e)
	switch {
	case arr.Kind() == value.Array:
		return arr, true
	case absent(arr):
		return value.Value{}, true
	default:
		o.fault(e, "%s is %s, not an array", p, kindOf(arr))
		return arr, false
	}
}

// object is array for objects.
func (o *base) object(e *Env, p *place) (value.Value, bool) {
	obj := p.get(e)
	switch {
	case obj.Kind() == value.Object:
		return obj, true
	case absent(obj):
		return value.Value{}, true
	default:
		o.fault(e, "%s is %s, not an object", p, kindOf(obj))
		return obj, false
	}
}

type setOp struct {
	base
	value  operand
	target place
}

func (o *setOp) apply(e *Env) {
	if v, ok := o.take(e, &o.value); ok {
		o.put(e, &o.target, v)
	}
}

type mergeOp struct {
	base
	value  operand
	target place
}

func (o *mergeOp) apply(e *Env) {
	v, ok := o.takeObject(e, &o.value)
	if !ok {
		return
	}
	if obj, ok := o.object(e, &o.target); ok {
		o.put(e, &o.target, e.ed.Merge(obj, v))
	}
}

// takeObject is take for an operand that has to be an object.
func (o *base) takeObject(e *Env, v *operand) (value.Value, bool) {
	obj, ok := o.take(e, v)
	if ok && obj.Kind() != value.Object {
		o.fault(e, "the value to merge is %s, not an object", kindOf(obj))
		return obj, false
	}
	return obj, ok
}

type appendOp struct {
	base
	value  operand
	target place
}

func (o *appendOp) apply(e *Env) {
	v, ok := o.take(e, &o.value)
	if !ok {
		return
	}
	if arr, ok := o.array(e, &o.target); ok {
		o.put(e, &o.target, e.ed.Append(arr, v))
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
	v, ok := o.take(e, &o.value)
	if !ok {
		return
	}
	var steps []value.Step
	if o.by != nil {
		steps = o.by.steps
	}
	id := v.At(steps)
	if id.IsMissing() {
		o.fault(e, "the value has no field %s to tell it from others", o.by)
		return
	}
	arr, ok := o.array(e, &o.target)
	if !ok {
		return
	}
	if !e.spend(arr.Len()) {
		o.skipped(e)
		return
	}
	for _, elem := range arr.Elems() {
		if value.Equal(elem.At(steps), id) {
			return
		}
	}
	o.put(e, &o.target, e.ed.Append(arr, v))
}

// addOp is "increment" and "decrement".
type addOp struct {
	base
	by       node
	target   place
	subtract bool
}

func (o *addOp) apply(e *Env) {
	by, ok := o.look(e, o.by)
	if !ok {
		return
	}
	if sum, ok := o.add(e, o.target.get(e), by, o.subtract, &o.target, ""); ok {
		o.put(e, &o.target, sum)
	}
}

// add adds by to a number, or to zero where there is none. The number stands at p or is a member of what stands there.
func (o *base) add(e *Env, number, by value.Value, subtract bool, p *place, member string) (value.Value, bool) {
	if absent(number) {
		number = value.Int(0)
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
	case number.Kind() != value.Number && member != "":
		o.fault(e, "%s in %s is %s, not a number", diag.Quote(member), p, kindOf(number))
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
		o.skipped(e)
		return
	}
	arr, ok := o.array(e, &o.target)
	if !ok {
		return
	}
	if !probe.all(e, arr.Elems()) {
		o.skipped(e)
		return
	}
	if len(e.hits) > 0 {
		o.put(e, &o.target, e.ed.Array(without(arr.Elems(), e.hits, 0)))
	}
}

// without returns the elements that are not at the positions hits, with room for more.
func without(elems []value.Value, hits []int, more int) []value.Value {
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
	v, ok := o.look(e, o.value)
	if !ok {
		return
	}
	arr, ok := o.array(e, &o.target)
	if !ok {
		return
	}
	if !e.spend(arr.Len()) {
		o.skipped(e)
		return
	}
	e.hits = e.hits[:0]
	for i, elem := range arr.Elems() {
		if value.Equal(elem, v) {
			e.hits = append(e.hits, i)
		}
	}
	if len(e.hits) > 0 {
		o.put(e, &o.target, e.ed.Array(without(arr.Elems(), e.hits, 0)))
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
		o.skipped(e)
		return
	}
	arr, ok := o.array(e, &o.target)
	if !ok {
		return
	}
	elems := arr.Elems()
	if !probe.all(e, elems) {
		o.skipped(e)
		return
	}
	if len(e.hits) == len(elems) {
		return
	}
	kept := make([]value.Value, len(e.hits))
	for i, hit := range e.hits {
		kept[i] = elems[hit]
	}
	o.put(e, &o.target, e.ed.Array(kept))
}

// updateWhereOp is "update_where".
type updateWhereOp struct {
	base
	match *match
	merge operand
	// freezes says that the value to merge may hold elements of the target.
	freezes bool
	target  place
}

func (o *updateWhereOp) apply(e *Env) {
	probe, ok := o.match.begin(e)
	if !ok {
		o.skipped(e)
		return
	}
	arr, ok := o.array(e, &o.target)
	if !ok {
		return
	}
	if !probe.all(e, arr.Elems()) {
		o.skipped(e)
		return
	}
	if len(e.hits) == 0 {
		return
	}
	if o.freezes {
		e.ed.Freeze()
	}
	fields, ok := o.fields(e, arr)
	if !ok {
		return
	}
	for n, i := range e.hits {
		arr = e.ed.SetElem(arr, i, e.ed.Merge(arr.Index(i), fields[n%len(fields)]))
	}
	o.put(e, &o.target, arr)
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
		v, ok := o.takeObject(e, &o.merge)
		for n := 1; ok && n < len(e.hits); n++ {
			if ok = e.charge(v); !ok {
				o.skipped(e)
			}
		}
		return []value.Value{v}, ok
	}
	out := make([]value.Value, len(e.hits))
	outer := e.slots[o.match.slot]
	defer func() { e.slots[o.match.slot] = outer }()
	for n, i := range e.hits {
		e.slots[o.match.slot] = arr.Index(i)
		v, ok := o.takeObject(e, &o.merge)
		if !ok {
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
	v, ok := o.take(e, &o.value)
	if !ok {
		return
	}
	probe, ok := o.match.begin(e)
	if !ok {
		o.skipped(e)
		return
	}
	arr, ok := o.array(e, &o.target)
	if !ok {
		return
	}
	elems := arr.Elems()
	if !probe.all(e, elems) {
		o.skipped(e)
		return
	}
	switch len(e.hits) {
	case 0:
		arr = e.ed.Append(arr, v)
	case 1:
		// The elements behind it move up, in place if the array is the editor's own.
		last := len(elems) - 1
		for i := e.hits[0]; i < last; i++ {
			arr = e.ed.SetElem(arr, i, arr.Index(i+1))
		}
		arr = e.ed.SetElem(arr, last, v)
	default:
		arr = e.ed.Array(append(without(elems, e.hits, 1), v))
	}
	o.put(e, &o.target, arr)
}

// mapOp is "map".
type mapOp struct {
	base
	target place
	slot   int
	// freezes says that the binding is read, so that its value must stay as it is while the element changes.
	freezes bool
	// lets are the slots that operations inside bind; they are forgotten after each element.
	lets []int
	ops  []operation
}

func (o *mapOp) apply(e *Env) {
	arr, ok := o.array(e, &o.target)
	if !ok || arr.IsMissing() {
		return
	}
	if o.freezes {
		e.ed.Freeze()
	}
	elems := arr.Elems()
	out := make([]value.Value, len(elems))
	copy(out, elems)
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
		out[i] = e.current
		for j, slot := range o.lets {
			e.slots[slot] = outer[j]
		}
	}
	e.slots[o.slot], e.current = item, root
	o.put(e, &o.target, e.ed.Array(out))
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
	v, ok := o.take(e, &o.value)
	if !ok {
		return
	}
	if obj, ok := o.object(e, &o.target); ok {
		o.put(e, &o.target, e.ed.SetMember(obj, key, v))
	}
}

// lookKey evaluates an operand that has to be a member's key.
func (o *base) lookKey(e *Env, n node) (string, bool) {
	key, ok := o.look(e, n)
	if ok && key.Kind() != value.String {
		o.fault(e, "the key is %s, not a string", kindOf(key))
		return "", false
	}
	return key.Str(), ok
}

type mergeAtOp struct {
	base
	key    node
	value  operand
	target place
}

func (o *mergeAtOp) apply(e *Env) {
	key, ok := o.lookKey(e, o.key)
	if !ok {
		return
	}
	v, ok := o.takeObject(e, &o.value)
	if !ok {
		return
	}
	obj, ok := o.object(e, &o.target)
	if !ok {
		return
	}
	old := obj.Get(key)
	if old.Kind() != value.Object && !absent(old) {
		o.fault(e, "%s in %s is %s, not an object", diag.Quote(key), &o.target, kindOf(old))
		return
	}
	o.put(e, &o.target, e.ed.SetMember(obj, key, e.ed.Merge(old, v)))
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
	if obj, ok := o.object(e, &o.target); ok && !obj.Get(key).IsMissing() {
		o.put(e, &o.target, e.ed.RemoveMember(obj, key))
	}
}

type incrementAtOp struct {
	base
	key    node
	by     node
	target place
}

func (o *incrementAtOp) apply(e *Env) {
	key, ok := o.lookKey(e, o.key)
	if !ok {
		return
	}
	by, ok := o.look(e, o.by)
	if !ok {
		return
	}
	obj, ok := o.object(e, &o.target)
	if !ok {
		return
	}
	if sum, ok := o.add(e, obj.Get(key), by, false, &o.target, key); ok {
		o.put(e, &o.target, e.ed.SetMember(obj, key, sum))
	}
}

type ifOp struct {
	base
	when            predicate
	then, otherwise []operation
}

func (o *ifOp) apply(e *Env) {
	switch o.when.test(e) {
	case yes:
		e.run(o.then)
	case no:
		e.run(o.otherwise)
	case skip:
		o.skipped(e)
	}
}

// letOp is "let".
type letOp struct {
	base
	in    node
	match *match
	slot  int
	// keeps says that the array stands in the state, so that the element will be in two places.
	keeps bool
}

func (o *letOp) apply(e *Env) {
	arr, ok := o.look(e, o.in)
	if !ok {
		return
	}
	probe, ok := o.match.begin(e)
	if !ok {
		o.skipped(e)
		return
	}
	if arr.Kind() != value.Array && !absent(arr) {
		o.fault(e, "it searches %s, not an array", kindOf(arr))
		e.slots[o.slot] = value.Value{}
		return
	}
	i, ok := probe.find(e, arr.Elems())
	if !ok {
		o.skipped(e)
		return
	}
	found := value.Value{}
	if i >= 0 {
		found = arr.Index(i)
	}
	if o.keeps {
		e.keep(found)
	}
	e.slots[o.slot] = found
}
