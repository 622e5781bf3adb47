package spec

import (
	"cmp"
	"encoding/hex"
	"maps"
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/tick"
)

// Limits of unique values.
const (
	maxUnique = 5  // of one event type
	maxSets   = 20 // of one aggregate type
	maxParts  = 20 // of one value
)

// UniqueValue is a value that an event takes for its aggregate. Its templates read the event alone, so that replaying
// history yields the same values each time.
type UniqueValue struct {
	// Name is that of the set, which all event types of the aggregate type share.
	Name    string
	Pointer diag.Pointer
	// Values are the parts of the value: one where One is set, which reports that the spec has no array there.
	Values []*tick.Template
	One    bool
	// Path is where the value is in an event ("data.email"), "" where it is composed or taken from elsewhere.
	Path string
	// Scope is part of the value where it is not nil.
	Scope *tick.Template
}

// UniqueSet is a set of values of which each has at most one holder among the aggregates of a type.
type UniqueSet struct {
	Name string
	// Fingerprint changes whenever events take or release other values: what is stored of older events is valid as long
	// as it is the same.
	Fingerprint [32]byte
	// Events are those that take or release values of the set, in the order of their names.
	Events []*EventType
}

// uniqueSemantics is the version of what values are made of. It is part of the fingerprints of sets.
const uniqueSemantics = 2

func (c decisionCompiler) uniqueValues(e *EventType, v value.Value, at diag.Pointer) {
	c.members(v.Get("unique"), at.Key("unique"), "unique", maxUnique,
		func(name string, v value.Value, at diag.Pointer) {
			c.name(name, at, "a set of unique values")
			u := &UniqueValue{Name: name, Pointer: at}
			if c.object(v, at, shape{
				what: "a unique value", required: []string{"value"}, optional: []string{"scope"},
			}) {
				c.taken(u, v, at)
			}
			e.Unique = append(e.Unique, u)
		})
	slices.SortFunc(e.Unique, func(a, b *UniqueValue) int { return cmp.Compare(a.Name, b.Name) })
	c.elems(v.Get("releases"), at.Key("releases"), "releases", maxSets, func(_ int, v value.Value, at diag.Pointer) {
		name, ok := c.text(v, at, "the name of a set")
		if ok && slices.Contains(e.Releases, name) {
			c.Report(at, listedTwice, name, "releases")
		} else if ok {
			e.Releases = append(e.Releases, name)
		}
	})
}

// taken reads what a unique value is made of.
func (c decisionCompiler) taken(u *UniqueValue, v value.Value, at diag.Pointer) {
	part := func(v value.Value, at diag.Pointer) *tick.Template {
		t := tick.CompileTemplate(v, at, tick.Scope{Members: []string{"key", "id", "type", "data", "metadata"}}, c.List)
		if t != nil {
			c.noObject(v, at)
		}
		return t
	}
	of, within := v.Get("value"), at.Key("value")
	switch {
	case of.IsMissing():
	case of.Kind() == value.Array && of.Len() == 0:
		c.Report(within, empty, "the value")
	case of.Kind() == value.Array:
		c.elems(of, within, "the value", maxParts, func(_ int, v value.Value, at diag.Pointer) {
			u.Values = append(u.Values, part(v, at))
		})
	default:
		u.One, u.Values = true, []*tick.Template{part(of, within)}
		u.Path = plainPath(of.Str())
	}
	if s := v.Get("scope"); !s.IsMissing() {
		u.Scope = part(s, at.Key("scope"))
	}
}

// noObject reports a part of a unique value that is an object.
func (c decisionCompiler) noObject(v value.Value, at diag.Pointer) {
	object := false
	switch form, operand := tick.TemplateForm(v); form {
	case tick.Chosen:
		c.noObject(v.Get("then"), at.Key("then"))
		c.noObject(v.Get("else"), at.Key("else"))
	case tick.Merged:
		object = true
	case tick.Literal:
		object = operand.Kind() == value.Object
	case tick.Plain:
		object = v.Kind() == value.Object || jsonpath.IsPath(v.Str()) && !scalar(v.Str(), c.schema)
	case tick.Cased:
		for _, of := range tick.Cases(v) {
			c.noObject(of, at)
		}
	case tick.Followed, tick.Text, tick.Numeric, tick.Whole, tick.Scalar, tick.Computed, tick.Texts:
	}
	if object {
		c.Report(at, uniqueObject)
	}
}

// plainPath returns where a path into the data leads, as errors name it, "" for any other text.
func plainPath(text string) string {
	p, err := jsonpath.Parse(text)
	if err != nil || p.Root != jsonpath.Document || p.Entries || len(p.Steps) < 2 || p.Steps[0].Key != "data" {
		return ""
	}
	return "data" + jsonpath.StepsText(p.Steps[1:])
}

// uniqueSets puts together the sets that the event types of an aggregate type share.
func (c decisionCompiler) uniqueSets(t *AggregateType, events value.Value, at diag.Pointer) {
	t.Unique = map[string]*UniqueSet{}
	names := slices.Sorted(maps.Keys(t.Events))
	for _, name := range names {
		for _, u := range t.Events[name].Unique {
			t.Unique[u.Name] = &UniqueSet{Name: u.Name}
		}
	}
	if len(t.Unique) > maxSets {
		c.Report(at, tooMany, "the sets of unique values of an aggregate type", maxSets, len(t.Unique))
		return
	}

	// A value that is released has to be taken somewhere.
	for _, e := range events.Members() {
		for i, v := range e.Value.Get("releases").Elems() {
			if t.Unique[v.Str()] == nil && t.Events[e.Key] != nil &&
				slices.Contains(t.Events[e.Key].Releases, v.Str()) {
				c.undeclaredSet(at.Key(e.Key).Key("releases").Index(i), t, v.Str())
			}
		}
	}

	// The event types that take and release values of each set.
	sets := slices.Sorted(maps.Keys(t.Unique))
	parts := map[string][]value.Value{}
	for _, name := range names {
		e := t.Events[name]
		for _, set := range sets {
			takes := events.Get(name).Get("unique").Get(set)
			releases := slices.Contains(e.Releases, set)
			if takes.IsMissing() && !releases {
				continue
			}
			t.Unique[set].Events = append(t.Unique[set].Events, e)
			parts[set] = append(parts[set], value.StringValue(name), takes, value.BoolValue(releases))
			if up := e.upcasts(); up != nil {
				parts[set] = append(parts[set], value.StringValue(hex.EncodeToString(up)))
			}
		}
	}
	for name, set := range t.Unique {
		set.Fingerprint = fingerprint([]byte{uniqueSemantics}, parts[name])
	}
}

func (c decisionCompiler) undeclaredSet(at diag.Pointer, t *AggregateType, name string) {
	d := c.Errorf(at, "no event type of %s takes a unique value %s", diag.Quote(t.Name), diag.Quote(name))
	if len(t.Unique) == 0 {
		d.Hintf(`declare it where it is taken, as in "unique": {%s: {"value": "$.data.name"}}`, diag.Quote(name))
		return
	}
	nearest(c.List, d, name, t.Unique)
}
