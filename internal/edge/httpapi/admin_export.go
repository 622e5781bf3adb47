package httpapi

import (
	"cmp"
	"net/http"

	"j17"
	"j17/internal/base/work"
)

// export is GET export: all events, or the present states of all aggregates.
func (c *call) export(w http.ResponseWriter) error {
	aggregateType, err := c.aggregateType()
	if err != nil {
		return err
	}
	switch cmp.Or(c.query["of"], "events") {
	case "aggregates":
		return c.exportAggregates(w, aggregateType)
	default:
		return c.exportEvents(w, aggregateType)
	}
}

// exportAggregates is GET export?of=aggregates: the states of all aggregates at one moment, one a line or as one document.
func (c *call) exportAggregates(w http.ResponseWriter, aggregateType string) error {
	switch {
	case c.query["after"] != "":
		return j17.Errorf(j17.CodeInvalidParameter, "after is a position of events; aggregates are exported as they are now").At("after")
	case c.isSet("checkpoint"):
		return j17.Errorf(j17.CodeInvalidParameter, "checkpoint is for events; the log has no states").At("checkpoint")
	case c.query["format"] == "cloudevents":
		return j17.Errorf(j17.CodeInvalidParameter, "cloudevents is a format of events; states are exported as ndjson or json").At("format")
	}
	ctx := c.request.Context()
	all, err := c.api.Checkpoints.States(ctx, c.tenant, aggregateType)
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
	if err := c.take(c.api.room.replies, statesPiece, "an export"); err != nil {
		return err
	}
	piece, units := make([]byte, 0, statesPiece), 0
	for state, err := range all.All(ctx) {
		if err == nil && len(piece)+len(state.Line) > statesPiece {
			err = c.passInTurn(out, piece, units)
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

// passInTurn sends a piece of an export, which it took some units of work to make. The request makes the next one in a turn with others, for which
// it waits as long as that takes: what the client has is not thrown away.
func (c *call) passInTurn(out *lines, piece []byte, units int) error {
	c.slot.Give() // what follows takes as long as the client likes
	out.pass(piece)
	for {
		b := work.New(c.request.Context(), work.Replay)
		if b.Spend(units) || j17.CodeOf(b.Err()) != j17.CodeBusy {
			return b.Err()
		}
	}
}
