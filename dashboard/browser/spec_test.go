//go:build !race

package browser_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"j17"
)

// handler is the one of counters in testdata/spec.json, and changed what the tests make of it.
const (
	handler = `[{"increment": {"target": "total", "by": "$.data.by"}}]`
	changed = `[{"increment": {"target": "total", "by": "$.data.by"}}, {"set": {"target": "v", "value": 2}}]`
)

// edited is the spec with a change in it.
func edited(t *testing.T, from, to string) string {
	t.Helper()
	text := specText(t)
	if !strings.Contains(text, from) {
		t.Fatalf("the spec has no %s", from)
	}
	return strings.Replace(text, from, to, 1)
}

// versions counts the versions of the spec of an environment.
func versions(s *site, env j17.Environment) int {
	s.tb.Helper()
	var list struct{ Versions []json.RawMessage }
	s.control(
		"GET", "/api/instances/"+s.ready.Instance.ID+"/spec/history?environment="+string(env), nil,
	).into(s.tb, &list)
	return len(list.Versions)
}

// enabled waits until a button can be pressed, and returns it.
func (b *tab) enabled(name string) (button *element) {
	b.tb.Helper()
	return b.enabledIn(nil, name)
}

func (b *tab) enabledIn(within *element, name string) (button *element) {
	b.tb.Helper()
	b.until("the button "+name+" to be enabled", func() (bool, error) {
		all, err := b.all("button", name, within)
		if err != nil || len(all) == 0 {
			return false, err
		}
		button = all[0]
		return button.property("disabled") == "", nil
	})
	return button
}

func TestSpecProblems(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, staging("spec"))
	b.settled("Spec")
	field := b.see("textbox", "Spec")
	field.shows("aggregate_types")
	b.enabled("Deploy")

	for _, text := range []string{
		edited(t, `"handler": [{"increment"`, `"handlr": [{"increment"`), // a member that there is none
		specText(t) + "}", // no JSON
		`{"agent_types": [`,
		"",
	} {
		field.fill(text)
		b.see("list", "Problems").shows(`\d+:\d+`)
		if disabled := b.see("button", "Deploy").property("disabled"); disabled != "true" {
			t.Errorf("a broken spec can be deployed: %.80q", text)
		}
	}
	field.fill(edited(t, `"handler": [{"increment"`, `"handlr": [{"increment"`))
	b.see("list", "Problems").shows("handlr")
	b.see("list", "Problems").see("button", regexp.MustCompile("handlr")).click()
	b.truthy("document.activeElement.closest('.cm-editor') !== null")

	field.fill(edited(t, handler, changed))
	b.enabled("Deploy")
	b.see("list", "Problems").hides("Error")
	if text, err := field.now(); err != nil ||
		strings.TrimSpace(text) != strings.TrimSpace(edited(t, handler, changed)) {
		t.Errorf("another text than was typed (%v): %s", err, text)
	}

	// A key pressed with all of it selected.
	field.click()
	b.press("Control+a", "x")
	field.shows(`^\s*x\s*$`)
	b.press("Control+z")
	field.shows("aggregate_types")

	// In the form of j17 spec fmt.
	field.fill(strings.Join(strings.Fields(edited(t, handler, changed)), ""))
	b.enabled("Deploy")
	b.see("button", "Format").click()
	field.shows(`"counter": \{\s*\n`)
}

// TestDraft holds that what was typed stays in this browser until it is dropped.
func TestDraft(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, staging("spec"))
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	b.see("textbox", "Spec").fill(edited(t, handler, changed))
	b.see("button", "Drop draft")
	b.load(staging("overview"))
	b.settled("Overview")
	b.load(staging("spec"))
	b.settled("Spec")
	b.see("textbox", "Spec").shows(`"v"`)

	// Other environments have their own.
	b.load(page("spec"))
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	if text, err := b.see("textbox", "Spec").text(); err != nil || strings.Contains(text, `"v"`) {
		t.Errorf("the draft of staging is in prod (%v)", err)
	}
	b.load(staging("spec"))
	b.settled("Spec")
	b.see("textbox", "Spec").shows(`"v"`)
	b.see("button", "Drop draft").click()
	b.see("textbox", "Spec").hides(`"v"`)
	b.gone("button", "Drop draft")
	b.load(staging("spec"))
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	b.see("textbox", "Spec").hides(`"v"`)
}

func TestWhatIfAndDeploy(t *testing.T) {
	s := newSite(t, "spec.json")
	s.writeIn(j17.Staging, "counter/"+uid("a"), "was_raised", `{"by": 2}`)
	b := s.open(t, staging("spec"))
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	b.see("textbox", "Spec").fill(edited(t, handler, changed))
	b.enabled("What if").click()
	whatIf := b.see("region", "What if")
	whatIf.shows(`1 state would be different.*/v.*counter:` + uid("a"))
	if n := versions(s, j17.Staging); n != 1 {
		t.Errorf("%d versions before anybody has deployed", n)
	}

	b.see("button", "Deploy").click()
	dialog := b.see("dialog", "Deploy to staging")
	dialog.see("textbox", "Note").fill("a <b>second</b> member")
	dialog.see("button", "Deploy").click()
	b.gone("dialog", nil)
	if n := versions(s, j17.Staging); n != 2 {
		t.Fatalf("%d versions", n)
	}
	b.gone("button", "Drop draft")
	var read struct{ Data map[string]any }
	s.call("GET", "app-staging", "/counter/"+uid("a"), s.ready.Keys[j17.Staging].Read, nil).into(t, &read)
	if read.Data["v"] != 2.0 {
		t.Errorf("the state is %v", read.Data)
	}

	// Its history, and back.
	b.see("link", "History").click()
	b.settled("Spec history")
	b.see("table", "Versions").shows(`2\s.*a <b>second</b> member.*1\s`)
	b.see("region", "Differences").shows(`counter\.was_raised changed`)
	b.see("button", "Roll back to 1").click()
	dialog = b.see("dialog", "Roll back to version 1")
	dialog.see("region", "What if").shows("1 state would be different")
	b.enabledIn(dialog, "Roll back").click()
	b.gone("dialog", nil)
	b.see("table", "Versions").shows(`3\s.*2\s.*1\s`)
	if n := versions(s, j17.Staging); n != 3 {
		t.Errorf("%d versions", n)
	}

	// To prod, which asks for its name.
	b.see("button", "Promote 2").click()
	dialog = b.see("dialog", regexp.MustCompile("^Promote"))
	dialog.see("combobox", "To").choose("prod")
	dialog.see("textbox", "Type app/prod to confirm").fill("app/prod")
	b.enabledIn(dialog, "Promote").click()
	b.gone("dialog", nil)
	if n := versions(s, j17.Prod); n != 2 {
		t.Errorf("%d versions of prod", n)
	}
}

// TestDeployToProd holds that prod asks for its name, and that a dialog that is left changes nothing.
func TestDeployToProd(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("spec"))
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	b.see("textbox", "Spec").fill(edited(t, handler, changed))
	b.enabled("Deploy").click()
	dialog := b.see("dialog", "Deploy to prod")
	may := func() bool {
		t.Helper()
		return dialog.see("button", "Deploy").property("disabled") == ""
	}
	if may() {
		t.Error("prod does not ask for its name")
	}
	name := dialog.see("textbox", "Type app/prod to confirm")
	name.fill("app/staging")
	if may() {
		t.Error("prod takes another name")
	}
	name.fill("app/prod")
	b.until("the button to be enabled", func() (bool, error) { return may(), nil })
	b.press("Escape")
	b.gone("dialog", nil)
	if n := versions(s, j17.Prod); n != 1 {
		t.Errorf("%d versions after Escape", n)
	}
	b.enabled("Deploy").click()
	b.see("textbox", "Type app/prod to confirm").fill("app/prod")
	b.press("Enter")
	b.gone("dialog", nil)
	if n := versions(s, j17.Prod); n != 2 {
		t.Errorf("%d versions", n)
	}
}

// TestForce holds that what stored events may not survive is deployed by who says so.
func TestForce(t *testing.T) {
	s := newSite(t, "spec.json")
	s.writeIn(j17.Staging, "note/"+uid("n"), "was_changed", `{"text": "kept"}`)
	b := s.open(t, staging("spec"))
	b.allow(`4(09|22)`)
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	b.see("textbox", "Spec").fill(edited(t, `"was_changed": {`, `"was_altered": {`))
	b.enabled("Deploy").click()
	dialog := b.see("dialog", "Deploy to staging")
	dialog.see("textbox", "Note").fill("without was_changed")
	dialog.see("button", "Deploy").click()
	dialog.see("alert", nil).shows(`\S`)
	if n := versions(s, j17.Staging); n != 1 {
		t.Fatalf("%d versions of what is not compatible", n)
	}
	if note := dialog.see("textbox", "Note").value(); note != "without was_changed" {
		t.Errorf("the note is %q after a refusal", note)
	}
	dialog.see("checkbox", "Force").click()
	dialog.see("button", "Deploy").click()
	b.gone("dialog", nil)
	if n := versions(s, j17.Staging); n != 2 {
		t.Errorf("%d versions", n)
	}
}

// TestTwoDeploy holds that who deploys second hears of the first, with nothing lost.
func TestTwoDeploy(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, staging("spec"))
	b.allow("412")
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	b.see("textbox", "Spec").fill(edited(t, handler, changed))
	other := strings.Replace(specText(t), `"cart": {`, `"basket": {"events": {"was_filled": {"schema": {"type": "object"}, "handler": []}}}, "cart": {`, 1)
	s.control("POST", "/api/instances/"+s.ready.Instance.ID+"/spec?environment=staging", []byte(other))
	b.enabled("Deploy").click()
	b.see("dialog", "Deploy to staging").see("button", "Deploy").click()
	b.see("alert", nil).shows("version 2")
	if n := versions(s, j17.Staging); n != 2 {
		t.Errorf("%d versions: one has deployed over the other", n)
	}
	b.see("textbox", "Spec").shows(`"v"`)
}

// TestSpecOfReaders holds that who may not deploy reads.
func TestSpecOfReaders(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.openAs(t, s.operator("auditor"), page("spec"))
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	if b.has("button", "Deploy") || b.has("button", "Format") {
		t.Error("an auditor has buttons that would be refused")
	}
	b.see("textbox", "Spec").click()
	b.type_("typed")
	if text, err := b.see("textbox", "Spec").text(); err != nil || strings.Contains(text, "typed") {
		t.Errorf("an auditor types into the spec: %v", err)
	}
}

// TestLargeSpec holds that a spec with hundreds of types is checked and edited as others are.
func TestLargeSpec(t *testing.T) {
	s := newSite(t, "spec.json")
	var types strings.Builder
	for i := range 300 {
		fmt.Fprintf(&types, `"type_%d": {"events": {"was_made": {"schema": {"type": "object"}, "handler": []}}}, `, i)
	}
	b := s.open(t, staging("spec"))
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	b.see("textbox", "Spec").fill(
		strings.Replace(specText(t), `"counter": {`, types.String()+`"counter": {`, 1),
	)
	b.enabled("Deploy")
	b.see("textbox", "Spec").fill(
		strings.Replace(specText(t), `"counter": {`, types.String()+`"countr": `, 1),
	)
	b.see("list", "Problems").shows(`\d+:\d+`)
}
