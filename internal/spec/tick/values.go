package tick

import (
	"j17/internal/spec/jsonpath"
	"j17/internal/value"
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
)

type pathNode struct {
	from source
	// slot is the binding's, pick the value's among those picked out of the document or -1.
	slot, pick int
	// steps start at what the source stands for.
	steps    []value.Step
	entries  bool
	optional bool
	// keeps says that the value ends up in a second place beside the one where it stands in the state.
	keeps bool
}

// find returns what the path leads to, which may be missing.
func (n *pathNode) find(e *Env) value.Value {
	if !e.spend(1 + len(n.steps)/2) {
		return value.Value{}
	}
	v := n.base(e)
	if n.entries {
		if !e.spend(entryWork * v.Len()) {
			return value.Value{}
		}
		return jsonpath.Entries(v)
	}
	return v
}

// entryWork is what it takes to make an entry of a member.
const entryWork = 3

func (n *pathNode) base(e *Env) value.Value {
	switch n.from {
	case fromData:
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
	default:
		return value.Value{}
	}
}

// value returns the whole event as an object.
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
	if n.keeps {
		e.keep(v)
	}
	return v, true
}

// objectNode makes an object with the keys in their order.
type objectNode struct {
	keys   []string
	values []node
}

func (n *objectNode) eval(e *Env) (value.Value, bool) {
	if !e.spend(1 + 2*len(n.keys)) {
		return value.Value{}, false
	}
	members := make([]value.Member, len(n.keys))
	for i, key := range n.keys {
		v, ok := n.values[i].eval(e)
		if !ok {
			return value.Value{}, false
		}
		members[i] = value.Member{Key: key, Value: v}
	}
	return value.ObjectValue(members...), true
}

type arrayNode struct{ elems []node }

func (n *arrayNode) eval(e *Env) (value.Value, bool) {
	if !e.spend(1 + len(n.elems)) {
		return value.Value{}, false
	}
	elems := make([]value.Value, len(n.elems))
	for i, elem := range n.elems {
		v, ok := elem.eval(e)
		if !ok {
			return value.Value{}, false
		}
		elems[i] = v
	}
	return value.ArrayValue(elems...), true
}

// mergeNode is {"$merge": [...]}.
type mergeNode struct{ items []node }

func (n *mergeNode) eval(e *Env) (value.Value, bool) {
	ed := value.NewEditor()
	out := value.ObjectValue()
	for _, item := range n.items {
		v, ok := item.eval(e)
		if !ok || v.Kind() != value.Object {
			continue
		}
		if !e.spend(1 + memberWork*v.Len()) {
			return value.Value{}, false
		}
		out = ed.Merge(out, v)
	}
	return out, true
}

// memberWork is what it takes to put a member into an object.
const memberWork = 4
