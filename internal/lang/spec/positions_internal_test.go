//go:build !race

package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// jsonText draws JSON with white space in all places, and the pointers to everything in it.
func jsonText(t *rapid.T) (string, []diag.Pointer) {
	pointers := []diag.Pointer{}
	space := rapid.SampledFrom([]string{"", "", " ", "\n", "\t ü"[:2], "\r\n"})
	key := rapid.SampledFrom([]string{"a", "b", "ü", "a/b", "~", "0", "1", `q\"`, `\u0041`})
	var draw func(at diag.Pointer, depth int) string
	draw = func(at diag.Pointer, depth int) string {
		pointers = append(pointers, at)
		s := space.Draw(t, "space")
		kind := rapid.IntRange(0, 5).Draw(t, "kind")
		n := rapid.IntRange(0, 3).Draw(t, "n")
		switch {
		case kind < 2 && depth > 0:
			text := "{" + s
			seen := map[string]bool{}
			for range n {
				k := key.Draw(t, "key")
				name, err := value.ParseString(`"` + k + `"`)
				if err != nil || seen[name.Str()] {
					continue
				}
				if len(seen) > 0 {
					text += "," + s
				}
				seen[name.Str()] = true
				text += `"` + k + `"` + s + ":" + space.Draw(t, "space") + draw(at.Key(name.Str()), depth-1) + s
			}
			return text + "}"
		case kind < 4 && depth > 0:
			text := "[" + s
			for i := range n {
				if i > 0 {
					text += "," + s
				}
				text += draw(at.Index(i), depth-1) + s
			}
			return text + "]"
		default:
			return rapid.SampledFrom([]string{"1", "-2.5e3", "true", "null", `"x]}\\,\" ü"`, `""`}).Draw(t, "scalar")
		}
	}
	text := space.Draw(t, "space") + draw("", 4) + space.Draw(t, "space")
	return text, pointers
}

// The one walk over the text has to agree with looking each pointer up.
func TestPlacesAgreeWithLocate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, pointers := jsonText(t)
		var found []diag.Diagnostic
		want := map[diag.Diagnostic][2]int{}
		for i, p := range rapid.SliceOfN(rapid.SampledFrom(pointers), 1, 6).Draw(t, "pointers") {
			if rapid.IntRange(0, 3).Draw(t, "astray") == 0 {
				p = p.Key("nowhere").Index(2)
			}
			d := diag.Diagnostic{Pointer: p, OnKey: rapid.Bool().Draw(t, "key"), Message: string(rune('a' + i))}
			found = append(found, d)
			at, ok := value.Locate(text, string(p))
			offset := at.Start
			if d.OnKey && ok {
				offset = at.Key
			}
			line, column := value.Position(text, offset)
			want[d] = [2]int{line, column}
		}
		placed := place(text, found)
		got := map[diag.Diagnostic][2]int{}
		for i, d := range placed {
			if i > 0 && (d.Line < placed[i-1].Line || d.Line == placed[i-1].Line && d.Column < placed[i-1].Column) {
				t.Fatalf("finding %d comes before the one before it", i)
			}
			at := [2]int{d.Line, d.Column}
			d.Line, d.Column = 0, 0
			got[d] = at
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("in %q (-want +got):\n%s", text, diff)
		}
	})
}
