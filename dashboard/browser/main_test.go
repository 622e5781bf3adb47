//go:build !race

// The dashboard in Chromium, with a real server behind it. Elements are found by their roles and accessible names, as a
// screen reader finds them; waiting is for what the page shows.

package browser_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// browser is the context of the one browser of this package.
var browser context.Context

// needed reports whether a tool that is missing fails the tests, instead of skipping them.
func needed() bool { return os.Getenv("CI") == "true" || os.Getenv("J17_ALL_TOOLS") != "" }

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run starts the browser and runs the tests.
func run(m *testing.M) int {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if needed() {
			_, _ = fmt.Fprintln(os.Stderr, "chromium is not installed, and the tests of the dashboard need it. Install it: chromium (Debian's name).")
			return 1
		}
		_, _ = fmt.Fprintln(os.Stderr, "SKIPPED: all tests of the dashboard in a browser. They need chromium: install it (Debian's name is the same).")
		return 0
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium),
		chromedp.DisableGPU,
		chromedp.WindowSize(1280, 900),
		chromedp.Flag("lang", "en-US"),
		chromedp.Flag("no-proxy-server", true),
		// Nothing but this machine can be reached, so that a request to anywhere else fails, and no test depends on a
		// network.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost, EXCLUDE 127.0.0.1"),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	//nolint:forbidigo // the browser outlives each test
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var end context.CancelFunc
	browser, end = chromedp.NewContext(allocator)
	defer end()
	if err := chromedp.Do(browser); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "chromium does not start:", err)
		return 1
	}
	code := m.Run()
	closing, give := context.WithTimeout(browser, 10*time.Second)
	defer give()
	if err := chromedp.Cancel(closing); err != nil && code == 0 {
		_, _ = fmt.Fprintln(os.Stderr, "chromium does not end:", err)
		return 1
	}
	return code
}

// axe is the source of axe-core, which npm installs beside the dashboard.
var axe = sync.OnceValues(func() (string, error) {
	source, err := os.ReadFile("../node_modules/axe-core/axe.min.js")
	return string(source), err
})
