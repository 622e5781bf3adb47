package httpapi_test

import (
	"regexp"
	"strings"
	"testing"

	"j17/dashboard"
	"j17/internal/edge/httpapi"
)

// newScreen is a plane with the dashboard.
func newScreen(tb testing.TB, public string) *plane {
	tb.Helper()
	files, err := dashboard.Open()
	if err != nil {
		tb.Fatal(err)
	}
	return newPlane(tb, func(o *httpapi.Options) { o.Dashboard, o.PublicPath = files, public })
}

func TestPageOfTheDashboard(t *testing.T) {
	p := newScreen(t, "")
	page := p.browse(t, "GET", "/ui/", "", "")
	policy := page.header.Get("Content-Security-Policy")
	_, nonce, _ := strings.Cut(policy, "script-src 'self' 'nonce-")
	nonce, _, _ = strings.Cut(nonce, "'")
	want := "default-src 'none'; script-src 'self' 'nonce-" + nonce + "'; style-src 'self' 'nonce-" + nonce + "'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
		"form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html"
	if page.status != 200 || policy != want || len(nonce) < 20 {
		t.Errorf("%d %s", page.status, policy)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"Referrer-Policy":            "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Set-Cookie": "",
	} {
		if got := page.header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, tag := range regexp.MustCompile(`<script[^>]*>|<link rel="stylesheet"[^>]*>`).FindAllString(page.body, -1) {
		if !strings.Contains(tag, `nonce="`+nonce+`"`) {
			t.Errorf("%s has no nonce", tag)
		}
	}
	if regexp.MustCompile(`(?:src|href)="(?:https?:)?//`).MatchString(page.body) ||
		regexp.MustCompile(`<script[^>]*>[^<]`).MatchString(page.body) {
		t.Errorf("an inline script or an address elsewhere: %s", page.body)
	}
	if again := p.browse(t, "GET", "/ui/", "", ""); again.header.Get("Content-Security-Policy") == policy {
		t.Error("two pages have the same nonce")
	}
	if document := p.browse(t, "GET", "/_openapi.json", "", ""); document.status != 200 ||
		strings.Contains(document.body, `"/ui`) {
		t.Errorf("the document of the API has the dashboard's files: %d", document.status)
	}
	// Every page has one address, and says itself where there is nothing.
	for _, path := range []string{"/ui/login?next=/ui/account", "/ui/i/app/prod/aggregates/counter/a.b?length=7", "/ui/nothing", "/ui/i/app/prod/aggregates/index.js"} {
		if got := p.browse(t, "GET", path, "", ""); got.status != 200 ||
			got.header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %d %v", path, got.status, got.header)
		}
	}
}

func TestFilesOfTheDashboard(t *testing.T) {
	p := newScreen(t, "")
	page := p.browse(t, "GET", "/ui/", "", "")
	named := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page.body, -1)
	if len(named) < 3 {
		t.Fatalf("script, style and icon: %v", named)
	}
	for _, m := range named {
		path := m[1]
		plain := p.browse(t, "GET", path, "", "", "Accept-Encoding: ")
		if plain.status != 200 || plain.header.Get("Content-Encoding") != "" || plain.header.Get(
			"X-Content-Type-Options",
		) != "nosniff" || strings.HasPrefix(plain.header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %v", path, plain.status, plain.header)
		}
		if strings.Contains(path, "/assets/") != strings.Contains(plain.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %v", path, plain.header)
		}
		for accepted, want := range map[string]string{
			"gzip": "gzip", "gzip, deflate, br, zstd": "zstd", "br": "", "gzip;q=0": "", "zstd;q=0, gzip;q=0.5": "gzip",
		} {
			got := p.browse(t, "GET", path, "", "", "Accept-Encoding: "+accepted)
			body, err := unpacked(got)
			if err != nil || got.header.Get("Content-Encoding") != want || body != plain.body {
				t.Errorf("%s for %q: %v, %v", path, accepted, got.header, err)
			}
			if want != "" && strings.Contains(path, "/assets/") && len(got.body) >= len(plain.body) {
				t.Errorf("%s as %s: %d bytes of %d", path, want, len(got.body), len(plain.body))
			}
		}
		if head := p.browse(t, "HEAD", path, "", ""); head.status != 200 ||
			head.body != "" && head.header.Get("Content-Length") == "" {
			t.Errorf("HEAD %s: %d", path, head.status)
		}
	}
	for _, path := range []string{
		"/ui/assets/none-0000.js", "/ui/assets/", "/ui/robots.txt", "/ui/index.html", "/ui/assets/../index.html",
	} {
		if got := p.browse(t, "GET", path, "", ""); got.status != 404 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
}

func TestWhereTheDashboardIs(t *testing.T) {
	p := newScreen(t, "")
	if got := p.browse(t, "GET", "/ui", "", ""); got.status != 307 || got.header.Get("Location") != "/ui/" {
		t.Errorf("/ui: %d %v", got.status, got.header)
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		if got := p.browse(t, method, "/ui/", "", ""); got.status != 405 {
			t.Errorf("%s: %d", method, got.status)
		}
	}
	for _, host := range []string{"app.j17.example", "app-test.j17.example", "j17.example"} {
		for _, path := range []string{"/ui", "/ui/", "/ui/login"} {
			if got := p.browse(t, "GET", path, "", "", "Host: "+host); got.status != 401 && got.status != 404 {
				t.Errorf("%s%s: %d %s", host, path, got.status, got.body)
			}
		}
	}
	// Browsers are led to it from the host itself.
	if got := p.browse(t, "GET", "/", "", "", "Accept: text/html,application/xhtml+xml,*/*;q=0.8"); got.status != 303 || got.header.Get("Location") != "/ui/" {
		t.Errorf("a browser: %d %v", got.status, got.header)
	}
	for _, accept := range []string{"", "*/*", "application/json"} {
		if got := p.browse(t, "GET", "/", "", "", "Accept: "+accept); got.status != 200 ||
			!strings.Contains(got.body, `"service":"j17"`) {
			t.Errorf("%q: %d %s", accept, got.status, got.body)
		}
	}
	if got := p.browse(t, "GET", "/", "", "", "Accept: text/html", "Host: app.j17.example"); got.status != 200 {
		t.Errorf("a browser at an instance: %d", got.status)
	}

	// Without it there is nothing of it.
	p = newPlane(t, nil)
	for _, path := range []string{"/ui", "/ui/", "/ui/assets/x.js"} {
		if got := p.browse(t, "GET", path, "", ""); got.status != 404 {
			t.Errorf("left out, %s: %d", path, got.status)
		}
	}
	if got := p.browse(t, "GET", "/", "", "", "Accept: text/html"); got.status != 200 {
		t.Errorf("left out, a browser: %d", got.status)
	}
}

// TestPublicPath asks as a proxy does that has the server below a path: one that takes the path away, and one that
// leaves it.
func TestPublicPath(t *testing.T) {
	p := newScreen(t, "/tools/j17")
	for _, prefix := range []string{"", "/tools/j17"} {
		page := p.browse(t, "GET", prefix+"/ui/login", "", "")
		for _, part := range []string{
			`data-base="/tools/j17/ui/"`, `data-api="/tools/j17/api/"`, `src="/tools/j17/ui/assets/`,
		} {
			if page.status != 200 || !strings.Contains(page.body, part) {
				t.Errorf("%s: %d no %s in %s", prefix, page.status, part, page.body)
			}
		}
		if strings.Contains(page.body, `"/ui/`) || strings.Contains(page.body, `"./`) {
			t.Errorf("an address without the path: %s", page.body)
		}
		for path, status := range map[string]int{"/ui": 307, "/": 303} {
			if got := p.browse(t, "GET", prefix+path, "", "", "Accept: text/html"); got.status != status ||
				got.header.Get("Location") != "/tools/j17/ui/" {
				t.Errorf("%s%s: %d %v", prefix, path, got.status, got.header)
			}
		}
		in := p.browse(t, "POST", prefix+"/api/sessions", `{"email":"admin@example.com","password":"`+testPassword+`"}`, "", ofPage)
		c := in.cookie(t)
		if in.status != 201 || c.Path != "/" ||
			p.browse(t, "GET", prefix+"/api/me", "", c.Name+"="+c.Value).status != 200 {
			t.Errorf("%s: %d %s", prefix, in.status, in.body)
		}
		if got := p.browse(t, "POST", prefix+"/api/me/login_codes", "", "", "Authorization: Bearer "+p.admin); !strings.HasPrefix(got.member(t, "link"), "http://control.j17.example/tools/j17/ui/#login=") {
			t.Error(got.body)
		}
		if got := p.browse(t, "GET", prefix+"/internal/instances", "", ""); got.status != 404 {
			t.Errorf("what nodes ask for: %d", got.status)
		}
	}
	asset := regexp.MustCompile(`src="(/tools/j17/ui/assets/[^"]+)"`).FindStringSubmatch(
		p.browse(t, "GET", "/ui/", "", "").body,
	)
	if asset == nil || p.browse(t, "GET", asset[1], "", "").status != 200 ||
		p.browse(t, "GET", strings.TrimPrefix(asset[1], "/tools/j17"), "", "").status != 200 {
		t.Errorf("the script: %v", asset)
	}
	if got := p.browse(t, "GET", "/tools/j17x/ui/", "", ""); got.status != 404 {
		t.Errorf("another path: %d", got.status)
	}
}

// TestSetupPage checks that the page has the dashboard's style sheets where there is one, and works without.
func TestSetupPage(t *testing.T) {
	for _, c := range []struct {
		p    *plane
		want []string
		not  string
	}{
		{newScreen(t, ""), []string{`data-dashboard="ui/"`, `<link rel="stylesheet" href="ui/assets/`}, "{"},
		{newPlane(t, nil), []string{`data-dashboard=""`}, "<link"},
	} {
		page := c.p.browse(t, "GET", "/setup", "", "")
		head, _, _ := strings.Cut(page.body, "<style>")
		for _, part := range c.want {
			if !strings.Contains(head, part) {
				t.Errorf("no %s in %s", part, head)
			}
		}
		policy := page.header.Get("Content-Security-Policy")
		if strings.Contains(head, c.not) || strings.Contains(policy, "unsafe") ||
			!strings.Contains(policy, "script-src 'sha256-") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s\n%s", policy, head)
		}
		for _, m := range regexp.MustCompile(`href="(ui/[^"]+)"`).FindAllStringSubmatch(head, -1) {
			if got := c.p.browse(t, "GET", "/"+m[1], "", ""); got.status != 200 {
				t.Errorf("%s: %d", m[1], got.status)
			}
		}
	}
}
