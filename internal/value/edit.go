package value

// token marks the containers that one editor may change in place. It has a size, so that each is distinct.
type token struct{ _ byte }

// Editor derives new values from old ones. Containers that it made itself are changed in place; all others are
// copied the first time. An Editor is for one goroutine. What it returns may be read by others once the editor
// is frozen or no longer used.
type Editor struct{ own *token }

// NewEditor returns an editor that owns nothing yet.
func NewEditor() *Editor { return &Editor{own: new(token)} }

// Freeze gives up everything that the editor owns: values it returned so far will not change any more. It has to be
// called before a container is kept in a second place.
func (e *Editor) Freeze() { e.own = new(token) }

func (e *Editor) object(v Value) *object {
	if v.kind != Object {
		return &object{owner: e.own}
	}
	o := v.object()
	if o.owner == e.own {
		return o
	}
	n := len(o.members)
	return &object{owner: e.own, members: append(make([]Member, 0, n+n/4+4), o.members...), index: o.index}
}

func (e *Editor) array(v Value) *array {
	if v.kind != Array {
		return &array{owner: e.own}
	}
	a := v.array()
	if a.owner == e.own {
		return a
	}
	n := len(a.elems)
	return &array{owner: e.own, elems: append(make([]Value, 0, n+n/4+4), a.elems...)}
}

// Array returns an array of elems, which the editor owns from now on.
func (e *Editor) Array(elems []Value) Value { return arrayOf(&array{owner: e.own, elems: elems}) }

// SetMember returns the object with the member set: in its old place if it had the key, else at the end. Anything but
// an object counts as an empty one.
func (e *Editor) SetMember(obj Value, key string, v Value) Value {
	o := e.object(obj)
	if i := o.find(key); i >= 0 {
		o.members[i].Value = v
		return objectOf(o)
	}
	o.members = append(o.members, Member{key, v})
	covered := 0
	if o.index != nil {
		covered = o.index.n
	}
	if len(o.members)-covered > indexFrom+covered/4 {
		o.index = newIndex(o.members)
	}
	return objectOf(o)
}

// RemoveMember returns the object without the member.
func (e *Editor) RemoveMember(obj Value, key string) Value {
	if obj.kind != Object || obj.object().find(key) < 0 {
		return obj
	}
	o := e.object(obj)
	i := o.find(key)
	o.members = append(o.members[:i], o.members[i+1:]...)
	o.index = newIndex(o.members)
	return objectOf(o)
}

// Merge returns the object dst with all members of the object src set.
func (e *Editor) Merge(dst, src Value) Value {
	for _, m := range src.Members() {
		dst = e.SetMember(dst, m.Key, m.Value)
	}
	if dst.kind != Object {
		return objectOf(&object{owner: e.own})
	}
	return dst
}

// Append returns the array with v at its end. Anything but an array counts as an empty one.
func (e *Editor) Append(arr, v Value) Value {
	a := e.array(arr)
	a.elems = append(a.elems, v)
	return arrayOf(a)
}

// SetElem returns the array with element i replaced; i must be in range.
func (e *Editor) SetElem(arr Value, i int, v Value) Value {
	a := e.array(arr)
	a.elems[i] = v
	return arrayOf(a)
}

// Put returns root with v at the end of steps. Missing and null containers on the way become objects. It reports
// false, and changes nothing, when a step does not fit what stands there: a key into anything but an object, an index
// into anything but an array or out of its range.
func (e *Editor) Put(root Value, steps []Step, v Value) (Value, bool) {
	if len(steps) == 0 {
		return v, true
	}
	s := &steps[0]
	if s.IsIndex {
		i, n := s.Index, root.Len()
		if i < 0 {
			i += n
		}
		if root.kind != Array || i < 0 || i >= n {
			return root, false
		}
		child, ok := e.Put(root.array().elems[i], steps[1:], v)
		if !ok {
			return root, false
		}
		return e.SetElem(root, i, child), true
	}
	switch root.kind {
	case Missing, Null, Object:
		if len(steps) == 1 {
			return e.SetMember(root, s.Key, v), true
		}
		child, ok := e.Put(root.Get(s.Key), steps[1:], v)
		if !ok {
			return root, false
		}
		return e.SetMember(root, s.Key, child), true
	case Bool, Number, String, Array:
	}
	return root, false
}
