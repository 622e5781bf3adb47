//go:build !race

package browser_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// address is that of a page, with the heading there.
type address struct{ path, heading string }

// everyPage has an address of each page of the dashboard, with something on it.
func everyPage(t *testing.T, s *site) []address {
	t.Helper()
	id := uid("pages")
	position := s.raise(id, "1", "2", "3")[2]
	doomed(s, 2)
	states := page("spec/states?key=counter:" + id)
	all := []address{
		{"/ui/account", "Your account"},
		{"/ui/none", "Nothing here"},
		{page("overview"), "Overview"},
		{page("events"), "Events"},
		{page("events/" + position), "counter.was_raised " + position},
		{page("aggregates"), "Aggregates"},
		{page("aggregates/counter"), "counter"},
		{page("aggregates/counter/" + id), "counter/" + id},
		{page("aggregates/counter/" + id + "?length=2"), "counter/" + id},
		{page("attention"), "Needs attention"},
		{page("spec"), "Spec"},
		{page("spec/history"), "Spec history"},
		{states, "Both states"},
		{page("keys"), "API keys"},
		{page("usage"), "Usage"},
	}

	// The dashboard knows no other.
	source, err := os.ReadFile("../src/app/pages.ts")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`\{ name: '\w+', path: '([^']+)'`).FindAllStringSubmatch(string(source), -1)
	if len(known) < 12 {
		t.Fatalf("%d pages in pages.ts: this test looks in the wrong place", len(known))
	}
	for _, k := range known {
		fits := regexp.MustCompile(
			`^/ui/i/app/prod/` + regexp.MustCompile(`\{\w+\}`).ReplaceAllString(k[1], `[^/?]+`) + `(\?.*)?$`,
		)
		found := false
		for _, a := range all {
			found = found || fits.MatchString(a.path)
		}
		if !found {
			t.Errorf("add an address of the page %s to everyPage", k[1])
		}
	}
	return all
}

// axe returns what axe-core calls serious or critical on the page as it is.
func (b *tab) axe() []string {
	b.tb.Helper()
	if !js[bool](b, "typeof axe === 'object'") {
		source, err := axe()
		if err != nil {
			if needed() {
				b.tb.Fatalf("axe-core is missing, which npm installs beside the dashboard: %v. Run 'make dashboard-check' first.", err)
			}
			b.tb.Skipf("SKIPPED: axe-core is missing (%v). 'make dashboard' installs it.", err)
		}
		js[bool](b, source+"; true")
	}
	return js[[]string](b, `axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations
		.filter((v) => v.impact === 'serious' || v.impact === 'critical')
		.flatMap((v) => v.nodes.slice(0, 3).map((n) => v.id + ': ' + n.html.slice(0, 200) + ' ' + (n.any[0] || n.all[0] || n.none[0] || { message: '' }).message)))`)
}

// stickingOut is what lies beyond the right edge of the window, with no way to scroll to it but sideways.
const stickingOut = `[...document.querySelectorAll('body *')].filter((e) => {
	const r = e.getBoundingClientRect();
	if (r.width < 2 || r.height < 2 || r.right <= innerWidth + 1 || getComputedStyle(e).visibility === 'hidden') return false;
	for (let p = e.parentElement; p && p !== document.body; p = p.parentElement) if (/auto|scroll|hidden|clip/.test(getComputedStyle(p).overflowX)) return false;
	return !e.closest('[aria-hidden=true], [inert]');
}).slice(0, 3).map((e) => e.outerHTML.slice(0, 150))`

// TestEveryPage looks at each page in both themes with axe-core, and at 320 pixels. No page has an error on the
// console, a violation of the policy or a request to elsewhere, and an operator's token reads all that pages read.
func TestEveryPage(t *testing.T) {
	s := newSite(t, "spec.json")
	pages := everyPage(t, s)
	login := s.openAsNobody(t, "/ui/login")
	login.heading("Sign in to j17")
	b := s.open(t, page("overview"))
	b.settled("Overview")
	draft, err := json.Marshal(map[string]any{"text": edited(t, handler, changed), "hash": "", "version": 0})
	if err != nil {
		t.Fatal(err)
	}
	js[any](b, fmt.Sprintf("localStorage.setItem('j17.draft %s prod', %s)", s.ready.Instance.ID, quoted(string(draft))))
	look := func(t *testing.T, b *tab) {
		t.Helper()
		b.tb = t
		for _, theme := range []string{"light", "dark"} {
			b.media(theme)
			b.truthy("document.documentElement.dataset.theme === " + quoted(theme))
			b.frame()
			for _, v := range b.axe() {
				t.Errorf("%s: %s", theme, v)
			}
		}
		b.size(320, 640)
		b.frame()
		if width := js[int](b, "document.documentElement.scrollWidth"); width > 320 {
			t.Errorf("%d pixels wide on a screen of 320", width)
		}
		for _, v := range b.axe() {
			t.Errorf("narrow: %s", v)
		}
		for _, out := range js[[]string](b, stickingOut) {
			t.Errorf("beyond the edge of a narrow screen: %s", out)
		}
		if t.Failed() {
			b.picture()
		}
		b.size(1280, 900)
		b.behaved()
	}
	t.Run("login", func(t *testing.T) { look(t, login) })
	for _, p := range pages {
		t.Run(strings.TrimPrefix(p.path, "/ui/"), func(t *testing.T) {
			b.tb = t
			b.load(p.path)
			b.settled(p.heading)
			look(t, b)
		})
	}
	login.tb, b.tb = t, t

	// Dialogs, on one page.
	b.load(page("keys"))
	b.settled("API keys")
	for _, dialog := range []struct {
		name string
		open func()
	}{
		{"Command palette", func() { b.press("Control+k") }},
		{"Keyboard shortcuts", func() { b.press("?") }},
		{"Create key", func() { b.see("button", "Create key").click() }},
		{"Revoke dev read", func() { b.see("button", "Revoke dev read").click() }},
	} {
		t.Run(dialog.name, func(t *testing.T) {
			b.tb = t
			dialog.open()
			b.see("dialog", dialog.name)
			look(t, b)
			b.press("Escape")
			b.gone("dialog", nil)
		})
	}
	b.tb = t

	b.mu.Lock()
	reads := b.reads
	b.mu.Unlock()
	if len(reads) < 20 {
		t.Errorf("%d reads of pages were seen", len(reads))
	}
	s.control("GET", "/api/me", nil) // there is a token now
	for path, status := range reads {
		if strings.HasPrefix(path, "/api/session") {
			continue
		}
		if r := s.call("GET", "control", path, s.token, nil); int64(r.status) != status && status != 304 {
			t.Errorf("%s is %d for a page and %d for a token", path, status, r.status)
		}
	}
}
