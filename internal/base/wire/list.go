package wire

import "strings"

// SplitList splits a list whose elements have commas between them. In an element, a backslash escapes a comma or a
// backslash; before anything else it stands for itself.
func SplitList(list string) []string {
	var elems []string
	var elem strings.Builder
	for i := 0; i < len(list); i++ {
		switch {
		case list[i] == '\\' && i+1 < len(list) && (list[i+1] == ',' || list[i+1] == '\\'):
			i++
			elem.WriteByte(list[i])
		case list[i] == ',':
			elems = append(elems, elem.String())
			elem.Reset()
		default:
			elem.WriteByte(list[i])
		}
	}
	return append(elems, elem.String())
}

// JoinList makes a list that SplitList splits again.
func JoinList(elems []string) string {
	escaped := make([]string, len(elems))
	for i, elem := range elems {
		escaped[i] = strings.ReplaceAll(strings.ReplaceAll(elem, `\`, `\\`), ",", `\,`)
	}
	return strings.Join(escaped, ",")
}
