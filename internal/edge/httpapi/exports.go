package httpapi

import (
	"cmp"
	"net/http"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/custody/checkpoint"
	"j17/internal/custody/loading"
	"j17/internal/follow/listener"
	"j17/internal/plane/control"
)

// exportEvents is GET export of events: one a line or as one document.
func (h *exportHandlers) exportEvents(c *call, w http.ResponseWriter, aggregateType string) error {
	format := c.query["format"]
	out := &lines{c: c, w: w, of: "events", whole: format == "json"}
	x, err := h.loader.Export(
		c.request.Context(), c.tenant, aggregateType, c.query.streamID("after"), h.exportFormat(c, format),
	)
	if err != nil {
		return err
	}
	if format == "cloudevents" || c.query["generation"] == generationNewest {
		x.Newest()
	}
	if c.request.Method == http.MethodHead {
		out.start()
		return nil
	}
	c.allowTime(w, transferTime)

	// The events, a piece at a time.
	if err := c.take(c.api.resources.replies, x.Memory(), "an export"); err != nil {
		return err
	}
	for piece, err := range x.Pieces(c.request.Context()) {
		if err != nil {
			return out.close(err)
		}
		if err := out.passInTurn(piece.Bytes, len(piece.Bytes)/bytesExported); err != nil {
			return out.close(err)
		}
	}
	out.position = x.UpTo
	return out.close(h.endExport(c, out, x))
}

// bytesExported is how many bytes of events are read, hashed and written in the time of a unit of work.
const bytesExported = 2

// exportFormat returns what writes the events of an export in a format, each with what separates it from others.
func (h *exportHandlers) exportFormat(c *call, format string) func(dst []byte, e *loading.Exported) []byte {
	switch format {
	case "cloudevents":
		i, _ := h.registry.Instances.ByID(c.instance)
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
func (*exportHandlers) endExport(c *call, out *lines, x *loading.Export) error {
	if !x.Whole() && !c.query.isSet("checkpoint") || c.query["format"] == "cloudevents" {
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

// exportHandlers write events and states to files.
type exportHandlers struct {
	checkpoints *checkpoint.Service
	loader      *loading.Loader
	registry    *control.Registry
}

// routes write events to files.
func (h *exportHandlers) routes() []route {
	return []route{
		{0, get, "export", operator, need{control.RightAudit, instance}, "", h.export, operation{
			id: "exportEvents", about: "Export all events, or the states of all aggregates", query: exported(), gives: eventFiles(),
			headers: exportHeader(),
		}},
	}
}

// export is GET export: all events, or the present states of all aggregates.
func (h *exportHandlers) export(c *call, w http.ResponseWriter) error {
	aggregateType, err := c.api.feeds.aggregateType(c)
	if err != nil {
		return err
	}
	switch cmp.Or(c.query["of"], "events") {
	case "aggregates":
		return h.exportAggregates(c, w, aggregateType)
	default:
		return h.exportEvents(c, w, aggregateType)
	}
}

// exportAggregates is GET export?of=aggregates: the states of all aggregates at one moment, one a line or as one
// document.
func (h *exportHandlers) exportAggregates(c *call, w http.ResponseWriter, aggregateType string) error {
	switch {
	case c.query["after"] != "":
		return j17.Errorf(j17.CodeInvalidParameter, "after is a position of events; aggregates are exported as they are now").At("after")
	case c.query.isSet("checkpoint"):
		return j17.Errorf(j17.CodeInvalidParameter, "checkpoint is for events; the log has no states").At("checkpoint")
	case c.query["format"] == "cloudevents":
		return j17.Errorf(j17.CodeInvalidParameter, "cloudevents is a format of events; states are exported as ndjson or json").At("format")
	}
	ctx := c.request.Context()
	all, err := h.checkpoints.States(ctx, c.tenant, aggregateType)
	if err != nil {
		return err
	}
	out := &lines{c: c, w: w, of: "aggregates", whole: c.query["format"] == "json"}
	w.Header().Set(headerPosition, all.Position().PositionText())
	if c.request.Method == http.MethodHead {
		out.start()
		return nil
	}
	c.allowTime(w, transferTime)
	if err := c.take(c.api.resources.replies, statesPiece, "an export"); err != nil {
		return err
	}
	piece, units := make([]byte, 0, statesPiece), 0
	for state, err := range all.All(ctx) {
		if err == nil && len(piece)+len(state.Line) > statesPiece {
			err = out.passInTurn(piece, units)
			piece, units = piece[:0], 0
		}
		if err != nil {
			return out.close(err)
		}
		piece, units = out.appendTo(piece, state.Line), units+ofState+len(state.Line)/work.BytesPerUnit
	}
	out.pass(piece)
	return out.close(nil)
}

const (
	// statesPiece is how many bytes of states are sent at a time; one that is larger is sent by itself.
	statesPiece = 256 << 10
	// ofState is about what it takes to load a state and to show it, in units of work, beside its bytes.
	ofState = 1 << 9
)
