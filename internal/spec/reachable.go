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
		if c.pathLooks -= len(p.Steps); c.pathLooks < 0 {
			return
		}
		parent, name, properties := closedAt(schema, p.Steps[1:])
		if name == "" {
			return
		}
		var declared []string
		if c.Suggests() {
			for _, m := range properties.Members() {
				declared = append(declared, m.Key)
			}
		}
		c.nothingThere(at, p.Text, "data"+parent, name, declared)
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
// properties only. It returns the way to the object, the member's name and the schemas of the properties; the name is "" where there is
// no such member or where it would take more than a look to know.
func closedAt(schema value.Value, steps []value.Step) (parent, name string, declared value.Value) {
	for i, step := range steps {
		if schema.Kind() != value.Object || slices.ContainsFunc(indirect(), func(key string) bool { return !schema.Get(key).IsMissing() }) {
			return "", "", value.Value{}
		}
		if step.IsIndex {
			if !schema.Get("prefixItems").IsMissing() {
				return "", "", value.Value{}
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
			return "", "", value.Value{}
		}
		return jsonpath.StepsText(steps[:i]), step.Key, properties
	}
	return "", "", value.Value{}
}

// indirect are the keywords by which a schema says what an object holds other than with "properties".
func indirect() []string {
	return []string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties"}
}
