package spec

import (
	"slices"
	"strings"

	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/spec/outline"
	"j17/internal/value"
)

// maxLooks bounds what looking for slips costs: visits of values, of members of schemas and of what handlers write. Beyond
// it nothing more is looked for. A spec of an ordinary application takes a few thousand.
const maxLooks = 3_000_000

// looks finds what compiles and can hardly be meant. All of it is warnings. It looks at specs without errors only, so that
// every form is known to be right.
type looks struct {
	c *compiler
	// left is how much more may be looked at.
	left int
}

// spend reports whether there was enough left, and room for a warning.
func (l *looks) spend(n int) bool {
	if l.c.FullOfWarnings() {
		l.left = 0
	}
	l.left -= n
	return l.left > 0
}

// slips warns of mistakes that are no errors.
func (c *compiler) slips() {
	if c.Errors() > 0 {
		return
	}
	l := &looks{c: c, left: maxLooks}
	for _, t := range c.root.Get("aggregate_types").Members() {
		at := diag.Pointer("/aggregate_types").Key(t.Key).Key("events")
		events := t.Value.Get("events")
		state := l.state(events)
		for _, e := range events.Members() {
			r := reader{looks: l, schema: outline.Of(e.Value.Get("schema")), state: state, root: "@"}
			at := at.Key(e.Key)
			if handler := e.Value.Get("handler"); handler.Get("wasm").IsMissing() {
				r.operations(handler, at.Key("handler"))
			}
			r.root = "$.state"
			r.implications(e.Value.Get("implications"), at.Key("implications"))
		}
	}
	for _, s := range c.root.Get("modules").Get("sagas").Members() {
		l.saga(s.Value, diag.Pointer("/modules/sagas").Key(s.Key))
	}
}

// reader looks at the handler and the implications of one event type.
type reader struct {
	*looks
	// schema is that of the event's data, missing where nothing is known of it.
	schema outline.Schema
	// state is what handlers write, nil where there is no state or another one is meant.
	state *written
	// root is how a path into the state begins.
	root string
	// element tells that "@" is the element of an array.
	element bool
}

func (r reader) operations(v value.Value, at diag.Pointer) {
	if v.Kind() == value.Object {
		r.operation(v, at)
	}
	for i, op := range v.Elems() {
		r.operation(op, at.Index(i))
	}
}

func (r reader) operation(v value.Value, at diag.Pointer) {
	if !r.spend(1) {
		return
	}
	if p := v.Get("if"); !p.IsMissing() {
		r.predicate(p, at.Key("if"))
		r.operations(v.Get("then"), at.Key("then"))
		r.operations(v.Get("else"), at.Key("else"))
		return
	}
	m := v.Members()[0]
	at = at.Key(m.Key)
	if m.Key == "let" {
		r.let(m.Value, at)
		return
	}
	row := operationNamed(m.Key)
	r.target(row, m.Value.Get("target"), at.Key("target"))
	for _, o := range row.operands {
		r.operand(m.Value.Get(o.key), at.Key(o.key), o.reading)
	}
}

func (r reader) let(v value.Value, at diag.Pointer) {
	find, within := v.Get("find"), at.Key("find")
	r.operand(find.Get("in"), within.Key("in"), asArray)
	r.operand(find.Get("where"), within.Key("where"), asMatch)
	r.operand(v.Get("find_target"), at.Key("find_target"), asArray)
	r.operand(v.Get("find_value"), at.Key("find_value"), asValue)
}

// target looks at what an operation works on: somebody has to write it, and with the right kind of value.
func (r reader) target(row operationRow, v value.Value, at diag.Pointer) {
	p, err := jsonpath.ParseState(v.Str())
	if err != nil || r.element || r.state == nil || row.on == 0 {
		return
	}
	place, _, _ := r.state.at(p.Steps)
	switch {
	case place == nil && !row.makes:
		r.neverWritten(r.state, at, p.Text, p.Steps)
	case place != nil && len(p.Steps) > 0 && place.put != 0 && place.put&(row.on|outline.Null) == 0 && r.left > 0:
		r.c.neverOfKind(at, row.name, p.Text, place.put, row.on)
	}
}

// operand looks at a part of an operation or a predicate.
func (r reader) operand(v value.Value, at diag.Pointer, as reading) {
	if v.IsMissing() || !r.spend(1) {
		return
	}
	switch as {
	case asPredicate:
		r.predicate(v, at)
	case asMatch:
		if isPredicate(v) {
			r.predicate(v, at)
			return
		}
		for _, m := range v.Members() {
			r.value(m.Value, at.Key(m.Key), asValue)
		}
	case asChanges:
		r.element = true
		r.operations(v, at)
	case asOperations:
		r.operations(v, at)
	case asValue, asNumber, asArray, asPath:
		r.value(v, at, as)
	}
}

func (r reader) predicate(v value.Value, at diag.Pointer) {
	if v.Len() != 1 || !r.spend(1) {
		return
	}
	m := v.Members()[0]
	at = at.Key(m.Key)
	switch m.Key {
	case "and", "or":
		for i, p := range m.Value.Elems() {
			r.predicate(p, at.Index(i))
		}
	case "not":
		r.predicate(m.Value, at)
	case "exists":
		r.value(m.Value, at, asPath)
	default:
		list, _ := predicateOperands(m.Key)
		for i, o := range list {
			if o.key == "" {
				r.operand(m.Value.Index(i), at.Index(i), o.reading)
			} else {
				r.operand(m.Value.Get(o.key), at.Key(o.key), o.reading)
			}
		}
	}
}

// value looks at the texts in a value of the handler language.
func (r reader) value(v value.Value, at diag.Pointer, as reading) {
	if !r.spend(1) {
		return
	}
	switch v.Kind() {
	case value.String:
		if jsonpath.IsPath(v.Str()) || as == asArray || as == asPath {
			r.path(v.Str(), at, as)
		} else {
			r.text(v.Str(), at)
		}
	case value.Array:
		for i, e := range v.Elems() {
			r.value(e, at.Index(i), asValue)
		}
	case value.Object:
		for _, m := range v.Members() {
			if m.Key != "$literal" || v.Len() > 1 {
				r.value(m.Value, at.Key(m.Key), asValue)
			}
		}
	case value.Missing, value.Null, value.Bool, value.Number:
	}
}

// path looks at a path: whether it leads to something, and to something of the right kind.
func (r reader) path(text string, at diag.Pointer, as reading) {
	p, err := jsonpath.ParseAny(text)
	if err != nil {
		return
	}
	if operator := calculation(p); operator != "" && !r.declares(p) {
		r.c.calculationInPath(at, text, operator)
		return
	}
	switch inState, steps := stateSteps(p); {
	case inState && (p.Root == jsonpath.Document || !r.element) && r.state != nil:
		r.neverWritten(r.state, at, text, steps)
	case as == asNumber || as == asArray:
		want := outline.Number
		if as == asArray {
			want = outline.Array
		}
		if k := r.kindsAt(p); k&want == 0 {
			r.c.pathOfKind(at, text, k, want)
		}
	}
}

// stateSteps returns the steps of a path that lead through the state.
func stateSteps(p jsonpath.Path) (inState bool, steps []value.Step) {
	switch {
	case p.Root == jsonpath.Current:
		return true, p.Steps
	case p.Root == jsonpath.Document && len(p.Steps) > 0 && p.Steps[0].Key == "state":
		return true, p.Steps[1:]
	default:
		return false, nil
	}
}

// kindsAt returns the kinds of what a path leads to, as far as a schema says.
func (r reader) kindsAt(p jsonpath.Path) outline.Kinds {
	if p.Root != jsonpath.Document || len(p.Steps) == 0 {
		return outline.Any
	}
	if p.Entries {
		return outline.Array | outline.Null
	}
	switch p.Steps[0].Key {
	case "key", "id", "type":
		return outline.String
	case "data":
		return r.schemaAt(r.schema, p.Steps[1:]).Kinds() | outline.Null
	default:
		return outline.Any
	}
}

// declares reports whether the spec itself has a member of the name that a path ends in: in a schema, or by writing it.
func (r reader) declares(p jsonpath.Path) bool {
	if inState, steps := stateSteps(p); inState && r.state != nil {
		place, _, _ := r.state.at(steps)
		return place != nil
	}
	return p.Root == jsonpath.Document && len(p.Steps) > 1 && p.Steps[0].Key == "data" && !r.schemaAt(r.schema, p.Steps[1:]).IsMissing()
}

// calculation returns the operator in a path that was meant to be calculated, "" where there is none. Names of members may
// have such characters in them, but hardly with spaces around.
func calculation(p jsonpath.Path) string {
	for _, step := range p.Steps {
		for _, operator := range []string{"+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "===", "!=", "!==", "&&", "||"} {
			if strings.Contains(step.Key, " "+operator+" ") {
				return operator
			}
		}
		if i := strings.IndexAny(step.Key, "+*"); i > 0 && i < len(step.Key)-1 {
			return step.Key[i : i+1]
		}
	}
	return ""
}

// text looks at a text that is no path but spelt like one.
func (r reader) text(text string, at diag.Pointer) {
	if meant := pathMeant(text, r.root); meant != "" {
		r.c.pathWithoutDollar(at, text, meant)
	}
}

// pathMeant returns the path that a text becomes with a "$" or "@" in front, "" where it is not spelt like one. root is how
// paths into the state begin.
func pathMeant(text, root string) string {
	end := strings.IndexAny(text, ".[")
	if end < 0 || !slices.Contains([]string{"data", "metadata", "state"}, text[:end]) || !isPathTail(text[end:]) {
		return ""
	}
	meant := "$." + text
	if text[:end] == "state" && root == "@" {
		meant = "@" + text[end:]
	}
	if _, err := jsonpath.Parse(meant); err != nil {
		return ""
	}
	return meant
}

// isPathTail reports whether all of a text could be the steps of a path, in the way in which nearly all paths are spelt.
func isPathTail(text string) bool {
	last := text[len(text)-1]
	return last != '.' && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]-?$") == ""
}
