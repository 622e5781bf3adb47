package lint

import (
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
	"j17/internal/lang/spec"
)

// placePath warns of a path to a place where the schema of the event's data allows nothing, or neither a place nor
// null, which means no place.
func (l *linter) placePath(g *spec.Geo, path value.Value, schema outline.Schema, at diag.Pointer) {
	if g == nil || g.Where == "" {
		return
	}
	l.dataPaths(path, schema, at)
	needs := outline.Object
	k := schema.Follow(g.Steps).Kinds()
	if k == outline.Null {
		return
	}
	if g.Type.Shape == spec.Polygon {
		needs |= outline.Array
	}
	switch at, of := at, []outline.Schema{schema.Follow(g.Steps)}; {
	case k&needs == 0:
		l.Report(at, pathOfKind, path.Str(), needs.Phrase(), known(k))
	case g.Type.Shape == spec.Point && !l.canBePoint(of):
		l.Report(at, neverPlace, path.Str(), map[string]string{"point": "a point", "area": "an area"}["point"], `{"lat": number, "lng": number}, or GeoJSON's {"type": "Point", "coordinates": array}`)
	case g.Type.Shape == spec.Polygon && !l.canBeArea(of):
		l.Report(at, neverPlace, path.Str(), map[string]string{"point": "a point", "area": "an area"}["area"], `an array of {"lat": number, "lng": number}, or GeoJSON's {"type": "Polygon", "coordinates": array}`)
	}
}

// placeMember is a member that a place has to have, with one of some texts as its value if there are any; a member of
// no kind must not be there.
type placeMember struct {
	name  string
	kinds outline.Kinds
	texts []string
}

// canBePoint reports whether schemas that hold together let some point through.
func (l *linter) canBePoint(schemas []outline.Schema) bool {
	return l.canHave(schemas, placeMember{"lat", outline.Number, nil}, placeMember{"lng", outline.Number, nil}) ||
		l.canBeGeoJSON(schemas, []string{"Point"}, placeMember{name: "lat"}, placeMember{name: "lng"})
}

// canBeArea reports whether schemas that hold together let some area through.
func (l *linter) canBeArea(schemas []outline.Schema) bool {
	if l.canBeGeoJSON(schemas, []string{"Polygon", "MultiPolygon"}) {
		return true
	}
	ways, ok := l.alternatives(schemas)
	return !ok || slices.ContainsFunc(ways, func(way outline.Alternative) bool {
		return way.Kinds()&outline.Array != 0 && l.canBePoint(way.Item(0))
	})
}

func (l *linter) canBeGeoJSON(schemas []outline.Schema, types []string, others ...placeMember) bool {
	return l.canHave(schemas, append(others, placeMember{"type", outline.String, types}, placeMember{
		"coordinates", outline.Array, nil,
	})...)
}

// canHave reports whether schemas that hold together let an object with all of these members through.
func (l *linter) canHave(schemas []outline.Schema, members ...placeMember) bool {
	ways, ok := l.alternatives(schemas)
	return !ok || slices.ContainsFunc(ways, func(way outline.Alternative) bool {
		return way.Kinds()&way.ValueKinds()&outline.Object != 0 &&
			!slices.ContainsFunc(members, func(m placeMember) bool { return !l.canBeMember(way, m) })
	})
}

// canBeMember reports whether one way through schemas lets a member be there.
func (l *linter) canBeMember(way outline.Alternative, m placeMember) bool {
	if m.kinds == 0 {
		return !slices.ContainsFunc(way, func(s outline.Schema) bool {
			return slices.ContainsFunc(
				s.Get("required").Elems(), func(name value.Value) bool { return name.Str() == m.name },
			)
		})
	}
	if slices.ContainsFunc(way, func(s outline.Schema) bool { return s.Closed() && s.Property(m.name).IsMissing() }) {
		return false
	}
	ways, ok := l.alternatives(declared(way, m.name))
	return !ok || slices.ContainsFunc(ways, func(way outline.Alternative) bool {
		other := func(s outline.Schema) bool { // its choices are all others
			values, limited := s.Values()
			return limited && m.texts != nil &&
				!slices.ContainsFunc(values, func(v value.Value) bool { return slices.Contains(m.texts, v.Str()) })
		}
		return way.Kinds()&way.ValueKinds()&m.kinds != 0 && !slices.ContainsFunc(way, other)
	})
}
