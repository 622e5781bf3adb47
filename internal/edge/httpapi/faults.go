package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/panics"
	"j17/internal/base/wire"
	"j17/internal/derived/projection"
	"j17/internal/plane/control"
)

// getFault is GET /api/errors/{error_id} and the administration's GET errors/{error_id}, which knows only the errors of
// its environment.
func (h *auditHandlers) getFault(c *call, w http.ResponseWriter) error {
	f, err := h.registry.Faults.ByID(c.request.Context(), c.request.PathValue("error_id"))
	if c.instance == "" && j17.CodeOf(err) == j17.CodeNotFound {
		if f := h.faultElsewhere(c); f != nil {
			return c.answer(w, http.StatusOK, wire.Failed{Failure: *f})
		}
	}
	if err == nil && c.instance != "" && (f.Instance != c.instance || f.Environment != c.env) {
		err = j17.Errorf(j17.CodeNotFound, "Nothing is known about an error with this id in this environment.")
	}
	return c.done(w, http.StatusOK, wire.Failed{Failure: f}, err)
}

// faultElsewhere asks all workers for the error that the path names; nil where none knows it.
func (*auditHandlers) faultElsewhere(c *call) *wire.Fault {
	ctx, cancel := context.WithTimeout(c.request.Context(), replicaTime)
	defer cancel()
	nodes := c.api.forward.workers()
	found := make(chan *wire.Fault, len(nodes))
	for _, n := range nodes {
		go func() {
			var known wire.Failed
			err := panics.Logged(ctx, c.api.Logger, "asking a node for a fault", func() error {
				path := "/internal/control/errors/" + url.PathEscape(c.request.PathValue("error_id"))
				return c.api.forward.askShape(ctx, http.MethodGet, n, path, maxSmallBody, &known)
			})
			if err != nil {
				found <- nil
				return
			}
			found <- &known.Failure
		}()
	}
	for range nodes {
		if f := <-found; f != nil {
			return f
		}
	}
	return nil
}

func (h *auditHandlers) faultOfWorker(c *call, w http.ResponseWriter) error {
	f, err := h.registry.Faults.ByID(c.request.Context(), c.request.PathValue("error_id"))
	return c.done(w, http.StatusOK, wire.Failed{Failure: f}, err)
}

// faultPattern is the route of one failed request of an environment.
const faultPattern = "errors/{error_id}"

// faultHere reports whether it was this server that failed, and not the worker that has the environment.
func (h *auditHandlers) faultHere(c *call) bool {
	f, err := h.registry.Faults.ByID(c.request.Context(), c.request.PathValue("error_id"))
	return err == nil && f.Instance == c.instance && f.Environment == c.env
}

// keptPath is the path of a request as it is kept with a failure. What follows the name of a projection is the id of an
// aggregate only where the projection is for each of a type. Elsewhere it is a value of a filter, which belongs to no
// stream, so that no erasure could find it.
func (fl *faultLog) keptPath(c *call) string {
	path := c.request.URL.Path
	name, id, ok := strings.Cut(strings.TrimPrefix(path, viewPrefix), "/")
	if !ok || !strings.HasPrefix(path, viewPrefix) || id == "_count" || id == "_stream" {
		return path
	}
	if fl.projections != nil {
		if named, err := fl.projections.IsNamed(c.request.Context(), c.tenant, name); err == nil && named {
			return path
		}
	}
	path = viewPrefix + name + "/{id}"
	if strings.HasSuffix(c.route, "/stream") {
		path += "/stream"
	}
	return path
}

// loggedPath is the path of a request as it is logged, where no erasure reaches. It is the kept path or, where an
// identifier is invalid and so may be anything, the pattern of the route.
func (fl *faultLog) loggedPath(c *call) string {
	if c.failure != nil && c.failure.Code == j17.CodeInvalidIdentifier {
		return c.route
	}
	return fl.keptPath(c)
}

// reportFault keeps what is known about a request that failed through the server's fault.
func (fl *faultLog) reportFault(c *call, id, path string, e *j17.Error, err error, stack string) {
	said := *e
	said.Err = nil
	f := control.Fault{
		ID: id, Code: e.Code, Status: StatusOf(e.Code), Message: j17.Record(&said), Stack: stack,
		Method: c.request.Method, Route: c.route, Path: path, Instance: c.instance, Environment: c.env,
		Principal: c.principal.ID, RequestID: c.requestID, CorrelationID: c.correlationID, Version: fl.version,
	}
	if e.IsPlain() {
		f.Message = e.Message
	}
	if cause := j17.Record(err); cause != f.Message {
		f.Cause = cause
	}
	fl.registry.Faults.Report(f)
}

// faultLog turns errors into answers and keeps what is known about those that are the server's fault.
type faultLog struct {
	logger      *slog.Logger
	projections *projection.Service
	registry    *control.Registry
	restoring   func(j17.Tenant) bool
	version     string
	mint        *ident.Minter
}

func newFaultLog(o *Options, mint *ident.Minter) *faultLog {
	return &faultLog{
		registry: o.Registry, projections: o.Projections, restoring: o.Restoring, mint: mint, logger: o.Logger,
		version: o.Version,
	}
}

// problem returns the public form of an error that ends a call, and logs and records the error if the fault is the
// server's.
func (fl *faultLog) problem(c *call, err error) (*j17.Error, *wire.Problem) {
	// Other errors become public ones.
	e, ok := errors.AsType[*j17.Error](err)
	switch {
	case ok:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e = j17.Errorf(j17.CodeUnavailable, "The request was given up before it was answered. Try again.")
	default:
		e = j17.Errorf(j17.CodeInternal, "The server failed to answer. Report the error_id to its administrator.").Because(err)
	}
	if e.Code == j17.CodeNoSpec && fl.restoring != nil && fl.restoring(c.tenant) {
		e = j17.Errorf(j17.CodeUnavailable, "The server has just started and this environment is not ready yet. Try again in a moment.").Because(e)
	}
	c.failure = e
	p := problemOf(e.Code)
	body := &wire.Problem{
		Type: "urn:j17:error:" + string(e.Code), Title: p.title, Status: p.status, Detail: e.Message, Error: e.Message,
		Code: e.Code,
		Path: e.Path, EventIndex: e.EventIndex, WriteIndex: e.WriteIndex, Details: e.Details, Errors: e.Errors,
	}
	if p.status < http.StatusInternalServerError || passes(e.Code) {
		return e, body
	}

	body.ErrorID = fl.mint.Handle(ident.ErrorPrefix)
	path := fl.keptPath(c)
	level := slog.LevelError
	if p.status == http.StatusServiceUnavailable {
		level = slog.LevelDebug // a lasting condition of the server, logged when it began
	}
	fl.logger.LogAttrs(c.request.Context(), level, "request failed",
		slog.String("error_id", body.ErrorID), slog.String("code", string(e.Code)),
		slog.String("request_id", c.requestID),
		slog.String("method", c.request.Method), slog.String("path", fl.registry.Faults.Redact(path)),
		slog.String("error", fl.registry.Faults.Redact(j17.Record(err))))
	stack := e.Stack()
	if stack == "" {
		stack = string(debug.Stack())
	}
	fl.reportFault(c, body.ErrorID, path, e, err, stack)
	return e, body
}

func (fl *faultLog) redactedProblem(body *wire.Problem) []byte {
	return fl.redacted(body, func() any {
		body.Details, body.Errors = nil, nil
		return body
	})
}

// redacted encodes the public form of an error. Details come from everywhere: where they cannot be encoded, less
// returns the same without them. Errors quote input, which may be a token that was pasted in the wrong place, so tokens
// are removed.
func (fl *faultLog) redacted(body any, less func() any) []byte {
	raw, err := marshal(body)
	if err != nil {
		raw, _ = marshal(less()) // strings and numbers only
	}
	return []byte(fl.registry.Faults.Redact(string(raw)))
}

// row is the error that a row has in place of what cannot be computed.
func (fl *faultLog) row(err error) ([]byte, error) {
	said := rowError(err)
	said.Error = fl.registry.Faults.Redact(said.Error)
	return marshal(said)
}
