package trial

import (
	"context"
	"slices"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
)

// Renewed is an event of a file as it is, and as the spec reads it.
type Renewed struct {
	// Event is the number of the event in the file, from 1, Line the line where it starts.
	Event, Line int
	// Key and Type are those of the file, Generation the number of the generation that the event says or has by
	// default.
	Key, Type  string
	Generation int
	Before     value.Value
	// As and After are the newest type and the data in its newest generation. After is missing where Findings say why.
	As       string
	After    value.Value
	Findings []EventFinding
}

// Renew brings the events of a text to the newest generation of their types, as an import would: each says its
// generation, and events of types and generations that nobody writes any more are read like the others. An event with a
// stream id and no generation is in the first one. The findings, if there are any, are why the text cannot be split.
//
// The only error is that of a context that ends before the last event.
func Renew(ctx context.Context, c *spec.Compiled, src string) ([]Renewed, []EventFinding, error) {
	events, broken := command.SplitFile(src)
	if len(broken) > 0 {
		return nil, []EventFinding{{Diagnostic: broken[0], Code: j17.CodeInvalidJSON}}, nil
	}
	r := dryRun{Decider: decider.New(c, nil), src: src}
	all := make([]Renewed, 0, len(events))
	for _, text := range events {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		all = append(all, r.renew(ctx, text))
	}
	return all, nil, nil
}

// renew brings one event to the newest generation.
func (r *dryRun) renew(ctx context.Context, text command.FileText) Renewed {
	out := Renewed{Event: text.Number, Line: text.Line}
	v, err := value.ParseString(text.Text)
	if err != nil {
		r.syntax(text, err)
		out.Findings = r.take()
		return out
	}
	file, faults := command.ReadFileEvent(v)
	out.Key, out.Type, out.As = j17.Key{Type: file.AggregateType, ID: file.ID}.String(), file.Type, file.Type
	out.Before = v.Get("data")

	// The generation that it is in.
	et := r.EventType(file.AggregateType, file.Type)
	out.Generation = 1
	if et != nil && !file.Stored {
		out.Generation = et.Generation
	}
	if n, ok := file.Metadata.Get("generation").Int64(); ok {
		out.Generation = int(n)
	}

	// What it is read as.
	if len(faults) == 0 {
		if file.Past = true; file.Stored {
			file.Unsaid = 1
		}
		var e *decider.Examined
		if e, faults = r.Examine(ctx, &file); len(faults) == 0 {
			out.As, out.After = e.Events[0].Type, e.Events[0].Data
		}
	}
	if len(faults) > 0 {
		r.refuse(text, v, faults)
		out.Findings = r.take()
	}
	return out
}

// take returns the findings so far, which are those of one event, and forgets them.
func (r *dryRun) take() []EventFinding {
	found := slices.Clone(r.Findings)
	r.Findings = nil
	return found
}
