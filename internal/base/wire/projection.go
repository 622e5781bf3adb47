package wire

import (
	"encoding/json"

	"j17"
)

// Projections are a page of the projections of an environment.
type Projections struct {
	Projections []Projection    `json:"projections"`
	Next        *int            `json:"next"`
	Environment j17.Environment `json:"environment"`
}

// Projection is a projection of an environment and the progress of its indexes.
type Projection struct {
	Name string `json:"name"`
	// Origin is where it is declared: spec, or admin for what was posted.
	Origin string `json:"origin"`
	// Status is ready, building, or invalid for what was posted and is not valid under the spec; Problem says why.
	Status  string `json:"status"`
	Problem string `json:"problem,omitempty"`
	// Definition is as it was given.
	Definition json.RawMessage `json:"projection"`
	// Rows counts the rows of its index; null where it needs none, so that nothing counts them. Entries and Bytes are
	// those of its indexes.
	Rows    *uint64 `json:"rows"`
	Entries uint64  `json:"entries,omitempty"`
	Bytes   uint64  `json:"bytes,omitempty"`
	// Position is that of the feed up to which its indexes are, or "0".
	Position string `json:"position"`
	// Lag is the number of events behind it that they have not taken up yet.
	Lag   uint64 `json:"lag"`
	Build *Build `json:"build,omitempty"`
	// Verification is the progress of a requested comparison of its indexes with the events, while it is under way.
	Verification *Verification `json:"verification,omitempty"`
}

// Verification is the progress of a comparison with the events. Done and Total count rows and entries.
type Verification struct {
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
}

// Build is an index that is, or was, built in the background, or tags that older events are given.
type Build struct {
	// Status is running, done or failed; Error says why it has failed, or what it waits for while it runs.
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
	// Kind is "trial" while stored events are tried under a spec, and left out for all else.
	Kind string `json:"kind,omitempty"`
	// Done and Total count streams, or for tags and trials events; Total is 0 until they are counted.
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
	// Prepared is the definition that takes the place of the present one when the build is done.
	Prepared json.RawMessage `json:"prepared,omitempty"`
}

// PostedProjection is the answer to a definition that was posted.
type PostedProjection struct {
	Projection
	Created  bool             `json:"created"`
	Warnings []j17.FieldError `json:"warnings"`
}

// Price is what a projection costs.
type Price struct {
	// Rows and Entries are those that its index would have, Bytes their size, Seconds how long building them takes on
	// this server. They are estimated from the rows that were tried; Exact reports that these were all.
	Rows    uint64  `json:"rows"`
	Entries uint64  `json:"entries"`
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Exact   bool    `json:"exact"`
	// Widest is the aggregate on which most of the rows tried depend: a change of it changes all of them.
	Widest *Fanout `json:"widest,omitempty"`
}

// Fanout is how many rows depend on an aggregate.
type Fanout struct {
	Key  string `json:"key"`
	Rows uint64 `json:"rows"`
}

// ProjectionDryRun is what a definition would change in an environment.
type ProjectionDryRun struct {
	DryRun   bool             `json:"dry_run"`
	Name     string           `json:"name"`
	Created  bool             `json:"created"`
	Warnings []j17.FieldError `json:"warnings"`
	Replay   Replay           `json:"replay"`
	Price    Price            `json:"price"`
}

// ProjectionTrial is how a spec would change one projection.
type ProjectionTrial struct {
	Name string `json:"name"`
	// Change is added, removed or changed; the change is in its own definition, or in the types that it reads.
	Change string  `json:"change"`
	Replay *Replay `json:"replay,omitempty"`
	Price  *Price  `json:"price,omitempty"`
}

// VerifiedProjection is what a comparison of an index with the events has found.
type VerifiedProjection struct {
	Name     string `json:"name"`
	Verified bool   `json:"verified"`
	// Position is that of the feed as of which all was compared, Rows and Entries how many.
	Position string `json:"position"`
	Rows     uint64 `json:"rows"`
	Entries  uint64 `json:"entries"`
	// Difference is the first one.
	Difference *RowDifference `json:"difference,omitempty"`
}

// RowDifference is a row of an index that is not what the events say.
type RowDifference struct {
	Row  string `json:"row"`
	What string `json:"what"`
}
