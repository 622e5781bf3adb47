package lint

import (
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/tick"
)

// dataPaths warns of each path in v that leads into the event's data to where the schema allows nothing. Such a path is
// missing in every event: nearly always a mistake.
func (l *linter) dataPaths(v value.Value, schema outline.Schema, at diag.Pointer) {
	switch v.Kind() {
	case value.String:
		p, ok := dataPath(v.Str())
		if !ok {
			return
		}
		parent, name, declared := l.closedAt(schema, p.Steps[1:])
		if name == "" {
			return
		}
		if _, ok := jsonpath.Calculate(p.Text); !ok { // that has a warning of its own
			l.nothingThere(at, p.Text, "data"+parent, name, declared)
		}
	case value.Array:
		for i, elem := range v.Elems() {
			l.dataPaths(elem, schema, at.Index(i))
		}
	case value.Object:
		if form, _ := tick.HandlerForm(v); form == tick.Literal {
			return
		}
		for _, m := range v.Members() {
			l.dataPaths(m.Value, schema, at.Key(m.Key))
		}
	case value.Missing, value.Null, value.Bool, value.Number:
	}
}

// dataPath returns the path that a text is, and reports whether that leads into the data of an event.
func dataPath(text string) (jsonpath.Path, bool) {
	if !strings.HasPrefix(text, "$.data") {
		return jsonpath.Path{}, false
	}
	p, err := jsonpath.Parse(text)
	return p, err == nil && p.Root == jsonpath.Document && len(p.Steps) >= 2 && p.Steps[0].Key == "data"
}

// pathsLead reports whether dataPaths has nothing to warn of, as is almost always the case: it does so without building
// places.
func (l *linter) pathsLead(v value.Value, schema outline.Schema) bool {
	switch v.Kind() {
	case value.String:
		p, ok := dataPath(v.Str())
		if !ok {
			return true
		}
		_, name, _ := l.closedAt(schema, p.Steps[1:])
		return name == ""
	case value.Array:
		for _, elem := range v.Elems() {
			if !l.pathsLead(elem, schema) {
				return false
			}
		}
	case value.Object:
		if form, _ := tick.HandlerForm(v); form == tick.Literal {
			return true
		}
		for _, m := range v.Members() {
			if !l.pathsLead(m.Value, schema) {
				return false
			}
		}
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return true
}

// nothingThere reports a path to a member that a schema does not allow.
func (l *linter) nothingThere(at diag.Pointer, path, parent, name string, declared []string) {
	if d := l.Report(at, nothingThere, path, parent, name); !l.lost(d, path, name, declared) && parent == "$context" {
		d.Hintf("the steps before it are there, under their names")
	}
}

// maxWays bounds how many sets of schemas may hold for one place.
const maxWays = 64

// closedAt follows steps through a schema to the first member that no event can have, because each alternative that
// allows an object there allows declared properties only. It returns the way to the object, the member's name and the
// declared properties, as far as a hint needs them; the name is "" where there is no such member or where finding out
// would take too much.
func (l *linter) closedAt(schema outline.Schema, steps []value.Step) (parent, name string, declared []string) {
	ways := [][]outline.Schema{{schema}}
	for i, step := range steps {
		var next [][]outline.Schema
		declared, name = nil, ""
		kind := outline.Object
		if step.IsIndex {
			kind = outline.Array
		}

		// Every alternative that allows the step leads on; one that allows declared members only closes it.
		for _, schemas := range ways {
			all, ok := l.alternatives(schemas)
			if !ok {
				return "", "", nil
			}
			for _, a := range all {
				below, closed := l.below(a, step)
				switch {
				case closed != nil:
					name = step.Key
					declared = append(declared, closed...)
				case a.Kinds()&kind != 0:
					next = append(next, below)
				}
			}
		}

		switch {
		case len(next) == 0 && name != "":
			return jsonpath.StepsText(steps[:i]), name, declared
		case len(next) == 0 || len(next) > maxWays ||
			slices.ContainsFunc(next, func(w []outline.Schema) bool { return len(w) == 0 }):
			return "", "", nil // nothing is known about what is there, or too much
		}
		ways = next
	}
	return "", "", nil
}

// alternatives splits schemas that hold together into alternatives, also by their conditions unless that makes too
// many. The cost is that of all schemas in all alternatives. It reports false where there are too many.
func (l *linter) alternatives(schemas []outline.Schema) ([]outline.Alternative, bool) {
	all, complete := outline.Cases(schemas, l.pathLooks)
	if !complete {
		all, complete = outline.Alternatives(schemas, l.pathLooks)
	}
	const looks = 4 // that putting one schema into one alternative takes as long as
	n := 0
	for _, a := range all {
		n += looks * len(a)
	}
	return all, l.pathLooks.Spend(n) && complete
}

// below returns the schemas that hold for what a step leads to, as far as they are under "properties" or "items".
// closed is not nil where nothing can be there: it has the declared properties.
func (l *linter) below(a outline.Alternative, step value.Step) (schemas []outline.Schema, closed []string) {
	if step.IsIndex {
		if step.Index < 0 &&
			slices.ContainsFunc(a, func(s outline.Schema) bool { return s.Get("prefixItems").Len() > 0 }) {
			return nil, nil
		}
		return a.Item(max(step.Index, 0)), nil
	}
	for _, s := range a {
		if sub := s.Property(step.Key); !sub.IsMissing() {
			schemas = append(schemas, sub)
		} else if s.Closed() {
			closed = []string{}
			if l.Suggests() {
				for _, m := range s.Get("properties").Members() {
					closed = append(closed, m.Key)
				}
			}
			return nil, closed
		}
	}
	return schemas, nil
}
