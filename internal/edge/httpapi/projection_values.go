package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/derived/projection"
)

// projectionHandlers read what projections yield.
type projectionHandlers struct {
	projections *projection.Service
}

// routes read projections.
func (h *projectionHandlers) routes() []route {
	return []route{
		{viewSite, get, viewPrefix + "{name}", read, need{}, "", h.projectionOrRows, operation{
			id:    "getProjection",
			about: "List the rows of a projection, or in the array form evaluate it for its parameters",
			query: viewedOrListed(), gives: either{wire.Rows{}, wire.Projected{}},
		}},
		{viewSite, get, viewPrefix + "{name}/_stream", read, need{}, "", h.rowsStream, operation{
			id: "streamRows", about: "Stream the changes to the rows of a projection", query: streamedRows(),
			gives: file{typeStream},
		}},
		{viewSite, get, viewPrefix + "{name}/_count", read, need{}, "", h.countRows, operation{
			id: "countRows", about: "Count the rows of a projection", query: []parameter{filtering()},
			gives: wire.RowCount{},
		}},
		{viewSite, get, viewPrefix + "{name}/{id}/stream", read, need{}, "", h.projectionStream, operation{
			id: "streamProjectionOf", about: "Stream the value of a projection for an aggregate as it changes",
			query: streamedView(), gives: file{typeStream},
		}},
		{viewSite, get, viewPrefix + "{name}/{id}", read, need{}, "", h.projection, operation{
			id: "getProjectionOf", about: "Get the value of a projection for an aggregate, now or in the past",
			query: viewed(), gives: wire.Projected{},
		}},
	}
}

// projection is GET /_projections/{name}/{id}, and without an id where the projection has none.
func (h *projectionHandlers) projection(c *call, w http.ResponseWriter) error {
	// What is wanted.
	r := c.request
	ask := &projection.Ask{
		Name: r.PathValue("name"), ID: r.PathValue("id"), Params: c.further, Takes: namesOf(viewed()),
		Synchronous: c.query.isSet("synchronous"), Until: c.moment("at"),
	}
	v, err := h.project(c, ask)
	if err != nil {
		return h.unlessRows(c, err)
	}

	// The value, with what stands around it.
	if known, err := c.known(w, v.Tag); known || err != nil {
		return err
	}
	c.show(w.Header(), "Content-Type", typeJSON)
	const head, most = `{"ok":true,"data":`, 256 // of what stands around it
	if len(v.Data) <= smallAnswer {
		b := append(make([]byte, 0, len(v.Data)+most), head...)
		c.write(w, http.StatusOK, appendProjected(append(b, v.Data...), v))
	} else {
		c.write(w, http.StatusOK, []byte(head), v.Data, appendProjected(make([]byte, 0, most), v))
	}
	return nil
}

// unlessRows adds to the refusal of an id, which is the last part of the path, that a path of the rows is almost the
// same.
func (h *projectionHandlers) unlessRows(c *call, err error) error {
	name, id := c.request.PathValue("name"), c.request.PathValue("id")
	refused, ok := errors.AsType[*j17.Error](err)
	if !ok || refused.Code != j17.CodeInvalidIdentifier || id != "stream" && id != "count" {
		return err
	}
	if named, unknown := h.projections.IsNamed(c.request.Context(), c.tenant, name); unknown != nil || !named {
		return err
	}
	said := *refused
	said.Message = strings.TrimSuffix(said.Message, ".") + ". Did you mean '" + viewPrefix + name + "/_" + id + "'?"
	return &said
}

// project reads a value.
func (h *projectionHandlers) project(c *call, ask *projection.Ask) (*projection.Reply, error) {
	read := func() (*projection.Reply, error) { return h.projections.Read(c.request.Context(), c.tenant, ask) }
	return fitting(c, read, func(v *projection.Reply) int { return len(v.Data) })
}

// appendProjected appends what follows the data of a value.
func appendProjected(b []byte, v *projection.Reply) []byte {
	b = append(b, `,"cached_at":`...)
	return appendMetadata(strconv.AppendInt(b, v.Computed, 10), v)
}

// appendMetadata appends the metadata of a value, and the end of the answer.
func appendMetadata(b []byte, v *projection.Reply) []byte {
	b = append(b, `,"metadata":{`...)
	if v.Key.ID != "" {
		b = append(b, `"id":`...)
		b = value.AppendString(b, v.Key.ID)
		b = appendNames(b, v.Names)
	}
	if !v.Past {
		if v.Key.ID != "" {
			b = append(b, ',')
		}
		b = append(b, `"position":"`...)
		b = append(v.Position.AppendPosition(b), '"')
	}
	return append(b, `}}`...)
}

// streamedView are the parameters of a live view; its own stand beside them.
func streamedView() []parameter { return streamed(parameter{kind: further}) }

// liveProjection is what a projection yields.
type liveProjection struct {
	projections *projection.Service
	call        *call
	ask         projection.Ask
	// tag is that of the data that was sent, with what made it impossible to compute.
	tag    string
	looked bool
}

// projectionStream is GET /_projections/{name}/{id}/stream: what a projection yields, as it changes.
func (h *projectionHandlers) projectionStream(c *call, w http.ResponseWriter) error {
	r := c.request
	ask := projection.Ask{
		Name: r.PathValue("name"), ID: r.PathValue("id"), Params: c.further, Takes: namesOf(streamedView()),
	}
	return c.api.streams.follow(c, w, &liveProjection{projections: h.projections, call: c, ask: ask})
}

func (l *liveProjection) read(ctx context.Context) (*liveState, error) {
	v, err := l.projections.Read(ctx, l.call.tenant, &l.ask)
	state := &liveState{}
	if v != nil && v.Value != nil {
		state.at, state.keys, state.types = v.Position, v.Sources, setTypes(v.Value)
	}
	if err == nil {
		state.tag = v.Tag
		state.events = []liveEvent{{"value", [][]byte{[]byte(`{"data":`), v.Data, appendMetadata(nil, v)}}}
		return state, nil
	}

	// What cannot be computed is shown.
	failed, ok := errors.AsType[*j17.Error](err)
	if !ok || !projection.Permanent(err) {
		return nil, err
	}
	state.failed, state.tag = err, string(failed.Code)+failed.Message
	raw, err := marshal(wire.RowError{Code: failed.Code, Error: l.call.api.Registry.Faults.Redact(failed.Message)})
	state.events = []liveEvent{{"value", [][]byte{[]byte(`{"error":`), raw, []byte(`}`)}}}
	return state, err
}

func (l *liveProjection) show(state *liveState) ([]liveEvent, error) {
	if state.failed != nil && !l.looked {
		return nil, state.failed
	}
	l.looked = true
	if state.tag == l.tag {
		return nil, nil // what was sent already is not sent again
	}
	l.tag = state.tag
	return state.events, nil
}

// setTypes are the aggregate types that queries of a value have looked in.
func setTypes(v *projection.Value) (types []string) {
	for i := range v.Sets {
		types = append(types, v.Sets[i].Query.AggregateType)
	}
	slices.Sort(types)
	return slices.Compact(types)
}
