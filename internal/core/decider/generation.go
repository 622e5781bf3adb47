package decider

import (
	"cmp"
	"errors"
	"strconv"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/command"
	"j17/internal/core/upcast"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// unknownGeneration are the details of an error with CodeUnknownGeneration.
type unknownGeneration struct {
	EventType string `json:"event_type"`
	Newest    int    `json:"newest"`
}

// retired are the details of an error with CodeEventTypeRetired.
type retired struct {
	EventType  string `json:"event_type"`
	Generation int    `json:"generation,omitempty"`
	As         string `json:"as,omitempty"`
}

// writtenIn returns the generation in which a caller sends the data of an event, 0 for the newest: the one that it
// says, or the one that the spec assumes. The error says that there is no such generation, or that nobody writes it any
// more.
func writtenIn(et *spec.EventType, w *command.Event) (int, error) {
	// What the caller says, or the server has kept.
	number, said := et.Assumed, !w.Generation.IsMissing()
	switch {
	case said:
		n, ok := w.Generation.Int64()
		switch {
		case w.Generation.Kind() != value.Number || !ok:
			return 0, j17.Errorf(j17.CodeInvalidField, "'generation' must be the number of a generation of the event type '%s': the newest one is %d", et.Name, et.Generation).At(w.GenerationPath)
		case !et.Knows(int(n)):
			return 0, noGeneration(et, w.GenerationPath)
		}
		number = int(n)
	case w.Unsaid == command.Newest:
		number = et.Generation
	case w.Unsaid > 0:
		if number = w.Unsaid; !et.Knows(number) {
			return 0, noGeneration(et, "")
		}
	}
	kept := !said && w.Unsaid != 0

	// What is written no longer.
	gone := retired{EventType: et.Name}
	g := et.Of(number)
	switch {
	case et.Retired && et.As == nil:
	case et.As != nil && !said && !kept && !et.Assumes:
		gone.As = et.Newest().Name
	case g != nil && g.Closed && !kept:
		gone.Generation = number
	case number == et.Generation && et.As == nil:
		return 0, nil
	default:
		return number, nil
	}
	return 0, gone.refusal()
}

// refusal returns the error that refuses to write what is retired.
func (r retired) refusal() error {
	text := "Events of the type '" + r.EventType + "' are not written any more"
	switch {
	case r.As != "":
		text += ": write '" + r.As + "' instead, or say the generation of this type that the data are in"
	case r.Generation > 0:
		text = "Generation " + strconv.Itoa(r.Generation) + " of the event type '" + r.EventType +
			"' is closed: write a later one"
	}
	e := j17.Errorf(j17.CodeEventTypeRetired, "%s.", text)
	e.Details = r
	return e
}

// filedIn is writtenIn for an event of a file. One that happened before may be of a type or generation that nobody
// writes any more.
func filedIn(et *spec.EventType, c *command.FileEvent, w *command.Event) (int, error) {
	if !c.Past && !c.Stored {
		return writtenIn(et, w)
	}
	said, unsaid := w.Generation, c.Unsaid
	if !c.Past {
		unsaid = 1
	}
	switch {
	case !said.IsMissing():
	case unsaid > 0:
		said = value.Int(int64(unsaid))
	case unsaid == 0 && len(et.Older) > 0:
		return 0, j17.Errorf(j17.CodeMissingField, "The event type '%s' has several generations: say which one the data are in, from %d to %d, in 'generation' of the metadata or, for all events of the file, in the parameter 'generation'", et.Name, et.Older[0].Number, et.Generation).At("metadata.generation")
	default:
		said = value.Int(int64(et.Generation))
	}
	n, ok := said.Int64()
	if said.Kind() != value.Number || !ok || !et.Knows(int(n)) {
		return 0, noGeneration(et, "metadata.generation")
	}
	return int(n), nil
}

func noGeneration(et *spec.EventType, path string) error {
	e := j17.Errorf(j17.CodeUnknownGeneration, "The event type '%s' has no such generation; the newest one is %d. Say the number of the generation that the data are in.", et.Name, et.Generation).At(path)
	e.Details = unknownGeneration{EventType: et.Name, Newest: et.Generation}
	return e
}

// history is how an event was sent that is read otherwise. Only one that happened before has data and metadata, with
// which it is stored.
type history struct {
	typ            string
	data, metadata []byte
	generation     int
}

// Kept returns the event as it is stored.
func (o *Event) Kept() (typ string, data, metadata []byte) {
	if o.past && o.was != nil {
		return o.was.typ, o.was.data, o.was.metadata
	}
	return o.Type, o.JSON, o.Metadata
}

// Sent returns the type and the generation in which a client has sent the event, if that is an older one. Events that
// happened before were not sent to be written now, and the server's own are none of a client.
func (o *Event) Sent() (typ string, generation int, older bool) {
	if o.past || o.kept || o.was == nil {
		return "", 0, false
	}
	return o.was.typ, o.was.generation, true
}

// renew brings the data of an event that is in an older generation to the newest one, and keeps how it was sent. Data
// that are sent now are checked with the schema of their generation first. metadata are those of the event without the
// time, which is at.
func (o *Event) renew(b *work.Budget, metadata []byte, at int64) error {
	if o.generation == 0 || o.generation == o.Spec.Generation && o.Spec.As == nil {
		o.generation = 0
		return nil
	}
	if err := (&command.Event{Data: o.Data}).Fault(); err != nil {
		return err
	}
	from := cmp.Or(o.Spec.Of(o.generation), &spec.Generation{Pointer: o.Spec.Pointer, Schema: o.Spec.Schema})
	switch failures, err := from.Schema.Validate(o.Data, b); {
	case o.past:
	case len(failures) > 0:
		return schemaError(failures)
	case err != nil:
		return o.unchecked(err, from.Pointer.Key("schema"))
	}

	ev := tick.Event{
		Key: o.Key.String(), Type: o.Type, Timestamp: at, Metadata: tick.Raw(j17.AppendTimestamp(metadata, at)),
	}
	newest, data, err := upcast.Newest(o.Spec, o.generation, o.Data, &ev, b)
	if err != nil {
		if e, ok := errors.AsType[*j17.Error](err); ok && upcast.Failure(err) != nil {
			return e.At("data")
		}
		return err
	}
	o.was = &history{typ: o.Type, generation: o.generation}
	if o.past {
		o.was.data = o.Data.OrNull().AppendJSON(nil)
	}
	o.Type, o.Spec, o.Data, o.generation = newest.Name, newest, data, 0
	return nil
}

// inGeneration returns metadata that say which generation the event is in, which the first one does not.
func (o *Event) inGeneration(metadata []byte) []byte {
	if o.past && o.was != nil {
		o.was.metadata = withGeneration(metadata, o.was.generation)
	}
	if o.Spec == nil {
		return metadata
	}
	return withGeneration(metadata, o.Spec.Generation)
}

func withGeneration(metadata []byte, number int) []byte {
	if number < 2 {
		return metadata
	}
	const longest = len(`,"generation":100`)
	m := append(make([]byte, 0, len(metadata)+longest), metadata[:len(metadata)-1]...)
	return append(j17.AppendGeneration(m, number), '}')
}
