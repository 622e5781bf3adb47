package saga

import (
	"cmp"
	"errors"

	"j17"
	"j17/internal/base/value"
)

// awaitTimeout is the code of a step whose answer has not come in time. All other codes are those of the API.
const awaitTimeout = "await_timeout"

// because returns the failure for a refused event.
func because(err error) Failure {
	why := Failure{Code: string(j17.CodeOf(err)), Message: j17.Record(err)}
	refused, ok := errors.AsType[*j17.Error](err)
	if !ok {
		return why
	}
	if of, ok := refused.Details.(interface{ GuardCode() string }); ok {
		why.Requirement = of.GuardCode()
	}
	return why
}

// seen returns the failure as the value of "$error".
func (f *Failure) seen() value.Value {
	orNull := func(text string) value.Value {
		if text == "" {
			return value.NullValue()
		}
		return value.StringValue(text)
	}
	return value.ObjectValue(
		value.Member{Key: "code", Value: orNull(f.Code)},
		value.Member{Key: "requirement", Value: orNull(f.Requirement)},
		value.Member{Key: "step", Value: value.StringValue(f.Step)},
		value.Member{Key: "message", Value: value.StringValue(f.Sentence())},
	)
}

// Sentence describes the failure without places in the spec: it may become part of states, which are not only read by
// sagas. The timeline has the places.
func (f *Failure) Sentence() string {
	if f.Code == "" || f.Code == awaitTimeout {
		return f.Message
	}
	why := ""
	switch j17.Code(f.Code) { //nolint:exhaustive // all others are rare, and the code says it
	case j17.CodeRequirementFailed:
		why = "what its type requires does not hold"
		if f.Requirement != "" {
			why = "the requirement " + f.Requirement + " does not hold"
		}
	case j17.CodeSchemaViolation:
		why = "its data do not fit the schema of its type"
	case j17.CodeAlreadyExists:
		why = "it can only be the first event of its aggregate, which exists already"
	case j17.CodeAggregateNotFound:
		why = "the aggregate that it is for does not exist"
	case j17.CodeNotUnique:
		why = "another aggregate holds a value that it would take"
	case j17.CodeInvalidIdentifier:
		why = "what names its aggregate is no identifier"
	case j17.CodeInvalidOperand:
		why = "a value of it cannot be computed"
	case j17.CodeHandlerRejected:
		why = "its handler refuses it"
	case j17.CodeImplicationFailed:
		why = "an event that it implies is refused"
	case j17.CodeImplicationLimit:
		why = "it would bring about more than one write may"
	case j17.CodeScheduleLimit:
		why = "too many events are scheduled already"
	case j17.CodeCustomCodeFailed:
		why = "custom code of the spec has failed"
	case j17.CodeUnknownType, j17.CodeUnknownEventType:
		why = "the spec that is deployed does not have its type"
	case j17.CodePayloadTooLarge, j17.CodeWorkLimit:
		why = "it is too large, or takes too much work"
	}
	return "The event was refused, because " + cmp.Or(why, "of the error "+f.Code) + "."
}
