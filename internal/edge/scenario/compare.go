package scenario

import (
	"fmt"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// difference is a place where a value is not as expected. Both sides are described by JSON or in words.
type difference struct {
	at            diag.Pointer
	expected, got string
}

// Matchers that may stand in the place of a value that is expected.
const (
	matchAbsent = "$absent"
	matchAny    = "$any"
)

// maxShown bounds the JSON that is shown of a value.
const maxShown = 400

// differences compares a value with an expectation. Numbers compare by value. Members that are not expected are
// ignored, unless exact; arrays have to have the same length.
func differences(expected, got value.Value, at diag.Pointer, exact bool) []difference {
	if expected.Kind() == value.Object && expected.Len() == 1 {
		// The two words that stand for no value and for any.
		switch m := expected.Members()[0]; {
		case m.Key == matchAbsent && m.Value.Truth():
			if got.IsMissing() {
				return nil
			}
			return []difference{{at, "nothing", shown(got)}}
		case m.Key == matchAny && m.Value.Truth():
			if !got.IsMissing() {
				return nil
			}
			return []difference{{at, "any value", ""}}
		}
	}

	if expected.Kind() != got.Kind() {
		return []difference{{at, shown(expected), shown(got)}}
	}

	// Containers are compared part by part.
	switch expected.Kind() {
	case value.Object:
		return members(expected, got, at, exact)
	case value.Array:
		if expected.Len() != got.Len() {
			return []difference{{
				at, fmt.Sprintf("%d elements: %s", expected.Len(), shown(expected)),
				fmt.Sprintf("%d: %s", got.Len(), shown(got)),
			}}
		}
		var all []difference
		for i, e := range expected.Elems() {
			all = append(all, differences(e, got.Index(i), at.Index(i), exact)...)
		}
		return all
	case value.Missing, value.Null, value.Bool, value.Number, value.String:
	}

	if value.Equal(expected, got) {
		return nil
	}
	return []difference{{at, shown(expected), shown(got)}}
}

func members(expected, got value.Value, at diag.Pointer, exact bool) []difference {
	var all []difference
	for _, m := range expected.Members() {
		all = append(all, differences(m.Value, got.Get(m.Key), at.Key(m.Key), exact)...)
	}
	if !exact {
		return all
	}
	for _, m := range got.Members() {
		if expected.Get(m.Key).IsMissing() {
			all = append(all, difference{at.Key(m.Key), "nothing", shown(m.Value)})
		}
	}
	return all
}

// shown is a value as JSON, cut where it is long.
func shown(v value.Value) string {
	if v.IsMissing() {
		return ""
	}
	s := []rune(v.String())
	if len(s) > maxShown {
		return string(s[:maxShown]) + "…"
	}
	return string(s)
}
