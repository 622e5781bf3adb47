package wire

import (
	"encoding/json"
	"time"

	"j17"
)

// Deployment is a version of a spec as shown to people.
type Deployment struct {
	ID string `json:"id"`
	// Version counts the deployments to one environment from 1, Hash is the SHA-256 of the spec's text.
	Version     int             `json:"version"`
	Hash        string          `json:"hash"`
	DeployedAt  time.Time       `json:"deployed_at"`
	DeployedBy  Actor           `json:"deployed_by,omitzero"`
	How         string          `json:"how,omitempty"`
	From        *Origin         `json:"from,omitempty"`
	Forced      bool            `json:"forced,omitempty"`
	Note        string          `json:"note,omitempty"`
	Environment j17.Environment `json:"environment"`
}

// Origin names the version that another one is a copy of.
type Origin struct {
	Environment j17.Environment `json:"environment"`
	Version     int             `json:"version"`
}

// Spec is a deployed spec with its deployment.
type Spec struct {
	Deployment Deployment      `json:"deployment"`
	Spec       json.RawMessage `json:"spec"`
}

// Change is one difference between two specs.
type Change struct {
	// Kind is added, removed or changed.
	Kind string `json:"change"`
	What string `json:"what"`
	Name string `json:"name,omitempty"`
	// Keys lists the members of a part that is changed in which it differs.
	Keys []string `json:"keys,omitempty"`
}

// Differences are those between two versions.
type Differences struct {
	From         int              `json:"from"`
	To           int              `json:"to"`
	Changes      []Change         `json:"changes"`
	Incompatible []j17.FieldError `json:"incompatible"`
}

// Rollback goes back to an earlier version.
type Rollback struct {
	Version     int    `json:"version" must:"the number of the version to go back to; GET spec/history lists them"`
	Environment string `json:"environment,omitempty"`
	Force       bool   `json:"force,omitempty"`
	Note        string `json:"note,omitempty"`
}

// Promotion copies a version from one environment to another.
type Promotion struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Version *int   `json:"version,omitempty"`
	Force   bool   `json:"force,omitempty"`
	Note    string `json:"note,omitempty"`
}

// SpecTrial is how many stored events were tried under a spec that reads them in another way, and how many fail.
type SpecTrial struct {
	Events uint64 `json:"events"`
	Failed uint64 `json:"failed"`
	// Examples shows the first events of each stored generation, of a dry run.
	Examples []TrialExample `json:"examples,omitempty"`
}

// TrialExample is a stored event before and after it is brought to the newest generation: its data as JSON texts, cut
// to 2 KiB. After is "" where that fails.
type TrialExample struct {
	StreamID   string `json:"stream_id"`
	Key        string `json:"key"`
	Type       string `json:"type"`
	Generation int    `json:"generation"`
	Before     string `json:"before"`
	After      string `json:"after"`
}

// Generations are the event types of a spec that have generations or are retired, with what is stored of them.
type Generations struct {
	Types []TypeGenerations `json:"types"`
	// Trial is that of the deployed spec.
	Trial SpecTrial `json:"trial"`
}

// RunningTrial is the trial of stored events that a server carries out at the moment, null if there is none.
type RunningTrial struct {
	Build *Build `json:"build"`
}

// TypeGenerations is an event type, named with its aggregate type.
type TypeGenerations struct {
	Type string `json:"type"`
	// Newest is its newest generation, Assume that of writes that say none.
	Newest  int                `json:"newest"`
	Assume  int                `json:"assume"`
	Retired bool               `json:"retired"`
	Stored  []StoredGeneration `json:"stored"`
}

// StoredGeneration is how many events of a name and a generation are stored, and how many of them cannot be read.
type StoredGeneration struct {
	Name       string `json:"name"`
	Generation int    `json:"generation"`
	Events     uint64 `json:"events"`
	Failed     uint64 `json:"failed"`
}

// Deployed is the outcome of a deployment.
type Deployed struct {
	Deployment   Deployment       `json:"deployment"`
	Created      bool             `json:"created"`
	Incompatible []j17.FieldError `json:"incompatible"`
	Warnings     []j17.FieldError `json:"warnings"`
	// Trial is there if the spec reads stored events in another way.
	Trial *SpecTrial `json:"trial,omitempty"`
}

// SpecPrepared is the answer to a spec that is deployed once what it needs is built.
type SpecPrepared struct {
	Prepared     PreparedSpec     `json:"prepared"`
	Incompatible []j17.FieldError `json:"incompatible"`
	Warnings     []j17.FieldError `json:"warnings"`
}

// PreparedSpec is a spec that is prepared.
type PreparedSpec struct {
	Hash        string          `json:"hash"`
	Environment j17.Environment `json:"environment"`
	RequestedAt time.Time       `json:"requested_at"`
	RequestedBy Actor           `json:"requested_by,omitzero"`
	Note        string          `json:"note,omitempty"`
	Build       Build           `json:"build"`
}

// PreparedShown is the answer about it.
type PreparedShown struct {
	Prepared PreparedSpec `json:"prepared"`
}

// DryRun is what a deployment would change in an environment.
type DryRun struct {
	DryRun       bool             `json:"dry_run"`
	Environment  j17.Environment  `json:"environment"`
	Compatible   bool             `json:"compatible"`
	Changes      []Change         `json:"changes"`
	Incompatible []j17.FieldError `json:"incompatible"`
	Warnings     []j17.FieldError `json:"warnings"`
	Trial        *SpecTrial       `json:"trial,omitempty"`
	Replay       SpecReplay       `json:"replay"`
	// Projections are those whose results would change.
	Projections []ProjectionTrial `json:"projections,omitempty"`
}

// Blob is a version of a file.
type Blob struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	Size    int64  `json:"size"`
	// SHA256 is the hash of the content in lower-case hexadecimal.
	SHA256    string    `json:"sha256"`
	CreatedAt time.Time `json:"created_at"`
	// CreatedBy is the handle of the operator who uploaded it.
	CreatedBy string `json:"created_by,omitempty"`
	// Versions is how many versions there are, in a list of names.
	Versions int `json:"versions,omitempty"`
}

// Stored is a blob that was uploaded.
type Stored struct {
	Blob Blob `json:"blob"`
}

// Debugging asks to trace custom code.
type Debugging struct {
	WASMTrace bool `json:"wasm_trace"`
	Minutes   *int `json:"minutes,omitempty"`
}

// Debug is what is switched on for an environment, and until when.
type Debug struct {
	WASMTrace bool      `json:"wasm_trace"`
	Until     time.Time `json:"until,omitzero"`
}

// DebugState is the answer about it.
type DebugState struct {
	Debug Debug `json:"debug"`
}

// Replay is how a spec would change the existing states.
type Replay struct {
	// Types lists the aggregate types whose states may change, because their definition or their custom code has.
	Types []string `json:"types"`
	// Aggregates is how many were replayed, Events how many events of them. Complete reports that these are all.
	Aggregates int    `json:"aggregates"`
	Events     uint64 `json:"events"`
	Complete   bool   `json:"complete"`
	// Changed is how many states would be different, Failed how many aggregates would have none under the new spec,
	// because custom code fails or because an event takes more work than it may.
	Changed int `json:"changed"`
	Failed  int `json:"failed"`
	// Differences shows the first of both.
	Differences []StateDifference `json:"differences"`
	// Faults are operations of handlers under the new spec that did not fit the events, one for each place in the spec;
	// they changed nothing. FaultsMore is how many times more one did not, in places that are not shown.
	Faults     []ReplayFault `json:"faults,omitempty"`
	FaultsMore int           `json:"faults_more,omitempty"`
	// Beyond lists the events that take more work under the new spec than one event may.
	Beyond []ReplayedEvent `json:"beyond,omitempty"`
}

// SpecReplay is Replay with the verdicts of guards that the new spec defines differently on the stored events.
type SpecReplay struct {
	Replay

	// Refused is how many events they would have refused, and Refusals are the first of them. Unchecked is how many of
	// these guards read other aggregates, so that they were not evaluated.
	Refused   int             `json:"refused"`
	Refusals  []ReplayRefusal `json:"refusals"`
	Unchecked int             `json:"unchecked"`
}

// ReplayRefusal is a stored event that a guard would have refused: the guard's place in the spec, and what it says.
type ReplayRefusal struct {
	StreamID string `json:"stream_id"`
	Key      string `json:"key"`
	Type     string `json:"type"`
	Pointer  string `json:"pointer"`
	Message  string `json:"message"`
}

// ReplayedEvent is a stored event, by its aggregate and the length of the stream after it.
type ReplayedEvent struct {
	Key       string `json:"key"`
	Length    uint64 `json:"length"`
	EventType string `json:"event_type"`
}

// ReplayFault is an operation of a handler that did not fit events, with the first of them.
type ReplayFault struct {
	Pointer string `json:"pointer"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	// Times is how often the operation did not fit.
	Times int `json:"times"`
	ReplayedEvent
}

// StateDifference is an aggregate that has a different state under the new spec, or none.
type StateDifference struct {
	Key     string        `json:"key"`
	Length  uint64        `json:"length"`
	Changes []ValueChange `json:"changes,omitempty"`
	// Versions are the lengths at which the two states first and last differ, left out where finding out takes too
	// much.
	Versions []uint64 `json:"versions,omitempty"`
	// More is how many changes are not shown.
	More int `json:"more,omitempty"`
	// Error says why there is no state under the new spec.
	Error string `json:"error,omitempty"`
}

// ValueChange is one place in which two states differ.
type ValueChange struct {
	Pointer string `json:"pointer"`
	Change  string `json:"change"`
	// Before and After are the values there, as JSON text cut to 512 bytes; "" where there is none.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// VersionChange is one change that a version of an aggregate made to its state. Operation is a pointer into the spec:
// the operation of the handler that made it.
type VersionChange struct {
	ValueChange
	Operation string `json:"operation"`
}

// VersionChanges are those of one version: at most 200, and the number of the others.
type VersionChanges struct {
	Length  uint64          `json:"length"`
	Event   json.RawMessage `json:"event"`
	Changes []VersionChange `json:"changes"`
	More    int             `json:"more,omitempty"`
}

// AggregateChanges is what versions of an aggregate changed. Length is that of the aggregate, Next the version that the
// next page begins with.
type AggregateChanges struct {
	Length  uint64           `json:"length"`
	Changes []VersionChanges `json:"changes"`
	Next    *uint64          `json:"next"`
}

// Blamed is a leaf of a state with the version and the event that set it last.
type Blamed struct {
	Pointer  string `json:"pointer"`
	Length   uint64 `json:"length"`
	StreamID string `json:"stream_id"`
}

// Blame has the leaves of a state in its order, 5,000 at most.
type Blame struct {
	Length    uint64   `json:"length"`
	Blame     []Blamed `json:"blame"`
	Truncated bool     `json:"truncated"`
}

// SpecChecked has all findings of a text that may become a spec. Formatted is the text in the usual form, where that
// was asked for and it is JSON.
type SpecChecked struct {
	Valid     bool             `json:"valid"`
	Errors    []j17.FieldError `json:"errors"`
	Warnings  []j17.FieldError `json:"warnings"`
	Formatted string           `json:"formatted,omitempty"`
}

// SpecState is the state of an aggregate after a number of events.
type SpecState struct {
	Length uint64          `json:"length"`
	Data   json.RawMessage `json:"data"`
}

// SpecStates are the states of an aggregate under the deployed spec and under another one, nil where there is none.
type SpecStates struct {
	Now  *SpecState `json:"now"`
	Then *SpecState `json:"then"`
	// Changes are at most 200 places in which they differ, More is how many others there are.
	Changes []ValueChange `json:"changes"`
	More    int           `json:"more,omitempty"`
	// Error says why one of them is missing.
	Error string `json:"error,omitempty"`
}
