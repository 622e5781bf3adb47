package compare

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/schema/ecma"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// Proposal is what an event type of a newer spec lacks for what is stored under the older one: an older generation, or
// that it is retired.
type Proposal struct {
	// Type is the event type with its aggregate type, "order.was_placed".
	Type string `json:"type"`
	// Generation is the number of the generation, for a removed type that of its newest.
	Generation int `json:"generation"`
	// Definition is the generation, or the definition of the event type where Retires is set.
	Definition value.Value `json:"definition"`
	// Decide is what the definition cannot say, since only a person knows.
	Decide []Question `json:"decide"`
	// Retires reports that the newer spec does not have the event type.
	Retires bool `json:"-"`

	aggregateType, event string
}

// Question is something that a person has to decide.
type Question struct {
	// Pointer leads to what it is about in the newer spec.
	Pointer diag.Pointer `json:"pointer"`
	Message string       `json:"message"`
}

// Limits of what is proposed.
const (
	maxProposedDepth = 5    // of objects and arrays in each other
	maxProposedNames = 1000 // of an object: with more of them nothing is proposed for it
)

// Propose returns what next lacks for what is stored under old: where a schema has become narrower, the former one as a
// generation, with the steps that follow from the two; where an event type is gone, that it is retired. Steps are
// proposed where there is one way to see a change. All else is left to a person.
func Propose(old, next *spec.Compiled) []Proposal {
	var all []Proposal
	for _, names := range spec.TypesOf(old.Root()) {
		if next.Types[names.Name] == nil {
			continue
		}
		for _, name := range names.Events {
			was, is := old.EventType(names.Name, name), next.EventType(names.Name, name)
			switch {
			case was.System || was.Retired:
			case is == nil:
				all = append(all, retirement(old, next, was))
			case !is.Retired && is.Generation <= was.Generation:
				all = append(all, missingGenerations(old, next, was, is)...)
			}
		}
	}
	return all
}

// With returns the text of a spec, as it is parsed, with all that is proposed.
func With(root value.Value, proposals []Proposal) value.Value {
	for _, p := range proposals {
		at := []string{"aggregate_types", p.aggregateType, "events", p.event}
		if !p.Retires {
			at = append(at, "generations", strconv.Itoa(p.Generation))
		}
		root = put(root, at, p.Definition)
	}
	return root
}

// put returns an object with a member, which stands below others. A new one comes first among those of an event type,
// so that generations are in the order of their age.
func put(in value.Value, at []string, v value.Value) value.Value {
	if len(at) > 1 {
		v = put(in.Get(at[0]), at[1:], v)
	}
	members := slices.Clone(in.Members())
	if i := slices.IndexFunc(members, func(m value.Member) bool { return m.Key == at[0] }); i >= 0 {
		members[i].Value = v
	} else if m := (value.Member{Key: at[0], Value: v}); at[0] == "generations" {
		members = slices.Insert(members, 0, m)
	} else {
		members = append(members, m)
	}
	return value.ObjectValue(members...)
}

// retirement proposes what becomes of a removed event type: its definition without what decides about new events.
func retirement(old, next *spec.Compiled, was *spec.EventType) Proposal {
	p := Proposal{
		Type: was.AggregateType + "." + was.Name, Generation: was.Generation, Retires: true, Decide: []Question{},
		aggregateType: was.AggregateType, event: was.Name,
	}
	of := old.Root().Get("aggregate_types").Get(was.AggregateType).Get("events").Get(was.Name)
	var members []value.Member
	for _, m := range of.Members() {
		if !slices.Contains([]string{
			"implications", "allow_skip_occ", "requires", "reads", "creates", "assume_generation",
		}, m.Key) {
			members = append(members, m)
		}
	}
	p.Definition = value.ObjectValue(append(members, value.Member{Key: "retired", Value: value.BoolValue(true)})...)

	// What it may have become.
	events := next.Root().Get("aggregate_types").Get(was.AggregateType).Get("events")
	before := old.Root().Get("aggregate_types").Get(was.AggregateType).Get("events")
	added := missingIn(events, before)
	near := diag.Nearest(was.Name, added)
	if near == "" && len(added) == 1 && len(missingIn(before, events)) == 1 {
		near = added[0]
	}
	if near != "" {
		p.Decide = append(p.Decide, Question{
			Pointer: next.EventType(was.AggregateType, near).Pointer,
			Message: fmt.Sprintf(
				`if %[1]q is called %[2]q now, write "retired": {"as": %[2]q, "generation": %[3]d}, and take the handler out`,
				was.Name, near, next.EventType(was.AggregateType, near).Generation,
			),
		})
	}
	return p
}

// missingGenerations proposes the generations that a newer spec lacks, none where it lacks none.
func missingGenerations(old, next *spec.Compiled, was, is *spec.EventType) []Proposal {
	steps := proposer{
		comparer: &comparer{left: maxAllComparisons, patterns: ecma.NewLibrary()},
		solved:   map[diag.Pointer]bool{}, gone: map[string]bool{}, at: is.Pointer.Key("schema"),
	}
	before, now := old.Schema(was.AggregateType, was.Name), next.Schema(is.AggregateType, is.Name)
	breaks, compared := steps.breaks(before, now, "data")
	ops := steps.value(before, now, "", "data", true, 0)
	if is.Generation == was.Generation && len(breaks)+len(steps.moved) == 0 && compared {
		return nil
	}
	decide := steps.undecided(before, now)
	if operations(value.ArrayValue(ops...)) > tick.MaxOperations {
		ops = nil
		decide = append(decide, Question{
			Pointer: steps.at,
			Message: fmt.Sprintf(
				"more than %d operations lead from the former schema to this one: make several generations of it",
				tick.MaxOperations,
			),
		})
	}

	// The generations before the former newest one as they were, if they are missing too.
	var all []Proposal
	of := old.Root().Get("aggregate_types").Get(was.AggregateType).Get("events").Get(was.Name)
	add := func(number int, definition value.Value, decide []Question) {
		all = append(all, Proposal{
			Type: was.AggregateType + "." + was.Name, Generation: number, Definition: definition,
			Decide: append([]Question{}, decide...), aggregateType: was.AggregateType, event: was.Name,
		})
	}
	for _, g := range was.Older {
		if is.Of(g.Number) == nil {
			add(g.Number, of.Get("generations").Get(strconv.Itoa(g.Number)), nil)
		}
	}
	add(was.Generation, value.ObjectValue(
		value.Member{Key: "schema", Value: formerSchema(old, next, was)},
		value.Member{Key: "upcast", Value: value.ArrayValue(ops...)},
	), decide)
	return all
}

// formerSchema returns the schema that an event type had, with the shared definitions that the newer spec has
// otherwise.
func formerSchema(old, next *spec.Compiled, was *spec.EventType) value.Value {
	for _, name := range was.Schema.Definitions() {
		if !value.Equal(old.Root().Get("$defs").Get(name), next.Root().Get("$defs").Get(name)) {
			return standsAlone(old, was, was.Generation)
		}
	}
	return old.Schema(was.AggregateType, was.Name).Value
}

// proposer finds the steps from one schema to another.
type proposer struct {
	*comparer
	// at is where the newer schema stands.
	at diag.Pointer
	// solved are the places in it that data which has gone through the steps fits, gone the paths that there are no
	// more in such data.
	solved map[diag.Pointer]bool
	gone   map[string]bool
	// moved are the members that have another name.
	moved  []movedMember
	decide []Question
}

// movedMember is what a member's value was and is, and where it is in messages.
type movedMember struct {
	was, is outline.Schema
	path    string
}

// undecided returns what data that has gone through the steps may still not fit.
func (p *proposer) undecided(was, is outline.Schema) []Question {
	pairs := append([]movedMember{{was, is, "data"}}, p.moved...)
	for _, m := range pairs {
		breaks, compared := p.breaks(m.was, m.is, m.path)
		if !compared {
			p.Report(p.at, tooComplex)
		}
		for _, b := range breaks {
			if !p.solved[b.at] && !p.gone[b.path] {
				p.solved[b.at] = true // by whoever reads it
				b.say(outline.InSpec(p.at, b.at))
			}
		}
	}
	for _, d := range p.All() {
		p.decide = append(p.decide, Question{Pointer: d.Pointer, Message: d.Message})
	}
	return p.decide
}

// value returns the steps for the value at a path, which messages call data. sure reports that there is one in all
// data.
func (p *proposer) value(was, is outline.Schema, path, data string, sure bool, depth int) []value.Value {
	was, is = was.Follow(nil), is.Follow(nil)
	if depth > maxProposedDepth || was.IsMissing() || is.IsMissing() {
		return nil
	}
	from, to := was.Kinds(), is.Kinds()
	switch {
	case from == outline.String && to&^outline.Number == 0:
		p.solved[is.At], p.solved[is.At.Key("type")] = true, true
		number := value.ObjectValue(value.Member{Key: "$number", Value: value.StringValue(current(path))})
		return where(!sure, path, operation("set", textMember("target", path), value.Member{
			Key:   "value",
			Value: number,
		}))
	case from&to&outline.Object != 0 && !was.Get("properties").IsMissing():
		return p.object(was, is, path, data, sure, depth)
	case from&to&outline.Array != 0:
		steps := p.value(was.Member("items"), is.Member("items"), "", data+"[]", true, depth+1)
		if len(steps) > 0 {
			apply := value.Member{Key: "apply", Value: value.ArrayValue(steps...)}
			return []value.Value{operation("map", textMember("target", path), apply)}
		}
	}
	return nil
}

// object returns the steps for the members of the object at a path.
func (p *proposer) object(was, is outline.Schema, path, data string, sure bool, depth int) []value.Value {
	before, now := was.Get("properties"), is.Get("properties")
	if before.Len() > maxProposedNames || now.Len() > maxProposedNames {
		return nil
	}
	unnamed := func(name string) bool { return !nameable(name) }
	went, came := slices.DeleteFunc(missingIn(before, now), unnamed), slices.DeleteFunc(missingIn(now, before), unnamed)
	formerly := renamed(before, now, went, came)
	had, needed := required(was), required(is)

	// Members get their new names first, so that later steps can use them.
	var steps []value.Value
	for _, name := range came {
		if old := formerly[name]; old != "" {
			p.gone[outline.MemberPath(data, old)] = true
			p.moved = append(p.moved, movedMember{was.Property(old), is.Property(name), outline.MemberPath(data, name)})
			steps = append(steps, operation(
				"move", textMember("from", below(path, old)), textMember("to", below(path, name)),
			))
		}
	}

	// Members that were there are brought into their new form, others get what the schema says of them.
	for _, m := range now.Members() {
		name, at := m.Key, below(path, m.Key)
		old := formerly[name]
		if old == "" && !before.Get(name).IsMissing() {
			old = name
		}
		_, always := had[old]
		always = always && old != ""
		place, must := needed[name]
		switch {
		case !nameable(name):
			continue
		case old != "" && always:
			if must {
				p.solved[place] = true
			}
		case must || old == "":
			if fill := knownValue(is.Property(name)); !fill.IsMissing() {
				p.solved[place] = p.solved[place] || must
				fill := value.Member{Key: "value", Value: literal(fill)}
				steps = append(steps, where(!sure, path, operation("default", textMember("target", at), fill))...)
			}
		}
		if old != "" {
			steps = append(steps, p.value(
				was.Property(old), is.Property(name), at, outline.MemberPath(data, name), sure && always, depth+1,
			)...)
		}
	}

	matches := (&pair{c: p.comparer, budget: work.Counted(maxComparisons), patterns: p.patterns}).matches
	// Members that are gone, unless one of several new ones may be what they are called now.
	for _, name := range went {
		moved := slices.Contains(slices.Collect(maps.Values(formerly)), name)
		text := before.Get(name).String()
		several := slices.ContainsFunc(came, func(n string) bool {
			return formerly[n] == "" && now.Get(n).String() == text
		})
		switch {
		case moved || outline.Alternative{is}.Declares(name, matches):
		case several:
			p.decide = append(p.decide, Question{
				Pointer: outline.InSpec(p.at, is.At.Key("properties")),
				Message: "the property " + outline.MemberPath(data, name) +
					" is gone, and several new ones have its schema: move it to the one that it is called now, or drop it",
			})
		default:
			p.gone[outline.MemberPath(data, name)] = true
			steps = append(steps, operation("drop", textMember("target", below(path, name))))
		}
	}
	return steps
}

// where returns an operation that is left out where nothing stands at a path.
func where(left bool, path string, op value.Value) []value.Value {
	if !left || path == "" {
		return []value.Value{op}
	}
	exists := value.ObjectValue(value.Member{Key: "exists", Value: value.StringValue(current(path))})
	return []value.Value{value.ObjectValue(
		value.Member{Key: "if", Value: exists}, value.Member{Key: "then", Value: value.ArrayValue(op)},
	)}
}

// nameable reports whether a path can name a member.
func nameable(name string) bool {
	path, err := jsonpath.ParseState(name)
	return err == nil && len(path.Steps) == 1 && path.Steps[0].Key == name
}

// renamed returns the former names of members that have come, by their new ones. A member is taken for another one
// where there is no other choice: where the names differ in case, underscores or the order of their words, or where one
// of a schema has gone and one has come.
func renamed(before, now value.Value, went, came []string) map[string]string {
	formerly := map[string]string{}
	taken := map[string]bool{}
	for _, alike := range []func(name string, schema value.Value) string{
		func(name string, _ value.Value) string { return strings.Join(wordsOf(name), "") },
		func(name string, _ value.Value) string {
			return strings.Join(slices.Sorted(slices.Values(wordsOf(name))), " ")
		},
		func(_ string, schema value.Value) string { return schema.String() },
	} {
		gone, fresh := map[string][]string{}, map[string][]string{}
		for _, name := range went {
			if !taken[name] {
				key := alike(name, before.Get(name))
				gone[key] = append(gone[key], name)
			}
		}
		for _, name := range came {
			if formerly[name] == "" {
				key := alike(name, now.Get(name))
				fresh[key] = append(fresh[key], name)
			}
		}
		for key, names := range fresh {
			if len(names) == 1 && len(gone[key]) == 1 {
				formerly[names[0]], taken[gone[key][0]] = gone[key][0], true
			}
		}
	}
	return formerly
}

// wordsOf returns the words of a name in lower case: those of "firstName", "first_name" and "First-Name" are the same.
func wordsOf(name string) []string {
	var words []string
	lower := false
	for _, r := range name {
		switch {
		case r == '_' || r == '-':
			lower = false
			words = append(words, "")
			continue
		case len(words) == 0 || unicode.IsUpper(r) && lower:
			words = append(words, "")
		}
		lower = !unicode.IsUpper(r)
		words[len(words)-1] += string(unicode.ToLower(r))
	}
	return slices.DeleteFunc(words, func(w string) bool { return w == "" })
}

// required returns the names that a schema requires, with their places.
func required(s outline.Schema) map[string]diag.Pointer {
	names := map[string]diag.Pointer{}
	for _, e := range s.Member("required").Elements() {
		names[e.Str()] = e.At
	}
	return names
}

// knownValue returns the value that a schema names for a member that is not there: its default, or the only one that it
// allows.
func knownValue(s outline.Schema) value.Value {
	s = s.Follow(nil)
	if v := s.Get("default"); !v.IsMissing() {
		return v
	}
	return s.Get("const")
}

// literal returns a value as handlers have it, so that nothing in it is taken for a path or an operator.
func literal(v value.Value) value.Value {
	if v.Len() > 0 || jsonpath.IsPath(v.Str()) {
		return value.ObjectValue(value.Member{Key: "$literal", Value: v})
	}
	return v
}

// operation returns an operation with its members.
func operation(name string, members ...value.Member) value.Value {
	return value.ObjectValue(value.Member{Key: name, Value: value.ObjectValue(members...)})
}

// operations counts operations, those in others included.
func operations(list value.Value) int {
	n := list.Len()
	for _, op := range list.Elems() {
		n += operations(op.Get("then")) + operations(op.Get("map").Get("apply"))
	}
	return n
}

func textMember(key, text string) value.Member {
	return value.Member{Key: key, Value: value.StringValue(text)}
}

// below returns the path of a member of the object at a path.
func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// dotted returns a path as it goes on behind a name, current one that begins at the data.
func dotted(path string) string {
	if path == "" {
		return ""
	}
	return "." + path
}

func current(path string) string { return "@" + dotted(path) }
