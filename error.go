package j17

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unicode"
)

// Code names one kind of failure for programs. Codes are stable: they never change their meaning. Each has one
// HTTP status (package httpapi) and one row in docs/reference/errors.md.
type Code string

// All codes.
const (
	CodeInvalidJSON        Code = "invalid_json"
	CodeInvalidContentType Code = "invalid_content_type"
	CodeInvalidRequest     Code = "invalid_request"
	CodeInvalidParameter   Code = "invalid_parameter"
	CodeInvalidHeader      Code = "invalid_header"
	CodeMissingField       Code = "missing_field"
	CodeUnknownField       Code = "unknown_field"
	CodeInvalidField       Code = "invalid_field"
	CodeUndeclaredType     Code = "undeclared_type"
	CodeReservedEventType  Code = "reserved_event_type"
	CodeSkipOCCNotAllowed  Code = "skip_occ_not_allowed"
	CodeSchemaViolation    Code = "validation_failed"
	CodeUnauthorized       Code = "unauthorized"
	CodeWrongEnvironment   Code = "wrong_environment"
	CodeWrongInstance      Code = "wrong_instance"
	CodeInsufficientScope  Code = "insufficient_scope"
	CodeForbidden          Code = "forbidden"
	CodeForbiddenOrigin    Code = "forbidden_origin"
	CodeNotFound           Code = "not_found"
	CodeAggregateNotFound  Code = "aggregate_not_found"
	CodeUnknownType        Code = "unknown_aggregate_type"
	CodeUnknownEventType   Code = "unknown_event_type"
	CodeMethodNotAllowed   Code = "method_not_allowed"
	CodeConflict           Code = "conflict"
	CodeGracePeriod        Code = "grace_period"
	CodePreconditionFailed Code = "precondition_failed"
	CodeMisdirected        Code = "misdirected"
	CodePayloadTooLarge    Code = "payload_too_large"
	CodeHeaderTooLarge     Code = "header_too_large"
	CodeInvalidIdentifier  Code = "invalid_identifier"
	CodeIdempotencyReuse   Code = "idempotency_key_reused"
	CodeIdempotencyErased  Code = "idempotency_key_erased"
	CodeInvalidSpec        Code = "invalid_spec"
	CodeIncompatibleSpec   Code = "spec_incompatible"
	CodeRequirementFailed  Code = "requirement_failed"
	CodeAlreadyExists      Code = "already_exists"
	CodeConditionFailed    Code = "condition_failed"
	CodeNotUnique          Code = "not_unique"
	CodeInvalidOperand     Code = "invalid_operand"
	CodeHandlerRejected    Code = "handler_rejected"
	CodeImplicationFailed  Code = "implication_failed"
	CodeImplicationLimit   Code = "implication_limit"
	CodeScheduleLimit      Code = "schedule_limit"
	CodeCustomCodeFailed   Code = "custom_code_failed"
	CodeInvalidBlob        Code = "invalid_blob"
	CodeBlobInUse          Code = "blob_in_use"
	CodeRateLimited        Code = "rate_limited"
	CodeInternal           Code = "internal"
	CodeCorruption         Code = "corruption"
	CodeNoSpec             Code = "no_spec_deployed"
	CodeStorageFull        Code = "storage_full"
	CodeOutcomeUnknown     Code = "outcome_unknown"
	CodeUnavailable        Code = "unavailable"
	CodeStandby            Code = "standby"
	CodeWorkLimit          Code = "work_limit"
	CodeBusy               Code = "busy"
	CodeStateNotReady      Code = "state_not_ready"
	CodeIndexNotReady      Code = "index_not_ready"
	CodeNoGeo              Code = "no_geo"
	CodeTooManyStreams     Code = "too_many_streams"
	CodeUnknownProjection  Code = "unknown_projection"
	CodeProjectionLimit    Code = "projection_limit"
	CodeNotIndexed         Code = "not_indexed"
	CodeCheckpointOutdated Code = "checkpoint_outdated"
	CodeUpcastFailed       Code = "upcast_failed"
	CodeUnknownGeneration  Code = "unknown_generation"
	CodeEventTypeRetired   Code = "event_type_retired"
)

// Codes lists every code once.
func Codes() []Code {
	return []Code{
		CodeInvalidJSON, CodeInvalidContentType, CodeInvalidRequest, CodeInvalidParameter, CodeInvalidHeader,
		CodeMissingField, CodeUnknownField, CodeInvalidField, CodeUndeclaredType, CodeReservedEventType,
		CodeSkipOCCNotAllowed, CodeSchemaViolation, CodeUnauthorized, CodeWrongEnvironment, CodeWrongInstance,
		CodeInsufficientScope, CodeForbidden, CodeForbiddenOrigin, CodeNotFound, CodeAggregateNotFound, CodeUnknownType,
		CodeUnknownEventType, CodeMethodNotAllowed, CodeConflict, CodeGracePeriod, CodePreconditionFailed,
		CodeMisdirected, CodePayloadTooLarge, CodeHeaderTooLarge,
		CodeInvalidIdentifier, CodeIdempotencyReuse, CodeIdempotencyErased, CodeInvalidSpec, CodeIncompatibleSpec,
		CodeRequirementFailed, CodeAlreadyExists,
		CodeConditionFailed, CodeNotUnique, CodeInvalidOperand, CodeHandlerRejected, CodeImplicationFailed,
		CodeImplicationLimit, CodeScheduleLimit, CodeCustomCodeFailed, CodeInvalidBlob, CodeBlobInUse, CodeRateLimited,
		CodeInternal, CodeCorruption, CodeNoSpec, CodeStorageFull, CodeOutcomeUnknown, CodeUnavailable, CodeStandby,
		CodeWorkLimit, CodeBusy, CodeStateNotReady, CodeIndexNotReady, CodeNoGeo, CodeTooManyStreams,
		CodeUnknownProjection, CodeProjectionLimit, CodeNotIndexed, CodeCheckpointOutdated,
		CodeUpcastFailed, CodeUnknownGeneration, CodeEventTypeRetired,
	}
}

// FieldError is one finding about one place of a document.
type FieldError struct {
	// Pointer is a JSON pointer (RFC 6901) into the document.
	Pointer string `json:"pointer"`
	// Path is the same place in the form "data.items[0].sku", where the document is a request or an event of a file.
	// Of an event of a file it is always there: "" is the event itself.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Code is the finding's own, where each may have another one: those of events of a file.
	Code Code `json:"code,omitempty"`
	// Plain is as in Error.
	Plain bool   `json:"-"`
	Hint  string `json:"hint,omitempty"`
	// Line and Column count from 1; 0 where the document has no text form of its own.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Index is the position of the faulty event in an array of events, counted from 0; nil where there is no array.
	Index *int `json:"index,omitempty"`
	// FailedEvent is the stored event that fails at that place of a spec; nil for all other findings.
	*FailedEvent
}

// FailedEvent is a stored event that cannot be read under a spec.
type FailedEvent struct {
	// Cause is does_not_fit, schema, work_limit or unknown_generation.
	Cause      string `json:"cause,omitempty"`
	StreamID   string `json:"stream_id,omitempty"`
	Key        string `json:"key,omitempty"`
	Type       string `json:"type,omitempty"`
	Generation int    `json:"generation,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (f FieldError) MarshalJSON() ([]byte, error) {
	type plain FieldError
	if f.Code == "" {
		return json.Marshal(plain(f))
	}
	return json.Marshal(struct {
		plain

		Path string `json:"path"`
	}{plain(f), f.Path})
}

// Error is a failure that a user of the API sees.
type Error struct {
	Code Code
	// Message is one whole sentence that says what is wrong and, where it is not plain, what to do.
	Message string
	// Plain tells that Message has nothing in it of what was sent or stored: see Record.
	Plain bool
	// Path leads to the fault in the request: "data.items[0].sku", "metadata.actor.id", "key".
	Path string
	// EventIndex is the position of the faulty event in a batch, counted from 0.
	EventIndex *int
	// WriteIndex is the position of the faulty write in a transaction, counted from 0; EventIndex is then within that
	// write.
	WriteIndex *int
	// Details is marshalled to JSON as it is.
	Details any
	// Errors lists every finding where there can be several.
	Errors []FieldError
	// Err is the cause. It is logged and never shown.
	Err error
}

// Errorf returns an error with a formatted message, which is plain where it is the format as it is.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Plain: len(args) == 0}
}

// At returns a copy of e that points at path.
func (e *Error) At(path string) *Error {
	c := *e
	c.Path = path
	return &c
}

// Because returns a copy of e with its cause, met by the caller.
func (e *Error) Because(err error) *Error {
	c := *e
	if c.Err = err; err == nil {
		return &c
	}
	const most = 32
	met := &located{error: err, callers: make([]uintptr, most)}
	met.callers = met.callers[:runtime.Callers(2, met.callers)] //nolint:mnd // skips Callers and Because
	c.Err = met
	return &c
}

// located is a cause with where it was met.
type located struct {
	error
	callers []uintptr
}

// Unwrap returns the cause itself.
func (l *located) Unwrap() error { return l.error }

// Stack tells where the cause of the error was met, a function with its place on each line; "" for an error without a
// cause.
func (e *Error) Stack() string {
	met, ok := errors.AsType[*located](e.Err)
	if !ok {
		return ""
	}
	var b strings.Builder
	for frames := runtime.CallersFrames(met.callers); ; {
		frame, more := frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", frame.Function, frame.File, frame.Line)
		if !more {
			return b.String()
		}
	}
}

// Error returns the message, with the path and the cause where there are any.
func (e *Error) Error() string {
	s := e.Message
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Err != nil {
		s += " (" + e.Err.Error() + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Record returns what may be kept or logged of an error, by whomever. A message may repeat what was sent or stored:
// where that was refused no erasure could find it, and where it is erased nobody would look for it there. So of an
// *Error it is the code, where the fault is, and the message if it is plain, else what its details have a method Record
// for; then the same of what was found and of its cause. Of an error that has a method Record it is what that returns,
// of any other one its text.
func Record(err error) string {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		if own, ok := errors.AsType[recorder](err); ok {
			return own.Record()
		}
		return err.Error()
	}

	// The code and the place, and what is wrong.
	text := string(e.Code)
	if e.Path != "" {
		text += " at " + e.Path
	}
	details, told := e.Details.(interface{ Record() string })
	switch {
	case e.IsPlain():
		text += ": " + e.Message
	case told:
		text += ": " + details.Record()
	}

	// The findings, and the cause.
	var found strings.Builder
	for i := range e.Errors {
		f := &e.Errors[i]
		found.WriteString([]string{" ", "; "}[min(i, 1)] + f.Pointer)
		if f.Plain {
			found.WriteString(": " + f.Message)
		}
	}
	text += found.String()
	if e.Err != nil {
		text += " (" + Record(e.Err) + ")"
	}
	return text
}

// IsPlain reports whether the error's message is plain, as those of some codes always are: they are about the spec,
// about parameters, or about the state of the server.
func (e *Error) IsPlain() bool {
	switch e.Code { //nolint:exhaustive // all others may be about an event
	case CodeInvalidSpec, CodeNoSpec, CodeBusy, CodeStateNotReady, CodeIndexNotReady, CodeStorageFull,
		CodeScheduleLimit, CodeRateLimited, CodeTooManyStreams,
		CodeInvalidParameter, CodeInvalidHeader:
		return true
	default:
		return e.Plain
	}
}

// recorder is an error that says what may be kept of it.
type recorder interface {
	error
	Record() string
}

// CodeOf returns the code of the first *Error in err's chain, CodeInternal for other errors, "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// At returns err with a path where it is an *Error, else err.
func At(err error, path string) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.At(path)
	}
	return err
}

// InEvent returns err with the position of the faulty event in a batch where it is an *Error, else err.
func InEvent(err error, index int) error {
	if e, ok := errors.AsType[*Error](err); ok {
		c := *e
		c.EventIndex = &index
		return &c
	}
	return err
}

// InWrite returns err with the position of the faulty write in a transaction where it is an *Error, else err.
func InWrite(err error, index int) error {
	if e, ok := errors.AsType[*Error](err); ok {
		c := *e
		c.WriteIndex = &index
		return &c
	}
	return err
}

// JoinPath extends a path of the form that errors have: "data" by "items[0].sku", by "[0]" or by nothing.
func JoinPath(path, more string) string {
	switch {
	case path == "":
		return more
	case more == "" || more[0] == '[':
		return path + more
	default:
		return path + "." + more
	}
}

// Count is a number with its noun: 1 event, 2 events, 2 entries.
func Count[N int | int64 | uint32 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, y := strings.CutSuffix(noun, "y"); y && !strings.ContainsAny(stem[len(stem)-1:], "aeou") {
		noun = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Printable returns a name from outside, fit for a sentence: control characters replaced, long ones cut.
func Printable(s string) string {
	const most = 80
	cut := false
	if len(s) > most {
		s, cut = s[:most], true
	}
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if cut {
		s += "..."
	}
	return s
}
