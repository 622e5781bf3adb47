// Package wire has the shapes of requests and answers, once for the server, the client, the command line and the
// document that describes the API. It knows nothing but the vocabulary: the packages that produce a shape define its
// content.
//
// A member of a request that has no omitempty or omitzero has to be given; one of an answer without it is always there.
// The tag must says what a member has to be, where its type does not.
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

// Server tells what answers.
type Server struct {
	Service string `json:"service"`
	Version string `json:"version"`
}

// Advance moves a development server's clock by a duration such as "90s".
type Advance struct {
	By string `json:"by"`
}

// Advanced is where the clock stands then.
type Advanced struct {
	Now time.Time `json:"now"`
}

// Agent is an actor.
type Agent struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// Target is whom events concern.
type Target Agent

// Metadata is what a write says beside its events.
type Metadata struct {
	Actor          Agent   `json:"actor"`
	Target         *Target `json:"target,omitempty"`
	PreviousLength *uint64 `json:"previous_length,omitempty"`
	SkipOCC        bool    `json:"skip_occ,omitempty"`
}

// NewEvent is one event of a batch.
type NewEvent struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data,omitempty"`
}

// WriteEvent writes one event, whose type the path names.
type WriteEvent struct {
	Data       json.RawMessage `json:"data,omitempty"`
	Conditions []Condition     `json:"conditions,omitempty"`
	Metadata   Metadata        `json:"metadata"`
}

// Condition says what must not have happened after a position, "" or "0" for the beginning: an event of one of the
// types, any without them, that has all of the tags.
type Condition struct {
	FailIfEventsMatch Match  `json:"fail_if_events_match"`
	After             string `json:"after,omitempty"`
}

// Match is which events a condition is about.
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

// NewWrite is what a transaction writes to one aggregate. Its key is type:id, type:name or type:_new; As is what later
// writes call the id of a new one by, as in "$.new.name".
type NewWrite struct {
	Key            string     `json:"key"`
	As             string     `json:"as,omitempty"`
	Events         []NewEvent `json:"events"`
	PreviousLength *uint64    `json:"previous_length,omitempty"`
}

// Agents are who causes events, and whom they concern.
type Agents struct {
	Actor  Agent   `json:"actor"`
	Target *Target `json:"target,omitempty"`
}

// Names are what an aggregate is called beside its id.
type Names struct {
	Handle   string `json:"handle,omitempty"`
	PublicID string `json:"public_id,omitempty"`
}

// Written tells where events have been written. ID is given where the write made an aggregate or the aggregate has
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

// WriteWritten tells where the events of a write of a transaction have been written.
type WriteWritten struct {
	Key string `json:"key"`
	ID  string `json:"id"`
	As  string `json:"as,omitempty"`
	Names

	StreamIDs []string `json:"stream_ids"`
	Count     int      `json:"count"`
	Length    uint64   `json:"length"`
}

// State is what the events of an aggregate have made of it.
type State struct {
	Data     json.RawMessage `json:"data"`
	Metadata StateMetadata   `json:"metadata"`
}

// StateMetadata tells how many events a state is made of.
type StateMetadata struct {
	Length uint64 `json:"length"`
	ID     string `json:"id,omitempty"`
	Names
}

// Projected is what a projection yields.
type Projected struct {
	Data json.RawMessage `json:"data"`
	// CachedAt is when that was computed, in Unix seconds.
	CachedAt int64             `json:"cached_at"`
	Metadata ProjectedMetadata `json:"metadata"`
}

// ProjectedMetadata tells what is projected: the aggregate, and the position of the feed as of which it is exact, "0"
// where there is no event.
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

// Row is what a projection yields for an aggregate. Error replaces Data where that cannot be computed.
type Row struct {
	ID string `json:"id"`
	Names
	// Distance is how far away it is in metres, where the list is one around a point, and Geo the kind of its place
	// where that has a name.
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

// Containing is a page of aggregates whose areas have a point, by id.
type Containing struct {
	Rows     []ContainingRow `json:"rows"`
	Next     *string         `json:"next"`
	Metadata RowsMetadata    `json:"metadata"`
}

// ContainingRow is an aggregate whose area has a point.
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

// Event is one as it is stored.
type Event struct {
	StreamID string          `json:"stream_id"`
	Key      string          `json:"key"`
	Type     string          `json:"type"`
	Data     json.RawMessage `json:"data"`
	Metadata json.RawMessage `json:"metadata"`
}

// AggregateType is a type in the list of types. Declared tells whether the deployed spec has it; Count is at most
// 10,000, and More tells that there are more.
type AggregateType struct {
	Type     string   `json:"type"`
	Declared bool     `json:"declared"`
	Events   []string `json:"events"`
	Count    int      `json:"count"`
	More     bool     `json:"more"`
}

// AggregateTypes are those of the deployed spec in its order, and behind them those of earlier ones.
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

// FeedPage is a page of the events of an environment. Position is how far was looked, also where nothing was found.
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

// SingletonMetadata tells how many events each state of a singleton is made of.
type SingletonMetadata struct {
	Lengths map[string]uint64 `json:"lengths"`
}

// Imported tells what became of a file of events that are history.
type Imported struct {
	// Events is the number of events in the file: Stored now, or Known from the try before.
	Events int `json:"events"`
	Stored int `json:"stored"`
	Known  int `json:"already_stored"`
	// Imported is Stored under the name that all imports have.
	Imported int `json:"imported"`
	// Streams is the number of aggregates that they belong to.
	Streams int `json:"aggregates"`
}

// Injected tells what became of test data.
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
	// Truncated says that there is more than the 500 nodes that a graph may have.
	Truncated bool `json:"truncated"`
}

// TraceNode is an event, or something that has to do with events. ID is a stream_id where Kind is event, and that of
// the scheduled event, saga or delivery where it is one of these.
type TraceNode struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// At is when it happened, AtMs the same in Unix milliseconds: of what is scheduled it is when it is due.
	At     string `json:"at"`
	AtMs   int64  `json:"at_ms"`
	Key    string `json:"key,omitempty"`
	Type   string `json:"type,omitempty"`
	Status string `json:"status,omitempty"`
	Error  string `json:"error,omitempty"`
	// Steps are those of a saga.
	Steps []TraceStep `json:"steps,omitempty"`
}

// TraceStep is how far a step of a saga is.
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
