package tick

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
)

// syntax reports why a text is no path.
func (c *compiler) syntax(at diag.Pointer, err error) {
	d := c.errorf(at, "%s", err.Error())
	if s, ok := errors.AsType[*jsonpath.SyntaxError](err); ok {
		d.Hint = s.Hint
	}
}

// pathText compiles the path in a string that stands for a value.
func (c *compiler) pathText(text string, at diag.Pointer, keeps bool) node {
	parse := jsonpath.Parse
	if c.scope.Wildcards {
		parse = jsonpath.ParseProjection
	}
	p, err := parse(text)
	if err != nil {
		c.syntax(at, err)
		return &literal{}
	}
	return c.path(p, at, keeps)
}

// inTemplate reports whether paths are those of an event's template or of a projection.
func (c *compiler) inTemplate() bool { return c.language&(templates|selections) != 0 }

// path compiles a path. keeps says that its value ends up in the state.
func (c *compiler) path(p jsonpath.Path, at diag.Pointer, keeps bool) *pathNode {
	n := &pathNode{
		steps: p.Steps, pick: -1, each: p.Each, entries: p.Entries, optional: p.Optional,
		remade: p.Entries || len(p.Each) > 0,
	}
	switch p.Root {
	case jsonpath.Current:
		n.from = fromCurrent
		n.keeps = keeps && c.language == handlers
		if c.inTemplate() && !c.scope.Current {
			d := c.errorf(at, "%s starts with \"@\", which stands for the state in handlers and conditions only", diag.Quote(p.Text))
			switch {
			case c.language == selections:
				d.Hintf("paths of projections start with \"$\"")
			case c.scope.allows("state"):
				d.Hintf("the state before the event is %q here: write %q", "$.state", "$.state"+p.Text[1:])
			default:
				d.Hintf("no state can be read here: there are $.%s", strings.Join(c.scope.Members, ", $."))
			}
		}
	case jsonpath.Binding:
		n.from = fromSlot
		n.slot = c.binding("$"+p.Name, at)
	case jsonpath.Document:
		c.eventPath(n, at)
	}
	if n.from == fromCurrent || n.from == fromState || n.from == fromWhole {
		c.readsState = true
		if c.language == conditions && !c.scope.allows("state") {
			c.errorf(at, "%s leads to a state, but there is none here", diag.Quote(p.Text)).Hintf(`the event is below "$.data" and "$.metadata"`)
		}
	}
	c.nodes = append(c.nodes, n)
	return n
}

// binding returns the slot of a name that has to be visible.
func (c *compiler) binding(name string, at diag.Pointer) int {
	if slices.Contains(c.visible, name) {
		slot := c.slot(name)
		if c.used != nil {
			c.used[slot] = true
		}
		return slot
	}
	if c.inTemplate() {
		c.unbound(name[1:], at)
		return 0
	}
	d := c.errorf(at, "nothing is bound to %s here", strings.Trim(diag.Quote(name), `"`))
	switch near := c.l.Nearest(name, c.visible); {
	case isTime(name[1:]):
		d.Hint = timeHint
	case slices.Contains(c.documentMembers(), name[1:]):
		d.Hintf("did you mean %q?", "$."+name[1:])
	case near != "":
		d.Hintf("did you mean %q?", near)
	case len(c.visible) > 0:
		d.Hintf("bound here: %s", strings.Join(c.visible, ", "))
	default:
		d.Hintf(`bind it with let first; event paths start with "$.", and a text that starts with "$" is written {"$literal": "..."}`)
	}
	return 0
}

// isTime reports whether a name is one under which people look for the time of an event.
func isTime(name string) bool {
	return slices.Contains([]string{"now", "time", "timestamp", "today", "date"}, name)
}

const timeHint = `the time of the event is "$.metadata.timestamp", in Unix seconds; {"$now": "datetime"} is the same as a text`

// unbound reports a name in a template that nothing is bound to.
func (c *compiler) unbound(name string, at diag.Pointer) {
	d := c.errorf(at, "nothing here is bound to %s", diag.Quote("$"+name))
	switch near := c.l.Nearest(name, c.scope.Bindings); {
	case isTime(name) && !c.scope.Plain:
		d.Hint = timeHint
	case slices.Contains(c.scope.Members, name) || name == reads && len(c.scope.Reads) > 0:
		d.Hintf("did you mean %q?", "$."+name)
	case near != "":
		d.Hintf("did you mean %q?", "$"+near)
	case len(c.scope.Bindings) > 0:
		d.Hintf("bound are $%s", strings.Join(c.scope.Bindings, ", $"))
	case len(c.scope.Members) > 0 && c.scope.Plain:
		d.Hintf("paths start with $.%s", strings.Join(c.scope.Members, ", $."))
	default:
		d.Hintf(`paths into the event look like "$.data.name"`)
	}
}

// documentMembers lists what may follow "$." in handlers and conditions.
func (c *compiler) documentMembers() []string {
	out := []string{"data", "metadata", "key", "type", "state"}
	if c.upcast {
		out[len(out)-1] = "id"
	}
	for _, name := range c.scope.Members {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if len(c.scope.Reads) > 0 {
		out = append(out, reads)
	}
	return out
}

// eventPath determines which part of the event, or of what accompanies it, a path that starts with "$" reads.
func (c *compiler) eventPath(n *pathNode, at diag.Pointer) {
	// The whole of it.
	if len(n.steps) == 0 {
		switch {
		case c.scope.Plain:
			n.from = fromMembers
			c.whole = c.whole || c.scope.Members != nil
		case c.inTemplate():
			n.from = fromWhole
		}
		return
	}

	// What the place of the path decides, whatever the first step is called.
	first := n.steps[0]
	switch {
	case !first.IsIndex && first.Key == reads && c.scope.reading():
		c.read(n, at)
		return
	case c.inTemplate() && !c.scope.allows(first.Key):
		c.notBelow(first, at)
		return
	case c.scope.Plain:
		n.from = fromMembers
		c.readsMember(first.Key)
		return
	case first.IsIndex && c.inTemplate():
		n.from = fromWhole
		return
	case first.IsIndex:
		c.errorf(at, "%q stands for an event, which has no elements", "$").Hintf(`paths into the event look like "$.data.items[0]"`)
		return
	}

	// What the first step names.
	all := n.steps
	n.steps = all[1:]
	if c.upcast && upcastPath(c, n, first.Key, at) {
		return
	}
	switch first.Key {
	case "data":
		n.from = fromData
	case "metadata":
		n.from = fromMetadata
		if len(n.steps) > 0 && !n.steps[0].IsIndex && n.steps[0].Key == "timestamp" {
			n.from = fromTimestamp
			n.steps = n.steps[1:]
		}
	case "key":
		n.from = fromKey
	case "type":
		n.from = fromType
	case "state":
		n.from = fromState
	default:
		c.member(n, all, at)
	}
}

// upcastPath determines what a path of an upcast reads that starts with a member which is another one in handlers.
func upcastPath(c *compiler, n *pathNode, first string, at diag.Pointer) bool {
	switch first {
	case "id":
		n.from = fromID
	case "state", reads:
		n.from = fromData
		c.errorf(at, "an upcast cannot look at states: what an event says depends on nothing but the event").
			Hintf(`the event's data as they are now are "@", and as they were before this step "$.data"`)
	default:
		return false
	}
	return true
}

// reads is the member of "$" that has the states of other aggregates, by the names that the spec gives them.
const reads = "reads"

// read determines which other aggregate's state a path that starts with "$.reads" leads into.
func (c *compiler) read(n *pathNode, at diag.Pointer) {
	n.from = fromRead
	if len(n.steps) == 1 || n.steps[1].IsIndex {
		c.errorf(at, `"$.reads" alone is no value`).Hintf(
			"say which of them, as in %q", "$.reads."+append(slices.Clone(c.scope.Reads), "account")[0],
		)
		return
	}
	name := n.steps[1].Key
	n.slot, n.steps = slices.Index(c.scope.Reads, name), n.steps[2:]
	if n.slot >= 0 {
		return
	}
	n.slot = 0
	d := c.errorf(at, "nothing that is called %s is read here", diag.Quote(name))
	switch near := c.l.Nearest(name, c.scope.Reads); {
	case near != "":
		d.Hintf("did you mean %q?", "$.reads."+near)
	case len(c.scope.Reads) > 0:
		d.Hintf("there are $.reads.%s", strings.Join(c.scope.Reads, ", $.reads."))
	default:
		d.Hintf(`declare it beside the event's schema, as in "reads": {"account": {"aggregate_type": "account", "id": "$.data.account"}}`)
	}
}

// readsMember notes that a path starts at a member of a plain "$".
func (c *compiler) readsMember(name string) {
	if c.scope.Members == nil {
		return // "$" is an element here
	}
	if c.roots == nil {
		c.roots = map[string]struct{}{}
	}
	c.roots[name] = struct{}{}
}

// member finds a member of "$" that handlers do not have.
func (c *compiler) member(n *pathNode, steps []value.Step, at diag.Pointer) {
	first := steps[0]
	switch known := c.language != handlers && c.scope.allows(first.Key); {
	case known && first.Key == "id":
		n.from = fromID
	case known:
		n.from, n.steps = fromMembers, steps
	case c.language == handlers && first.Key == reads:
		c.errorf(at, "handlers cannot look at other aggregates: a state follows from the aggregate's own events alone").
			Hintf(`look at "$.reads" in guards ("requires"), conditions and emits; what a handler needs has to be in the event's data`)
	default:
		d := c.errorf(at, "an event has no member %s", diag.Quote(first.Key))
		if near := c.l.Nearest(first.Key, c.documentMembers()); near != "" {
			d.Hintf("did you mean %q?", "$."+near)
			return
		}
		if c.upcast {
			d.Hintf(`the data as they are now are "@", and as they were before this step "$.data"`)
			return
		}
		d.Hintf(`what the event carries is below "$.data"; the state is "@"`)
	}
}

// notBelow reports a member that "$" does not have in a template.
func (c *compiler) notBelow(step value.Step, at diag.Pointer) {
	name := step.Key
	if step.IsIndex {
		name = fmt.Sprintf("[%d]", step.Index)
	}
	known := c.scope.Members
	d := c.errorf(at, "there is no %s below \"$\" here", diag.Quote(name))
	if near := c.l.Nearest(name, known); near != "" {
		d.Hintf("did you mean %q?", "$."+near)
	} else if len(known) > 0 {
		d.Hintf("there are $.%s", strings.Join(known, ", $."))
	}
}
