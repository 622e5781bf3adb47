package wire

import "time"

// Overview is what goes on in an environment. Parts that the caller may not read elsewhere are left out.
type Overview struct {
	// Position is that of the last event, or "0"; Events is how many there are.
	Position string `json:"position"`
	Events   uint64 `json:"events"`
	// Rates are how many events were written in each of the last sixty full minutes, the last one last.
	Rates []int64 `json:"rates"`
	// Consumers are those that follow the events.
	Consumers []Consumer   `json:"consumers"`
	Schedule  *Outlook     `json:"schedule,omitempty"`
	Sagas     *SagaLoad    `json:"sagas,omitempty"`
	Spec      *SpecInForce `json:"spec"`
	// Backup is the last one that was completed, RootCheckpoint the last one that was recorded: null where there is
	// none, and left out for callers who may not read them.
	Backup         **LastBackup `json:"backup,omitempty"`
	RootCheckpoint **LastRoot   `json:"root_checkpoint,omitempty"`
	// Builds are those that run.
	Builds []RunningBuild `json:"builds"`
	// Disk is null where it is not known.
	Disk *Disk `json:"disk"`
}

// Consumer follows the events of an environment.
type Consumer struct {
	// Kind is one of listener, projection, place, saga and schedule.
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Status string `json:"status"`
	// Lag is how many events it has not processed yet; for sagas how many are queued, for the schedule how many events
	// are overdue.
	Lag uint64 `json:"lag"`
}

// Outlook is what is scheduled. Of more than a thousand events it counts a thousand.
type Outlook struct {
	NextDue *time.Time `json:"next_due"`
	// DueToday counts those that are to come by the end of the day (UTC), Overdue those that should have come.
	DueToday int `json:"due_today"`
	Overdue  int `json:"overdue"`
}

// SagaLoad is how many sagas have not ended.
type SagaLoad struct {
	Running int `json:"running"`
	Queued  int `json:"queued"`
}

// SpecInForce is the version that is deployed.
type SpecInForce struct {
	Version    int       `json:"version"`
	DeployedAt time.Time `json:"deployed_at"`
}

// LastBackup is the last one that was completed.
type LastBackup struct {
	ID          string    `json:"id"`
	CompletedAt time.Time `json:"completed_at"`
}

// LastRoot is the last root of the log that was recorded.
type LastRoot struct {
	Size      uint64    `json:"size"`
	Root      string    `json:"root"`
	CreatedAt time.Time `json:"created_at"`
}

// RunningBuild is a build that runs.
type RunningBuild struct {
	// Kind is one of projection, place, tag and spec.
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
}

// Disk is the volume of the store, in bytes.
type Disk struct {
	Free  uint64 `json:"free"`
	Total uint64 `json:"total"`
}

// Attention is what waits for a person because of one cause.
type Attention struct {
	// Kind is one of scheduled, saga, delivery, implication, listener, projection, place, spec, backup and erasure.
	Kind string `json:"kind"`
	// Cause has the code, the place and the type concerned, and never data of events. It is the same in each answer.
	Cause string `json:"cause"`
	Title string `json:"title"`
	// Count is how many there are; More reports that only so many were counted.
	Count int  `json:"count"`
	More  bool `json:"more,omitempty"`
	// Since and Newest are when the first and the last one occurred, null where that is not known.
	Since  *time.Time `json:"since"`
	Newest *time.Time `json:"newest"`
	// Sample has the ids or the names of up to twenty of them, the newest first.
	Sample []string `json:"sample"`
	// Actions are what can be done about it: retry, resume, execute, delete, open.
	Actions []string `json:"actions"`
}

// AttentionList is all that waits for a person, the latest first.
type AttentionList struct {
	Attention []Attention `json:"attention"`
}

// AttentionRetry asks for another try of all that has one cause.
type AttentionRetry struct {
	Kind  string `json:"kind"`
	Cause string `json:"cause"`
	// DryRun only counts them.
	DryRun bool `json:"dry_run,omitempty"`
}

// AttentionRetried is how many are tried again, or would be.
type AttentionRetried struct {
	Count int `json:"count"`
}
