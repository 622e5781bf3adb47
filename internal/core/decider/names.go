package decider

import (
	"strings"

	"j17/internal/lang/spec"
)

// Named reports whether aggregates of the type have names beside their id.
func Named(typ *spec.AggregateType) bool { return typ.Handle != "" || typ.Sequence }

// PublicID returns the public id with that number.
func (d *Decider) PublicID(number string) string { return d.ProjectKey + "-" + number }

// Number returns the number of a public id in its only spelling. One that is never given out is a number too: it leads
// nowhere.
func (d *Decider) Number(id string) (string, bool) {
	key, number, ok := strings.Cut(id, "-")
	if !ok || d.ProjectKey == "" || key != d.ProjectKey || number == "" || number[0] == '0' && number != "0" {
		return "", false
	}
	return number, !strings.ContainsFunc(number, func(r rune) bool { return r < '0' || r > '9' })
}
