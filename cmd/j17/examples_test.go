package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// apps are the examples that are whole applications. examples/counter is the first spec of README.md and nothing else.
func apps() []string {
	return []string{
		"booking", "checkout", "gather", "invoicer", "ledger", "orders", "parcels", "reminders", "storefinder",
		"taskboard",
	}
}

func examplePath(elem ...string) string {
	return filepath.Join(append([]string{"..", "..", "examples"}, elem...)...)
}

func readExample(t *testing.T, elem ...string) string {
	t.Helper()
	raw, err := os.ReadFile(examplePath(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func compileExample(t *testing.T, app string) (*spec.Compiled, value.Value) {
	t.Helper()
	text := readExample(t, app, "spec.json")
	compiled, found := lint.Compile([]byte(text))
	if compiled == nil || len(found) > 0 {
		t.Fatal(app, found)
	}
	v, err := value.ParseString(text)
	if err != nil {
		t.Fatal(err)
	}
	return compiled, v
}

// TestExampleAppsAreListed fails for an example that no other test knows.
func TestExampleAppsAreListed(t *testing.T) {
	entries, err := os.ReadDir(examplePath())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		// A folder without a spec holds sources of custom code.
		if _, err := os.Stat(examplePath(e.Name(), "spec.json")); err == nil && e.Name() != "counter" {
			found = append(found, e.Name())
		}
	}
	if diff := cmp.Diff(apps(), found); diff != "" {
		t.Error(diff)
	}
	overview := readExample(t, "README.md")
	for _, app := range apps() {
		if !strings.Contains(overview, "("+app+"/README.md)") {
			t.Errorf("examples/README.md has no link to %s/README.md", app)
		}
	}
}

// TestSpecsAreFormatted holds the specs that people read and copy to the form of "spec fmt", and the first one of
// README.md to the file that it shows.
func TestSpecsAreFormatted(t *testing.T) {
	files, err := filepath.Glob("templates/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, app := range append(apps(), "counter") {
		files = append(files, examplePath(app, "spec.json"))
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		formatted, found := spec.Format(raw)
		if diff := cmp.Diff(string(formatted), string(raw)); diff != "" || found != nil {
			t.Errorf("%s is not formatted; run j17 spec fmt --write on it\n%v%s", file, found, diff)
		}
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if shown := "```json spec\n" + readExample(t, "counter", "spec.json") + "```\n"; !strings.Contains(
		string(readme), shown,
	) {
		t.Error("README.md does not show examples/counter/spec.json as it is")
	}
}

// TestExampleScripts looks for scripts that can be called, and for event types that neither they nor the seed write.
func TestExampleScripts(t *testing.T) {
	for _, app := range apps() {
		info, err := os.Stat(examplePath(app, "run.sh"))
		if err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s/run.sh is no program: %v", app, err)
			continue
		}
		text := readExample(t, app, "run.sh")
		for _, file := range seedFiles(t, app) {
			text += readExample(t, app, "seed", filepath.Base(file))
		}
		compiled, _ := compileExample(t, app)
		for _, aggregate := range compiled.Types {
			for name, et := range aggregate.Events {
				if !et.System && !regexp.MustCompile(`\b`+name+`\b`).MatchString(text) {
					t.Errorf("%s: nothing writes %s.%s", app, aggregate.Name, name)
				}
			}
		}
	}
}

// TestExampleReadmes checks that what the pages show of a spec stands there.
func TestExampleReadmes(t *testing.T) {
	fence := regexp.MustCompile("(?ms)^ *```json\n(.*?)^ *```$")
	bare := func(text string) string { return strings.Join(strings.Fields(text), "") }
	for _, app := range apps() {
		excerpts := fence.FindAllStringSubmatch(readExample(t, app, "README.md"), -1)
		if len(excerpts) == 0 {
			t.Errorf("%s/README.md shows nothing of the spec", app)
		}
		whole := bare(readExample(t, app, "spec.json"))
		for _, m := range excerpts {
			if !strings.Contains(whole, bare(m[1])) {
				t.Errorf("%s/README.md shows what is not in the spec:\n%s", app, m[1])
			}
		}
	}
}

func seedFiles(t *testing.T, app string) []string {
	t.Helper()
	files, err := filepath.Glob(examplePath(app, "seed", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(app, "has no seed", err)
	}
	return files
}

// TestExampleSeeds checks every seed file as a write would be, and that its events fit the handlers.
func TestExampleSeeds(t *testing.T) {
	for _, app := range apps() {
		compiled, _ := compileExample(t, app)
		seeded := map[string]bool{}
		for _, file := range seedFiles(t, app) {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			t.Run(app+"/"+name, func(t *testing.T) {
				typ, id, _ := strings.Cut(name, ".")
				if _, _, err := compiled.IDs.Check(id); err != nil {
					t.Error(err)
				}
				batch, err := value.ParseString(readExample(t, app, "seed", filepath.Base(file)))
				if err != nil {
					t.Fatal(err)
				}
				seeded[typ] = true
				checkSeed(t, compiled, typ, id, batch)
			})
		}
		for typ := range compiled.Types {
			if !seeded[typ] {
				t.Errorf("%s: no seed for aggregates of type %s", app, typ)
			}
		}
	}
}

func checkSeed(t *testing.T, compiled *spec.Compiled, typ, id string, batch value.Value) {
	t.Helper()
	metadata := batch.Get("metadata")
	if n, ok := metadata.Get("previous_length").Int64(); !ok || n != 0 {
		t.Error("previous_length is not 0, so a second run would write the events again")
	}
	actor := metadata.Get("actor")
	if !compiled.AgentTypes.Has(actor.Get("type").Str()) {
		t.Errorf("unknown actor type %s", actor.Get("type"))
	}
	if _, _, err := compiled.IDs.Check(actor.Get("id").Str()); err != nil {
		t.Error(err)
	}
	const now = 1_900_000_000
	stamped := value.ObjectValue(append(slices.Clone(metadata.Members()), value.Member{
		Key: "timestamp", Value: value.Int(now),
	})...)
	ed, state := value.NewEditor(), value.ObjectValue()
	for _, event := range batch.Get("events").Elems() {
		name := event.Get("type").Str()
		et := compiled.EventType(typ, name)
		if et == nil {
			t.Errorf("there is no event type %s.%s", typ, name)
			continue
		}
		data := event.Get("data")
		if data.IsMissing() {
			data = value.ObjectValue()
		}
		failures, err := et.Schema.Validate(data, work.New(t.Context(), work.Command))
		if len(failures) > 0 || err != nil {
			t.Errorf("%s: %+v, %v", name, failures, err)
		}
		before := state.String()
		ev := &tick.Event{
			Key: typ + ":" + id, Type: name, Timestamp: now, Data: tick.Parsed(data), Metadata: tick.Parsed(stamped),
		}
		state, err = et.Handler.Apply(
			ed, state, ev, work.New(t.Context(), work.Replay),
			func(f tick.Fault) { t.Errorf("%s: %s: %s", name, f.Pointer, f.Message) },
		)
		if err != nil {
			t.Fatal(err)
		}
		if state.String() == before {
			t.Errorf("%s changes nothing", name)
		}
	}
}

// TestExampleHistories reads the old events of examples as their specs do, and looks for older generations and retired
// types that none of them has.
func TestExampleHistories(t *testing.T) {
	for _, app := range apps() {
		compiled, _ := compileExample(t, app)
		want, found := map[string]bool{}, map[string]bool{}
		for _, typ := range compiled.Types {
			for _, et := range typ.Events {
				for _, older := range et.Older {
					want[fmt.Sprintf("%s.%s %d", typ.Name, et.Name, older.Number)] = true
				}
				if et.Retired {
					want[fmt.Sprintf("%s.%s %d", typ.Name, et.Name, et.Generation)] = true
				}
			}
		}
		files, err := filepath.Glob(examplePath(app, "history", "*.ndjson"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, read := range readHistory(t, compiled, readExample(t, app, "history", filepath.Base(file))) {
				found[read] = true
			}
		}
		for name := range want {
			if !found[name] {
				t.Errorf("%s: no old event is of %s", app, name)
			}
		}
	}
}

// readHistory brings each line to the newest generation and applies it to the state of its aggregate. It returns the
// types and generations of the lines.
func readHistory(t *testing.T, compiled *spec.Compiled, lines string) (found []string) {
	t.Helper()
	ed, states := value.NewEditor(), map[string]value.Value{}
	for line := range strings.Lines(lines) {
		v, err := value.ParseString(line)
		if err != nil {
			t.Fatal(err)
		}
		key, name, metadata := v.Get("key").Str(), v.Get("type").Str(), v.Get("metadata")
		aggregate, _, _ := strings.Cut(key, ":")
		et := compiled.EventType(aggregate, name)
		if et == nil {
			t.Errorf("there is no event type %s.%s", aggregate, name)
			continue
		}
		generation := 1
		if n, ok := metadata.Get("generation").Int64(); ok {
			generation = int(n)
		}
		found = append(found, fmt.Sprintf("%s.%s %d", aggregate, name, generation))

		timestamp, _ := metadata.Get("timestamp").Int64()
		ev := &tick.Event{
			Key: key, Type: name, Timestamp: timestamp, Data: tick.Parsed(v.Get("data")),
			Metadata: tick.Parsed(metadata),
		}
		newest, data, err := upcast.Newest(et, generation, v.Get("data"), ev, work.New(t.Context(), work.Command))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ev.Type, ev.Data = newest.Name, tick.Parsed(data)
		state := states[key]
		if state.IsMissing() {
			state = value.ObjectValue()
		}
		before := state.String()
		states[key], err = newest.Handler.Apply(
			ed, state, ev, work.New(t.Context(), work.Replay),
			func(f tick.Fault) { t.Errorf("%s: %s: %s", name, f.Pointer, f.Message) },
		)
		if err != nil {
			t.Fatal(err)
		}
		if states[key].String() == before {
			t.Errorf("%s changes nothing", name)
		}
	}
	return found
}

// TestExamplesUseTheLanguage keeps the examples a tour of all that handlers and upcasts can do. What there is, is read
// from the manual.
func TestExamplesUseTheLanguage(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "handlers.md"))
	if err != nil {
		t.Fatal(err)
	}
	contents, predicates, _ := strings.Cut(string(manual), "\n## Predicates\n")
	_, contents, _ = strings.Cut(contents, "\n- Operations: ")
	contents, _, _ = strings.Cut(contents, "\n- [Predicates]")
	_, predicates, _ = strings.Cut(predicates, "|---|---|")
	predicates, _, _ = strings.Cut(predicates, "\n\n")

	used := map[string]bool{}
	for _, app := range apps() {
		_, text := compileExample(t, app)
		for _, aggregate := range text.Get("aggregate_types").Members() {
			for _, event := range aggregate.Value.Get("events").Members() {
				keysOf(event.Value.Get("handler"), used)
				keysOf(event.Value.Get("retired").Get("upcast"), used)
				for _, generation := range event.Value.Get("generations").Members() {
					keysOf(generation.Value.Get("upcast"), used)
				}
			}
		}
	}
	operations := 0
	for _, m := range regexp.MustCompile("\\[`(\\w+)`\\]").FindAllStringSubmatch(contents, -1) {
		operations++
		if !used[m[1]] {
			t.Errorf("no example uses the operation %s", m[1])
		}
	}
	tests := 0
	for row := range strings.SplitSeq(predicates, "\n") {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, m := range regexp.MustCompile("`(?:\\{\"(\\w+)\"[^`]*|(\\w+))`").FindAllStringSubmatch(first, -1) {
			tests++
			if name := m[1] + m[2]; name != "eq" && !used[name] { // eq is another name of equals
				t.Errorf("no example uses the predicate %s", name)
			}
		}
	}
	if operations != 22 || tests != 20 {
		t.Errorf("the manual lists %d operations and %d predicates; examples use %v", operations, tests, slices.Sorted(maps.Keys(used)))
	}
}

// keysOf collects the keys of objects that have only one: operations and predicates, and fields of matches, whose names
// are others. "if" stands next to "then".
func keysOf(v value.Value, into map[string]bool) {
	for _, m := range v.Members() {
		if v.Len() == 1 || m.Key == "if" {
			into[m.Key] = true
		}
		keysOf(m.Value, into)
	}
	for _, e := range v.Elems() {
		keysOf(e, into)
	}
}
