//go:build !race

package browser_test

import (
	"regexp"
	"strings"
	"testing"
)

// unreachable are the errors of requests to a server that is not there.
const unreachable = `ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|ERR_NETWORK|ERR_FAILED`

// TestServerGoneInADialog stops the server in the middle of each dialog. Nothing is half done and nothing that was
// typed is lost: once the server is there again, the same button does it, once.
func TestServerGoneInADialog(t *testing.T) {
	s := newSite(t, "spec.json")
	s.control("POST", "/api/instances/"+s.ready.Instance.ID+"/keys", map[string]string{
		"name": "victim", "scope": "read", "environment": "prod",
	})
	s.control("POST", "/api/instances/"+s.ready.Instance.ID+"/keys", map[string]string{
		"name": "turned", "scope": "read", "environment": "prod",
	})
	doomed(s, 2)
	s.options.SpecFile = "" // a server that begins again leaves what is deployed
	b := s.open(t, page("keys"))
	b.allow(unreachable)
	b.settled("API keys")
	for _, test := range []struct {
		name, path, heading string
		// open opens the dialog and types into it.
		open func()
		// kept looks for what was typed.
		kept   func() bool
		button string
		// done reports how often it was done.
		done func() int
	}{
		{
			"Create key", page("keys"), "API keys", func() {
				b.see("button", "Create key").click()
				b.see("dialog", "Create key").see("textbox", "Name").fill("once only")
			},
			func() bool { return b.see("textbox", "Name").value() == "once only" }, "Create",
			func() int { return count(keyNames(s), "once only") },
		},
		{
			"Rotate turned", page("keys"), "API keys", func() { b.see("button", "Rotate turned").click() },
			func() bool { return true }, "Rotate",
			func() int {
				r := s.control("GET", "/api/instances/"+s.ready.Instance.ID+"/keys?limit=1000", nil)
				return len(regexp.MustCompile(`"turned"`).FindAll(r.body, -1)) - 1
			},
		},
		{
			"Revoke victim", page("keys"), "API keys", func() { b.see("button", "Revoke victim").click() },
			func() bool { return true }, "Revoke",
			func() int { return 1 - count(keyNames(s), "victim") },
		},
		{
			"Deploy to prod", page("spec"), "Spec", func() {
				b.see("textbox", "Spec").shows("aggregate_types")
				b.see("textbox", "Spec").fill(edited(t, handler, changed))
				b.enabled("Deploy").click()
				b.see("dialog", "Deploy to prod").see("textbox", "Note").fill("a note")
				b.see("textbox", "Type app/prod to confirm").fill("app/prod")
			},
			func() bool { return b.see("textbox", "Note").value() == "a note" }, "Deploy",
			func() int { return versions(s, "prod") - 1 },
		},
		{
			"Roll back to version 1", page("spec/history"), "Spec history", func() {
				b.see("button", "Roll back to 1").click()
				b.see("textbox", "Note").fill("back again")
				b.see("textbox", "Type app/prod to confirm").fill("app/prod")
				b.enabledIn(b.see("dialog", "Roll back to version 1"), "Roll back")
			},
			func() bool { return b.see("textbox", "Note").value() == "back again" }, "Roll back",
			func() int { return versions(s, "prod") - 2 },
		},
		{
			"Retry all of this cause?", page("attention"), "Needs attention", func() {
				b.see("button", "Retry all 2").click()
				b.see("dialog", "Retry all of this cause?").shows("2 scheduled events")
			},
			func() bool { return true }, "Retry 2",
			func() int { return 1 - len(givenUp(s))/2 },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.tb = t
			b.load(test.path)
			b.settled(test.heading)
			test.open()
			dialog := b.see("dialog", test.name)
			s.stop()
			dialog.see("button", test.button).click()
			dialog.see("alert", nil).shows("cannot be reached")
			if !test.kept() {
				t.Error("what was typed is lost")
			}
			s.begin()
			if n := test.done(); n != 0 {
				t.Errorf("it was done %d times by a server that was not there", n)
			}
			dialog.see("button", test.button).click()
			b.until("the dialog to go on", func() (bool, error) {
				all, err := b.all("button", test.button, dialog)
				return len(all) == 0, err
			})
			if b.has("textbox", "New key") {
				b.takeKey()
			}
			b.gone("dialog", nil)
			if n := test.done(); n != 1 {
				t.Errorf("it was done %d times", n)
			}
		})
	}
	b.tb = t
}

// TestServerGoneWhenAsked holds that the question for the password outlives a server that is not there, with what it
// was asked for.
func TestServerGoneWhenAsked(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("keys"))
	b.allow(unreachable + "|401")
	b.settled("API keys")
	b.see("button", "Create key").click()
	b.see("dialog", "Create key").see("textbox", "Name").fill("twice delayed")
	endSessions(s)
	b.see("dialog", "Create key").see("button", "Create").click()
	again := b.see("dialog", "Your session has ended")
	again.see("textbox", "Password").fill(s.ready.Operator.Password)
	s.stop()
	again.see("button", "Sign in").click()
	again.see("alert", nil).shows("cannot be reached")
	s.begin()
	again.see("button", "Sign in").click()
	b.gone("dialog", "Your session has ended")
	b.takeKey()
	if n := count(keyNames(s), "twice delayed"); n != 1 {
		t.Errorf("%d keys were made", n)
	}
}

// TestServerGoneAtLogin holds that the login page says so and keeps what was typed.
func TestServerGoneAtLogin(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.openAsNobody(t, "/ui/login")
	b.allow(unreachable)
	b.heading("Sign in to j17")
	s.stop()
	b.signIn(s.ready.Operator.Email, s.ready.Operator.Password)
	b.see("alert", nil).shows("cannot be reached")
	s.begin()
	b.see("button", "Sign in").click()
	b.settled("Overview")
}

// TestServerGoneUnderAList holds that the list of events comes back by itself and has missed nothing.
func TestServerGoneUnderAList(t *testing.T) {
	s := newSite(t, "spec.json")
	s.raise(uid("before"), "1")
	b := s.open(t, page("events?type=counter"))
	b.allow(unreachable)
	b.settled("Events")
	b.see("status", "Stream").shows("Live")
	s.stop()
	b.see("status", "Stream").shows("Reconnecting")
	s.begin()
	for _, name := range []string{"x", "y", "z"} {
		s.raise(uid(name), "1")
	}
	b.see("status", "Stream").shows("Live")
	table := b.see("table", "Events")
	for _, name := range []string{"x", "y", "z", "before"} {
		table.shows(uid(name))
	}
	text, err := table.text()
	if err != nil || strings.Count(text, uid("x")) != strings.Count(text, uid("before")) {
		t.Errorf("an event is shown twice (%v): %s", err, text)
	}

	// A page that cannot be read says so, the rest of the screen works, and it is tried again.
	s.stop()
	b.see("status", "Stream").shows("Reconnecting")
	b.see("navigation", "Environment").see("link", "Aggregates").click()
	b.heading("Aggregates")
	b.see("alert", nil).shows("cannot be loaded")
	b.see("button", "Try again").click()
	b.see("alert", nil).shows("cannot be loaded")
	s.begin()
	b.see("button", "Try again").click()
	b.see("table", "Aggregate types").shows("counter")
}
