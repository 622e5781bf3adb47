//go:build !race

package browser_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	devtools "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"

	"j17"
)

// openCounter opens the page of a counter that was raised by 0.1, 0.2 and 4.
func openCounter(t *testing.T, query string) (*site, *tab) {
	t.Helper()
	s := newSite(t, "spec.json")
	s.raise(uid("a"), "0.1", "0.2", "4")
	b := s.open(t, page("aggregates/counter/"+uid("a")+query))
	b.settled("counter/" + uid("a"))
	return s, b
}

// total waits until the state has a total.
func (b *tab) total(n string) {
	b.tb.Helper()
	b.see("region", "State").shows(`total"?\W{1,4}` + regexp.QuoteMeta(n) + `\s`)
}

// version waits until the slider is at a version.
func (b *tab) version(n, of int) {
	b.tb.Helper()
	b.until(fmt.Sprintf("version %d of %d", n, of), func() (bool, error) {
		all, err := b.all("slider", "Version", nil)
		if err != nil || len(all) != 1 {
			return false, err
		}
		s := all[0]
		return strings.HasPrefix(s.property("valuetext"), fmt.Sprint(n)) && s.property("valuemin") == "1" &&
			s.property("valuemax") == fmt.Sprint(of), nil
	})
}

func TestSlider(t *testing.T) {
	_, b := openCounter(t, "")
	path := page("aggregates/counter/" + uid("a"))
	b.version(3, 3)
	b.total("4.3")
	if text := b.see("slider", "Version").property("valuetext"); text != "3, was_raised" {
		t.Errorf("the slider says %q", text)
	}
	entries := js[int](b, "history.length")

	b.see("slider", "Version").drag(-3000)
	b.version(1, 3)
	b.total("0.1")
	b.arrive(path + "?length=1")
	b.shows("The past")
	b.press("]")
	b.version(2, 3)
	b.total("0.3")
	b.arrive(path + "?length=2")
	b.see("table", "Changes").shows(`/total\s+0\.1\s+0\.3`)
	b.see("region", "Changes").shows(user)
	b.see("table", "Events").shows("was_raised")
	b.press("Home")
	b.total("0.1")
	b.press("[") // no further than the first
	b.press("End")
	b.total("4.3")
	b.arrive(path)
	b.press("[", "]", "]", "]") // no further than the last
	b.version(3, 3)
	b.press("ArrowLeft")
	b.total("0.3")

	// Without the focus on the slider.
	js[any](b, "document.activeElement.blur()")
	b.press("Home")
	b.total("0.1")
	b.press("End")
	b.total("4.3")
	b.press("[")
	b.total("0.3")
	b.see("button", "Back to now").click()
	b.total("4.3")
	if n := js[int](b, "history.length"); n != entries {
		t.Errorf("%d entries of the history, not %d: Back walks through versions", n, entries)
	}
}

func TestSliderGoesToATime(t *testing.T) {
	s, b := openCounter(t, "")
	s.advance("90m") // a session that nobody uses for two hours ends
	s.raise(uid("a"), "5")
	b.version(4, 4)
	b.see("button", "Go to a time").click()
	b.see("textbox", "Time")
	b.type_("never")
	b.press("Enter")
	b.see("alert", nil).shows("Give a time")
	b.see("textbox", "Time").fill(js[string](b, "new Date(Date.now() + 2700000).toISOString().slice(0, 16).replace('T', ' ')"))
	b.press("Enter")
	b.version(3, 4)
	b.total("4.3")
}

// TestVersionsInTheAddress holds that length and compare choose any two versions.
func TestVersionsInTheAddress(t *testing.T) {
	_, b := openCounter(t, "?length=3&compare=1")
	b.version(3, 3)
	b.total("4.3")
	b.see("region", "State").shows("compared with 1")
	b.see("table", "Changes").shows(`/total\s+0\.1\s+4\.3`)
	b.see("region", "Changes").shows("from 1 to 3")
	b.see("spinbutton", "Compare with").fill("2")
	b.press("Enter")
	b.arrive(page("aggregates/counter/" + uid("a") + "?compare=2"))
	b.see("table", "Changes").shows(`/total\s+0\.3\s+4\.3`)
	b.see("button", "Compare with the version before").click()
	b.arrive(page("aggregates/counter/" + uid("a")))

	// What is no version is the nearest one, or the newest.
	for query, want := range map[string]int{
		"?length=99": 3, "?length=0": 3, "?length=x": 3, "?length=-1": 3, "?length=2": 2,
	} {
		b.load(page("aggregates/counter/" + uid("a") + query))
		b.settled("counter/" + uid("a"))
		at := b.see("slider", "Version").property("valuetext")
		if want == 2 && !strings.HasPrefix(at, "2") || !regexp.MustCompile(`^[123],`).MatchString(at) {
			t.Errorf("%s shows %q", query, at)
		}
	}
}

func TestAggregateFollows(t *testing.T) {
	s, b := openCounter(t, "")
	b.version(3, 3)
	s.raise(uid("a"), "1")
	b.version(4, 4)
	b.total("5.3")
	b.press("[")
	b.total("4.3")
	s.raise(uid("a"), "8")
	b.version(3, 5) // who looks at the past stays there
	b.total("4.3")
	b.see("region", "Events").shows("2 newer versions")
}

func TestCopyAsCurl(t *testing.T) {
	s, b := openCounter(t, "?length=2")
	b.total("0.3")
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		if _, err := chromedp.CallBrowser(b.ctx, devtools.SetPermission, devtools.SetPermissionParams{
			Permission: &devtools.PermissionDescriptor{Name: name}, Setting: devtools.PermissionSettingGranted,
			Origin:           s.origin,
			BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID,
		}); err != nil {
			t.Fatal(err)
		}
	}
	b.see("button", "Copy as curl").click()
	b.see("status", nil)
	b.shows("Copied")
	command := js[string](b, "navigator.clipboard.readText()")
	if !strings.HasPrefix(command, "curl ") || !strings.Contains(command, "Bearer $J17_KEY") ||
		strings.Contains(command, "j17_0_") {
		t.Fatal(command)
	}
	address, err := url.Parse(strings.Trim(regexp.MustCompile(`'?http://[^\s']+'?`).FindString(command), "'"))
	if err != nil || address.Host != "app."+s.address {
		t.Fatal(err, command)
	}
	r := s.call("GET", "app", address.RequestURI(), s.ready.Keys[j17.Prod].Read, nil)
	var read struct {
		Data     struct{ Total json.Number }
		Metadata struct{ Length int }
	}
	if r.into(t, &read); r.status != http.StatusOK || read.Data.Total != "0.3" || read.Metadata.Length != 2 {
		t.Errorf("%s: %d %s", command, r.status, r.body)
	}
}

func TestBlame(t *testing.T) {
	s := newSite(t, "spec.json")
	s.write("note/"+uid("n"), "was_written", `{"a": 1, "b": 1}`)
	s.write("note/"+uid("n"), "was_changed", `{"b": 2}`)
	s.write("note/"+uid("n"), "was_changed", `{"c": 3}`)
	b := s.open(t, page("aggregates/note/"+uid("n")))
	b.settled("note/" + uid("n"))
	b.see("region", "State").see("button", "b").click()
	b.see("region", "State").shows(`/b\s+was set by\s+version 2`)
	b.see("region", "State").see("button", "a").click()
	b.see("region", "State").shows(`/a\s+was set by\s+version 1`)
	b.see("button", "version 1").click()
	b.until("the first version", func() (bool, error) {
		at, err := eval[string](b, "location.search")
		return at == "?length=1", err
	})
	b.see("region", "State").shows("as of version 1")
	b.see("region", "State").see("button", "Close").click()
	b.gone("button", "version 1")
}

// TestCausesOfAVersion holds that the causes shown are those of the version.
func TestCausesOfAVersion(t *testing.T) {
	_, b := openCounter(t, "")
	b.see("region", "Causes").see("link", regexp.MustCompile(`note\.was_written`)).click()
	b.until("an event of the note", func() (bool, error) {
		title, err := eval[string](b, "document.title")
		return strings.HasPrefix(title, "note.was_written"), err
	})
}

func TestVerify(t *testing.T) {
	s, b := openCounter(t, "")
	var head struct{ Root string }
	s.ops("/audit/merkle-root/counter/"+uid("a")).into(t, &head)
	proof := b.see("region", "Proof")
	proof.see("button", "Verify").click()
	proof.shows("Verified.*3 events.*" + regexp.QuoteMeta(head.Root))
	proof.hides("Not verified")
	proof.shows("In the log")
	proof.see("button", "Save proof")
	proof.see("button", "Save checkpoint")
	s.raise(uid("a"), "5")
	proof.shows("1 event came since")
	proof.see("button", "Verify").click()
	proof.shows("Verified.*4 events")
}

// TestVerifyChangedBytes changes what the server says on its way to the browser.
func TestVerifyChangedBytes(t *testing.T) {
	id := uid("a")
	s := newSite(t, "spec.json")
	s.raise(id, "0.1", "0.2", "4")
	for _, test := range []struct {
		name, path string
		change     func(string) string
		says       string
	}{
		{
			"an event", "*/aggregates/counter/" + id + "/events?*",
			func(body string) string { return strings.Replace(body, `0.2`, `0.7`, 1) }, "Event 2",
		},
		{
			"an event is left out", "*/aggregates/counter/" + id + "/events?*",
			func(body string) string { return body[strings.IndexByte(body, '\n')+1:] }, `\S`,
		},
		{"the root", "*/audit/merkle-root/*", func(body string) string {
			return regexp.MustCompile(`"root":"[0-9a-f]{4}`).ReplaceAllString(body, `"root":"0123`)
		}, `\S`},
		{
			"the checkpoint", "*/audit/checkpoint",
			func(body string) string { return strings.Replace(body, "\n", "1\n", 1) }, `\S`,
		},
		{"a proof of the log", "*/audit/proof/inclusion?*", func(body string) string {
			return regexp.MustCompile(`"index":(\d+)`).ReplaceAllString(body, `"index":1$1`)
		}, `\S`},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := s.open(t, page("aggregates/counter/"+id))
			b.settled("counter/" + id)
			changed := b.intercept(test.path, test.change)
			proof := b.see("region", "Proof")
			proof.see("button", "Verify").click()
			proof.shows("Not verified.*" + test.says)
			if changed() == 0 {
				t.Error("nothing was changed on its way")
			}
			if test.says == "Event 2" {
				proof.see("button", "Show version 2").click()
				b.version(2, 3)
			}
		})
	}
}
