package schema

import (
	"net/url"
	"strconv"
	"strings"

	"j17/internal/spec/diag"
	"j17/internal/value"
)

// reference compiles the schema that the reference ref, which stands at the place at, leads to. It reports nil and a
// fault where that is none in this document.
func (c *compiler) reference(ref string, at diag.Pointer) *node {
	s := c.scopeOf(parent(at))
	u, err := s.base.Parse(ref)
	if err != nil {
		c.errorf(at, "%s is not a URI reference", diag.Quote(ref)).Hintf(`write "#/$defs/<name>" for a schema under "$defs"`)
		return nil
	}
	root, ok := c.resources[withoutFragment(*u)]
	if strings.HasPrefix(ref, "#") {
		root, ok = s.root, true
	}
	if !ok {
		d := c.errorf(at, "%s leads to another document, and references to other documents are not supported", diag.Quote(ref))
		if name, ok := strings.CutPrefix(ref, "/$defs/"); ok {
			d.Hintf("did you mean %s?", diag.Quote("#/$defs/"+name))
		} else if c.doc.Get("$defs").Get(ref).Kind() != value.Missing {
			d.Hintf("did you mean %s?", diag.Quote("#/$defs/"+ref))
		} else {
			d.Hintf(`put the schema under "$defs" and refer to it with "#/$defs/<name>"`)
		}
		return nil
	}
	if u.Fragment != "" && u.Fragment[0] != '/' {
		c.errorf(at, "%s refers to an anchor, and anchors are not supported", diag.Quote(ref)).
			Hintf(`write the place instead, such as "#/$defs/<name>"`)
		return nil
	}
	target, v, ok := c.follow(root, u.Fragment, ref, at)
	if !ok {
		return nil
	}
	if v.Kind() != value.Object && v.Kind() != value.Bool {
		c.errorf(at, "%s leads to %s, which is no schema", diag.Quote(ref), kindPhrase(v))
		return nil
	}
	if _, known := c.scopes[target]; !known {
		// A place that no keyword makes a schema, such as an unknown keyword: it becomes one by being referred to.
		if !c.index(v, target, c.scopeOf(target), false) {
			c.errorf(at, "the schema holds more than %d schemas", maxSchemas)
			return nil
		}
	}
	return c.node(v, target)
}

// follow goes from the schema at root along a JSON pointer.
func (c *compiler) follow(root diag.Pointer, pointer, ref string, at diag.Pointer) (diag.Pointer, value.Value, bool) {
	place, v := root, c.value(root)
	for _, token := range diag.Pointer(pointer).Steps() {
		var next value.Value
		if v.Kind() == value.Array {
			if i, err := strconv.ParseUint(token, 10, 31); err == nil && strconv.FormatUint(i, 10) == token {
				next = v.Index(int(i))
				place = place.Index(int(i))
			}
		} else {
			next = v.Get(token)
			place = place.Key(token)
		}
		if next.IsMissing() {
			d := c.errorf(at, "%s leads nowhere: there is no %s", diag.Quote(ref), diag.Quote(token))
			if c.list.Suggests() {
				if near := c.list.Nearest(token, keys(v)); near != "" {
					d.Hintf("did you mean %q?", near)
				}
			}
			return "", value.Value{}, false
		}
		v = next
	}
	return place, v, true
}

func keys(v value.Value) []string {
	var out []string
	for _, m := range v.Members() {
		out = append(out, m.Key)
	}
	return out
}

// value returns what stands at a place of the document.
func (c *compiler) value(at diag.Pointer) value.Value {
	v := c.doc
	for _, key := range at.Steps() {
		if v.Kind() == value.Array {
			i, _ := strconv.Atoi(key)
			v = v.Index(i)
		} else {
			v = v.Get(key)
		}
	}
	return v
}

// scopeOf returns the scope of the nearest schema at or around a place.
func (c *compiler) scopeOf(at diag.Pointer) scope {
	for {
		if s, ok := c.scopes[at]; ok {
			return s
		}
		if at == "" {
			return scope{}
		}
		at = parent(at)
	}
}

func parent(p diag.Pointer) diag.Pointer {
	return p[:max(strings.LastIndexByte(string(p), '/'), 0)]
}

// isDraft reports whether a $schema names the draft that this package implements.
func isDraft(uri string) bool {
	return strings.TrimSuffix(uri, "#") == "https://json-schema.org/draft/2020-12/schema"
}

// checkID reports what is wrong with a $id.
func (c *compiler) checkID(id string, at diag.Pointer) {
	if len(id) > maxID {
		c.errorf(at, "a $id can have at most %d bytes, and this one has %d", maxID, len(id)).Hintf("leave $id out: it is needed only where schemas refer to each other by URI")
		return
	}
	u, err := url.Parse(id)
	switch {
	case err != nil:
		c.errorf(at, "%s is not a URI reference", diag.Quote(id)).Hintf("leave $id out: it is needed only where schemas refer to each other by URI")
	case u.Fragment != "":
		c.errorf(at, "a $id cannot have a fragment (the part after #)").Hintf(`leave the fragment out, and refer to places with "#/..."`)
	}
}
