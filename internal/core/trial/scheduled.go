package trial

import (
	"j17"
	"j17/internal/base/value"
	"j17/internal/core/decider"
	"j17/internal/lang/diag"
)

// ScheduledEvent is an event that is to come later because of another one.
type ScheduledEvent struct {
	// Event is the number of the event in the file at the beginning of the chain, from 1, EventLine the line where it
	// starts. Both are 0 where there is no file.
	Event, EventLine int
	// By and ByType name the event that schedules it, Key and Type the one that is to come.
	By     j17.Key
	ByType string
	Key    j17.Key
	Type   string
	Data   value.Value
	// FireAt is when it comes, in Unix seconds.
	FireAt int64
	// CancelOn lists the events that cancel it if they come earlier.
	CancelOn []decider.Awaited
	// CanceledBy is the line of the event in the file that has, or that has brought about what has; 0 for none.
	CanceledBy int
	// Pointer is the implication's place in the spec.
	Pointer diag.Pointer
}

// later gathers what events schedule, and what of it they cancel.
type later struct {
	list []ScheduledEvent
	// waiting has the places in the list of what an event cancels.
	waiting map[decider.Awaited][]int
	// dropped is how many were too many to be kept.
	dropped int
}

// happened takes in events of one commit, which happens at a time in Unix seconds, and what they schedule. number and
// line are those of the event in the file.
func (l *later) happened(events []decider.Event, scheduled []decider.Scheduled, at int64, number, line int) {
	for i, ev := range events {
		// An event cancels what was scheduled before it.
		on := decider.Awaited{Key: ev.Key, Type: ev.Type}
		for _, n := range l.waiting[on] {
			if s := &l.list[n]; s.CanceledBy == 0 {
				s.CanceledBy = line
			}
		}
		delete(l.waiting, on)

		// What one event schedules stands together.
		for ; len(scheduled) > 0 && scheduled[0].Cause == i; scheduled = scheduled[1:] {
			if len(l.list) >= diag.MaxKept {
				l.dropped++
				continue
			}
			s := &scheduled[0]
			for _, on := range s.CancelOn {
				if l.waiting == nil {
					l.waiting = map[decider.Awaited][]int{}
				}
				l.waiting[on] = append(l.waiting[on], len(l.list))
			}
			l.list = append(l.list, ScheduledEvent{
				Event: number, EventLine: line, By: ev.Key, ByType: ev.Type, Key: s.Key, Type: s.Type, Data: s.Data,
				FireAt: s.FireAt(at), CancelOn: s.CancelOn, Pointer: s.At,
			})
		}
	}
}
