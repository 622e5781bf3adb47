package schema

import (
	"errors"
	"math"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
	"j17/internal/lang/schema/ecma"
	"j17/internal/lang/schema/format"
)

// shape says what kind of keyword a member of a schema is.
type shape uint8

const (
	// unknown keywords are ignored, with a warning.
	unknown shape = iota
	// unsupported keywords are refused.
	unsupported
	// annotation keywords only describe.
	annotation
	// core keywords identify schemas and refer to them.
	core
	// assertion keywords take a plain value and check something.
	assertion
	// oneSchema, schemaList and schemaMap keywords hold schemas.
	oneSchema
	schemaList
	schemaMap
)

func shapeOf(keyword string) shape {
	switch keyword {
	case "$anchor", "$dynamicAnchor", "$dynamicRef", "$vocabulary", "unevaluatedItems", "unevaluatedProperties":
		return unsupported
	case "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
		"contentEncoding", "contentMediaType", "contentSchema":
		return annotation
	case "$id", "$schema", "$ref":
		return core
	case "type", "enum", "const",
		"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minLength", "maxLength", "pattern", "format",
		"minItems", "maxItems", "uniqueItems", "minContains", "maxContains",
		"required", "dependentRequired", "minProperties", "maxProperties":
		return assertion
	}
	switch outline.HeldBy(keyword) {
	case outline.One:
		return oneSchema
	case outline.List:
		return schemaList
	case outline.Map:
		return schemaMap
	case outline.None:
	}
	return unknown
}

// knownKeywords lists what a misspelled keyword may have been meant to be.
func knownKeywords() []string {
	return []string{
		"$comment", "$defs", "$id", "$ref", "$schema", "additionalProperties", "allOf", "anyOf", "const", "contains",
		"contentEncoding", "contentMediaType", "contentSchema", "default", "dependentRequired", "dependentSchemas",
		"deprecated", "description", "else", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format", "if",
		"items", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems",
		"minLength",
		"minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern", "patternProperties", "prefixItems",
		"properties", "propertyNames", "readOnly", "required", "then", "title", "type", "uniqueItems", "writeOnly",
	}
}

func (c *compiler) unknownKeyword(keyword string, at diag.Pointer) {
	if isOwn(keyword) {
		return
	}
	say := c.warnf
	if outline.Definition(at) != "" {
		say = c.errorf // no older spec has such definitions
	}
	d := say(at, "%s is no keyword of JSON Schema and has no effect", diag.Quote(keyword)).AtKey()
	if d.Hint = c.keywordMeant(keyword); d.Hint == "" {
		d.Hintf(`fields of an object stand under "properties"; notes go into "$comment" or a keyword that starts with x-`)
	}
}

// isOwn reports whether a keyword is one that tools agree on for keywords of their own.
func isOwn(keyword string) bool { return strings.HasPrefix(keyword, "x-") }

// keywordMeant returns the hint for an unknown keyword, "" where it is not known what was meant.
func (c *compiler) keywordMeant(keyword string) string {
	switch keyword {
	case "nullable":
		return `write {"type": ["string", "null"]} for a string that may be null`
	case "additionalItems":
		return `write "items" for the items that follow those of "prefixItems"`
	case "id":
		return `did you mean "$id"? For a field with the name id, put it under "properties"`
	case "divisibleBy":
		return `did you mean "multipleOf"?`
	case "$recursiveRef":
		return `write {"$ref": "#"} for a reference to the whole schema`
	case "example":
		return `did you mean "examples", which takes a list?`
	}
	if near := c.list.Nearest(keyword, knownKeywords()); near != "" {
		return "did you mean " + diag.Quote(near) + "?"
	}
	return ""
}

// saysNothing warns of a schema that has members but no keyword among them, nor anything like one: most of the time
// these are the fields of an object, where the schema of the object belongs.
func (c *compiler) saysNothing(v value.Value, at diag.Pointer) bool {
	for _, m := range v.Members() {
		if shapeOf(m.Key) != unknown || isOwn(m.Key) || m.Key != "id" && c.keywordMeant(m.Key) != "" {
			return false
		}
	}
	if v.Len() == 0 {
		return false
	}
	first, of := v.Members()[0], "string"
	if first.Value.Kind() == value.String && c.typeNamed(first.Value.Str()) != "" {
		of = c.typeNamed(first.Value.Str())
	}
	c.warnf(at, "this schema lets everything through: none of its members is a keyword of JSON Schema").
		Hintf(`fields of an object stand under "properties", as in {"type": "object", "properties": {%s: {"type": %q}}}; write {} where everything is welcome`, diag.Quote(first.Key), of)
	return true
}

func (c *compiler) unsupportedKeyword(keyword string, at diag.Pointer) {
	d := c.errorf(at, "the keyword %q is not supported", keyword).AtKey()
	switch keyword {
	case "unevaluatedProperties":
		d.Hintf(`use "additionalProperties", and name all fields in the "properties" next to it`)
	case "unevaluatedItems":
		d.Hintf(`use "items" next to "prefixItems"`)
	case "$anchor":
		d.Hintf(`put the schema under "$defs" and refer to it with "#/$defs/<name>"`)
	case "$dynamicRef", "$dynamicAnchor":
		d.Hintf(`use "$ref" with "#" or "#/$defs/<name>"`)
	default:
		d.Hintf("leave it out: all keywords of draft 2020-12 but the unsupported ones are available")
	}
}

// annotation checks the shape of a keyword that has no effect.
func (c *compiler) annotation(keyword string, v value.Value, at diag.Pointer) {
	switch keyword {
	case "deprecated", "readOnly", "writeOnly":
		c.expect(v, value.Bool, keyword, at)
	case "examples":
		c.expect(v, value.Array, keyword, at)
	case "contentSchema":
		if v.Kind() != value.Bool {
			c.expect(v, value.Object, keyword, at)
		}
	case "default":
	default:
		c.expect(v, value.String, keyword, at)
	}
}

// expect reports a keyword whose value is of the wrong type.
func (c *compiler) expect(v value.Value, kind value.Kind, keyword string, at diag.Pointer) bool {
	if v.Kind() == kind {
		return true
	}
	d := c.errorf(at, "%q takes %s, but this is %s", keyword, kindName(kind), kindPhrase(v))
	switch {
	case kind == value.Array && keyword == "required" && v.Kind() == value.Bool:
		d.Hintf(`list the names of required fields in the "required" of the object that holds them`)
	case kind == value.Array && v.Kind() != value.Object && v.Kind() != value.Null:
		d.Hintf("write [%s]", shortened(v))
	case kind == value.Number && v.Kind() == value.Bool && strings.HasPrefix(keyword, "exclusive"):
		d.Hintf("since draft 6 %q takes the bound itself", keyword)
	case kind == value.Number && v.Kind() == value.String:
		d.Hintf("write the number without quotes")
	case kind == value.Bool && v.Kind() == value.String:
		d.Hintf("write true or false without quotes")
	}
	return false
}

func (c *compiler) core(n *node, keyword string, v value.Value, at diag.Pointer) {
	if !c.expect(v, value.String, keyword, at) {
		return
	}
	switch keyword {
	case "$id":
		if outline.Definition(at) != "" {
			c.errorf(at, "a definition that all schemas share has no $id").AtKey().Hintf(`leave it out: it is referred to as "#/$defs/<name>"`)
			return
		}
		c.checkID(v.Str(), at)
	case "$schema":
		if !isDraft(v.Str()) {
			c.errorf(at, "only draft 2020-12 of JSON Schema is supported, but this is %s", diag.Quote(v.Str())).
				Hintf(`write "https://json-schema.org/draft/2020-12/schema" or leave "$schema" out`)
		}
	case "$ref":
		n.sameRule().ref = c.reference(v.Str(), n.at)
	}
}

func (c *compiler) assertion(n *node, keyword string, v value.Value, at diag.Pointer) {
	switch keyword {
	// For values of every kind.
	case "type":
		n.types = c.types(v, at)
	case "enum":
		if c.expect(v, value.Array, keyword, at) {
			if v.Len() == 0 {
				c.warnf(at, `an empty "enum" is a schema that nothing fits`).Hintf(`name the values that are allowed, or write false for a schema that nothing fits`)
			}
			n.addEnum(keyword, v.Elems())
		}
	case "const":
		n.addEnum(keyword, []value.Value{v})
	// For numbers.
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		c.bound(n.numberRule(), keyword, v, at)
	// For strings.
	case "minLength":
		n.textRule().minLength = c.size(keyword, v, at, 0)
	case "maxLength":
		n.textRule().maxLength = c.size(keyword, v, at, unlimited)
	case "pattern":
		if c.expect(v, value.String, keyword, at) {
			n.textRule().pattern = c.pattern(v.Str(), at, false)
		}
	case "format":
		c.format(n, v, at)
	// For arrays.
	case "minItems":
		n.arrayRule().minItems = c.size(keyword, v, at, 0)
	case "maxItems":
		n.arrayRule().maxItems = c.size(keyword, v, at, unlimited)
	case "minContains":
		n.arrayRule().minContains = c.size(keyword, v, at, 0)
	case "maxContains":
		n.arrayRule().maxContains = c.size(keyword, v, at, unlimited)
	case "uniqueItems":
		n.arrayRule().unique = c.expect(v, value.Bool, keyword, at) && v.Truth()
	// For objects.
	case "minProperties":
		n.objectRule().minFields = c.size(keyword, v, at, 0)
	case "maxProperties":
		n.objectRule().maxFields = c.size(keyword, v, at, unlimited)
	case "required":
		o := n.objectRule()
		for _, name := range c.names(keyword, v, at) {
			o.field(name).required = true
			o.required++
		}
	case "dependentRequired":
		if !c.expect(v, value.Object, keyword, at) {
			return
		}
		o := n.objectRule()
		for _, m := range v.Members() {
			o.needs = append(o.needs, need{m.Key, c.names(keyword, m.Value, at.Key(m.Key))})
		}
	}
}

func (c *compiler) types(v value.Value, at diag.Pointer) typeSet {
	if v.Kind() != value.Array {
		return c.oneType(v, at)
	}
	var all typeSet
	if v.Len() == 0 {
		c.errorf(at, `the list of types is empty`).Hintf(`name a type, or leave "type" out where all types are welcome`)
	}
	for i, e := range v.Elems() {
		t := c.oneType(e, at.Index(i))
		if t&all != 0 {
			c.errorf(at.Index(i), "the type %s is listed twice", shortened(e))
		}
		all |= t
	}
	return all
}

func (c *compiler) oneType(v value.Value, at diag.Pointer) typeSet {
	if v.Kind() != value.String {
		c.errorf(at, `"type" takes the name of a type or a list of names, but this is %s`, kindPhrase(v))
		return 0
	}
	if t := typeOf(v.Str()); t != 0 {
		return t
	}
	d := c.errorf(at, "there is no type %s", diag.Quote(v.Str()))
	switch name := c.typeNamed(v.Str()); {
	case v.Str() == "any":
		d.Hintf(`leave "type" out where all types are welcome`)
	case v.Str() == "file" || v.Str() == "date" || v.Str() == "datetime" || v.Str() == "uuid":
		d.Hintf(`write "string", and say more with "format"`)
	case name != "":
		d.Hintf("did you mean %q?", name)
	default:
		d.Hintf("the types are %s", strings.Join(typeNames(), ", "))
	}
	return 0
}

func typeNames() []string {
	return []string{"string", "number", "integer", "boolean", "array", "object", "null"}
}

// typeOf returns the type with the name, the empty set if there is none.
func typeOf(name string) typeSet {
	if name == "integer" {
		return integers
	}
	for kind := value.Null; kind <= value.Object; kind++ {
		if kind.String() == name {
			return 1 << kind
		}
	}
	return 0
}

// typeNamed returns the type that a word stands for in other languages or by a slip, "" if there is none.
func (c *compiler) typeNamed(word string) string {
	switch strings.ToLower(word) {
	case "int", "int32", "int64", "long", "bigint":
		return "integer"
	case "float", "float32", "float64", "double", "decimal":
		return "number"
	case "bool":
		return "boolean"
	case "text", "str", "char", "varchar":
		return "string"
	case "list", "tuple", "set":
		return "array"
	case "map", "dict", "struct", "record", "hash":
		return "object"
	case "nil", "none", "undefined":
		return "null"
	default:
		return c.list.Nearest(word, typeNames())
	}
}

// enumMapFrom is the number of strings from which a map finds them faster than comparing.
const enumMapFrom = 8

// addEnum adds enum or const. A schema that has both is met by what both allow.
func (n *node) addEnum(keyword string, values []value.Value) {
	e := &enumRule{keyword: keyword, values: values}
	texts := make(map[string]struct{})
	for _, v := range values {
		if v.Kind() == value.String {
			texts[v.Str()] = struct{}{}
		}
		if v.Len() > 0 {
			e.weight += nodes(v)
		}
	}
	if len(texts) >= enumMapFrom {
		e.texts = texts
	}
	if n.enum == nil {
		n.enum = e
		return
	}
	n.sameRule().allOf = append(n.sameRule().allOf, &node{at: n.at, enum: e})
}

// nodes counts the values that v is made of.
func nodes(v value.Value) int {
	n := 1
	for _, e := range v.Elems() {
		n += nodes(e)
	}
	for _, m := range v.Members() {
		n += nodes(m.Value)
	}
	return n
}

func (c *compiler) bound(n *numberRule, keyword string, v value.Value, at diag.Pointer) {
	if !c.expect(v, value.Number, keyword, at) {
		return
	}
	n.dear = n.dear || !v.IsCheap()
	switch keyword {
	case "minimum":
		n.minimum = v
	case "maximum":
		n.maximum = v
	case "exclusiveMinimum":
		n.exclusiveMinimum = v
	case "exclusiveMaximum":
		n.exclusiveMaximum = v
	case "multipleOf":
		if v.Sign() <= 0 {
			c.errorf(at, `"multipleOf" takes a number above 0, but this is %s`, shortened(v))
			return
		}
		n.multipleOf = v
	}
}

// size returns the value of a keyword that counts something, or fallback where that is faulty.
func (c *compiler) size(keyword string, v value.Value, at diag.Pointer, fallback int) int {
	if !c.expect(v, value.Number, keyword, at) {
		return fallback
	}
	if !v.IsInteger() || v.Sign() < 0 {
		c.errorf(at, "%q takes a whole number from 0, but this is %s", keyword, shortened(v))
		return fallback
	}
	n, ok := v.Int64()
	if !ok || n > math.MaxInt32 {
		return math.MaxInt32 // more than fits into any value
	}
	return int(n)
}

// names returns a list of field names.
func (c *compiler) names(keyword string, v value.Value, at diag.Pointer) []string {
	if !c.expect(v, value.Array, keyword, at) {
		return nil
	}
	var out []string
	seen := make(map[string]bool, v.Len())
	for i, e := range v.Elems() {
		switch {
		case e.Kind() != value.String:
			c.errorf(at.Index(i), "%q lists names of fields, but this is %s", keyword, kindPhrase(e))
		case seen[e.Str()]:
			c.errorf(at.Index(i), "the field %s is listed twice", diag.Quote(e.Str())).Hintf("leave one of them out")
		default:
			seen[e.Str()] = true
			out = append(out, e.Str())
		}
	}
	return out
}

// pattern compiles a pattern, once for each text. onKey is set where the pattern is the key of the place.
func (c *compiler) pattern(text string, at diag.Pointer, onKey bool) *ecma.Regexp {
	// The same text is compiled once. Once the patterns are too much, no further ones are compiled.
	if re, ok := c.compiled[text]; ok {
		return re
	}
	if len(c.compiled) == maxPatterns {
		c.errorf(at, "the schema has more than %d different patterns", maxPatterns)
		return nil
	}
	if c.full {
		return nil
	}

	re, err := c.patterns.Compile(text)

	// What is wrong with it, or only unusual.
	if limit := (*ecma.LimitError)(nil); errors.As(err, &limit) {
		c.full = true
		c.errorf(at, "the patterns of this spec are too much together, up to this one: %s", limit.Message).
			Hintf("use fewer patterns, smaller repetitions and fewer different classes of characters")
		return nil
	}
	if err != nil {
		d := c.errorf(at, "the pattern %s is not valid: %s", shortened(value.StringValue(text)), err)
		d.OnKey = onKey
		if syntax := (*ecma.SyntaxError)(nil); errors.As(err, &syntax) && syntax.Hint != "" {
			d.Hintf("%s", syntax.Hint)
		}
		return nil
	}
	if lax := re.Needless(); lax != nil {
		d := c.warnf(at, "the pattern %s has an escape that it should not need: %s", shortened(value.StringValue(text)), lax)
		d.OnKey = onKey
		d.Hintf("%s", lax.Hint)
	}

	c.compiled[text] = re
	return re
}

func (c *compiler) format(n *node, v value.Value, at diag.Pointer) {
	if !c.expect(v, value.String, "format", at) {
		return
	}
	f, ok := format.Lookup(v.Str())
	if !ok {
		d := c.warnf(at, "the format %s is unknown and will not be checked", diag.Quote(v.Str()))
		if near := c.list.Nearest(v.Str(), format.Names()); near != "" {
			d.Hintf("did you mean %q?", near)
		} else {
			d.Hintf("the formats are %s", strings.Join(format.Names(), ", "))
		}
		return
	}
	t := n.textRule()
	t.format, t.formatName = f, v.Str()
}

func (c *compiler) oneSchema(n *node, keyword string, v value.Value, at diag.Pointer) {
	if keyword == "items" && v.Kind() == value.Array {
		c.errorf(at, `"items" takes one schema for all items, but this is a list`).
			Hintf(`write "prefixItems" for schemas of the single positions`)
		return
	}
	sub := c.node(v, at)
	switch keyword {
	case "items":
		n.arrayRule().items = sub
	case "contains":
		n.arrayRule().contains = sub
	case "additionalProperties":
		n.objectRule().additional = sub
	case "propertyNames":
		n.objectRule().names = sub
	case "not":
		n.sameRule().not = sub
	case "if":
		n.sameRule().condition = sub
	case "then":
		n.sameRule().ifTrue = sub
	case "else":
		n.sameRule().ifFalse = sub
	}
}

func (c *compiler) schemaList(n *node, keyword string, v value.Value, at diag.Pointer) {
	if !c.expect(v, value.Array, keyword, at) {
		return
	}
	if v.Len() == 0 {
		c.errorf(at, "%q is empty", keyword).Hintf("give it a schema or leave it out")
		return
	}
	subs := make([]*node, v.Len())
	for i, e := range v.Elems() {
		subs[i] = c.node(e, at.Index(i))
	}
	switch keyword {
	case "allOf":
		n.sameRule().allOf = append(n.sameRule().allOf, subs...)
	case "anyOf":
		n.sameRule().anyOf = subs
	case "oneOf":
		n.sameRule().oneOf = subs
	case "prefixItems":
		n.arrayRule().prefix = subs
	}
}

func (c *compiler) schemaMap(n *node, keyword string, v value.Value, at diag.Pointer) {
	if !c.expect(v, value.Object, keyword, at) {
		return
	}
	if keyword == "dependencies" {
		c.warnf(at, `"dependencies" is a keyword of older drafts`).AtKey().
			Hintf(`write "dependentRequired" for lists of fields and "dependentSchemas" for schemas`)
	}

	for _, m := range v.Members() {
		p := at.Key(m.Key)
		switch keyword {
		case "properties":
			sub := c.node(m.Value, p)
			n.objectRule().field(m.Key).schema = sub
		case "patternProperties":
			sub := c.node(m.Value, p)
			if re := c.pattern(m.Key, p, true); re != nil {
				o := n.objectRule()
				o.patterns = append(o.patterns, patternField{re, sub})
			}
		case "dependencies":
			// What older drafts say with one keyword, two say today.
			if m.Value.Kind() == value.Array {
				o := n.objectRule()
				o.needs = append(o.needs, need{m.Key, c.names(keyword, m.Value, p)})
				continue
			}
			fallthrough
		case "dependentSchemas":
			sub := c.node(m.Value, p)
			o := n.objectRule()
			o.dependents = append(o.dependents, dependent{m.Key, sub})
		default: // definitions take part only where they are referred to
			c.node(m.Value, p)
		}
	}
}
