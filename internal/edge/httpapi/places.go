package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/geo"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/derived/place"
	"j17/internal/lang/spec"
	"j17/internal/plane/auth"
)

// placeHandlers find aggregates by where they are.
type placeHandlers struct {
	engine *engine.Engine
	places *place.Service
}

// routes find aggregates by where they are.
func (h *placeHandlers) routes() []route {
	return []route{
		{dataSite, get, "/{type}/nearby/stream", read, need{}, "", h.stream(h.askAround), operation{
			id: "streamNearby", about: "Stream the changes to the aggregates around a point",
			query: streamedPlaces(around()), gives: file{typeStream}, places: spec.Point,
		}},
		{dataSite, get, "/{type}/containing/stream", read, need{}, "", h.stream(h.askHaving), operation{
			id: "streamContaining", about: "Stream the changes to the aggregates whose areas contain a point",
			query: streamedPlaces(having()), gives: file{typeStream}, places: spec.Polygon,
		}},
		{dataSite, get, "/{type}/within/stream", read, need{}, "", h.stream(h.askInside), operation{
			id: "streamWithin", about: "Stream the changes to the aggregates whose points lie in an area",
			query: streamedPlaces(inside()), gives: file{typeStream}, places: spec.Point,
		}},
		{dataSite, get, "/{type}/nearby", read, need{}, "", h.nearby, operation{
			id: "listNearby", about: "Find the aggregates around a point, nearest first",
			query: append(around(), parameter{kind: further}), gives: either{wire.Nearby{}, file{typeGeo}},
			places: spec.Point,
		}},
		{dataSite, get, "/{type}/containing", read, need{}, "", h.containing, operation{
			id: "listContaining", about: "Find the aggregates whose areas contain a point",
			query: append(having(), parameter{kind: further}), gives: either{wire.Containing{}, file{typeGeo}},
			places: spec.Polygon,
		}},
		{dataSite, get, withinPath, read, need{}, "", h.within, operation{
			id: "listWithin", about: "Find the aggregates whose points lie in an area",
			query: append(inside(), parameter{kind: further}), gives: either{wire.Within{}, file{typeGeo}},
			places: spec.Point,
		}},
		{dataSite, post, withinPath, read, need{}, "", h.withinArea, operation{
			id: "searchWithin", about: "Find the aggregates whose points lie in the area that the body gives",
			query: append(rowsOfPlaces(), parameter{kind: further}), body: area{},
			gives: either{wire.Within{}, file{typeGeo}}, places: spec.Point,
		}},
	}
}

// typeGeo is the media type of GeoJSON.
const typeGeo = "application/geo+json"

// around are the parameters of queries around a point.
func around() []parameter {
	return append([]parameter{
		{name: "lat", kind: latitude, about: "The latitude of the point in degrees."},
		{name: "lng", kind: longitude, about: "The longitude of the point in degrees."},
		{name: "radius", kind: metres, about: "The greatest distance of a place, in metres; without it the nearest are returned at any distance."},
	}, rowsOfPlaces()...)
}

// having are the parameters of queries for areas that contain a point.
func having() []parameter {
	return slices.DeleteFunc(around(), func(p parameter) bool { return p.name == "radius" })
}

// inside are the parameters of queries for points in an area.
func inside() []parameter {
	return append([]parameter{
		{name: "box", about: "south,west,north,east in degrees; west is greater than east across the date line."},
		{name: "polygon", about: "The vertices of an area, as lat,lng,lat,lng,... in degrees."},
	}, rowsOfPlaces()...)
}

func rowsOfPlaces() []parameter {
	return []parameter{
		countParameter(), cursor(),
		{name: "data", kind: flag, about: "Whether rows include the states of their aggregates; true by default."},
	}
}

// nearby is GET /{type}/nearby: what is around a point, nearest first.
func (h *placeHandlers) nearby(c *call, w http.ResponseWriter) error {
	return h.answer(c, w, around(), h.askAround)
}

func (h *placeHandlers) askAround(c *call, a *place.Ask) error {
	center, err := h.point(c)
	a.Near = &place.Near{Center: center, Radius: math.Inf(1)}
	if radius, ok := c.query["radius"]; ok {
		a.Near.Radius, _ = decimal(radius) // checked
	}
	return err
}

// containing is GET /{type}/containing: the areas that have a point.
func (h *placeHandlers) containing(c *call, w http.ResponseWriter) error {
	return h.answer(c, w, having(), h.askHaving)
}

func (h *placeHandlers) askHaving(c *call, a *place.Ask) error {
	p, err := h.point(c)
	a.Having = &p
	return err
}

// withinPath is where points in an area are asked for.
const withinPath = "/{type}/within"

// within is GET /{type}/within: the points in an area.
func (h *placeHandlers) within(c *call, w http.ResponseWriter) error {
	return h.answer(c, w, inside(), h.askInside)
}

// withinArea is POST /{type}/within: the same for an area in the body, which may be too long for a URL.
func (h *placeHandlers) withinArea(c *call, w http.ResponseWriter) error {
	return h.answer(c, w, rowsOfPlaces(), func(c *call, a *place.Ask) error { return h.readArea(c, w, a) })
}

// maxAreaBody bounds the body that has an area. One of as many vertices as there may be has some 400 KiB where each
// stands in a line of its own with nine digits behind the point.
const maxAreaBody = 2 << 20

// readArea reads the area of the body: GeoJSON, which may be a feature.
func (*placeHandlers) readArea(c *call, w http.ResponseWriter, a *place.Ask) error {
	raw, err := c.readBodyOf(w, maxAreaBody, typeJSON, typeGeo)
	if err != nil {
		return err
	}
	if err := c.parsing(raw); err != nil {
		return err
	}
	body, err := value.ParseString(raw)
	if err != nil {
		return invalidJSON(err)
	}

	// The geometry; the rest of a feature is ignored.
	const forms = "an area is a Polygon or a MultiPolygon of GeoJSON, or a Feature with one of these as its geometry"
	geometry, at := body, ""
	if body.Kind() == value.Object && body.Get("type").Str() == "Feature" {
		if geometry, at = body.Get("geometry"), "geometry"; geometry.IsMissing() {
			return j17.Errorf(j17.CodeMissingField, "The geometry is missing: %s", forms).At(at)
		}
	}
	if geometry.Kind() != value.Object {
		e := j17.Errorf(j17.CodeInvalidField, "The request body must be a JSON object: %s", forms)
		if at != "" {
			e = j17.Errorf(j17.CodeInvalidField, "'geometry' must be an object: %s", forms).At(at)
		}
		return e
	}
	shape, err := geo.ReadShape(geometry)
	if fault, ok := errors.AsType[*geo.Fault](err); ok {
		return j17.Errorf(j17.CodeInvalidField, "The request body must have an area: %s", fault.Message).At(j17.JoinPath(at, fault.Path))
	}
	a.In, a.AreaText = shape, "geojson "+geometry.String()
	return err
}

func (*placeHandlers) askInside(c *call, a *place.Ask) error {
	box, isBox := c.query["box"]
	polygon, isPolygon := c.query["polygon"]
	var err error
	switch {
	case isBox && isPolygon:
		return j17.Errorf(j17.CodeInvalidParameter, "An area is given by 'box' or by 'polygon', not by both").At("polygon")
	case isBox:
		a.In, err = readBox(box)
		a.AreaText = "box " + box
	case isPolygon:
		a.In, err = readPolygon(polygon)
		a.AreaText = "polygon " + polygon
	default:
		return j17.Errorf(j17.CodeInvalidParameter, "'box' is missing: give an area as box=south,west,north,east or as polygon=lat,lng,lat,lng,lat,lng").At("box")
	}
	return err
}

// point returns the point that a query names.
func (*placeHandlers) point(c *call) (geo.Point, error) {
	for _, name := range []string{"lat", "lng"} {
		if _, ok := c.query[name]; !ok {
			return geo.Point{}, j17.Errorf(j17.CodeInvalidParameter, "'%s' is missing: a point has 'lat' and 'lng', in degrees", name).At(name)
		}
	}
	lat, _ := decimal(c.query["lat"])
	lng, _ := decimal(c.query["lng"]) // both are checked
	return geo.Point{Lat: lat, Lng: lng}, nil
}

// decimal reads a number as JSON has them.
func decimal(v string) (float64, bool) {
	if strings.Trim(v, "+-.0123456789eE") != "" {
		return 0, false // what else Go takes for a number
	}
	n, err := strconv.ParseFloat(v, 64)
	return n, err == nil
}

// decimals reads numbers with commas between them, at most so many.
func decimals(v string, most int) ([]float64, bool) {
	if strings.Count(v, ",") >= most {
		return nil, false
	}
	var all []float64
	for part := range strings.SplitSeq(v, ",") {
		n, ok := decimal(part)
		if !ok {
			return nil, false
		}
		all = append(all, n)
	}
	return all, true
}

// readBox reads the box of a query.
func readBox(v string) (geo.Area, error) {
	n, ok := decimals(v, 4)
	if !ok || len(n) != 4 {
		return nil, j17.Errorf(j17.CodeInvalidParameter, "'box' must be four numbers of degrees, south,west,north,east").At("box")
	}
	box := geo.Box{South: n[0], West: n[1], North: n[2], East: n[3]}
	if !box.Valid() {
		return nil, j17.Errorf(j17.CodeInvalidParameter, "'box' must be south,west,north,east: latitudes from -90 to 90, of which the first is not greater, and longitudes from -180 to 180").At("box")
	}
	return box, nil
}

// readPolygon reads the polygon of a query.
func readPolygon(v string) (geo.Area, error) {
	n, ok := decimals(v, 2*geo.MaxVertices+2)
	if !ok || len(n)%2 != 0 {
		return nil, j17.Errorf(j17.CodeInvalidParameter, "'polygon' must be numbers of degrees, lat,lng,lat,lng,..., of at most %d points", geo.MaxVertices).At("polygon")
	}
	points := make([]geo.Point, len(n)/2)
	for i := range points {
		if points[i] = (geo.Point{Lat: n[2*i], Lng: n[2*i+1]}); !points[i].Valid() {
			return nil, j17.Errorf(j17.CodeInvalidParameter, "Point %d of 'polygon' must have a latitude from -90 to 90, which comes first, and a longitude from -180 to 180", i).At("polygon")
		}
	}
	shape, err := geo.NewShape(points)
	if err != nil {
		return nil, j17.Errorf(j17.CodeInvalidParameter, "'polygon' must be an area: %s", err).At("polygon")
	}
	return shape, nil
}

// answer answers a question about places.
func (h *placeHandlers) answer(
	c *call, w http.ResponseWriter, takes []parameter, read func(*call, *place.Ask) error,
) error {
	r := c.request
	a := &place.Ask{Type: r.PathValue("type"), Count: c.query.number("count", defaultCount), Start: c.query["start"]}
	if word := h.placeWord(c); h.isSingleton(c, word) {
		r.SetPathValue("id", word)
		return h.unplaced(c, w)
	}
	for name := range c.further {
		return unknownParameter(name, takes)
	}

	// The results, and their states.
	if err := read(c, a); err != nil {
		return err
	}
	_, said := c.query["data"]
	a.Bare = said && !c.query.isSet("data")
	page, err := h.found(c, a)
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	if accepts(r.Header, typeGeo) {
		return h.features(c, w, a, page)
	}
	b := append(make([]byte, 0, sizeOfPlaces(page)), `{"ok":true,"rows":[`...)
	for i := range page.Rows {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = h.appendPlace(c, b, a, &page.Rows[i]); err != nil {
			return err
		}
	}
	return h.pageOfPlaces(c, w, append(b, ']'), page, typeJSON)
}

// placeWord returns the last word of the path, which names the query.
func (*placeHandlers) placeWord(c *call) string {
	return c.request.URL.Path[strings.LastIndexByte(c.request.URL.Path, '/')+1:]
}

// isSingleton reports whether that word is the name of a singleton in a spec without places: then it is an aggregate
// like any other.
func (h *placeHandlers) isSingleton(c *call, word string) bool {
	sp := h.engine.Spec(c.tenant)
	return sp != nil && sp.IDs.IsSingleton(word)
}

// unplaced answers as if the path had no query for places: with the state, or as where events are written, if the key
// is valid there.
func (*placeHandlers) unplaced(c *call, w http.ResponseWriter) error {
	c.query, c.further = nil, nil
	takes, do := moments(), c.api.reads.aggregate
	if c.request.Method == post {
		takes, do = tryable(), c.api.writes.postBatch
		if err := auth.Authorize(c.principal, c.instance, c.env, j17.ScopeWrite); err != nil {
			return err
		}
	}
	if err := c.readParameters(takes); err != nil {
		return err
	}
	return do(c, w)
}

// found reads a page.
func (h *placeHandlers) found(c *call, a *place.Ask) (*place.Page, error) {
	return fitting(
		c, func() (*place.Page, error) { return h.places.Page(c.request.Context(), c.tenant, a) }, sizeOfPlaces,
	)
}

// sizeOfPlaces returns about how many bytes the answer with a page has.
func sizeOfPlaces(page *place.Page) int {
	const around, ofRow, ofVertex = 256, 250, 45
	size := around + len(page.Rows)*ofRow
	for i := range page.Rows {
		row := &page.Rows[i]
		size += len(row.State) + row.Properties.Size()
		if row.Location.Shape != nil {
			size += ofVertex * row.Location.Shape.Vertices()
		}
	}
	return size
}

// pageOfPlaces adds to a page where the next one starts and its position, and answers with it.
func (*placeHandlers) pageOfPlaces(c *call, w http.ResponseWriter, b []byte, page *place.Page, media string) error {
	b = appendNext(b, page.Next)

	// The entity tag is that of the rows: a later position alone does not change it. Queries with a body have none.
	sum := sha256.Sum256(b)
	b = append(b, `,"metadata":{"position":"`...)
	b = append(page.Position.AppendPosition(b), `"}}`...)
	if c.request.Method == post {
		c.show(w.Header(), "Cache-Control", "no-store")
	} else if known, err := c.known(w, `"`+hex.EncodeToString(sum[:8])+`"`); known || err != nil {
		return err
	}
	c.show(w.Header(), "Content-Type", media)
	c.write(w, http.StatusOK, b)
	return nil
}

// appendPlace appends a row.
func (h *placeHandlers) appendPlace(c *call, b []byte, a *place.Ask, row *place.Row) ([]byte, error) {
	b = value.AppendString(append(b, `{"id":`...), row.ID)
	b = appendNames(b, row.Names)
	if a.Near != nil {
		b = appendNumber(append(b, `,"distance":`...), row.Distance)
	}
	if p := row.Location.Point; p != nil {
		b = appendLocation(append(b, `,"location":`...), *p)
	}
	if a.Having != nil || !row.Properties.IsMissing() {
		b = value.AppendString(append(b, `,"geo":`...), row.Geo)
		b = append(b, `,"properties":`...)
		b = appendProperties(b, row)
	}
	b, err := h.appendStateOf(c, b, a, row)
	return append(b, '}'), err
}

// appendProperties appends the properties of a place, an empty object where there are none.
func appendProperties(b []byte, row *place.Row) []byte {
	if row.Properties.IsMissing() {
		return append(b, "{}"...)
	}
	return row.Properties.AppendJSON(b)
}

// appendStateOf appends the state of a row, or the error why there is none.
func (*placeHandlers) appendStateOf(c *call, b []byte, a *place.Ask, row *place.Row) ([]byte, error) {
	switch {
	case a.Bare:
		return b, nil
	case row.Err != nil:
		raw, err := c.api.faults.row(row.Err)
		return append(append(b, `,"error":`...), raw...), err
	default:
		return append(append(b, `,"data":`...), row.State...), nil
	}
}

func appendNumber(b []byte, n float64) []byte {
	return strconv.AppendFloat(b, n+0, 'f', -1, 64) // there is one zero
}

// appendLocation appends a point as rows have it.
func appendLocation(b []byte, p geo.Point) []byte {
	b = appendNumber(append(b, `{"lat":`...), p.Lat)
	return append(appendNumber(append(b, `,"lng":`...), p.Lng), '}')
}

// features answers with a FeatureCollection, which maps show as it is.
func (h *placeHandlers) features(c *call, w http.ResponseWriter, a *place.Ask, page *place.Page) error {
	b := append(make([]byte, 0, sizeOfPlaces(page)), `{"type":"FeatureCollection","features":[`...)
	var err error
	for i := range page.Rows {
		if i > 0 {
			b = append(b, ',')
		}
		row := &page.Rows[i]
		b = value.AppendString(append(b, `{"type":"Feature","id":`...), row.ID)
		b = appendGeometry(append(b, `,"geometry":`...), row)
		b = value.AppendString(append(b, `,"properties":{"geo":`...), row.Geo)
		b = appendNames(b, row.Names)
		if a.Near != nil {
			b = appendNumber(append(b, `,"distance":`...), row.Distance)
		}
		if !row.Properties.IsMissing() {
			b = row.Properties.AppendJSON(append(b, `,"properties":`...))
		}
		if b, err = h.appendStateOf(c, b, a, row); err != nil {
			return err
		}
		b = append(b, "}}"...)
	}
	return h.pageOfPlaces(c, w, append(b, ']'), page, typeGeo)
}

// appendGeometry appends the place of a row as GeoJSON.
func appendGeometry(b []byte, row *place.Row) []byte {
	if p := row.Location.Point; p != nil {
		return append(appendGeoPosition(append(b, `{"type":"Point","coordinates":`...), *p), '}')
	}
	polygons := row.Location.Shape.Cut()
	list := func(n int, each func(int)) {
		b = append(b, '[')
		for i := range n {
			if i > 0 {
				b = append(b, ',')
			}
			each(i)
		}
		b = append(b, ']')
	}
	polygon := func(rings [][]geo.Point) {
		list(len(rings), func(i int) {
			list(len(rings[i]), func(j int) { b = appendGeoPosition(b, rings[i][j]) })
		})
	}
	if len(polygons) == 1 {
		b = append(b, `{"type":"Polygon","coordinates":`...)
		polygon(polygons[0])
	} else {
		b = append(b, `{"type":"MultiPolygon","coordinates":`...)
		list(len(polygons), func(i int) { polygon(polygons[i]) })
	}
	return append(b, '}')
}

func appendGeoPosition(b []byte, p geo.Point) []byte {
	b = appendNumber(append(b, '['), p.Lng)
	return append(appendNumber(append(b, ','), p.Lat), ']')
}

// stream answers a query for places with its results as they come, change and go.
func (h *placeHandlers) stream(read func(*call, *place.Ask) error) handler {
	return func(c *call, w http.ResponseWriter) error {
		a := &place.Ask{Type: c.request.PathValue("type"), Count: maxLiveRows, Longer: longerLooks}
		if err := read(c, a); err != nil {
			return err
		}
		_, said := c.query["data"]
		a.Bare = said && !c.query.isSet("data")
		return c.api.streams.follow(c, w,
			newLiveRows(c, "Ask for a smaller radius or area.", func(ctx context.Context) (*liveState, error) {
				page, err := h.places.Page(ctx, c.tenant, a)
				if err != nil {
					return nil, err
				}
				raws := make([][]byte, len(page.Rows))
				l := &liveList{
					whole: page.Next == "", early: page.Early,
					data: func(n int) ([][]byte, error) { return [][]byte{raws[n]}, nil },
				}
				for i := range page.Rows {
					if raws[i], err = h.appendPlace(c, nil, a, &page.Rows[i]); err != nil {
						return nil, err
					}
					l.add(page.Rows[i].ID, page.Rows[i].Geo, raws[i])
				}
				return &liveState{at: page.Position, types: []string{a.Type}, list: l}, nil
			}))
	}
}

// streamedPlaces are the parameters of a live query for places.
func streamedPlaces(of []parameter) []parameter {
	return streamed(slices.DeleteFunc(of, func(p parameter) bool { return p.name == "count" || p.name == "start" })...)
}
