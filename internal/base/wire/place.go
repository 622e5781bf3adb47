package wire

// Places are the kinds of places that aggregates of an environment have.
type Places struct {
	Places []PlacesOfKind `json:"places"`
	// Verification is the progress of a requested comparison with the events, while it is under way. It counts
	// aggregates and entries.
	Verification *Verification `json:"verification,omitempty"`
}

// PlacesOfKind is the condition of the places of one kind that the aggregates of a type have.
type PlacesOfKind struct {
	// Type is that of the aggregates, Geo the name of the geo type, Shape point or polygon.
	Type  string `json:"type"`
	Geo   string `json:"geo"`
	Shape string `json:"shape"`
	// Status is ready, or building while the places of older events are being read, or places are rebuilt.
	Status string `json:"status"`
	Build  *Build `json:"build,omitempty"`
}

// VerifiedPlaces is what a comparison of places with the events has found.
type VerifiedPlaces struct {
	Verified bool `json:"verified"`
	// Position is that of the feed as of which the last of them were compared. Aggregates and Entries count what was
	// compared, an aggregate once for each kind of places that its type has.
	Position   string `json:"position"`
	Aggregates uint64 `json:"aggregates"`
	Entries    uint64 `json:"entries"`
	// Difference is the first one.
	Difference *PlaceDifference `json:"difference,omitempty"`
}

// PlaceDifference is an aggregate whose place is not what the events say.
type PlaceDifference struct {
	Type string `json:"type"`
	// ID is "" where an entry cannot be read.
	ID   string `json:"id"`
	Geo  string `json:"geo"`
	What string `json:"what"`
}
