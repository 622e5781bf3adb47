package wire

import "strings"

// SplitList takes a list apart whose elements have commas between them. In an element a comma and a backslash have a
// backslash before them; before anything else a backslash is one.
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

// JoinList makes a list that SplitList takes apart.
func JoinList(elems []string) string {
	escaped := make([]string, len(elems))
	for i, elem := range elems {
		escaped[i] = strings.ReplaceAll(strings.ReplaceAll(elem, `\`, `\\`), ",", `\,`)
	}
	return strings.Join(escaped, ",")
}
