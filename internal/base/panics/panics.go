// Package panics keeps a panic from ending the process where the goroutine that it happens on has nobody above it. A request, a subscription
// and a build take panics down at their top, where they are logged and answered; a goroutine that one of them begins has no such top.
//
// Whoever begins a goroutine does it by Parts, calls Caught or Logged first thing on it, or has a reason to do none of that: TestGoroutines knows
// them all.
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

// Caught calls do and returns its error, or one that tells of its panic and where that came from.
func Caught(do func() error) error {
	_, err := caught(do)
	return err
}

// Logged is Caught for work whose errors nobody hears of, because whoever needs it does it once more and meets them. A panic is logged, with what
// the work is.
func Logged(ctx context.Context, to *slog.Logger, what string, do func() error) error {
	panicked, err := caught(do)
	if panicked {
		to.LogAttrs(ctx, slog.LevelError, "work in the background panicked", slog.String("work", what), slog.Any("error", err))
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

// where names the files and lines that led to the panic that is under way, in one line: it goes to logs with the error, and to whatever keeps
// what went wrong.
func where() string {
	pcs := make([]uintptr, 4*mostFrames)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)]) // behind whoever recovers
	var places []string
	for more := true; more && len(places) < mostFrames; {
		var f runtime.Frame
		if f, more = frames.Next(); !strings.HasPrefix(f.Function, "runtime.") {
			places = append(places, fmt.Sprintf("%s/%s:%d", path.Base(path.Dir(f.File)), path.Base(f.File), f.Line))
		}
	}
	return strings.Join(places, ", ")
}

// Parts are parts of one piece of work that are done beside each other. Where one of them panics, so does whoever waits for them: a fault is
// told where all others of the piece are told, and the process goes on. The zero Parts has none.
type Parts struct {
	running sync.WaitGroup
	mu      sync.Mutex
	thrown  error
}

// Go does a part on a goroutine of its own.
func (p *Parts) Go(part func()) { p.running.Go(func() { p.Do(part) }) }

// Do does a part at once, for whoever waits for the others afterwards.
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
