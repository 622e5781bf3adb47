package ident

import (
	"slices"
	"strconv"
	"strings"

	"j17"
)

// SystemActorType is the actor type of events that the platform causes itself.
const SystemActorType = "system_agent"

// The ids of the platform's own actors. No other id goes with an actor type that IsSystemActorType.
const (
	EventScheduler   = "event_scheduler"
	TestDataImporter = "test_data_importer"
	SagaCoordinator  = "saga_coordinator"
	SagaCompensator  = "saga_compensator"
)

// WasTombstoned is the type of the events that erasure leaves behind.
const WasTombstoned = "_was_tombstoned"

const (
	systemActorPrefix   = "system_"
	reservedEventPrefix = "_"
)

// SystemAgents lists the ids that an actor of a system type may have.
func SystemAgents() []string {
	return []string{EventScheduler, TestDataImporter, SagaCoordinator, SagaCompensator}
}

// IsSystemActorType reports whether an actor type is reserved for the platform. No spec may declare one.
func IsSystemActorType(actorType string) bool { return strings.HasPrefix(actorType, systemActorPrefix) }

// IsReservedEventType reports whether an event type is reserved for the platform. No spec may declare one.
func IsReservedEventType(eventType string) bool {
	return strings.HasPrefix(eventType, reservedEventPrefix)
}

// CheckSystemAgent reports whether id may act under a system actor type, for which Rules do not count. The error is
// a *j17.Error of CodeInvalidIdentifier without a path.
func CheckSystemAgent(id string) error {
	agents := SystemAgents()
	if slices.Contains(agents, id) {
		return nil
	}
	for i, a := range agents {
		agents[i] = strconv.Quote(a)
	}
	return j17.Errorf(j17.CodeInvalidIdentifier, "The identifier %s is no system agent. Actors of a system type are %s.",
		quote(id), strings.Join(agents[:len(agents)-1], ", ")+" and "+agents[len(agents)-1])
}
