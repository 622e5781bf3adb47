package jsonpath

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"j17/internal/base/value"
)

// entriesSuffix is the one step that is no member: it turns an object into a list.
const entriesSuffix = "$entries"

type parser struct {
	text      string
	pos       int
	path      Path
	wildcards bool
}

func (p *parser) fail(hint, format string, args ...any) error {
	return &SyntaxError{Offset: p.pos, Message: fmt.Sprintf(format, args...), Hint: hint}
}

func (p *parser) length() error {
	if len(p.text) > MaxLength {
		return p.fail("", "the path is %d bytes long; at most %d are accepted", len(p.text), MaxLength)
	}
	return nil
}

func (p *parser) quoted() string { return quote(p.text) }

// quote quotes text for a message, shortened where it is long.
func quote(text string) string {
	const most = 80
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return strconv.Quote(text)
}

// name reads a binding's name behind "$", where there is one.
func (p *parser) name() {
	end := p.pos
	for end < len(p.text) && isNameByte(p.text[end], end > p.pos) {
		end++
	}
	if end > p.pos {
		p.path.Root = Binding
		p.path.Name = p.text[p.pos:end]
		p.pos = end
	}
}

// IsName reports whether s can name a binding: letters, digits and "_", and no digit first.
func IsName(s string) bool {
	for i := range len(s) {
		if !isNameByte(s[i], i > 0) {
			return false
		}
	}
	return s != ""
}

func isNameByte(c byte, digits bool) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || digits && c >= '0' && c <= '9'
}

// rest reads everything behind the root.
func (p *parser) rest() (Path, error) {
	for p.pos < len(p.text) {
		if err := p.step(); err != nil {
			return Path{}, err
		}
	}
	n := len(p.path.Steps)
	for _, steps := range p.path.Each {
		n += len(steps)
	}
	if n > MaxSteps {
		return Path{}, p.fail("", "the path %s has %d steps; at most %d are accepted", p.quoted(), n, MaxSteps)
	}
	return p.path, nil
}

func (p *parser) step() error {
	c := p.text[p.pos]
	switch {
	case p.path.Optional:
		p.pos--
		return p.fail(`move it to the end: the whole path is optional or none of it`,
			`the "?" in %s does not stand at the end of the path`, p.quoted())
	case c == '?':
		p.path.Optional = true
		p.pos++
		return nil
	case p.path.Entries:
		return p.fail("bind the list with map, or use every or some on it, to look into its elements",
			`%s goes on behind ".$entries", which must end a path`, p.quoted())
	case c == '.':
		p.pos++
		return p.key()
	case c == '[':
		return p.bracket()
	case p.path.Root != Current && p.pos <= 1+len(p.path.Name):
		return p.fail(`paths into the event look like "$.data.name", bindings like "$item.name"; for the text itself write {"$literal": `+p.quoted()+"}",
			"%s starts with \"$\" but is no path", p.quoted())
	default:
		r, _ := utf8.DecodeRuneInString(p.text[p.pos:])
		return p.fail(`steps are ".name" and "[0]"`, "unexpected %q in the path %s", r, p.quoted())
	}
}

// key reads a member's name at the current position.
func (p *parser) key() error {
	// Mistakes that are likely for users of other path languages.
	start := p.pos
	if start == 0 && p.text[0] == '.' {
		return p.fail("remove the dot", "the state path %s starts with a dot", p.quoted())
	}
	if start < len(p.text) && p.text[start] == '.' {
		return p.fail(`name every member on the way, as in "$.data.address.zip"`,
			`%s searches at every depth with "..", which paths cannot do`, p.quoted())
	}

	// The name ends at the next step.
	end := len(p.text)
	if n := strings.IndexAny(p.text[start:], ".[]?"); n >= 0 {
		end = start + n
	}
	key := p.text[start:end]

	// Names that are none, or not in every place.
	switch {
	case key == "" && end == len(p.text):
		return p.fail("remove the dot or name a member", "the path %s ends with a dot", p.quoted())
	case key == "":
		return p.fail(`write ".name" for a member and "[0]" for an element`, "the path %s has a dot without a name behind it", p.quoted())
	case key == "*":
		return p.wildcard()
	case key == entriesSuffix && start > 0:
		p.path.Entries = true
		p.pos = end
		return nil
	case key[0] == '$':
		return p.fail(`the one step that starts with "$" is ".$entries"`, "unknown step %s in the path %s", quote(key), p.quoted())
	case strings.TrimSpace(key) != key:
		return p.fail("remove the white space", "the path %s has white space around a name", p.quoted())
	case strings.ContainsFunc(key, unicode.IsControl) || !utf8.ValidString(key):
		return p.fail("", "the path %s has a control character in a name", p.quoted())
	}

	p.add(value.Step{Key: key})
	p.pos = end
	return nil
}

func (p *parser) add(s value.Step) {
	if n := len(p.path.Each); n > 0 {
		p.path.Each[n-1] = append(p.path.Each[n-1], s)
		return
	}
	p.path.Steps = append(p.path.Steps, s)
}

func (p *parser) wildcard() error {
	if p.wildcards {
		return p.fail(`write "[*]" for all elements of an array`, `%s stands for all members with "*", which paths cannot do`, p.quoted())
	}
	return p.fail(`name one element or member, or visit all of them with map, filter, update_where, every or some`,
		`%s stands for many values with "*", which paths can do in projections only`, p.quoted())
}

// bracket reads "[...]" at the current position.
func (p *parser) bracket() error {
	// What other path languages allow in brackets is distinguished from mistakes.
	inside, _, closed := strings.Cut(p.text[p.pos+1:], "]")
	switch {
	case strings.HasPrefix(inside, "?"):
		return p.fail("use the filter operation, or every and some, with a predicate",
			`%s filters with "[?...]", which paths cannot do`, p.quoted())
	case strings.HasPrefix(inside, "("):
		return p.fail(`write "[-1]" for the last element, "[-2]" for the one before it`,
			`%s computes an index with "[(...)]", which paths cannot do`, p.quoted())
	case strings.HasPrefix(inside, "'") || strings.HasPrefix(inside, `"`):
		hint := `write ".name"; a member whose name has ".", "[", "]" or "?" cannot be named in a path`
		if name := strings.Trim(inside, `'"`); name != "" && len(name) == len(inside)-2 &&
			!strings.ContainsAny(name, ".[]?") {
			hint = "write " + quote(p.text[:p.pos]+"."+name)
		}
		return p.fail(hint, "%s names a member in brackets, which paths do not have", p.quoted())
	case !closed:
		return p.fail(`close it, as in "[0]"`, "the path %s has a bracket that is not closed", p.quoted())
	case inside == "*" && p.wildcards:
		p.path.Each = append(p.path.Each, nil)
		p.pos += len("[*]")
		return nil
	case inside == "*":
		return p.wildcard()
	case strings.Contains(inside, ":"):
		return p.fail(`name elements one by one, as in "[0]", or use the filter operation`,
			`%s takes a slice with ":", which paths cannot do`, p.quoted())
	case strings.Contains(inside, ","):
		return p.fail(`write one path for each of them`,
			`%s names several elements with ",", which paths cannot do`, p.quoted())
	}

	// An index, written as it would be shown.
	digits := strings.TrimPrefix(inside, "-")
	i, err := strconv.Atoi(inside)
	if err != nil || len(digits) > maxIndexDigits || strconv.Itoa(i) != inside {
		hint := `an index is a whole number, as in "[0]" for the first element and "[-1]" for the last`
		if IsName(inside) {
			hint = "write " + quote(p.text[:p.pos]+"."+inside) + " for a member; " + hint
		}
		return p.fail(hint, "%s is no index in the path %s", quote("["+inside+"]"), p.quoted())
	}
	p.add(value.Step{Index: i, IsIndex: true})
	p.pos += len(inside) + len("[]")
	return nil
}
