package decider

import (
	"errors"
	"fmt"
	"strings"

	"j17"
	"j17/internal/lang/diag"
)

// Link is one event of a chain of implications.
type Link struct {
	Key       string `json:"key"`
	EventType string `json:"event_type"`
}

// ImplicationFailure describes a write that was rejected because of an implied event.
type ImplicationFailure struct {
	// At is the Unix second of the rejection.
	At int64 `json:"at"`
	// Trigger is the event that was written; Chain leads from it to the event that was refused.
	Trigger Link   `json:"trigger"`
	Chain   []Link `json:"chain"`
	// Pointer is the place of the implication in the spec; if the spec forbids the refused event, it is the place that
	// forbids it, and Implication is that of the implication.
	Pointer     diag.Pointer `json:"pointer,omitempty"`
	Implication diag.Pointer `json:"implication,omitempty"`
	Code        j17.Code     `json:"code"`
	// Error is the part of the refused event's own error that may be kept: j17.Record. For an event that the spec
	// forbids it is only the code and the path, since a guard's message is for the writer.
	Error string `json:"error"`
	Path  string `json:"path,omitempty"`
}

// implicationDetails are the details of the error that rejects a write because of an implied event.
type implicationDetails struct {
	Chain   []Link       `json:"chain"`
	Pointer diag.Pointer `json:"pointer,omitempty"`
	// Cause is the code of the refused event's own error, Details are its details.
	Cause   j17.Code `json:"cause,omitempty"`
	Details any      `json:"details,omitempty"`
	Limit   int      `json:"limit,omitempty"`
}

// ImpliedBy returns the place in the spec of the implication because of which a write was refused; "" for other errors.
func ImpliedBy(err *j17.Error) diag.Pointer {
	details, _ := err.Details.(implicationDetails)
	return details.Pointer
}

// chain returns the chain from the command's own event to event number i.
func (x *Decision) chain(i int) []Link {
	if i < 0 {
		return nil
	}
	o := &x.Events[i]
	return append(x.chain(o.Cause), Link{o.Key.String(), o.Type})
}

// refuse rejects the write because of the implied event o. Errors of the server and of custom code stay as they are.
func (s *scene) refuse(o *Event, err error) error {
	return s.Reject(s.cause, &Link{o.Key.Type + ":" + j17.Printable(o.Key.ID), o.Type}, o.At, err)
}

// refuseAt rejects the write because of an implication that failed before it made an event.
func (s *scene) refuseAt(at diag.Pointer, err error) error {
	return s.Reject(s.cause, nil, at, err)
}

// Reject rejects the write because of an implication of event number i; refused is the implied event, nil if there is
// none yet.
func (x *Decision) Reject(i int, refused *Link, at diag.Pointer, err error) error {
	chain := x.chain(i)
	if refused != nil {
		chain = append(chain, *refused)
	}
	cause, ok := errors.AsType[*j17.Error](err)
	if !ok {
		return err
	}
	out := cause
	switch cause.Code { //nolint:exhaustive // all others are refusals
	case j17.CodeCustomCodeFailed:
	case j17.CodeCorruption, j17.CodeUnavailable, j17.CodeInternal, j17.CodeWorkLimit:
		return err
	default:
		last := chain[len(chain)-1]
		out = j17.Errorf(j17.CodeImplicationFailed, "Nothing was written, because an implied event was refused: %s. The chain is %s.",
			strings.TrimSuffix(cause.Message, "."), chainText(chain))
		if cause.Path != "" {
			out.Message = fmt.Sprintf("Nothing was written, because the implied event %s was refused at %s: %s. The chain is %s.",
				last.EventType, cause.Path, strings.TrimSuffix(cause.Message, "."), chainText(chain))
		}
		out.Path, out.Errors, out.Plain = cause.Path, cause.Errors, cause.Plain
		out.Details = implicationDetails{Chain: chain, Pointer: at, Cause: cause.Code, Details: cause.Details}
	}
	x.Failure = &ImplicationFailure{
		At: x.Timestamp, Trigger: chain[0], Chain: chain, Pointer: at, Code: cause.Code, Error: j17.Record(cause),
		Path: cause.Path,
	}
	if refused != nil && cause.Code == j17.CodeInvalidIdentifier {
		// A value that is not an identifier is data, and must not be kept.
		typ, _, _ := strings.Cut(refused.Key, ":")
		x.Failure.Chain = append(chain[:len(chain)-1:len(chain)-1], Link{Key: typ, EventType: refused.EventType})
	}
	return x.inOwn(out, i)
}

// tooMuch adds to the error of an exhausted budget, unless it has been added before, that the work for event number i
// used it up: its handler, or the implication at a place of the spec. Other errors are returned as they are.
func (x *Decision) tooMuch(err error, i int, what string, at diag.Pointer) error {
	cause, ok := errors.AsType[*j17.Error](err)
	if !ok || cause.Code != j17.CodeWorkLimit {
		return err
	}
	switch cause.Details.(type) {
	case nil, faultDetails:
	default: // it is said
		return x.inOwn(err, i)
	}
	chain := x.chain(i)
	last := chain[len(chain)-1]
	out := j17.Errorf(j17.CodeWorkLimit, "%s; it was used up by the event %s of %s, by %s at %s. Nothing was written.",
		strings.TrimSuffix(strings.TrimSuffix(cause.Message, " Nothing was changed."), "."), last.EventType, last.Key,
		what, at)
	out.Plain = cause.Plain
	out.Details = WorkDetails{
		Key: last.Key, EventType: last.EventType, Pointer: at, Chain: chain, Details: cause.Details,
	}
	return x.inOwn(out.Because(cause), i)
}

// inOwn adds to an error the number of the command's own event that caused it; i is the number of any event.
func (x *Decision) inOwn(err error, i int) error { return x.command.InOwn(err, x.Events[i].Own) }

// limit rejects the write because an implied event exceeds a limit.
func (s *scene) limit(o *Event, what string, limit int) error {
	chain := append(s.chain(s.cause), Link{o.Key.Type + ":" + j17.Printable(o.Key.ID), o.Type})
	s.Failure = &ImplicationFailure{
		At: s.Timestamp, Trigger: chain[0], Chain: chain, Pointer: o.At, Code: j17.CodeImplicationLimit,
		Error: what + ".",
	}
	err := j17.Errorf(j17.CodeImplicationLimit, "%s, so nothing was written. The chain is %s.", what, chainText(chain))
	err.Details = implicationDetails{Chain: chain, Pointer: o.At, Limit: limit}
	return s.inOwn(err, s.cause)
}

// chainText writes a chain as one line.
func chainText(chain []Link) string {
	var b strings.Builder
	for i, l := range chain {
		if i > 0 {
			b.WriteString(" → ")
		}
		b.WriteString(l.Key + " " + l.EventType)
	}
	return b.String()
}
