package spec

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

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
