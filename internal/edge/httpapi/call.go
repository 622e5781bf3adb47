package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/gzhttp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/work"
	"j17/internal/plane/control"
)

// call is one request on its way through the API.
type call struct {
	api     *API
	request *http.Request
	// control is true on the control plane's host; else instance, env and tenant say which environment is meant.
	control   bool
	instance  string
	env       j17.Environment
	tenant    j17.Tenant
	principal j17.Principal
	// session is the id of the session by whose cookie the request was let in; "" where it was by a token.
	session string
	// query has the parameters of the route, further those of what it reads.
	query   query
	further map[string]string
	// actor is the actor on whose behalf the headnode asks.
	actor control.Actor

	requestID     string
	correlationID string
	// fresh asks for an aggregate that does not exist yet.
	fresh bool
	// awaited reports that workers have had their time to catch up, behind which of them have not.
	awaited bool
	behind  []string

	// slot is the request's turn on a processor, held what it has of the room.
	slot work.Slot
	held []holding

	route   string
	status  int
	bytes   int64
	failure *j17.Error

	// context is that of the request, texts the values of headers that show has set.
	context callContext
	texts   [16]string
	shown   int
}

// show sets a header of the answer. It takes no memory of its own, unlike http.Header.Set.
func (c *call) show(h http.Header, name, value string) {
	if c.shown == len(c.texts) {
		h[name] = []string{value}
		return
	}
	c.texts[c.shown] = value
	c.shown++
	h[name] = c.texts[c.shown-1 : c.shown : c.shown]
}

type callKey struct{}

// callOf returns the call that observed has put into the request's context.
func callOf(r *http.Request) *call {
	c, _ := r.Context().Value(callKey{}).(*call)
	return c
}

// observed gives every request its call, ids, log line and metrics, and turns a panic into an error.
func (a *API) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The call, with the ids that it is found by.
		stopwatch := clock.System{} // durations are real, whatever the server's clock shows
		start := stopwatch.Now()
		c := &call{api: a, requestID: a.mint.UUIDv7()}
		c.context = callContext{r.Context(), c}
		c.request = r.WithContext(&c.context)
		c.correlationID = c.requestID
		if given := r.Header.Get(headerCorrelationID); given != "" {
			if id, err := uuid.Parse(given); err == nil && len(given) == 36 {
				c.correlationID = id.String()
			}
		}

		// The body may still be arriving, unless it has a Len: then it is in memory as a whole.
		var coming *arriving
		if _, whole := r.Body.(interface{ Len() int }); !whole && r.Body != nil && r.Body != http.NoBody {
			coming = &arriving{ReadCloser: r.Body, arrival: a.arrivals.add(w), left: r.ContentLength}
			defer a.arrivals.remove(coming.arrival)
			c.request.Body = coming
		}

		h := w.Header()
		c.show(h, headerRequestID, c.requestID)
		c.show(h, headerCorrelationID, c.correlationID)
		if len(r.TransferEncoding) > 0 && r.ProtoMajor == 1 {
			// A Content-Length beside the Transfer-Encoding is dropped by net/http without notice. A proxy on the way
			// may have seen the end of the body elsewhere (RFC 9112, 6.1), and what follows on the connection is not to
			// be trusted.
			h["Connection"] = []string{"close"}
		}

		// However the request ends, what it holds is given back, and it is counted.
		defer func() {
			broken := false
			if p := recover(); p != nil {
				c.slot.End()
				c.release()
				if p == http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
					panic(p)
				}
				a.Logger.LogAttrs(
					c.request.Context(), slog.LevelError, "handler panicked", slog.Any("panic", p),
					slog.String("stack", string(debug.Stack())),
				)
				if broken = c.status != 0; !broken {
					c.fail(w, fmt.Errorf("panic: %v", p))
				}
			}
			c.slot.End()
			c.release()
			a.finish(c, stopwatch.Now().Sub(start))
			if broken {
				panic(http.ErrAbortHandler) // The answer has begun: only breaking it off shows that it is incomplete.
			}
			if coming != nil {
				coming.passOver(w, r)
			}
		}()

		if err := checkHeader(c.request); err != nil {
			c.fail(w, err)
			return
		}
		next.ServeHTTP(w, c.request)
	})
}

// finish counts and logs an answered request.
func (a *API) finish(c *call, took time.Duration) {
	if c.status == 0 {
		c.status = http.StatusNoContent // answered by the CORS handler
	}
	a.metrics.observe(c, took)
	if a.Logger.Enabled(c.request.Context(), slog.LevelDebug) {
		a.Logger.LogAttrs(c.request.Context(), slog.LevelDebug, "request",
			slog.String("method", a.Registry.Faults.Redact(c.request.Method)), slog.String(
				"host", a.Registry.Faults.Redact(c.request.Host),
			), slog.String("path", a.Registry.Faults.Redact(c.api.faults.loggedPath(c))),
			slog.Int("status", c.status), slog.Int64("bytes", c.bytes), slog.Duration("duration", took),
			slog.String("request_id", c.requestID), slog.String("correlation_id", c.correlationID),
			slog.String("principal", c.principal.ID))
	}
	if a.Observe != nil {
		x := Exchange{
			Method: c.request.Method, Host: c.request.Host, Path: a.Registry.Faults.Redact(c.request.URL.Path),
			Route: c.route, Status: c.status, Bytes: c.bytes,
			Duration: took, Environment: c.env,
		}
		if c.failure != nil {
			x.Code, x.Detail = c.failure.Code, a.Registry.Faults.Redact(described(c.failure))
		}
		a.Observe(x)
	}
}

// described returns an error with its place and the first finding there, as far as its message does not say them. What
// may repeat a value is left out: values are only for the client that sent them.
func described(e *j17.Error) string {
	var first j17.FieldError
	if len(e.Errors) > 0 {
		first = e.Errors[0]
	}
	if first.Message == e.Message || !first.Plain {
		first.Message = ""
	}
	said, about := e.Message, ""
	if !e.IsPlain() {
		said = "the reply says what is wrong"
	}
	if e.WriteIndex != nil {
		about = fmt.Sprintf("write %d of the request, counted from 0: ", *e.WriteIndex)
	}
	if e.EventIndex != nil && e.WriteIndex != nil {
		about += fmt.Sprintf("event %d of it: ", *e.EventIndex)
	} else if e.EventIndex != nil {
		about = fmt.Sprintf("event %d of the request, counted from 0: ", *e.EventIndex)
	}
	place := cmp.Or(first.Path, e.Path, first.Pointer)
	if place != "" && (first.Message != "" || !strings.Contains(said, place)) {
		about += place + ": "
	}
	if first.Message != "" {
		return said + ": " + about + first.Message
	}
	return about + said
}

// compressed compresses large answers for clients that accept it.
func compressed(next http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(1024), gzhttp.EnableZstd(true), gzhttp.PreferZstd(true))
	if err != nil {
		panic(errors.Join(errors.New("httpapi: compression options"), err))
	}
	zipped := wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header["Accept-Encoding"] == nil {
			next.ServeHTTP(w, r)
			return
		}
		zipped.ServeHTTP(w, r)
	})
}
