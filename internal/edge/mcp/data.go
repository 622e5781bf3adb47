package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"j17"
	"j17/internal/edge/client"
)

const (
	// usualCount is how many events or ids a call returns unless it says otherwise, mostCount how many it can ask for.
	usualCount = 20
	mostCount  = 200
)

// aggregate names an aggregate in the arguments of a call.
type aggregate struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

func (a aggregate) key() (j17.Key, error) {
	if a.Type == "" || a.ID == "" {
		return j17.Key{}, sentencef("The arguments \"type\" and \"id\" must not be empty.")
	}
	return j17.Key{Type: a.Type, ID: a.ID}, nil
}

func typeParameter() parameter {
	return parameter{"type", `{"type":"string"}`, "The aggregate type, as in the spec.", true}
}

// anyName is what an id parameter takes.
const anyName = "The id of the aggregate: a UUID, a humane code or the name of a singleton; or another name that the server has given it: " +
	"its handle, or its public id, such as BANK-1."

func idParameter() parameter { return parameter{"id", `{"type":"string"}`, anyName, true} }

func storedParameter() parameter {
	return parameter{"stored", `{"type":"boolean"}`, "true returns events as they are stored, in the generation that they were written in.", false}
}

func countParameter(what string) parameter {
	return parameter{"count", `{"type":"integer","minimum":1,"maximum":200}`, "How many " + what + " at most; 20 unless said otherwise.", false}
}

func atParameter(what string) parameter {
	return parameter{"at", `{"type":["integer","string"],"minimum":0}`, "The " + what + " at the end of this second: Unix seconds, or a text as in 2026-01-31T12:00:00Z.", false}
}

// moment is a time as the server accepts it, which may be given as a number.
type moment string

// UnmarshalJSON implements json.Unmarshaler.
func (m *moment) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(m))
	}
	if string(b) != "null" {
		*m = moment(b)
	}
	return nil
}

func (s *Server) addDataTools() {
	// Tools that only read.
	add(s, tool{
		name: "read_state", title: "Read a state",
		description: "Returns the state of one aggregate of the running server, what the aggregate is called, and the number of events that the state is made of: the present one, or a past one by length or by time.",
		parameters: []parameter{
			typeParameter(),
			idParameter(),
			{"length", `{"type":"integer","minimum":0}`, "The state after the first so many events.", false},
			atParameter("state"),
		},
	}, s.readState)
	add(s, tool{
		name: "read_events", title: "Read events",
		description: "Returns the events of one aggregate of the running server, oldest first, in the newest generation of their types. If there are more, \"next\" is the \"start\" of the next call.",
		parameters: []parameter{
			typeParameter(),
			idParameter(),
			{"start", `{"type":"string"}`, "A stream_id: only events after it.", false},
			countParameter("events"),
			storedParameter(),
		},
	}, s.readEvents)
	add(s, tool{
		name: "read_feed", title: "Read the feed",
		description: "Returns events of all aggregates of one environment of the running server in the order in which they were written, those that all filters let through. " +
			"If there are more, \"next\" is the \"after\" of the next call; \"position\" is how far was looked.",
		parameters: []parameter{
			{"type", `{"type":"string"}`, "Only events of aggregates of this type.", false},
			{"event", `{"type":"string"}`, "Only events of this type.", false},
			{"actor", `{"type":"string"}`, "Only events that this actor has caused, as type:id.", false},
			{"target", `{"type":"string"}`, "Only events about this target, as type:id.", false},
			{"types", `{"type":"array","items":{"type":"string"}}`, "Only events of one of these types, as type.event or type.*.", false},
			{"tags", `{"type":"array","items":{"type":"string"}}`, "Only events that have all of these tags, as name:value.", false},
			{"correlation", `{"type":"string"}`, "Only events with this correlation id, a UUID.", false},
			{"after", `{"type":"string"}`, "A stream_id: only events after it.", false},
			countParameter("events"),
			storedParameter(),
		},
	}, s.readFeed)
	add(s, tool{
		name: "list_ids", title: "List ids",
		description: "Lists the ids of the aggregates of one type that have events on the running server, in byte order. If there are more, \"next\" is the \"start\" of the next call.",
		parameters: []parameter{
			typeParameter(),
			{"start", `{"type":"string"}`, "An id: only ids after it.", false},
			countParameter("ids"),
		},
	}, s.listIDs)

	add(s, tool{
		name: "read_projection", title: "Read a projection",
		description: "Returns what a projection of the running server yields: data of several aggregates as of one moment, in the shape that the spec declares. Projections of the named form (for_each) take an id; " +
			"those that are an array of sources take parameters. list_rows has the rows of the named form.",
		parameters: []parameter{
			{"name", `{"type":"string"}`, "The projection, as in the spec.", true},
			{"id", `{"type":"string"}`, anyName, false},
			{"parameters", `{"type":"object","additionalProperties":{"type":"string"}}`, "The parameters of a projection that is an array of sources, by their names.", false},
			atParameter("value"),
		},
	}, s.readProjection)

	// The tool that writes, if there is a Writer.
	if s.o.Writer == nil {
		return
	}
	agent := `{"type":"object","properties":{"type":{"type":"string"},"id":{"type":"string"}},"required":["type","id"],"additionalProperties":false}`
	add(s, tool{
		name: nameOfPost, title: "Write an event", writes: true,
		description: "Writes one event to an aggregate of the running server. The event is stored for good: it cannot be changed or removed. Try it with dry_run first: " +
			"the answer says whether it is accepted, why not (refusals), what it implies (events, as a tree) and the states afterwards. " +
			"Pass previous_length when the event depends on a state that was read. " +
			"An event type may have guards: the members of \"requires\" in the spec, asked in their order on the state before the event. The first that does not hold " +
			"refuses the event with the code requirement_failed, its message, and the code that the spec gives it as details.requirement; implied events are " +
			"guarded too. \"creates\" says whether the aggregate must be new (\"only\", else already_exists) or exist (false, else aggregate_not_found), and \"unique\" " +
			"which values nobody else may have (not_unique)." + s.guards(),
		parameters: []parameter{
			typeParameter(),
			{"id", `{"type":"string"}`, anyName + " \"_new\" makes a new aggregate, whose id is in the answer.", true},
			{"event", `{"type":"string"}`, "The event type, as in the spec.", true},
			{"data", `{"type":"object"}`, "The event's data, which has to fit the schema of the event type; {} unless given.", false},
			{"actor", agent, "Who causes the event: one of the spec's agent_types, and an id.", true},
			{"target", agent, "Whom or what the event is about, beside the aggregate: one of the spec's target_types, and an id.", false},
			{"previous_length", `{"type":"integer","minimum":0}`, "The number of events that the aggregate must have; otherwise nothing is written.", false},
			{"idempotency_key", `{"type":"string","minLength":1,"maxLength":255}`, "Makes the call safe to repeat: the same key never writes twice.", false},
			{"dry_run", `{"type":"boolean"}`, "true tells what the write would do, and writes nothing.", false},
		},
	}, s.postEvent)
}

// maxGuards is how many bytes the guards of a spec may take in a description.
const maxGuards = 4 << 10

// guards lists the guards of the spec that the server was started with, as far as there is room.
func (s *Server) guards() string {
	if s.o.Spec == nil {
		return ""
	}
	text, err := s.o.Spec()
	if err != nil {
		return "" // tools that use the spec report the error
	}
	compiled, _ := compile(text)
	if compiled == nil {
		return ""
	}
	var b strings.Builder
	for _, typ := range slices.Sorted(maps.Keys(compiled.Types)) {
		events := compiled.Types[typ].Events
		for _, name := range slices.Sorted(maps.Keys(events)) {
			for _, guard := range events[name].Requires {
				fmt.Fprintf(&b, "\n- %s.%s: %s %s", typ, name, guard.Code, guard.Message.Source())
				if b.Len() > maxGuards {
					return "\nThe first guards of the spec:" + strings.ToValidUTF8(b.String()[:maxGuards], "") + "…"
				}
			}
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\nThe guards of the spec, by event type, with their codes and messages:" + b.String()
}

type projectionIn struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Parameters map[string]string `json:"parameters"`
	At         moment            `json:"at"`
}

type projectionOut struct {
	Projection string          `json:"projection"`
	Data       json.RawMessage `json:"data"`
	Metadata   json.RawMessage `json:"metadata"`
}

func (s *Server) readProjection(ctx context.Context, in projectionIn) (any, error) {
	if in.Name == "" {
		return nil, sentencef("\"name\" must not be empty.")
	}
	v, err := s.o.Reader.Projection(ctx, in.Name, in.ID, client.ProjectionOptions{
		Params: in.Parameters, At: string(in.At),
	})
	if err != nil {
		return nil, withTool(err, "ask for its rows", "list_rows lists them.")
	}
	return projectionOut{Projection: in.Name, Data: v.Data, Metadata: v.Metadata}, nil
}

type stateIn struct {
	aggregate
	Length *uint64 `json:"length"`
	At     moment  `json:"at"`
}

// names are the names of an aggregate. ID is "" where it is that of the call, the others where there is none.
type names struct {
	ID       string `json:"id,omitempty"`
	Handle   string `json:"handle,omitempty"`
	PublicID string `json:"public_id,omitempty"`
}

// keyOf returns the key of an aggregate that may have been asked for by another name.
func (n names) keyOf(asked j17.Key) string {
	asked.ID = cmp.Or(n.ID, asked.ID)
	return asked.String()
}

type stateOut struct {
	Key string `json:"key"`
	names
	State json.RawMessage `json:"state"`
	// Length is the number of events that the state is made of.
	Length uint64 `json:"length"`
}

func (s *Server) readState(ctx context.Context, in stateIn) (any, error) {
	key, err := in.key()
	if err != nil {
		return nil, err
	}
	if in.Length != nil && in.At != "" {
		return nil, sentencef("Pass either \"length\" or \"at\", not both.")
	}
	state, err := s.o.Reader.State(ctx, key, client.StateOptions{At: string(in.At), Length: in.Length})
	if err != nil {
		return nil, err
	}
	var called names
	if len(state.Metadata) > 0 {
		if err := json.Unmarshal(state.Metadata, &called); err != nil {
			return nil, sentencef("The server sent a state with metadata that cannot be read.")
		}
	}
	called.ID = cmp.Or(called.ID, key.ID)
	return stateOut{Key: called.keyOf(key), names: called, State: state.Data, Length: state.Length}, nil
}

type page struct {
	Start string  `json:"start"`
	Count *uint64 `json:"count"`
}

// size is how many a page has; the schema bounds what may be asked for.
func (p page) size() uint64 {
	if p.Count == nil {
		return usualCount
	}
	return *p.Count
}

type eventsIn struct {
	aggregate
	page

	Stored bool `json:"stored"`
}

type eventsOut struct {
	Key    string            `json:"key"`
	Events []json.RawMessage `json:"events"`
	Next   *string           `json:"next"`
}

func (s *Server) readEvents(ctx context.Context, in eventsIn) (any, error) {
	key, err := in.key()
	if err != nil {
		return nil, err
	}
	count := in.size()
	bytes := 0
	from := client.EventsOptions{Start: in.Start, Count: count + 1, Stored: in.Stored}
	events, more, err := collect(s.o.Reader.Events(ctx, key, from), count, func(ev json.RawMessage) bool {
		first := bytes == 0
		bytes += len(ev) + 1
		return first || bytes < maxAnswer-1024
	})
	if err != nil {
		return nil, err
	}
	out := eventsOut{Key: key.String(), Events: events}
	if more {
		var last struct {
			StreamID string `json:"stream_id"`
		}
		if err := json.Unmarshal(events[len(events)-1], &last); err != nil || last.StreamID == "" {
			return nil, sentencef("The server sent an event without a stream_id, so that the next page cannot be asked for.")
		}
		out.Next = &last.StreamID
	}
	return out, nil
}

type feedIn struct {
	Type   string `json:"type"`
	Event  string `json:"event"`
	Actor  string `json:"actor"`
	Target string `json:"target"`
	// Types and Tags are lists.
	Types []string `json:"types"`
	Tags  []string `json:"tags"`
	// Correlation is a UUID.
	Correlation string  `json:"correlation"`
	After       string  `json:"after"`
	Count       *uint64 `json:"count"`
	Stored      bool    `json:"stored"`
}

func (s *Server) readFeed(ctx context.Context, in feedIn) (any, error) {
	count := page{Count: in.Count}.size()
	f := client.FeedFilter{
		Type: in.Type, Event: in.Event, Types: in.Types, Tags: in.Tags, Correlation: in.Correlation, Stored: in.Stored,
	}
	for name, given := range map[string]string{"actor": in.Actor, "target": in.Target} {
		if given == "" {
			continue
		}
		key, ok := j17.ParseKey(given)
		if !ok {
			return nil, sentencef("%q must have the form type:id, such as \"user:global\".", name)
		}
		agent := j17.Agent(key)
		if name == "actor" {
			f.Actor = &agent
		} else {
			f.Target = &agent
		}
	}
	out, err := s.o.Reader.Feed(ctx, f, in.After, count)
	if err != nil {
		return nil, err
	}

	// No more than fits into an answer.
	size := 0
	for i, ev := range out.Events {
		if size += len(ev) + 1; i == 0 || size < maxAnswer-1024 {
			continue
		}
		var last struct {
			StreamID string `json:"stream_id"`
		}
		if err := json.Unmarshal(out.Events[i-1], &last); err != nil || last.StreamID == "" {
			return nil, sentencef("The server sent an event without a stream_id, so that the next page cannot be asked for.")
		}
		out.Events, out.Next, out.Position = out.Events[:i], &last.StreamID, last.StreamID
		break
	}
	return out, nil
}

type idsIn struct {
	Type string `json:"type"`
	page
}

type idsOut struct {
	Type string   `json:"type"`
	IDs  []string `json:"ids"`
	Next *string  `json:"next"`
}

func (s *Server) listIDs(ctx context.Context, in idsIn) (any, error) {
	if in.Type == "" {
		return nil, sentencef("The argument \"type\" must not be empty.")
	}
	count := in.size()
	ids, more, err := collect(s.o.Reader.IDs(ctx, in.Type, in.Start, count+1), count, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	out := idsOut{Type: in.Type, IDs: ids}
	if more {
		out.Next = &ids[len(ids)-1]
	}
	return out, nil
}

// agentIn is an actor or a target in the arguments of a call.
type agentIn struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

type postIn struct {
	aggregate
	Event          string          `json:"event"`
	Data           json.RawMessage `json:"data"`
	Actor          agentIn         `json:"actor"`
	Target         *agentIn        `json:"target"`
	PreviousLength *uint64         `json:"previous_length"`
	IdempotencyKey string          `json:"idempotency_key"`
	DryRun         bool            `json:"dry_run"`
}

type postOut struct {
	Key string `json:"key"`
	names
	StreamID string `json:"stream_id"`
	// Length is the number of events of the aggregate, this one included.
	Length uint64 `json:"length"`
	// ImpliedCount is how many events this one has implied.
	ImpliedCount int  `json:"implied_count"`
	Replayed     bool `json:"replayed"`
}

func (s *Server) postEvent(ctx context.Context, in postIn) (any, error) {
	key, err := in.key()
	if err != nil {
		return nil, err
	}
	if in.Event == "" {
		return nil, sentencef("The argument \"event\" must not be empty.")
	}
	o := client.WriteOptions{
		Actor: j17.Agent(in.Actor), PreviousLength: in.PreviousLength, IdempotencyKey: in.IdempotencyKey,
	}
	if in.Target != nil {
		target := j17.Agent(*in.Target)
		o.Target = &target
	}
	ev := client.NewEvent{Type: in.Event, Data: in.Data}
	if in.DryRun {
		return s.o.Writer.TryEvent(ctx, key, ev, o)
	}
	receipt, err := s.o.Writer.PostEvent(ctx, key, ev, o)
	if err != nil {
		return nil, err
	}
	called := names{cmp.Or(receipt.ID, key.ID), receipt.Handle, receipt.PublicID}
	out := postOut{
		Key: called.keyOf(key), names: called, Length: receipt.Length, ImpliedCount: receipt.ImpliedCount,
		Replayed: receipt.Replayed,
	}
	if len(receipt.StreamIDs) > 0 {
		out.StreamID = receipt.StreamIDs[0]
	}
	return out, nil
}
