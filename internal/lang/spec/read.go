package spec

import (
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// shape says which keys an object of a spec may have. what names the object with its article.
type shape struct {
	what     string
	required []string
	optional []string
	// refused are keys that have an error of their own.
	refused []string
}

// object reports whether v is an object. It adds errors for keys that are unknown or missing.
func (c *compiler) object(v value.Value, at diag.Pointer, s shape) bool {
	if v.Kind() != value.Object {
		c.wrongKind(at, s.what, value.Object, v.Kind())
		return false
	}
	known := slices.Concat(s.required, s.optional)
	var misspelt []string
	for _, m := range v.Members() {
		if slices.Contains(known, m.Key) || slices.Contains(s.refused, m.Key) {
			continue
		}
		if near := c.Nearest(m.Key, known); near != "" {
			misspelt = append(misspelt, near)
		}
		c.UnknownKey(at, m.Key, known)
	}
	for _, key := range s.required {
		// Who misspells a key does not need to hear that it is missing.
		if v.Get(key).IsMissing() && !slices.Contains(misspelt, key) {
			c.missingKey(at, s.what, key)
		}
	}
	return true
}

// members calls f for each member of the object v, up to a limit. A missing v has none.
func (c *compiler) members(v value.Value, at diag.Pointer, what string, limit int, f func(key string, v value.Value, at diag.Pointer)) {
	if v.IsMissing() {
		return
	}
	if v.Kind() != value.Object {
		c.notByName(at, what, v.Kind())
		return
	}
	if v.Len() > limit {
		c.Report(at, tooMany, what, limit, v.Len())
		return
	}
	for _, m := range v.Members() {
		f(m.Key, m.Value, at.Key(m.Key))
	}
}

// elems calls f for each element of the array v, up to a limit. A missing v has none.
func (c *compiler) elems(v value.Value, at diag.Pointer, what string, limit int, f func(i int, v value.Value, at diag.Pointer)) {
	if v.IsMissing() {
		return
	}
	if v.Kind() != value.Array {
		c.wrongKind(at, what, value.Array, v.Kind())
		return
	}
	if v.Len() > limit {
		c.Report(at, tooMany, what, limit, v.Len())
		return
	}
	for i, e := range v.Elems() {
		f(i, e, at.Index(i))
	}
}

// text returns a string that is not empty.
func (c *compiler) text(v value.Value, at diag.Pointer, what string) (string, bool) {
	switch {
	case v.IsMissing():
		return "", false
	case v.Kind() != value.String:
		c.wrongKind(at, what, value.String, v.Kind())
		return "", false
	case v.Str() == "":
		c.Report(at, empty, what)
		return "", false
	case len(v.Str()) > maxText:
		c.Report(at, tooLong, what, maxText)
		return "", false
	default:
		return v.Str(), true
	}
}

// flag returns a boolean, false where v is missing.
func (c *compiler) flag(v value.Value, at diag.Pointer, what string) bool {
	if !v.IsMissing() && v.Kind() != value.Bool {
		c.wrongKind(at, what, value.Bool, v.Kind())
	}
	return v.Truth()
}

// integer returns a whole number from 1 to most, or fallback where v is missing or wrong.
func (c *compiler) integer(v value.Value, at diag.Pointer, what string, most, fallback int64) int64 {
	if v.IsMissing() {
		return fallback
	}
	n, ok := v.Int64()
	if v.Kind() != value.Number || !ok || n < 1 || n > most {
		c.Report(at, notInRange, what, most)
		return fallback
	}
	return n
}

// choice returns one of the given words, the first where v is missing or wrong.
func (c *compiler) choice(v value.Value, at diag.Pointer, what string, words ...string) string {
	s, ok := c.text(v, at, what)
	if !ok {
		return words[0]
	}
	if !slices.Contains(words, s) {
		c.notOneOf(at, what, s, words)
		return words[0]
	}
	return s
}

// name reports whether s can be declared as a name: it can stand in a URL and in JSON as it is.
func (c *compiler) name(s string, at diag.Pointer, what string) bool {
	if isName(s) {
		return true
	}
	c.badName(at, what, s)
	return false
}

func isName(s string) bool {
	for i := range len(s) {
		b := s[i]
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789_-", rune(b))) {
			return false
		}
	}
	return s != "" && len(s) <= MaxNameLength
}

// isPath reports whether a name is that of a path of every server, where an aggregate type of that name could not be reached.
func isPath(name string) bool { return name == "internal" || name == "livez" || name == "readyz" }

// names reads an array of distinct names.
func (c *compiler) names(v value.Value, at diag.Pointer, what, each string, accept func(name string, at diag.Pointer) bool) NameSet {
	found := NameSet{}
	c.elems(v, at, what, maxNames, func(_ int, v value.Value, at diag.Pointer) {
		s, ok := c.text(v, at, each)
		if !ok || !accept(s, at) {
			return
		}
		if found.Has(s) {
			c.Report(at, listedTwice, s, what)
		}
		found[s] = struct{}{}
	})
	return found
}
