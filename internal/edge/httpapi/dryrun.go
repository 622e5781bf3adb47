package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
)

// maxTriedBytes is how many bytes the data of the events of a dry run may have together. The states have a limit of
// their own.
const maxTriedBytes = 8 << 20

// tryWrite answers what a command would do, as far as it could be read.
func (h *writeHandlers) tryWrite(c *call, w http.ResponseWriter, cmd *engine.Command, err error) error {
	if err != nil {
		return err
	}
	o, err := h.outlook(c, cmd)
	if err != nil {
		return err
	}
	if o.Repeated {
		w.Header().Set(headerIdempotencyReplayed, "true")
	}
	t := tried{WriteDryRun: wire.WriteDryRun{
		DryRun: true, Accepted: len(o.Refusals) == 0, Events: []wire.TriedEvent{}, States: []wire.TriedState{},
		Truncated: o.Truncated,
	}}
	t.refuse(c, o.Refusals)
	if err := t.show(o); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, &t)
}

// outlook returns what a command would do.
func (h *writeHandlers) outlook(c *call, cmd *engine.Command) (*engine.Outlook, error) {
	read := func() (*engine.Outlook, error) { return h.engine.DryRun(c.request.Context(), cmd) }
	return fitting(c, read, func(o *engine.Outlook) (size int) {
		for i := range o.Events {
			size += len(o.Events[i].JSON)
		}
		size = min(size, maxTriedBytes)
		for i := range o.States {
			size += len(o.States[i].JSON)
		}
		return size
	})
}

// tried is the answer to a dry run. Its errors are encoded separately.
type tried struct {
	wire.WriteDryRun

	Refusals []json.RawMessage `json:"refusals"`
	bytes    int
}

// refuse adds the reasons for which a write would be refused, as its answer would have them.
func (t *tried) refuse(c *call, refusals []error) {
	t.Refusals = []json.RawMessage{}
	for _, err := range refusals {
		e, ok := errors.AsType[*j17.Error](err)
		if !ok {
			continue // refusals are errors of ours
		}
		r := wire.Refusal{
			Status: problemOf(e.Code).status, Code: e.Code, Error: e.Message, Path: e.Path, EventIndex: e.EventIndex,
			WriteIndex: e.WriteIndex,
			Details:    e.Details, Errors: e.Errors,
		}
		t.Refusals = append(t.Refusals, c.api.faults.redacted(&r, func() any {
			r.Details, r.Errors = nil, nil
			return &r
		}))
	}
}

// show adds what would happen.
func (t *tried) show(o *engine.Outlook) error {
	// The events, each below the one that implies it.
	children := make([][]int, len(o.Events))
	var own []int
	for i := range o.Events {
		if cause := o.Events[i].Cause; cause >= 0 {
			children[cause] = append(children[cause], i)
		} else {
			own = append(own, i)
		}
	}
	for _, i := range own {
		ev, err := t.event(o.Events, children, i)
		if err != nil {
			return err
		}
		t.Events = append(t.Events, *ev)
	}

	// The states, and the other consequences.
	for i := range o.States {
		s := &o.States[i]
		t.States = append(t.States, wire.TriedState{Key: s.Key.String(), Length: s.Length, Data: s.JSON})
	}
	for i := range o.Scheduled {
		t.Scheduled = append(t.Scheduled, o.Scheduled[i].Wire())
	}
	for i := range o.Canceled {
		t.Canceled = append(t.Canceled, o.Canceled[i].Wire())
	}
	for _, m := range o.Sagas {
		t.Sagas = append(t.Sagas, wire.TriedSaga{
			SagaID: m.ID, Type: m.Type, Status: m.Status, By: wire.Cause{Key: m.By.String(), EventType: m.ByType},
		})
	}
	return nil
}

// event returns the shape of an event with those that it implies, whose numbers children has.
func (t *tried) event(events []decider.Event, children [][]int, i int) (*wire.TriedEvent, error) {
	ev := &events[i]
	shape := &wire.TriedEvent{
		Key: ev.Key.String(), Type: ev.Type, Data: t.data(ev), Implied: make([]json.RawMessage, 0, len(children[i])),
	}
	for _, n := range children[i] {
		child, err := t.event(events, children, n)
		if err != nil {
			return nil, err
		}
		raw, err := marshal(child)
		if err != nil {
			return nil, err
		}
		shape.Implied = append(shape.Implied, raw)
	}
	return shape, nil
}

// data returns the data of an event while there is room for them. Data that did not fit a schema have not been encoded
// yet.
func (t *tried) data(ev *decider.Event) json.RawMessage {
	raw := ev.JSON
	if raw == nil {
		raw = ev.Data.OrNull().AppendJSON(nil)
	}
	if t.bytes += len(raw); t.bytes > maxTriedBytes {
		t.Truncated = true
		return nil
	}
	return raw
}
