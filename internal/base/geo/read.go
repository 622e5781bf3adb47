package geo

import (
	"fmt"
	"strconv"

	"j17"
	"j17/internal/base/value"
)

// Fault says why a value is no place.
type Fault struct {
	// Path leads into the value, in the form of j17.JoinPath; "" is the value itself.
	Path    string
	Message string
}

// Error returns the message.
func (f *Fault) Error() string { return f.Message }

// faultf returns a fault at a path.
func faultf(path, format string, args ...any) error {
	return &Fault{Path: path, Message: fmt.Sprintf(format, args...)}
}

// within puts a path in front of that of a fault.
func within(path string, err error) error {
	if f, ok := err.(*Fault); ok { //nolint:errorlint // the functions of this file return it as it is
		return &Fault{Path: j17.JoinPath(path, f.Path), Message: f.Message}
	}
	return err
}

const pointForms = `a point is {"lat": 40.7, "lng": -74.0} or {"type": "Point", "coordinates": [-74.0, 40.7]}`

// ReadPoint reads a point. The error is a *Fault.
func ReadPoint(v value.Value) (Point, error) {
	if v.Kind() != value.Object {
		return Point{}, faultf("", "%s, not %s", pointForms, kind(v))
	}
	lat, lng := v.Get("lat"), v.Get("lng")
	switch {
	case lat.IsMissing() && lng.IsMissing() && v.Get("type").IsMissing() && v.Get("coordinates").IsMissing():
		return Point{}, faultf("", "%s; here neither is given", pointForms)
	case lat.IsMissing() && lng.IsMissing():
		return readGeoPoint(v)
	case lat.IsMissing():
		return Point{}, faultf("", "the latitude is missing: %s", pointForms)
	case lng.IsMissing():
		return Point{}, faultf("", "the longitude is missing: %s", pointForms)
	}
	var p Point
	var err error
	if p.Lat, err = coordinate(lat, "latitude", 90); err != nil {
		return p, within("lat", err)
	}
	if p.Lng, err = coordinate(lng, "longitude", 180); err != nil {
		return p, within("lng", err)
	}
	return p, nil
}

// readGeoPoint reads a point in its GeoJSON form.
func readGeoPoint(v value.Value) (Point, error) {
	if v.Get("type").Str() != "Point" {
		return Point{}, faultf("type", "%s; its type is not %s", pointForms, v.Get("type").OrNull())
	}
	p, err := readPosition(v.Get("coordinates"))
	return p, within("coordinates", err)
}

// readPosition reads longitude and latitude, which may be followed by an altitude.
func readPosition(v value.Value) (Point, error) {
	elems := v.Elems()
	if v.Kind() != value.Array || len(elems) < 2 || len(elems) > 3 {
		return Point{}, faultf("", "a position is [longitude, latitude], not %s", kind(v))
	}
	var p Point
	var err error
	if p.Lng, err = coordinate(elems[0], "longitude, which comes first,", 180); err != nil {
		return p, within("[0]", err)
	}
	if p.Lat, err = coordinate(elems[1], "latitude, which comes second,", 90); err != nil {
		return p, within("[1]", err)
	}
	if len(elems) == 3 && elems[2].Kind() != value.Number {
		return p, faultf("[2]", "an altitude is a number, not %s", kind(elems[2]))
	}
	return p, nil
}

// coordinate reads a number of degrees.
func coordinate(v value.Value, what string, most float64) (float64, error) {
	if v.Kind() != value.Number {
		return 0, faultf("", "the %s is a number of degrees, not %s", what, kind(v))
	}
	n, err := strconv.ParseFloat(v.Num(), 64)
	if err != nil || !(n >= -most && n <= most) {
		return 0, faultf("", "the %s is between -%g and %g degrees, not %s", what, most, most, j17.Printable(v.Num()))
	}
	return n, nil
}

// kind describes a value that is not what it should be.
func kind(v value.Value) string {
	switch v.Kind() {
	case value.Missing:
		return "nothing"
	case value.Null:
		return "null"
	case value.Bool:
		return "a boolean"
	case value.Number:
		return "a number"
	case value.String:
		return "a text"
	case value.Array:
		return "an array of " + j17.Count(v.Len(), "element")
	case value.Object:
		return "an object"
	}
	return v.Kind().String()
}

const shapeForms = `a polygon is an array of points, or an object of GeoJSON with the type "Polygon" or "MultiPolygon"`

// ReadShape reads an area that rings enclose. The error is a *Fault.
func ReadShape(v value.Value) (*Shape, error) {
	switch v.Kind() {
	case value.Array:
		ring, err := readRing(v, ReadPoint, false)
		if err != nil {
			return nil, err
		}
		return newShape([][]placed{{{points: ring}}})
	case value.Object:
		return readGeoShape(v)
	case value.Missing, value.Null, value.Bool, value.Number, value.String:
	}
	return nil, faultf("", "%s, not %s", shapeForms, kind(v))
}

// readGeoShape reads an area in its GeoJSON form.
func readGeoShape(v value.Value) (*Shape, error) {
	typ, coordinates := v.Get("type"), v.Get("coordinates")
	var polygons []value.Value
	path := func(int) string { return "coordinates" }
	switch typ.Str() {
	case "Polygon":
		polygons = []value.Value{coordinates}
	case "MultiPolygon":
		if coordinates.Kind() != value.Array || coordinates.Len() == 0 {
			return nil, faultf("coordinates", "the coordinates of a MultiPolygon are an array of polygons, not %s", kind(coordinates))
		}
		polygons = coordinates.Elems()
		path = func(i int) string { return indexed("coordinates", i) }
	default:
		if typ.IsMissing() {
			return nil, faultf("", "%s; here no type is given", shapeForms)
		}
		return nil, faultf("type", "%s; its type is not %s", shapeForms, j17.Printable(typ.String()))
	}

	// What exceeds the limit is not read.
	count := 0
	for _, rings := range polygons {
		for _, ring := range rings.Elems() {
			if count += ring.Len(); count > MaxVertices+len(polygons)+rings.Len() {
				return nil, tooMany("coordinates")
			}
		}
	}

	all := make([][]placed, len(polygons))
	for i, rings := range polygons {
		if rings.Kind() != value.Array || rings.Len() == 0 {
			return nil, faultf(path(i), "the coordinates of a polygon are an array of rings, the outer one first, not %s", kind(rings))
		}
		for j, elems := range rings.Elems() {
			at := indexed(path(i), j)
			ring, err := readRing(elems, readPosition, true)
			if err != nil {
				return nil, within(at, err)
			}
			all[i] = append(all[i], placed{points: ring, path: at})
		}
	}
	return newShape(all)
}

func indexed(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func tooMany(path string) error {
	return faultf(path, "a polygon has at most %d vertices in all its rings: simplify it", MaxVertices)
}

// readRing reads the vertices of a ring, without the last one where it repeats the first, which it must in a closed
// ring.
func readRing(v value.Value, read func(value.Value) (Point, error), closed bool) ([]Point, error) {
	if v.Kind() != value.Array {
		return nil, faultf("", "a ring is an array of points, not %s", kind(v))
	}
	elems := v.Elems()
	if len(elems) > MaxVertices+1 {
		return nil, tooMany("")
	}
	ring := make([]Point, len(elems))
	for i, elem := range elems {
		p, err := read(elem)
		if err != nil {
			return nil, within(indexed("", i), err)
		}
		ring[i] = p
	}
	n := len(ring)
	switch {
	case n > 1 && ring[0].unique() == ring[n-1].unique():
		ring = ring[:n-1]
	case closed && n > 0:
		return nil, faultf(indexed("", n-1), "the last position of a ring repeats the first one, so that the ring is closed")
	}
	return ring, nil
}
