package tick

import (
	"errors"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
)

// Time is a compiled path or operator whose value is a time.
type Time struct {
	*Template
	// Pointer leads to it in the spec.
	Pointer diag.Pointer
}

// CompileTime compiles a time that is taken from data: a path, or an operator. what is its key. It adds everything that
// is wrong to l and returns nil if that includes an error, and for a missing v.
func CompileTime(v value.Value, at diag.Pointer, what string, s Scope, l *diag.List) *Time {
	computed := v.Kind() == value.String && jsonpath.IsPath(v.Str())
	if v.Kind() == value.Object {
		for _, m := range v.Members() {
			computed = computed || strings.HasPrefix(m.Key, "$")
		}
	}
	switch {
	case v.IsMissing():
		return nil
	case !computed:
		l.Errorf(at, "%s must be a path or an operator whose value is a time", what).Hintf(`take it from the data, as in %q: "$.data.due"`, what)
		return nil
	}
	t := CompileTemplate(v, at, s, l)
	if t == nil {
		return nil
	}
	return &Time{t, at}
}

// noTime is what a value has to be that is no time.
const noTime = `the value is no time: it has to be a text of RFC 3339 with a date, a time and an offset, such as "2027-03-01T09:00:00Z", or a whole number of Unix seconds`

// maxTimeText is more than the text of a time has, in bytes.
const maxTimeText = 1 << 10

// Eval computes the time in Unix seconds: of a text as RFC 3339 has it, with an offset and without what is below
// seconds, or of an integer. ok is false when a path that ends in "?" leads nowhere. Errors are *OperandError for what
// is no time, and that of the budget of e, which has ended.
func (t *Time) Eval(e *Env) (seconds int64, ok bool, err error) {
	v, ok, err := t.Template.Eval(e, maxTimeText)
	if errors.Is(err, ErrTooLarge) {
		return 0, false, &OperandError{t.Pointer, noTime}
	}
	if err != nil || !ok {
		return 0, false, err
	}
	m, ok := readMoment(v)
	switch {
	case ok && m.kind == secondsKind && m.rest.Sign() == 0:
		return m.wall.Unix(), true, nil
	case ok && m.kind == dateTimeKind:
		offset, _ := parseOffset(m.offset) // it was read
		return m.wall.Add(-offset).Unix(), true, nil
	}
	return 0, false, &OperandError{t.Pointer, noTime}
}

// ReadsOf is that of the template. A nil Time looks at nothing.
func (t *Time) ReadsOf() uint16 {
	if t == nil {
		return 0
	}
	return t.Template.ReadsOf()
}
