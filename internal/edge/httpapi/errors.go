package httpapi

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/plane/auth"
)

// problem is how a code shows in HTTP.
type problem struct {
	status int
	title  string
}

// StatusOf returns the HTTP status of a code.
func StatusOf(code j17.Code) int { return problemOf(code).status }

// problemOf is the only map from codes to statuses.
func problemOf(code j17.Code) problem {
	// The linter refuses a code that has no row.
	switch code {
	// The request cannot be read.
	case j17.CodeInvalidJSON:
		return problem{http.StatusBadRequest, "Invalid JSON"}
	case j17.CodeInvalidContentType:
		return problem{http.StatusBadRequest, "Invalid content type"}
	case j17.CodeInvalidRequest:
		return problem{http.StatusBadRequest, "Invalid request"}
	case j17.CodeInvalidParameter:
		return problem{http.StatusBadRequest, "Invalid query parameter"}
	case j17.CodeInvalidHeader:
		return problem{http.StatusBadRequest, "Invalid header"}
	case j17.CodeMissingField:
		return problem{http.StatusBadRequest, "Missing field"}
	case j17.CodeUnknownField:
		return problem{http.StatusBadRequest, "Unknown field"}
	case j17.CodeInvalidField:
		return problem{http.StatusBadRequest, "Invalid field"}
	case j17.CodeUndeclaredType:
		return problem{http.StatusBadRequest, "Undeclared actor or target type"}
	case j17.CodeReservedEventType:
		return problem{http.StatusBadRequest, "Reserved event type"}
	case j17.CodeSkipOCCNotAllowed:
		return problem{http.StatusBadRequest, "skip_occ is not allowed"}
	case j17.CodeSchemaViolation:
		return problem{http.StatusBadRequest, "Schema validation failed"}
	case j17.CodeUnknownGeneration:
		return problem{http.StatusBadRequest, "Unknown generation"}
	case j17.CodeEventTypeRetired:
		return problem{http.StatusGone, "Event type retired"}
	case j17.CodeUpcastFailed:
		return problem{http.StatusUnprocessableEntity, "Upcast failed"}

	// Authentication and rights.
	case j17.CodeUnauthorized:
		return problem{http.StatusUnauthorized, "Unauthorized"}
	case j17.CodeWrongEnvironment:
		return problem{http.StatusForbidden, "Wrong environment"}
	case j17.CodeWrongInstance:
		return problem{http.StatusForbidden, "Wrong instance"}
	case j17.CodeInsufficientScope:
		return problem{http.StatusForbidden, "Insufficient scope"}
	case j17.CodeForbidden:
		return problem{http.StatusForbidden, "Forbidden"}
	case j17.CodeForbiddenOrigin:
		return problem{http.StatusForbidden, "Forbidden origin"}

	// Something is missing, or not as expected.
	case j17.CodeNotFound:
		return problem{http.StatusNotFound, "Not found"}
	case j17.CodeAggregateNotFound:
		return problem{http.StatusNotFound, "Aggregate not found"}
	case j17.CodeUnknownType:
		return problem{http.StatusNotFound, "Unknown aggregate type"}
	case j17.CodeUnknownEventType:
		return problem{http.StatusNotFound, "Unknown event type"}
	case j17.CodeUnknownProjection:
		return problem{http.StatusNotFound, "Unknown projection"}
	case j17.CodeMethodNotAllowed:
		return problem{http.StatusMethodNotAllowed, "Method not allowed"}
	case j17.CodeConflict:
		return problem{http.StatusConflict, "Conflict"}
	case j17.CodeMisdirected:
		return problem{http.StatusMisdirectedRequest, "Misdirected request"}
	case j17.CodeCheckpointOutdated:
		return problem{http.StatusConflict, "Checkpoint outdated"}
	case j17.CodeGracePeriod:
		return problem{http.StatusConflict, "Grace period"}
	case j17.CodePreconditionFailed:
		return problem{http.StatusPreconditionFailed, "Precondition failed"}

	// The request can be read but is refused.
	case j17.CodePayloadTooLarge:
		return problem{http.StatusRequestEntityTooLarge, "Payload too large"}
	case j17.CodeHeaderTooLarge:
		return problem{http.StatusRequestHeaderFieldsTooLarge, "Request header too large"}
	case j17.CodeInvalidIdentifier:
		return problem{http.StatusUnprocessableEntity, "Invalid identifier"}
	case j17.CodeIdempotencyReuse:
		return problem{http.StatusUnprocessableEntity, "Idempotency key reused"}
	case j17.CodeIdempotencyErased:
		return problem{http.StatusConflict, "Erased since"}
	case j17.CodeInvalidSpec:
		return problem{http.StatusUnprocessableEntity, "Invalid spec"}
	case j17.CodeIncompatibleSpec:
		return problem{http.StatusUnprocessableEntity, "Incompatible spec"}
	case j17.CodeRequirementFailed:
		return problem{http.StatusUnprocessableEntity, "Requirement failed"}
	case j17.CodeAlreadyExists:
		return problem{http.StatusConflict, "Already exists"}
	case j17.CodeConditionFailed:
		return problem{http.StatusConflict, "Condition failed"}
	case j17.CodeNotUnique:
		return problem{http.StatusConflict, "Not unique"}
	case j17.CodeInvalidOperand:
		return problem{http.StatusUnprocessableEntity, "Invalid operand"}
	case j17.CodeHandlerRejected:
		return problem{http.StatusUnprocessableEntity, "Event refused by the aggregate"}
	case j17.CodeImplicationFailed:
		return problem{http.StatusUnprocessableEntity, "Implied event refused"}
	case j17.CodeImplicationLimit:
		return problem{http.StatusUnprocessableEntity, "Too many implied events"}
	case j17.CodeScheduleLimit:
		return problem{http.StatusUnprocessableEntity, "Too many scheduled events"}
	case j17.CodeCustomCodeFailed:
		return problem{http.StatusInternalServerError, "Custom code failed"}
	case j17.CodeInvalidBlob:
		return problem{http.StatusUnprocessableEntity, "Invalid blob"}
	case j17.CodeBlobInUse:
		return problem{http.StatusConflict, "Blob in use"}

	// The server cannot do this, at all or now.
	case j17.CodeRateLimited:
		return problem{http.StatusTooManyRequests, "Too many requests"}
	case j17.CodeInternal:
		return problem{http.StatusInternalServerError, "Internal error"}
	case j17.CodeCorruption:
		return problem{http.StatusInternalServerError, "Damaged data"}
	case j17.CodeNoSpec:
		return problem{http.StatusServiceUnavailable, "No spec deployed"}
	case j17.CodeStorageFull:
		return problem{http.StatusServiceUnavailable, "Storage full"}
	case j17.CodeOutcomeUnknown:
		return problem{http.StatusServiceUnavailable, "Outcome unknown"}
	case j17.CodeUnavailable:
		return problem{http.StatusServiceUnavailable, "Unavailable"}
	case j17.CodeStandby:
		return problem{http.StatusServiceUnavailable, "Standby"}
	case j17.CodeNotIndexed:
		return problem{http.StatusBadRequest, "Not indexed"}
	case j17.CodeProjectionLimit:
		return problem{http.StatusUnprocessableEntity, "Too much for a projection"}
	case j17.CodeWorkLimit:
		return problem{http.StatusUnprocessableEntity, "Too much work"}
	case j17.CodeBusy:
		return problem{http.StatusServiceUnavailable, "Busy"}
	case j17.CodeNoGeo:
		return problem{http.StatusNotFound, "No places"}
	case j17.CodeIndexNotReady:
		return problem{http.StatusServiceUnavailable, "Index not ready"}
	case j17.CodeTooManyStreams:
		return problem{http.StatusTooManyRequests, "Too many streams"}
	case j17.CodeStateNotReady:
		return problem{http.StatusServiceUnavailable, "State not ready"}
	default:
		return problem{http.StatusInternalServerError, "Internal error"}
	}
}

// maxDrained is how much is read of a body that is too large, for its sender's sake: many clients read no answer before
// they have sent everything, and would otherwise see only a closed connection.
const maxDrained = 64 << 20

// drainTime is how long the sender of a refused body may take to send what is drained.
const drainTime = 10 * time.Second

// drain sends what has been answered and then reads what is left of the body, unless its sender waits for permission to
// send it.
func drain(c *call, w http.ResponseWriter) {
	control := http.NewResponseController(w)
	_ = control.Flush() // the client may be gone, there is nobody to tell
	if strings.EqualFold(c.request.Header.Get("Expect"), "100-continue") {
		return
	}
	// Of the connection, whatever the server's clock shows.
	_ = control.SetReadDeadline(clock.System{}.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, c.request.Body, maxDrained)
}

// passes reports whether an error is temporary: a client that tries again gets an answer.
func passes(code j17.Code) bool {
	return code == j17.CodeBusy || code == j17.CodeStateNotReady || code == j17.CodeIndexNotReady ||
		code == j17.CodeTooManyStreams
}

// fail answers with an error and logs it if the fault is the server's.
func (c *call) fail(w http.ResponseWriter, err error) {
	e, body := c.api.faults.problem(c, err)
	if e.Code == j17.CodePayloadTooLarge {
		c.api.guard.refusals.note(c, e)
		// Otherwise the server reads the body before it answers; HTTP/2 does not.
		_ = http.NewResponseController(w).EnableFullDuplex()
		c.release() // what is drained is kept nowhere
		defer drain(c, w)
	}

	// What the client is to do.
	h := w.Header()
	switch {
	case passes(e.Code), body.Status == http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case body.Status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case body.Status == http.StatusTooManyRequests:
		if d, ok := e.Details.(auth.RetryAfter); ok {
			h.Set("Retry-After", strconv.FormatInt(d.Seconds, 10))
		}
	}

	raw := c.api.faults.redactedProblem(body)
	h.Del("Etag")
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	c.write(w, body.Status, raw)
}
