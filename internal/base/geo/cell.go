package geo

import (
	"math"
	"strconv"

	"github.com/golang/geo/s1"
	"github.com/golang/geo/s2"
)

// Cell is a square of the sphere. The cells in it are its quarters and theirs, down to some square centimetres. Cells
// have names whose order is that of a line which fills the sphere: what is in a cell is a range of names.
type Cell struct{ id s2.CellID }

// World returns the six cells that are everything.
func World() []Cell {
	all := make([]Cell, 6)
	for face := range all {
		all[face] = Cell{s2.CellIDFromFace(face)}
	}
	return all
}

// NameDigits is the length of a cell's name.
const NameDigits = 16

// Name returns the name of the cell.
func (c Cell) Name() string { return name(uint64(c.id)) }

// Range returns the first and the last name of the smallest cells that are in this one.
func (c Cell) Range() (first, last string) {
	return name(uint64(c.id.RangeMin())), name(uint64(c.id.RangeMax()))
}

func name(id uint64) string { return string(appendName(make([]byte, 0, NameDigits), id)) }

// AppendName appends the name of the cell.
func (c Cell) AppendName(dst []byte) []byte { return appendName(dst, uint64(c.id)) }

func appendName(dst []byte, id uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[id>>shift&15])
	}
	return dst
}

// CellNamed returns the cell of that name; false where there is none.
func CellNamed(text string) (Cell, bool) {
	id, err := strconv.ParseUint(text, 16, 64)
	c := Cell{s2.CellID(id)}
	return c, err == nil && len(text) == NameDigits && c.id.IsValid() &&
		string(c.AppendName(make([]byte, 0, NameDigits))) == text
}

// Quarters returns the four cells that the cell is made of, none for one of the smallest.
func (c Cell) Quarters() []Cell {
	if c.id.IsLeaf() {
		return nil
	}
	quarters := c.id.Children()
	return []Cell{{quarters[0]}, {quarters[1]}, {quarters[2]}, {quarters[3]}}
}

// MaxAround is how many cells may be around a cell, itself among them.
const MaxAround = s2.MaxLevel + 1

// Around returns the cell and all that it is in, the largest first.
func (c Cell) Around() []Cell {
	all := make([]Cell, 0, MaxAround)
	for level := 0; level < c.id.Level(); level++ {
		all = append(all, Cell{c.id.Parent(level)})
	}
	return append(all, c)
}

// Reach returns bounds of how far what is in the cell is from a point, in metres: nothing is nearer than near, nothing
// farther than far.
func (c Cell) Reach(p Point) (near, far float64) {
	cell, v := s2.CellFromCellID(c.id), p.vector()
	return bound(cell.Distance(v), -1), bound(cell.MaxDistance(v), 1)
}

// bound turns the square of a chord into metres, and rounds well beyond the errors of both. The distance to an edge is
// computed by way of the square of the cosine of its angle: the error grows where that is nearly 0, a quarter of the
// Earth away, to some 40 centimetres, and where it would be less than 0 there is no number at all.
func bound(chord s1.ChordAngle, sign float64) float64 {
	const rounding, least = 2e-14, 1.5e-7
	square := float64(chord)
	if math.IsNaN(square) {
		square = 2
	}
	cos := math.Abs(1 - square/2)
	square = min(4, max(0, square+sign*rounding/max(cos, least)))
	return EarthRadius*2*math.Asin(min(1, math.Sqrt(square)/2)) + sign*1e-3
}
