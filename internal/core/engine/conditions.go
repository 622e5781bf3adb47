package engine

import (
	"context"
	"fmt"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/core/upcast"
	"j17/internal/storage/store"
)

const (
	// maxMatched bounds the forbidden events that an error names.
	maxMatched = 10
	// workOfMatch is the cost of reading an event that matches, workOfStep that of a look-up in the index or of the
	// type of an event.
	workOfMatch = 40
	workOfStep  = 20
	// workOfCondition is the cost of a condition without matching events.
	workOfCondition = 200
	// workOfConditions is the budget of all conditions of a command, which is enough for a million events with their
	// tags. Searches that find nothing are remembered, so that they are mostly done once.
	workOfConditions = 12 * work.Command
)

// conditionDetails are the details of a condition that does not hold.
type conditionDetails struct {
	// Condition is its index, Matched are the positions of the first events that it forbids, and Position is the one up
	// to which events were searched.
	Condition int      `json:"condition"`
	Matched   []string `json:"matched"`
	Position  string   `json:"position"`
}

// tooManyDetails are the details of a condition for which too many events would have to be read.
type tooManyDetails struct {
	Condition int `json:"condition"`
}

// indexedTags returns an error unless every stored event that should have one of the tags has it.
func (d *deployed) indexedTags(ctx context.Context, tags []string) error {
	names := decider.TagNames(tags)
	if names == nil || d.env.e.hooks.tagged == nil {
		return nil
	}
	return store.UserError(d.env.e.hooks.tagged(ctx, d.env.tenant, d.Decider, d.fences, names))
}

// unless returns a condition in the form that the commit tests: that no event after the position matches it.
func (d *deployed) unless(c *decider.Condition, at j17.StreamID) store.Absent {
	return store.Absent{Tags: c.Tags, Types: d.typesOf(c), After: at}
}

// typesOf returns the types of a condition in the form of the store, empty for all types.
func (d *deployed) typesOf(c *decider.Condition) []store.TypePattern {
	types := make([]store.TypePattern, 0, len(c.Types))
	for _, p := range c.Types {
		if p.AggregateType == "" {
			return nil
		}
		types = append(types, store.TypePattern{Aggregate: p.AggregateType, Event: p.EventType})
	}
	return upcast.StoredTypes(d.Compiled, types)
}

// absent returns an error if there is an event that a condition of the command forbids. The commit tests later events.
func (x *execution) absent(ctx context.Context, p *plan) error {
	if len(x.a.Conditions) == 0 {
		return nil
	}
	for i := range x.a.Conditions {
		if err := x.d.indexedTags(ctx, x.a.Conditions[i].Tags); err != nil {
			return err
		}
	}

	// Take the position after which the commit tests.
	extent, err := x.e.store.Extent(ctx, x.d.env.tenant)
	if err != nil {
		return store.UserError(err)
	}
	for i := range x.a.Conditions {
		c := &x.a.Conditions[i]
		if c.After.Compare(extent.Last) > 0 {
			return j17.Errorf(j17.CodeInvalidField, "'after' is behind the end of the feed, which is at %s: a decision cannot know of events that come later. Use the position that the feed gave", extent.Last).
				At(fmt.Sprintf("conditions[%d].after", i))
		}
	}

	// Conditions have a separate budget.
	left := x.b.Left()
	x.b.Renew(x.e.workOfConditions)
	for i := range x.a.Conditions {
		if err := x.forbidden(ctx, p, &x.a.Conditions[i], i, extent.Last); err != nil {
			return err
		}
		p.unit.Unless = append(p.unit.Unless, x.d.unless(&x.a.Conditions[i], extent.Last))
	}
	x.b.Renew(left)
	return nil
}

// forbidden returns an error if there are events that a condition of the command forbids. The cost depends on the
// number of events with the rarest of its tags; searches that find nothing are not repeated.
func (x *execution) forbidden(ctx context.Context, p *plan, c *decider.Condition, number int, at j17.StreamID) error {
	if !x.b.Spend(workOfCondition) {
		return x.b.Err()
	}

	// Find the first matching events. One is enough to refuse the command; the rest of the budget goes into naming
	// more.
	const all = 1 << 30
	var matched []string
	reached, spent := x.d.absent.since(c), x.b.Spent()
	rested := spent
	looked := func(steps int, upTo j17.StreamID) bool {
		if upTo.Compare(reached) > 0 {
			reached = upTo
		}
		if x.b.Spent()-rested > work.Command {
			rested = x.b.Spent()
			x.b.Rest() // lets other requests run in between
		}
		return x.b.Spend(steps * workOfStep)
	}
	for ev, err := range x.e.store.ReadTagged(
		ctx, x.d.env.tenant, store.Tagged{Tags: c.Tags, Types: x.d.typesOf(c)}, reached, all, looked,
	) {
		if err != nil {
			return store.UserError(err)
		}
		if !x.b.Spend(workOfMatch) {
			break
		}
		reached = ev.StreamID
		if matched = append(matched, ev.StreamID.String()); ev.StreamID.Compare(at) > 0 {
			at = ev.StreamID
		}
		if len(matched) == maxMatched {
			break
		}
	}
	switch {
	case j17.CodeOf(x.b.Err()) == j17.CodeWorkLimit && matched == nil:
		x.d.absent.keep(c, c.After, reached)
		out := j17.Errorf(j17.CodeWorkLimit, "Too many events have the tags of the condition to look at all of them at once. Nothing was written. Try again, which goes on at %s; or say what was looked at already with 'after', or name a tag that fewer events have.", reached).
			At(fmt.Sprintf("conditions[%d]", number))
		out.Details = tooManyDetails{Condition: number}
		return out.Because(x.b.Err())
	case x.b.Err() != nil && matched == nil:
		return x.b.Err()
	case matched == nil:
		if x.b.Spent()-spent >= muchToLook {
			x.d.absent.keep(c, c.After, at)
		}
		return nil
	}
	if !p.tried {
		x.e.counts.conflicts.Add(1)
	}
	if len(matched) == maxMatched || x.b.Err() != nil {
		at = reached // there may be more after it
	}
	out := j17.Errorf(j17.CodeConditionFailed, "A condition does not hold: events have happened that it says must not be there, the first at %s. Nothing was written. Read them and decide again.", matched[0]).
		At(fmt.Sprintf("conditions[%d]", number))
	out.Details = conditionDetails{Condition: number, Matched: matched, Position: at.String()}
	return out
}
