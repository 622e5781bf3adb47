package outline

import (
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// MemberPath appends a member to a path that starts with "data", as messages have it.
func MemberPath(path, name string) string {
	const letters, others = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789_-"
	if name != "" && len(name) <= 64 && strings.IndexByte(letters, name[0]) >= 0 &&
		strings.Trim(name, letters+others) == "" {
		return path + "." + name
	}
	return path + "[" + diag.Quote(name) + "]"
}

// ElementPath appends an element to such a path.
func ElementPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// Contained reports whether each of some values is among others.
func Contained(values, in []value.Value) bool {
	texts := make(map[string]bool, len(in))
	var others []value.Value
	for _, w := range in {
		if w.Kind() == value.String {
			texts[w.Str()] = true
		} else {
			others = append(others, w)
		}
	}
	for _, v := range values {
		found := texts[v.Str()] && v.Kind() == value.String
		if v.Kind() != value.String {
			found = slices.ContainsFunc(others, func(w value.Value) bool { return value.Equal(v, w) })
		}
		if !found {
			return false
		}
	}
	return true
}
