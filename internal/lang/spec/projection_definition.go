package spec

import (
	"crypto/sha256"
	"slices"
	"strings"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/tick"
)

// projectionKey is the path that stands for the aggregate a projection is asked for.
const projectionKey = "$key"

// Limits of a definition.
const (
	// MaxProjectionSize is the number of bytes that the definition of a projection may have as JSON, without the white
	// space of its text.
	MaxProjectionSize = 256 << 10

	maxSources  = 10
	maxIncluded = 10
	maxSelected = 10_000 // values that select is made of
	maxIndexes  = 20
	maxFields   = 5    // of one index
	maxIndexed  = 2000 // values that make the fields of all indexes
)

// projectionCompiler reads definitions of projections.
type projectionCompiler struct {
	resolver
	// idRules is a hash of the rules for identifiers, nil until it is first needed.
	idRules []byte
}

// isReserved reports whether a parameter of requests is reserved, so that neither parameters nor indexed fields may
// have its name. That of live views was added later: specs deployed before keep theirs.
func (c decoder) isReserved(name string) bool {
	switch name {
	case "synchronous", "at", "start", "count", "order", "near", "radius":
		return true
	case "heartbeat":
		return !c.Stored
	default:
		return false
	}
}

// CompileProjection reads the text of one definition, which may use the aggregate types of in. It returns every
// finding, in the order of their places in the text and with pointers into the definition, and the projection where
// none of them is an error.
func CompileProjection(src []byte, in *Compiled) (*Projection, []diag.Diagnostic) {
	return compileProjection(src, in, &diag.List{Stored: true}, nil)
}

// CompileProjectionWith is CompileProjection for a definition that was just written: it refuses what an earlier version
// of the program accepted, and look adds its warnings to found where there are no errors.
func CompileProjectionWith(
	src []byte, in *Compiled, look func(p *Projection, found *diag.List),
) (*Projection, []diag.Diagnostic) {
	return compileProjection(src, in, &diag.List{}, look)
}

func compileProjection(
	src []byte, in *Compiled, l *diag.List, look func(*Projection, *diag.List),
) (*Projection, []diag.Diagnostic) {
	text := string(src)
	c := &projectionCompiler{resolver: resolver{decoder{List: l}, in}}
	if len(text) > MaxSize {
		c.Report("", projectionTooLarge, len(text), MaxSize)
		return nil, c.All()
	}
	v, err := value.ParseString(text)
	if err != nil {
		return nil, []diag.Diagnostic{syntaxError(text, err)}
	}
	var p *Projection
	switch name := v.Get("name"); {
	case v.Kind() != value.Object:
		c.wrongKind("", "a projection", value.Object, v.Kind())
	case name.IsMissing():
		c.missingKey("", "a projection", "name")
		c.projection("", v, "")
	case name.Kind() != value.String:
		c.wrongKind("/name", "name", value.String, name.Kind())
		c.projection("", v, "")
	default:
		if !isProjectionName(name.Str()) {
			c.Report("/name", badProjectionName, name.Str(), MaxNameLength)
		}
		p = c.projection(name.Str(), v, "")
	}
	if look != nil && c.Errors() == 0 {
		look(p, l)
	}
	found := place(text, c.All())
	if c.Errors() > 0 {
		return nil, found
	}
	return p, found
}

// declaredProjection reads a member of projections.
func (c *projectionCompiler) declaredProjection(name string, v value.Value, at diag.Pointer) *Projection {
	var p *Projection
	sound := c.leniently(func() {
		if !isProjectionName(name) {
			c.Report(at, badProjectionName, name, MaxNameLength).AtKey()
		}
		if s, ok := c.text(v.Get("name"), at.Key("name"), "name"); ok && s != name {
			c.Report(at.Key("name"), otherName, s, name)
		}
		p = c.projection(name, v, at)
	})
	if !sound {
		return nil
	}
	return p
}

// leniently runs f, which reads a part of a spec that other parts do not depend on. In a spec that was deployed before,
// the errors of f become warnings, since an earlier version of the program did not look for them; the part is left out
// then.
func (c decoder) leniently(f func()) (sound bool) {
	if !c.Stored {
		f()
		return true
	}
	outer := *c.List
	*c.List = diag.List{Stored: true}
	f()
	found, sound := c.All(), c.Errors() == 0
	*c.List = outer
	for _, d := range found {
		*c.Warnf(d.Pointer, "%s", d.Message) = diag.Diagnostic{
			Severity: diag.Warning, Pointer: d.Pointer, OnKey: d.OnKey, Message: d.Message, Hint: d.Hint,
		}
	}
	return sound
}

func isProjectionName(name string) bool {
	return isName(name) && !strings.ContainsRune(name, '-') && strings.ToLower(name) == name
}

// projection reads either form: the named one has for_each and an object of sources, the other an array of sources.
func (c *projectionCompiler) projection(name string, v value.Value, at diag.Pointer) *Projection {
	p := &Projection{Name: name, Definition: v}
	form := shape{what: "a projection", required: []string{"sources"}, optional: []string{"name"}}
	named := v.Get("sources").Kind() == value.Object || !v.Get("for_each").IsMissing() || !v.Get("select").IsMissing()
	if named {
		form.required = []string{"for_each", "sources", "select"}
		form.optional = append(form.optional, "include", "index")
	} else if !v.Get("index").IsMissing() {
		form.refused = []string{"index"}
		c.Report(at.Key("index"), indexOfArrayForm)
	}
	if size := v.Size(); size > MaxProjectionSize {
		c.Report(at, projectionTooLarge, size, MaxProjectionSize)
		return p
	}
	if !c.object(v, at, form) {
		return p
	}
	if src := v.Get("sources"); src.Len() == 0 && named == (src.Kind() == value.Object) && !src.IsMissing() {
		c.Report(at.Key("sources"), empty, "sources")
	}
	before := c.Errors()
	if named {
		c.namedProjection(p, v, at)
	} else {
		c.arrayProjection(p, v.Get("sources"), at.Key("sources"))
	}
	c.stages(p, at)
	if c.Errors() == before {
		p.Fingerprint = c.fingerprint(value.StringValue(name), v)
	}
	if of := v.Get("select"); named && of.Kind() == value.Object && of.Weight().Values <= maxSelected {
		c.indexes(p, v.Get("index"), at.Key("index"), of)
	}
	return p
}

// fingerprint identifies what parts of a definition say, and what counts as an identifier.
func (c *projectionCompiler) fingerprint(parts ...value.Value) [32]byte {
	if c.idRules == nil {
		c.idRules = c.out.root.Get("singletons").OrNull().AppendJSON(
			c.out.root.Get("identity").OrNull().AppendJSON(nil),
		)
		sum := sha256.Sum256(c.idRules)
		c.idRules = sum[:]
	}
	return fingerprint(append([]byte{ProjectionSemantics}, c.idRules...), parts)
}

// fingerprint identifies what comes first and parts of a spec, of which each has a line.
func fingerprint(first []byte, parts []value.Value) [32]byte {
	for _, v := range parts {
		first = append(v.OrNull().AppendJSON(first), '\n')
	}
	return sha256.Sum256(first)
}

// The named form.

func (c *projectionCompiler) namedProjection(p *Projection, v value.Value, at diag.Pointer) {
	if f := v.Get("for_each"); !f.IsMissing() {
		p.ForEach, _ = c.aggregateTypeRef(f, at.Key("for_each"))
	}
	s := tick.Scope{Plain: true, Wildcards: true, Members: []string{}}
	var twice []string
	for _, part := range []string{"sources", "include"} {
		for _, m := range v.Get(part).Members() {
			if slices.Contains(s.Members, m.Key) {
				c.Report(at.Key(part).Key(m.Key), boundTwice, m.Key)
				twice = append(twice, m.Key)
				continue
			}
			s.Members = append(s.Members, m.Key)
		}
	}

	// Sources and what is included, among which paths may start anywhere.
	add := func(name string, at diag.Pointer, read func() Source) {
		before := c.Errors()
		c.sourceName(name, at)
		src := read()
		src.faulty = c.Errors() > before || slices.Contains(twice, name)
		p.Sources = append(p.Sources, src)
	}
	c.members(v.Get("sources"), at.Key("sources"), "the sources of a projection", maxSources,
		func(name string, v value.Value, at diag.Pointer) {
			add(name, at, func() Source { return c.namedSource(name, v, at, p.ForEach, s) })
		})
	c.members(v.Get("include"), at.Key("include"), "include", maxIncluded,
		func(name string, v value.Value, at diag.Pointer) {
			add(name, at, func() Source {
				id := &Operand{Literal: value.StringValue(ident.Global)}
				return Source{Name: name, AggregateType: c.included(v, at), ID: id, Included: true}
			})
		})

	// The shape of the result.
	of, at := v.Get("select"), at.Key("select")
	switch k := of.Kind(); {
	case k != value.Object && k != value.Missing:
		c.wrongKind(at, "select", value.Object, k)
	case of.Weight().Values > maxSelected:
		c.Report(at, selectTooLarge, of.Weight().Values, maxSelected)
	default:
		p.Select = tick.CompileSelection(of, at, s, c.List)
	}
}

func (c *projectionCompiler) sourceName(name string, at diag.Pointer) {
	if !jsonpath.IsName(name) || len(name) > MaxNameLength {
		c.Report(at, badSourceName, name, MaxNameLength).AtKey()
	}
}

func (c *projectionCompiler) namedSource(
	name string, v value.Value, at diag.Pointer, forEach string, s tick.Scope,
) Source {
	src := Source{Name: name}
	if v.Kind() == value.String {
		if v.Str() != projectionKey {
			c.Report(at, badSource, v.Str())
		}
		src.AggregateType, src.Key = forEach, true
		return src
	}
	if !c.object(v, at, shape{
		what: "a source", required: []string{"type"}, optional: []string{"id", "query", "mode"},
	}) {
		return src
	}
	src.AggregateType, _ = c.aggregateTypeRef(v.Get("type"), at.Key("type"))
	src.Many = c.choice(v.Get("mode"), at.Key("mode"), "mode", "single", "array") == "array"
	if !v.Get("query").IsMissing() && v.Get("mode").Str() == "single" {
		c.Report(at.Key("mode"), singleQuery)
	}
	c.from(&src, v, at, func(v value.Value, at diag.Pointer, query bool) *Operand {
		return &Operand{Path: c.sourcePath(v, at, query, s)}
	})
	if path, err := jsonpath.ParseProjection(v.Get("id").Str()); err == nil && len(path.Each) > 0 && !src.Many {
		c.Report(at.Key("id"), manyInSingle, path.Text)
	}
	return src
}

// operandReader reads a path that an id, or the value of a query, is taken from.
type operandReader func(v value.Value, at diag.Pointer, query bool) *Operand

// from reads where a source comes from, which is under id or query.
func (c *projectionCompiler) from(src *Source, v value.Value, at diag.Pointer, operand operandReader) {
	id, query := v.Get("id"), v.Get("query")
	switch {
	case id.IsMissing() && query.IsMissing():
		c.Report(at, sourceWithoutID)
	case !id.IsMissing() && !query.IsMissing():
		c.Report(at.Key("query"), bothKeys, "id", "query")
	case id.Str() == projectionKey:
		src.Key = true
	case !query.IsMissing():
		src.Many = true
		src.Query = c.query(src.AggregateType, query, at.Key("query"), operand)
	case strings.HasPrefix(id.Str(), "$"):
		src.ID = operand(id, at.Key("id"), false)
	default:
		ref := c.id(id, at.Key("id"), src.AggregateType, tick.Scope{Plain: true})
		src.ID = &Operand{Literal: value.StringValue(ref.Literal)}
	}
}

// sourcePath compiles a path that starts at a source. The value of a query is a single one.
func (c *projectionCompiler) sourcePath(v value.Value, at diag.Pointer, query bool, s tick.Scope) *tick.Path {
	what := "an id"
	if query {
		what = "the value of a query"
	}
	p := tick.CompilePath(v, at, what, s, c.List)
	if p == nil {
		return nil
	}
	if _, all := p.Members(); all {
		c.notAtSource(at, v.Str(), s.Members)
		return nil
	}
	if path, _ := jsonpath.ParseProjection(v.Str()); query && (len(path.Each) > 0 || path.Entries) {
		c.Report(at, manyInQuery, v.Str())
		return nil
	}
	return p
}

func (c *projectionCompiler) included(v value.Value, at diag.Pointer) string {
	text, ok := c.text(v, at, "an included singleton")
	if !ok {
		return ""
	}
	name, id, _ := strings.Cut(text, ":")
	if id != ident.Global {
		c.Report(at, notGlobal, text)
		return ""
	}
	if c.out.declared[name] == nil {
		c.undeclaredType(at, name)
	}
	return name
}

// The array form.

func (c *projectionCompiler) arrayProjection(p *Projection, sources value.Value, at diag.Pointer) {
	c.elems(sources, at, "the sources of a projection", maxSources, func(_ int, v value.Value, at diag.Pointer) {
		src := Source{}
		if !c.object(v, at, shape{
			what: "a source", required: []string{"aggregate"}, optional: []string{"as", "id", "query"},
		}) {
			p.Sources = append(p.Sources, src)
			return
		}
		src.AggregateType, _ = c.aggregateTypeRef(v.Get("aggregate"), at.Key("aggregate"))
		src.Name = src.AggregateType
		if as, ok := c.text(v.Get("as"), at.Key("as"), "as"); ok {
			src.Name = as
			if !jsonpath.IsName(as) || len(as) > MaxNameLength {
				c.Report(at.Key("as"), badSourceName, as, MaxNameLength)
			}
		}
		if src.Name != "" && slices.ContainsFunc(p.Sources, func(s Source) bool { return s.Name == src.Name }) {
			c.Report(at, resultTwice, src.Name, "other_"+src.Name)
		}
		c.from(&src, v, at, func(v value.Value, at diag.Pointer, query bool) *Operand {
			return c.earlierOrParam(p, &src, v, at, query)
		})
		p.Sources = append(p.Sources, src)
	})
	slices.SortFunc(p.Params, func(a, b Param) int { return strings.Compare(a.Name, b.Name) })
}

// earlierOrParam reads a path of the array form: it starts at a source before, or is a parameter.
func (c *projectionCompiler) earlierOrParam(
	p *Projection, src *Source, v value.Value, at diag.Pointer, query bool,
) *Operand {
	path, err := jsonpath.ParseProjection(v.Str())
	if err != nil {
		c.badPath(at, err)
		return nil
	}
	earlier := make([]string, 0, len(p.Sources))
	for i := range p.Sources {
		if name := p.Sources[i].Name; name != "" && !slices.Contains(earlier, name) {
			earlier = append(earlier, name)
		}
	}
	switch {
	case path.Root != jsonpath.Document || len(path.Steps) == 0 || path.Steps[0].IsIndex:
		c.notAtSource(at, v.Str(), earlier)
		return nil
	case slices.Contains(earlier, path.Steps[0].Key):
		src.Many = src.Many || len(path.Each) > 0
		return &Operand{Path: c.sourcePath(v, at, query, tick.Scope{Plain: true, Wildcards: true, Members: earlier})}
	}

	// A parameter, which is a text.
	name := path.Steps[0].Key
	switch {
	case len(path.Steps) > 1 || len(path.Each) > 0 || path.Entries || path.Optional:
		d := c.Report(at, longParam, v.Str(), name, "$."+name)
		if near := c.Nearest(name, earlier); near != "" {
			d.Hintf("did you mean %q?", "$."+near)
		}
		return nil
	case c.isReserved(name):
		c.Report(at, paramOfOurs, name, "$.of_"+name)
		return nil
	}
	i := slices.IndexFunc(p.Params, func(p Param) bool { return p.Name == name })
	if i < 0 {
		i = len(p.Params)
		p.Params = append(p.Params, Param{Name: name})
	}
	if !query && src.AggregateType != "" && !slices.Contains(p.Params[i].IDOf, src.AggregateType) {
		p.Params[i].IDOf = append(p.Params[i].IDOf, src.AggregateType)
	}
	return &Operand{Param: name}
}

// Queries.

// query reads "field = value", where the value is a path or a literal: JSON if it can be, else text.
func (c *projectionCompiler) query(aggregateType string, v value.Value, at diag.Pointer, operand operandReader) *Query {
	text, ok := c.text(v, at, "query")
	if !ok {
		return nil
	}
	field, right, ok := strings.Cut(text, "=")
	field, right = strings.TrimSpace(field), strings.TrimSpace(right)
	if !ok || field == "" || right == "" || strings.ContainsAny(field, "<>!~ \t\r\n") {
		c.Report(at, badQuery, text)
		return nil
	}
	q := &Query{AggregateType: aggregateType}
	var err error
	switch q.Field, err = jsonpath.ParseState(field); {
	case err != nil:
		c.badPath(at, err)
		return nil
	case q.Field.Optional || q.Field.Entries:
		c.Report(at, badQuery, text)
		return nil
	}
	if strings.Contains(right, "=") && right[0] == '$' {
		c.Report(at, badQuery, text)
		return nil
	}
	if right[0] == '$' {
		if o := operand(value.StringValue(right), at, true); o != nil {
			q.Value = *o
		}
		return q
	}
	if q.Value.Literal, err = value.ParseString(right); err == nil {
		return q
	}
	if strings.Contains(right, "=") {
		c.Report(at, badQuery, text)
		return nil
	}
	q.Value.Literal = value.StringValue(right)
	return q
}

// Stages.

// stages finds out what has to be there before each source can be loaded, and refuses sources that wait for each other.
func (c *projectionCompiler) stages(p *Projection, at diag.Pointer) {
	places := map[string]int{}
	for i := range p.Sources {
		if _, twice := places[p.Sources[i].Name]; !twice {
			places[p.Sources[i].Name] = i
		}
	}
	for i := range p.Sources {
		src := &p.Sources[i]
		var path *tick.Path
		switch {
		case src.ID != nil:
			path = src.ID.Path
		case src.Query != nil:
			path = src.Query.Value.Path
		}
		if path == nil {
			continue
		}
		names, _ := path.Members()
		for _, name := range names {
			if at, ok := places[name]; ok {
				src.Needs = append(src.Needs, at)
			}
		}
	}
	all := make([]int, len(p.Sources))
	for i := range all {
		all[i] = i
	}
	var rest []int
	if p.Stages, rest = staged(p.Sources, all); len(rest) > 0 {
		c.waiting(p, rest, at.Key("sources"))
	}
}

// staged sorts sources, with all that they need, into stages. rest are those in circles, and those that depend on them.
func staged(sources []Source, of []int) (stages [][]int, rest []int) {
	there := map[int]bool{}
	rest = of
	for len(rest) > 0 {
		var stage, later []int
		for _, i := range rest {
			if slices.ContainsFunc(sources[i].Needs, func(n int) bool { return !there[n] }) {
				later = append(later, i)
			} else {
				stage = append(stage, i)
			}
		}
		if len(stage) == 0 {
			return stages, rest
		}
		for _, i := range stage {
			there[i] = true
		}
		stages, rest = append(stages, stage), later
	}
	return stages, nil
}

// waiting adds an error for each circle of sources that wait for each other, and marks all of these faulty.
func (c *projectionCompiler) waiting(p *Projection, rest []int, at diag.Pointer) {
	said := map[int]bool{}
	for _, from := range rest {
		// Each source of the rest needs another one of the rest, so that the trail ends in a circle.
		trail := []int{from}
		for {
			last := trail[len(trail)-1]
			next := p.Sources[last].Needs[slices.IndexFunc(
				p.Sources[last].Needs, func(n int) bool { return slices.Contains(rest, n) },
			)]
			if i := slices.Index(trail, next); i >= 0 {
				trail = trail[i:]
				break
			}
			trail = append(trail, next)
		}
		first := slices.Min(trail)
		if said[first] {
			continue
		}
		said[first] = true
		var names []string
		for i := range trail {
			p.Sources[trail[i]].faulty = true
			names = append(names, p.Sources[trail[(i+slices.Index(trail, first))%len(trail)]].Name)
		}
		key := "id"
		if p.Sources[first].Query != nil {
			key = "query"
		}
		c.Report(at.Key(names[0]).Key(key), sourceCycle, strings.Join(append(names, names[0]), " -> "))
	}
}

func (c decoder) notAtSource(at diag.Pointer, path string, sources []string) {
	d := c.Errorf(at, "%s does not start at a source", diag.Quote(path))
	if len(sources) > 0 && len(sources) <= maxSources+maxIncluded {
		d.Hintf("there are $.%s", strings.Join(sources, ", $."))
		return
	}
	d.Hintf(`write a path such as "$.order.customer_id"`)
}
