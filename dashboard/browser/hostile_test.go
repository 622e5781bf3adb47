//go:build !race

package browser_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestHostileData holds that whatever is in an event is shown as text, and that pages stay whole.
func TestHostileData(t *testing.T) {
	const hack = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script><iframe src="javascript:parent.hacked=1"></iframe>`
	digits := strings.Repeat("1234567890", 10)
	deep := strings.Repeat(`{"d":`, 120) + `"the end"` + strings.Repeat(`}`, 120)
	s := newSite(t, "spec.json")
	b := s.open(t, page("overview"))
	b.settled("Overview")
	whole := func(t *testing.T, heading, hidden string) {
		t.Helper()
		b.settled(heading)
		b.see("navigation", "Environment")
		if js[bool](b, `!!(window.hacked || ({}).polluted || document.querySelector('img, iframe, main script'))`) {
			t.Errorf("data became a part of the page at %s", heading)
		}
		if text := b.text(); hidden != "" && strings.Contains(text, hidden) {
			t.Errorf("%q is on the page at %s as it is", hidden, heading)
		}
		b.behaved()
	}
	for _, test := range []struct {
		name, data string
		// shown is what the page of the event has in its data; hidden is what must not be in it as it is.
		shown, hidden string
	}{
		{"markup", fmt.Sprintf(`{"html": %s, %s: 1}`, quoted(hack), quoted(hack)), `<img src=x onerror=`, ""},
		{"templates", `{"a": "{{constructor.constructor('window.hacked=1')()}}", "b": "${window.hacked=1}", "c": "javascript:window.hacked=1", "d": "';window.hacked=1;'"}`, "{{constructor", ""},
		{"bidirectional marks", `{"name": "abc\u202edcba\u202c", "zero": "a\u200bb\ufeff", "\u202ekey": 1, "null": "\u0000"}`, "⟨U+202E⟩", "\u202e"},
		{"prototypes", `{"__proto__": {"polluted": true}, "constructor": {"prototype": {"polluted": true}}, "toString": "x", "hasOwnProperty": 1}`, "__proto__", ""},
		{
			"many digits", `{"n": ` + digits + `, "small": 0.` + digits + `, "exact": 12345678901234567890.10}`, digits,
			"",
		},
		{"a long text", `{"text": "` + strings.Repeat("long ", 200_000) + `"}`, "long long", ""},
		{
			"a long word", `{"text": "` + strings.Repeat("x", 10_000) + `", "` + strings.Repeat("y", 1_000) + `": 1}`,
			"yyy", "",
		},
		{"many levels", `{"deep": ` + deep + `}`, "deep", ""},
		{"many members", `{` + strings.TrimSuffix(members(5000), ",") + `}`, "m0", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.tb = t
			id := uid(test.name)
			position := s.write("note/"+id, "was_written", test.data)
			s.write("note/"+id, "was_changed", test.data)
			b.load(page("events/" + position))
			whole(t, "note.was_written "+position, test.hidden)
			if text, err := b.see("region", "Data").text(); err != nil || !strings.Contains(text, test.shown) {
				t.Errorf("the data are not shown (%v): %.2000s", err, text)
			}
			b.size(320, 640)
			b.frame()
			if width := js[int](b, "document.documentElement.scrollWidth"); width > 320 {
				t.Errorf("%d pixels wide on a screen of 320", width)
			}
			b.size(1280, 900)

			b.load(page("aggregates/note/" + id))
			whole(t, "note/"+id, test.hidden)
			b.see("region", "State").shows(`\S`)
			if text, err := b.see("region", "State").text(); err != nil || !strings.Contains(text, test.shown) {
				t.Errorf("the state is not shown (%v): %.2000s", err, text)
			}
			b.see("slider", "Version").drag(-3000)
			b.see("region", "State").shows("as of version 1")
			proof := b.see("region", "Proof")
			proof.see("button", "Verify").click()
			proof.shows("Verified.*2 events")
		})
	}

	// All of them in lists, and each beside the list.
	b.tb = t
	b.load(page("overview"))
	whole(t, "Overview", "\u202e")
	b.see("table", "Latest events").shows("was_changed")
	b.load(page("events"))
	whole(t, "Events", "\u202e")
	links, err := b.all("link", "was_changed", b.see("table", "Events"))
	if err != nil || len(links) < 9 {
		t.Fatal(len(links), err)
	}
	for _, link := range links {
		link.click()
		b.shows("was_changed")
	}
	whole(t, "Events", "\u202e")
}

// members are n members of an object.
func members(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `"m%d":%d,`, i, i)
	}
	return all.String()
}

// TestHostileNames holds that names that people give are text, too: of keys, in notes, of instances.
func TestHostileNames(t *testing.T) {
	s := newSite(t, "spec.json")
	name := `<img src=x onerror="window.hacked=1">` + "\u202e"
	r := s.call("POST", "control", "/api/instances/"+s.ready.Instance.ID+"/keys",
		s.login(s.ready.Operator.Email, s.ready.Operator.Password),
		map[string]string{"name": name, "scope": "read", "environment": "prod"})
	if r.status >= 300 { // some characters may be refused
		name = `<img src=x onerror="window.hacked=1">`
		s.control("POST", "/api/instances/"+s.ready.Instance.ID+"/keys", map[string]string{
			"name": name, "scope": "read", "environment": "prod",
		})
	}
	b := s.open(t, page("keys"))
	b.settled("API keys")
	b.see("table", "API keys").shows("<img src=x")
	if js[bool](b, "!!(window.hacked || document.querySelector('img'))") {
		t.Error("the name of a key became a part of the page")
	}

	// Addresses are what others write.
	for _, path := range []string{
		page("aggregates/" + escaped(`<img src=x onerror=window.hacked=1>`)),
		page("aggregates/counter/" + strings.ReplaceAll(escaped(`<img src=x onerror=window.hacked=1>`), "+", "%20")),
		page("events?type=" + escaped(`"><img src=x onerror=window.hacked=1>`)),
		page("events?actor=" + escaped(`javascript:window.hacked=1`)),
		page("attention?kind=" + escaped(`<img src=x onerror=window.hacked=1>`) + "&cause=x"),
		page("spec?template=" + escaped(`<img src=x onerror=window.hacked=1>`)),
		page("spec/states?key=" + escaped(`<img src=x onerror=window.hacked=1>`)),
	} {
		b.allow("4(00|04|22)")
		b.load(path)
		b.see("navigation", "Environment")
		b.truthy("document.querySelector('h1') && !document.querySelector('[aria-busy=true]')")
		if js[bool](b, "!!(window.hacked || document.querySelector('img'))") {
			t.Errorf("the address %s became a part of the page", path)
		}
	}
}
