package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"j17"
	"j17/internal/control"
)

// TokenLifetime is how long an operator stays logged in.
const TokenLifetime = 24 * time.Hour

// maxToken is the length of the longest token worth parsing; ours have a third of it.
const maxToken = 2048

// Session is the result of a login.
type Session struct {
	// Token is a JWT for the header "Authorization: Bearer".
	Token string
	// ExpiresAt is when the token ceases to be valid, in Unix seconds.
	ExpiresAt int64
	Operator  control.Operator
}

// RetryAfter is the Details of an error of CodeRateLimited.
type RetryAfter struct {
	// Seconds is how long to wait before the next try.
	Seconds int64 `json:"retry_after"`
}

// Login checks an operator's password and issues a token. After too many failures for the address or from the client,
// it says CodeRateLimited without looking at the password; successful logins do not count.
func (a *Authenticator) Login(ctx context.Context, email, password string, client netip.Addr) (Session, error) {
	now := a.clock.Now()
	clientID, emailID := clientKey(client), []byte(control.CanonicalEmail(email))
	if wait := a.byClient.take(clientID, now); wait > 0 {
		return Session{}, throttled(wait)
	}
	if wait := a.byEmail.take(emailID, now); wait > 0 {
		return Session{}, throttled(wait)
	}
	op, err := a.registry.VerifyPassword(ctx, email, password)
	if j17.CodeOf(err) != j17.CodeUnauthorized {
		// Taken before the check and given back after it, so that guesses made at the same time count as well.
		a.byClient.giveBack(clientID)
		a.byEmail.giveBack(emailID)
	}
	if err != nil {
		return Session{}, err
	}
	token, expires, err := a.tokens.issue(op)
	if err != nil {
		return Session{}, err
	}
	return Session{Token: token, ExpiresAt: expires, Operator: op}, nil
}

// Operator returns the principal of an operator's token, with the role that the operator has now. Every failure is a
// *j17.Error of CodeUnauthorized.
func (a *Authenticator) Operator(token string) (j17.Principal, error) {
	invalid := j17.Errorf(j17.CodeUnauthorized, "Invalid token")
	c, err := a.tokens.parse(token)
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return j17.Principal{}, j17.Errorf(j17.CodeUnauthorized, "Token expired")
	case err != nil:
		return j17.Principal{}, invalid // The cause may quote the token.
	}
	op, ok := a.registry.OperatorByID(c.Subject)
	if !ok || c.IssuedAt == nil || c.IssuedAt.Unix() < op.TokensFrom {
		return j17.Principal{}, invalid
	}
	return j17.Principal{Kind: j17.Operator, ID: op.ID, Role: string(op.Role)}, nil
}

func throttled(wait time.Duration) error {
	seconds := int64((wait + time.Second - 1) / time.Second)
	e := j17.Errorf(j17.CodeRateLimited, "Too many failed logins. Try again in %s.", time.Duration(seconds)*time.Second)
	e.Details = RetryAfter{Seconds: seconds}
	return e
}

// tokens issues and reads operators' JWTs. One algorithm is fixed: what a token says of its own does not count.
type tokens struct {
	key    []byte
	now    func() time.Time
	parser *jwt.Parser
}

// claims is the content of an operator's JWT.
type claims struct {
	jwt.RegisteredClaims
	Email string       `json:"email"`
	Role  control.Role `json:"role"`
}

func newTokens(key []byte, now func() time.Time) *tokens {
	return &tokens{key: key, now: now, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithExpirationRequired(),
		jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(now),
	)}
}

// issue returns a token for an operator and its expiry in Unix seconds.
func (t *tokens) issue(op control.Operator) (token string, expires int64, err error) {
	// In the second of a password change, new tokens are dated into the next one, where they count.
	issued := time.Unix(max(t.now().Unix(), op.TokensFrom), 0)
	until := issued.Add(TokenLifetime)
	token, err = jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject:   op.ID,
			IssuedAt:  jwt.NewNumericDate(issued),
			ExpiresAt: jwt.NewNumericDate(until),
		},
		Email: op.Email,
		Role:  op.Role,
	}).SignedString(t.key)
	if err != nil {
		return "", 0, j17.Errorf(j17.CodeInternal, "The server could not sign a token.").Because(err)
	}
	return token, until.Unix(), nil
}

func (t *tokens) parse(token string) (*claims, error) {
	if len(token) > maxToken {
		return nil, fmt.Errorf("%w: too long", jwt.ErrTokenMalformed)
	}
	c := &claims{}
	_, err := t.parser.ParseWithClaims(token, c, func(*jwt.Token) (any, error) { return t.key, nil })
	return c, err
}
