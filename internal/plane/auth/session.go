package auth

import (
	"context"
	"net/netip"

	"j17"
	"j17/internal/plane/control"
)

// maxSecret is the length of the longest session token or login code worth hashing; this server's are shorter.
const maxSecret = 128

// BeginSession checks an operator's password, under the limits of Login, and begins a session. The token is for a
// cookie.
func (a *Authenticator) BeginSession(
	ctx context.Context, email, password string, client netip.Addr,
) (token string, s control.Session, op control.Operator, err error) {
	asked := a.clock.Now()
	if op, err = a.verify(ctx, email, password, client); err != nil {
		return "", control.Session{}, control.Operator{}, err
	}
	token, s, err = a.registry.Sessions.Begin(ctx, op, asked, client.String())
	return token, s, op, err
}

// RedeemCode begins a session with a code that works once, under the limits of Login for the client's network.
func (a *Authenticator) RedeemCode(
	ctx context.Context, code string, client netip.Addr,
) (token string, s control.Session, op control.Operator, err error) {
	network := Network(client).AsSlice()
	if wait := a.byNetwork.take(network, a.clock.Now()); wait > 0 {
		return "", control.Session{}, control.Operator{}, throttled(wait)
	}
	asked := a.clock.Now()
	if len(code) > maxSecret {
		code = ""
	}
	op, err = a.registry.Sessions.Redeem(ctx, code)
	if j17.CodeOf(err) != j17.CodeUnauthorized {
		a.byNetwork.giveBack(network)
	}
	if err == nil {
		token, s, err = a.registry.Sessions.Begin(ctx, op, asked, client.String())
	}
	return token, s, op, err
}

// Session returns the session of a token, and its principal with the role that the operator has now. Every failure is a
// *j17.Error of CodeUnauthorized.
func (a *Authenticator) Session(ctx context.Context, token string) (control.Session, j17.Principal, error) {
	ended := j17.Errorf(j17.CodeUnauthorized, "The session has ended. Sign in again.")
	if token == "" || len(token) > maxSecret {
		return control.Session{}, j17.Principal{}, ended
	}
	s, ok := a.registry.Sessions.Use(ctx, token)
	if !ok {
		return control.Session{}, j17.Principal{}, ended
	}
	op, ok := a.registry.Operators.ByID(s.Operator)
	if !ok {
		return control.Session{}, j17.Principal{}, ended
	}
	return s, j17.Principal{Kind: j17.Operator, ID: op.ID, Role: string(op.Role)}, nil
}
