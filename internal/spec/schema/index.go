package schema

import (
	"net/url"

	"j17/internal/spec/diag"
	"j17/internal/value"
)

// scope is what a reference in a schema starts from.
type scope struct {
	base url.URL
	// root is the schema that base stands for: the nearest one around with $id, or the document.
	root diag.Pointer
}

// index records the scope of the schema v at the place at, and of all schemas inside it. Where register is set, it
// also records what URIs the schemas go by. It reports false when there are too many schemas.
func (c *compiler) index(v value.Value, at diag.Pointer, s scope, register bool) bool {
	if c.schemas++; c.schemas > maxSchemas {
		return false
	}
	if id := v.Get("$id"); id.Kind() == value.String && len(id.Str()) <= maxID {
		if u, err := s.base.Parse(id.Str()); err == nil && u.Fragment == "" {
			s = scope{base: *u, root: at}
		}
	}
	if register && s.root == at {
		c.register(v, at, s)
	}
	c.scopes[at] = s
	for _, m := range v.Members() {
		p := at.Key(m.Key)
		switch shapeOf(m.Key) {
		case oneSchema:
			if !c.index(m.Value, p, s, register) {
				return false
			}
		case schemaList:
			for i, e := range m.Value.Elems() {
				if !c.index(e, p.Index(i), s, register) {
					return false
				}
			}
		case schemaMap:
			for _, e := range m.Value.Members() {
				if !c.index(e.Value, p.Key(e.Key), s, register) {
					return false
				}
			}
		case unknown, unsupported, annotation, core, assertion:
		}
	}
	return true
}

func (c *compiler) register(v value.Value, at diag.Pointer, s scope) {
	uri := withoutFragment(s.base)
	if other, taken := c.resources[uri]; taken {
		if v.Get("$id").Kind() == value.String {
			c.errorf(at.Key("$id"), "the schema at %s already has this $id", diag.Quote(string(c.at+other))).
				Hintf("give each schema a $id of its own, or none")
		}
		return
	}
	c.resources[uri] = at
}

func withoutFragment(u url.URL) string {
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}
