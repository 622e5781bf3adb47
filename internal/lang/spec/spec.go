// Package spec turns the text of a spec into a *Compiled, from which everything else works, or into diagnostics: all of
// them at once, each with its place.
//
// The languages inside a spec have packages of their own: diag, jsonpath, schema and tick.
//
// The decisions behind it are in docs/internals/lang.md.
package spec

import (
	"maps"
	"slices"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
	"j17/internal/lang/schema"
	"j17/internal/lang/tick"
)

// Limits of a spec.
const (
	// MaxSize is the number of bytes of a spec's text.
	MaxSize = 4 << 20
	// MaxNameLength is the number of characters of a declared name.
	MaxNameLength = 64

	maxAggregateTypes = 1000
	maxEventTypes     = 10_000 // of all aggregate types together
	maxNames          = 1000   // in agent_types, target_types and singletons
	maxDefinitions    = 1000   // in geo_types, projections, listeners and sagas
	maxImplications   = 100    // of one event type
	maxPipelineSteps  = 50
	maxCancelOn       = 100
	maxSagaSteps      = 50
	maxAwaited        = 100
	maxPatterns       = 100
	maxHeaders        = 50
	maxText           = 2048 // bytes of a URL, a header, an image's name

	minDelay = 5 * time.Minute
	maxDelay = 365 * 24 * time.Hour
	// MaxAhead is how far ahead a time may be that is taken from data: ten years.
	MaxAhead = 3653 * 24 * time.Hour
)

// Compiled is a spec that was found valid. It is immutable and shared: nothing reachable from it may be changed.
type Compiled struct {
	// Hash identifies what the spec says: SHA-256, in lower-case hexadecimal, of its text without insignificant
	// white space. The order of keys counts, since handlers keep it.
	Hash string
	// Source is the text as it was given.
	Source []byte

	Types       map[string]*AggregateType
	AgentTypes  NameSet
	TargetTypes NameSet
	// Singletons holds the declared names, without "global".
	Singletons NameSet
	// IDs decides what is an identifier under this spec.
	IDs *ident.Rules
	// ProjectKey starts the public ids of aggregate types with a sequence, "" where there are none.
	ProjectKey string

	GeoTypes    map[string]*GeoType
	Projections map[string]*Projection
	Listeners   map[string]*Listener
	Sagas       map[string]*Saga
	// TagNames has the tags that event types declare.
	TagNames map[string]*TagDeclaration

	root value.Value
	// declared has the event types of every aggregate type, and whether they may be written.
	declared map[string]map[string]bool
	// text is Source with the envelope blanked out: the text that line and column refer to.
	text string
}

// Root returns the whole spec as it was written.
func (c *Compiled) Root() value.Value { return c.root }

// Schema returns the schema of the data of an event type, missing where there is none.
func (c *Compiled) Schema(aggregateType, event string) outline.Schema {
	of := c.root.Get("aggregate_types").Get(aggregateType).Get("events").Get(event)
	return outline.Of(of.Get("schema"), c.root.Get("$defs"))
}

// EventType returns the event type of an aggregate type, nil where either is not declared.
func (c *Compiled) EventType(aggregateType, eventType string) *EventType {
	t := c.Types[aggregateType]
	if t == nil {
		return nil
	}
	return t.Events[eventType]
}

// NameSet is a set of declared names.
type NameSet map[string]struct{}

// Has reports whether name is declared.
func (n NameSet) Has(name string) bool {
	_, ok := n[name]
	return ok
}

// Sorted returns the names in order.
func (n NameSet) Sorted() []string { return slices.Sorted(maps.Keys(n)) }

// AggregateType is one member of aggregate_types.
type AggregateType struct {
	Name string
	// Fingerprint changes whenever the type's definition or the public ids of its aggregates do: a stored state, and
	// replies made from it, are valid as long as it is the same. Members that decide whether events are written do not
	// count.
	Fingerprint [32]byte
	Events      map[string]*EventType
	// Cache asks for states to be folded in the background after every write.
	Cache bool
	// Handle is the prefix of the type's handles, "" where it has none.
	Handle ident.Prefix
	// Sequence asks for public ids that count up.
	Sequence bool
	// Places are the kinds of places that aggregates of the type have, by the names of their geo types.
	Places []*Place
	// Unique has the sets of unique values that event types of the type take from.
	Unique map[string]*UniqueSet
	// OnTombstone is nil where other aggregates' erasure never reaches this type.
	OnTombstone *OnTombstone
}

// OnTombstone says whether an aggregate is erased too when somebody named in its events is erased.
type OnTombstone struct {
	CascadeFromActor  bool
	CascadeFromTarget bool
}

// EventType is one member of an aggregate type's events.
type EventType struct {
	AggregateType string
	Name          string
	// Pointer is where the type is declared.
	Pointer diag.Pointer
	// System marks event types that only the platform writes. They have no schema.
	System bool
	// Schema is that of the newest generation.
	Schema *schema.Schema
	// Generation is the number of the newest generation, 1 where there is no other.
	Generation int
	// Older are the older generations in ascending order, without gaps, up to Generation-1.
	Older []*Generation
	// Assumed is the generation of writes that say none: the newest, unless the spec Assumes another.
	Assumed int
	Assumes bool
	// Retired reports that nobody writes the type any more. As is what stored events are read as, nil where they stay
	// what they are.
	Retired bool
	As      *RetiredAs
	// ReadAs are the retired event types whose events are read as the type in the end, in the order of their names.
	ReadAs []*EventType
	// Handler is nil where Code computes the state, where a system event leaves it alone, and where stored events are
	// read as those of another type.
	Handler      *tick.Handler
	Code         *Code
	Implications []*Implication
	AllowSkipOCC bool
	// Sagas are those that the event starts, in the order of their names.
	Sagas []*Saga
	// Listeners is how many listeners select events of the type, regardless of their conditions.
	Listeners int
	// Geo is nil where events say nothing about a place.
	Geo *Geo

	// Requires are the guards, in the order in which they are evaluated.
	Requires []*Guard
	// Reads are the aggregates whose states guards, conditions and emits read, in the order of the spec's text. Their
	// indexes are those of tick's reads.
	Reads   []*Read
	Creates Creation
	// Tags are in the order of their names.
	Tags []*Tag
	// Unique are the values that an event takes for its aggregate, in the order of the names of their sets.
	Unique []*UniqueValue
	// Releases are the names of the sets in which an event gives back what its aggregate holds, before it takes
	// anything.
	Releases []string

	// sums are those of stored events of the newest generation, newestSum is of its schema, where events of others are
	// compared with it.
	sums      sums
	newestSum [32]byte
}

// Ref names an aggregate in a template.
type Ref struct {
	// Literal is an id in canonical form, "" where the id is taken from Path.
	Literal string
	Path    *tick.Path
}

// Emit is the template of an event.
type Emit struct {
	Pointer       diag.Pointer
	AggregateType string
	ID            Ref
	EventType     string
	// Data is nil where the event has no data.
	Data *tick.Template
}

// Implication is what an event brings about. Apart from Condition, exactly one of its pointers and Pipeline is set.
type Implication struct {
	Pointer   diag.Pointer
	Condition *tick.Predicate
	Emit      *Emit
	Map       *Map
	Schedule  *Schedule
	Code      *Code
	Pipeline  []*Implication
}

// Map is an implication for each element of an array.
type Map struct {
	In *tick.Path
	// As is the name of the element's binding with its "$", Slot its place for tick.Env.Bind.
	As        string
	Slot      int
	Condition *tick.Predicate
	Emit      *Emit
}

// Schedule is an implication that is carried out later.
type Schedule struct {
	// Delay is how long after its cause it comes, where At is nil.
	Delay time.Duration
	// At is the time at which it comes, by Offset later, or earlier where that is negative.
	At       *tick.Time
	Offset   time.Duration
	Emit     *Emit
	CancelOn []Match
}

// Match names events of one aggregate.
type Match struct {
	AggregateType string
	ID            Ref
	EventType     string
}

// Runtime is what runs custom code.
type Runtime string

// The runtimes. Those below BinaryContainer are built from source code.
const (
	WASM            Runtime = "wasm"
	BinaryContainer Runtime = "binary"
	NodeContainer   Runtime = "node"
	ElixirContainer Runtime = "elixir"
	RubyContainer   Runtime = "ruby"
	PythonContainer Runtime = "python"
)

// Code names custom code, as a handler or as an implication.
type Code struct {
	Runtime Runtime
	// Artifact is the name of a WebAssembly blob or of a container's image, "" for source code.
	Artifact string
	// Version pins a blob's version; 0 is the latest.
	Version int
	// Entrypoint is an exported function, or the path of a source file.
	Entrypoint string
	// Timeout is set for handlers.
	Timeout time.Duration
	// Transform marks a step that enriches the context of a pipeline instead of emitting events.
	Transform bool
}

// Declaration is a member of a section of a spec, as it is written there.
type Declaration struct {
	Name   string
	Source value.Value
}

// DeclaredProjections returns the projections of a spec that was compiled before, in the order of its text.
func DeclaredProjections(source []byte) ([]Declaration, error) {
	root, err := value.Parse(source)
	if err != nil {
		return nil, err
	}
	members := root.Get("projections").Members()
	out := make([]Declaration, 0, len(members))
	for _, m := range members {
		out = append(out, Declaration{m.Key, m.Value})
	}
	return out, nil
}

// Listener is one member of listeners.
type Listener struct {
	Name string
	// URLs holds an entry for each environment that is listened to.
	URLs      map[j17.Environment]string
	Events    []Pattern
	Condition *tick.Predicate
	Headers   map[string]string
	// Format is what messages look like: FormatJ17 or FormatCloudEvents.
	Format string
}

// The formats of messages to listeners.
const (
	FormatJ17         = "j17"
	FormatCloudEvents = "cloudevents"
)

// Pattern selects events. An empty EventType selects all of an aggregate type, an empty AggregateType all there are.
type Pattern struct {
	AggregateType string
	EventType     string
}

// Matches reports whether the pattern selects an event.
func (p Pattern) Matches(aggregateType, eventType string) bool {
	return (p.AggregateType == "" || p.AggregateType == aggregateType) &&
		(p.EventType == "" || p.EventType == eventType)
}

// String returns the pattern as specs have it.
func (p Pattern) String() string {
	switch {
	case p.AggregateType == "":
		return "*"
	case p.EventType == "":
		return p.AggregateType + ".*"
	default:
		return p.AggregateType + "." + p.EventType
	}
}

// Saga is one member of modules.sagas.
type Saga struct {
	Name             string
	TriggerAggregate string
	TriggerEvent     string
	Steps            []Step
	// OnComplete and OnFailed are nil where nothing is written at the end.
	OnComplete *Ending
	OnFailed   *Ending
	// MaxCompensationAttempts is how often one compensation is tried.
	MaxCompensationAttempts int
}

// Ending is the last event of a saga. Where Condition is set and does not hold, the saga ends without the event.
type Ending struct {
	Condition *tick.Predicate
	Emit      *Emit
}

// Step is one step of a saga.
type Step struct {
	Name       string
	Condition  *tick.Predicate
	Emit       *Emit
	Await      *Await
	Compensate *Emit
	// Timeout is set where Await is and has no Until.
	Timeout time.Duration
}

// Await names the events that finish a step.
type Await struct {
	AggregateType string
	EventTypes    []string
	// ID is nil where the aggregate that the step emitted to is meant.
	ID *Ref
	// Until is when the step ends without an answer, nil where it has a timeout.
	Until *tick.Time
}
