package lint

import (
	"maps"
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/tick"
)

// written is what the handlers of an aggregate type write to one place of its state, or what may be at one place of an
// event's data while they are brought to the next generation.
type written struct {
	// data reports that it is all of an event's data.
	data bool
	// open reports that members may be written whose names are not known in advance.
	open bool
	// put is the kinds of the values that are put there as a whole, made of those that operations make where there is
	// nothing.
	put, made outline.Kinds
	members   map[string]*written
	// elements is what is written to the elements of an array there, nil for nothing.
	elements *written
}

// element returns the place of the elements of an array.
func (w *written) element() *written {
	if w.elements == nil {
		w.elements = &written{}
	}
	return w.elements
}

// next returns the place that a step leads to, nil where nothing is written there.
func (w *written) next(step value.Step) *written {
	if step.IsIndex {
		return w.elements
	}
	return w.members[step.Key]
}

func (w *written) member(key string) *written {
	if w.members == nil {
		w.members = map[string]*written{}
	}
	if w.members[key] == nil {
		w.members[key] = &written{}
	}
	return w.members[key]
}

// anything marks a place where it is not known what is written.
func (w *written) anything() { w.open, w.put = true, outline.Any }

// at returns the place that steps lead to. It is nil where that is not known, or where name, a member of what the steps
// before i lead to, is never written.
func (w *written) at(steps []value.Step) (place *written, i int, name string) {
	for i, step := range steps {
		next := w.next(step)
		if w.open || step.IsIndex && next == nil {
			return nil, 0, ""
		}
		if next == nil {
			return nil, i, step.Key
		}
		w = next
	}
	return w, 0, ""
}

// states finds out what handlers write. It reads specs without errors only.
type states struct {
	*linter
	// schema is that of the event's data.
	schema outline.Schema
	// changes are the operations on elements so far, of all handlers of the aggregate type.
	changes *[]change
}

// change is an operation that changes existing elements, and makes none.
type change struct {
	states
	root *written
	op   *tick.Operation
}

// state returns what the handlers of an aggregate type write.
func (l *linter) state(events value.Value) *written {
	root := &written{}
	// The engine adds these to every state that is an object.
	for _, stamp := range []string{"created_at", "updated_at"} {
		root.member(stamp).put = outline.Integer
	}
	var changes []change
	for _, e := range events.Members() {
		handler := e.Value.Get("handler")
		if !handler.Get("wasm").IsMissing() {
			root.anything()
			continue
		}
		s := states{l, l.dataSchema(e.Value), &changes}
		s.operations(root, handler)
	}

	l.settle(root, changes)
	return root
}

// settle notes what is changed of what is there. Elements are changed where something is written to an array, which may
// happen while others are changed.
func (l *linter) settle(root *written, changes []change) {
	for done := false; !done; {
		waiting := changes
		changes, done = nil, true
		for _, c := range waiting {
			c.changes = &changes
			place, _, name := c.root.at(c.op.Target.Steps)
			switch {
			case !l.spend(1):
			case place != nil:
				c.change(place)
				done = false
			case name != "" || place == nil && len(c.op.Target.Steps) > 0:
				changes = append(changes, c)
			}
		}
	}
	if l.left <= 0 {
		root.anything()
	}
}

func (s *states) operations(root *written, v value.Value) {
	for op := range tick.Operations(v, "") {
		if !s.spend(1) {
			return
		}
		if op.Effect == tick.MergesElements || op.Effect == tick.ChangesElements || op.Effect == tick.ChangesValues {
			*s.changes = append(*s.changes, change{*s, root, op})
		}
		if !op.Makes {
			continue
		}
		w := target(root, op.Target.Steps)
		switch op.Effect {
		case tick.Puts, tick.Fills:
			s.put(w, op.Written)
		case tick.Moves:
			w.anything()
		case tick.Merges:
			s.merge(w, op.Written)
		case tick.PutsMember, tick.MergesMember, tick.CountsMember:
			w.open = true
		case tick.Counts:
			w.made |= outline.Number
		case tick.PutsElement:
			w.made |= outline.Array
			s.put(w.element(), op.Written)
		case tick.Nothing, tick.Drops, tick.MergesElements, tick.ChangesElements, tick.ChangesValues:
		}
	}
}

// change notes what an operation changes in the elements of the array at a place, or in the values of the object there,
// of which it may make anything.
func (c *change) change(place *written) {
	if c.op.Effect == tick.ChangesValues {
		place.open = true
		return
	}
	if c.op.Effect == tick.MergesElements {
		c.merge(place.element(), c.op.Written)
	} else {
		c.operations(place.element(), c.op.Written)
	}
}

// target returns the place that steps lead to.
func target(w *written, steps []value.Step) *written {
	for _, step := range steps {
		if step.IsIndex {
			w.made |= outline.Array
			w = w.element()
			continue
		}
		w = w.member(step.Key)
	}
	return w
}

// put notes that a value is written to a place as a whole.
func (s *states) put(w *written, v value.Value) {
	if !s.spend(1) {
		w.anything()
		return
	}
	switch v.Kind() {
	case value.String:
		if !jsonpath.IsPath(v.Str()) {
			w.put |= outline.String
			return
		}
		s.putPath(w, v.Str())
	case value.Object:
		s.putObject(w, v)
	case value.Array:
		w.put |= outline.Array
		for _, e := range v.Elems() {
			s.put(w.element(), e)
		}
	case value.Missing, value.Null, value.Bool, value.Number:
		w.put |= outline.KindOf(v)
	}
}

func (s *states) putObject(w *written, v value.Value) {
	switch form, operand := tick.HandlerForm(v); form {
	case tick.Followed:
		s.putPath(w, operand.Str())
	case tick.Literal:
		s.literal(w, operand)
	case tick.Merged:
		w.put |= outline.Object
		for _, item := range operand.Elems() {
			s.merge(w, item)
		}
	case tick.Plain:
		w.put |= outline.Object
		for _, m := range v.Members() {
			s.put(w.member(m.Key), m.Value)
		}
	case tick.Text:
		w.put |= outline.String
	case tick.Numeric:
		w.put |= outline.Number
	case tick.Whole:
		w.put |= outline.Integer
	case tick.Scalar:
		w.put |= outline.Number | outline.String
	case tick.Texts:
		if !v.Get("part").IsMissing() {
			w.put |= outline.String | outline.Null
			return
		}
		w.put |= outline.Array
		w.element().put |= outline.String
	case tick.Chosen:
		s.put(w, v.Get("then"))
		s.put(w, v.Get("else").OrNull())
	case tick.Cased:
		for _, of := range tick.Cases(v) {
			s.put(w, of)
		}
	case tick.Computed:
		w.anything()
	}
}

// literal notes a value in which nothing is a path.
func (s *states) literal(w *written, v value.Value) {
	w.put |= outline.KindOf(v)
	for _, m := range v.Members() {
		if !s.spend(1) {
			w.anything()
			return
		}
		s.literal(w.member(m.Key), m.Value)
	}
	for _, e := range v.Elems() {
		if !s.spend(1) {
			w.anything()
			return
		}
		s.literal(w.element(), e)
	}
}

// merge notes that the members of a value are written one by one.
func (s *states) merge(w *written, v value.Value) {
	was := w.put
	s.put(w, v)
	w.put = was
	w.made |= outline.Object
}

func (s *states) putPath(w *written, text string) {
	p, err := jsonpath.Parse(text)
	if err != nil || p.Root != jsonpath.Document || p.Entries || len(p.Steps) == 0 || p.Steps[0].IsIndex {
		w.anything()
		return
	}
	switch p.Steps[0].Key {
	case "key", "type":
		w.put |= outline.String
	case "metadata":
		if k := metadataKinds(p.Steps[1:]); k&outline.Object == 0 {
			w.put |= k
			return
		}
		w.anything()
	case "data":
		s.fromSchema(w, s.schemaAt(s.schema, p.Steps[1:]))
	default:
		w.anything()
	}
}

// fromSchema notes that a value that fits a schema is written.
func (s *states) fromSchema(w *written, schema outline.Schema) {
	k := schema.Kinds()
	w.put |= k
	if k&outline.Array != 0 {
		if items := schema.Member("items"); items.IsMissing() || schema.Get("prefixItems").Len() > 0 || !s.spend(1) {
			w.element().anything()
		} else {
			s.fromSchema(w.element(), items)
		}
	}
	if k&outline.Object == 0 {
		return
	}
	if !schema.Closed() {
		w.open = true
		return
	}
	for _, m := range schema.Get("properties").Members() {
		if !s.spend(1) {
			w.anything()
			return
		}
		s.fromSchema(w.member(m.Key), schema.Property(m.Key))
	}
}

// schemaAt returns the schema of what steps lead to: missing where nothing is said about it.
func (l *linter) schemaAt(schema outline.Schema, steps []value.Step) outline.Schema {
	if !l.spend(len(steps)) {
		return outline.Schema{}
	}
	return schema.Follow(steps)
}

// neverWritten warns of a path into the state to which nothing is ever written, and reports whether it is one.
func (l *linter) neverWritten(w *written, at diag.Pointer, text string, steps []value.Step) bool {
	name, members := l.lacks(w, steps)
	if name == "" {
		return false
	}
	message := neverWritten
	if w.data {
		message = neverInData
	}
	l.lost(l.Report(at, message, text, name), text, name, members)
	return true
}

// lacks returns the first member on the way to which nothing is ever written, and the members that are written beside
// it; "" where there is none or it is not known.
func (l *linter) lacks(w *written, steps []value.Step) (name string, members []string) {
	if w == nil || l.left <= 0 {
		return "", nil
	}
	place, i, name := w.at(steps)
	if place != nil || name == "" {
		return "", nil
	}
	for _, step := range steps[:i] {
		w = w.next(step)
	}
	if !l.spend(1 + len(w.members)) {
		return "", nil
	}
	return name, slices.Sorted(maps.Keys(w.members))
}
