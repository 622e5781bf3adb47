package command

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"j17"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// FileEvent is the parsed form of an event of a file. It has not been compared with a spec.
type FileEvent struct {
	AggregateType, ID, Type string
	Data, Metadata          value.Value
	// Stored reports that the event has a stream id, StreamID: a server has written it before, and its metadata may
	// have any members.
	Stored   bool
	StreamID j17.StreamID
	// Names are the names of the aggregate where the event comes from, "" if the file has none.
	j17.Names
	// Chain is the hash of the aggregate's chain up to the event, and Leaf the leaf hash of the bytes that an erased
	// event had at first, as in an export; nil if the file has none.
	Chain, Leaf []byte
	// Trusted lets the event name one of the platform's own actors.
	Trusted bool
	// Past reports that the event happened before and is stored as it is, in the generation that it says. One that says
	// none is of the generation Unsaid, which is 0 where it has to be said, and Newest for the newest one. Events of
	// the first generation do not say it if they were Stored.
	Past   bool
	Unsaid int
}

// ReadFileEvent parses an event of a file: an object with the members "type", "data", "metadata" and either "key"
// ("order:global") or "aggregate_type" and "id", and maybe "stream_id", "handle", "public_id", "chain" and "leaf". It
// returns all faults of these, each a *j17.Error. FileEvent.Command does the same for the metadata.
func ReadFileEvent(v value.Value) (FileEvent, []error) {
	if v.Kind() != value.Object {
		return FileEvent{}, []error{j17.Errorf(j17.CodeInvalidField, "An event must be a JSON object")}
	}

	// Members must be known, and be text.
	var faults []error
	if err := OnlyMembers(
		v, "", "stream_id", "key", "aggregate_type", "id", "type", "data", "metadata", "handle", "public_id", "chain",
		"leaf",
	); err != nil {
		faults = append(faults, err)
	}
	text := func(name string) string {
		m := v.Get(name)
		switch {
		case m.IsMissing():
			faults = append(faults, j17.Errorf(j17.CodeMissingField, "Missing '%s'", name).At(name))
		case m.Kind() != value.String:
			faults = append(faults, j17.Errorf(j17.CodeInvalidField, "'%s' must be a string", name).At(name))
		}
		return m.Str()
	}

	// Members that only a server gives out.
	e := FileEvent{Data: v.Get("data"), Metadata: v.Get("metadata"), Stored: !v.Get("stream_id").IsMissing()}
	if e.Stored {
		if s := text("stream_id"); s != "" {
			var err error
			if e.StreamID, err = j17.ParseStreamID(s); err != nil {
				faults = append(faults, j17.Errorf(j17.CodeInvalidField, "%v", err).At("stream_id"))
			}
		}
	}
	if !v.Get("handle").IsMissing() {
		e.Handle = text("handle")
	}
	if !v.Get("public_id").IsMissing() {
		e.PublicID = text("public_id")
	}

	for _, sum := range []struct {
		name string
		into *[]byte
	}{{"chain", &e.Chain}, {"leaf", &e.Leaf}} {
		m := v.Get(sum.name)
		if m.IsMissing() {
			continue
		}
		var err error
		if *sum.into, err = hex.DecodeString(m.Str()); err != nil || len(*sum.into) != sha256.Size {
			faults = append(faults, j17.Errorf(j17.CodeInvalidField, "'%s' must be a hash: 64 hexadecimal digits, as an export has it", sum.name).At(sum.name))
		}
	}

	// The aggregate.
	switch split := !v.Get("aggregate_type").IsMissing() || !v.Get("id").IsMissing(); {
	case split && !v.Get("key").IsMissing():
		faults = append(faults, j17.Errorf(j17.CodeInvalidField, "An event has either a 'key' or an 'aggregate_type' and an 'id'").At("key"))
	case split:
		e.AggregateType, e.ID = text("aggregate_type"), text("id")
	case v.Get("key").IsMissing():
		faults = append(faults, j17.Errorf(j17.CodeMissingField, `Missing 'key': every event names its aggregate, as in "order:global"`).At("key"))
	default:
		before := len(faults)
		key, ok := j17.ParseKey(text("key"))
		if !ok && len(faults) == before {
			faults = append(faults, j17.Errorf(j17.CodeInvalidField, "'key' must be an aggregate type, a colon and an id").At("key"))
		}
		e.AggregateType, e.ID = key.Type, key.ID
	}
	e.Type = text("type")
	return e, faults
}

// Command returns the command that would write the event, and the time of the event in Unix seconds, nil if the file
// has none. The error is about members that only a server writes; faults in what a caller writes are kept in the
// command.
func (e *FileEvent) Command() (Command, *int64, error) {
	c := Command{
		Writes: One(e.AggregateType, e.ID, e.Type, e.Data, 0), Trusted: e.Stored || e.Trusted,
	}
	if e.Metadata.Kind() != value.Object {
		c.ReadMetadata(e.Metadata)
		return c, nil, nil
	}

	// Separate members that only a server writes from those that a write may have.
	var said []value.Member
	var timestamp *int64
	var err error
	for _, m := range e.Metadata.Members() {
		switch m.Key {
		case "timestamp":
			n, ok := m.Value.Int64()
			if !ok || n < 0 {
				err = j17.Errorf(j17.CodeInvalidField, "'timestamp' must be an integer of 0 or more: the time of the event in Unix seconds").At("metadata.timestamp")
				continue
			}
			timestamp = &n
		case "correlation_id":
			if m.Value.Kind() != value.String {
				err = cmp.Or(err, error(
					j17.Errorf(j17.CodeInvalidField, "'correlation_id' must be a string").At("metadata.correlation_id"),
				))
			}
			if c.CorrelationID = m.Value.Str(); e.Stored || c.CorrelationID == "" {
				c.CorrelationID, c.Members = "", append(c.Members, m)
			}
		case "upcast_from":
			err = j17.Errorf(j17.CodeInvalidField, "'upcast_from' says that the event is shown in another generation than the one that it is stored in. Import an export of events as they are stored").At("metadata.upcast_from")
		case "actor", "target", "previous_length", "skip_occ", "generation":
			said = append(said, m)
		default:
			if e.Stored {
				c.Members = append(c.Members, m)
			} else {
				said = append(said, m)
			}
		}
	}
	c.ReadMetadata(value.ObjectValue(said...))
	return c, timestamp, err
}

// WithActor adds an actor to metadata that have none.
func (e *FileEvent) WithActor(actor j17.Agent) {
	if !e.Metadata.IsMissing() && e.Metadata.Kind() != value.Object || !e.Metadata.Get("actor").IsMissing() {
		return
	}
	added := value.ObjectValue(value.Member{Key: "type", Value: value.StringValue(actor.Type)}, value.Member{
		Key: "id", Value: value.StringValue(actor.ID),
	})
	members := []value.Member{{Key: "actor", Value: added}}
	e.Metadata = value.ObjectValue(append(members, e.Metadata.Members()...)...)
}

// FileWrite has the metadata of an event of a file that concern its write.
type FileWrite struct {
	Actor j17.Agent
	// Target is the zero Agent if there is none.
	Target j17.Agent
	// PreviousLength is nil if the length of the aggregate does not matter.
	PreviousLength *uint64
	SkipOCC        bool
	// Left names the members of the metadata that only a server writes, such as the timestamp.
	Left []string
}

// Write reads the data and the metadata of an event that is to be written again. It accepts what a dry run does, apart
// from what needs a spec: that types are declared and identifiers valid.
func (e *FileEvent) Write() (FileWrite, error) {
	c, timestamp, err := e.Command()
	if err = cmp.Or(c.Writes[0].Events[0].Fault(), err, c.Fault()); err != nil {
		return FileWrite{}, err
	}
	w := FileWrite{Actor: c.Actor, PreviousLength: c.Writes[0].Length, SkipOCC: c.SkipOCC}
	if c.Target != nil {
		w.Target = *c.Target
	}
	if timestamp != nil {
		w.Left = append(w.Left, "timestamp")
	}
	if c.CorrelationID != "" {
		w.Left = append(w.Left, "correlation_id")
	}
	for _, m := range c.Members {
		w.Left = append(w.Left, m.Key)
	}
	return w, nil
}

// PathIn returns a pointer into an event in the form used in errors: "data.items[0].sku".
func PathIn(event value.Value, p diag.Pointer) string {
	path := ""
	for _, step := range p.Steps() {
		if i, err := strconv.Atoi(step); err == nil && event.Kind() == value.Array {
			path, event = path+"["+step+"]", event.Index(i)
			continue
		}
		path, event = j17.JoinPath(path, step), event.Get(step)
	}
	return path
}
