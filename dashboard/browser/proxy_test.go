//go:build !race

package browser_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"

	"j17/internal/base/clock"
	"j17/internal/server"
)

// proxied returns the site as a proxy has it that puts a path in front of all others, and takes it away from what it
// passes on, or leaves it. A request outside of that path fails the test.
func (s *site) proxied(t *testing.T, prefix string, strip bool) *site {
	t.Helper()
	to, err := url.Parse("http://" + s.options.Listen)
	if err != nil {
		t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = "control." + s.address
		if strip {
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, prefix)
			r.Out.URL.RawPath = ""
		}
	}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, prefix+"/") {
			t.Errorf("a request outside of the proxy's path: %s", r.URL)
			w.WriteHeader(http.StatusNotFound)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	front := *s
	front.origin = proxy.URL
	return &front
}

// TestBehindAProxy has the dashboard behind a path: all of its addresses, requests and the stream go through it.
func TestBehindAProxy(t *testing.T) {
	const prefix = "/j17"
	s := startSite(t, server.DevOptions{
		Options: server.Options{
			Dir: t.TempDir(), Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Version: "test",
			Clock:  clock.System{},
			Logger: slog.New(slog.DiscardHandler), DrainTime: time.Second, PublicPath: prefix,
		},
		SpecFile: filepath.Join("testdata", "spec.json"),
	})
	s.raise(uid("a"), "1", "2")
	for name, strip := range map[string]bool{"taken away": true, "left": false} {
		t.Run(name, func(t *testing.T) {
			b := s.proxied(t, prefix, strip).openAsNobody(t, prefix+"/ui/")
			b.heading("Sign in to j17")
			b.signIn(s.ready.Operator.Email, s.ready.Operator.Password)
			b.settled("Overview")
			b.arrive(prefix + page("overview"))
			navigation := b.see("navigation", "Environment")
			for _, name := range []string{"Aggregates", "Needs attention", "Spec", "API keys", "Usage", "Events"} {
				navigation.see("link", name).click()
				b.settled(name)
			}
			b.arrive(prefix + page("events"))
			b.see("status", "Stream").shows("Live")
			s.raise(uid(name), "3")
			b.see("table", "Events").shows(uid(name))
			b.load(prefix + page("aggregates/counter/"+uid("a")+"?length=1"))
			b.settled("counter/" + uid("a"))
			b.see("button", "Verify").click()
			b.see("region", "Proof").shows("Verified")
			cookies := must(b, network.GetCookies, network.GetCookiesParams{}).Cookies
			if len(cookies) != 1 || cookies[0].Path != "/" {
				t.Errorf("the cookies are %v", cookies)
			}
		})
	}
}
