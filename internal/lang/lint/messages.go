package lint

import (
	"slices"
	"strings"

	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
)

const (
	noStateYet diag.Message = "warning: %q leads to nothing: %q is the first event of its aggregate, which has no state before it\n" +
		`look at "$.data", or do without "creates": "only"`
	neverFirst diag.Message = "warning: this is always refused: %q has to be the first event of its aggregate, and %q is written to that aggregate before it\n" +
		`emit it to another aggregate, or do without "creates": "only"`
	wordInQuery diag.Message = "warning: the field is compared with the text %[1]q\n" +
		"write %[2]s for the value, or the text in the double quotes of JSON"
	// nameOutsideState: the names of an aggregate are beside its state.
	nameOutsideState diag.Message = "warning: %q leads to nothing: no handler of %q writes %q, and names of aggregates are no part of their states\n" +
		`replies have them beside the state: "metadata" of one value, and each row of a list, for the aggregate that it is about`
	wholeSource diag.Message = "warning: %[1]q is all of the source %[2]q here, which is no id and no field\n" +
		"write %+[3]q if its id is meant, and give a parameter of that name another one"
	memberOfMany diag.Message = "warning: %q leads to nothing: the source is an array, which has elements and no members\n" +
		`write "[*]" behind the source for all of them, "[0]" for the first, or find one with $lookup`
	elementOfOne diag.Message = "warning: %q leads to nothing: a source of one aggregate is no array\n" +
		`leave the brackets out, or read many aggregates with "mode": "array" or a query`
	sourceWithoutDollar diag.Message = "warning: %[1]q is a text here, not a path\nwrite %+[2]q for the path"
	// prevOfTheFirst: the first step of a saga has none before it.
	prevOfTheFirst diag.Message = "warning: %q leads nowhere in the first step of a saga: no step comes before it\n" +
		`the event that triggers the saga is at "$.data", "$.key" and "$.metadata"`
	predicateAsData diag.Message = "warning: this is data, an object with the member %q: predicates are for conditions, and nothing is decided where values stand\n" +
		`write {"$if": {%+q: ...}, "then": true, "else": false}; {"$literal": ...} is for data that look like this, in which paths are texts`
	// choiceAsData: in values, every operator begins with "$", this one too.
	choiceAsData diag.Message = `warning: this is data, an object with the members "if" and "then": nothing is decided where it stands` + "\n" +
		`write {"$if": predicate, "then": value, "else": value}; {"$literal": ...} is for data that look like this, in which paths are texts`
	neverOfKind diag.Message = "warning: %s never changes anything here: handlers set %q to %s, and it works on %s\n" +
		"set it to %[4]s, or use a member of another name"
	neverOfKindInData diag.Message = "warning: %s never fits here: %q is %s, and it works on %s\n" +
		"set it to %[4]s before, or correct the target"
	pathOfKind diag.Message = "warning: %q is never %s: it is %s\ncorrect the path, or what it leads to"
	neverPlace diag.Message = "warning: %[1]q never leads to %[2]s that the server reads, by its schema, so that every event with a value there is refused\n" +
		"let the schema have %[3]s"
	operandOfKind diag.Message = "warning: this is never %s: it is %s\n" +
		"write %[1]s, or a path or an operator that yields one"
	neverATime diag.Message = "warning: this is never a time: it is %s\n" +
		`times are texts with a date, a time and an offset, as "format": "date-time" lets in, or whole numbers of Unix seconds`
	choiceOfNothing diag.Message = "warning: this is null where the predicate of $if does not hold, and %s is needed\n" +
		`add "else"`
	operandsUnlike diag.Message = "warning: %s compares nothing here: this is %s, and the operand before it %s\n" +
		"let all operands be numbers, or all texts"
	elementsOfKind diag.Message = "warning: the elements of %q are never %s: each is %s\n" +
		"correct the path, or what it leads to"
	pathWithoutDollar diag.Message = "warning: %[1]q is a text here, not a path\n" +
		`write %+[2]q for the path, or {"$literal": %+[1]q} for the text`
	neverFits diag.Message = "warning: %[1]s: %[2]s has to be %[3]s there\nit is %[4]s here"
	// readExists: a read always has a value, if only null.
	readExists diag.Message = "warning: %q always exists: it is null where the aggregate has no events\n" +
		`to ask for events write {"not_equals": [%q, null]}`
	neverChosen   diag.Message = "warning: %s: %s cannot be %s there\nwrite one of the values that the schema allows"
	neverComplete diag.Message = "warning: %s: %s is required there\nadd it, or make it optional in the schema"
	neverAllowed  diag.Message = "warning at key: %s: %s is not allowed there\n" +
		"leave it out, or declare it in the schema"
	neverValid diag.Message = "warning: %s: %s\nwrite what the schema lets through, or change the schema"
	// settled: a predicate without a path in it.
	settled diag.Message = "warning: this %s holds, whatever happens: there is no path in it, only texts and numbers as they are\n" +
		`paths begin with "$", as in {"gte": ["$.data.amount", 10]}`
	unusedRead diag.Message = "warning at key: %[1]q is read for every event, and nothing here looks at it\n" +
		"look at %[2]q in a guard, a condition or an emit, or take it out"
	sameForAll diag.Message = "warning: the value is the same in all events, so that one aggregate alone can have it\n" +
		`write a path such as "$.data.email", or, where one holder at a time is meant, {"$literal": ...}`
	nothingThere diag.Message = "warning: %q leads nowhere in any event: the schema of %s does not allow %q\n" +
		"declare it in the schema, or correct the path"
	neverWritten diag.Message = "warning: %q leads to nothing: no handler of this aggregate type writes %q\n" +
		"write it in a handler, or correct the path"
	neverInData diag.Message = "warning: %q leads to nothing: the schema of the data does not allow %q, and no operation of the step writes it\n" +
		"declare it in the schema of this generation, or correct the path"
	neverTaken diag.Message = "warning: the schema of the next generation does not allow this: %s has no %q there\n" +
		"declare it there, or correct the target"
	neverMade diag.Message = "warning: no event ever fits the next generation: it requires %q, and nothing is there after this step\n" +
		"move something there, set it, or give it a default"
	neverOfNext diag.Message = "warning: no event ever fits the next generation: %q has to be %s there, and it is %s after this step\n" +
		"set it to what it has to be"
	neverGone diag.Message = "warning: no event ever fits the next generation: %q is always there, and not allowed after this step\n" +
		"move it or drop it"
	neverComes diag.Message = "warning: %[1]s is retired, so that no event of it comes any more\n%[2]s"
	putsItself diag.Message = "warning: this never changes anything: %q becomes what it is\n" +
		"leave it out, or correct the value"
	fillsNothing diag.Message = "warning: this never changes anything: %q is always there, as the schema of this generation requires it\n" +
		"leave it out, or correct the target"
	neverWrittenBy diag.Message = "warning: %q leads to nothing: no handler of %q writes %q\n" +
		"write it in a handler, or correct the path"
	// neverMatched: a missing field matches nothing.
	neverMatched diag.Message = "warning at key: this matches nothing: no handler of this aggregate type writes %q to an element of %q\n" +
		"write it in a handler, or correct the name"
	// neverAmong: a value that the schema does not allow is never there.
	neverAmong diag.Message = "warning: %q is never %q, by its schema\n" +
		"write one of the values that the schema allows, or add this one to them"
	neverComparable diag.Message = "warning: %s %s holds here: it compares %s with %s\n" +
		"compare numbers with numbers and texts with texts, or correct the path or the schema"
	calculationInPath diag.Message = "warning: %q is read as a path to a member of that name; nothing is calculated, and %q is part of the name"
	calculationInText diag.Message = "warning: %q is a text here, in which nothing is calculated"
	pathInText        diag.Message = "warning: %[1]q is a text with %[2]q in it, which stays as it is: a path is followed where it stands alone\n" +
		`write {"$concat": %[3]s}, or {"$literal": ...} for the text`
	quotedInQuery diag.Message = "warning: the field is compared with %[1]q, and the quotes are part of that text\n" +
		"write the text alone, as in field = %[2]s, or in the double quotes of JSON"
)

// lost sets the hint for a path in which name leads to nothing: the most similar member. It reports false, and leaves
// the hint as it is, where none is similar.
func (l *linter) lost(d *diag.Diagnostic, path, name string, members []string) bool {
	if is, ok := subtracted(path, name, members); ok {
		instead(is, d)
		return true
	}
	return l.Suggest(d, name, members)
}

// known names types as Kinds.Phrase does, without null, which stands for what is missing.
func known(k outline.Kinds) string {
	if k == outline.Any {
		return "something"
	}
	if k != outline.Null {
		k &^= outline.Null
	}
	return k.Phrase()
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

// subtracted returns the calculation in a path whose last member does not exist, but whose name begins with that of one
// that does: such a name may have a "-" or a "/" in it.
func subtracted(path, name string, declared []string) (is jsonpath.Calculation, ok bool) {
	for _, operator := range []string{"-", "/", "+", "*"} {
		left, right, found := strings.Cut(name, operator)
		if found && slices.Contains(declared, left) &&
			(slices.Contains(declared, right) || strings.Trim(right, "0123456789") == "") {
			return jsonpath.Calculate(strings.Replace(path, name, left+" "+operator+" "+right, 1))
		}
	}
	return is, false
}
