package compare

import (
	"j17/internal/base/ident"
	"j17/internal/lang/spec"
)

// Trial is an event type of which stored events decide whether a spec can be deployed.
type Trial struct {
	AggregateType string
	// EventType is the name under which the events are stored.
	EventType string
	// Generations are the numbers under which events may be stored that are read otherwise than before, in ascending
	// order: each of these events has to be brought to the newest generation, and to fit its schema.
	Generations []int
	// Unknown are the numbers that the old spec has and the next one does not: no event may be stored under them.
	Unknown []int
}

// Name returns the name of the event type with that of its aggregate type.
func (t Trial) Name() string { return t.AggregateType + "." + t.EventType }

// Trials returns the event types whose stored events a deploy of next over old has to try, in the order of old. All
// others are read as before, so that nothing has to be tried.
func Trials(old, next *spec.Compiled) []Trial {
	var trials []Trial
	if old.Hash == next.Hash {
		return nil
	}
	for _, names := range spec.TypesOf(old.Root()) {
		if next.Types[names.Name] == nil {
			continue
		}
		for _, name := range names.Events {
			was, is := old.EventType(names.Name, name), next.EventType(names.Name, name)
			if ident.IsReservedEventType(name) || is == nil && !was.Retired {
				continue
			}
			t := Trial{AggregateType: names.Name, EventType: name}
			for _, n := range was.Numbers() {
				if is == nil || !is.Knows(n) {
					t.Unknown = append(t.Unknown, n)
				}
			}
			if is != nil {
				t.Generations = readOtherwise(was, is)
			}
			if len(t.Generations)+len(t.Unknown) > 0 {
				trials = append(trials, t)
			}
		}
	}
	return trials
}

// readOtherwise returns the generations whose events are read otherwise than before. One that the old spec did not have
// is among them: its events were stored under a still older one.
func readOtherwise(was, is *spec.EventType) []int {
	if len(was.Older)+len(is.Older) == 0 && was.As == nil && is.As == nil {
		return nil
	}
	var numbers []int
	for _, n := range is.Numbers() {
		before, known := was.Reading(n)
		if now, _ := is.Reading(n); !known || before != now {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
