package main

import (
	"fmt"
	"strings"
	"time"

	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/core/trial"
)

// impliedTree draws events that another one implies, each below the one that implies it.
func impliedTree(implied []trial.ImpliedEvent) string {
	var b strings.Builder
	// open reports for each depth whether a sibling follows.
	var open []bool
	for i := range implied {
		o := &implied[i]
		follows := false
		for _, later := range implied[i+1:] {
			if later.Depth <= o.Depth {
				follows = later.Depth == o.Depth && later.Event == o.Event
				break
			}
		}
		open = append(open[:min(len(open), o.Depth-1)], follows)
		for _, more := range open[:len(open)-1] {
			if more {
				b.WriteString("│  ")
			} else {
				b.WriteString("   ")
			}
		}
		branch := "└─ "
		if follows {
			branch = "├─ "
		}
		fmt.Fprintf(&b, "%s%s %s %s\n", branch, o.Key, o.Type, o.Data)
	}
	return b.String()
}

// impliedEvent is an implied event in the output of --json. Event and EventLine are those of the event in the file at
// the beginning of the chain.
type impliedEvent struct {
	Event     int         `json:"event,omitempty"`
	EventLine int         `json:"event_line,omitempty"`
	Depth     int         `json:"depth"`
	Key       string      `json:"key"`
	Type      string      `json:"type"`
	Data      value.Value `json:"data"`
	Pointer   string      `json:"pointer"`
}

func impliedEvents(implied []trial.ImpliedEvent) []impliedEvent {
	out := make([]impliedEvent, 0, len(implied))
	for _, o := range implied {
		out = append(out, impliedEvent{
			o.Event, o.EventLine, o.Depth, o.Key.String(), o.Type, o.Data, string(o.Pointer),
		})
	}
	return out
}

// scheduledLines shows events that are to come later, one a line with the time at which each comes.
func scheduledLines(scheduled []trial.ScheduledEvent) string {
	var b strings.Builder
	for i := range scheduled {
		s := &scheduled[i]
		fmt.Fprintf(&b, "   %s %s %s %s", rfc3339(s.FireAt), s.Key, s.Type, s.Data)
		if s.CanceledBy > 0 {
			fmt.Fprintf(&b, " (canceled by the event on line %d)", s.CanceledBy)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func rfc3339(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }

// scheduledEvent is an event that is to come later in the output of --json. Event and EventLine are those of the event
// in the file at the beginning of the chain, CanceledBy is the line of the one that cancels it.
type scheduledEvent struct {
	Event      int              `json:"event,omitempty"`
	EventLine  int              `json:"event_line,omitempty"`
	FireAt     string           `json:"fire_at"`
	Key        string           `json:"key"`
	Type       string           `json:"type"`
	Data       value.Value      `json:"data"`
	CancelOn   []wire.EventName `json:"cancel_on"`
	ImpliedBy  wire.Cause       `json:"implied_by"`
	CanceledBy int              `json:"canceled_by,omitempty"`
	Pointer    string           `json:"pointer"`
}

func scheduledEvents(scheduled []trial.ScheduledEvent) []scheduledEvent {
	out := make([]scheduledEvent, 0, len(scheduled))
	for i := range scheduled {
		s := &scheduled[i]
		names := make([]wire.EventName, 0, len(s.CancelOn))
		for _, on := range s.CancelOn {
			names = append(names, wire.EventName{AggregateType: on.Key.Type, ID: on.Key.ID, EventType: on.Type})
		}
		out = append(out, scheduledEvent{
			s.Event, s.EventLine, rfc3339(s.FireAt), s.Key.String(), s.Type, s.Data, names,
			wire.Cause{Key: s.By.String(), EventType: s.ByType},
			s.CanceledBy, string(s.Pointer),
		})
	}
	return out
}
