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

// What looks finds, see looks.go, and paths that are none.

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

// prevOfTheFirst: the first step of a saga has none before it.
func (m *messages) prevOfTheFirst(at diag.Pointer, path string) {
	m.Warnf(at, "%s leads nowhere in the first step of a saga: no step comes before it", quote(path)).
		Hintf(`the event that triggers the saga is at "$.data", "$.key" and "$.metadata"`)
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

func (m *messages) predicateAsData(at diag.Pointer, name string) {
	m.Warnf(at, "this is data, an object with the member %s: predicates are for conditions, and nothing is decided where values stand", quote(name)).
		Hintf(`write {"$if": {%q: ...}, "then": true, "else": false}; {"$literal": ...} is for data that look like this, in which paths are texts`, name)
}

// choiceAsData: in values the operator has a "$", as all of them have.
func (m *messages) choiceAsData(at diag.Pointer) {
	m.Warnf(at, "this is data, an object with the members \"if\" and \"then\": nothing is decided where it stands").
		Hintf(`write {"$if": predicate, "then": value, "else": value}; {"$literal": ...} is for data that look like this, in which paths are texts`)
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

func (m *messages) neverOfKind(at diag.Pointer, operation, target string, has, needs outline.Kinds) {
	m.Warnf(at, "%s never changes anything here: handlers set %s to %s, and it works on %s",
		operation, quote(target), phrase(has), phrase(needs)).
		Hintf("set it to %s, or use a member of another name", phrase(needs))
}

func (m *messages) pathOfKind(at diag.Pointer, text string, has, needs outline.Kinds) {
	m.Warnf(at, "%s is never %s: it is %s", quote(text), phrase(needs), known(has)).
		Hintf("correct the path, or what it leads to")
}

func (m *messages) neverPlace(at diag.Pointer, text, what, forms string) {
	m.Warnf(at, "%s never leads to %s that the server reads, by its schema, so that every event with a value there is refused", quote(text), map[string]string{"point": "a point", "area": "an area"}[what]).
		Hintf("let the schema have %s", forms)
}

func (m *messages) operandOfKind(at diag.Pointer, has, needs outline.Kinds) {
	m.Warnf(at, "this is never %s: it is %s", phrase(needs), known(has)).Hintf("write %s, or a path or an operator that yields one", phrase(needs))
}

func (m *messages) neverATime(at diag.Pointer, has string) {
	m.Warnf(at, "this is never a time: it is %s", has).Hintf(`times are texts with a date, a time and an offset, as "format": "date-time" lets in, or whole numbers of Unix seconds`)
}

func (m *messages) choiceOfNothing(at diag.Pointer, needs outline.Kinds) {
	m.Warnf(at, "this is null where the predicate of $if does not hold, and %s is needed", phrase(needs)).Hintf(`add "else"`)
}

func (m *messages) operandsUnlike(at diag.Pointer, operator string, has, needs outline.Kinds) {
	m.Warnf(at, "%s compares nothing here: this is %s, and what stands before it %s", operator, known(has), phrase(needs)).
		Hintf("let all operands be numbers, or all texts")
}

func (m *messages) elementsOfKind(at diag.Pointer, text string, has, needs outline.Kinds) {
	m.Warnf(at, "the elements of %s are never %s: each is %s", quote(text), phrase(needs), known(has)).
		Hintf("correct the path, or what it leads to")
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

func (m *messages) pathWithoutDollar(at diag.Pointer, text, meant string) {
	m.Warnf(at, "%s is a text here, not a path", quote(text)).Hintf(`write %q for the path, or {"$literal": %q} for the text`, meant, text)
}

// neverFitting says what data of an event never do, which is said why of. chosen tells that they are one of two values.
func neverFitting(event string, chosen bool) string {
	if chosen {
		return fmt.Sprintf("where this is chosen it does not fit the schema of %s, so that the write is refused", quote(event))
	}
	return fmt.Sprintf("this never fits the schema of %s, so that every write is refused", quote(event))
}

func (m *messages) neverFits(at diag.Pointer, never, path string, has, needs outline.Kinds) {
	if needs == 0 {
		m.neverAllowed(at, never, path)
		return
	}
	m.Warnf(at, "%s: %s has to be %s there", never, path, phrase(needs)).
		Hintf("it is %s here", phrase(has))
}

// readExists: a read leads somewhere, whatever is there.
func (m *messages) readExists(at diag.Pointer, path string) {
	m.Warnf(at, "%s always exists: it is null where the aggregate has no events", quote(path)).
		Hintf(`to ask for events write {"not_equals": [%s, null]}`, quote(path))
}

func (m *messages) neverChosen(at diag.Pointer, never, path string, v value.Value) {
	m.Warnf(at, "%s: %s cannot be %s there", never, path, shortened(v)).
		Hintf("write one of the values that the schema allows")
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

func (m *messages) neverComplete(at diag.Pointer, never, path string) {
	m.Warnf(at, "%s: %s is required there", never, path).
		Hintf("add it, or make it optional in the schema")
}

func (m *messages) neverAllowed(at diag.Pointer, never, path string) {
	m.Warnf(at, "%s: %s is not allowed there", never, path).AtKey().
		Hintf("leave it out, or declare it in the schema")
}

func (m *messages) neverValid(at diag.Pointer, never, why string) {
	m.Warnf(at, "%s: %s", never, strings.TrimSuffix(why, ".")).
		Hintf("write what the schema lets through, or change the schema")
}

// settled: only nothing in it is a path.
func (m *messages) settled(at diag.Pointer, holds bool) {
	says := "never"
	if holds {
		says = "always"
	}
	m.Warnf(at, "this %s holds, whatever happens: there is no path in it, only texts and numbers as they are", says).
		Hintf(`paths begin with "$", as in {"gte": ["$.data.amount", 10]}`)
}

func (m *messages) unusedRead(at diag.Pointer, name string) {
	path := "$.reads." + name
	m.Warnf(at, "%s is read for every event, and nothing here looks at it", quote(name)).AtKey().
		Hintf("look at %s in a guard, a condition or an emit, or take it out", quote(path))
}

func (m *messages) unusedDefinition(at diag.Pointer, name string) {
	m.Warnf(at, "no schema uses the definition %s", quote(name)).AtKey().
		Hintf(`refer to it with {"$ref": %s}, or take it out`, quote("#/$defs/"+name))
}

func (m *messages) sameForAll(at diag.Pointer) {
	m.Warnf(at, "the value is the same in all events, so that one aggregate alone can have it").
		Hintf(`write a path such as "$.data.email", or, where one holder at a time is meant, {"$literal": ...}`)
}
