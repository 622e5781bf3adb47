package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"j17"
	"j17/internal/base/geo"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/derived/place"
	"j17/internal/derived/projection"
	"j17/internal/lang/spec"
)

// listed are the parameters of a list of rows; its filters stand beside them.
func listed() []parameter {
	return []parameter{
		{name: "order", about: "The indexed field to sort rows by, with '-' before it for descending order; by default that of the index, or the id."},
		{name: "near", about: "lat,lng in degrees: only rows whose aggregate lies around that point, sorted by distance; it needs 'radius'."},
		{name: "radius", kind: metres, about: "The greatest distance of a row, in metres."},
		countParameter(), cursor(), filtering(),
	}
}

// filtering stands for the filters of a list.
func filtering() parameter {
	return parameter{kind: further, about: "filters of indexed fields"}
}

// viewedOrListed are the parameters of a projection without an id, in either form.
func viewedOrListed() []parameter {
	all := listed()
	return append(all[:len(all)-1], viewed()...)
}

// projectionOrRows is GET /_projections/{name}: the rows of the named form, and what the array form yields.
func (h *projectionHandlers) projectionOrRows(c *call, w http.ResponseWriter) error {
	// The form of the last time is known without reading anything. Only a refusal can mean that it is another one now.
	name := c.request.PathValue("name")
	was, known := h.projections.WasNamed(c.tenant, name)
	var refused error
	if known {
		if refused = h.inForm(c, w, was); refused == nil {
			return nil
		}
	}
	named, err := h.projections.IsNamed(c.request.Context(), c.tenant, name)
	if known && (err != nil || named == was) {
		return refused
	}
	if err != nil {
		return err
	}
	return h.inForm(c, w, named)
}

// inForm answers with rows for the named form, and with a value for the other one.
func (h *projectionHandlers) inForm(c *call, w http.ResponseWriter, named bool) error {
	name := c.request.PathValue("name")
	refused, handle := listed(), h.projection
	if named {
		refused, handle = viewed(), h.rows
	}
	for _, p := range refused {
		if _, given := c.query[p.name]; !given {
			continue
		}
		if named {
			return unknownParameter(p.name, listed())
		}
		return j17.Errorf(j17.CodeInvalidParameter, "The projection '%s' has no rows: it is not for each aggregate of a type. Read it with its own parameters, and leave '%s' out.", name, p.name).At(p.name)
	}
	return handle(c, w)
}

// rows is GET /_projections/{name} in the named form: a page of its rows.
func (h *projectionHandlers) rows(c *call, w http.ResponseWriter) error {
	list, near, err := h.list(c)
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, sizeOf(list)), `{"ok":true,"rows":[`...)
	for i := range list.Rows {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = h.appendRow(c, b, &list.Rows[i], near); err != nil {
			return err
		}
	}
	b = appendNext(append(b, ']'), list.Next)

	// The entity tag is that of the rows: a later position alone does not change it.
	sum := sha256.Sum256(b)
	b = append(b, `,"metadata":{"position":"`...)
	b = append(list.Position.AppendPosition(b), `"}}`...)
	return c.pageOf(w, `"`+hex.EncodeToString(sum[:8])+`"`, b)
}

// listAsk reads which list is asked for.
func (*projectionHandlers) listAsk(c *call) (projection.ListAsk, error) {
	ask := projection.ListAsk{
		Name: c.request.PathValue("name"), Filters: c.further, Count: c.query.number("count", defaultCount),
		Start: c.query["start"],
	}
	if order, ok := c.query["order"]; ok {
		ask.Order = &order
	}
	near, isNear := c.query["near"]
	radius, isWithin := c.query["radius"]
	switch {
	case !isNear && !isWithin:
		return ask, nil
	case !isNear:
		return ask, j17.Errorf(j17.CodeInvalidParameter, "'near' is missing: 'radius' is that around a point, near=lat,lng").At("near")
	case !isWithin:
		return ask, j17.Errorf(j17.CodeInvalidParameter, "'radius' is missing: how far away from 'near' a row may be, in metres").At("radius")
	}
	n, ok := decimals(near, 2)
	if !ok || len(n) != 2 || !(geo.Point{Lat: n[0], Lng: n[1]}).Valid() {
		return ask, j17.Errorf(j17.CodeInvalidParameter, "'near' must be lat,lng in degrees, a latitude from -90 to 90 and a longitude from -180 to 180").At("near")
	}
	ask.Near = &place.Near{Center: geo.Point{Lat: n[0], Lng: n[1]}}
	ask.Near.Radius, _ = decimal(radius) // checked
	return ask, nil
}

// list reads a page for which there is room among the replies.
func (h *projectionHandlers) list(c *call) (*projection.List, bool, error) {
	ask, err := h.listAsk(c)
	if err != nil {
		return nil, false, err
	}
	list, err := fitting(
		c, func() (*projection.List, error) { return h.projections.List(c.request.Context(), c.tenant, ask) }, sizeOf,
	)
	return list, ask.Near != nil, orParameter(err)
}

// sizeOf returns about how many bytes the answer with a page has.
func sizeOf(list *projection.List) int {
	const around, ofRow = 256, 160 // of what stands around the page, and around the data of a row
	size := around + len(list.Rows)*ofRow
	for i := range list.Rows {
		size += len(list.Rows[i].Data)
	}
	return size
}

// appendRow appends a row as answers have it, with its distance where the list is one around a point.
func (h *projectionHandlers) appendRow(c *call, b []byte, row *projection.Row, near bool) ([]byte, error) {
	b, err := h.appendRowHead(c, b, row, near)
	return append(append(b, row.Data...), '}'), err
}

// appendRowHead appends what precedes the data of a row; for a row without data, all but the end.
func (*projectionHandlers) appendRowHead(c *call, b []byte, row *projection.Row, near bool) ([]byte, error) {
	b = value.AppendString(append(b, `{"id":`...), row.ID)
	b = appendNames(b, row.Names)
	if near {
		b = appendNumber(append(b, `,"distance":`...), row.Distance)
		if row.Geo != spec.Point {
			b = value.AppendString(append(b, `,"geo":`...), row.Geo)
		}
	}
	if row.Err == nil {
		return append(b, `,"data":`...), nil
	}
	raw, err := c.api.faults.row(row.Err)
	return append(append(b, `,"error":`...), raw...), err
}

// rowError returns the public error of a row that cannot be computed. As everywhere, the cause is not shown.
func rowError(err error) wire.RowError {
	e, ok := errors.AsType[*j17.Error](err)
	if !ok || e.Code == j17.CodeInternal {
		return wire.RowError{Code: j17.CodeInternal, Error: "The row cannot be computed. Read it by its id to see why."}
	}
	shown := *e
	shown.Err = nil
	return wire.RowError{Code: e.Code, Error: shown.Error()}
}

// rowsStream is GET /_projections/{name}/_stream: the rows of a list as they come, change and go.
func (h *projectionHandlers) rowsStream(c *call, w http.ResponseWriter) error {
	if err := h.onlyFilters(c, streamedRows()); err != nil {
		return err
	}
	ask, err := h.listAsk(c)
	if err != nil {
		return err
	}
	ask.Count = maxLiveRows
	less := "Narrow it with filters."
	if ask.Near != nil {
		less = "Ask for a smaller radius, or narrow it with filters."
	}
	near := ask.Near != nil
	return c.api.streams.follow(c, w, newLiveRows(c, less, func(ctx context.Context) (*liveState, error) {
		list, err := h.projections.List(ctx, c.tenant, ask)
		if err != nil {
			return nil, err
		}
		l := &liveList{
			whole: list.Next == "", early: list.Early,
			data: func(n int) ([][]byte, error) { return h.rowParts(c, &list.Rows[n], near) },
		}
		var mark []byte
		for i := range list.Rows {
			row := &list.Rows[i]
			if mark, err = h.appendRowHead(c, mark[:0], row, near); err != nil {
				return nil, err
			}
			l.add(row.ID, row.Geo, append(mark, row.Tag...))
		}
		return &liveState{at: list.Position, types: list.Types, list: l}, nil
	}))
}

// rowParts is a row as answers have it, in parts.
func (h *projectionHandlers) rowParts(c *call, row *projection.Row, near bool) ([][]byte, error) {
	head, err := h.appendRowHead(c, nil, row, near)
	return [][]byte{head, row.Data, []byte("}")}, err
}

// orParameter adds to the refusal of a filter that a parameter of lists may have been meant, which has another name
// here.
func orParameter(err error) error {
	refused, ok := errors.AsType[*j17.Error](err)
	if !ok || refused.Code != j17.CodeNotIndexed {
		return err
	}
	meant := wire.CalledHere(refused.Path, namesOf(listed()))
	if meant == "" || meant == refused.Path {
		return err
	}
	said := *refused
	said.Message = "Did you mean the parameter '" + meant + "' of lists? '" + refused.Path +
		"' is taken for a filter of a field. " + said.Message
	return &said
}

// streamedRows are the parameters of a live list; its filters stand beside them.
func streamedRows() []parameter {
	return streamed(slices.DeleteFunc(
		listed(), func(p parameter) bool { return p.name == "order" || p.name == "count" || p.name == "start" },
	)...)
}

// countRows is GET /_projections/{name}/_count: how many rows there are, or pass the filters.
func (h *projectionHandlers) countRows(c *call, w http.ResponseWriter) error {
	if err := h.onlyFilters(c, []parameter{filtering()}); err != nil {
		return err
	}
	n, err := h.projections.Count(c.request.Context(), c.tenant, c.request.PathValue("name"), c.further)
	if err != nil {
		return err
	}
	b := strconv.AppendUint([]byte(`{"ok":true,"count":`), n, 10)
	return c.page(w, append(b, '}'))
}

// onlyFilters refuses parameters of other reads of projections, which this one would take for filters; takes are those
// that it has itself.
func (*projectionHandlers) onlyFilters(c *call, takes []parameter) error {
	for _, p := range viewedOrListed() {
		if _, given := c.further[p.name]; given {
			return unknownParameter(p.name, takes)
		}
	}
	return nil
}
