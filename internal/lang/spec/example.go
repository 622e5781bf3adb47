package spec

import (
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/example"
)

// Example is an event that a spec accepts.
type Example struct {
	AggregateType, ID, EventType string
	ActorType, ActorID           string
	Data                         value.Value
}

// Example makes up an event for people to start from: one of the first event type, in the order of the spec, for which
// it finds data that fits the schema. Event types that can begin an aggregate and have no guards come before all
// others, since it is not known what guards would say. It reports false where there is none.
func (c *Compiled) Example() (Example, bool) { return c.ExampleFor([]Pattern{{}}) }

// ExampleFor is Example for the event types that patterns select: the first pattern for which it finds one.
func (c *Compiled) ExampleFor(patterns []Pattern) (Example, bool) {
	for _, p := range patterns {
		if ex, ok := c.exampleFor(p); ok {
			return ex, true
		}
	}
	return Example{}, false
}

// maxCandidates is among how many event types the most suitable one is looked for.
const maxCandidates = 100

func (c *Compiled) exampleFor(p Pattern) (Example, bool) {
	// Who acts, and on what.
	root, err := value.Parse(c.Source)
	if err != nil {
		return Example{}, false
	}
	actors := root.Get("agent_types").Elems()
	if len(actors) == 0 {
		return Example{}, false
	}
	ex := Example{ActorType: actors[0].Str(), ActorID: ident.Global, ID: "7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05"}
	if _, _, err := c.IDs.Check(ex.ID); err != nil {
		ex.ID = ident.Global
	}

	// The first event whose made-up data fits, and that is sure to be written.
	budget := work.Counted(work.Command)
	found, candidates := Example{}, 0
	for _, aggregate := range root.Get("aggregate_types").Members() {
		for _, event := range aggregate.Value.Get("events").Members() {
			t := c.EventType(aggregate.Key, event.Key)
			if !p.Matches(aggregate.Key, event.Key) || t == nil || t.System || t.Schema == nil {
				continue
			}
			data, ok := example.Of(event.Value.Get("schema"), root.Get("$defs"))
			if !ok {
				continue
			}
			if fits, _ := t.Schema.Valid(data, budget); !fits {
				continue
			}
			ex.AggregateType, ex.EventType, ex.Data = aggregate.Key, event.Key, data
			if candidates++; t.Creates != CreatesNever && len(t.Requires) == 0 {
				return ex, true
			}
			if found.EventType == "" ||
				t.Creates != CreatesNever && c.EventType(found.AggregateType, found.EventType).Creates == CreatesNever {
				found = ex
			}
			if candidates >= maxCandidates {
				return found, true
			}
		}
	}
	return found, found.EventType != ""
}
