package jsonpath

import (
	"slices"
	"strings"
)

// Calculation is what a text calculates or compares, as other languages write it. In a spec it is not carried out: in a
// path it is part of a name, and in a text it stays text.
type Calculation struct {
	// Operator is the first one that was read.
	Operator string
	// Instead is the equivalent in JSON with operators and predicates, "" where one of them has no counterpart.
	Instead string
	// Compares reports that Instead is a predicate.
	Compares bool
}

// Limits of what is taken for a calculation. Longer texts are prose, or too long to be repeated in a hint.
const (
	maxCalculation = 256
	maxParentheses = 8
)

// Calculate reads a text as a calculation with at least one path. Paths may lack the "$." before data, state and
// metadata, and then a text has to be made of nothing but paths, numbers, quoted texts, parentheses and operators; an
// operand of a text that starts like a path may be a single word too. It reports false for every other text.
func Calculate(text string) (Calculation, bool) {
	if len(text) < 3 || len(text) > maxCalculation || !strings.ContainsAny(text, "+-*/%<>=&|") {
		return Calculation{}, false
	}
	r := calculationReader{text: text, words: IsPath(text)}
	made := r.level(0)
	r.space()
	if r.failed || r.pos < len(text) || !r.paths || r.found.Operator == "" {
		return Calculation{}, false
	}
	if !r.strange {
		r.found.Instead, r.found.Compares = made.json, made.compares
	}
	return r.found, true
}

// calculationReader reads operands and operators, the weakest operators first.
type calculationReader struct {
	text string
	pos  int
	// words allows operands that are single words.
	words bool
	depth int
	found Calculation
	// failed reports that the text is no calculation, paths that a path was read, and strange that an operator has no
	// counterpart.
	failed, paths, strange bool
}

// part is a part of a calculation as JSON.
type part struct {
	json     string
	compares bool
	// sum has the operator's name where another operand may be added to it.
	sum string
}

// levels are the operators from the weakest on, longer ones before those that they begin with.
func levels() [][]string {
	return [][]string{{"||"}, {"&&"}, {"===", "!==", "==", "!=", "<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}}
}

// counterpart returns the name of an operator in specs, "" for one that does not exist there.
func counterpart(operator string) (name string, compares bool) {
	switch operator {
	case "||":
		return "or", true
	case "&&":
		return "and", true
	case "==", "===":
		return "equals", true
	case "!=", "!==":
		return "not_equals", true
	case "<":
		return "lt", true
	case "<=":
		return "lte", true
	case ">":
		return "gt", true
	case ">=":
		return "gte", true
	case "+":
		return "$add", false
	case "-":
		return "$subtract", false
	case "*":
		return "$multiply", false
	case "/":
		return "$divide", false
	}
	return "", false
}

func (r *calculationReader) space() {
	for r.pos < len(r.text) && r.text[r.pos] == ' ' {
		r.pos++
	}
}

// level reads operands with operators of a level between them.
func (r *calculationReader) level(n int) part {
	if n == len(levels()) {
		return r.operand()
	}
	left := r.level(n + 1)
	for !r.failed {
		operator := r.operator(levels()[n])
		if operator == "" {
			break
		}
		if r.found.Operator == "" {
			r.found.Operator = operator
		}
		left = r.joined(operator, left, r.level(n+1))
	}
	return left
}

// operator reads one of the operators, "" where none of them stands there.
func (r *calculationReader) operator(of []string) string {
	was := r.pos
	r.space()
	for _, operator := range of {
		if strings.HasPrefix(r.text[r.pos:], operator) {
			r.pos += len(operator)
			return operator
		}
	}
	r.pos = was
	return ""
}

// joined is what an operator makes of two parts.
func (r *calculationReader) joined(operator string, left, right part) part {
	name, compares := counterpart(operator)
	// Values are compared, and predicates joined.
	joins := operator == "||" || operator == "&&"
	if name == "" || left.compares != joins || right.compares != joins {
		r.strange = true
		return part{compares: compares}
	}
	operands := left.json
	if left.sum == name {
		operands = operands[len(`{"`+name+`": [`) : len(operands)-len("]}")]
	}
	made := part{json: `{"` + name + `": [` + operands + ", " + right.json + "]}", compares: compares}
	if slices.Contains([]string{"$add", "$multiply", "and", "or"}, name) {
		made.sum = name
	}
	return made
}

// operand reads a number, a path, a word or what stands in parentheses.
func (r *calculationReader) operand() part {
	r.space()
	switch rest := r.text[r.pos:]; {
	case rest == "":
	case rest[0] == '(':
		return r.inside()
	case rest[0] == '\'' || rest[0] == '"':
		if text, _, closed := strings.Cut(rest[1:], rest[:1]); closed {
			r.pos += len(text) + len("''")
			return part{json: quote(text)}
		}
	case rest[0] == '-' && len(rest) > 1 && !isDigit(rest[1]):
		r.pos++
		of := r.operand()
		return part{json: `{"$negate": ` + of.json + "}"}
	case isDigit(rest[0]) || rest[0] == '-':
		return r.number()
	case rest[0] == '$' || rest[0] == '@' || isNameByte(rest[0], false):
		return r.path()
	}
	r.failed = true
	return part{}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (r *calculationReader) inside() part {
	r.depth++
	r.pos++
	if r.depth > maxParentheses {
		r.failed = true
		return part{}
	}
	of := r.level(0)
	r.space()
	if r.failed || !strings.HasPrefix(r.text[r.pos:], ")") {
		r.failed = true
		return part{}
	}
	r.pos++
	r.depth--
	of.sum = ""
	return of
}

func (r *calculationReader) number() part {
	start := r.pos
	if r.text[r.pos] == '-' {
		r.pos++
	}
	points := 0
	for r.pos < len(r.text) && (isDigit(r.text[r.pos]) || r.text[r.pos] == '.') {
		if r.text[r.pos] == '.' {
			points++
		}
		r.pos++
	}
	number := r.text[start:r.pos]
	digits := strings.TrimPrefix(number, "-")
	r.failed = r.failed || points > 1 || digits[len(digits)-1] == '.' ||
		len(digits) > 1 && digits[0] == '0' && digits[1] != '.' ||
		r.pos < len(r.text) && isNameByte(r.text[r.pos], true)
	return part{json: number}
}

// path reads a path, up to an operator. A name may have a "-" or a "/" in it, and blanks.
func (r *calculationReader) path() part {
	start := r.pos
	for r.pos < len(r.text) && !r.ends() {
		r.pos++
	}
	text := strings.TrimRight(r.text[start:r.pos], " ")
	r.pos = start + len(text)
	switch root, _, _ := strings.Cut(text, "."); {
	case IsPath(text):
	case slices.Contains([]string{"data", "state", "metadata"}, root) && len(text) > len(root):
		text = "$." + text
	case r.words && IsName(text):
		return part{json: quote(text)}
	default:
		r.failed = true
		return part{}
	}
	if _, err := ParseProjection(text); err != nil {
		r.failed = true
	}
	r.paths = true
	return part{json: quote(text)}
}

// ends reports whether a path ends at the present position: before an operator with blanks around it, or with an
// operand right after it that cannot be part of a name.
func (r *calculationReader) ends() bool {
	rest := r.text[r.pos:]
	switch rest[0] {
	case ')':
		return r.depth > 0
	case ' ':
		rest = strings.TrimLeft(rest, " ")
		word, _, more := strings.Cut(rest, " ")
		return more && isOperator(word)
	case '-', '/':
		return len(rest) > 1 && (rest[1] == '$' || rest[1] == '@')
	case '+', '*', '%':
		return len(rest) > 1 && (rest[1] == '$' || rest[1] == '@' || strings.Trim(rest[1:], "0123456789.") == "")
	case '<', '>', '=', '!', '&', '|':
		for n := min(3, len(rest)-1); n > 0; n-- {
			if isOperator(rest[:n]) {
				return strings.IndexByte(`$@'"0123456789`, rest[n]) >= 0
			}
		}
	}
	return false
}

func isOperator(word string) bool {
	return slices.ContainsFunc(levels(), func(level []string) bool { return slices.Contains(level, word) })
}
