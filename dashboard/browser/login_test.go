//go:build !race

package browser_test

import (
	"slices"
	"strings"
	"testing"
)

func TestLogin(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.openAsNobody(t, "/ui/")
	b.allow(`40[013]`)
	b.heading("Sign in to j17")
	b.signIn(s.ready.Operator.Email, "not the password")
	b.see("alert", nil).shows(`\S`)
	if at := b.path(); !strings.HasPrefix(at, "/ui/login") {
		t.Fatalf("at %s with a wrong password", at)
	}
	b.signIn(s.ready.Operator.Email, s.ready.Operator.Password)
	b.heading("Overview")
	b.arrive(page("overview"))
	names := b.see("navigation", "Environment").names("link")
	for _, want := range []string{"Overview", "Events", "Aggregates", "Needs attention", "Spec", "API keys", "Usage"} {
		if !slices.Contains(names, want) {
			t.Errorf("the navigation has no %s: %q", want, names)
		}
	}

	b.see("button", "Account").click()
	b.see("menuitem", "Sign out").click()
	b.heading("Sign in to j17")
	b.load(page("events"))
	b.heading("Sign in to j17")
	b.signIn(s.ready.Operator.Email, s.ready.Operator.Password)
	b.heading("Events")
	b.arrive(page("events"))
}

// TestNext holds that nobody is led to another site by signing in.
func TestNext(t *testing.T) {
	s := newSite(t, "spec.json")
	strangers := []string{
		"https://evil.example/ui/", "//evil.example/ui/", `/\evil.example/ui/`, "/ui/../../evil", "javascript:alert(1)",
		"/ui//evil.example", "/api/me", "/ui/login?next=/ui/",
		"/ui/\t/evil.example", "http://control.localhost:1/ui/", "/ui/%2e%2e/%2e%2e/api/me",
	}
	b := s.openAsNobody(t, "/ui/login?next="+escaped(strangers[0]))
	b.signIn(s.ready.Operator.Email, s.ready.Operator.Password)
	for i, next := range strangers {
		if i > 0 { // signed in already, which leads on at once
			b.load("/ui/login?next=" + escaped(next))
		}
		b.until("a page of the dashboard after "+next, func() (bool, error) {
			at, err := eval[string](b, "location.href")
			return strings.HasPrefix(at, s.origin+"/ui/") && !strings.Contains(at, "/login"), err
		})
		b.see("button", "Account")
		b.truthy("!document.querySelector('[aria-busy=true]')")
		if at := b.path(); at != page("overview") && !b.has("heading", "Nothing here") {
			t.Errorf("%s leads to %s", next, at)
		}
	}
	b = s.openAsNobody(t, "/ui/login?next="+escaped(page("events?type=counter")))
	b.signIn(s.ready.Operator.Email, s.ready.Operator.Password)
	b.heading("Events")
	b.arrive(page("events?type=counter"))
}

// TestLoginLink holds that a link signs in once, and that its code stays nowhere.
func TestLoginLink(t *testing.T) {
	s := newSite(t, "spec.json")
	link, err := s.dev.LoginLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := strings.TrimPrefix(link, s.origin)
	_, code, _ := strings.Cut(path, "=")
	b := s.openAsNobody(t, path)
	b.heading("Overview")
	kept := js[string](b, "JSON.stringify([location.href, document.cookie, {...localStorage}, {...sessionStorage}, history.state])")
	if strings.Contains(kept, code) || strings.Contains(kept, "j17_session") {
		t.Errorf("a credential is in %s", kept)
	}
	again := s.openAsNobody(t, path)
	again.allow(`40[013]`)
	again.heading("Sign in to j17")
	again.see("alert", nil).shows(`\S`)
}
