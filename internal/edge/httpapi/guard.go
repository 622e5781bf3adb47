package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"j17"
	"j17/internal/base/apikey"
	"j17/internal/base/clock"
	"j17/internal/plane/auth"
	"j17/internal/plane/control"
	"j17/internal/plane/usage"
)

// guard lets requests in: credentials, rights, rates, and the record of refused attempts.
type guard struct {
	addresses *auth.RateLimit
	auth      *auth.Authenticator
	clock     clock.Clock
	keys      *auth.RateLimit
	registry  *control.Registry
	usage     *usage.Meter
	attempts  attempts
	guesses   *auth.Guesses
	refusals  refusals
	// secretTold is the time, in Unix nanoseconds, until which no further warning of differing node secrets is logged.
	secretTold atomic.Int64
}

func newGuard(o *Options) *guard {
	return &guard{
		auth: o.Auth, keys: o.Keys, addresses: o.Addresses, registry: o.Registry, usage: o.Usage, clock: o.Clock,
		guesses: auth.NewGuesses(badSecrets),
	}
}

// admit checks credentials, then the scope of a key, then rates.
func (g *guard) admit(c *call, need access, w http.ResponseWriter) error {
	switch need {
	case unstated:
		return j17.Errorf(j17.CodeInternal, "The server failed to answer. Report the error_id to its administrator.").Because(errors.New("a route states no access"))
	case free:
		return nil
	case open:
		return g.limit(c, w)
	case node:
		return g.admitNode(c)
	case read:
		if c.request.Method == post && c.route == withinPath && c.api.places.isSingleton(c, c.api.places.placeWord(c)) {
			need = write // of events, where another spec would have places
		}
	case write, reader, operator:
	}
	if err := g.authenticate(c, need); err != nil {
		g.limitRefused(c, w, err)
		return err
	}
	if err := g.limit(c, w); err != nil {
		return err
	}
	g.count(c, need)
	return nil
}

// authenticate identifies the caller and reports whether they may do what needs the access.
func (g *guard) authenticate(c *call, need access) error {
	if need == operator && c.bySession() {
		return g.session(c)
	}
	token, err := bearer(c.request)
	if err != nil {
		if e, ok := errors.AsType[*j17.Error](err); ok && need == operator {
			as := *e
			as.Message = strings.NewReplacer(
				"an API key", "the token of POST /api/login", "<key>", "<token>",
			).Replace(e.Message)
			err = &as
		}
		return err
	}
	if need == operator || need == reader && !apikey.Is(token) {
		c.principal, err = g.auth.Operator(token)
		return err
	}
	if c.principal, err = g.auth.APIKey(token); err != nil {
		return err
	}
	scope := j17.ScopeRead
	if need == write {
		scope = j17.ScopeWrite
	}
	return auth.Authorize(c.principal, c.instance, c.env, scope)
}

// bearer returns the token of the Authorization header.
func bearer(r *http.Request) (string, error) {
	values := r.Header["Authorization"]
	switch len(values) {
	case 0:
		return "", j17.Errorf(j17.CodeUnauthorized, "Missing credentials. Send an API key in the header 'Authorization: Bearer <key>'.")
	case 1:
	default:
		return "", j17.Errorf(j17.CodeUnauthorized, "The request has more than one Authorization header. Send one.")
	}
	const scheme = "bearer "
	if v := values[0]; len(v) > len(scheme) && strings.EqualFold(v[:len(scheme)], scheme) {
		return strings.TrimSpace(v[len(scheme):]), nil
	}
	return "", j17.Errorf(j17.CodeUnauthorized, "The Authorization header must have the form 'Bearer <key>'.")
}

// headerNodeSecret carries the secret that the nodes of one server share.
const headerNodeSecret = "X-Node-Secret" //nolint:gosec // a name, not the secret

// secretInterval is how often at most a warning of differing node secrets is logged.
const secretInterval = time.Minute

// warnOfSecret logs a request with another node secret: most often it is from a node whose file differs.
func (g *guard) warnOfSecret(c *call) {
	now, next := g.clock.Now().UnixNano(), g.secretTold.Load()
	if now < next || !g.secretTold.CompareAndSwap(next, now+int64(secretInterval)) {
		return
	}
	c.api.Logger.LogAttrs(c.request.Context(), slog.LevelWarn,
		"a request came with another node secret than this server's: if it is from another node, the node secret differs between the two; see --node-secret-file on both",
		slog.String("address", c.peer().String()), slog.String("route", c.route))
}

// admitNode admits callers that know the node secret.
func (g *guard) admitNode(c *call) error {
	given := c.request.Header[headerNodeSecret]
	if len(given) != 1 || given[0] == "" {
		return j17.Errorf(j17.CodeUnauthorized, "This needs the node secret, in one header %s.", headerNodeSecret)
	}
	peer := c.peer()
	if wait := g.guesses.Take(peer, g.clock.Now()); wait > 0 {
		e := j17.Errorf(j17.CodeRateLimited, "Too many wrong node secrets came from this address. Try again in %s.", j17.Count(seconds(wait), "second"))
		e.Details = auth.RetryAfter{Seconds: seconds(wait)}
		g.refusals.note(c, e)
		return e
	}
	if !g.registry.Secrets.IsNodeSecret(given[0]) {
		err := j17.Errorf(j17.CodeForbidden, "This is not the node secret of this server.").At(headerNodeSecret)
		g.refusals.note(c, err)
		g.warnOfSecret(c)
		return err
	}
	g.guesses.Right(peer)
	c.principal = j17.Principal{Kind: j17.Node}
	g.actFor(c)
	return nil
}

// count counts a request that an API key was admitted for. A dry run of a write is a read.
func (g *guard) count(c *call, need access) {
	if g.usage != nil && c.principal.Kind == j17.APIKey {
		g.usage.Request(c.tenant, need == read || g.triesOnly(c))
	}
}

// countRead counts an operator's read of an environment, on the server that has its events.
func (g *guard) countRead(c *call, r *route) {
	if g.usage == nil || r.need.right != control.RightRead || c.principal.Kind == j17.APIKey {
		return
	}
	if _, forwarded := c.api.workerOf(c.instance); !forwarded {
		g.usage.Request(c.tenant, true)
	}
}

// triesOnly reports whether the request asks for a dry run, before its parameters are read.
func (*guard) triesOnly(c *call) bool {
	if c.request.URL.RawQuery == "" {
		return false
	}
	dry := c.request.URL.Query().Get("dry_run")
	return dry == "true" || dry == "1"
}

// badSecrets is the number of wrong node secrets that an address may send a minute before its requests are refused.
const badSecrets = 60

// onThisNode reports whether this server has an instance. Where another one has it, the error says which.
func (g *guard) onThisNode(c *call, i control.Instance) error {
	cluster := c.api.Cluster
	if cluster == nil || cluster.Node != "" && cluster.Node == i.Node {
		return nil
	}
	n, ok := g.registry.Nodes.ByName(i.Node)
	if !ok {
		return j17.Errorf(j17.CodeUnavailable, "No worker has this instance yet. Start a worker for this headnode.")
	}
	e := j17.Errorf(j17.CodeMisdirected, "The instance is on another node. Send the request there, to the same host name.")
	e.Details = struct {
		URL string `json:"url"`
	}{n.PublicURL}
	return e
}

// actFor takes over the actor on whose behalf the headnode asks, and the request id.
func (*guard) actFor(c *call) {
	values := c.request.Header[headerActor]
	if len(values) != 1 {
		return
	}
	raw, err := base64.StdEncoding.DecodeString(values[0])
	if err != nil {
		return
	}
	var a control.Actor
	if json.Unmarshal(raw, &a) == nil {
		c.actor, c.principal.ID = a, a.ID
	}
	if id, err := uuid.Parse(c.request.Header.Get(headerRequestID)); err == nil {
		c.requestID = id.String()
	}
}

// stillAllowed checks again what was checked at first: whether this server has the environment, and whether the key has
// its rights.
func (g *guard) stillAllowed(c *call) bool {
	switch c.principal.Kind {
	case j17.Node: // the headnode asks again
		return true
	case j17.Operator:
		again := &call{api: c.api, request: c.request, control: c.control}
		return g.authenticate(again, operator) == nil && g.may(c, c.instance, control.RightRead)
	case j17.APIKey, j17.Anonymous:
	}
	again := &call{api: c.api, request: c.request}
	if c.api.resolveHost(again, c.request.Host) != nil || again.tenant != c.tenant {
		return false
	}
	return g.authenticate(again, read) == nil
}
