//go:build !race

package browser_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// endSessions ends all sessions of the first operator on the server.
func endSessions(s *site) {
	s.tb.Helper()
	var list struct{ Sessions []struct{ ID string } }
	s.control("GET", "/api/me/sessions", nil).into(s.tb, &list)
	if len(list.Sessions) == 0 {
		s.tb.Fatal("nobody has a session")
	}
	for _, one := range list.Sessions {
		s.control("DELETE", "/api/me/sessions/"+one.ID, nil)
	}
}

// keyNames are the names of all keys that count.
func keyNames(s *site) []string {
	s.tb.Helper()
	var list struct {
		Keys []struct{ Name, Status string }
	}
	s.control("GET", "/api/instances/"+s.ready.Instance.ID+"/keys?limit=1000", nil).into(s.tb, &list)
	var names []string
	for _, k := range list.Keys {
		if k.Status != "revoked" {
			names = append(names, k.Name)
		}
	}
	return names
}

func count(all []string, one string) (n int) {
	for _, a := range all {
		if a == one {
			n++
		}
	}
	return n
}

// TestSessionEndsInADialog holds that whoever is signed out in the middle of something is asked for the password, and
// that it then goes on.
func TestSessionEndsInADialog(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("keys"))
	b.allow("40[013]")
	b.settled("API keys")
	b.see("button", "Create key").click()
	dialog := b.see("dialog", "Create key")
	dialog.see("textbox", "Name").fill("made in between")
	dialog.see("radio", "Write").click()
	endSessions(s)
	dialog.see("button", "Create").click()

	again := b.see("dialog", "Your session has ended")
	again.see("textbox", "Password").fill("not the password")
	again.see("button", "Sign in").click()
	again.see("alert", nil).shows(`\S`)
	if n := count(keyNames(s), "made in between"); n != 0 {
		t.Errorf("%d keys were made by nobody", n)
	}
	again.see("textbox", "Password").fill(s.ready.Operator.Password)
	b.press("Enter")
	b.gone("dialog", "Your session has ended")
	b.takeKey()
	if n := count(keyNames(s), "made in between"); n != 1 {
		t.Errorf("%d keys were made", n)
	}

	// Many requests at once are one question.
	endSessions(s)
	b.see("link", "Usage").click()
	again = b.see("dialog", "Your session has ended")
	again.see("textbox", "Password").fill(s.ready.Operator.Password)
	again.see("button", "Sign in").click()
	b.gone("dialog", nil)
	b.settled("Usage")

	// Who leaves it is at the login page, and back where they were afterwards.
	endSessions(s)
	b.see("link", "API keys").click()
	b.see("dialog", "Your session has ended").see("button", "Leave").click()
	b.heading("Sign in to j17")
	b.gone("dialog", nil)
	b.signIn(s.ready.Operator.Email, s.ready.Operator.Password)
	b.settled("API keys")
}

// TestSessionEndsWhileTyping holds that a draft and what is live survive the end of a session.
func TestSessionEndsWhileTyping(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("spec"))
	b.allow("401")
	b.settled("Spec")
	b.see("textbox", "Spec").shows("aggregate_types")
	endSessions(s)
	b.see("textbox", "Spec").fill(edited(t, handler, changed))
	again := b.see("dialog", "Your session has ended")
	again.see("textbox", "Password").fill(s.ready.Operator.Password)
	again.see("button", "Sign in").click()
	b.gone("dialog", nil)
	b.see("textbox", "Spec").shows(`"v"`)
	b.enabled("Deploy")

	b.load(page("events"))
	b.settled("Events")
	b.see("status", "Stream").shows("Live")
	endSessions(s)
	b.see("textbox", "Actor").fill("user:" + user)
	b.press("Enter")
	again = b.see("dialog", "Your session has ended")
	again.see("textbox", "Password").fill(s.ready.Operator.Password)
	again.see("button", "Sign in").click()
	b.gone("dialog", nil)
	b.see("status", "Stream").shows("Live")
	s.raise(uid("later"), "1")
	b.see("table", "Events").shows(uid("later"))
}

// TestCookie holds that the cookie is out of the reach of scripts, and that it does not outlive signing out.
func TestCookie(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("overview"))
	b.allow("401")
	b.settled("Overview")
	cookies := b.cookies()
	if len(cookies) != 1 || !cookies[0].HTTPOnly || cookies[0].SameSite != "Strict" || cookies[0].Path != "/" ||
		strings.HasPrefix(cookies[0].Domain, ".") {
		raw, _ := json.Marshal(cookies) //nolint:errchkjson // for the message
		t.Fatalf("%s", raw)
	}
	value := cookies[0].Value
	kept := js[string](b, "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, history.state, location.href]) + document.documentElement.outerHTML")
	if strings.Contains(kept, value) || regexp.MustCompile(`eyJ[\w-]+\.`).MatchString(kept) {
		t.Error("a script can read a credential")
	}
	ask := func() int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.options.Listen+"/api/me", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = strings.TrimPrefix(s.origin, "http://")
		r.Header.Set("Cookie", cookies[0].Name+"="+value)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	if status := ask(); status != http.StatusOK {
		t.Fatalf("the cookie opens nothing: %d", status)
	}
	b.see("button", "Account").click()
	b.see("menuitem", "Sign out").click()
	b.heading("Sign in to j17")
	if status := ask(); status != http.StatusUnauthorized {
		t.Errorf("the cookie opens doors after signing out: %d", status)
	}
	js[any](b, "history.back()")
	b.heading("Sign in to j17")
}
