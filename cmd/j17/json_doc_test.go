package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"j17/internal/base/value"
)

// TestDocumentedJSON compares what docs/reference/cli.md says that commands print with --json with what they print,
// both ways: a member that is printed stands in a shape of the command's section, or is named beside it, and what
// stands in a shape is printed by one of the calls.
func TestDocumentedJSON(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"spec.json": `{"agent_types": ["user"], "aggregate_types": {
			"note": {"events": {
				"was_named": {"schema": {"type": "object"}, "handler": [{"set": {"target": "n", "value": "$.data.name"}}]},
				"was_raised": {"schema": {"type": "object", "properties": {"by": {"type": "integer"}}}, "handler": [{"increment": {"target": "n", "by": 1}}], "implications": [
					{"emit": {"aggregate_type": "page", "id": "global", "event_type": "was_filled"}},
					{"schedule": {"delay": "1h", "emit": {"aggregate_type": "page", "id": "global", "event_type": "was_filled"},
						"cancel_on": [{"aggregate_type": "note", "id": "$.key", "event_type": "was_named"}]}}]},
				"was_ended": {"schema": {}, "handler": [], "requires": [{"that": {"equals": ["$.state.n", 7]}, "message": "It is not done.", "code": "not_done"}]}}},
			"page": {"events": {"was_filled": {"schema": {}, "handler": []}}}}}`,
		"wrong.json": `{"agent_types": ["user"], "aggregate_types": {"note": {"events": {"was_named": {"schema": {}, "handlr": []}}}}}`,
		"good.jsonl": event("was_named", `{"name":"x"}`) + event("was_raised", `{}`) + event(
			"was_named", `{"name":"y"}`,
		),
		"wrong.jsonl": event("was_raised", `{"by":"x"}`) + event("was_nmed", `{}`) + event("was_ended", `{}`),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sections := sectionsOf(pageText(t, "../../docs/reference/cli.md"))
	h := home(t.TempDir())
	for section, calls := range map[string][]string{
		"spec validate":   {"spec validate spec.json wrong.json --json", "spec validate wrong.json --json"},
		"handler test":    {"handler test spec.json --aggregate note --event was_raised --state {\"n\":\"x\"} --json", "handler test spec.json --aggregate note --event was_ended --json"},
		"events validate": {"events validate spec.json good.jsonl --json", "events validate spec.json wrong.jsonl --json"},
		"events dry-run":  {"events dry-run spec.json good.jsonl --json", "events dry-run spec.json wrong.jsonl --json"},
	} {
		text := sections[section]
		if section == "events dry-run" { // whose object also has what that of events validate has
			text += sections["events validate"]
		}
		said, printed := shapesIn(text), map[string]bool{}
		for _, call := range calls {
			_, out, errs := h.run(t, dir, "", strings.Fields(call)...)
			for line := range strings.Lines(out) {
				v, err := value.Parse([]byte(line))
				if err != nil {
					t.Fatalf("%s printed %s%s", call, line, errs)
				}
				printedIn(v, "", said, printed)
			}
		}
		for path := range printed {
			name := path[strings.LastIndex(path, ".")+1:]
			if !said[path] && !strings.Contains(text, "`"+name+"`") {
				t.Errorf("%s prints %s, which its section does not name", section, path)
			}
		}
		for path := range said {
			if !printed[path] {
				t.Errorf("the section on %s names %s, which no call here prints", section, path)
			}
		}
	}
}

// shapesIn lists the members of the shapes in a text, as paths: findings.line. A shape is an object of several members,
// or one member of an object that has more.
func shapesIn(text string) map[string]bool {
	said := map[string]bool{}
	for _, m := range regexp.MustCompile("`({\"[^`]*|\"[a-z_]+\":\\[[^`]*)`").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], ",") {
			continue // an example of something else
		}
		var inside []string // the members that are open
		last := ""
		for _, token := range regexp.MustCompile(`"[a-z_]+"|[{}]`).FindAllString(m[1], -1) {
			switch token {
			case "{":
				inside = append(inside, last)
			case "}":
				inside = inside[:len(inside)-1]
			default:
				last = strings.Trim(token, `"`)
				path := strings.Join(append(slices.Clone(inside), last), ".")
				said[strings.TrimPrefix(path, ".")] = true
			}
		}
	}
	return said
}

// printedIn adds the members of a value, but those of a member whose members no shape names: states and data are of any
// form.
func printedIn(v value.Value, prefix string, said, printed map[string]bool) {
	for _, element := range v.Elems() {
		printedIn(element, prefix, said, printed)
	}
	for _, m := range v.Members() {
		path := prefix + m.Key
		printed[path] = true
		for shown := range said {
			if strings.HasPrefix(shown, path+".") {
				printedIn(m.Value, path+".", said, printed)
				break
			}
		}
	}
}

// event is a line of a file of events.
func event(typ, data string) string {
	return `{"key":"note:global","type":"` + typ + `","data":` + data + `,"metadata":{"actor":{"type":"user","id":"global"},"timestamp":1700000000}}` + "\n"
}
