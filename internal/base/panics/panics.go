// Package panics keeps a panic from ending the process where the goroutine that it happens on has no caller to recover
// it. A request, a subscription and a build recover panics at their top, where they are logged and answered; a
// goroutine that one of them starts has no such top.
//
// Code that starts a goroutine does it by Parts, calls Caught or Logged as the first thing on it, or has a reason to do
// neither: TestGoroutines lists them all.
package panics

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"runtime"
	"strings"
	"sync"
)

// mostFrames is how many calls an error names that led to a panic, the latest first.
const mostFrames = 8

// Caught calls do and returns its error, or one that describes its panic and where that came from.
func Caught(do func() error) error {
	_, err := caught(do)
	return err
}

// Logged is Caught for work whose errors are not returned, because a caller that needs the result repeats the work and
// meets them. A panic is logged, with a description of the work.
func Logged(ctx context.Context, to *slog.Logger, what string, do func() error) error {
	panicked, err := caught(do)
	if panicked {
		to.LogAttrs(
			ctx, slog.LevelError, "work in the background panicked", slog.String("work", what), slog.Any("error", err),
		)
	}
	return err
}

func caught(do func() error) (panicked bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			panicked, err = true, fmt.Errorf("panic: %v, in %s", v, where())
		}
	}()
	return false, do()
}

// where names the files and lines that led to the panic under way, in one line, for logs and for the record of failed
// requests.
func where() string {
	pcs := make([]uintptr, 4*mostFrames)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)]) // behind the function that recovers
	var places []string
	for more := true; more && len(places) < mostFrames; {
		var f runtime.Frame
		if f, more = frames.Next(); !strings.HasPrefix(f.Function, "runtime.") {
			places = append(places, fmt.Sprintf("%s/%s:%d", path.Base(path.Dir(f.File)), path.Base(f.File), f.Line))
		}
	}
	return strings.Join(places, ", ")
}

// Parts are parts of one piece of work that run concurrently. Where one of them panics, so does the goroutine that
// waits for them: the fault is reported where all others of the piece are, and the process goes on. The zero Parts has
// none.
type Parts struct {
	running sync.WaitGroup
	mu      sync.Mutex
	thrown  error
}

// Go does a part on a goroutine of its own.
func (p *Parts) Go(part func()) { p.running.Go(func() { p.Do(part) }) }

// Do runs a part on the goroutine of the caller, which waits for the others afterwards.
func (p *Parts) Do(part func()) {
	err := Caught(func() error {
		part()
		return nil
	})
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.thrown = err
	}
}

// Wait waits until all parts are done. It panics with an error where one of them has.
func (p *Parts) Wait() {
	p.running.Wait()
	if p.thrown != nil {
		panic(p.thrown)
	}
}
