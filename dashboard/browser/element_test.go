//go:build !race

package browser_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
)

// element is something on a page that assistive technology knows, with its name.
type element struct {
	b    *tab
	node *accessibility.Node
	role string
	name string
}

// all returns the elements with a role and a name that is a text, a *regexp.Regexp, or nil for any. within may be nil.
func (b *tab) all(role string, name any, within *element) ([]*element, error) {
	params := accessibility.QueryAXTreeParams{Role: role}
	if within != nil {
		params.BackendNodeID = within.node.BackendDOMNodeID
	} else {
		document, err := ask(b, runtime.Evaluate, runtime.EvaluateParams{Expression: "document", ObjectGroup: "found"})
		if err != nil {
			return nil, err
		}
		params.ObjectID = document.Result.ObjectID
	}
	found, err := ask(b, accessibility.QueryAXTree, params)
	if err != nil {
		return nil, err
	}
	var all []*element
	for _, n := range found.Nodes {
		e := &element{b, n, role, strings.Join(strings.Fields(textOf(n.Name)), " ")}
		fits := name == nil
		switch name := name.(type) {
		case string:
			fits = e.name == name
		case *regexp.Regexp:
			fits = name.MatchString(e.name)
		}
		if fits && !n.Ignored {
			all = append(all, e)
		}
	}
	return all, nil
}

// textOf is the text of a value of the accessibility tree.
func textOf(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var text string
	if json.Unmarshal([]byte(v.Value), &text) != nil {
		return string(v.Value)
	}
	return text
}

// see waits for an element and returns it.
func (b *tab) see(role string, name any) *element {
	b.tb.Helper()
	return b.wait(role, name, nil)
}

// see waits for an element within this one.
func (e *element) see(role string, name any) *element {
	e.b.tb.Helper()
	return e.b.wait(role, name, e)
}

func (b *tab) wait(role string, name any, within *element) (found *element) {
	b.tb.Helper()
	b.until(fmt.Sprintf("%s %v", role, name), func() (bool, error) {
		all, err := b.all(role, name, within)
		if len(all) == 0 && within != nil {
			// Pages make elements anew.
			var outer []*element
			if outer, err = b.all(within.role, within.name, nil); len(outer) > 0 {
				all, err = b.all(role, name, outer[0])
			}
		}
		if len(all) > 0 {
			found = all[0]
		}
		return found != nil, err
	})
	return found
}

// gone waits until there is no such element.
func (b *tab) gone(role string, name any) {
	b.tb.Helper()
	b.until(fmt.Sprintf("%s %v to be gone", role, name), func() (bool, error) {
		all, err := b.all(role, name, nil)
		return len(all) == 0, err
	})
}

// has reports whether there is such an element now.
func (b *tab) has(role string, name any) bool {
	b.tb.Helper()
	all, err := b.all(role, name, nil)
	if err != nil {
		b.fail("%s %v: %v", role, name, err)
	}
	return len(all) > 0
}

// names returns the names of all elements with a role within this one.
func (e *element) names(role string) []string {
	e.b.tb.Helper()
	all, err := e.b.all(role, nil, e)
	if err != nil {
		e.b.fail("%ss in %s: %v", role, e.name, err)
	}
	var names []string
	for _, one := range all {
		names = append(names, one.name)
	}
	return names
}

// call calls a function with the element as this.
func call[T any](e *element, function string, args ...any) (T, error) {
	var v T
	object, err := ask(e.b, dom.ResolveNode, dom.ResolveNodeParams{
		BackendNodeID: e.node.BackendDOMNodeID, ObjectGroup: "found",
	})
	if err != nil {
		return v, err
	}
	yes := true
	params := runtime.CallFunctionOnParams{
		ObjectID: object.Object.ObjectID, FunctionDeclaration: function, ReturnByValue: &yes, AwaitPromise: &yes,
		UserGesture: &yes,
	}
	for _, a := range args {
		raw, err := json.Marshal(a)
		if err != nil {
			return v, err
		}
		params.Arguments = append(params.Arguments, &runtime.CallArgument{Value: raw})
	}
	r, err := ask(e.b, runtime.CallFunctionOn, params)
	if err != nil {
		return v, err
	}
	if r.ExceptionDetails != nil {
		return v, fmt.Errorf("%s: %s", function, r.ExceptionDetails.Exception.Description)
	}
	if len(r.Result.Value) == 0 {
		return v, nil
	}
	err = json.Unmarshal([]byte(r.Result.Value), &v)
	return v, err
}

// do calls a function that must not fail.
func (e *element) do(function string, args ...any) {
	e.b.tb.Helper()
	if _, err := call[any](e, function, args...); err != nil {
		e.b.fail("%s %s: %v", e.role, e.name, err)
	}
}

// property is what assistive technology is told of an element, such as "disabled".
func (e *element) property(name string) string {
	for _, p := range e.node.Properties {
		if string(p.Name) == name {
			return textOf(p.Value)
		}
	}
	return ""
}

// value is what a field or a slider has.
func (e *element) value() string { return textOf(e.node.Value) }

// text is what an element shows, shadow roots and fields included.
func (e *element) text() (string, error) {
	return call[string](e, `function () {
		const text = (e) => /^(INPUT|TEXTAREA)$/.test(e.tagName) ? e.value : e.innerText ?? e.textContent;
		return [this, ...this.querySelectorAll('*')].filter((e) => e.shadowRoot)
			.reduce((all, e) => all + '\n' + [...e.shadowRoot.children].map(text).join('\n'), text(this));
	}`)
}

// shows waits until an element shows a text that matches. The element is looked for each time, as pages make elements
// anew.
func (e *element) shows(pattern string) {
	e.b.tb.Helper()
	p := regexp.MustCompile("(?s)" + pattern)
	e.b.until(fmt.Sprintf("the text %s in %s %s", pattern, e.role, e.name), func() (bool, error) {
		text, err := e.now()
		return p.MatchString(text), err
	})
}

// hides waits until an element shows no text that matches.
func (e *element) hides(pattern string) {
	e.b.tb.Helper()
	p := regexp.MustCompile("(?s)" + pattern)
	e.b.until(fmt.Sprintf("no text %s in %s %s", pattern, e.role, e.name), func() (bool, error) {
		text, err := e.now()
		return !p.MatchString(text), err
	})
}

// now is the text of the element with this role and name that the page has now.
func (e *element) now() (string, error) {
	all, err := e.b.all(e.role, e.name, nil)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", fmt.Errorf("there is no %s %s", e.role, e.name)
	}
	return all[0].text()
}

// place is the middle of an element, once it rests there and nothing lies above it.
const place = `async function () {
	const frame = () => new Promise((done) => requestAnimationFrame(done));
	let target = this;
	const rect = () => {
		let r = target.getBoundingClientRect();
		if (r.width < 4 || r.height < 4) {
			target = (this.labels && this.labels[0]) || this.closest('label') || this;
			r = target.getBoundingClientRect();
		}
		return [r.x + r.width / 2, r.y + r.height / 2];
	};
	target.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
	let [x, y] = rect();
	for (let i = 0; i < 100; i++) {
		await frame();
		const [nx, ny] = rect();
		if (nx === x && ny === y) break;
		[x, y] = [nx, ny];
	}
	const top = document.elementFromPoint(x, y);
	if (!top || !(target.contains(top) || top.contains(target))) throw new Error('something lies above it: ' + (top ? top.outerHTML.slice(0, 200) : 'it is out of sight'));
	return [x, y];
}`

// at waits until a pointer can reach an element and returns where.
func (e *element) at() (x, y float64) {
	e.b.tb.Helper()
	e.b.until(fmt.Sprintf("a way to %s %s", e.role, e.name), func() (bool, error) {
		p, err := call[[2]float64](e, place)
		x, y = p[0], p[1]
		return true, err
	})
	return x, y
}

// click presses the left button of the pointer on an element.
func (e *element) click() {
	e.b.tb.Helper()
	x, y := e.at()
	e.b.mouse(input.DispatchMouseEventParams{Type: "mouseMoved", X: x, Y: y})
	e.b.mouse(input.DispatchMouseEventParams{Type: "mousePressed", X: x, Y: y, Button: "left", ClickCount: 1})
	e.b.mouse(input.DispatchMouseEventParams{Type: "mouseReleased", X: x, Y: y, Button: "left", ClickCount: 1})
}

// drag moves an element by so many pixels to the right.
func (e *element) drag(by float64) {
	e.b.tb.Helper()
	x, y := e.at()
	e.b.mouse(input.DispatchMouseEventParams{Type: "mouseMoved", X: x, Y: y})
	e.b.mouse(input.DispatchMouseEventParams{
		Type: "mousePressed", X: x, Y: y, Button: "left", Buttons: 1, ClickCount: 1,
	})
	for i := 1.0; i <= 10; i++ {
		e.b.mouse(input.DispatchMouseEventParams{Type: "mouseMoved", X: x + by*i/10, Y: y, Button: "left", Buttons: 1})
	}
	e.b.mouse(input.DispatchMouseEventParams{Type: "mouseReleased", X: x + by, Y: y, Button: "left", ClickCount: 1})
}

func (b *tab) mouse(event input.DispatchMouseEventParams) {
	b.tb.Helper()
	must(b, input.DispatchMouseEvent, event)
}

// fill replaces what a field has.
func (e *element) fill(text string) {
	e.b.tb.Helper()
	e.click()
	e.b.press("Control+a")
	if text == "" {
		e.b.press("Delete")
		return
	}
	e.b.type_(text)
}

// choose chooses an option of a list by its text.
func (e *element) choose(option string) {
	e.b.tb.Helper()
	e.do(`function (option) {
		const i = [...this.options].findIndex((o) => o.label.trim() === option);
		if (i < 0) throw new Error('there is no option ' + option);
		this.selectedIndex = i;
		for (const type of ['input', 'change']) this.dispatchEvent(new Event(type, { bubbles: true }));
	}`, option)
}

// type_ puts a text in where the focus is.
func (b *tab) type_(text string) {
	b.tb.Helper()
	must(b, input.InsertText, input.InsertTextParams{Text: text})
}

// press presses keys one after the other: "Tab", "g", "Control+k".
func (b *tab) press(keys ...string) {
	b.tb.Helper()
	codes := map[string]int64{
		"Tab": 9, "Enter": 13, "Escape": 27, "Space": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
		"ArrowRight": 39, "ArrowDown": 40, "Delete": 46,
	}
	modifiers := map[string]int64{"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
	for _, k := range keys {
		parts := strings.Split(k, "+")
		event := input.DispatchKeyEventParams{Type: "rawKeyDown", Key: parts[len(parts)-1]}
		for _, m := range parts[:len(parts)-1] {
			event.Modifiers |= modifiers[m]
		}
		event.Code = event.Key
		switch code, named := codes[event.Key]; {
		case named:
			event.WindowsVirtualKeyCode = code
			switch event.Key {
			case "Enter":
				event.Text = "\r"
			case "Space":
				event.Key, event.Text = " ", " "
			}
		default:
			event.WindowsVirtualKeyCode = int64(strings.ToUpper(event.Key)[0])
			event.Code = "Key" + strings.ToUpper(event.Key)
			event.Text = event.Key
		}
		if event.Modifiers&^8 != 0 {
			event.Text = ""
		}
		if event.Text != "" {
			event.Type = "keyDown"
		}
		if k == "Control+a" {
			event.Commands = []string{"selectAll"}
		}
		must(b, input.DispatchKeyEvent, event)
		event.Type, event.Text, event.Commands = "keyUp", "", nil
		must(b, input.DispatchKeyEvent, event)
	}
}

// focused is the tag of the element that has the focus, and its name.
func (b *tab) focused() string {
	b.tb.Helper()
	return js[string](b, `(e => e.tagName + ' ' + (e.getAttribute('aria-label') || (e.labels && e.labels[0] && e.labels[0].textContent) || e.textContent || '').trim().slice(0, 100))(document.activeElement)`)
}
