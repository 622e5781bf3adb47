package wire

import "time"

// Scrub is the progress of the server's search for damage in what it stores, and what it has found.
type Scrub struct {
	// Phase is one of tables, events, items and idle; Environment is whose events or items are looked at.
	Phase       string `json:"phase"`
	Environment string `json:"environment,omitempty"`
	// Pass is the pass under way, or the last one; Last is the last one that was completed.
	Pass ScrubPass  `json:"pass"`
	Last *ScrubPass `json:"last"`
	// NextAt is when the next pass begins, null while one is under way.
	NextAt  *time.Time `json:"next_at"`
	Damaged []Damage   `json:"damaged"`
}

// ScrubPass is what a pass over everything has covered.
type ScrubPass struct {
	Number  uint64     `json:"number"`
	BeganAt *time.Time `json:"began_at"`
	EndedAt *time.Time `json:"ended_at"`
	Tables  uint64     `json:"tables"`
	Events  uint64     `json:"events"`
	Streams uint64     `json:"streams"`
	Items   uint64     `json:"items"`
	Bytes   uint64     `json:"bytes"`
}

// Damage is something that is not as it was written.
type Damage struct {
	// What is one of table, event, stream, index, log and item; Where says which one, Error what is wrong with it.
	What        string    `json:"what"`
	Where       string    `json:"where"`
	Error       string    `json:"error"`
	Environment string    `json:"environment,omitempty"`
	FoundAt     time.Time `json:"found_at"`
}

// ScrubShown has it.
type ScrubShown struct {
	Scrub Scrub `json:"scrub"`
	// Nodes has, on a headnode, the same of each worker.
	Nodes []NodeScrub `json:"nodes,omitempty"`
}

// NodeScrub is the progress of a worker.
type NodeScrub struct {
	Node string `json:"node"`
	// Scrub is null where the worker has not reported; Error then says why.
	Scrub *Scrub  `json:"scrub"`
	Error *string `json:"error,omitempty"`
}
