package part

import (
	"time"

	"j17"
	"j17/internal/base/wire"
)

// Wire returns the event as a dry run shows it.
func (l *Later) Wire() wire.TriedLater {
	name := func(key j17.Key, eventType string) wire.EventName {
		return wire.EventName{AggregateType: key.Type, ID: key.ID, EventType: eventType}
	}
	shape := wire.TriedLater{
		ScheduledID: l.ID, FireAt: time.Unix(l.FireAt, 0).UTC().Format(time.RFC3339),
		Emit:     wire.Emit{EventName: name(l.Key, l.Type), Data: l.JSON},
		CancelOn: []wire.EventName{}, ImpliedBy: wire.Cause{Key: l.By.String(), EventType: l.ByType},
	}
	for _, on := range l.CancelOn {
		shape.CancelOn = append(shape.CancelOn, name(on.Key, on.Type))
	}
	return shape
}
