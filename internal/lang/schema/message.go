package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"j17"
	"j17/internal/base/value"
)

// withArticle is the name of a type with its article.
func withArticle(name string) string {
	switch name {
	case "null", "missing":
		return name
	case "array", "integer", "object":
		return "an " + name
	default:
		return "a " + name
	}
}

func kindName(k value.Kind) string { return withArticle(k.String()) }

// kindPhrase names the type of a value and, where that is short, the value.
func kindPhrase(v value.Value) string {
	if v.Kind() == value.Bool || v.Kind() == value.Number {
		return kindName(v.Kind()) + " (" + shortened(v) + ")"
	}
	return kindName(v.Kind())
}

// shortTexts is the number of characters of a value that a message shows.
const shortTexts = 60

// shortened is a value as a message shows it. It takes no more work for a large value than for a small one.
func shortened(v value.Value) string {
	switch v.Kind() {
	case value.Array, value.Object:
		if !small(v) {
			return kindName(v.Kind())
		}
		s := v.String()
		if utf8.RuneCountInString(s) > shortTexts {
			return kindName(v.Kind())
		}
		return s
	case value.String:
		quoted := value.StringValue(firstRunes(v.Str(), shortTexts+1)).String()
		if utf8.RuneCountInString(quoted) <= shortTexts {
			return quoted
		}
		return firstRunes(quoted, shortTexts) + `..."`
	case value.Number:
		if s := v.Num(); len(s) > shortTexts {
			return s[:shortTexts] + "..."
		}
	case value.Missing, value.Null, value.Bool:
	}
	return v.String()
}

// small reports whether the text of a value could be short enough for a message.
func small(v value.Value) bool {
	return v.AtMost(largestShown)
}

// largestShown is more bytes than any value has whose text a message or a Failure may show.
const largestShown = 2048

func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// Limits of what a Failure carries of a value.
const (
	maxTextShown   = 200
	maxValuesShown = 20
	maxNestedShown = 4
)

// Abridged is v as a Failure carries it: long texts cut, large containers reduced to the name of their type.
func Abridged(v value.Value) value.Value {
	switch v.Kind() {
	case value.String:
		if s := v.Str(); len(s) > maxTextShown && utf8.RuneCountInString(s) > maxTextShown {
			return value.StringValue(firstRunes(s, maxTextShown) + "...")
		}
	case value.Number:
		if s := v.Num(); len(s) > maxTextShown {
			return value.StringValue(s[:maxTextShown] + "...")
		}
	case value.Array, value.Object:
		if !v.Within(maxNestedShown, maxValuesShown) || !small(v) || len(v.String()) > maxTextShown {
			return value.StringValue(v.Kind().String())
		}
	case value.Missing, value.Null, value.Bool:
	}
	return v
}

// abridgedList is a list of what is allowed as a Failure carries it.
func abridgedList(values []value.Value) value.Value {
	shown := make([]value.Value, 0, min(len(values), maxValuesShown))
	for _, v := range values[:min(len(values), maxValuesShown)] {
		shown = append(shown, Abridged(v))
	}
	return value.ArrayValue(shown...)
}

// choice joins words: "a", "a or b", "a, b or c". It says of how many more values there are no words.
func choice(words []string, more int) string {
	if more > 0 {
		words = append(slices.Clip(words), strconv.Itoa(more)+" other values")
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func typeMessage(t typeSet, v value.Value) string {
	return fmt.Sprintf("The value must be %s, but it is %s.", choice(t.phrases(), 0), kindPhrase(v))
}

// names lists the types of a set as a schema writes them, null last.
func (t typeSet) names() []string {
	var out []string
	for _, name := range typeNames() {
		if t&typeOf(name) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// phrases names the types of a set with their articles.
func (t typeSet) phrases() []string {
	out := t.names()
	for i, name := range out {
		out[i] = withArticle(name)
	}
	return out
}

// value is a set of types as a schema writes it.
func (t typeSet) value() value.Value {
	names := t.names()
	if len(names) == 1 {
		return value.StringValue(names[0])
	}
	values := make([]value.Value, len(names))
	for i, name := range names {
		values[i] = value.StringValue(name)
	}
	return value.ArrayValue(values...)
}

func enumMessage(e *enumRule) string {
	words := make([]string, min(len(e.values), maxValuesShown))
	for i := range words {
		words[i] = shortened(e.values[i])
	}
	switch len(words) {
	case 0:
		return "No value is allowed here."
	case 1:
		return "The value must be " + words[0] + "."
	default:
		return "The value must be one of " + choice(words, len(e.values)-len(words)) + "."
	}
}

func boundMessage(demand string, bound, v value.Value) string {
	return fmt.Sprintf("The number must be %s %s, but it is %s.", demand, shortened(bound), shortened(v))
}

// sizeMessage says that something has too few or too many parts.
func sizeMessage(subject, noun string, least bool, bound, n int) string {
	demand := "at most"
	if least {
		demand = "at least"
	}
	return fmt.Sprintf("The %s must have %s %s, but it has %d.", subject, demand, j17.Count(bound, noun), n)
}
