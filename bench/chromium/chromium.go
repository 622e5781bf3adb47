// Package chromium drives Debian's Chromium, without a window, for the programs that measure the dashboard and take
// pictures of it.
package chromium

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience is how long a page has to show something.
const patience = 60 * time.Second

// Browser is a running browser.
type Browser struct {
	ctx context.Context
}

// Open starts a browser, which ends with the context, or when end is called.
func Open(ctx context.Context) (b *Browser, end func(), err error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, fmt.Errorf("install chromium (Debian's name is the same): %w", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.DisableGPU, chromedp.WindowSize(1280, 800),
		chromedp.Flag("lang", "en-US"), chromedp.Flag("no-proxy-server", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("enable-precise-memory-info", true),
		// Nothing but this machine is there for it.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost, EXCLUDE 127.0.0.1"),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(ctx, options...)
	running, cancel := chromedp.NewContext(allocator)
	end = func() {
		cancel()
		stop()
	}
	if err := chromedp.Do(running); err != nil {
		end()
		return nil, nil, fmt.Errorf("chromium does not start: %w", err)
	}
	return &Browser{running}, end, nil
}

// Page is a tab of a browser.
type Page struct {
	ctx context.Context
	// End closes the tab.
	End func()
}

// Page opens a tab, of 1280 by 800 pixels, which has cookies of its own.
func (b *Browser) Page() (*Page, error) {
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	p := &Page{ctx, end}
	if _, err := Ask(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{
		Enabled: true,
	}); err != nil {
		end()
		return nil, err
	}
	return p, p.Size(1280, 800)
}

// Ask runs a command of the DevTools protocol.
func Ask[P, R any](p *Page, command cdp.Command[P, R], params P) (R, error) {
	return chromedp.Call(p.ctx, command, params)
}

// JS returns what an expression comes to, or what a promise of it does.
func JS[T any](p *Page, expression string) (T, error) {
	return chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Quoted is a text as JavaScript has it.
func Quoted(text string) string {
	raw, _ := json.Marshal(text) //nolint:errchkjson // a text is JSON
	return string(raw)
}

// Load goes to an address.
func (p *Page) Load(address string) error {
	return chromedp.Do(p.ctx, chromedp.Navigate(address))
}

// Until waits for an expression to be true. An error of it stands for "not yet", since pages change.
func (p *Page) Until(expression string) error {
	ctx, end := context.WithTimeout(p.ctx, patience)
	defer end()
	const wait = "new Promise(done => setTimeout(() => done(false), 20))"
	for ctx.Err() == nil {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if is && err == nil {
			return nil
		}
		_, _ = chromedp.Run(ctx, chromedp.Evaluate[bool](wait, chromedp.EvalAwaitPromise)) // it is asked again
	}
	return fmt.Errorf("waited for %s: %w", expression, ctx.Err())
}

// Settled waits for a page whose heading begins with a text, and that has all that it loads.
func (p *Page) Settled(heading string) error {
	return p.Until("document.querySelector('h1')?.textContent.startsWith(" + Quoted(heading) +
		") && !document.querySelector('[aria-busy=true]')")
}

// Size sets the size of the window in pixels.
func (p *Page) Size(width, height int64) error {
	_, err := Ask(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600,
	})
	return err
}

// Scheme sets the colours that a person prefers, "light" or "dark".
func (p *Page) Scheme(scheme string) error {
	_, err := Ask(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		},
	})
	return err
}

// Picture is what the window shows, as PNG.
func (p *Page) Picture() ([]byte, error) {
	return chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
}
