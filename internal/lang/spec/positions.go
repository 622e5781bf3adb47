package spec

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// Placed returns findings about the spec with line and column, in the order of their places.
func (c *Compiled) Placed(found []diag.Diagnostic) []diag.Diagnostic { return place(c.text, found) }

// place finds out line and column of every finding in one walk over the text, which must be valid JSON, and puts the
// findings into the order of their places.
func place(text string, found []diag.Diagnostic) []diag.Diagnostic {
	if len(found) == 0 {
		return nil
	}

	// Where each finding is in the text.
	pointers := make([]string, len(found))
	for i := range found {
		pointers[i] = string(found[i].Pointer)
	}
	places := value.LocateAll(text, pointers)
	offsets := make([]int, len(found))
	for i, p := range places {
		offsets[i] = p.Start
		if found[i].OnKey && p.Exact {
			offsets[i] = p.Key
		}
	}

	// In the order of the text, which is walked through once for lines and columns.
	order := make([]int, len(found))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(offsets[a], offsets[b]) })
	placed := make([]diag.Diagnostic, len(found))
	line, column, at := 1, 1, 0
	for i, from := range order {
		for at < offsets[from] {
			if text[at] == '\n' {
				line, column, at = line+1, 1, at+1
				continue
			}
			_, size := utf8.DecodeRuneInString(text[at:])
			column, at = column+1, at+size
		}
		placed[i] = found[from]
		placed[i].Line, placed[i].Column = line, column
	}
	return placed
}

// Position returns line and column, both from 1, of what a pointer leads to in the text that the spec was compiled
// from. A pointer that leads nowhere has the place of the deepest container on its way.
func (c *Compiled) Position(p diag.Pointer) (line, column int) {
	at, _ := value.Locate(c.text, string(p))
	return value.Position(c.text, at.Start)
}
