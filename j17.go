// Package j17 is the vocabulary that every other package speaks: environments, keys, stream ids, events,
// principals and errors. It imports the standard library only.
package j17

import (
	"cmp"
	"fmt"
	"strings"
)

// Environment is one of the three data sets that an instance keeps fully apart.
type Environment string

// The environments of every instance.
const (
	Prod    Environment = "prod"
	Staging Environment = "staging"
	Test    Environment = "test"
)

// Environments lists all environments in the order in which they are shown to people.
func Environments() []Environment { return []Environment{Prod, Staging, Test} }

// ParseEnvironment returns the environment that s names.
func ParseEnvironment(s string) (Environment, error) {
	switch e := Environment(s); e {
	case Prod, Staging, Test:
		return e, nil
	default:
		return "", fmt.Errorf("unknown environment %q: want prod, staging or test", s)
	}
}

// Title is the environment's name as the first word of a sentence ("Staging key ...").
func (e Environment) Title() string {
	name := e.LongName()
	if name == "" {
		return ""
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// LongName is the environment's name inside a sentence ("... cannot access production").
func (e Environment) LongName() string {
	if e == Prod {
		return "production"
	}
	return string(e)
}

// Tenant names one isolated data set: an environment of an instance, or the system's own. At most 64 bytes.
type Tenant string

// System is the tenant of the control plane.
const System Tenant = "system"

// TenantOf returns the tenant of one environment of an instance, named by its handle.
func TenantOf(instance string, env Environment) Tenant {
	return Tenant(instance + "/" + string(env))
}

// Siblings returns the tenants of the instance's other environments, none for a tenant that is no environment's.
func (t Tenant) Siblings() (others []Tenant) {
	instance, _, ok := strings.Cut(string(t), "/")
	if !ok {
		return nil
	}
	for _, env := range Environments() {
		if other := TenantOf(instance, env); other != t {
			others = append(others, other)
		}
	}
	return others
}

// Key names one aggregate and the stream of its events: an aggregate type and an id in canonical form.
type Key struct {
	Type string
	ID   string
}

// Compare orders keys by type and then by id.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Type, other.Type), cmp.Compare(k.ID, other.ID))
}

// String returns the key as events carry it: "type:id".
func (k Key) String() string { return k.Type + ":" + k.ID }

// ParseKey splits "type:id" at its first colon. It reports false when there is none or a half is empty.
func ParseKey(s string) (Key, bool) {
	typ, id, ok := strings.Cut(s, ":")
	if !ok || typ == "" || id == "" {
		return Key{}, false
	}
	return Key{Type: typ, ID: id}, true
}

// Names are what an aggregate is called outside beside its id: in replies, URLs and documents. The first event of an
// aggregate takes its names in its own commit, for good.
type Names struct {
	// Handle is "pmt_4k7vx9tz2nqr8w3", "" where the type has no handles.
	Handle string
	// PublicID is "VNO-42", "" where the type has no sequence.
	PublicID string
}

// Agent is an actor or a target: a declared type and an id in canonical form.
type Agent struct {
	Type string
	ID   string
}

// Scope is what an API key may do.
type Scope string

// The scopes of API keys. Write includes Read.
const (
	ScopeRead  Scope = "read"
	ScopeWrite Scope = "write"
)

// PrincipalKind tells what sort of credential a request carried.
type PrincipalKind uint8

// The kinds of principals.
const (
	Anonymous PrincipalKind = iota
	APIKey
	Operator
	Node
)

// Principal is who sends a request, as established by package auth.
type Principal struct {
	Kind PrincipalKind
	// ID is the public handle of the key or operator; empty for nodes.
	ID string
	// Instance, Environment and Scope are set for API keys only.
	Instance    string
	Environment Environment
	Scope       Scope
	// Role is set for operators only.
	Role string
}
