// Package ident holds the one rule of what counts as an identifier, whether it names an aggregate, an actor or a
// target; it brings identifiers into canonical form at the edge, and it mints ids of its own: UUIDs, humane codes
// and handles from one prefix registry.
package ident

import (
	"errors"
	"fmt"
	"strings"

	"j17"
)

// Kind is the form that an identifier has.
type Kind uint8

// The kinds of identifiers. The zero Kind belongs to what is no identifier.
const (
	// UUID is 8-4-4-4-12 lower-case hexadecimal digits of an accepted version.
	UUID Kind = iota + 1
	// HumaneCode is 9 characters of Crockford's base 32, fit to be typed and read aloud.
	HumaneCode
	// Singleton is "global" or a name that the spec declares.
	Singleton
	// TaggedUUID is a UUID, a colon and a tag of 1 to 10 lower-case letters and digits.
	TaggedUUID
)

// Global is the singleton that every aggregate type has without declaring it.
const Global = "global"

// MaxSingletonLength is the number of characters that the name of a singleton may have.
const MaxSingletonLength = 64

const (
	uuidLength   = 36
	humaneLength = 9
	maxTagLength = 10

	// versionAt and variantAt are the places of a UUID's version and variant digits.
	versionAt = 14
	variantAt = 19
)

// Rules decides what is an identifier under one spec. It is immutable and safe for concurrent use.
type Rules struct {
	// versions has bit v set when UUIDs of version v are accepted.
	versions   uint16
	singletons map[string]struct{}
	// lengths reports for each length whether a singleton has it, which spares most look-ups.
	lengths [MaxSingletonLength + 1]bool
}

// NewRules returns the rules of a spec that accepts the given UUID versions and declares the given singletons
// beside "global". Without versions, 4 and 5 are accepted. The error joins the faults of all entries.
func NewRules(uuidVersions []int, singletons []string) (*Rules, error) {
	if len(uuidVersions) == 0 {
		uuidVersions = []int{4, 5}
	}
	r := &Rules{singletons: make(map[string]struct{}, len(singletons)+1)}
	r.declare(Global)
	var faults []error
	for _, v := range uuidVersions {
		if err := CheckUUIDVersion(v); err != nil {
			faults = append(faults, err)
			continue
		}
		r.versions |= 1 << v
	}
	for _, name := range singletons {
		if err := CheckSingletonName(name); err != nil {
			faults = append(faults, err)
			continue
		}
		r.declare(name)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return r, nil
}

func (r *Rules) declare(singleton string) {
	r.singletons[singleton] = struct{}{}
	r.lengths[len(singleton)] = true
}

// CheckUUIDVersion reports whether a spec may accept UUIDs of version v.
func CheckUUIDVersion(v int) error {
	if v < 1 || v > 8 {
		return fmt.Errorf("there are no UUIDs of version %d; versions run from 1 to 8", v)
	}
	return nil
}

// CheckSingletonName reports whether a spec may declare name as a singleton. A name goes into URLs and stored
// events as it is, hence the small alphabet; a leading underscore is kept for routes of our own.
func CheckSingletonName(name string) error {
	switch {
	case name == "":
		return errors.New("a singleton needs a name of at least one character")
	case len(name) > MaxSingletonLength:
		return fmt.Errorf("the singleton name %s is longer than %d characters", quote(name), MaxSingletonLength)
	case name == "." || name == "..":
		return fmt.Errorf("a singleton cannot be named %q, because URLs give that a meaning of their own", name)
	case name[0] == '_':
		return fmt.Errorf("the singleton name %q starts with an underscore, which is reserved", name)
	}
	for _, c := range name {
		if !isAlphanumeric(c) && !strings.ContainsRune("_-.~", c) {
			return fmt.Errorf("the singleton name %s contains %q; use letters, digits and underscores", quote(name), c)
		}
	}
	return nil
}

// IsSingleton reports whether s is exactly "global" or a declared singleton.
func (r *Rules) IsSingleton(s string) bool {
	if len(s) > MaxSingletonLength || !r.lengths[len(s)] {
		return false
	}
	_, ok := r.singletons[s]
	return ok
}

// Normalize brings an identifier into canonical form: UUIDs, also before a tag, in lower case; humane codes in
// upper case with I and L read as 1, O as 0 and U as V. Everything else, and what is exactly a singleton, comes back
// unchanged. Normalizing twice is the same as normalizing once.
func (r *Rules) Normalize(s string) string {
	if r.IsSingleton(s) {
		return s
	}
	switch {
	case len(s) == humaneLength:
		return foldHumane(s)
	case isTaggedLength(s) && s[uuidLength] == ':', len(s) == uuidLength:
		if ok, lower := scanUUID(s); ok && !lower {
			return strings.ToLower(s[:uuidLength]) + s[uuidLength:]
		}
	}
	return s
}

// Check normalizes s and returns its canonical form and kind. A canonical UUID is checked without allocation. The
// error is a *j17.Error of CodeInvalidIdentifier without a path; it says what is wrong with s and what is accepted.
func (r *Rules) Check(s string) (canonical string, kind Kind, err error) {
	if len(s) == uuidLength && !r.lengths[uuidLength] {
		if ok, lower := scanUUID(s); ok && lower && r.acceptsUUID(s) {
			return s, UUID, nil
		}
	}
	c := r.Normalize(s)
	if kind := r.kindOf(c); kind != 0 {
		return c, kind, nil
	}
	return "", 0, j17.Errorf(j17.CodeInvalidIdentifier, "%s %s", r.fault(s), r.accepted())
}

// kindOf returns the kind of an identifier in canonical form, 0 for anything else.
func (r *Rules) kindOf(s string) Kind {
	switch {
	case r.IsSingleton(s):
		return Singleton
	case len(s) == humaneLength:
		for i := range len(s) {
			if !isHumane(s[i]) {
				return 0
			}
		}
		return HumaneCode
	case len(s) == uuidLength || isTaggedLength(s) && s[uuidLength] == ':':
		if ok, lower := scanUUID(s); !ok || !lower || !r.acceptsUUID(s) {
			return 0
		}
		if len(s) == uuidLength {
			return UUID
		}
		if !isTag(s[uuidLength+1:]) {
			return 0
		}
		return TaggedUUID
	default:
		return 0
	}
}

// acceptsUUID reports whether version and variant of the lower-case UUID that s starts with are accepted.
func (r *Rules) acceptsUUID(s string) bool {
	v := s[versionAt] - '0'
	return v <= 8 && r.versions&(1<<v) != 0 && hasVariant(s)
}

// hasVariant reports whether the UUID that s starts with is laid out as RFC 9562 says.
func hasVariant(s string) bool {
	switch s[variantAt] {
	case '8', '9', 'a', 'b', 'A', 'B':
		return true
	default:
		return false
	}
}

// scanUUID reports whether the first 36 bytes of s, which must exist, have the shape of a UUID of any version, and
// whether they are free of upper-case digits.
func scanUUID(s string) (ok, lower bool) {
	lower = true
	for i := range uuidLength {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false, false
			}
			continue
		}
		switch {
		case c-'0' <= 9, c-'a' <= 5:
		case c-'A' <= 5:
			lower = false
		default:
			return false, false
		}
	}
	return true, lower
}

// isTaggedLength reports whether s is long enough for a UUID and a colon and not too long for any tag.
func isTaggedLength(s string) bool {
	return len(s) > uuidLength && len(s) <= uuidLength+1+maxTagLength
}

func isTag(s string) bool {
	if s == "" || len(s) > maxTagLength {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c-'0' > 9 && c-'a' > 25 {
			return false
		}
	}
	return true
}

// isHumane reports whether c belongs to Crockford's alphabet.
func isHumane(c byte) bool {
	switch c {
	case 'I', 'L', 'O', 'U':
		return false
	default:
		return c-'0' <= 9 || c-'A' <= 25
	}
}

// foldHumane reads 9 letters and digits as a humane code; it returns s as it is when there is anything else in it.
func foldHumane(s string) string {
	canonical := true
	for i := range humaneLength {
		if isHumane(s[i]) {
			continue
		}
		if !isAlphanumeric(rune(s[i])) {
			return s
		}
		canonical = false
	}
	if canonical {
		return s
	}
	var code [humaneLength]byte
	for i := range code {
		c := s[i]
		if c-'a' <= 25 {
			c -= 'a' - 'A'
		}
		switch c {
		case 'I', 'L':
			c = '1'
		case 'O':
			c = '0'
		case 'U':
			c = 'V'
		}
		code[i] = c
	}
	return string(code[:])
}

func isAlphanumeric(c rune) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
