//go:build !race

package browser_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"j17"
)

// cursor puts the cursor behind a text of the editor, and types there.
func (b *tab) cursor(behind, typed string) {
	b.tb.Helper()
	where, err := json.Marshal(behind)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.truthy(fmt.Sprintf(`(() => {
		const view = document.querySelector('.cm-content').cmTile.root.view;
		const at = view.state.doc.toString().indexOf(%[1]s);
		if (at < 0) return false;
		view.focus();
		view.dispatch({selection: {anchor: at + %[1]s.length}, scrollIntoView: true});
		return true;
	})()`, where))
	b.type_(typed)
}

// TestCompletion holds that the editor knows what may stand at a place: operations, what they take, paths, the spec's
// own names.
func TestCompletion(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, staging("spec"))
	b.settled("Spec")
	field := b.see("textbox", "Spec")
	field.shows("aggregate_types")
	b.enabled("Deploy")

	b.cursor(`{"target": "total", "by": "$.data.by"}}`, `, {"`)
	b.see("option", "increment_at")
	b.type_("set")
	b.see("option", "set").click()
	b.see("option", "target").click()
	b.see("option", "total").click()
	field.shows(`\{"set": \{"target": "total"\}`)
	b.type_(`, "value": "`)
	b.see("option", "$.data.why").click()
	field.shows(`"value": "\$\.data\.why"`)

	// Nothing was typed by hand but marks and beginnings, and it is a spec.
	b.cursor(`"value": "$.data.why"}`, "}")
	b.enabled("Deploy")
}

// TestHover holds that the editor says what a key means.
func TestHover(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("spec?pointer=/aggregate_types/counter/events/was_raised/handler/0/increment"))
	b.settled("Spec")
	b.see("textbox", "Spec").shows(`"increment"`)
	b.truthy(`document.querySelector('.cm-activeLine').textContent.includes('increment')`)
	b.truthy(`(() => {
		const view = document.querySelector('.cm-content').cmTile.root.view;
		const at = view.coordsAtPos(view.state.selection.main.head + 3);
		const event = (x) => new MouseEvent('mousemove', {bubbles: true, clientX: at.left + x, clientY: (at.top + at.bottom) / 2});
		const line = document.elementFromPoint(at.left, (at.top + at.bottom) / 2);
		line.dispatchEvent(event(0));
		line.dispatchEvent(event(1));
		return true;
	})()`)
	b.see("tooltip", nil).shows("Adds to the number at the target")
}

// TestTemplate holds that an example begins a draft, and asks where there is one.
func TestTemplate(t *testing.T) {
	s := newSite(t, "")
	b := s.open(t, "/ui/i/app/test/spec?template=orders")
	b.settled("Spec")
	field := b.see("textbox", "Spec")
	field.shows("had_payment_received|customer")
	b.arrive("/ui/i/app/test/spec")
	b.enabled("Deploy")
	b.load("/ui/i/app/test/spec?template=counter")
	b.settled("Spec")
	b.see("textbox", "Spec").shows("customer")
	b.see("button", "Begin with Counter").click()
	b.see("textbox", "Spec").hides("customer")
	b.gone("button", "Begin with Counter")
}

// TestPutTogether holds that changes of two people are put together where they have not changed the same lines, also
// after the page was left.
func TestPutTogether(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, staging("spec"))
	b.allow("412")
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	b.cursor(`{"target": "total", "by": "$.data.by"}}`, `, {"set": {"target": "v", "value": 2}}`)
	other := strings.Replace(specText(t), `"agent_types": [`, `"agent_types": ["robot", `, 1)
	s.control("POST", "/api/instances/"+s.ready.Instance.ID+"/spec?environment=staging", []byte(other))
	b.enabled("Deploy").click()
	dialog := b.see("dialog", "Deploy to staging")
	dialog.see("textbox", "Note").fill("mine")
	dialog.see("button", "Deploy").click()
	b.gone("dialog", nil)
	b.see("alert", nil).shows("has deployed version 2.*made of version 1.*Nothing of yours is lost")

	b.load(staging("spec"))
	b.settled("Spec")
	b.see("button", "Put both together").click()
	b.gone("alert", nil)
	b.see("textbox", "Spec").shows(`"robot".*"v"`)
	b.enabled("Deploy").click()
	b.see("dialog", "Deploy to staging").see("button", "Deploy").click()
	b.gone("dialog", nil)
	b.gone("button", "Drop draft")
	if n := versions(s, j17.Staging); n != 3 {
		t.Errorf("%d versions", n)
	}
}

// TestBothStates holds that a difference leads to both states, at any version.
func TestBothStates(t *testing.T) {
	s := newSite(t, "spec.json")
	s.raise(uid("c"), "1", "2", "3")
	b := s.open(t, page("spec"))
	b.settled("Spec")
	b.see("textbox", "Spec").fill(edited(t, handler, changed))
	b.enabled("What if").click()
	b.see("region", "What if").see("link", "counter:"+uid("c")).click()
	b.settled("Both states")
	b.see("region", "With the draft").shows(`v: 2`)
	b.see("region", "Now").shows(`total: 1`)
	b.see("button", "Next version").click()
	b.see("button", "Next version").click()
	b.see("region", "Now").shows(`total: 6`)
	b.arrive(page("spec/states?key=counter:" + uid("c")))
	b.press("[")
	b.see("region", "Now").shows(`total: 3`)
	b.arrive(page("spec/states?key=counter:" + uid("c") + "&length=2"))
	if at := b.see("slider", "Version").value(); at != "2" {
		t.Errorf("the slider is at %s", at)
	}
}
