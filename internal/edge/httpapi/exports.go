package httpapi

import (
	"net/http"

	"j17/internal/base/value"
	"j17/internal/custody/loading"
	"j17/internal/follow/listener"
)

// exportEvents is GET export of events: one a line or as one document.
func (c *call) exportEvents(w http.ResponseWriter, aggregateType string) error {
	format := c.query["format"]
	out := &lines{c: c, w: w, of: "events", whole: format == "json"}
	x, err := c.api.Loader.Export(c.request.Context(), c.tenant, aggregateType, c.streamID("after"), c.exportFormat(format))
	if err != nil {
		return err
	}
	if c.request.Method == http.MethodHead {
		out.start()
		return nil
	}
	c.allowTime(w, transferTime)

	// The events, a piece at a time.
	if err := c.take(c.api.room.replies, x.Memory(), "an export"); err != nil {
		return err
	}
	for piece, err := range x.Pieces(c.request.Context()) {
		if err != nil {
			return out.close(err)
		}
		if err := c.passInTurn(out, piece.Bytes, len(piece.Bytes)/bytesExported); err != nil {
			return out.close(err)
		}
	}
	out.position = x.UpTo
	return out.close(c.endExport(out, x))
}

// bytesExported is how many bytes of events are read, hashed and written in the time of a unit of work.
const bytesExported = 2

// exportFormat returns what writes the events of an export in a format, each with what separates it from others.
func (c *call) exportFormat(format string) func(dst []byte, e *loading.Exported) []byte {
	switch format {
	case "cloudevents":
		i, _ := c.api.Registry.Instances.ByID(c.instance)
		source := listener.Source(i.Name, c.env)
		return func(dst []byte, e *loading.Exported) []byte {
			return append(append(dst, listener.CloudEvent(source, e.Event)...), '\n')
		}
	case "json":
		return func(dst []byte, e *loading.Exported) []byte { return e.AppendLine(append(dst, separator...)) }
	default:
		return func(dst []byte, e *loading.Exported) []byte { return append(e.AppendLine(dst), '\n') }
	}
}

// endExport adds the signed checkpoint that an export of all events ends with, and one that completes it.
func (c *call) endExport(out *lines, x *loading.Export) error {
	if !x.Whole() && !c.isSet("checkpoint") || c.query["format"] == "cloudevents" {
		return nil
	}
	note, vkey, err := x.Checkpoint(c.request.Context())
	if err != nil || note == "" {
		return err
	}
	b := value.AppendString([]byte(`"checkpoint":`), note)
	b = value.AppendString(append(b, `,"vkey":`...), vkey)
	if out.whole {
		out.members = append([]byte{','}, b...)
		return nil
	}
	out.pass(append(append([]byte{'{'}, b...), "}\n"...))
	return nil
}
