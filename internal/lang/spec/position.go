package spec

import (
	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// Position returns line and column, both from 1, of what a pointer leads to in the text that the spec was compiled from.
// A pointer that leads nowhere has the place of the deepest container on its way.
func (c *Compiled) Position(p diag.Pointer) (line, column int) {
	at, _ := value.Locate(c.text, string(p))
	return value.Position(c.text, at.Start)
}
