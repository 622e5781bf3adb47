//go:build !race

package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestOtherSites holds that a page of another site makes nobody who is signed in do anything, and shows the dashboard
// in no frame.
func TestOtherSites(t *testing.T) {
	s := newSite(t, "spec.json")
	keys := s.origin + "/api/instances/" + s.ready.Instance.ID + "/keys"
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>Another site</title><h1>Another site</h1>
			<form method="post" action="%s" enctype="text/plain"><input name='{"name":"forged","scope":"write","environment":"prod","x":"' value='"}'><button>Win a prize</button></form>
			<a href="%s">To the dashboard</a>%s`,
			keys, s.origin+page("keys"), map[string]string{
				"/framed": `<iframe title="Framed" src="` + s.origin + page("overview") + `"></iframe>`,
			}[r.URL.Path])
	}))
	defer other.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(other.URL, "http://"), ":")
	for _, host := range []string{"evil.localhost", "app." + strings.Split(s.address, ":")[0]} {
		t.Run(host, func(t *testing.T) {
			b := s.open(t, page("keys"))
			b.settled("API keys")
			b.behaved()
			b.abroad = true
			b.allow(`CORS|40[0135]|frame-ancestors|ERR_BLOCKED|ERR_FAILED|favicon|Access-Control|Framing`)
			visit := func(path string) {
				t.Helper()
				if err := chromedp.Do(b.ctx, chromedp.Navigate("http://"+host+":"+port+path)); err != nil {
					t.Fatal(err)
				}
				b.heading("Another site")
			}

			// By a script, in each way that asks nobody first, and in those that do.
			visit("/")
			for _, init := range []string{
				`{method: 'POST', mode: 'no-cors', credentials: 'include', headers: {'Content-Type': 'text/plain'}, body: BODY}`,
				`{method: 'POST', credentials: 'include', headers: {'Content-Type': 'application/json'}, body: BODY}`,
				`{method: 'GET', mode: 'no-cors', credentials: 'include'}`,
				`{method: 'GET', credentials: 'include'}`,
			} {
				init = strings.Replace(init, "BODY", quoted(`{"name":"forged","scope":"write","environment":"prod"}`), 1)
				got := js[string](b, fmt.Sprintf("fetch(%s, %s).then((r) => r.text()).catch((e) => '')", quoted(keys), init))
				if got != "" {
					t.Errorf("another site reads %.200s", got)
				}
			}

			// By a form, which a person sends.
			b.see("button", "Win a prize").click()
			b.until("an answer", func() (bool, error) {
				at, err := eval[string](b, "location.href")
				return at == keys, err
			})
			if names := keyNames(s); slices.Contains(names, "forged") {
				t.Errorf("another site has made a key: %q", names)
			}

			// In a frame.
			visit("/framed")
			b.until("the frame to be refused", func() (bool, error) {
				b.mu.Lock()
				defer b.mu.Unlock()
				return slices.ContainsFunc(b.errors, regexp.MustCompile("frame-ancestors|Framing").MatchString), nil
			})

			// A link is no harm, and works.
			b.see("link", "To the dashboard").click()
			b.settled("API keys")
			b.see("table", "API keys").hides("forged")
		})
	}
}

// TestRightsChange holds that what a person may do changes with their next request.
func TestRightsChange(t *testing.T) {
	s := newSite(t, "spec.json")
	who := s.operator("instance_admin")
	b := s.openAs(t, who, page("keys"))
	b.allow("40[0134]")
	b.settled("API keys")
	b.see("button", "Create key").click()
	b.see("dialog", "Create key").see("textbox", "Name").fill("too late")
	var list struct {
		Operators []struct{ ID, Email string }
	}
	s.control("GET", "/api/operators?limit=1000", nil).into(t, &list)
	for _, o := range list.Operators {
		if o.Email == who.Email {
			s.control("PATCH", "/api/operators/"+o.ID, map[string]any{"role": "auditor"})
		}
	}
	b.see("dialog", "Create key").see("button", "Create").click()
	b.until("a refusal, or the question for the password", func() (bool, error) {
		refused, err := b.all("alert", nil, nil)
		if err != nil {
			return false, err
		}
		again, err := b.all("dialog", "Your session has ended", nil)
		return len(refused)+len(again) > 0, err
	})
	if names := keyNames(s); slices.Contains(names, "too late") {
		t.Errorf("somebody without the right has made a key: %q", names)
	}
	b.load(page("keys"))
	b.until("the page, or the login page", func() (bool, error) {
		return eval[bool](b, "!!document.querySelector('h1') && !document.querySelector('[aria-busy=true]')")
	})
	if b.has("button", "Create key") {
		t.Error("the page still offers what is refused")
	}
}
