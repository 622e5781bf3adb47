package spec

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"j17/internal/spec/diag"
)

// place finds out line and column of every finding in one walk over the text, which must be valid JSON, and puts the
// findings into the order of their places.
func place(text string, found []diag.Diagnostic) []diag.Diagnostic {
	if len(found) == 0 {
		return nil
	}
	w := walker{text: text, dec: json.NewDecoder(strings.NewReader(text)), offsets: make([]int, len(found))}
	w.dec.UseNumber()
	var root wanted
	for i := range found {
		n := &root
		for _, step := range found[i].Pointer.Steps() {
			n = n.child(step)
		}
		n.found = append(n.found, i)
	}
	w.value(&root, found, w.next())

	order := make([]int, len(found))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(w.offsets[a], w.offsets[b]) })
	placed := make([]diag.Diagnostic, len(found))
	line, column, at := 1, 1, 0
	for i, from := range order {
		for at < w.offsets[from] {
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

// wanted is a tree of the pointers that are looked for.
type wanted struct {
	// found holds the numbers of the findings at this place.
	found    []int
	children map[string]*wanted
}

func (n *wanted) child(step string) *wanted {
	c := n.children[step]
	if c == nil {
		c = &wanted{}
		if n.children == nil {
			n.children = map[string]*wanted{}
		}
		n.children[step] = c
	}
	return c
}

type walker struct {
	text    string
	dec     *json.Decoder
	offsets []int
}

// next returns the offset of the next token.
func (w *walker) next() int {
	at := int(w.dec.InputOffset())
	for at < len(w.text) && strings.IndexByte(" \t\r\n,:", w.text[at]) >= 0 {
		at++
	}
	return at
}

// value walks over one value whose key, if it has one, is at offset key. Findings below it that lead nowhere get its
// place.
func (w *walker) value(n *wanted, found []diag.Diagnostic, key int) {
	at := w.next()
	if n != nil {
		w.mark(n, found, key, at)
	}
	token, err := w.dec.Token()
	if err != nil {
		return
	}
	opened, ok := token.(json.Delim)
	if !ok {
		return
	}
	for i := 0; w.dec.More(); i++ {
		var child *wanted
		key := w.next()
		if opened == '{' {
			name, err := w.dec.Token()
			if err != nil {
				return
			}
			if s, ok := name.(string); ok && n != nil {
				child = n.children[s]
			}
		} else if n != nil && len(n.children) > 0 {
			child = n.children[string(diag.Pointer("").Index(i)[1:])]
		}
		w.value(child, found, key)
	}
	_, _ = w.dec.Token() // the closing bracket
}

func (w *walker) mark(n *wanted, found []diag.Diagnostic, key, value int) {
	for _, i := range n.found {
		w.offsets[i] = value
		if found[i].OnKey {
			w.offsets[i] = key
		}
	}
	for _, child := range n.children {
		w.mark(child, found, value, value)
	}
}
