// Command screenshots takes pictures of the dashboard, light and dark, with the data of the examples.
//
//	go run ./tools/screenshots -bin bin/j17 -out docs/images
//
// The examples write what they show within seconds. The pages are those of what each of them is about.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"j17/bench/chromium"
	"j17/bench/devserver"
	"j17/internal/base/clock"
)

// picture is a page of an example.
type picture struct {
	name, path, heading string
	// do is a script that is run on the page first, "" for none, and until is what it leads to.
	do, until string
}

// example is an application that comes with the program.
type example struct {
	name     string
	pictures func(context.Context, *devserver.Server) ([]picture, error)
}

// verify has the page of an aggregate verify its events.
const (
	verify   = `[...document.querySelectorAll('[aria-label=Proof] button')].find(b => b.textContent.trim() === 'Verify').click()`
	verified = `document.querySelector('[aria-label=Proof] .badge')`
)

// drawTime is how long a page has to draw what it shows once it has loaded it.
const drawTime = 400 * time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("screenshots", flag.ContinueOnError)
	bin := flags.String("bin", "j17", "the program to start")
	out := flags.String("out", "docs/images", "the folder to write to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil { //nolint:gosec // pictures for everybody
		return err
	}
	browser, end, err := chromium.Open(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, e := range []example{{"orders", orders}, {"checkout", checkout}} {
		if err := e.take(ctx, browser, *bin, *out); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return nil
}

// take starts a server with the example, has its script write, and takes the pictures.
func (e example) take(ctx context.Context, browser *chromium.Browser, bin, out string) error {
	folder := filepath.Join("examples", e.name)
	spec, err := os.ReadFile(filepath.Join(folder, "spec.json")) //nolint:gosec // of the repository
	if err != nil {
		return err
	}
	server, err := devserver.Start(ctx, bin, string(spec))
	if err != nil {
		return err
	}
	defer server.End()
	script := exec.CommandContext(ctx, "sh", filepath.Join(folder, "run.sh")) //nolint:gosec // of the repository
	script.Env = append(script.Environ(), "J17_URL="+server.URL, "J17_KEY="+server.WriteKeys["prod"])
	if said, err := script.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, said)
	}
	pictures, err := e.pictures(ctx, server)
	if err != nil {
		return err
	}
	page, err := browser.Page()
	if err != nil {
		return err
	}
	defer page.End()
	if err := errors.Join(page.Load(server.LoginLink), page.Settled("Overview")); err != nil {
		return err
	}
	for _, p := range pictures {
		for _, scheme := range []string{"light", "dark"} {
			if err := p.take(ctx, page, server, scheme, out); err != nil {
				return fmt.Errorf("%s, %s: %w", p.name, scheme, err)
			}
		}
	}
	return nil
}

func (p picture) take(ctx context.Context, page *chromium.Page, server *devserver.Server, scheme, out string) error {
	err := errors.Join(
		page.Scheme(scheme), page.Load(server.Dashboard+"i/"+server.Name+"/prod/"+p.path), page.Settled(p.heading),
	)
	if err == nil && p.do != "" {
		if _, err = chromium.JS[bool](page, "("+p.do+", true)"); err == nil {
			err = page.Until(p.until)
		}
	}
	if err != nil {
		return err
	}
	if err := (clock.System{}).Wait(ctx, clock.System{}.Now().Add(drawTime)); err != nil {
		return err
	}
	png, err := page.Picture()
	if err != nil {
		return err
	}
	//nolint:gosec // pictures for everybody
	return os.WriteFile(filepath.Join(out, p.name+"-"+scheme+".png"), png, 0o644)
}

// firstEvent is the position of the first event of an aggregate.
func firstEvent(ctx context.Context, server *devserver.Server, aggregate string) (string, error) {
	r, err := server.Request(ctx, "prod", http.MethodGet, "/"+aggregate+"/events?count=1", nil)
	if err != nil {
		return "", err
	}
	raw, err := devserver.Answer(&http.Client{}, r)
	if err != nil {
		return "", err
	}
	var page struct {
		Events []struct {
			StreamID string `json:"stream_id"`
		}
	}
	if err := json.Unmarshal(raw, &page); err != nil {
		return "", err
	}
	if len(page.Events) == 0 {
		return "", fmt.Errorf("%s has no events", aggregate)
	}
	return page.Events[0].StreamID, nil
}
