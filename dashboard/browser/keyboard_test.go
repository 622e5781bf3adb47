//go:build !race

package browser_test

import (
	"strings"
	"testing"
)

// watchFocus takes down which elements had the focus, and which of them did not look different with it.
const watchFocus = `(() => {
	window.__seen = new Set();
	window.__unseen = [];
	const looks = (e) => {
		const of = (x) => { const s = getComputedStyle(x); return [s.outlineStyle === 'none' ? '' : s.outlineStyle + s.outlineWidth + s.outlineColor, s.boxShadow, s.borderColor, s.backgroundColor, s.textDecoration].join(); };
		return [e, e.parentElement, e.closest('.cm-editor'), ...[...e.parentElement.children].slice(0, 60)].filter(Boolean).map(of).join('|');
	};
	const all = () => [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"], [contenteditable=true]')]
		.filter((e) => !e.disabled && e.tabIndex >= 0 && e.checkVisibility({ visibilityProperty: true }) && !e.closest('[inert]') && e.type !== 'hidden')
		.filter((e) => !(e.type === 'radio' && !e.checked)); // one of a group
	const before = new Map(all().map((e) => [e, looks(e)]));
	window.__left = () => all().filter((e) => !window.__seen.has(e)).map((e) => e.outerHTML.slice(0, 160));
	document.addEventListener('focusin', (event) => {
		const e = event.target;
		if (!window.__seen.has(e) && before.has(e) && looks(e) === before.get(e)) window.__unseen.push(e.outerHTML.slice(0, 160));
		window.__seen.add(e);
	});
	return before.size;
})()`

// TestEveryPageByKeyboard holds that Tab reaches all that can be used, that the focus shows, and that it is caught
// nowhere.
func TestEveryPageByKeyboard(t *testing.T) {
	s := newSite(t, "spec.json")
	pages := everyPage(t, s)
	b := s.open(t, page("overview"))
	b.settled("Overview")
	for _, p := range pages {
		t.Run(strings.TrimPrefix(p.path, "/ui/"), func(t *testing.T) {
			b.tb = t
			b.load(p.path)
			b.settled(p.heading)
			n := js[int](b, watchFocus)
			for range n + 15 {
				b.press("Tab")
				// In an editor Tab indents; Escape before it lets it out, as in all of CodeMirror.
				if js[bool](b, "document.activeElement.classList.contains('cm-content')") {
					b.press("Escape")
				}
			}
			for _, left := range js[[]string](b, "window.__left()") {
				t.Errorf("Tab does not reach %s", left)
			}
			for _, unseen := range js[[]string](b, "window.__unseen") {
				t.Errorf("the focus does not show on %s", unseen)
			}
			b.behaved()
		})
	}
	b.tb = t
}

// tabTo presses Tab until an element has the focus that begins so.
func (b *tab) tabTo(name string) {
	b.tb.Helper()
	for range 60 {
		if _, at, _ := strings.Cut(b.focused(), " "); strings.HasPrefix(at, name) {
			return
		}
		b.press("Tab")
	}
	b.fail("Tab does not reach %s", name)
}

// TestByKeyboardAlone signs in, makes a key, revokes it, looks at the past of an aggregate and signs out without a
// pointer.
func TestByKeyboardAlone(t *testing.T) {
	s := newSite(t, "spec.json")
	s.raise(uid("a"), "1", "2")
	b := s.openAsNobody(t, "/ui/login")
	b.heading("Sign in to j17")
	b.tabTo("Email")
	b.type_(s.ready.Operator.Email)
	b.press("Tab")
	b.type_(s.ready.Operator.Password)
	b.press("Enter")
	b.settled("Overview")
	b.press("g", "k")
	b.settled("API keys")

	// A dialog keeps the focus, and gives it back.
	b.tabTo("Create key")
	b.press("Enter")
	b.see("dialog", "Create key")
	b.truthy("document.activeElement.labels && document.activeElement.labels[0].textContent.trim() === 'Name'")
	for range 12 {
		b.press("Tab")
		if !js[bool](b, "!!document.activeElement.closest('dialog')") {
			t.Fatalf("the focus leaves the dialog: %s", b.focused())
		}
	}
	for range 12 {
		b.press("Shift+Tab")
		if !js[bool](b, "!!document.activeElement.closest('dialog')") {
			t.Fatalf("the focus leaves the dialog: %s", b.focused())
		}
	}
	b.press("Escape")
	b.gone("dialog", nil)
	b.truthy("document.activeElement.textContent.trim() === 'Create key'")

	b.press("Enter")
	b.see("dialog", "Create key")
	b.type_("by keyboard")
	b.press("Tab", "ArrowDown") // Write
	b.truthy("document.activeElement.value === 'write' && document.activeElement.checked")
	b.press("Enter")
	b.see("textbox", "New key")
	b.tabTo("Done")
	b.press("Enter")
	b.gone("dialog", nil)
	b.tabTo("Revoke by keyboard")
	b.press("Enter")
	b.see("dialog", "Revoke by keyboard")
	b.tabTo("Revoke")
	b.press("Enter")
	b.gone("dialog", nil)
	b.gone("button", "Revoke by keyboard")
	// What had the focus is gone, so that the content has it.
	b.truthy("document.activeElement !== document.body")

	// By the palette to an aggregate, and through its versions.
	b.press("Control+k")
	b.see("dialog", "Command palette")
	b.type_("counter/" + uid("a"))
	b.see("option", nil)
	b.press("Enter")
	b.settled("counter/" + uid("a"))
	b.tabTo("Version")
	b.press("ArrowLeft")
	b.total("1")
	b.press("End")
	b.total("3")
	b.tabTo("total")
	b.press("Enter")
	b.see("region", "State").shows("was set by")
	b.tabTo("Verify")
	b.press("Enter")
	b.see("region", "Proof").shows("Verified")

	// The menu has the keys of menus.
	b.tabTo("Account")
	b.press("Enter")
	b.see("menuitem", "Sign out")
	b.truthy("document.activeElement.textContent === 'Your account'")
	b.press("ArrowDown")
	b.truthy("document.activeElement.textContent === 'Sign out'")
	b.press("Escape")
	b.gone("menuitem", nil)
	b.truthy("document.activeElement.getAttribute('aria-label') === 'Account'")
	b.press("Enter")
	b.truthy("document.activeElement.textContent === 'Your account'")
	b.press("End", "Enter")
	b.heading("Sign in to j17")
}
