package spec

import (
	"crypto/sha256"
	"maps"
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/tick"
)

// The shapes of places, which are geo types too.
const (
	Point   = "point"
	Polygon = "polygon"
)

// GeoType is a member of geo_types, or a shape itself, which has no properties.
type GeoType struct {
	Name string
	// Shape is Point or Polygon.
	Shape string
	// Properties are names of members of a place, or else of the event's data, that go with it.
	Properties []string
}

// Geo says where in an event's data its place is.
type Geo struct {
	Type *GeoType
	// Steps lead to the place from the event's data.
	Steps []value.Step
	// Where is the same as errors have it, "data.location".
	Where string
}

// Place is a kind of place that aggregates of a type have: one of them at a time.
type Place struct {
	Type *GeoType
	// Fingerprint changes whenever other events have such a place, or have it elsewhere in their data, or when the geo
	// type changes: what is stored of the places of older events is valid as long as it is the same.
	Fingerprint [32]byte
}

// placeSemantics is the version of what places are made of. It is part of their fingerprints.
const placeSemantics = 1

// Place returns the type's kind of place of a geo type, nil where it has none.
func (t *AggregateType) Place(geoType string) *Place {
	for _, p := range t.Places {
		if p.Type.Name == geoType {
			return p
		}
	}
	return nil
}

// HasPlaces reports whether aggregates of the type have places of a shape.
func (t *AggregateType) HasPlaces(shape string) bool {
	return slices.ContainsFunc(t.Places, func(p *Place) bool { return p.Type.Shape == shape })
}

// geoPaths returns the last parts of the paths of queries for places, which stand where an aggregate's id can be.
func geoPaths() []string { return []string{"nearby", "containing", "within"} }

func geoShapes() []string { return []string{Point, Polygon} }

func (c *typeCompiler) geoType(name string, v value.Value, at diag.Pointer) *GeoType {
	c.name(name, at, "a geo type")
	g := &GeoType{Name: name}
	if slices.Contains(geoShapes(), name) {
		c.Report(at, geoTypeNamedLikeShape, name)
	}
	if !c.object(v, at, shape{what: "a geo type", required: []string{"type"}, optional: []string{"properties"}}) {
		return g
	}
	g.Shape = c.choice(v.Get("type"), at.Key("type"), "a geo type's shape", geoShapes()...)
	c.elems(v.Get("properties"), at.Key("properties"), "properties", maxProperties,
		func(_ int, v value.Value, at diag.Pointer) {
			s, ok := c.text(v, at, "a property")
			switch {
			case !ok:
			case slices.Contains(g.Properties, s):
				c.Report(at, listedTwice, s, "properties")
			default:
				g.Properties = append(g.Properties, s)
			}
		})
	return g
}

// maxProperties is how many properties a place may have.
const maxProperties = 50

// knownGeo returns the shapes, and the geo types that are not called like one.
func (c *typeCompiler) knownGeo() []string {
	if c.geoNames == nil {
		c.geoNames = geoShapes()
		for _, name := range slices.Sorted(maps.Keys(c.out.GeoTypes)) {
			if !slices.Contains(geoShapes(), name) {
				c.geoNames = append(c.geoNames, name)
			}
		}
	}
	return c.geoNames
}

func (c *typeCompiler) geo(v value.Value, at diag.Pointer) *Geo {
	if v.Kind() != value.Object {
		c.Report(at, geoNoObject, aKind(v.Kind()))
		return nil
	}
	c.object(v, at, shape{what: "geo", required: []string{"type", "path"}})
	name := c.choice(v.Get("type"), at.Key("type"), "the type of geo", c.knownGeo()...)
	g := &Geo{Type: c.out.GeoTypes[name]}
	if g.Type == nil || slices.Contains(geoShapes(), name) {
		g.Type = &GeoType{Name: name, Shape: name}
	}

	if v.Get("path").IsMissing() {
		return g
	}

	// A path to one place in the event's own data: an aggregate's place depends on the event alone.
	before := c.Errors()
	tick.CompilePath(v.Get("path"), at.Key("path"), "the path of geo", tick.Scope{Members: []string{"data"}}, c.List)
	if c.Errors() > before {
		return g
	}
	p, err := jsonpath.Parse(v.Get("path").Str())
	if err != nil || len(p.Steps) == 0 || p.Entries {
		c.Report(at.Key("path"), badGeoPath, v.Get("path").Str())
		return g
	}
	g.Steps = p.Steps[1:]
	g.Where = "data" + jsonpath.StepsText(g.Steps)
	return g
}

// places finds out which kinds of places the aggregates of a type have.
func (c *typeCompiler) places(t *AggregateType) {
	sums := map[string][]byte{}
	types := map[string]*GeoType{}
	for _, name := range slices.Sorted(maps.Keys(t.Events)) {
		g := t.Events[name].Geo
		if g == nil {
			continue
		}
		key := g.Type.Name
		if types[key] == nil {
			types[key] = g.Type
			sums[key] = append([]byte{placeSemantics}, g.Type.Shape...)
			for _, p := range g.Type.Properties {
				sums[key] = value.AppendString(sums[key], p)
			}
		}
		sums[key] = value.AppendString(value.AppendString(sums[key], name), g.Where)
		sums[key] = append(sums[key], t.Events[name].upcasts()...)
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		t.Places = append(t.Places, &Place{Type: types[name], Fingerprint: sha256.Sum256(sums[name])})
	}
}
