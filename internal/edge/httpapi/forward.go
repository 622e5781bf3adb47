package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"j17"
	"j17/internal/plane/control"
)

// forwarder passes requests on to the worker that has what they are about, and asks other nodes.
type forwarder struct {
	cluster  *Cluster
	logger   *slog.Logger
	registry *control.Registry
}

func newForwarder(o *Options) *forwarder {
	return &forwarder{cluster: o.Cluster, registry: o.Registry, logger: o.Logger}
}

// forwardTime is how long a worker may take for a request that the headnode passes on: as long as the longest of its
// routes.
const forwardTime = transferTime

// workerOf reports whether this is a headnode and a worker has the instance, whose name it returns; "" where none has
// it yet.
func (a *API) workerOf(instance string) (control.Node, bool) {
	if a.Cluster == nil || a.Cluster.Node != "" {
		return control.Node{}, false
	}
	i, _ := a.Registry.Instances.ByID(instance)
	n, _ := a.Registry.Nodes.ByName(i.Node)
	return n, true
}

// forwarded answers a request that needs the events of an environment: with handle, or on a headnode by passing the
// request on to the worker that has them, at an escaped path on its internal listener. The caller's rights have been
// checked.
func (fw *forwarder) forwarded(
	c *call, w http.ResponseWriter, path string, handle func(*call, http.ResponseWriter) error,
) error {
	// The worker that has the events.
	n, ok := c.api.workerOf(c.instance)
	if !ok {
		return handle(c, w)
	}
	target, err := url.Parse(n.InternalURL)
	if err != nil || n.Name == "" {
		return j17.Errorf(j17.CodeUnavailable, "No worker has this instance yet. Start a worker for this headnode.")
	}
	if err := fw.reach(c, n); err != nil {
		return j17.Errorf(j17.CodeUnavailable, "The worker %s, which has the instance, does not answer. Try again.", n.Name).Because(err)
	}

	// The caller, and the path.
	who, _ := control.ActorOf(c.actorContext())
	actor, err := json.Marshal(who)
	if err != nil {
		return err
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return j17.Errorf(j17.CodeNotFound, "There is nothing at this path")
	}

	// The request goes on unchanged, with the credentials of this node; the answer is returned as it is.
	c.allowTime(w, forwardTime)
	var failed error
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.URL.Path, p.Out.URL.RawPath = target.Scheme, target.Host, plain,
				path
			p.Out.URL.RawQuery = p.In.URL.RawQuery
			p.Out.Host = target.Host
			for name := range p.Out.Header {
				if !passedOn(name) {
					delete(p.Out.Header, name)
				}
			}
			p.Out.Header.Set(headerNodeSecret, fw.registry.Secrets.NodeSecret())
			p.Out.Header.Set(headerActor, base64.StdEncoding.EncodeToString(actor))
			p.Out.Header.Set(headerCorrelationID, c.correlationID)
			p.Out.Header.Set(headerRequestID, c.requestID)
		},
		ModifyResponse: func(r *http.Response) error {
			c.status = r.StatusCode
			for _, own := range []string{headerRequestID, headerCorrelationID} { // the reply already has its own
				r.Header.Del(own)
			}
			return nil
		},
		ErrorHandler:  func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		ErrorLog:      slog.NewLogLogger(fw.logger.Handler(), slog.LevelDebug),
		Transport:     fw.cluster.Transport,
		FlushInterval: -1,
	}

	ctx, cancel := context.WithTimeout(c.request.Context(), forwardTime)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if _, waits := c.query["wait"]; waits || strings.HasSuffix(plain, "/stream") { // it has no end of its own
		defer c.api.streams.relay(c, end)()
	}
	proxy.ServeHTTP(w, c.request.WithContext(ctx))
	operation, _ := errors.AsType[*net.OpError](failed)
	refused, _ := errors.AsType[*j17.Error](context.Cause(ctx))
	switch {
	case failed == nil:
		return nil
	case refused != nil:
		return refused
	case operation != nil && operation.Op == "dial", c.request.Method == http.MethodGet,
		c.request.Method == http.MethodHead:
		return j17.Errorf(j17.CodeUnavailable, "The worker %s, which has the instance, cannot be reached. Try again.", n.Name).Because(failed)
	default:
		return j17.Errorf(j17.CodeOutcomeUnknown, "The worker %s, which has the instance, has gone before it answered: whether it has done what was asked is not known. Look before you try again.", n.Name).Because(failed)
	}
}

// reach checks that a worker answers at all, so that a request that may take long does not have to find out.
func (fw *forwarder) reach(c *call, n control.Node) error {
	ctx, cancel := context.WithTimeout(c.request.Context(), replicaTime)
	defer cancel()
	resp, err := fw.askNode(ctx, http.MethodGet, n, "/livez")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// workers are the workers of this headnode, none where it is not one.
func (fw *forwarder) workers() []control.Node {
	if fw.cluster == nil || fw.cluster.Node != "" {
		return nil
	}
	return fw.registry.Nodes.All()
}

// askNode sends a request of this server's own to an escaped path on the internal listener of another.
func (fw *forwarder) askNode(ctx context.Context, method string, n control.Node, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(n.InternalURL, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set(headerNodeSecret, fw.registry.Secrets.NodeSecret())
	return fw.cluster.Transport.RoundTrip(r)
}

// askShape asks another node as askNode does, for a shape that has at most so many bytes.
func (fw *forwarder) askShape(
	ctx context.Context, method string, n control.Node, path string, most int64, into any,
) error {
	resp, err := fw.askNode(ctx, method, n, path)
	if err != nil {
		return errors.New("the worker does not answer")
	}
	defer func() { _ = resp.Body.Close() }() // read as far as it matters
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the worker answers with status %d: it may be of an older version", resp.StatusCode)
	}
	if json.NewDecoder(http.MaxBytesReader(nil, resp.Body, most)).Decode(into) != nil {
		return errors.New("what the worker answers cannot be read")
	}
	return nil
}

// opsPath returns the path on the internal listener that corresponds to one below /api/instances/{id}/ops/{env}/. The
// rest stays escaped as it was, so that it means the same row to the worker.
func (*forwarder) opsPath(c *call) string {
	parts := strings.SplitN(c.request.URL.EscapedPath(), "/", 7) // "", api, instances, id, ops, environment, the rest
	return "/internal/instances/" + c.instance + "/" + string(c.env) + "/" + parts[len(parts)-1]
}

// passedOn reports whether a header of an operator's request is passed on to a worker. Credentials are not.
func passedOn(name string) bool {
	switch name {
	case "Content-Type", "Content-Length", "Accept", "If-Match", "If-None-Match", "Range", "Last-Event-Id",
		headerIdempotencyKey, headerIdempotencyKeyOld:
		return true
	default:
		return strings.HasPrefix(name, "Content-")
	}
}

// Cluster describes the role of this server among several.
type Cluster struct {
	// Node is the name of this worker; "" where this is the headnode.
	Node string
	// Transport reaches the other nodes.
	Transport http.RoundTripper
}

// headerActor names the actor on whose behalf the headnode asks a worker: a control.Actor as JSON in base64. It counts
// only with the node secret.
const headerActor = "X-J17-Actor"

// replicaTime is how long a change waits for the workers that are connected.
const replicaTime = 2 * time.Second

// awaitReplicas lets workers catch up with a change before the answer says that it is done, and notes which have not.
func (fw *forwarder) awaitReplicas(c *call) {
	reads := c.request.Method == http.MethodGet || c.request.Method == http.MethodHead
	if !c.control || reads || c.awaited || fw.cluster == nil || fw.cluster.Node != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.request.Context()), replicaTime)
	defer cancel()
	c.awaited = true
	if c.behind = fw.registry.Replication.AwaitReplicas(ctx); c.behind != nil {
		fw.logger.LogAttrs(ctx, slog.LevelWarn, "a change has not reached all workers yet",
			slog.Any("behind", c.behind), slog.String("route", c.route), slog.String("request_id", c.requestID))
	}
}
