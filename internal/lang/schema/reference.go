package schema

import (
	"net/url"
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
)

// reference compiles the schema that the reference ref, which stands in the schema at the place from, leads to. It
// reports nil and a fault where that is none in this document.
func (c *compiler) reference(ref string, from diag.Pointer) *node {
	to, fault := c.doc.Find(ref, from)
	at := from.Key("$ref")
	switch fault.Why {
	case outline.Found:
		if name := outline.Definition(to.At); name != "" {
			c.refer(from, name)
			return c.shared.node(to)
		}
		return c.node(to.Value, to.At)
	case outline.NoDefinition:
		c.errorf(at, "%s is in a definition that all schemas share, and references there lead to such definitions alone", diag.Quote(ref)).
			Hintf(`write "#/$defs/<name>", and give what is meant a name among them`)
	case outline.NoURI:
		c.errorf(at, "%s is not a URI reference", diag.Quote(ref)).Hintf(`write "#/$defs/<name>" for a schema under "$defs"`)
	case outline.OtherDocument:
		// Often only the "#" is missing.
		d := c.errorf(at, "%s leads to another document, and references to other documents are not supported", diag.Quote(ref))
		defs := value.ObjectValue(slices.Concat(c.doc.Root().Get("$defs").Members(), c.shared.source.Members())...)
		if name, ok := strings.CutPrefix(ref, "/$defs/"); ok {
			d.Hintf("did you mean %s?", diag.Quote("#/$defs/"+name))
		} else if !defs.Get(ref).IsMissing() {
			d.Hintf("did you mean %s?", diag.Quote("#/$defs/"+ref))
		} else {
			d.Hintf(`put the schema under "$defs" and refer to it with "#/$defs/<name>"`)
		}
	case outline.Anchor:
		c.errorf(at, "%s refers to an anchor, and anchors are not supported", diag.Quote(ref)).
			Hintf(`write the place instead, such as "#/$defs/<name>"`)
	case outline.Nowhere:
		d := c.errorf(at, "%s leads nowhere: there is no %s", diag.Quote(ref), diag.Quote(fault.Token))
		if c.list.Suggests() {
			if near := c.list.Nearest(fault.Token, keys(fault.In)); near != "" {
				d.Hintf("did you mean %q?", near)
			}
		}
	case outline.NoSchema:
		c.errorf(at, "%s leads to %s, which is no schema", diag.Quote(ref), kindPhrase(fault.In))
	case outline.TooMany:
		c.errorf(at, "the schema holds more than %d schemas", outline.MaxSchemas)
	}
	return nil
}

func keys(v value.Value) []string {
	var out []string
	for _, m := range v.Members() {
		out = append(out, m.Key)
	}
	return out
}

// isDraft reports whether a $schema names the draft that this package implements.
func isDraft(uri string) bool {
	return strings.TrimSuffix(uri, "#") == "https://json-schema.org/draft/2020-12/schema"
}

// checkID reports what is wrong with a $id.
func (c *compiler) checkID(id string, at diag.Pointer) {
	if len(id) > outline.MaxID {
		c.errorf(at, "a $id can have at most %d bytes, and this one has %d", outline.MaxID, len(id)).Hintf("leave $id out: it is needed only where schemas refer to each other by URI")
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
