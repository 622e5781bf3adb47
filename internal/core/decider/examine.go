package decider

import (
	"context"
	"slices"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/command"
)

// Examined is an event of a file that passed every check but those on the state of streams.
type Examined struct {
	Admitted

	Key j17.Key
	// Expected is the length that the file expects the aggregate to have, nil for none.
	Expected *uint64
	// Timestamp is when the event happened, in Unix seconds; nil if it happens when it is written.
	Timestamp *int64
}

// Examine makes the checks of Admit and returns all faults, not only the first. Each event has the budget of a command.
func (d *Decider) Examine(ctx context.Context, c *command.FileEvent) (*Examined, []error) {
	typ, err := d.AggregateType(c.AggregateType)
	if err != nil {
		return nil, []error{j17.At(err, "key")}
	}

	// The aggregate, and the members that only a server writes.
	var faults []error
	a := &Examined{}
	if a.Key, err = d.Key(c.AggregateType, c.ID); err != nil {
		faults = append(faults, err)
	}
	written, timestamp, err := c.Command()
	if err != nil {
		faults = append(faults, err)
	}
	a.Expected, a.Timestamp = written.Writes[0].Length, timestamp
	a.oneWrite[0] = AdmittedWrite{Key: a.Key, To: 1, Expected: a.Expected}
	a.Writes = a.oneWrite[:]

	// The platform's own events have no schema, and nobody can post them.
	if c.Stored && ident.IsReservedEventType(c.Type) {
		if c.Metadata.Kind() != value.Object {
			faults = append(faults, j17.Errorf(j17.CodeInvalidField, "'metadata' must be a JSON object").At("metadata"))
		}
		a.metadata = withoutTimestamp(c.Metadata)
		a.tags = j17.MetadataTags(a.metadata)
		a.oneEvent[0] = Event{Type: c.Type, Data: c.Data, Cause: -1}
		a.Events = a.oneEvent[:]
		a.write()
		return a, faults
	}

	// All others are checked like those of a command.
	et, err := EventType(typ, c.Type)
	if err != nil {
		return nil, append(faults, j17.At(err, "type"))
	}
	o := &a.oneEvent[0]
	*o = Event{Type: et.Name, Spec: et, Key: a.Key, Data: c.Data, past: c.Past || c.Stored, Cause: -1}
	a.Events = a.oneEvent[:]
	if err := a.readMetadata(d.Compiled, &written); err != nil {
		faults = append(faults, err)
	}
	var at int64
	if a.Timestamp != nil {
		at = *a.Timestamp
	}
	b := work.New(ctx, work.Command)
	if o.generation, err = filedIn(et, c, &written.Writes[0].Events[0]); err != nil {
		return a, append(faults, err)
	}
	if err := o.renew(b, a.metadata, at); err != nil {
		faults = append(faults, err)
	} else if err := o.check(b); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return a, faults
	}
	a.write()
	if err := o.tag(a.tags, b); err != nil {
		faults = append(faults, err)
	}
	return a, faults
}

func withoutTimestamp(metadata value.Value) []byte {
	members := slices.DeleteFunc(
		slices.Clone(metadata.Members()), func(m value.Member) bool { return m.Key == "timestamp" },
	)
	return value.ObjectValue(members...).AppendJSON(nil)
}
