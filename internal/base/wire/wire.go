// Package wire has the shapes of requests and answers, once for the server, the client, the command line and the
// document that describes the API. It depends only on the vocabulary of package j17: the packages that produce a shape
// define its content.
//
// A member of a request without omitempty or omitzero is required; one of an answer without it is always present. The
// tag must says what a member has to be, where its type does not.
package wire

import (
	"encoding/json"
	"time"

	"j17"
)

// Problem is the body of every error: RFC 9457, and the members that clients of the API know.
type Problem struct {
	Type       string           `json:"type"`
	Title      string           `json:"title"`
	Status     int              `json:"status"`
	Detail     string           `json:"detail"`
	OK         bool             `json:"ok"`
	Error      string           `json:"error"`
	Code       j17.Code         `json:"code"`
	Path       string           `json:"path,omitempty"`
	EventIndex *int             `json:"event_index,omitempty"`
	WriteIndex *int             `json:"write_index,omitempty"`
	Details    any              `json:"details,omitempty"`
	Errors     []j17.FieldError `json:"errors,omitempty"`
	ErrorID    string           `json:"error_id,omitempty"`
}

// Server identifies the server that answers.
type Server struct {
	Service string `json:"service"`
	Version string `json:"version"`
}

// Readiness is the answer of a server that takes writes, or answers reads.
type Readiness struct {
	// Store is there for a store on a database server.
	Store *Replication `json:"store,omitempty"`
}

// Replication says whether what a database server acknowledges is on a second machine.
type Replication struct {
	// Mode is "quorum" if commits wait for a standby, and "single" if they do not.
	Mode string `json:"mode"`
	// Standbys counts those that commits wait for, LagBytes is by how much of the log the last of them is behind.
	Standbys int   `json:"standbys"`
	LagBytes int64 `json:"lag_bytes"`
	// Async reports that settings of the server can lose what it has acknowledged.
	Async bool `json:"async"`
}

// Advance moves a development server's clock by a duration such as "90s".
type Advance struct {
	By string `json:"by"`
}

// Advanced is the time that the clock shows then.
type Advanced struct {
	Now time.Time `json:"now"`
}

// Agent is an actor.
type Agent struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// Target is the actor that events concern.
type Target Agent

// Metadata is what a write has beside its events.
type Metadata struct {
	Actor          Agent   `json:"actor"`
	Target         *Target `json:"target,omitempty"`
	PreviousLength *uint64 `json:"previous_length,omitempty"`
	SkipOCC        bool    `json:"skip_occ,omitempty"`
}

// EventMetadata is what a write of one event has beside its data. Generation is the one of the data, the newest or the
// one that the spec assumes where it is missing.
type EventMetadata struct {
	Metadata
	Generation int `json:"generation,omitempty"`
}

// NewEvent is one event of a batch, with the generation of its data as in EventMetadata.
type NewEvent struct {
	Type       string          `json:"type"`
	Generation int             `json:"generation,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// WriteEvent writes one event, whose type the path names.
type WriteEvent struct {
	Data       json.RawMessage `json:"data,omitempty"`
	Conditions []Condition     `json:"conditions,omitempty"`
	Metadata   EventMetadata   `json:"metadata"`
}

// Condition describes events that must not have happened after a position, "" or "0" for the beginning: events of one
// of the types, or of any type without them, that have all of the tags.
type Condition struct {
	FailIfEventsMatch Match  `json:"fail_if_events_match"`
	After             string `json:"after,omitempty"`
}

// Match selects the events that a condition is about.
type Match struct {
	Types []string `json:"types,omitempty"`
	Tags  []string `json:"tags"`
}

// WriteBatch writes several events to one aggregate, all or none.
type WriteBatch struct {
	Events     []NewEvent  `json:"events"`
	Conditions []Condition `json:"conditions,omitempty"`
	Metadata   Metadata    `json:"metadata"`
}

// WriteTransaction writes events to several aggregates, all or none.
type WriteTransaction struct {
	Writes     []NewWrite  `json:"writes"`
	Conditions []Condition `json:"conditions,omitempty"`
	Metadata   Agents      `json:"metadata"`
}

// NewWrite is what a transaction writes to one aggregate. Its key is type:id, type:name or type:_new; As is the name by
// which later writes refer to the id of a new aggregate, as in "$.new.name".
type NewWrite struct {
	Key            string     `json:"key"`
	As             string     `json:"as,omitempty"`
	Events         []NewEvent `json:"events"`
	PreviousLength *uint64    `json:"previous_length,omitempty"`
}

// Agents are the actor and the target of events.
type Agents struct {
	Actor  Agent   `json:"actor"`
	Target *Target `json:"target,omitempty"`
}

// Names are the names of an aggregate beside its id.
type Names struct {
	Handle   string `json:"handle,omitempty"`
	PublicID string `json:"public_id,omitempty"`
}

// Written says where events have been written. ID is given where the write made an aggregate or the aggregate has
// names.
type Written struct {
	Length       uint64 `json:"length"`
	ImpliedCount int    `json:"implied_count,omitempty"`
	ID           string `json:"id,omitempty"`
	Names
}

// EventWritten is the answer to WriteEvent.
type EventWritten struct {
	StreamID string `json:"stream_id"`
	Written
}

// BatchWritten is the answer to WriteBatch.
type BatchWritten struct {
	StreamIDs []string `json:"stream_ids"`
	Count     int      `json:"count"`
	Written
}

// TransactionWritten is the answer to WriteTransaction. Count is the number of its events.
type TransactionWritten struct {
	Writes       []WriteWritten `json:"writes"`
	Count        int            `json:"count"`
	ImpliedCount int            `json:"implied_count,omitempty"`
}

// WriteWritten says where the events of one write of a transaction have been written.
type WriteWritten struct {
	Key string `json:"key"`
	ID  string `json:"id"`
	As  string `json:"as,omitempty"`
	Names

	StreamIDs []string `json:"stream_ids"`
	Count     int      `json:"count"`
	Length    uint64   `json:"length"`
}

// State is the state that the events of an aggregate amount to.
type State struct {
	Data     json.RawMessage `json:"data"`
	Metadata StateMetadata   `json:"metadata"`
}

// StateMetadata has the number of events that a state is made of.
type StateMetadata struct {
	Length uint64 `json:"length"`
	ID     string `json:"id,omitempty"`
	Names
}

// Projected is the result of a projection.
type Projected struct {
	Data json.RawMessage `json:"data"`
	// CachedAt is when it was computed, in Unix seconds.
	CachedAt int64             `json:"cached_at"`
	Metadata ProjectedMetadata `json:"metadata"`
}

// ProjectedMetadata says what is projected: the aggregate, and the position of the feed as of which the result is
// exact, "0" where there is no event.
type ProjectedMetadata struct {
	ID string `json:"id,omitempty"`
	Names
	Position string `json:"position,omitempty"`
}

// Rows is a page of the rows of a projection. Next is where the next page starts, null where there is none.
type Rows struct {
	Rows     []Row        `json:"rows"`
	Next     *string      `json:"next"`
	Metadata RowsMetadata `json:"metadata"`
}

// Row is the result of a projection for an aggregate. Error replaces Data where it cannot be computed.
type Row struct {
	ID string `json:"id"`
	Names
	// Distance is how far away the aggregate is in metres, where the list is one around a point, and Geo the kind of
	// its place where that has a name.
	Distance *float64 `json:"distance,omitempty"`
	Geo      string   `json:"geo,omitempty"`

	Data  json.RawMessage `json:"data,omitempty"`
	Error *RowError       `json:"error,omitempty"`
}

// RowError says why a row has no data.
type RowError struct {
	Code  j17.Code `json:"code"`
	Error string   `json:"error"`
}

// RowsMetadata has the position of the feed as of which rows are exact, "0" where there is no event.
type RowsMetadata struct {
	Position string `json:"position"`
}

// RowCount is how many rows a list has.
type RowCount struct {
	Count uint64 `json:"count"`
}

// Nearby is a page of aggregates around a point, nearest first.
type Nearby struct {
	Rows     []NearbyRow  `json:"rows"`
	Next     *string      `json:"next"`
	Metadata RowsMetadata `json:"metadata"`
}

// NearbyRow is an aggregate that is Distance metres away.
type NearbyRow struct {
	ID string `json:"id"`
	Names
	Distance float64  `json:"distance"`
	Location Location `json:"location"`
	PlaceKind
	RowState
}

// Within is a page of aggregates whose points are in an area, by id.
type Within struct {
	Rows     []WithinRow  `json:"rows"`
	Next     *string      `json:"next"`
	Metadata RowsMetadata `json:"metadata"`
}

// WithinRow is an aggregate that is in an area.
type WithinRow struct {
	ID string `json:"id"`
	Names
	Location Location `json:"location"`
	PlaceKind
	RowState
}

// Containing is a page of aggregates whose areas contain a point, by id.
type Containing struct {
	Rows     []ContainingRow `json:"rows"`
	Next     *string         `json:"next"`
	Metadata RowsMetadata    `json:"metadata"`
}

// ContainingRow is an aggregate whose area contains a point.
type ContainingRow struct {
	ID string `json:"id"`
	Names
	PlaceKind
	RowState
}

// Location is a point in degrees.
type Location struct {
	Lat float64 `json:"lat"`
	Lng float64 `json:"lng"`
}

// PlaceKind is the name of a geo type, and the properties that it names. Points have it where their geo type names
// some.
type PlaceKind struct {
	Geo        string          `json:"geo,omitempty"`
	Properties json.RawMessage `json:"properties,omitempty"`
}

// RowState is the state of an aggregate, unless it was left out. Error replaces it where it cannot be computed.
type RowState struct {
	Data  json.RawMessage `json:"data,omitempty"`
	Error *RowError       `json:"error,omitempty"`
}

// Length is the number of events of an aggregate.
type Length struct {
	Length uint64 `json:"length"`
}

// Event is a stored event.
type Event struct {
	StreamID string          `json:"stream_id"`
	Key      string          `json:"key"`
	Type     string          `json:"type"`
	Data     json.RawMessage `json:"data"`
	Metadata json.RawMessage `json:"metadata"`
}

// AggregateType is a type in the list of types. Declared reports whether the deployed spec has it; Count is at most
// 10,000, and More reports that there are more.
type AggregateType struct {
	Type     string   `json:"type"`
	Declared bool     `json:"declared"`
	Events   []string `json:"events"`
	Count    int      `json:"count"`
	More     bool     `json:"more"`
}

// AggregateTypes are those of the deployed spec in its order, followed by those of earlier ones.
type AggregateTypes struct {
	Types []AggregateType `json:"types"`
}

// AggregateRow is an aggregate in the list of a type.
type AggregateRow struct {
	ID        string    `json:"id"`
	Handle    string    `json:"handle,omitempty"`
	PublicID  string    `json:"public_id,omitempty"`
	Length    uint64    `json:"length"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Aggregates is a page of the aggregates of a type.
type Aggregates struct {
	Aggregates []AggregateRow `json:"aggregates"`
	Next       *string        `json:"next"`
}

// EventShown is an event with the version of its aggregate that it made, and the stream_ids of its neighbours in that
// aggregate.
type EventShown struct {
	Event    json.RawMessage `json:"event"`
	Length   uint64          `json:"length"`
	Previous *string         `json:"previous"`
	Next     *string         `json:"next"`
}

// Events is a page of the events of an aggregate. Next is where the next page starts, null where there is none.
type Events struct {
	Events []Event `json:"events"`
	Next   *string `json:"next"`
}

// FeedPage is a page of the events of an environment. Position is how far the server has looked, even where it found
// nothing.
type FeedPage struct {
	Events   []Event `json:"events"`
	Next     *string `json:"next"`
	Position string  `json:"position"`
}

// IDs is a page of the ids of an aggregate type.
type IDs struct {
	IDs  []string `json:"ids"`
	Next *string  `json:"next"`
}

// Singleton is the states of a declared singleton and the numbers of their events, by aggregate type.
type Singleton struct {
	Data     map[string]json.RawMessage `json:"data"`
	Metadata SingletonMetadata          `json:"metadata"`
}

// SingletonMetadata has the number of events that each state of a singleton is made of.
type SingletonMetadata struct {
	Lengths map[string]uint64 `json:"lengths"`
}

// Imported is the outcome of importing a file of events that are history.
type Imported struct {
	// Events is the number of events in the file: Stored now, or Known from an earlier try.
	Events int `json:"events"`
	Stored int `json:"stored"`
	Known  int `json:"already_stored"`
	// Imported is Stored under the name that all imports have.
	Imported int `json:"imported"`
	// Streams is the number of aggregates that they belong to.
	Streams int `json:"aggregates"`
}

// Injected is the outcome of injecting test data.
type Injected struct {
	Events  int `json:"events"`
	Stored  int `json:"stored"`
	Implied int `json:"implied"`
	// Imported is Stored under the name that all imports have.
	Imported int `json:"imported"`
}

// Trace is the graph that an event belongs to.
type Trace struct {
	Nodes []TraceNode `json:"nodes"`
	Edges []TraceEdge `json:"edges"`
	// Truncated reports that the graph has more than the 500 nodes that are shown.
	Truncated bool `json:"truncated"`
}

// TraceNode is an event, or something related to events. ID is a stream_id where Kind is event, otherwise the id of the
// scheduled event, saga or delivery.
type TraceNode struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// At is when it happened, AtMs the same in Unix milliseconds; for something scheduled it is when it is due.
	At     string `json:"at"`
	AtMs   int64  `json:"at_ms"`
	Key    string `json:"key,omitempty"`
	Type   string `json:"type,omitempty"`
	Status string `json:"status,omitempty"`
	Error  string `json:"error,omitempty"`
	// Steps are those of a saga.
	Steps []TraceStep `json:"steps,omitempty"`
}

// TraceStep is the progress of a step of a saga.
type TraceStep struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// TraceEdge leads from a cause to what it has caused.
type TraceEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
	How  string `json:"how"`
}
