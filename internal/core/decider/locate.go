package decider

import (
	"errors"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/geo"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
	"j17/internal/lang/spec"
)

// Location is the location of an aggregate that an event states. The zero Location is nowhere.
type Location struct {
	// Point or Shape is the place, depending on the geo type's shape; both are nil if the event states that it is
	// nowhere.
	Point *geo.Point
	Shape *geo.Shape
	// Cells cover it.
	Cells []geo.Cell
	// Properties are those that the geo type names, missing if it names none.
	Properties value.Value
}

// Locate reads the location in an event's data. It is nil if there is none: the aggregate then stays where it was. The
// error is a *geo.Fault.
func Locate(g *spec.Geo, data value.Value) (*Location, error) {
	v := data.At(g.Steps)
	switch v.Kind() {
	case value.Missing:
		return nil, nil
	case value.Null:
		return &Location{}, nil
	case value.Bool, value.Number, value.String, value.Array, value.Object:
	}

	// Allocate all of a point at once.
	at := &struct {
		Location
		point geo.Point
		cell  [1]geo.Cell
	}{}
	l := &at.Location
	if g.Type.Shape == spec.Point {
		p, err := geo.ReadPoint(v)
		if err != nil {
			return nil, err
		}
		at.point, at.cell[0] = p, p.Cell()
		l.Point, l.Cells = &at.point, at.cell[:]
	} else {
		s, err := geo.ReadShape(v)
		if err != nil {
			return nil, err
		}
		l.Shape, l.Cells = s, s.Cells()
	}

	// Properties are next to the location or in it.
	if len(g.Type.Properties) > 0 {
		members := make([]value.Member, len(g.Type.Properties))
		for i, name := range g.Type.Properties {
			of := v.Get(name)
			if of.IsMissing() {
				of = data.Get(name)
			}
			members[i] = value.Member{Key: name, Value: of.OrNull()}
		}
		l.Properties = value.ObjectValue(members...)
	}
	return l, nil
}

// workOfNumber is the cost of one number of a location, in units of work. A vertex has two.
const workOfNumber = 20

// locate reads the location of an event whose data fit the schema. A wrong location is an error like that of wrong
// data.
func (o *Event) locate(b *work.Budget) error {
	g := o.Spec.Geo
	if g == nil {
		return nil
	}
	at := o.Data.At(g.Steps)
	if k := at.Kind(); k == value.Array || k == value.Object {
		if !b.Start(work.Place, 1, 0) || !b.Spend(workOfNumber*at.Weight().Values) {
			return b.Err()
		}
	}
	var err error
	o.Place, err = Locate(g, o.Data)
	fault, ok := errors.AsType[*geo.Fault](err)
	if !ok {
		return err
	}
	path := j17.JoinPath(g.Where, fault.Path)
	e := j17.Errorf(j17.CodeSchemaViolation, "Event data failed schema validation: %s", fault.Message).At(path)
	e.Details = schemaDetails{
		Field: strings.TrimPrefix(path, "data."), Constraint: "geo", Expected: value.StringValue(g.Type.Name),
		Received: schema.Abridged(member(at, fault.Path)),
	}
	e.Errors = []j17.FieldError{{Pointer: pointer(g.Steps, fault), Message: fault.Message}}
	return e
}

// member returns the value at the path of a fault.
func member(v value.Value, path string) value.Value {
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		if i, err := strconv.Atoi(part); err == nil {
			v = v.Index(i)
		} else {
			v = v.Get(part)
		}
	}
	return v
}

// pointer returns the JSON pointer of a fault in the value that steps lead to from an event's data.
func pointer(steps []value.Step, f *geo.Fault) string {
	at := diag.Pointer("/data")
	for _, step := range steps {
		if step.IsIndex {
			at = at.Index(step.Index)
		} else {
			at = at.Key(step.Key)
		}
	}
	if f.Path == "" {
		return string(at)
	}
	return string(at) + "/" + strings.NewReplacer(".", "/", "][", "/", "[", "/", "]", "").Replace(
		strings.TrimPrefix(f.Path, "["),
	)
}
