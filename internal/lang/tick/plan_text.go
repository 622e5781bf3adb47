package tick

import (
	"bytes"
	"sync"

	"j17/internal/base/value"
)

// edit is an operation of a plan that only moves, drops and sets texts: none of them has to be parsed.
type edit struct {
	kind editKind
	// from and to are encoded keys. What is dropped is at from, what is moved comes to to, as does what is set.
	from, to [][]byte
	// text is what is set.
	text []byte
}

type editKind uint8

const (
	moves editKind = iota
	drops
	defaults
	sets
)

// editsOf returns the edits that steps are made of, nil if one of their operations is another one.
func editsOf(steps []*Upcast) []edit {
	all := []edit{}
	for _, u := range steps {
		for _, op := range u.steps.ops {
			e, ok := editOf(op)
			if !ok {
				return nil
			}
			all = append(all, e)
		}
	}
	return all
}

func editOf(op operation) (e edit, ok bool) {
	from, to := []value.Step(nil), []value.Step(nil)
	var set *operand
	switch op := op.(type) {
	case *moveOp:
		e.kind, from, to = moves, op.from.steps, op.to.steps
	case *dropOp:
		e.kind, from = drops, op.target.steps
	case *defaultOp:
		e.kind, to, set = defaults, op.target.steps, &op.value
	case *setOp:
		e.kind, to, set = sets, op.target.steps, &op.value
	default:
		return e, false
	}
	if set != nil {
		if !isLiteral(set.node) {
			return e, false
		}
		e.text = literalOf(set.node).AppendJSON(nil)
	}
	var known [2]bool
	e.from, known[0] = encodedKeys(from)
	e.to, known[1] = encodedKeys(to)
	needs := [2]bool{e.kind <= drops, e.kind != drops}
	return e, known[0] && known[1] && needs == [2]bool{len(from) > 0, len(to) > 0}
}

// encodedKeys returns keys as they are written, false if there is an index among them.
func encodedKeys(steps []value.Step) (keys [][]byte, ok bool) {
	for _, s := range steps {
		if s.IsIndex {
			return nil, false
		}
		keys = append(keys, value.AppendString(nil, s.Key))
	}
	return keys, true
}

const (
	// maxEdited is how long a text may be that is edited, maxLooked how many members may be looked at. Beyond that it
	// is faster to parse it.
	maxEdited = 64 << 10
	maxLooked = 1 << 16
	// maxPieces is how many pieces a tree keeps room for between texts.
	maxPieces = 1 << 10
)

// AppendText appends the text of data in the newest generation to dst, made of pieces of the stored text. Every step
// has to be known to fit. It reports false where values have to be parsed.
func (p *Plan) AppendText(dst, stored []byte) ([]byte, bool) {
	edits := p.edits()
	if edits == nil || len(stored) == 0 || len(stored) > maxEdited {
		return dst, false
	}
	t, _ := texts.Get().(*textTree)
	defer t.release()
	t.add(nil, stored)
	for i := range edits {
		if !t.apply(&edits[i]) || t.looked > maxLooked {
			return dst, false
		}
	}
	return t.appendTo(dst, 0), true
}

//nolint:gochecknoglobals // a pool has to outlive its users
var texts = sync.Pool{New: func() any { return new(textTree) }}

// textTree is JSON of which the objects that edits reach into are taken apart. Its root is the first node.
type textTree struct {
	nodes []textPiece
	// looked is how many members were compared with keys.
	looked int
}

// release gives the tree back to the pool.
func (t *textTree) release() {
	if cap(t.nodes) > maxPieces {
		return
	}
	clear(t.nodes)
	t.nodes, t.looked = t.nodes[:0], 0
	texts.Put(t)
}

// textPiece is a value: a text, or an object whose members are first and what follows it.
type textPiece struct {
	key, text   []byte
	open        bool
	first, next int // indexes of nodes; 0 is none
}

func (t *textTree) add(key, text []byte) int {
	t.nodes = append(t.nodes, textPiece{key: key, text: text})
	return len(t.nodes) - 1
}

// open takes an object apart, and reports false for every other value.
func (t *textTree) open(at int) bool {
	if t.nodes[at].open {
		return true
	}
	text, last := t.nodes[at].text, 0
	if text[0] != '{' {
		return false
	}
	ok := value.EachMember(text, func(key, text []byte) {
		n := t.add(key, text)
		if last == 0 {
			t.nodes[at].first = n
		} else {
			t.nodes[last].next = n
		}
		last = n
	})
	t.nodes[at].open = ok
	return ok
}

// member returns the node of a member, and that of the member before it; 0 for none.
func (t *textTree) member(of int, key []byte) (at, before int) {
	for at = t.nodes[of].first; at != 0 && !bytes.Equal(t.nodes[at].key, key); at = t.nodes[at].next {
		before = at
		t.looked++
	}
	return at, before
}

// find returns the node at keys with the object that it is a member of and the member before it, 0 if keys lead
// nowhere.
func (t *textTree) find(keys [][]byte) (at, of, before int) {
	for _, key := range keys {
		of = at
		if !t.open(of) {
			return 0, 0, 0
		}
		if at, before = t.member(of, key); at == 0 {
			return 0, 0, 0
		}
	}
	return at, of, before
}

// apply makes an edit. It reports false if it does not fit.
func (t *textTree) apply(e *edit) bool {
	switch e.kind {
	case defaults:
		if at, _, _ := t.find(e.to); at != 0 {
			return true
		}
		return t.put(e.to, t.add(nil, e.text))
	case sets:
		return t.put(e.to, t.add(nil, e.text))
	case moves, drops:
	}
	at, of, before := t.find(e.from)
	if at == 0 {
		return true
	}
	if next := t.nodes[at].next; before == 0 {
		t.nodes[of].first = next
	} else {
		t.nodes[before].next = next
	}
	t.nodes[at].next = 0
	if e.kind == drops {
		return true
	}
	if there, _, _ := t.find(e.to); there != 0 {
		return false
	}
	return t.put(e.to, at)
}

// put puts a node, which is not part of the tree, at keys. Objects that are missing are made.
func (t *textTree) put(keys [][]byte, node int) bool {
	at := 0
	for _, key := range keys[:len(keys)-1] {
		if !t.opened(at) {
			return false
		}
		next, last := t.member(at, key)
		if next == 0 {
			next = t.add(key, []byte("null"))
			t.link(at, last, next)
		}
		at = next
	}
	if !t.opened(at) {
		return false
	}
	key := keys[len(keys)-1]
	there, before := t.member(at, key)
	if there != 0 {
		t.nodes[node].next = t.nodes[there].next
	}
	t.nodes[node].key = key
	t.link(at, before, node)
	return true
}

// opened is open, which makes an object where null is.
func (t *textTree) opened(at int) bool {
	if !t.nodes[at].open && string(t.nodes[at].text) == "null" {
		t.nodes[at].open = true
	}
	return t.open(at)
}

// link makes a node the first member of an object, or the one after another.
func (t *textTree) link(of, before, node int) {
	if before == 0 {
		t.nodes[of].first = node
	} else {
		t.nodes[before].next = node
	}
}

func (t *textTree) appendTo(dst []byte, at int) []byte {
	n := &t.nodes[at]
	if !n.open {
		return append(dst, n.text...)
	}
	dst = append(dst, '{')
	for m := n.first; m != 0; m = t.nodes[m].next {
		if m != n.first {
			dst = append(dst, ',')
		}
		dst = append(append(dst, t.nodes[m].key...), ':')
		dst = t.appendTo(dst, m)
	}
	return append(dst, '}')
}
