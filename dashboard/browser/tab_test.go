//go:build !race

package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"j17/internal/server"
)

// patience is how long anything may take to show. A test that passes never waits for it.
const patience = 20 * time.Second

// tab is a tab of the browser with cookies and storage of its own.
type tab struct {
	tb  testing.TB
	ctx context.Context
	s   *site
	mu  sync.Mutex
	// errors are those on the console, violations of the policy among them; foreign are the requests to somewhere else
	// than the server.
	errors, foreign []string
	// reads has the status of each GET of the API.
	reads map[string]int64
	asked map[network.RequestID]string
	// abroad is set by a test that visits another site.
	abroad bool
	// allowed are the errors that a test provokes.
	allowed []*regexp.Regexp
}

// open opens a page for the first operator, who is signed in by a link.
func (s *site) open(tb testing.TB, path string) *tab {
	tb.Helper()
	b := s.openAsNobody(tb, "")
	link, err := s.dev.LoginLink(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	_, code, _ := strings.Cut(link, "#")
	b.load(path + "#" + code)
	b.see("button", "Account") // who is signed in has it
	return b
}

// openAs opens a page for an operator.
func (s *site) openAs(tb testing.TB, who server.Login, path string) *tab {
	tb.Helper()
	b := s.openAsNobody(tb, "/ui/login")
	b.signIn(who.Email, who.Password)
	b.gone("heading", "Sign in to j17")
	b.load(path)
	return b
}

// openAsNobody opens a page, or none where path is "". When the test ends, the tab must have behaved.
func (s *site) openAsNobody(tb testing.TB, path string) *tab {
	tb.Helper()
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{tb: tb, ctx: ctx, s: s, reads: map[string]int64{}, asked: map[network.RequestID]string{}}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			b.picture()
		}
		end()
		b.behaved()
	})
	must(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.media("light")
	if path != "" {
		b.load(path)
	}
	return b
}

// must runs a command of the DevTools protocol.
func must[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.tb.Helper()
	r, err := ask(b, command, params)
	if err != nil {
		b.fail("%s: %v", command.Method, err)
	}
	return r
}

// ask runs a command that may fail while a page changes.
func ask[P, R any](b *tab, command cdp.Command[P, R], params P) (R, error) {
	ctx, end := context.WithTimeout(b.ctx, patience)
	defer end()
	return chromedp.Call(ctx, command, params)
}

// listen takes down what happens in the tab. It is called for one event after the other.
func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
		b.errors = append(b.errors, text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "assert" {
			text := "console:"
			for _, a := range e.Args {
				text += " " + string(a.Value) + a.Description
			}
			b.errors = append(b.errors, text)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" {
			b.errors = append(b.errors, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		switch {
		case err != nil:
			b.foreign = append(b.foreign, e.Request.URL)
		case u.Scheme == "data" || u.Scheme == "blob" || u.Scheme == "about":
		case b.abroad:
		case u.Scheme+"://"+u.Host != b.s.origin:
			b.foreign = append(b.foreign, e.Request.URL)
		case e.Request.Method == "GET" && strings.HasPrefix(u.Path, "/api/"):
			b.asked[e.RequestID] = u.RequestURI()
		}
	case *network.EventWebSocketCreated:
		b.foreign = append(b.foreign, e.URL)
	case *network.EventResponseReceived:
		if path, ok := b.asked[e.RequestID]; ok && !strings.Contains(e.Response.MimeType, "event-stream") {
			b.reads[path] = e.Response.Status
		}
	}
}

// allow makes errors that match a pattern errors that this test provokes.
func (b *tab) allow(pattern string) { b.allowed = append(b.allowed, regexp.MustCompile(pattern)) }

// behaved fails the test where there was an error on the console or a request to elsewhere.
func (b *tab) behaved() {
	b.tb.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.errors {
		provoked := false
		for _, a := range b.allowed {
			provoked = provoked || a.MatchString(e)
		}
		if !provoked {
			b.tb.Errorf("an error on the console: %s", e)
		}
	}
	for _, f := range b.foreign {
		b.tb.Errorf("a request to elsewhere: %s", f)
	}
	b.errors, b.foreign = nil, nil
}

// fail ends the test, and says where the tab is and what it shows.
func (b *tab) fail(format string, args ...any) {
	b.tb.Helper()
	where, _ := eval[string](b, "location.pathname + location.search")
	text, _ := eval[string](b, "document.body ? document.body.innerText.slice(0, 1500) : ''")
	b.mu.Lock()
	errors := strings.Join(b.errors, "\n")
	b.mu.Unlock()
	b.tb.Fatalf("%s\nat %s\n%s\n%s", fmt.Sprintf(format, args...), where, text, errors)
}

// picture keeps what the tab shows as an artifact of the test (go test -artifacts).
func (b *tab) picture() {
	ctx, end := context.WithTimeout(b.ctx, patience)
	defer end()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(b.tb.ArtifactDir(), "tab.png"), png, 0o600)
	}
	if err != nil {
		b.tb.Logf("no picture: %v", err)
	}
}

// --- Waiting

// until waits for something that the page shows or has led to. An error of done stands for "not yet".
func (b *tab) until(what string, done func() (bool, error)) {
	b.tb.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		ok, err := done()
		if ok && err == nil {
			return
		}
		select {
		case <-limit.C:
			b.fail("waited for %s (%v)", what, err)
		case <-b.ctx.Done():
			b.fail("waited for %s (%v)", what, b.ctx.Err())
		default:
			b.frame()
		}
	}
}

// frame waits until the page has had time to draw.
func (b *tab) frame() {
	_, _ = eval[bool](b, "new Promise(done => setTimeout(() => requestAnimationFrame(() => done(true)), 10))")
}

// eval returns what an expression comes to, or what a promise of it does.
func eval[T any](b *tab, expression string) (T, error) {
	ctx, end := context.WithTimeout(b.ctx, patience)
	defer end()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// js is eval of an expression that must not fail.
func js[T any](b *tab, expression string) T {
	b.tb.Helper()
	v, err := eval[T](b, expression)
	if err != nil {
		b.fail("%s: %v", expression, err)
	}
	return v
}

// truthy waits until an expression is true.
func (b *tab) truthy(expression string) {
	b.tb.Helper()
	b.until(expression, func() (bool, error) { return eval[bool](b, "!!("+expression+")") })
}

// --- Where it is

// load goes to an address, as somebody does who types it.
func (b *tab) load(path string) {
	b.tb.Helper()
	ctx, end := context.WithTimeout(b.ctx, patience)
	defer end()
	if err := chromedp.Do(ctx, chromedp.Navigate(b.s.origin+path)); err != nil {
		b.fail("%s: %v", path, err)
	}
}

// path is where the tab is.
func (b *tab) path() string {
	b.tb.Helper()
	return js[string](b, "location.pathname + location.search")
}

// arrive waits until the tab is at a path.
func (b *tab) arrive(path string) {
	b.tb.Helper()
	b.until("the address "+path, func() (bool, error) {
		at, err := eval[string](b, "location.pathname + location.search")
		return at == path, err
	})
}

// heading waits for the one h1 of a page, which the title begins with.
func (b *tab) heading(name string) {
	b.tb.Helper()
	b.until("the one heading "+name, func() (bool, error) {
		at, err := eval[string](b, "[...document.querySelectorAll('h1')].filter(h => h.checkVisibility()).map(h => h.innerText.trim()).join('|')")
		return strings.Join(strings.Fields(at), " ") == name, err
	})
	b.until("a title that begins with "+name, func() (bool, error) {
		title, err := eval[string](b, "document.title")
		return strings.HasPrefix(title, name), err
	})
}

// settled waits until the page with a heading shows all that it loads.
func (b *tab) settled(heading string) {
	b.tb.Helper()
	b.heading(heading)
	b.truthy("!document.querySelector('[aria-busy=true]')")
}

// text is all that the page shows.
func (b *tab) text() string {
	b.tb.Helper()
	return js[string](b, "document.body.innerText")
}

// shows waits until the page shows a text that matches.
func (b *tab) shows(pattern string) {
	b.tb.Helper()
	p := regexp.MustCompile("(?s)" + pattern)
	b.until("the text "+pattern, func() (bool, error) {
		text, err := eval[string](b, "document.body.innerText")
		return p.MatchString(text), err
	})
}

// media sets the colours that a person prefers. Nothing moves.
func (b *tab) media(scheme string) {
	b.tb.Helper()
	must(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// size sets the size of the window.
func (b *tab) size(width, height int64) {
	b.tb.Helper()
	must(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600,
	})
}

// signIn fills the form of the login page and sends it.
func (b *tab) signIn(email, password string) {
	b.tb.Helper()
	b.see("textbox", "Email").fill(email)
	b.see("textbox", "Password").fill(password)
	b.see("button", "Sign in").click()
}

// quoted is a text as JavaScript has it.
func quoted(text string) string {
	raw, _ := json.Marshal(text) //nolint:errchkjson // a text is JSON
	return string(raw)
}

// cookies are those that the tab sends to the dashboard and to the API.
func (b *tab) cookies() []*network.Cookie {
	b.tb.Helper()
	return must(b, network.GetCookies, network.GetCookiesParams{
		URLs: []string{b.s.origin + "/ui/", b.s.origin + "/api/"},
	}).Cookies
}
