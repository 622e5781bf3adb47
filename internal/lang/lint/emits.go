package lint

import (
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// implications looks at what an event brings about.
func (r reader) implications(v value.Value, at diag.Pointer) {
	for i, implication := range v.Elems() {
		r.implication(implication, at.Index(i))
	}
}

func (r reader) implication(v value.Value, at diag.Pointer) {
	if !r.spend(1) {
		return
	}
	r.conditions(v, at)
	r.emit(v.Get("emit"), at.Key("emit"))
	if m := v.Get("map"); !m.IsMissing() {
		at := at.Key("map")
		r.value(m.Get("in"), at.Key("in"), tick.AsArray)
		inner := r.binding(m.Get("in").Str(), m.Get("as").Str())
		inner.conditions(m, at)
		inner.emit(m.Get("emit"), at.Key("emit"))
	}
	schedule := v.Get("schedule")
	r.time(schedule.Get("at"), at.Key("schedule").Key("at"))
	r.emit(schedule.Get("emit"), at.Key("schedule").Key("emit"))
	for i, match := range schedule.Get("cancel_on").Elems() {
		at := at.Key("schedule").Key("cancel_on").Index(i)
		r.id(match.Get("id"), at.Key("id"))
		r.comes(match, match.Get("event_type"), at.Key("event_type"))
	}
	r.implications(v.Get("pipeline"), at.Key("pipeline"))
}

// time looks at a value that is to be a time, and warns of one that never is.
func (r reader) time(v value.Value, at diag.Pointer) {
	if v.IsMissing() || !r.spend(1) {
		return
	}
	r.value(v, at, tick.AsValue)
	if k := r.kinds(v, tick.TemplateForm); k&(outline.String|outline.Number) == 0 {
		r.Report(at, neverATime, known(k))
		return
	}
	p, err := jsonpath.Parse(v.Str())
	if err != nil {
		return
	}
	if format := r.schemaOf(p).Member("format").Str(); format != "" && format != "date-time" {
		r.Report(at, neverATime, "a text of the format "+diag.Quote(format))
	}
}

// schemaOf returns the schema of what a path leads to, missing where there is none.
func (r reader) schemaOf(p jsonpath.Path) outline.Schema {
	switch {
	case p.Entries:
	case p.Root == jsonpath.Binding:
		return r.schemaAt(r.bound[p.Name].schema, p.Steps)
	case p.Root == jsonpath.Document && len(p.Steps) > 0 && p.Steps[0].Key == "data":
		return r.schemaAt(r.schema, p.Steps[1:])
	}
	return outline.Schema{}
}

func (r reader) conditions(v value.Value, at diag.Pointer) {
	for _, key := range []string{"condition", "when"} {
		r.predicate(v.Get(key), at.Key(key))
	}
}

// id looks at the path that an id is taken from.
func (r reader) id(v value.Value, at diag.Pointer) {
	if jsonpath.IsPath(v.Str()) {
		r.path(v.Str(), at, tick.AsText)
	}
}

// emit checks the template of an event, and whether its result can fit the event's schema.
func (r reader) emit(v value.Value, at diag.Pointer) {
	if v.IsMissing() || !r.spend(1) {
		return
	}
	typ, event := v.Get("aggregate_type").Str(), v.Get("event_type").Str()
	r.id(v.Get("id"), at.Key("id"))
	r.alwaysThere(typ, event, v.Get("id").Str(), at)
	data := v.Get("data")
	if tick.IsPredicate(data) { // it is always data: a field may be called as a predicate is
		r.members(data, at.Key("data"))
	} else {
		r.value(data, at.Key("data"), tick.AsValue)
	}
	if data.IsMissing() {
		data = value.ObjectValue()
	} else {
		at = at.Key("data")
	}

	f := fitting{reader: r, event: typ + ":" + event}
	schema := r.spec.Schema(typ, event)
	if fault := f.fits(data, at, []outline.Schema{schema}, "data"); fault != nil {
		fault.tell()
		return
	}
	f.literal(data, at, r.spec.EventType(typ, event))
}

// fitting finds out whether templates can produce data that the event's schema lets through.
type fitting struct {
	reader
	event string
	// branch reports that it is about one of two values.
	branch bool
}

// never is the phrase for what never happens, which the warning then explains.
func (f fitting) never() string {
	if f.branch {
		return "where this is chosen it does not fit the schema of " + diag.Quote(f.event) + ", so that the write is refused"
	}
	return "this never fits the schema of " + diag.Quote(f.event) + ", so that every write is refused"
}

func (f fitting) neverFits(at diag.Pointer, path string, has, needs outline.Kinds) {
	if needs == 0 {
		f.Report(at, neverAllowed, f.never(), path)
	} else {
		f.Report(at, neverFits, f.never(), path, needs.Phrase(), has.Phrase())
	}
}

// misfit is why a template never fits, nil where it may.
type misfit struct {
	// depth is how far the template has fitted: of the ways through a schema, the one that it fits furthest counts.
	depth int
	// needs is the kinds of values that are required, where nothing else is wrong.
	needs outline.Kinds
	// tell adds the warning.
	tell func()
}

// misfits returns why a template does not fit from a place on.
func misfits(at diag.Pointer, tell func()) *misfit {
	return &misfit{depth: 1 + strings.Count(string(at), "/"), tell: tell}
}

// fits checks what holds regardless of the rest of the schemas: types, choices, required and closed properties, in each
// way through their alternatives. The schemas hold together, path is where the data is.
func (f fitting) fits(v value.Value, at diag.Pointer, schemas []outline.Schema, path string) *misfit {
	if !f.spend(1) {
		return nil
	}
	if form, _ := tick.TemplateForm(v); form == tick.Chosen {
		return f.choiceFits(v, at, schemas, path)
	}
	ways, ok := f.alternatives(schemas)
	if !ok {
		return nil
	}
	var nearest *misfit
	var needs outline.Kinds
	for _, way := range ways {
		fault := f.fitsOne(v, at, way, path)
		if fault == nil {
			return nil
		}
		needs |= fault.needs
		if nearest == nil || fault.depth > nearest.depth {
			nearest = fault
		}
	}
	if nearest != nil && nearest.depth == strings.Count(string(at), "/") {
		k := f.kinds(v, tick.TemplateForm) // no way takes a value of these kinds
		nearest.tell = func() { f.neverFits(at, path, k, needs) }
	}
	return nearest
}

// choiceFits is fits for an $if, whose values both have to fit. Without an "else" it is null where the predicate does
// not hold.
func (f fitting) choiceFits(v value.Value, at diag.Pointer, schemas []outline.Schema, path string) *misfit {
	f.branch = true
	if fault := f.fits(v.Get("then"), at.Key("then"), schemas, path); fault != nil {
		return fault
	}
	if other := v.Get("else"); !other.IsMissing() {
		return f.fits(other, at.Key("else"), schemas, path)
	}
	return f.fits(value.NullValue(), at, schemas, path)
}

// fitsOne is fits for one way through the alternatives.
func (f fitting) fitsOne(v value.Value, at diag.Pointer, way outline.Alternative, path string) *misfit {
	k, allowed := f.kinds(v, tick.TemplateForm), way.Kinds()&way.ValueKinds()
	form, operand := tick.TemplateForm(v)
	if form == tick.Literal {
		v, form = operand, tick.Plain
	}
	if k&allowed == 0 {
		fault := misfits(at, func() { f.neverFits(at, path, k, allowed) })
		fault.depth, fault.needs = fault.depth-1, allowed
		return fault
	}
	if fault := f.chosen(v, at, way, path); fault != nil {
		return fault
	}
	switch {
	case v.Kind() == value.Array:
		for i, e := range v.Elems() {
			if fault := f.fits(e, at.Index(i), way.Item(i), outline.ElementPath(path, i)); fault != nil {
				return fault
			}
		}
	case v.Kind() == value.Object && form == tick.Plain:
		return f.objectFits(v, at, way, path)
	case form == tick.Merged:
		for i, item := range operand.Elems() {
			if form, _ := tick.TemplateForm(item); form != tick.Plain || item.Kind() != value.Object {
				continue
			}
			at := at.Key(v.Members()[0].Key).Index(i)
			for _, m := range item.Members() {
				if fault := f.undeclared(m.Key, at, way, path); fault != nil {
					return fault
				}
			}
		}
	case v.Kind() == value.String:
		return f.pathFits(v.Str(), at, way, path)
	}
	return nil
}

// chosen looks at a text, a number or a boolean that a schema may not have among its choices.
func (f fitting) chosen(v value.Value, at diag.Pointer, way outline.Alternative, path string) *misfit {
	if v.Kind() == value.Array || v.Kind() == value.Object || jsonpath.IsPath(v.Str()) || f.pathMeant(v.Str()) != "" {
		return nil
	}
	for _, schema := range way {
		values, limited := schema.Values()
		if limited && f.spend(len(values)) && !outline.Contained([]value.Value{v}, values) {
			return misfits(at, func() { f.Report(at, neverChosen, f.never(), path, diag.QuoteValue(v)) })
		}
	}
	return nil
}

func (f fitting) objectFits(v value.Value, at diag.Pointer, way outline.Alternative, path string) *misfit {
	for _, schema := range way {
		required := schema.Get("required").Elems()
		if !f.spend(len(required)) {
			return nil
		}
		for _, name := range required {
			if v.Get(name.Str()).IsMissing() {
				return misfits(
					at, func() { f.Report(at, neverComplete, f.never(), outline.MemberPath(path, name.Str())) },
				)
			}
		}
	}
	for _, m := range v.Members() {
		if fault := f.undeclared(m.Key, at, way, path); fault != nil {
			return fault
		}
		if fault := f.fits(
			m.Value, at.Key(m.Key), declared(way, m.Key), outline.MemberPath(path, m.Key),
		); fault != nil {
			return fault
		}
	}
	return nil
}

// undeclared checks a member that a closed schema does not have.
func (f fitting) undeclared(name string, at diag.Pointer, way outline.Alternative, path string) *misfit {
	for _, schema := range way {
		if schema.Closed() && schema.Property(name).IsMissing() {
			return misfits(
				at, func() { f.Report(at.Key(name), neverAllowed, f.never(), outline.MemberPath(path, name)) },
			)
		}
	}
	return nil
}

// declared returns the schemas of a member that declare it by name, and those for undeclared members where no pattern
// could match.
func declared(way outline.Alternative, name string) []outline.Schema {
	var found []outline.Schema
	for _, schema := range way {
		if sub := schema.Property(name); !sub.IsMissing() {
			found = append(found, sub)
		} else if schema.Get("patternProperties").Len() == 0 {
			found = append(found, schema.Member("additionalProperties"))
		}
	}
	return found
}

// pathFits checks whether an object that is taken from the event's data can have what is required.
func (f fitting) pathFits(text string, at diag.Pointer, way outline.Alternative, path string) *misfit {
	p, err := jsonpath.Parse(text)
	if err != nil {
		return nil
	}
	from := f.schemaOf(p)
	if from.IsMissing() || from.Kinds()&^outline.Null != outline.Object {
		return nil
	}
	for _, schema := range way {
		required := schema.Get("required").Elems()
		if !f.spend(len(required)) {
			return nil
		}
		for _, name := range required {
			if _, lacking, _ := f.closedAt(from, []value.Step{{Key: name.Str()}}); lacking != "" {
				return misfits(
					at, func() { f.Report(at, neverComplete, f.never(), outline.MemberPath(path, name.Str())) },
				)
			}
		}
	}
	return nil
}

// literal checks data in which nothing is computed: they fit the whole schema, or never do.
func (f fitting) literal(v value.Value, at diag.Pointer, event *spec.EventType) {
	form, operand := tick.TemplateForm(v)
	if form == tick.Literal {
		v, at = operand, at.Key("$literal")
	}
	if event == nil || event.Schema == nil || form != tick.Literal && !f.fixed(v) || !f.spend(1) {
		return
	}
	b := work.Counted(int64(f.left))
	failures, err := event.Schema.Validate(v, b)
	f.spend(int(b.Spent()))
	if err != nil || len(failures) == 0 || f.left <= 0 {
		return
	}
	if first := failures[0]; !first.Received.IsMissing() { // what is missing has no place
		at += diag.Pointer(first.Pointer)
	}
	f.Report(at, neverValid, f.never(), strings.TrimSuffix(failures[0].Message, "."))
}

// fixed reports whether nothing in a template is computed.
func (f fitting) fixed(v value.Value) bool {
	if !f.spend(1) {
		return false
	}
	switch v.Kind() {
	case value.String:
		return !jsonpath.IsPath(v.Str()) && f.pathMeant(v.Str()) == ""
	case value.Array:
		for _, e := range v.Elems() {
			if !f.fixed(e) {
				return false
			}
		}
	case value.Object:
		if form, _ := tick.TemplateForm(v); form != tick.Plain {
			return false
		}
		for _, m := range v.Members() {
			if !f.fixed(m.Value) {
				return false
			}
		}
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return true
}

// listener checks the condition of a listener. The possible data are known where the listener is for events of one
// type.
func (l *linter) listener(v value.Value, of *spec.Listener, at diag.Pointer) {
	r := reader{linter: l}
	matched := 0
	for _, t := range l.root.Get("aggregate_types").Members() {
		for _, e := range t.Value.Get("events").Members() {
			if !l.spend(1 + len(of.Events)) {
				return
			}
			if slices.ContainsFunc(of.Events, func(p spec.Pattern) bool { return p.Matches(t.Key, e.Key) }) {
				matched++
				r.schema = l.dataSchema(e.Value)
			}
		}
	}
	if matched != 1 {
		r.schema = outline.Schema{}
	}
	r.conditions(v, at)
	for _, key := range []string{"condition", "when"} {
		l.dataPaths(v.Get(key), r.schema, at.Key(key))
	}
}
