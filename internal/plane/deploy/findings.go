package deploy

import (
	"fmt"
	"slices"
	"strings"

	"j17"
	"j17/internal/lang/diag"
)

// invalid returns the error for a spec that has errors among its findings.
func invalid(found []diag.Diagnostic) *j17.Error {
	wrong := errorsOf(found)
	e := j17.Errorf(j17.CodeInvalidSpec, "The spec has %s and was not deployed. Correct what 'errors' lists.", j17.Count(len(wrong), "error"))
	e.Errors = diag.FieldErrors(wrong)
	return e
}

// incompatible returns the error for a spec that stored events may not survive, or under which posted projections are
// not valid.
func incompatible(found []diag.Diagnostic, posted []string, env j17.Environment) *j17.Error {
	wrong := errorsOf(found)
	var say []string
	if reasons := len(wrong) - len(posted); reasons > 0 {
		say = append(say, fmt.Sprintf("Events that are stored in %s may not survive this spec, for %s.", env.LongName(), j17.Count(reasons, "reason")))
	}
	if len(posted) > 0 {
		say = append(say, fmt.Sprintf("Projections that were posted to %s would not be valid under this spec: %s.", env.LongName(), strings.Join(posted, ", ")))
	}
	way := "Change what 'errors' lists, or deploy with \"force\": true."
	if len(posted) > 0 {
		way = "Change what 'errors' lists, or deploy with \"force\": true, which removes such projections."
	}
	e := j17.Errorf(j17.CodeIncompatibleSpec, "%s %s", strings.Join(say, " "), way)
	e.Errors = diag.FieldErrors(wrong)
	return e
}

// sharedValues returns the error for a spec with unique sets in which several aggregates already have the same value.
func sharedValues(found []diag.Diagnostic, env j17.Environment) *j17.Error {
	e := j17.Errorf(j17.CodeIncompatibleSpec, "In %s there are values that would have to be unique and are not: %s. Change what 'errors' lists, or deploy with \"force\": true: then the first of such aggregates has the value.",
		env.LongName(), found[0].Message)
	e.Errors = diag.FieldErrors(found)
	return e
}

func errorsOf(found []diag.Diagnostic) []diag.Diagnostic {
	return slices.DeleteFunc(slices.Clone(found), func(d diag.Diagnostic) bool { return d.Severity != diag.Error })
}

func asWarnings(found []diag.Diagnostic) []diag.Diagnostic {
	found = slices.Clone(found)
	for i := range found {
		found[i].Severity = diag.Warning
	}
	return found
}
