package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
)

const (
	// What looks finds, see looks.go, and paths that are none.

	// prevOfTheFirst: the first step of a saga has none before it.
	prevOfTheFirst diag.Message = "warning: %q leads nowhere in the first step of a saga: no step comes before it\n" +
		`the event that triggers the saga is at "$.data", "$.key" and "$.metadata"`
	predicateAsData diag.Message = "warning: this is data, an object with the member %q: predicates are for conditions, and nothing is decided where values stand\n" +
		`write {"$if": {%+q: ...}, "then": true, "else": false}; {"$literal": ...} is for data that look like this, in which paths are texts`
	// choiceAsData: in values the operator has a "$", as all of them have.
	choiceAsData diag.Message = `warning: this is data, an object with the members "if" and "then": nothing is decided where it stands` + "\n" +
		`write {"$if": predicate, "then": value, "else": value}; {"$literal": ...} is for data that look like this, in which paths are texts`
	neverOfKind diag.Message = "warning: %s never changes anything here: handlers set %q to %s, and it works on %s\n" +
		"set it to %[4]s, or use a member of another name"
	pathOfKind diag.Message = "warning: %q is never %s: it is %s\ncorrect the path, or what it leads to"
	neverPlace diag.Message = "warning: %[1]q never leads to %[2]s that the server reads, by its schema, so that every event with a value there is refused\n" +
		"let the schema have %[3]s"
	operandOfKind diag.Message = "warning: this is never %s: it is %s\n" +
		"write %[1]s, or a path or an operator that yields one"
	neverATime diag.Message = "warning: this is never a time: it is %s\n" +
		`times are texts with a date, a time and an offset, as "format": "date-time" lets in, or whole numbers of Unix seconds`
	choiceOfNothing diag.Message = "warning: this is null where the predicate of $if does not hold, and %s is needed\n" +
		`add "else"`
	operandsUnlike diag.Message = "warning: %s compares nothing here: this is %s, and what stands before it %s\n" +
		"let all operands be numbers, or all texts"
	elementsOfKind diag.Message = "warning: the elements of %q are never %s: each is %s\n" +
		"correct the path, or what it leads to"
	pathWithoutDollar diag.Message = "warning: %[1]q is a text here, not a path\n" +
		`write %+[2]q for the path, or {"$literal": %+[1]q} for the text`
	neverFits diag.Message = "warning: %[1]s: %[2]s has to be %[3]s there\nit is %[4]s here"
	// readExists: a read leads somewhere, whatever is there.
	readExists diag.Message = "warning: %q always exists: it is null where the aggregate has no events\n" +
		`to ask for events write {"not_equals": [%q, null]}`
	neverChosen   diag.Message = "warning: %s: %s cannot be %s there\nwrite one of the values that the schema allows"
	neverComplete diag.Message = "warning: %s: %s is required there\nadd it, or make it optional in the schema"
	neverAllowed  diag.Message = "warning at key: %s: %s is not allowed there\n" +
		"leave it out, or declare it in the schema"
	neverValid diag.Message = "warning: %s: %s\nwrite what the schema lets through, or change the schema"
	// settled: only nothing in it is a path.
	settled diag.Message = "warning: this %s holds, whatever happens: there is no path in it, only texts and numbers as they are\n" +
		`paths begin with "$", as in {"gte": ["$.data.amount", 10]}`
	unusedRead diag.Message = "warning at key: %[1]q is read for every event, and nothing here looks at it\n" +
		"look at %[2]q in a guard, a condition or an emit, or take it out"
	unusedDefinition diag.Message = "warning at key: no schema uses the definition %[1]q\n" +
		`refer to it with {"$ref": %[2]q}, or take it out`
	sameForAll diag.Message = "warning: the value is the same in all events, so that one aggregate alone can have it\n" +
		`write a path such as "$.data.email", or, where one holder at a time is meant, {"$literal": ...}`
)

func (m *messages) badPath(at diag.Pointer, err error) {
	d := m.Errorf(at, "%v", err)
	if syntax, ok := errors.AsType[*jsonpath.SyntaxError](err); ok {
		d.Hint = syntax.Hint
	}
}

func (m *messages) nothingThere(at diag.Pointer, path, parent, name string, declared []string) {
	d := m.Warnf(at, "%s leads nowhere in any event: the schema of %s does not allow %s", quote(path), parent, quote(name))
	if is, ok := subtracted(path, name, declared); ok {
		instead(is, d)
		return
	}
	if near := m.Nearest(name, declared); near != "" {
		d.Hintf("did you mean %q?", near)
		return
	}
	if parent == "$context" {
		d.Hintf("the steps before it are there, under their names")
		return
	}
	d.Hintf("declare it in the schema, or correct the path")
}

func (m *messages) neverWritten(at diag.Pointer, text, name string, members []string) {
	d := m.Warnf(at, "%s leads to nothing: no handler of this aggregate type writes %s", quote(text), quote(name))
	if is, ok := subtracted(text, name, members); ok {
		instead(is, d)
		return
	}
	if near := m.Nearest(name, members); near != "" {
		d.Hintf("did you mean %q?", near)
		return
	}
	d.Hintf("write it in a handler, or correct the path")
}

// neverMatched: a field that is not there matches nothing.
func (m *messages) neverMatched(at diag.Pointer, array, name string, members []string) {
	d := m.Warnf(at, "this matches nothing: no handler of this aggregate type writes %s to an element of %s", quote(name), quote(array)).AtKey()
	if near := m.Nearest(name, members); near != "" {
		d.Hintf("did you mean %q?", near)
		return
	}
	d.Hintf("write it in a handler, or correct the name")
}

// known names types as phrase does, without null, which stands for what is missing.
func known(k outline.Kinds) string {
	if k == outline.Any {
		return "something"
	}
	if k != outline.Null {
		k &^= outline.Null
	}
	return phrase(k)
}

// neverAmong: what a schema does not let through is never there.
func (m *messages) neverAmong(at diag.Pointer, path, text string, known []value.Value) {
	d := m.Warnf(at, "%s is never %s, by its schema", quote(path), quote(text))
	var texts []string
	for _, v := range known {
		if v.Kind() == value.String {
			texts = append(texts, v.Str())
		}
	}
	if near := m.Nearest(text, texts); near != "" {
		d.Hintf("did you mean %q?", near)
		return
	}
	d.Hintf("write one of the values that the schema allows, or add this one to them")
}

func (m *messages) neverComparable(at diag.Pointer, predicate string, left, right outline.Kinds) {
	holds := "never"
	if predicate == "not_equals" {
		holds = "always"
	}
	m.Warnf(at, "%s %s holds here: it compares %s with %s", predicate, holds, known(left), known(right)).
		Hintf("compare numbers with numbers and texts with texts, or correct the path or the schema")
}

func (m *messages) calculationInPath(at diag.Pointer, text string, is jsonpath.Calculation) {
	instead(is, m.Warnf(at, "%s is read as a path to a member of that name; nothing is calculated, and %s is part of the name", quote(text), quote(is.Operator)))
}

func (m *messages) calculationInText(at diag.Pointer, text string, is jsonpath.Calculation) {
	instead(is, m.Warnf(at, "%s is a text here, in which nothing is calculated", quote(text)))
}

func (m *messages) pathInText(at diag.Pointer, text, part, path string) {
	d := m.Warnf(at, "%s is a text with %s in it, which stays as it is: a path is followed where it stands alone", quote(text), quote(part))
	before, after, _ := strings.Cut(text, part)
	var parts []value.Value
	for _, s := range []string{before, path, after} {
		if s != "" {
			parts = append(parts, value.StringValue(s))
		}
	}
	const most = 120
	if made := value.ArrayValue(parts...).String(); len(made) <= most {
		d.Hintf(`write {"$concat": %s}, or {"$literal": ...} for the text`, made)
		return
	}
	d.Hintf(`write {"$concat": ["The balance is ", "$.state.balance"]}, or {"$literal": ...} for the text`)
}

// instead sets the hint of how to write a calculation.
func instead(is jsonpath.Calculation, d *diag.Diagnostic) {
	switch {
	case is.Instead == "":
		d.Hintf(`calculate with operators such as {"$add": ["$.data.amount", 1]}, compare with predicates such as {"gt": ["$.data.amount", 0]}`)
	case is.Compares:
		d.Hintf("write the predicate %s", is.Instead)
	default:
		d.Hintf("write %s", is.Instead)
	}
}

// subtracted is the calculation in a path whose last member is not there, but whose name begins with one that is: such a name may have a
// "-" or a "/" in it.
func subtracted(path, name string, declared []string) (is jsonpath.Calculation, ok bool) {
	for _, operator := range []string{"-", "/", "+", "*"} {
		left, right, found := strings.Cut(name, operator)
		if found && slices.Contains(declared, left) && (slices.Contains(declared, right) || strings.Trim(right, "0123456789") == "") {
			return jsonpath.Calculate(strings.Replace(path, name, left+" "+operator+" "+right, 1))
		}
	}
	return is, false
}

// neverFitting says what data of an event never do, which is said why of. chosen tells that they are one of two values.
func neverFitting(event string, chosen bool) string {
	if chosen {
		return fmt.Sprintf("where this is chosen it does not fit the schema of %s, so that the write is refused", quote(event))
	}
	return fmt.Sprintf("this never fits the schema of %s, so that every write is refused", quote(event))
}

// shortened returns a value as JSON, cut when it is long.
func shortened(v value.Value) string {
	if v.Kind() == value.String {
		return quote(v.Str())
	}
	const most = 40
	s := v.String()
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
