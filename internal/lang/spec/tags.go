package spec

import (
	"cmp"
	"encoding/hex"
	"maps"
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/tick"
)

// maxTags is how many tags an event type may declare.
const maxTags = 10

// Tag is what events of a type can be found by: the name, a colon and what the path leads to.
type Tag struct {
	Name    string
	Pointer diag.Pointer
	// Path leads into $.data, $.metadata, $.key or $.id.
	Path *tick.Path
	// OfTime reports that it leads to the time of the event, which is known later than the rest of it.
	OfTime bool
}

// TagDeclaration is all that declares a tag of one name.
type TagDeclaration struct {
	Name string
	// Fingerprint changes whenever other events have the tag, or have it from elsewhere: an index of older events is
	// valid as long as it is the same.
	Fingerprint [32]byte
	// Types are the aggregate types with events that declare it, sorted.
	Types []string
}

// tagSemantics is the version of what tags are made of. It is part of their fingerprints.
const tagSemantics = 1

func (c decisionCompiler) tags(e *EventType, v value.Value, at diag.Pointer) {
	c.members(v.Get("tags"), at, "tags", maxTags, func(name string, v value.Value, at diag.Pointer) {
		if name == "actor" || name == "target" {
			c.Report(at, tagOfOurs, name)
			return
		}
		if !c.name(name, at, "a tag") {
			return
		}
		path := tick.CompilePath(v, at, "a tag", tick.Scope{Members: []string{"key", "id", "data", "metadata"}}, c.List)
		if path == nil {
			return
		}
		if !scalar(path.Text(), c.schema) {
			c.Report(at, tagOfObject, path.Text())
			return
		}
		e.Tags = append(e.Tags, &Tag{Name: name, Pointer: at, Path: path, OfTime: ofTime(path.Text())})
	})
	slices.SortFunc(e.Tags, func(a, b *Tag) int { return cmp.Compare(a.Name, b.Name) })
}

// ofTime reports whether a path leads to when an event happens.
func ofTime(text string) bool {
	p, err := jsonpath.Parse(text)
	return err == nil && len(p.Steps) == 2 && p.Steps[0].Key == "metadata" && p.Steps[1].Key == "timestamp"
}

// scalar reports whether a path that compiles may lead to a text, a number, a boolean, or an array of them. schema is
// that of the event's data.
func scalar(text string, schema outline.Schema) bool {
	p, err := jsonpath.Parse(text)
	switch {
	case err != nil:
		return true
	case len(p.Steps) == 0 || p.Entries:
		return false
	case p.Steps[0].Key == "metadata":
		return len(p.Steps) > 2 || len(p.Steps) == 2 && p.Steps[1].Key != "actor" && p.Steps[1].Key != "target"
	case p.Steps[0].Key != "data":
		return true
	}
	at := schema.Follow(p.Steps[1:])
	k := at.Kinds() &^ outline.Null
	if k == outline.Array {
		k = at.Member("items").Kinds() &^ outline.Null
	}
	return k != outline.Object
}

// tagNames gathers the tags of all event types.
func (c *typeCompiler) tagNames() {
	c.out.TagNames = map[string]*TagDeclaration{}
	parts := map[string][]value.Value{}
	for _, aggregateType := range slices.Sorted(maps.Keys(c.out.Types)) {
		events := c.out.Types[aggregateType].Events
		for _, event := range slices.Sorted(maps.Keys(events)) {
			for _, tag := range events[event].Tags {
				d := c.out.TagNames[tag.Name]
				if d == nil {
					d = &TagDeclaration{Name: tag.Name}
					c.out.TagNames[tag.Name] = d
				}
				if n := len(d.Types); n == 0 || d.Types[n-1] != aggregateType {
					d.Types = append(d.Types, aggregateType)
				}
				parts[tag.Name] = append(parts[tag.Name],
					value.StringValue(aggregateType), value.StringValue(event), value.StringValue(tag.Path.Text()))
				if up := events[event].upcasts(); up != nil {
					parts[tag.Name] = append(parts[tag.Name], value.StringValue(hex.EncodeToString(up)))
				}
			}
		}
	}
	for name, d := range c.out.TagNames {
		d.Fingerprint = fingerprint([]byte{tagSemantics}, parts[name])
	}
}
