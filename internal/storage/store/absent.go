package store

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"j17"
)

// Limits of a unit's conditions that events are absent.
const (
	// MaxUnless is the number of conditions of one unit.
	MaxUnless = 100
	// MaxAbsentTags and MaxAbsentTypes are how many tags and types one condition may name.
	MaxAbsentTags  = 100
	MaxAbsentTypes = 100
	// MaxTagBytes is the length of a tag.
	MaxTagBytes = MaxNameBytes
	// tagEntryBytes is about the size of an event's tag in the index; it counts towards the size of a unit.
	tagEntryBytes = 40
)

// Absent is a precondition on the feed: that no event after a position has all of some tags and one of some types. The
// events of the unit itself do not count; those of every unit committed before it do.
type Absent struct {
	// Tags are at least one.
	Tags []string
	// Types are the types that count; empty for all.
	Types []TypePattern
	// After is the position that the unit was decided at: events up to there do not count.
	After j17.StreamID
}

// TypePattern matches the event types of an aggregate type, or only Event.
type TypePattern struct {
	Aggregate string
	// Event is the event type; "" matches all of the aggregate type.
	Event string
}

// Fits reports whether the pattern matches an event type of an aggregate type.
func (p TypePattern) Fits(aggregate, event string) bool {
	return p.Aggregate == aggregate && (p.Event == "" || p.Event == event)
}

// Fits reports whether events of a type count.
func (a *Absent) Fits(aggregate, event string) bool { return fit(a.Types, aggregate, event) }

// fit reports whether one of the patterns matches an event type of an aggregate type, or there are no patterns.
func fit(types []TypePattern, aggregate, event string) bool {
	for _, p := range types {
		if p.Fits(aggregate, event) {
			return true
		}
	}
	return len(types) == 0
}

// Tagged selects events that have all of some tags, and one of some types.
type Tagged struct {
	// Tags are at least one.
	Tags []string
	// Types are the selected types; empty for all.
	Types []TypePattern
}

// Fits reports whether events of a type are selected.
func (t *Tagged) Fits(aggregate, event string) bool { return fit(t.Types, aggregate, event) }

// Names reports whether any event of an aggregate type may be selected.
func (t *Tagged) Names(aggregate string) bool {
	return len(t.Types) == 0 ||
		slices.ContainsFunc(t.Types, func(p TypePattern) bool { return p.Aggregate == aggregate })
}

func (a *Absent) validate() error {
	switch {
	case len(a.Tags) == 0:
		return fmt.Errorf("%w: a condition without tags", ErrInvalid)
	case len(a.Tags) > MaxAbsentTags || len(a.Types) > MaxAbsentTypes:
		return fmt.Errorf("%w: a condition with %d tags and %d types, %d and %d are allowed", ErrLimit, len(a.Tags), len(a.Types), MaxAbsentTags, MaxAbsentTypes)
	}
	for _, tag := range a.Tags {
		if err := validTag(tag); err != nil {
			return err
		}
	}
	for _, p := range a.Types {
		if err := validName("aggregate type", p.Aggregate); err != nil {
			return err
		}
		if p.Event == "" {
			continue
		}
		if err := validName("event type", p.Event); err != nil {
			return err
		}
	}
	return nil
}

// ValidRetagged checks the form and the limits of events that get other tags. Errors are ErrInvalid or ErrLimit.
func ValidRetagged(events []Retagged) error {
	if len(events) > MaxUnitEvents {
		return fmt.Errorf("%w: %d events to tag, %d are allowed at a time", ErrLimit, len(events), MaxUnitEvents)
	}
	size := 0
	for i := range events {
		if err := ValidKey(events[i].Key); err != nil {
			return err
		}
		if err := validTags(events[i].Tags); err != nil {
			return err
		}
		for _, tag := range events[i].Tags {
			size += len(tag) + tagEntryBytes
		}
	}
	if size > MaxUnitBytes {
		return fmt.Errorf("%w: %d bytes of tags, %d are allowed at a time", ErrLimit, size, MaxUnitBytes)
	}
	return nil
}

// validTag checks a tag, which may have any character: it is data.
func validTag(tag string) error {
	if len(tag) > MaxTagBytes {
		return fmt.Errorf("%w: the tag has %d bytes, %d are allowed", ErrLimit, len(tag), MaxTagBytes)
	}
	if tag == "" || !utf8.ValidString(tag) {
		return fmt.Errorf("%w: the tag %q is empty or no UTF-8 text", ErrInvalid, tag)
	}
	return nil
}

// validTags checks the tags of an event.
func validTags(tags []string) error {
	if len(tags) > MaxEventTags {
		return fmt.Errorf("%w: an event with %d tags, %d are allowed", ErrLimit, len(tags), MaxEventTags)
	}

	// With many tags, use a map to find duplicates.
	const many = 16
	var seen map[string]bool
	if len(tags) > many {
		seen = make(map[string]bool, len(tags))
	}
	for i, tag := range tags {
		if err := validTag(tag); err != nil {
			return err
		}
		if seen[tag] || seen == nil && slices.Contains(tags[:i], tag) {
			return fmt.Errorf("%w: the tag %q stands twice", ErrInvalid, tag)
		}
		if seen != nil {
			seen[tag] = true
		}
	}
	return nil
}
