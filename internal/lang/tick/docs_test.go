package tick_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

// TestDocumentedExamples runs every fenced block `json handler-example` of docs/reference. A block is an object:
//
//	handler  the handler
//	errors   what is wrong with it, each as "pointer: message (hint)"; nothing runs then
//	state    the state before the first event, {} if left out
//	events   objects of data and, where they matter, type, key and metadata
//	faults   what does not fit, over all events, each as "pointer: message"
//	result   the state after the last event
//
// An example of an upcast has upcast, data and result, or misfit in the place of the result, "pointer: message".
//
// In the pages about the language itself every JSON block has to be such an example.
func TestDocumentedExamples(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(moduleRoot(t), "docs", "reference", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	least := map[string]int{"handlers.md": 30, "paths.md": 7, "computed-values.md": 8}
	fence := regexp.MustCompile("(?ms)^```json([^\n]*)\n(.*?)^```$")
	for _, page := range pages {
		name := filepath.Base(page)
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, block := range fence.FindAllStringSubmatchIndex(string(text), -1) {
			info, body := strings.TrimSpace(string(text[block[2]:block[3]])), string(text[block[4]:block[5]])
			line := 1 + strings.Count(string(text[:block[0]]), "\n")
			if info != "handler-example" {
				if least[name] > 0 {
					t.Errorf("%s:%d: a JSON block that is no handler-example", name, line)
				}
				continue
			}
			n++
			v, err := value.ParseString(body)
			if err != nil {
				t.Errorf("%s:%d: %v", name, line, err)
				continue
			}
			if diff := cmp.Diff(expected(v), run(t, v)); diff != "" {
				t.Errorf("%s:%d: %s", name, line, diff)
			}
		}
		if n < least[name] {
			t.Errorf("%s has %d examples, want at least %d", name, n, least[name])
		}
		delete(least, name)
	}
	for name := range least {
		t.Errorf("docs/reference/%s is missing", name)
	}
}

// result is what an example says or does.
type result struct {
	Errors, Faults []string
	State          string
}

func expected(v value.Value) result {
	r := result{State: v.Get("result").String()}
	if misfit := v.Get("misfit"); !misfit.IsMissing() {
		r.Faults = []string{misfit.Str()}
	}
	for _, s := range v.Get("errors").Elems() {
		r.Errors = append(r.Errors, s.Str())
	}
	for _, s := range v.Get("faults").Elems() {
		r.Faults = append(r.Faults, s.Str())
	}
	return r
}

func run(t *testing.T, v value.Value) result {
	t.Helper()
	for _, m := range v.Members() {
		switch m.Key {
		case "handler", "errors", "state", "events", "faults", "result", "upcast", "data", "misfit":
		default:
			t.Errorf("unknown key %q in an example", m.Key)
		}
	}
	var r result
	if step := v.Get("upcast"); !step.IsMissing() {
		out, misfit := upcastOf(t, compileUpcast(t, step), v.Get("data"))
		if r.State = out.String(); misfit != nil {
			place := strings.TrimPrefix(string(misfit.Pointer), "/upcast")
			r = result{Faults: []string{place + ": " + misfit.Message}}
		}
		return r
	}
	var l diag.List
	h := tick.CompileHandler(v.Get("handler"), "", &l)
	if h == nil {
		for _, d := range l.All() {
			text := string(d.Pointer) + ": " + d.Message
			if d.Hint != "" && strings.Contains(v.Get("errors").String(), "(") {
				text += " (" + d.Hint + ")"
			}
			r.Errors = append(r.Errors, text)
		}
		return r
	}
	state := v.Get("state")
	if state.IsMissing() {
		state = value.ObjectValue()
	}
	ed := value.NewEditor()
	for i, e := range v.Get("events").Elems() {
		given := newEvent("happened", e.Get("data"), firstTime+60*int64(i))
		ev := given.raw()
		if typ := e.Get("type"); !typ.IsMissing() {
			ev.Type = typ.Str()
		}
		if key := e.Get("key"); !key.IsMissing() {
			ev.Key = key.Str()
		}
		if metadata := e.Get("metadata"); !metadata.IsMissing() {
			ev.Metadata = tick.Parsed(metadata)
		}
		state = apply(
			t, h, ed, state, ev, func(f tick.Fault) { r.Faults = append(r.Faults, string(f.Pointer)+": "+f.Message) },
		)
	}
	r.State = state.String()
	return r
}

// moduleRoot returns the folder that has go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("there is no go.mod above the test")
		}
		dir = parent
	}
}
