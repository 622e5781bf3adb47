// Package auth turns credentials into principals and decides what a principal may do. Nothing it returns or logs
// repeats a credential.
package auth

import (
	"strings"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/plane/control"
)

// Authenticator checks credentials against a registry. It is safe for concurrent use.
type Authenticator struct {
	registry *control.Registry
	clock    clock.Clock
	tokens   *tokens
	// These slow down the guessing of passwords.
	byPair, byNetwork, byAccount *throttle
	networks                     *networks
}

// New returns an authenticator for the credentials of a registry.
func New(registry *control.Registry, clk clock.Clock) *Authenticator {
	return &Authenticator{
		registry:  registry,
		clock:     clk,
		tokens:    newTokens(registry, clk.Now),
		byPair:    newThrottle(pairBurst, pairInterval),
		byNetwork: newThrottle(networkBurst, networkInterval),
		byAccount: newThrottle(accountBurst, accountInterval),
		networks:  newNetworks(),
	}
}

// Prefixes of credentials: API keys, and operators' tokens, which begin with a JSON object in base64.
const (
	beginOfKeys   = "j17_"
	beginOfTokens = "eyJ"
)

// APIKey returns the principal of an API key's token. Every failure is a *j17.Error of CodeUnauthorized that does not
// distinguish unknown, mistyped and revoked keys; it only mentions the form of another credential. It does not allocate
// unless it fails.
func (a *Authenticator) APIKey(token string) (j17.Principal, error) {
	key, ok := a.registry.Keys.ByToken(token)
	switch {
	case !ok && strings.HasPrefix(token, beginOfTokens):
		return j17.Principal{}, j17.Errorf(j17.CodeUnauthorized, "Invalid API key: this has the form of an operator's token, and events and states take an API key.")
	case !ok:
		return j17.Principal{}, j17.Errorf(j17.CodeUnauthorized, "Invalid API key")
	}
	return j17.Principal{
		Kind: j17.APIKey, ID: key.ID, Instance: key.Instance, Environment: key.Environment, Scope: key.Scope,
	}, nil
}

// Node returns the principal of another node, which knows the node secret.
func (a *Authenticator) Node(secret string) (j17.Principal, error) {
	if !a.registry.Secrets.IsNodeSecret(secret) {
		return j17.Principal{}, j17.Errorf(j17.CodeUnauthorized, "Invalid node secret")
	}
	return j17.Principal{Kind: j17.Node}, nil
}

// Authorize reports whether an API key has the scope for an environment of the instance with that handle. Other
// principals are refused: the data plane accepts API keys only.
func Authorize(p j17.Principal, instance string, env j17.Environment, need j17.Scope) error {
	switch {
	case p.Kind != j17.APIKey:
		return j17.Errorf(j17.CodeUnauthorized, "This needs an API key. Send one as a bearer token.")
	case p.Instance != instance:
		return j17.Errorf(j17.CodeWrongInstance, "This key belongs to another instance. Use a key of the instance in the host name.")
	case p.Environment != env:
		return j17.Errorf(j17.CodeWrongEnvironment, "%s key cannot access %s", p.Environment.Title(), env.LongName())
	case p.Scope == j17.ScopeWrite, p.Scope == j17.ScopeRead && need == j17.ScopeRead:
		return nil
	default:
		return j17.Errorf(j17.CodeInsufficientScope, "Read-only key cannot write events")
	}
}
