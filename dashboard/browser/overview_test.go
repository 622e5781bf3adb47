//go:build !race

package browser_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"j17"
)

// TestFirstRun goes the way of somebody who has just started a server: no spec, then no events, then the first one.
func TestFirstRun(t *testing.T) {
	s := newSite(t, "")
	b := s.open(t, page("overview"))
	b.settled("Overview")
	b.see("link", "Deploy a spec").click()
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	b.load(page("overview"))
	b.settled("Overview")
	b.see("link", regexp.MustCompile("^Begin with ")).click()
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
}

func TestExampleRequest(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("overview"))
	b.settled("Overview")
	text, err := b.see("region", "Example request").text()
	if err != nil {
		t.Fatal(err)
	}
	_, command, ok := strings.Cut(text, "curl ")
	if !ok || !strings.Contains(command, `"Authorization: Bearer $J17_KEY"`) {
		t.Fatalf("no command that works as it stands: %s", text)
	}

	// What curl would send.
	address, err := url.Parse(strings.Fields(command)[0])
	if err != nil {
		t.Fatal(err)
	}
	body := regexp.MustCompile(`(?s)-d '(.*)'`).FindStringSubmatch(command)
	if body == nil || address.Host != "app."+s.address {
		t.Fatalf("no body, or another host: %s", command)
	}
	host, _, _ := strings.Cut(address.Host, ".")
	r := s.call("POST", host, address.RequestURI(), s.ready.Keys[j17.Prod].Write, []byte(body[1]))
	if r.status != http.StatusCreated {
		t.Fatalf("the example: %d %s", r.status, r.body)
	}
	b.gone("region", "Example request")
	b.see("table", "Latest events").shows(address.Path[strings.LastIndex(address.Path, "/")+1:])
}

func TestOverview(t *testing.T) {
	s := newSite(t, "spec.json")
	s.raise(uid("a"), "1", "2")
	doomed(s, 2)
	b := s.open(t, page("overview"))
	b.settled("Overview")
	b.see("region", "Needs attention").see("link", "2 scheduled events")
	b.see("region", "Log of events").shows(`Position\s+\d+-\d+`)
	b.see("region", "What runs").shows("version 1")
	latest := b.see("table", "Latest events")
	latest.shows("was_raised")

	// It follows what happens.
	b.see("status", "Stream").shows("Live")
	s.write("user/"+uid("new"), "was_created", `{"name": "N"}`)
	latest.shows("was_created")
	latest.see("link", regexp.MustCompile("was_created")).click()
	b.settled("user.was_created " + js[string](b, "location.pathname.split('/').pop()"))

	b.load(page("overview"))
	b.see("region", "Needs attention").see("link", "2 scheduled events").click()
	b.settled("Needs attention")
	b.see("table", "Needs attention").see("button", "Retry all 2")
}
