package spec

import (
	"slices"

	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/value"
)

// dataPaths warns of each path in v that leads into the event's data where the schema lets nothing be. Such a path is
// missing in every event: nearly always a slip of the pen.
func (c *compiler) dataPaths(v, schema value.Value, at diag.Pointer) {
	switch v.Kind() {
	case value.String:
		p, err := jsonpath.Parse(v.Str())
		if err != nil || p.Root != jsonpath.Document || len(p.Steps) < 2 || p.Steps[0].Key != "data" || calculation(p) != "" {
			return
		}
		if parent, name, declared := closedAt(schema, p.Steps[1:]); name != "" {
			c.nothingThere(at, p.Text, "data"+parent, name, declared)
		}
	case value.Array:
		for i, elem := range v.Elems() {
			c.dataPaths(elem, schema, at.Index(i))
		}
	case value.Object:
		for _, m := range v.Members() {
			c.dataPaths(m.Value, schema, at.Key(m.Key))
		}
	case value.Missing, value.Null, value.Bool, value.Number:
	}
}

// closedAt follows steps through a schema to the first member that no event can have, because its object allows declared
// properties only. It returns the way to the object, the member's name and the properties; the name is "" where there is
// no such member or where it would take more than a look to know.
func closedAt(schema value.Value, steps []value.Step) (parent, name string, declared []string) {
	for i, step := range steps {
		if schema.Kind() != value.Object || slices.ContainsFunc(indirect(), func(key string) bool { return !schema.Get(key).IsMissing() }) {
			return "", "", nil
		}
		if step.IsIndex {
			if !schema.Get("prefixItems").IsMissing() {
				return "", "", nil
			}
			schema = schema.Get("items")
			continue
		}
		properties := schema.Get("properties")
		if next := properties.Get(step.Key); !next.IsMissing() {
			schema = next
			continue
		}
		if more := schema.Get("additionalProperties"); more.Kind() != value.Bool || more.Truth() {
			return "", "", nil
		}
		for _, m := range properties.Members() {
			declared = append(declared, m.Key)
		}
		return jsonpath.StepsText(steps[:i]), step.Key, declared
	}
	return "", "", nil
}

// indirect are the keywords by which a schema says what an object holds other than with "properties".
func indirect() []string {
	return []string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties"}
}
