package decider

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/core/command"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
)

// Condition is a condition of a command, compared with the spec.
type Condition struct {
	// Types are the types that count, empty for all. Tags are in the form in which events have them, each once.
	Types []spec.Pattern
	Tags  []string
	After j17.StreamID
}

// conditions compares the conditions of a command with the spec.
func (d *Decider) conditions(given []command.Condition) ([]Condition, error) {
	var list []Condition
	for i := range given {
		c, at := Condition{After: given[i].After}, fmt.Sprintf("conditions[%d].fail_if_events_match.", i)
		for n, text := range given[i].Types {
			p, err := d.Pattern(text)
			if err != nil {
				return nil, j17.At(err, fmt.Sprintf("%stypes[%d]", at, n))
			}
			c.Types = append(c.Types, p)
		}
		for n, text := range given[i].Tags {
			tag, err := d.Tag(text)
			if err == nil {
				err = d.declared(text)
			}
			if err != nil {
				return nil, j17.At(err, fmt.Sprintf("%stags[%d]", at, n))
			}
			if !slices.Contains(c.Tags, tag) {
				c.Tags = append(c.Tags, tag)
			}
		}
		list = append(list, c)
	}
	return list, nil
}

// Pattern reads a pattern of event types, in the form that listeners use. The error is CodeInvalidField if the spec
// does not have what it names.
func (d *Decider) Pattern(text string) (spec.Pattern, error) {
	p, ok := spec.ParsePattern(text)
	if !ok {
		return p, j17.Errorf(j17.CodeInvalidField, "'%s' names no event types: write type.event, or type.* for all of an aggregate type", j17.Printable(text))
	}
	typ := d.Types[p.AggregateType]
	switch {
	case p.AggregateType == "":
	case typ == nil:
		return p, j17.Errorf(j17.CodeInvalidField, "Aggregate type '%s' not found in spec%s", j17.Printable(p.AggregateType), diag.Meant(p.AggregateType, maps.Keys(d.Types)))
	case p.EventType != "" && typ.Events[p.EventType] == nil && !ident.IsReservedEventType(p.EventType):
		return p, j17.Errorf(j17.CodeInvalidField, "Event type '%s' not found in spec for aggregate '%s'%s", j17.Printable(p.EventType), typ.Name, diag.Meant(p.EventType, maps.Keys(typ.Events)))
	}
	return p, nil
}

// Tag returns a given tag in the form in which events have it. The error is CodeInvalidField if no event can have it.
func (d *Decider) Tag(text string) (string, error) {
	name, of, ok := strings.Cut(text, ":")
	switch {
	case !ok || name == "":
		return "", j17.Errorf(j17.CodeInvalidField, "'%s' is no tag: write name:value, actor:type:id or target:type:id", j17.Printable(text))
	case name == "actor" || name == "target":
		return d.agentTag(name, of)
	case d.TagNames[name] == nil:
		return "", j17.Errorf(j17.CodeInvalidField, "No event type declares the tag '%s' in the spec%s", j17.Printable(name), diag.Meant(name, maps.Keys(d.TagNames)))
	case len(of) > maxTagValue:
		return "", j17.Errorf(j17.CodeInvalidField, "No event has a tag whose value is longer than %d bytes", maxTagValue)
	}
	return text, nil
}

// agentTag returns the tag of an actor or a target.
func (d *Decider) agentTag(name, key string) (string, error) {
	typ, id, ok := strings.Cut(key, ":")
	if !ok || typ == "" || id == "" {
		return "",
			j17.Errorf(j17.CodeInvalidField, "'%s' is no tag: write %s:type:id", j17.Printable(name+":"+key), name)
	}
	agent, err := d.Agent(j17.Agent{Type: typ, ID: id})
	if e, is := errors.AsType[*j17.Error](err); is {
		return "", j17.Errorf(j17.CodeInvalidField, "%s", e.Message)
	}
	if name == "actor" {
		return j17.ActorTag(agent), err
	}
	return j17.TargetTag(agent), err
}

// declared checks that events which are written now can have the tag of an actor or a target: a condition on a misspelt
// type would never fail.
func (d *Decider) declared(tag string) error {
	name, key, _ := strings.Cut(tag, ":")
	typ, _, _ := strings.Cut(key, ":")
	types, list := d.TargetTypes, "target_types"
	switch {
	case name != "actor" && name != "target", name == "actor" && (ident.IsSystemActorType(typ) || typ == systemActor):
		return nil
	case name == "actor":
		types, list = d.AgentTypes, "agent_types"
	}
	if types.Has(typ) {
		return nil
	}
	return j17.Errorf(j17.CodeInvalidField, "Type '%s' is not declared in the spec's %s%s", j17.Printable(typ), list, diag.Meant(typ, slices.Values(types.Sorted())))
}

// systemActor is the actor type of events that the system itself has caused.
const systemActor = "system"

// Agent returns an actor or a target in the form in which events have it, by the rules of the spec. Its type need not
// be declared: older events may have it.
func (d *Decider) Agent(a j17.Agent) (j17.Agent, error) {
	if ident.IsSystemActorType(a.Type) || a.Type == systemActor {
		return a, nil
	}
	var err error
	a.ID, _, err = d.IDs.Check(a.ID)
	return a, err
}

// TagNames returns the names of the declared tags among some tags, each once.
func TagNames(tags []string) (names []string) {
	for _, tag := range tags {
		name, _, _ := strings.Cut(tag, ":")
		if name != "actor" && name != "target" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
