// Package upcast brings stored events to the newest generation of their types, by the steps that a spec declares. It is
// the one place that does: folds, lists, streams, deliveries and all else that shows events or computes with them take
// what it returns. What is stored, hashed, exported and erased is never changed by it.
//
// The decisions behind it are in docs/internals/core.md.
package upcast

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// Cause says why an event cannot be brought to the newest generation.
type Cause string

// The causes.
const (
	// DoesNotFit is an operation that the data do not fit, Schema that the result does not fit the newest schema.
	DoesNotFit Cause = "does_not_fit"
	Schema     Cause = "schema"
	// WorkLimit is more work than an event may cause, UnknownGeneration a number that the spec does not have.
	WorkLimit         Cause = "work_limit"
	UnknownGeneration Cause = "unknown_generation"
)

// Failed are the details of an error with CodeUpcastFailed.
type Failed struct {
	StreamID   string `json:"stream_id,omitempty"`
	Key        string `json:"key"`
	EventType  string `json:"event_type"`
	Generation int    `json:"generation"`
	Cause      Cause  `json:"cause"`
	// Pointer leads into the spec: to the operation, or to the newest schema.
	Pointer diag.Pointer `json:"pointer"`
	// Path leads into the data that the steps have made, where these do not fit the schema.
	Path string `json:"path,omitempty"`
	// Reason says what is wrong, without values of the event.
	Reason string `json:"-"`
}

// Failure returns the details of an error with CodeUpcastFailed, nil for every other error.
func Failure(err error) *Failed {
	if e, ok := errors.AsType[*j17.Error](err); ok && e.Code == j17.CodeUpcastFailed {
		f, _ := e.Details.(*Failed)
		return f
	}
	return nil
}

// Generation returns the number of the generation in which an event is stored.
func Generation(ev *j17.Event) int {
	number, _, _ := ev.AsStored().Generation()
	return number
}

// Of returns the event as its aggregate type reads it: in the newest generation of its event type, or of the one that
// it is retired as. It returns the event itself where that is how it is stored. typ may be nil, for a type that the
// spec does not have. The work is charged to b. The error is CodeUpcastFailed with *Failed as its details, or that of
// the budget's context.
func Of(typ *spec.AggregateType, ev *j17.Event, b *work.Budget) (*j17.Event, error) {
	stored := ev.AsStored()
	r, err := read(typ, stored, "", false, b)
	if err != nil {
		return nil, err
	}
	return r.shown(), nil
}

// Read is Of for handlers, guards and all else that computes with an event: its metadata do not say how it was stored.
// key is the text of the event's key.
func Read(typ *spec.AggregateType, ev *j17.Event, key string, b *work.Budget) (tick.Event, error) {
	stored := ev.AsStored()
	r, err := read(typ, stored, key, false, b)
	if err != nil {
		return tick.Event{}, err
	}
	return r.seen(key), nil
}

// Both returns what Of and Read do, for callers that show an event and compute with it.
func Both(
	typ *spec.AggregateType, ev *j17.Event, key string, b *work.Budget,
) (shown *j17.Event, seen tick.Event, err error) {
	r, err := read(typ, ev.AsStored(), key, false, b)
	if err != nil {
		return nil, tick.Event{}, err
	}
	return r.shown(), r.seen(key), nil
}

// reading is an event on its way to the newest generation.
type reading struct {
	stored *j17.Event
	// unchanged reports that the event is read as it is stored.
	unchanged bool
	// generation is the one that the event is stored in. The member that says so is metadata[at:end].
	generation, at, end int

	newest *spec.EventType
	data   value.Value
}

// event returns the event as it is stored.
func (r *reading) event(key string) tick.Event {
	return tick.Event{
		Key: key, Type: r.stored.Type, Timestamp: r.stored.Timestamp, Data: tick.Raw(r.stored.Data),
		Metadata: tick.Raw(r.stored.Metadata),
	}
}

// shown returns the event as others are shown it.
func (r *reading) shown() *j17.Event {
	if r.unchanged {
		return r.stored
	}
	return r.shownAs(r.data.OrNull().AppendJSON(nil))
}

// shownAs is shown, with data in the newest generation.
func (r *reading) shownAs(data []byte) *j17.Event {
	shown := *r.stored
	shown.Stored, shown.Type = r.stored, r.newest.Name
	var buf [1 << 9]byte
	raw, at := j17.AppendEvent(
		make([]byte, 0, len(shown.Raw)+64+max(0, len(data)-len(shown.Data))), shown.StreamID, shown.Key, shown.Type,
		data, r.appendMetadata(buf[:0], true), shown.Timestamp,
	)
	shown.Raw, shown.Data, shown.Metadata = raw, at.DataOf(raw), at.MetadataOf(raw)
	return &shown
}

// seen returns the event as handlers see it.
func (r *reading) seen(key string) tick.Event {
	seen := r.event(key)
	if r.unchanged {
		return seen
	}
	seen.Type, seen.Data = r.newest.Name, tick.Parsed(r.data)
	seen.Metadata = tick.Raw(j17.AppendTimestamp(r.appendMetadata(nil, false), r.stored.Timestamp))
	return seen
}

// read takes an event through all steps, and compares the result with the newest schema, unless it was tried.
func read(typ *spec.AggregateType, stored *j17.Event, key string, tried bool, b *work.Budget) (reading, error) {
	r := reading{stored: stored}
	r.generation, r.at, r.end = stored.Generation()
	if r.unchanged = asStored(typ, stored.Type, r.generation); r.unchanged {
		return r, nil
	}
	data, err := value.ParseStored(string(stored.Data))
	if err != nil {
		return r, err
	}
	if !b.SpendBytes(len(stored.Data)) {
		return r, b.Err()
	}
	if key == "" {
		key = stored.Key.String()
	}
	ev := r.event(key)
	r.newest, r.data, err = newest(typ.Events[stored.Type], r.generation, data, &ev, tried, b)
	if failed := Failure(err); failed != nil {
		failed.StreamID = stored.StreamID.String()
	}
	return r, err
}

// asStored reports whether events of a type and a generation are read as they are stored.
func asStored(typ *spec.AggregateType, name string, generation int) bool {
	if typ == nil {
		return true
	}
	et := typ.Events[name]
	return et == nil || et.System || et.As == nil && generation == et.Generation
}

// Newest brings data from a generation of an event type to the newest one, which is that of another type where the type
// is retired as that, and returns that type. ev is the event that has the data: its other members are seen by the
// steps. The result has been compared with the schema. The errors are those of Of, without a position.
func Newest(
	et *spec.EventType, generation int, data value.Value, ev *tick.Event, b *work.Budget,
) (*spec.EventType, value.Value, error) {
	return newest(et, generation, data, ev, false, b)
}

// newest is Newest, without the comparison for data that were tried.
func newest(
	et *spec.EventType, generation int, data value.Value, ev *tick.Event, tried bool, b *work.Budget,
) (*spec.EventType, value.Value, error) {
	from, number := et, generation
	fail := func(cause Cause, at diag.Pointer, path, reason string) (*spec.EventType, value.Value, error) {
		return nil, data, failure(&Failed{
			Key: ev.Key, EventType: from.Name, Generation: generation, Cause: cause, Pointer: at, Path: path,
			Reason: reason,
		})
	}
	for {
		// The generations of this type.
		for ; number < et.Generation; number++ {
			g := et.Of(number)
			if g == nil {
				return fail(UnknownGeneration, et.Pointer, "", fmt.Sprintf("there is no generation %d of %s", number,
					et.Name))
			}
			next, misfit, err := step(g.Upcast, data, ev, b)
			switch {
			case misfit != nil:
				return fail(DoesNotFit, misfit.Pointer, "", misfit.Message)
			case j17.CodeOf(err) == j17.CodeWorkLimit:
				return fail(WorkLimit, g.Pointer.Key("upcast"), "", "its steps take more work than an event may cause")
			case err != nil:
				return nil, data, err
			}
			data = next
		}
		if number > et.Generation {
			return fail(UnknownGeneration, et.Pointer, "", fmt.Sprintf("the newest generation of %s is %d", et.Name,
				et.Generation))
		}
		if et.As == nil {
			break
		}

		// The type that this one is retired as.
		next, misfit, err := step(et.As.Upcast, data, ev, b)
		switch {
		case misfit != nil:
			return fail(DoesNotFit, misfit.Pointer, "", misfit.Message)
		case j17.CodeOf(err) == j17.CodeWorkLimit:
			return fail(WorkLimit, et.As.Pointer.Key("upcast"), "", "its steps take more work than an event may cause")
		case err != nil:
			return nil, data, err
		}
		data, number, et = next, et.As.Generation, et.As.Type
	}

	// The result, against the newest schema.
	if et.Schema == nil || tried {
		return et, data, nil
	}
	failures, err := et.Schema.Validate(data, b)
	at := et.Pointer.Key("schema")
	switch {
	case len(failures) > 0:
		f := failures[0]
		return fail(Schema, at, j17.JoinPath("data", f.Path),
			"its data do not meet "+strconv.Quote(f.Constraint)+" of the schema")
	case j17.CodeOf(err) == j17.CodeWorkLimit:
		return fail(WorkLimit, at, "", "the check of its data takes more work than an event may cause")
	}
	return et, data, err
}

// step applies one step, nil for none, to data.
func step(u *tick.Upcast, data value.Value, ev *tick.Event, b *work.Budget) (value.Value, *tick.Misfit, error) {
	if u == nil || u.Empty() {
		return data, nil, nil
	}
	seen := *ev
	seen.Data = tick.Parsed(data)
	next, err := u.Apply(value.NewEditor(), data, &seen, b)
	if misfit, ok := errors.AsType[*tick.Misfit](err); ok {
		return data, misfit, nil
	}
	return next, nil, err
}

func failure(f *Failed) error {
	e := j17.Errorf(j17.CodeUpcastFailed, "An event of %s in generation %d of %s cannot be read in the newest generation: %s", j17.Printable(f.Key), f.Generation, f.EventType, strings.TrimSuffix(f.Reason, "."))
	e.Details = f
	return e
}

// appendMetadata appends the metadata in the newest generation to an empty slice, without the timestamp. With from they
// say how the event is stored.
func (r *reading) appendMetadata(empty []byte, from bool) []byte {
	m := append(empty, r.stored.Metadata[:r.at]...)
	if len(m) > 1 {
		m = m[:len(m)-1] // the comma
	}
	m = j17.AppendGeneration(m, r.newest.Generation)
	if !from {
		return append(m, '}')
	}
	if len(m) > 1 {
		m = append(m, ',')
	}
	m = strconv.AppendInt(append(m, `"upcast_from":{"generation":`...), int64(r.generation), 10)
	if r.newest.Name != r.stored.Type {
		m = value.AppendString(append(m, `,"type":`...), r.stored.Type)
	}
	return append(m, "}}"...)
}
