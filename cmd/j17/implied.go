package main

import (
	"fmt"
	"strings"

	"j17/internal/trial"
	"j17/internal/value"
)

// impliedTree draws events that another one implies, each below the one that implies it.
func impliedTree(implied []trial.ImpliedEvent) string {
	var b strings.Builder
	// open tells for each depth whether a sibling follows.
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

// impliedEvent is an implied event in the output of --json. Event and EventLine are those of the event in the file at the
// beginning of the chain.
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
		out = append(out, impliedEvent{o.Event, o.EventLine, o.Depth, o.Key.String(), o.Type, o.Data, string(o.Pointer)})
	}
	return out
}
