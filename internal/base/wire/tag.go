package wire

import "j17"

// Tags are those that the spec of an environment declares.
type Tags struct {
	Tags        []DeclaredTag   `json:"tags"`
	Environment j17.Environment `json:"environment"`
}

// DeclaredTag is a tag that events have.
type DeclaredTag struct {
	Name string `json:"name"`
	// AggregateTypes are those with events that have it.
	AggregateTypes []string `json:"aggregate_types"`
	// Status is ready, or building while some older events lack it; Build then has the progress.
	Status string `json:"status"`
	Build  *Build `json:"build,omitempty"`
}
