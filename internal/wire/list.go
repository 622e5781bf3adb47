package wire

import "strings"

// SplitList takes a list apart whose elements have commas between them. A comma in an element has a backslash before it.
func SplitList(list string) []string {
	var elems []string
	var elem strings.Builder
	for i := 0; i < len(list); i++ {
		switch {
		case list[i] == '\\' && i+1 < len(list) && list[i+1] == ',':
			elem.WriteByte(',')
			i++
		case list[i] == ',':
			elems = append(elems, elem.String())
			elem.Reset()
		default:
			elem.WriteByte(list[i])
		}
	}
	return append(elems, elem.String())
}

// JoinList makes a list that SplitList takes apart. No element ends with a backslash unless it is the last one.
func JoinList(elems []string) string {
	escaped := make([]string, len(elems))
	for i, elem := range elems {
		escaped[i] = strings.ReplaceAll(elem, ",", `\,`)
	}
	return strings.Join(escaped, ",")
}
