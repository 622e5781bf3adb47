package value

import (
	"math"
	"slices"
)

// token marks the containers that one editor may change in place. It has a size, so that each is distinct.
type token struct{ _ byte }

// Editor derives new values from old ones. Containers that it made itself are changed in place; all others are
// copied the first time. An Editor is for one goroutine. What it returns may be read by others once the editor
// is frozen or no longer used.
//
// The weights of containers follow what is done to them. Where a container may have been changed in place before it is
// put back where it stood, only the caller knows by how much, so methods that put something back take that as grown.
type Editor struct {
	own *token
	// moved counts elements and members that were copied, or moved to other places.
	moved   int
	lookups Lookups
}

// NewEditor returns an editor that owns nothing yet.
func NewEditor() *Editor { return &Editor{own: new(token)} }

// Freeze gives up everything that the editor owns: values it returned so far will no longer change. It has to be
// called before a container is kept in a second place.
func (e *Editor) Freeze() { e.own = new(token) }

// Release gives up what the editor owns of v: v will no longer change, while its container may still be changed in
// place. It does what Freeze does, for a container whose parts were all put into it by the editor or are not the
// editor's at all. It returns how many values it visited.
func (e *Editor) Release(v Value) (visited int) {
	switch v.Kind() {
	case Array:
		a := v.array()
		if a.owner != e.own {
			return 0
		}
		a.owner = nil
		for i := range a.elems {
			visited += 1 + e.Release(a.elems[i])
		}
	case Object:
		o := v.object()
		if o.owner != e.own {
			return 0
		}
		o.owner = nil
		if o.index != nil && o.index.owner == e.own {
			o.index.owner = nil
		}
		for i := range o.members {
			visited += 1 + e.Release(o.members[i].Value)
		}
	case Missing, Null, Bool, Number, String:
	}
	return visited
}

// Moved returns how many elements and members were copied, or moved to other places, since it was last called.
func (e *Editor) Moved() int {
	n := e.moved
	e.moved = 0
	return n
}

// Lookups finds elements in the arrays that the editor works on. It stays right while the editor changes them.
func (e *Editor) Lookups() *Lookups { return &e.lookups }

// copyWork is how many members or elements are copied in the time that it takes to make a container, in memory and all.
const copyWork = 16

func (e *Editor) object(v Value) *object {
	if v.Kind() != Object {
		return &object{owner: e.own, weight: emptyKnown()}
	}
	o := v.object()
	if o.owner == e.own {
		return o
	}
	n := len(o.members)
	e.moved += n + copyWork
	return &object{
		owner: e.own, members: append(make([]Member, 0, n+n/4+4), o.members...), index: o.index,
		weight: o.weight.clone(),
	}
}

func (e *Editor) array(v Value) *array {
	if v.Kind() != Array {
		return &array{owner: e.own, weight: emptyKnown()}
	}
	a := v.array()
	if a.owner == e.own {
		return a
	}
	n := len(a.elems)
	e.moved += n + copyWork
	out := &array{owner: e.own, elems: append(make([]Value, 0, n+n/4+4), a.elems...), weight: a.weight.clone()}
	e.lookups.follow(a, out)
	return out
}

// Array returns an array of elems, which the editor owns from now on. w is the weight of the array.
func (e *Editor) Array(elems []Value, w Weight) Value {
	e.moved += len(elems)
	return arrayOf(&array{owner: e.own, elems: elems, weight: known{int64(w.Bytes), int64(w.Values)}})
}

// SetMember returns the object with the member set: in its old place if it had the key, else at the end. Anything but
// an object counts as an empty one.
func (e *Editor) SetMember(obj Value, key string, v Value) Value {
	if obj.Kind() != Object {
		obj = objectOf(&object{owner: e.own, weight: emptyKnown()})
	}
	e.Set(&obj, key, &v, v.Weight(), Weight{math.MaxInt, math.MaxInt})
	return obj
}

// SetGrown is SetMember for a member whose value may have been changed in place: it makes the object grow by grown.
func (e *Editor) SetGrown(obj Value, key string, v Value, grown Weight) Value {
	o := e.object(obj)
	o.weight.grow(grown)
	if i := o.find(key); i >= 0 {
		o.members[i].Value = v
	} else {
		e.addMember(o, key, v)
	}
	return objectOf(o)
}

// Set is SetMember in place, for a value of weight w. It returns by how much the object grew. It reports false, and
// changes nothing, where obj is no object or the growth exceeds room.
func (e *Editor) Set(obj *Value, key string, v *Value, w, room Weight) (grown Weight, ok bool) {
	if obj.Kind() != Object {
		return Weight{}, false
	}
	o := obj.object()
	i := o.find(key)
	if i < 0 {
		if grown = w.Plus(entry(len(o.members), key)); !grown.Fits(room) {
			return Weight{}, false
		}
		o = e.owned(obj)
		o.weight.grow(grown)
		e.addMember(o, key, *v)
		return grown, true
	}
	old := &o.members[i].Value
	if *old == *v {
		return Weight{}, true
	}
	if grown = w.Minus(old.Weight()); !grown.Fits(room) {
		return Weight{}, false
	}
	o = e.owned(obj)
	o.weight.grow(grown)
	o.members[i].Value = *v
	return grown, true
}

// owned makes the editor own an object.
func (e *Editor) owned(obj *Value) *object {
	o := obj.object()
	if o.owner != e.own {
		o = e.object(*obj)
		*obj = objectOf(o)
	}
	return o
}

// Add is Set with the sum of the member's value and by, or with the difference. It reports false, too, where there is
// no such member, or it and by are not both small numbers.
func (e *Editor) Add(obj *Value, key string, by *Value, subtract bool, room Weight) (grown Weight, ok bool) {
	if obj.Kind() != Object {
		return Weight{}, false
	}
	o := obj.object()
	i := o.find(key)
	if i < 0 {
		return Weight{}, false
	}
	old := &o.members[i].Value
	sum, scale, ok := addSmall(old, by, subtract)
	if !ok {
		return Weight{}, false
	}
	if grown.Bytes = decimalSize(sum, scale) - decimalSize(old.coef(), old.scale()); !grown.Fits(room) {
		return Weight{}, false
	}
	o = e.owned(obj)
	o.weight.grow(grown)
	o.members[i].Value = decimal(sum, scale)
	return grown, true
}

// maxWay is how many objects a Way leads through.
const maxWay = 4

// Way leads to a value through objects that an editor owns, so that the value may be changed where it stands.
type Way struct {
	objects [maxWay]*object
	n       int
	// At is the value at the end.
	At *Value
}

// Way finds the value at the end of steps from root. It reports false where one of them is no key or leads nowhere,
// where one of the objects on the way is not the editor's own, or where there are many.
func (e *Editor) Way(root *Value, steps []Step) (w Way, ok bool) {
	if len(steps) > maxWay {
		return w, false
	}
	for i := range steps {
		if root.Kind() != Object || steps[i].IsIndex || root.object().owner != e.own {
			return w, false
		}
		o := root.object()
		at := o.find(steps[i].Key)
		if at < 0 {
			return w, false
		}
		w.objects[i], root = o, &o.members[at].Value
	}
	w.n, w.At = len(steps), root
	return w, true
}

// Grow adds the growth of the value at the end to the weights of all objects on the way.
func (w *Way) Grow(by Weight) {
	for _, o := range w.objects[:w.n] {
		o.weight.grow(by)
	}
}

// entrySize returns what a new member's key takes, with what separates it, in an object that has so many members.
func entrySize(members int, key string) int { return StringSize(key) + 1 + min(members, 1) }

// entry is what a new member takes beside its value.
func entry(members int, key string) Weight { return Weight{Bytes: entrySize(members, key)} }

// addMember puts a new member at the end.
func (e *Editor) addMember(o *object, key string, v Value) {
	o.members = append(o.members, Member{key, v})
	x, covered := o.index, o.index.covers()
	switch {
	case x != nil && x.owner == e.own && covered == len(o.members)-1:
		e.moved += indexWork
		x.at[key] = x.n
		x.n++
	case len(o.members)-covered > maxUnindexed:
		e.reindex(o)
	}
}

// maxUnindexed is how many members at the end of an object are looked through one by one.
const maxUnindexed = 2 * IndexFrom

// indexWork is how many times as long it takes to index a member as to copy it.
const indexWork = 24

func (e *Editor) reindex(o *object) {
	e.moved += indexWork * len(o.members)
	if o.index = newIndex(o.members); o.index != nil {
		o.index.owner = e.own
	}
}

// RemoveMember returns the object without the member.
func (e *Editor) RemoveMember(obj Value, key string) Value {
	if obj.Kind() != Object || obj.object().find(key) < 0 {
		return obj
	}
	o := e.object(obj)
	i := o.find(key)
	o.weight.grow(Weight{}.Minus(entry(len(o.members)-1, key).Plus(o.members[i].Value.Weight())))
	e.moved += len(o.members) - i
	indexed := i < o.index.covers()
	o.members = append(o.members[:i], o.members[i+1:]...)
	switch x := o.index; {
	case !indexed:
	case len(o.members) <= IndexFrom, len(x.gone) >= 2*IndexFrom+x.n/8:
		e.reindex(o)
	default:
		// Only gone records the removal; the rest of the index stays as it is, since another version of the object may
		// share it.
		at := x.at[key]
		before, _ := slices.BinarySearch(x.gone, at)
		e.moved += len(x.gone) / 4
		if x.owner == e.own {
			delete(x.at, key)
			x.gone = slices.Insert(x.gone, before, at)
			return objectOf(o)
		}
		gone := append(make([]int, 0, len(x.gone)+1), x.gone[:before]...)
		o.index = &index{at: x.at, n: x.n, gone: append(append(gone, at), x.gone[before:]...)}
	}
	return objectOf(o)
}

// Merge returns the object dst with all members of the object src set.
func (e *Editor) Merge(dst, src Value) Value {
	if dst.Len() == 0 && src.Len() > 0 {
		return e.copied(src.object())
	}
	for _, m := range src.Members() {
		dst = e.SetMember(dst, m.Key, m.Value)
	}
	if dst.Kind() != Object {
		return objectOf(&object{owner: e.own, weight: emptyKnown()})
	}
	return dst
}

// copied returns a copy of an object.
func (e *Editor) copied(o *object) Value {
	n := len(o.members)
	e.moved += n + copyWork
	out := &object{
		owner: e.own, members: append(make([]Member, 0, n+n/4+4), o.members...), index: o.index,
		weight: o.weight.clone(),
	}
	if out.index != nil && out.index.owner != nil { // its editor may go on changing it
		e.reindex(out)
	}
	return objectOf(out)
}

// Append returns the array with v at its end. Anything but an array counts as an empty one.
func (e *Editor) Append(arr, v Value) Value {
	a := e.array(arr)
	a.weight.grow(v.Weight().Plus(Weight{Bytes: min(len(a.elems), 1)}))
	a.elems = append(a.elems, v)
	e.lookups.appended(a)
	return arrayOf(a)
}

// SetValues returns the object with other values, in the order of its members, which make it grow by grown.
func (e *Editor) SetValues(obj Value, values []Value, grown Weight) Value {
	o := e.object(obj)
	for i, v := range values {
		o.members[i].Value = v
	}
	o.weight.grow(grown)
	e.moved += len(values)
	return objectOf(o)
}

// SetElem returns the array with element i replaced, which makes it grow by grown; i must be in range.
func (e *Editor) SetElem(arr Value, i int, v Value, grown Weight) Value {
	a := e.array(arr)
	a.weight.grow(grown)
	a.elems[i] = v
	e.lookups.replaced(a, i)
	return arrayOf(a)
}

// RemoveElem returns the array without element i, which must be in range.
func (e *Editor) RemoveElem(arr Value, i int) Value {
	a := e.array(arr)
	a.weight.grow(Weight{}.Minus(a.elems[i].Weight().Plus(Weight{Bytes: min(len(a.elems)-1, 1)})))
	e.moved += len(a.elems) - i
	a.elems = slices.Delete(a.elems, i, i+1)
	e.lookups.removed(a, i)
	return arrayOf(a)
}

// Room returns what it takes to put a value at the end of steps, beside the value itself: the present value there, and
// what new keys and containers on the way take when there is none. It reports false where Put does.
func Room(root Value, steps []Step) (old Value, room Weight, ok bool) {
	for i := range steps {
		s := &steps[i]
		if s.IsIndex {
			if root = root.Index(s.Index); root.Kind() == Missing {
				return Value{}, Weight{}, false
			}
			continue
		}

		// A member that is there leads on.
		switch root.Kind() {
		case Object:
			o := root.object()
			at := o.find(s.Key)
			if at >= 0 {
				root = o.members[at].Value
				continue
			}
			room = room.Plus(entry(len(o.members), s.Key))
		case Missing, Null:
			room = room.Plus(Weight{2, 1}).Minus(root.Weight()).Plus(entry(0, s.Key))
		case Bool, Number, String, Array:
			return Value{}, Weight{}, false
		}

		// From the first one that is not, everything below is new.
		for _, s := range steps[i+1:] {
			if s.IsIndex {
				return Value{}, Weight{}, false
			}
			room = room.Plus(Weight{2, 1}).Plus(entry(0, s.Key))
		}
		return Value{}, room, true
	}
	return root, Weight{}, true
}

// Put returns root with v at the end of steps, which makes it grow by grown. Missing and null containers on the way
// become objects. It reports false, and changes nothing, when a step does not fit the value there: a key into anything
// but an object, an index into anything but an array or out of its range.
func (e *Editor) Put(root Value, steps []Step, v Value, grown Weight) (Value, bool) {
	if len(steps) == 0 {
		return v, true
	}

	s := &steps[0]

	// An element, counted from the end where the index is negative.
	if s.IsIndex {
		i, n := s.Index, root.Len()
		if i < 0 {
			i += n
		}
		if root.Kind() != Array || i < 0 || i >= n {
			return root, false
		}
		child, ok := e.Put(root.array().elems[i], steps[1:], v, grown)
		if !ok {
			return root, false
		}
		return e.SetElem(root, i, child, grown), true
	}

	// A member. A scalar does not give way to one.
	child := v
	switch root.Kind() {
	case Missing, Null, Object:
		if len(steps) > 1 {
			var ok bool
			if child, ok = e.Put(root.Get(s.Key), steps[1:], v, grown); !ok {
				return root, false
			}
		}
	case Bool, Number, String, Array:
		return root, false
	}

	if root.Kind() != Object {
		// It is new, so it may be asked for its size.
		return objectOf(&object{owner: e.own, members: []Member{{s.Key, child}}}), true
	}
	return e.SetGrown(root, s.Key, child, grown), true
}
