package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/plane/control"
)

// forwardTime is how long a worker may take for what the headnode passes on: as long as the longest of its routes.
const forwardTime = transferTime

// workerOf reports whether this is a headnode and a worker has the instance, whose name it returns; "" where none has it
// yet.
func (a *API) workerOf(instance string) (control.Node, bool) {
	if a.Cluster == nil || a.Cluster.Node != "" {
		return control.Node{}, false
	}
	i, _ := a.Registry.Instances.ByID(instance)
	n, _ := a.Registry.Nodes.ByName(i.Node)
	return n, true
}

// forwarded answers what needs the events of an environment with handle, and on a headnode by passing the request on to the
// worker that has them, at an escaped path on its internal listener. Who asks has been found to have the right.
func (c *call) forwarded(w http.ResponseWriter, path string, handle func(*call, http.ResponseWriter) error) error {
	// Who has the events.
	n, ok := c.api.workerOf(c.instance)
	if !ok {
		return handle(c, w)
	}
	target, err := url.Parse(n.InternalURL)
	if err != nil || n.Name == "" {
		return j17.Errorf(j17.CodeUnavailable, "No worker has this instance yet. Start a worker for this headnode.")
	}
	if err := c.reach(n); err != nil {
		return j17.Errorf(j17.CodeUnavailable, "The worker %s, which has the instance, does not answer. Try again.", n.Name).Because(err)
	}

	// Who asks, and at which path.
	who, _ := control.ActorOf(c.actorContext())
	actor, err := json.Marshal(who)
	if err != nil {
		return err
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return j17.Errorf(j17.CodeNotFound, "There is nothing at this path")
	}

	// The request goes on as it came, as one of this node's; the answer comes back as it is.
	c.allowTime(w, forwardTime)
	var failed error
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.URL.Path, p.Out.URL.RawPath = target.Scheme, target.Host, plain, path
			p.Out.URL.RawQuery = p.In.URL.RawQuery
			p.Out.Host = target.Host
			for name := range p.Out.Header {
				if !passedOn(name) {
					delete(p.Out.Header, name)
				}
			}
			p.Out.Header.Set(headerNodeSecret, c.api.Registry.Secrets.NodeSecret())
			p.Out.Header.Set(headerActor, base64.StdEncoding.EncodeToString(actor))
			p.Out.Header.Set(headerCorrelationID, c.correlationID)
			p.Out.Header.Set(headerRequestID, c.requestID)
		},
		ModifyResponse: func(r *http.Response) error {
			c.status = r.StatusCode
			for _, own := range []string{headerRequestID, headerCorrelationID} { // which stand in the reply already
				r.Header.Del(own)
			}
			return nil
		},
		ErrorHandler:  func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		ErrorLog:      slog.NewLogLogger(c.api.Logger.Handler(), slog.LevelDebug),
		Transport:     c.api.Cluster.Transport,
		FlushInterval: -1,
	}

	ctx, cancel := context.WithTimeout(c.request.Context(), forwardTime)
	defer cancel()
	proxy.ServeHTTP(w, c.request.WithContext(ctx))
	operation, _ := errors.AsType[*net.OpError](failed)
	switch {
	case failed == nil:
		return nil
	case operation != nil && operation.Op == "dial", c.request.Method == http.MethodGet, c.request.Method == http.MethodHead:
		return j17.Errorf(j17.CodeUnavailable, "The worker %s, which has the instance, cannot be reached. Try again.", n.Name).Because(failed)
	default:
		return j17.Errorf(j17.CodeOutcomeUnknown, "The worker %s, which has the instance, has gone before it answered: whether it has done what was asked is not known. Look before you try again.", n.Name).Because(failed)
	}
}

// reach asks a worker whether it answers at all, so that a request that may take long need not find out.
func (c *call) reach(n control.Node) error {
	ctx, cancel := context.WithTimeout(c.request.Context(), replicaTime)
	defer cancel()
	resp, err := c.askNode(ctx, http.MethodGet, n, "/livez")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// askNode sends a request of this server's own to an escaped path on the internal listener of another.
func (c *call) askNode(ctx context.Context, method string, n control.Node, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(n.InternalURL, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set(headerNodeSecret, c.api.Registry.Secrets.NodeSecret())
	return c.api.Cluster.Transport.RoundTrip(r)
}

// opsPath is the path on the internal listener of what /api/instances/{id}/ops/{env}/ has. What follows stays escaped as it was, so
// that it means the same row to the worker.
func (c *call) opsPath() string {
	parts := strings.SplitN(c.request.URL.EscapedPath(), "/", 7) // "", api, instances, id, ops, environment, the rest
	return "/internal/instances/" + c.instance + "/" + string(c.env) + "/" + parts[len(parts)-1]
}

// passedOn reports whether a header of an operator's request means something to a worker. Credentials do not.
func passedOn(name string) bool {
	switch name {
	case "Content-Type", "Content-Length", "Accept", "If-Match", "If-None-Match", "Range", headerIdempotencyKey, headerIdempotencyKeyOld:
		return true
	default:
		return strings.HasPrefix(name, "Content-")
	}
}

// usageElsewhere is the usage that a worker knows of; nil where it cannot be had now.
func (c *call) usageElsewhere(n control.Node, instance string) *wire.Month {
	if n.Name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.request.Context(), replicaTime)
	defer cancel()
	resp, err := c.askNode(ctx, http.MethodGet, n, "/internal/control/instances/"+url.PathEscape(instance)+"/month")
	if err != nil {
		c.api.Logger.LogAttrs(ctx, slog.LevelDebug, "the usage of an instance cannot be had from its worker", slog.String("node", n.Name), slog.Any("error", err))
		return nil
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	var body struct {
		Usage *wire.Month `json:"usage"`
	}
	if resp.StatusCode != http.StatusOK || json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxSmallBody)).Decode(&body) != nil {
		return nil
	}
	return body.Usage
}

// usageMonth is GET /internal/control/instances/{instance_}/month.
func (c *call) usageMonth(w http.ResponseWriter) error {
	if c.api.Usage == nil {
		return j17.Errorf(j17.CodeNotFound, "This worker does not count usage.")
	}
	used, err := c.api.Usage.Month(c.request.Context(), c.instance)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.Used{Usage: used})
}
