package panics_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"j17/internal/base/panics"
)

// TestParts does parts of a piece of work, some of which panic: all of them are done, and whoever waits panics then.
func TestParts(t *testing.T) {
	t.Parallel()
	do := func(faults int) (done int64, thrown any) {
		var parts panics.Parts
		var n atomic.Int64
		defer func() { done, thrown = n.Load(), recover() }()
		for i := range 10 {
			parts.Go(func() {
				n.Add(1)
				if i < faults {
					panic("a fault")
				}
			})
		}
		parts.Wait()
		return 0, nil
	}
	for _, faults := range []int{0, 1, 3} {
		done, thrown := do(faults)
		err, _ := thrown.(error)
		if told := err != nil && strings.Contains(err.Error(), "a fault") &&
			strings.Contains(err.Error(), "panics/panics_test.go"); done != 10 || told != (faults > 0) {
			t.Errorf("%d faults: %d parts are done, and whoever waits has %v", faults, done, thrown)
		}
	}
}

// TestCaught looks at what Caught makes of a call: its error, or that of its panic, in one line with the places that
// led to it.
func TestCaught(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	if err := panics.Caught(func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := panics.Caught(func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("an error became %v", err)
	}
	var none []int
	for name, fault := range map[string]func() error{
		"panic: a fault, in panics/panics_test.go:":     func() error { panic("a fault") },
		"panic: runtime error: index out of range [1] ": func() error { none[1]++; return nil },
	} {
		err := panics.Caught(fault)
		if err == nil || !strings.HasPrefix(err.Error(), name) ||
			!strings.Contains(err.Error(), "in panics/panics_test.go:") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s became %v", name, err)
		}
	}
}

// TestLogged looks at what is logged: a panic with what was done, and no error, which whoever called knows.
func TestLogged(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	logger, failed := slog.New(slog.NewTextHandler(&log, nil)), errors.New("failed")
	if err := panics.Logged(
		t.Context(), logger, "making it", func() error { return failed },
	); !errors.Is(err, failed) || log.Len() > 0 {
		t.Errorf("an error became %v, and was logged: %s", err, log.String())
	}
	err := panics.Logged(t.Context(), logger, "making it", func() error { panic("a fault") })
	if err == nil || !strings.Contains(log.String(), `work="making it"`) ||
		!strings.Contains(log.String(), err.Error()) {
		t.Errorf("%v was logged as: %s", err, log.String())
	}
}

// TestDo does a part where the others are waited for.
func TestDo(t *testing.T) {
	t.Parallel()
	var parts panics.Parts
	done := false
	parts.Do(func() { panic("a fault") })
	parts.Do(func() { done = true })
	defer func() {
		if err, _ := recover().(error); err == nil || !done {
			t.Errorf("whoever waits has %v; the other part: %t", err, done)
		}
	}()
	parts.Wait()
}
