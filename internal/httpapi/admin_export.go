package httpapi

import (
	"cmp"
	"net/http"

	"j17"
)

// export is GET export: all events, or the present states of all aggregates.
func (c *call) export(w http.ResponseWriter) error {
	switch cmp.Or(c.query["of"], "events") {
	case "aggregates":
		return c.exportAggregates(w)
	default:
		return c.exportEvents(w)
	}
}

// exportAggregates is GET export?of=aggregates: the states of all aggregates at one moment, one a line or as one document.
func (c *call) exportAggregates(w http.ResponseWriter) error {
	switch {
	case c.query["after"] != "":
		return j17.Errorf(j17.CodeInvalidParameter, "after is a position of events; aggregates are exported as they are now").At("after")
	case c.isSet("checkpoint"):
		return j17.Errorf(j17.CodeInvalidParameter, "checkpoint is for events; the log has no states").At("checkpoint")
	case c.query["format"] == "cloudevents":
		return j17.Errorf(j17.CodeInvalidParameter, "cloudevents is a format of events; states are exported as ndjson or json").At("format")
	}
	ctx := c.request.Context()
	all, err := c.api.Checkpoints.States(ctx, c.tenant, c.query["type"])
	if err != nil {
		return err
	}
	out := &lines{c: c, w: w, of: "aggregates", whole: c.query["format"] == "json"}
	w.Header().Set(headerPosition, all.Position().String())
	if c.request.Method == http.MethodHead {
		out.start()
		return nil
	}
	c.allowTime(w, transferTime)
	for state, err := range all.All(ctx) {
		if err != nil {
			return out.close(err)
		}
		c.slot.Give() // what follows takes as long as the client likes
		out.add(append(out.line[:0], state.Line...))
	}
	return out.close(nil)
}
