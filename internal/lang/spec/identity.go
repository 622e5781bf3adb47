package spec

import (
	"crypto/sha256"
	"slices"
	"strings"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// identityCompiler reads what counts as an identifier, and what aggregates and actors are called.
type identityCompiler struct{ resolver }

// identity reads what counts as an identifier: UUID versions and singletons.
func (c identityCompiler) identity(v value.Value, at diag.Pointer) {
	var versions []int
	if !v.IsMissing() && c.object(v, at, shape{what: "identity", optional: []string{"uuid_versions"}}) {
		versions = c.uuidVersions(v.Get("uuid_versions"), at.Key("uuid_versions"))
	}
	anything, _ := ident.NewRules([]int{1, 2, 3, 4, 5, 6, 7, 8}, nil)
	c.out.Singletons = c.names(c.out.root.Get("singletons"), "/singletons", "singletons", "a singleton",
		func(name string, at diag.Pointer) bool {
			if err := ident.CheckSingletonName(name); err != nil {
				c.Report(at, badSingleton, err)
				return false
			}
			c.singletonWarnings(name, at, anything)
			return name != ident.Global
		})
	// All parts were checked one by one.
	c.out.IDs, _ = ident.NewRules(versions, c.out.Singletons.Sorted())
}

func (c identityCompiler) singletonWarnings(name string, at diag.Pointer, anything *ident.Rules) {
	_, kind, err := anything.Check(name)
	_, handle := ident.ParseHandle(name)
	switch {
	case name == ident.Global:
		c.Report(at, globalDeclared)
	case err == nil && kind == ident.HumaneCode:
		c.Report(at, looksLike, name, "a humane code")
	case err == nil && kind == ident.UUID:
		c.Report(at, looksLike, name, "a UUID")
	case handle == nil:
		c.Report(at, looksLike, name, "a handle")
	case c.out.declared[name] != nil:
		c.Report(at, hiddenByType, name)
	}
}

func (c identityCompiler) uuidVersions(v value.Value, at diag.Pointer) []int {
	var versions []int
	c.elems(v, at, "uuid_versions", 8, func(_ int, v value.Value, at diag.Pointer) {
		n := int(c.integer(v, at, "a UUID version", 8, 0))
		if n != 0 && slices.Contains(versions, n) {
			c.Report(at, versionTwice, n)
		}
		versions = append(versions, n)
	})
	if v.Kind() == value.Array && !slices.Contains(versions, 4) && !slices.Contains(versions, 0) {
		c.Report(at, noVersion4)
	}
	return slices.DeleteFunc(versions, func(n int) bool { return n == 0 })
}

// singletonsApart refuses singletons whose names clash with those that the server gives to aggregates.
func (c identityCompiler) singletonsApart(handles map[ident.Prefix]string, v value.Value, at diag.Pointer) {
	sequenced := false
	for _, t := range c.out.Types {
		sequenced = sequenced || t.Sequence
	}
	for i, name := range v.Elems() {
		prefix, err := ident.ParseHandle(name.Str())
		owner := handles[prefix]
		switch {
		case err == nil && owner != "":
			c.Report(at.Index(i), singletonNamed, name.Str(), "a handle of the type "+diag.Quote(owner))
		case sequenced && err != nil && c.isGivenName(name.Str()):
			c.Report(at.Index(i), singletonNamed, name.Str(), "a public id of this project")
		}
	}
}

func (c identityCompiler) projectKey(v value.Value, at diag.Pointer) string {
	key, ok := c.text(v, at, "project_key")
	if !ok {
		return ""
	}
	bad := func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '0' || r > '9') }
	if len(key) < 2 || len(key) > 10 || strings.ContainsFunc(key, bad) || key[0] < 'A' {
		c.Report(at, badProjectKey, key)
	}
	return key
}

func (c identityCompiler) agentTypes(v value.Value, at diag.Pointer) NameSet {
	if v.Kind() == value.Array && v.Len() == 0 {
		c.Report(at, noAgentTypes)
	}
	return c.names(v, at, "agent_types", "an agent type", func(name string, at diag.Pointer) bool {
		if ident.IsSystemActorType(name) {
			c.Report(at, systemAgentType, name, strings.TrimPrefix(name, "system_"))
			return false
		}
		return c.name(name, at, "an agent type")
	})
}

func (c *typeCompiler) publicIdentity(t *AggregateType, v value.Value, at diag.Pointer) {
	if v.IsMissing() ||
		!c.object(v, at, shape{what: "an aggregate type's identity", optional: []string{"handle", "sequence"}}) {
		return
	}
	if s, ok := c.text(v.Get("handle"), at.Key("handle"), "handle"); ok {
		prefix, err := ident.ParsePrefix(s)
		switch first, taken := c.handles[prefix]; {
		case err != nil:
			c.Report(at.Key("handle"), badHandle, s)
		case taken:
			c.Report(at.Key("handle"), handleTaken, s, first)
		default:
			if slices.Contains(ident.Prefixes(), prefix) {
				c.Report(at.Key("handle"), handleOfOurs, s)
			}
			c.handles[prefix] = t.Name
			t.Handle = prefix
		}
	}
	t.Sequence = c.flag(v.Get("sequence"), at.Key("sequence"), "sequence")
	if t.Sequence && c.out.root.Get("project_key").IsMissing() {
		c.Report(at.Key("sequence"), sequenceWithoutKey)
	}
	if t.Sequence { // replies with a state have the public id
		t.Fingerprint = sha256.Sum256(append(t.Fingerprint[:], c.out.ProjectKey...))
	}
}

// singletonsWithoutPlaces refuses singletons whose paths are those of queries for places.
func (c identityCompiler) singletonsWithoutPlaces(v value.Value, at diag.Pointer) {
	var with []string
	for name, t := range c.out.Types {
		if len(t.Places) > 0 {
			with = append(with, name)
		}
	}
	if len(with) == 0 {
		return
	}
	for i, name := range v.Elems() {
		if slices.Contains(geoPaths(), name.Str()) {
			c.leniently(func() { c.Report(at.Index(i), singletonOverPlaces, name.Str(), slices.Min(with)) })
		}
	}
}
