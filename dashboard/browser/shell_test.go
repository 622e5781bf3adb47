//go:build !race

package browser_test

import (
	"slices"
	"strings"
	"testing"
)

func TestPalette(t *testing.T) {
	s := newSite(t, "spec.json")
	position := s.raise(uid("a"), "1")[0]
	b := s.open(t, page("overview"))
	b.settled("Overview")
	for _, test := range []struct{ typed, path, heading string }{
		{"usage", page("usage"), "Usage"},
		{"counter/" + uid("a"), page("aggregates/counter/" + uid("a")), "counter/" + uid("a")},
		{position, page("events/" + position), "counter.was_raised " + position},
		{"attention", page("attention"), "Needs attention"},
		{uid("a")[:8], page("aggregates/counter/" + uid("a")), "counter/" + uid("a")},
	} {
		b.press("Control+k")
		dialog := b.see("dialog", "Command palette")
		dialog.see("combobox", "Command")
		b.type_(test.typed)
		b.see("option", nil)
		if test.typed == uid("a")[:8] {
			b.until("the counter among the options", func() (bool, error) {
				all, err := b.all("option", nil, nil)
				return len(all) > 0 && strings.Contains(all[0].name, "counter/"+uid("a")), err
			})
		}
		b.press("Enter")
		b.arrive(test.path)
		b.heading(test.heading)
		b.gone("dialog", "Command palette")
	}
	b.press("Control+k")
	b.see("dialog", "Command palette")
	b.press("Escape")
	b.gone("dialog", "Command palette")
}

func TestShortcuts(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("overview"))
	b.settled("Overview")
	b.press("?")
	b.see("dialog", "Keyboard shortcuts").shows("Events")
	b.press("Escape")
	b.gone("dialog", "Keyboard shortcuts")
	for key, heading := range map[string]string{
		"e": "Events", "a": "Aggregates", "n": "Needs attention", "s": "Spec", "k": "API keys", "u": "Usage",
		"o": "Overview",
	} {
		b.press("g", key)
		b.heading(heading)
	}

	// None counts while something is typed.
	b.load(page("events"))
	b.settled("Events")
	b.see("textbox", "Actor").click()
	b.press("?", "g", "o")
	if typed := b.see("textbox", "Actor").value(); typed != "?go" {
		t.Errorf("%q was typed", typed)
	}
	b.heading("Events")
	if b.has("dialog", nil) {
		t.Error("a dialog opens while something is typed")
	}
}

func TestThemes(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, "/ui/account")
	b.settled("Your account")
	// dark reports the theme, and whether the ground is dark.
	const dark = `document.documentElement.dataset.theme + ' ' + (() => {
		const ground = getComputedStyle(document.body).backgroundColor, x = document.createElement('canvas').getContext('2d');
		x.fillStyle = ground === 'rgba(0, 0, 0, 0)' ? getComputedStyle(document.documentElement).backgroundColor : ground;
		x.fillRect(0, 0, 1, 1);
		const [r, g, b] = x.getImageData(0, 0, 1, 1).data;
		return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255 < 0.3;
	})()`
	is := func(want string) {
		t.Helper()
		b.until(want, func() (bool, error) {
			got, err := eval[string](b, dark)
			return got == want, err
		})
	}
	for _, scheme := range []string{"dark", "light", "dark"} {
		b.media(scheme)
		is(map[string]string{"dark": "dark true", "light": "light false"}[scheme])
	}
	group := b.see("group", "Theme")
	if names := group.names("radio"); !slices.Equal(names, []string{"System", "Light", "Dark"}) {
		t.Errorf("themes %q", names)
	}
	group.see("radio", "Light").click()
	is("light false")
	b.load(page("overview"))
	b.heading("Overview")
	is("light false")
	b.load("/ui/account")
	b.settled("Your account")
	b.see("radio", "Dark").click()
	b.media("light")
	is("dark true")
	b.see("radio", "System").click()
	is("light false")
}

func TestEnvironments(t *testing.T) {
	s := newSite(t, "spec.json")
	s.control("POST", "/api/instances", map[string]any{"name": "other"})
	b := s.open(t, page("events"))
	b.settled("Events")
	b.truthy("document.documentElement.dataset.env === 'prod'")
	prod := js[string](b, "document.querySelector('link[rel=icon]').href")
	if at := b.see("combobox", "Environment").value(); at != "prod" {
		t.Errorf("the environment is %q", at)
	}
	b.see("combobox", "Environment").choose("staging")
	b.arrive(staging("events"))
	b.settled("Events")
	b.truthy("document.title.includes('staging') && document.documentElement.dataset.env === 'staging'")
	if js[string](b, "document.querySelector('link[rel=icon]').href") == prod {
		t.Error("the icon of the tab is that of prod")
	}
	b.see("combobox", "Instance").choose("other")
	b.arrive("/ui/i/other/staging/events")
	b.settled("Events")
	js[any](b, "history.back()")
	b.arrive(staging("events"))
	b.until("the instance app", func() (bool, error) {
		all, err := b.all("combobox", "Instance", nil)
		return len(all) == 1 && all[0].value() == "app", err
	})
}

func TestSkipLink(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("keys"))
	b.settled("API keys")
	b.press("Tab")
	if at := b.focused(); at != "A Skip to content" {
		t.Fatalf("the first stop of Tab is %q", at)
	}
	// It shows while it has the focus.
	b.see("link", "Skip to content").at()
	b.press("Enter")
	b.truthy("document.activeElement.id === 'content'")
	b.press("Tab")
	if at := b.focused(); at != "BUTTON Create key" {
		t.Errorf("the first stop in the content is %q", at)
	}
}

// TestRoles holds that a role sees the pages that it may see, starts at the first of them, and is told so elsewhere.
func TestRoles(t *testing.T) {
	s := newSite(t, "spec.json")
	s.raise(uid("a"), "1")
	for _, test := range []struct {
		role, first string
		links       []string
		no          []string
	}{
		{
			"auditor", "Overview",
			[]string{"Overview", "Events", "Aggregates", "Spec", "API keys", "Usage"},
			[]string{"attention"},
		},
		{"privacy_officer", "", nil, []string{"overview", "events", "aggregates", "aggregates/counter/" + uid("a")}},
	} {
		who := s.operator(test.role)
		b := s.openAs(t, who, "/ui/")
		nav := b.see("navigation", "Environment")
		names := nav.names("link")
		if test.first == "" {
			test.first = names[0]
		}
		b.settled(test.first)
		if test.links != nil && !slices.Equal(names, test.links) {
			t.Errorf("%s sees %q", test.role, names)
		}
		if len(names) == 0 || names[0] != test.first {
			t.Errorf("%s starts at %s of %q", test.role, test.first, names)
		}
		for _, path := range test.no {
			b.load(page(path))
			b.heading("Not allowed")
			if text := b.text(); strings.Contains(text, "raised by") {
				t.Errorf("%s reads data at %s", test.role, path)
			}
		}
	}
	b := s.openAs(t, s.operator("instance_admin"), page("overview"))
	b.settled("Overview")
}

func TestNothingHere(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, "/ui/none")
	for _, path := range []string{
		"/ui/none", page("none"), "/ui/i/none/prod/overview", "/ui/i/app/none/overview", page("events/1-0/more"),
		"/ui/account/more", "/ui/i/app/prod/%ff",
	} {
		b.load(path)
		b.heading("Nothing here")
	}
	b.see("link", "Go to the first page").click()
	b.settled("Overview")
	// What a page names may not be there, which is said on the page.
	b.allow("404")
	b.load(page("aggregates/counter/" + uid("never")))
	b.heading("counter/" + uid("never"))
	b.see("alert", nil).shows(`\S`)
	b.load(page("events/1000000000000-0"))
	b.see("alert", nil).shows(`\S`)
}

func TestMenuOnNarrowScreens(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("overview"))
	b.size(320, 640)
	b.settled("Overview")
	if b.has("link", "Usage") {
		t.Error("the navigation is open on a narrow screen")
	}
	b.see("button", "Menu").click()
	b.see("link", "Usage").click()
	b.settled("Usage")
	b.gone("link", "Events")
}
