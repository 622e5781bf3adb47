package auth

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"j17"
	"j17/internal/plane/control"
)

// TokenLifetime is how long an operator stays logged in.
const TokenLifetime = control.TokenLifetime

// maxToken is the length of the longest token worth parsing; this server's have a third of it.
const maxToken = 2048

// Session is the result of a login.
type Session struct {
	// Token is a JWT for the header "Authorization: Bearer".
	Token string
	// ExpiresAt is when the token expires, in Unix seconds.
	ExpiresAt int64
	Operator  control.Operator
}

// RetryAfter is the Details of an error of CodeRateLimited.
type RetryAfter struct {
	// Seconds is how long to wait before the next try.
	Seconds int64 `json:"retry_after"`
}

// Login checks an operator's password and issues a token. After too many failures it returns CodeRateLimited without
// checking the password; successful logins do not count.
func (a *Authenticator) Login(ctx context.Context, email, password string, client netip.Addr) (Session, error) {
	// The token is dated from the request: what voids tokens while the password is checked voids this one too.
	asked := a.clock.Now()
	op, err := a.verify(ctx, email, password, client)
	if err != nil {
		return Session{}, err
	}
	token, expires, err := a.tokens.issue(op, asked)
	if err != nil {
		return Session{}, err
	}
	return Session{Token: token, ExpiresAt: expires, Operator: op}, nil
}

// verify checks a password unless there were too many failures.
func (a *Authenticator) verify(
	ctx context.Context, email, password string, client netip.Addr,
) (control.Operator, error) {
	now := a.clock.Now()
	network, account := Network(client).AsSlice(), []byte(control.CanonicalEmail(email))
	pair := slices.Concat(network, []byte{'/'}, account)
	type budget struct {
		throttle *throttle
		key      []byte
	}
	budgets := []budget{{a.byNetwork, network}, {a.byPair, pair}}
	if !a.networks.knows(pair, now) {
		budgets = append(budgets, budget{a.byAccount, account})
	}
	// Taken before the check and given back after it, so that concurrent guesses count as well.
	for i, b := range budgets {
		if wait := b.throttle.take(b.key, now); wait > 0 {
			for _, taken := range budgets[:i] {
				taken.throttle.giveBack(taken.key)
			}
			return control.Operator{}, throttled(wait)
		}
	}
	op, err := a.registry.Operators.VerifyPassword(ctx, email, password)
	if j17.CodeOf(err) != j17.CodeUnauthorized {
		for _, b := range budgets {
			b.throttle.giveBack(b.key)
		}
	}
	if err == nil {
		a.networks.remember(pair, now)
	}
	return op, err
}

// ChangePassword replaces the password of an operator who knows the current one, under the same limits as Login. It
// voids every token issued until now.
func (a *Authenticator) ChangePassword(ctx context.Context, operatorID, present, next string, client netip.Addr) error {
	op, ok := a.registry.Operators.ByID(operatorID)
	if !ok {
		return j17.Errorf(j17.CodeNotFound, "There is no such operator.")
	}
	verified, err := a.verify(ctx, op.Email, present, client)
	if j17.CodeOf(err) == j17.CodeUnauthorized {
		return j17.Errorf(j17.CodeForbidden, "The present password is wrong.").At("current_password")
	}
	if err != nil {
		return err
	}
	if next == present {
		return j17.Errorf(j17.CodeInvalidField, "The new password is the present one.").At("new_password")
	}
	return a.registry.Operators.ReplacePassword(ctx, verified, next)
}

// Setup creates the first operator with a setup token (control.Registry.Setup), under the limits of Login for the
// client's network.
func (a *Authenticator) Setup(
	ctx context.Context, token, email, password string, client netip.Addr,
) (control.Operator, error) {
	network := Network(client).AsSlice()
	if wait := a.byNetwork.take(network, a.clock.Now()); wait > 0 {
		return control.Operator{}, throttled(wait)
	}
	op, err := a.registry.Setup.Complete(ctx, token, email, password)
	if j17.CodeOf(err) != j17.CodeUnauthorized {
		a.byNetwork.giveBack(network)
	}
	return op, err
}

// Operator returns the principal of an operator's token, with the role that the operator has now. Every failure is a
// *j17.Error of CodeUnauthorized.
func (a *Authenticator) Operator(token string) (j17.Principal, error) {
	c, err := a.check(token)
	if err != nil {
		return j17.Principal{}, err
	}
	op, ok := a.registry.Operators.ByID(c.Subject)
	if !ok || c.IssuedAt.Unix() < op.TokensFrom {
		return j17.Principal{}, invalidToken()
	}
	return j17.Principal{Kind: j17.Operator, ID: op.ID, Role: string(op.Role)}, nil
}

// Logout voids an operator's token.
func (a *Authenticator) Logout(ctx context.Context, token string) error {
	c, err := a.check(token)
	if err != nil {
		return err
	}
	return a.registry.Secrets.RevokeToken(ctx, c.Subject, c.ID, c.ExpiresAt.Time)
}

// check reads a token that was issued here, has not expired and was not revoked individually.
func (a *Authenticator) check(token string) (*claims, error) {
	c, err := a.tokens.parse(token)
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return nil, j17.Errorf(j17.CodeUnauthorized, "Token expired")
	case err != nil && strings.HasPrefix(token, beginOfKeys):
		return nil, j17.Errorf(j17.CodeUnauthorized, "Invalid token: this has the form of an API key. Send the token of POST /api/login, or a key where events and states are.")
	case err != nil: // The cause may quote the token.
		return nil, invalidToken()
	case c.IssuedAt == nil, c.ID == "", a.registry.Secrets.TokenRevoked(c.ID):
		return nil, invalidToken()
	}
	return c, nil
}

func invalidToken() error { return j17.Errorf(j17.CodeUnauthorized, "Invalid token") }

func throttled(wait time.Duration) error {
	seconds := int64((wait + time.Second - 1) / time.Second)
	e := j17.Errorf(j17.CodeRateLimited, "Too many failed logins. Try again in %s.", time.Duration(seconds)*time.Second)
	e.Details = RetryAfter{Seconds: seconds}
	return e
}

// tokens issues and reads operators' JWTs. The algorithm is fixed: nothing in a token's header counts but the id of the
// server's key that it was signed with.
type tokens struct {
	registry *control.Registry
	now      func() time.Time
	parser   *jwt.Parser
}

// claims is the content of an operator's JWT. Its roles and instances are for people: decisions use the registry when
// the token is used.
type claims struct {
	jwt.RegisteredClaims
	Email string       `json:"email"`
	Role  control.Role `json:"role"`
	// Instance is set for operators with one instance.
	Instance string `json:"instance_id,omitempty"`
}

func newTokens(registry *control.Registry, now func() time.Time) *tokens {
	return &tokens{registry: registry, now: now, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithExpirationRequired(),
		jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(now),
	)}
}

// keyID is the member of a token's header that names the key it was signed with.
const keyID = "kid"

// issue returns a token for an operator who asked for it at a time, and its expiry in Unix seconds.
func (t *tokens) issue(op control.Operator, asked time.Time) (token string, expires int64, err error) {
	// In the second of a password change, new tokens are dated to the next one, from which they are valid.
	issued := time.Unix(max(asked.Unix(), op.TokensFrom), 0)
	until := issued.Add(TokenLifetime)
	c := claims{
		RegisteredClaims: jwt.RegisteredClaims{
			ID:        rand.Text(),
			Subject:   op.ID,
			IssuedAt:  jwt.NewNumericDate(issued),
			ExpiresAt: jwt.NewNumericDate(until),
		},
		Email: op.Email,
		Role:  op.Role,
	}
	if len(op.Instances) == 1 {
		c.Instance = op.Instances[0]
	}
	key := t.registry.Secrets.SigningKeys()[0]
	unsigned := jwt.NewWithClaims(jwt.SigningMethodHS256, c)
	unsigned.Header[keyID] = key.ID
	if token, err = unsigned.SignedString(key.Secret); err != nil {
		return "", 0, j17.Errorf(j17.CodeInternal, "The server could not sign a token.").Because(err)
	}
	return token, until.Unix(), nil
}

func (t *tokens) parse(token string) (*claims, error) {
	if len(token) > maxToken {
		return nil, fmt.Errorf("%w: too long", jwt.ErrTokenMalformed)
	}
	c := &claims{}
	_, err := t.parser.ParseWithClaims(token, c, func(parsed *jwt.Token) (any, error) {
		for _, key := range t.registry.Secrets.SigningKeys() {
			if parsed.Header[keyID] == key.ID {
				return key.Secret, nil
			}
		}
		return nil, jwt.ErrTokenUnverifiable
	})
	return c, err
}
