package tick

import (
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/jsonpath"
)

// node is a compiled value.
type node interface {
	// eval returns the value, which is never missing. It reports false when the operation is to be skipped.
	eval(e *Env) (value.Value, bool)
}

type literal struct{ v value.Value }

func (n *literal) eval(*Env) (value.Value, bool) { return n.v, true }

// source is what the first steps of a path stand for.
type source uint8

const (
	fromEvent source = iota
	fromKey
	fromType
	fromTimestamp
	fromData
	fromMetadata
	fromState
	fromCurrent
	fromSlot
	// The following exist only outside of handlers: the half of the key after the colon, what "$" has beside the event,
	// all of "$", and the state of another aggregate, whose index among the reads is the slot.
	fromID
	fromMembers
	fromWhole
	fromRead
	// fromView is a view of an older generation's data, whose index is the slot.
	fromView
)

type pathNode struct {
	from source
	// slot is the binding's or the read's, pick the value's among those picked out of the document or -1.
	slot, pick int
	// steps start at what the source stands for.
	steps []value.Step
	// each has the steps behind every "[*]".
	each     [][]value.Step
	entries  bool
	optional bool
	// remade reports that the value is made from the one that the steps lead to: by entries, or by "[*]".
	remade bool
	// keeps reports that the value ends up in a second place beside the one that it has in the state.
	keeps bool
}

// find returns what the path leads to, which may be missing.
func (n *pathNode) find(e *Env) value.Value {
	if !e.spend(1 + len(n.steps)/2) {
		return value.Value{}
	}
	v := n.base(e)
	if n.remade {
		return n.remake(e, v)
	}
	return v
}

// remake makes the array of the elements behind "[*]", or that of the entries of an object, or of each of these
// elements.
func (n *pathNode) remake(e *Env, v value.Value) value.Value {
	if len(n.each) > 0 {
		v = n.elements(e, v)
	}
	switch {
	case !n.entries:
		return v
	case len(n.each) == 0 || v.IsMissing():
		return entriesOf(e, v)
	}
	all := make([]value.Value, v.Len())
	for i, elem := range v.Elems() {
		all[i] = entriesOf(e, elem)
	}
	return value.ArrayValue(all...)
}

// entriesOf returns the entries of an object.
func entriesOf(e *Env, v value.Value) value.Value {
	if !e.spend(entryWork * v.Len()) {
		return value.Value{}
	}
	return jsonpath.Entries(v)
}

// elements follows the steps behind "[*]" from every element of v.
func (n *pathNode) elements(e *Env, v value.Value) value.Value {
	if v.Kind() != value.Array {
		return value.Value{}
	}
	found := v.Elems()
	for i, steps := range n.each {
		if !e.spend((1 + len(steps)/2) * len(found)) {
			return value.Value{}
		}
		var next []value.Value
		last := i == len(n.each)-1
		for _, elem := range found {
			at := elem.At(steps)
			switch {
			case last && !at.IsMissing():
				next = append(next, at)
			case !last:
				next = append(next, at.Elems()...)
			}
		}
		found = next
	}
	return value.ArrayValue(found...)
}

// entryWork is what it takes to make an entry of a member.
const entryWork = 3

func (n *pathNode) base(e *Env) value.Value {
	switch n.from {
	case fromData:
		// A field that was picked out of the text spares parsing the rest.
		if n.pick >= 0 {
			return e.data.at(e, &e.event.Data, n.pick)
		}
		return e.parse(&e.event.Data).At(n.steps)
	case fromCurrent:
		return e.current.At(n.steps)
	case fromSlot:
		return e.slots[n.slot].At(n.steps)
	case fromTimestamp:
		return value.Int(e.event.Timestamp).At(n.steps)
	case fromMetadata:
		if n.pick >= 0 {
			return e.metadata.at(e, &e.event.Metadata, n.pick)
		}
		return e.parse(&e.event.Metadata).At(n.steps)
	case fromKey:
		return value.StringValue(e.event.Key).At(n.steps)
	case fromType:
		return value.StringValue(e.event.Type).At(n.steps)
	case fromState:
		return e.state.At(n.steps)
	case fromEvent:
		e.parse(&e.event.Data)
		e.parse(&e.event.Metadata)
		return e.event.value()
	case fromID:
		return value.StringValue(e.event.id()).At(n.steps)
	case fromRead:
		if n.slot < len(e.reads) {
			return e.reads[n.slot].At(n.steps)
		}
		return value.Value{}
	case fromView:
		return e.views.value(e, n.slot)
	case fromMembers:
		return e.members.At(n.steps)
	case fromWhole:
		return e.whole().At(n.steps)
	default:
		return value.Value{}
	}
}

// id returns the half of the key after the colon.
func (ev *Event) id() string {
	_, id, _ := strings.Cut(ev.Key, ":")
	return id
}

// value returns the whole event as handlers and conditions see it.
func (ev *Event) value() value.Value {
	return value.ObjectValue(
		value.Member{Key: "key", Value: value.StringValue(ev.Key)},
		value.Member{Key: "type", Value: value.StringValue(ev.Type)},
		value.Member{Key: "data", Value: ev.Data.Value().OrNull()},
		value.Member{Key: "metadata", Value: ev.Metadata.Value().OrNull()})
}

func (n *pathNode) eval(e *Env) (value.Value, bool) {
	v := n.find(e)
	if v.IsMissing() {
		return value.NullValue(), !n.optional && e.work.Err() == nil
	}
	switch {
	case !n.keeps:
	case n.entries:
		e.keepMade(v)
	default:
		e.keep(v)
	}
	return v, true
}

// objectNode makes an object with the keys in their order.
type objectNode struct {
	keys   []string
	values []node
	// lenient reports that a member without a value is left out, instead of the whole that the object is part of, and
	// that what cannot be computed is null.
	lenient bool
}

func (n *objectNode) eval(e *Env) (value.Value, bool) {
	if !e.spend(1 + 2*len(n.keys)) {
		return value.Value{}, false
	}
	members := make([]value.Member, 0, len(n.keys))
	for i, key := range n.keys {
		v, ok := n.values[i].eval(e)
		switch {
		case ok:
			members = append(members, value.Member{Key: key, Value: v})
		case n.lenient && e.forgiven():
			members = append(members, value.Member{Key: key, Value: value.NullValue()})
		case !n.lenient || e.work.Err() != nil:
			return value.Value{}, false
		}
	}
	return value.ObjectValue(members...), true
}

// arrayNode makes an array.
type arrayNode struct {
	elems []node
	// lenient reports that an element without a value is left out, instead of the whole that the array is part of, and
	// that what cannot be computed is null.
	lenient bool
}

func (n *arrayNode) eval(e *Env) (value.Value, bool) {
	if !e.spend(1 + len(n.elems)) {
		return value.Value{}, false
	}
	elems := make([]value.Value, 0, len(n.elems))
	for _, elem := range n.elems {
		v, ok := elem.eval(e)
		switch {
		case ok:
			elems = append(elems, v)
		case n.lenient && e.forgiven():
			elems = append(elems, value.NullValue())
		case !n.lenient || e.work.Err() != nil:
			return value.Value{}, false
		}
	}
	return value.ArrayValue(elems...), true
}

// mergeNode is {"$merge": [...]}, in templates {"merge": [...]}. Items that are no objects, or have an optional path
// that leads nowhere, are left out.
type mergeNode struct{ items []node }

func (n *mergeNode) eval(e *Env) (value.Value, bool) {
	ed := value.NewEditor()
	out := value.ObjectValue()
	for _, item := range n.items {
		v, ok := item.eval(e)
		if e.misfit != nil {
			return v, false
		}
		if !ok || v.Kind() != value.Object {
			continue
		}
		if !e.spend(1 + memberWork*v.Len()) {
			return value.Value{}, false
		}
		out = ed.Merge(out, v)
		if !e.spend(ed.Moved() / movedPerUnit) {
			return value.Value{}, false
		}
	}
	return out, true
}

// memberWork is what it takes to put a member into an object.
const memberWork = 4
