package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/core/worker"
	"j17/internal/plane/control"
)

// Limits of requests between nodes.
const (
	nodeTime     = 30 * time.Second // of a request that is answered at once
	startTime    = 5 * time.Second  // of a worker's first request, if the worker can start without an answer
	maxNodeReply = 1 << 30
	// The pauses before a headnode that does not answer, or that refuses, is asked again.
	firstPause, longestPause = time.Second, 2 * time.Second
)

// upstream sends requests to the headnode of a worker. It implements control.Upstream.
type upstream struct {
	base      string
	secret    string
	transport *http.Transport
}

// call sends a request to the headnode and decodes the answer. Errors are *j17.Errors.
func (u *upstream) call(ctx context.Context, method, path string, body, into any) error {
	// The request.
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, u.base+path, content)
	if err != nil {
		return unreachable(err)
	}
	r.Header.Set(headerNodeSecret, u.secret)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}

	// Errors of the transport mean that the headnode is out of reach.
	resp, err := u.transport.RoundTrip(r)
	if operation, _ := errors.AsType[*net.OpError](err); operation != nil && operation.Op == "dial" {
		return unreachable(err)
	}
	if err != nil {
		return unreachable(errors.Join(errUnanswered, err))
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written to it
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxNodeReply))
	if err != nil {
		return unreachable(errors.Join(errUnanswered, err))
	}

	// A refusal keeps its code and text.
	if resp.StatusCode != http.StatusOK {
		var p struct {
			Code   j17.Code         `json:"code"`
			Detail string           `json:"detail"`
			Path   string           `json:"path"`
			Errors []j17.FieldError `json:"errors"`
		}
		if json.Unmarshal(raw, &p) != nil || p.Code == "" {
			return unreachable(fmt.Errorf("%w of the headnode's own: status %d", errUnanswered, resp.StatusCode))
		}
		refused := &j17.Error{Code: p.Code, Message: p.Detail, Path: p.Path, Errors: p.Errors}
		if p.Path == headerNodeSecret {
			refused.Err = errOtherSecret
		}
		return refused
	}

	if into == nil {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return unreachable(errors.Join(errUnanswered, err))
	}
	return nil
}

// errUnanswered is among the causes of an error if the headnode may have carried out the request.
var errUnanswered = errors.New("there is no answer")

// headerNodeSecret is the header with the node secret, and the path of an error that refuses it.
const headerNodeSecret = "X-Node-Secret" //nolint:gosec // a name, not the secret

// errOtherSecret is the cause of an error if the headnode has a different node secret.
var errOtherSecret = errors.New("the node secret of the headnode is another one")

func unreachable(err error) error {
	return j17.Errorf(j17.CodeUnavailable, "The headnode cannot be reached, and without it this cannot be changed. Try again.").Because(err)
}

// PutSpec stores a spec at the headnode.
func (u *upstream) PutSpec(ctx context.Context, d control.Deployment) (control.Spec, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTime)
	defer cancel()
	var reply control.SpecAnswer
	put := control.SpecPut{Deployment: d}
	put.Actor, put.RequestID = control.ActorOf(ctx)
	err := u.call(ctx, http.MethodPost, "/internal/control/specs", put, &reply)
	if errors.Is(err, errUnanswered) {
		err = j17.Errorf(j17.CodeOutcomeUnknown, "The headnode has not answered: whether it has stored the spec is not known. Look which one is deployed before you try again.").Because(err)
	}
	return reply.Spec, err
}

// SpecVersion reads a version of a spec from the headnode.
func (u *upstream) SpecVersion(
	ctx context.Context, instance string, env j17.Environment, version int,
) (control.Spec, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTime)
	defer cancel()
	var reply control.SpecAnswer
	path := "/internal/control/specs/" + url.PathEscape(instance) + "/" + url.PathEscape(string(env)) + "/" +
		strconv.Itoa(version)
	err := u.call(ctx, http.MethodGet, path, nil, &reply)
	return reply.Spec, err
}

// Audit adds a record to the headnode's log.
func (u *upstream) Audit(ctx context.Context, rec control.Record) error {
	ctx, cancel := context.WithTimeout(ctx, nodeTime)
	defer cancel()
	return u.call(ctx, http.MethodPost, "/internal/control/audit", rec, nil)
}

// follower keeps a worker in step with its headnode.
type follower struct {
	server *Server
	up     *upstream
	self   control.Node
	// arrived is signalled when there may be specs that the engine does not have.
	arrived chan struct{}
	// reported is when uses of keys were last reported.
	reported time.Time
	// differs reports that the headnode has a different node secret.
	differs bool
}

// tellSecret warns once when the headnode has a different node secret.
func (f *follower) tellSecret(ctx context.Context, err error) {
	differs := errors.Is(err, errOtherSecret)
	if differs && !f.differs {
		f.server.options.Logger.LogAttrs(ctx, slog.LevelWarn,
			"the headnode does not take this worker's node secret: the node secret differs between the two; see --node-secret-file on both. What is known here is served meanwhile, and what is revoked or changed there does not arrive",
			slog.String("headnode", f.up.base))
	}
	f.differs = differs || f.differs && err != nil
}

// poll asks the headnode for changes and applies them. The headnode answers when there are some, or at once if atOnce
// is set.
func (f *follower) poll(ctx context.Context, atOnce bool) error {
	// The position of this node, and its state.
	registry := f.server.registry
	position, err := registry.Replication.Position(ctx)
	if err != nil {
		return err
	}
	asked := f.server.options.Clock.Now()
	body := control.Poll{
		Node: f.self, Writable: f.server.store.Status().Writable, Position: position, AtOnce: atOnce,
		KeyUses: registry.Keys.Uses(f.reported),
	}

	limit := control.PollTime + nodeTime
	if atOnce && position != "" {
		limit = startTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	// The changes; there may be none when the headnode's wait is over.
	var rep control.Update
	err = f.up.call(ctx, http.MethodPost, "/internal/control/changes", body, &rep)
	f.tellSecret(ctx, err)
	if err != nil {
		return err
	}
	f.reported = asked
	if !rep.Whole && len(rep.Changes) == 0 && rep.Position == position {
		return nil
	}

	// Apply them. Deployed specs are loaded by round.
	if err := registry.Replication.Apply(ctx, rep); err != nil {
		return err
	}
	if !rep.MovesSpecs() {
		return nil
	}
	select {
	case f.arrived <- struct{}{}:
	default: // signalled already
	}
	return nil
}

// run polls the headnode, and hands specs that arrive to the engine, until the context ends.
func (f *follower) run(ctx context.Context) error {
	f.server.worker.Every(
		ctx,
		worker.Loop{
			Name: "headnode_changes", Jitter: 0.25,
			Retry: worker.Backoff{First: firstPause, Longest: longestPause}, Do: func(ctx context.Context) error {
				if err := f.poll(ctx, false); err != nil {
					return fmt.Errorf("the headnode at %s does not answer; this worker goes on with what it knows: %w", f.up.base, err)
				}
				if err := f.server.registry.Audit.SendUnsent(ctx); err != nil {
					return fmt.Errorf("audit records could not be sent to the headnode: %w", err)
				}
				return nil
			},
		},
		worker.Loop{Name: "headnode_specs", Wake: f.arrived, Do: func(ctx context.Context) error {
			f.round(ctx)
			return nil
		}},
	)
	return nil
}

// round hands the specs of all environments of this server to the engine. Failures are tried again until more specs
// arrive, which begins another round.
func (f *follower) round(ctx context.Context) {
	round, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.server.handover(nil, nil).run(round, f.server.owned())
	}()
	select {
	case <-done:
		return
	case <-f.arrived:
		select {
		case f.arrived <- struct{}{}: // for the next round
		default: // more specs have arrived
		}
	case <-ctx.Done():
	}
	stop()
	<-done
}

// follow makes the server a worker, which applies what the headnode has. The first poll must succeed on a worker that
// has no data of a headnode yet.
func (s *Server) follow(ctx context.Context, o ServeOptions) error {
	identity, err := nodeIdentity(o.Dir)
	if err != nil {
		return err
	}
	self := control.Node{
		Name: o.Node, Identity: identity, PublicURL: o.PublicURL, InternalURL: o.InternalURL, Version: o.Version,
	}
	if self.PublicURL == "" {
		self.PublicURL = urlOf(s.public, o.encrypted())
	}
	if self.InternalURL == "" {
		self.InternalURL = urlOf(s.internal, o.InternalCertificate.given())
	}
	s.follower = &follower{server: s, up: o.cluster.upstream, self: self, arrived: make(chan struct{}, 1)}
	position, err := s.registry.Replication.Position(ctx)
	if err != nil {
		return err
	}
	// Poll before serving, so that what was revoked while this worker was away is not served again if the headnode
	// answers.
	err = s.follower.poll(ctx, true)
	if err != nil && position == "" {
		return fmt.Errorf("this worker knows nothing yet, and the headnode at %s gives no answer that helps: %w", o.Headnode, err)
	}
	if err != nil {
		s.options.Logger.LogAttrs(ctx, slog.LevelWarn, "the headnode does not answer; this worker starts with what it knows", slog.String("headnode", o.Headnode), slog.Any("error", err))
	}
	return nil
}

func urlOf(l net.Listener, encrypted bool) string {
	if encrypted {
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

var errSecret = errors.New("it takes a node secret of at least 32 characters without spaces, and while that is changed another one in a second line")

// parseSecrets reads the content of a file with a node secret: the one that this server sends, and in an optional
// second line one that it also accepts.
func parseSecrets(raw []byte) ([]string, error) {
	var secrets []string
	for line := range strings.Lines(string(raw)) {
		secret := strings.TrimSpace(line)
		if secret == "" {
			continue
		}
		if len(secret) < 32 || len(secret) > 1024 ||
			strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, errSecret
		}
		secrets = append(secrets, secret)
	}
	if len(secrets) != 1 && len(secrets) != 2 {
		return nil, errSecret
	}
	return secrets, nil
}
