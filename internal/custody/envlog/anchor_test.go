package envlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/custody/envlog"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// anchored keeps lines about heads, and fails when it is told to.
type anchored struct {
	mu    sync.Mutex
	lines []string
	fails bool
}

func (a *anchored) keep(_ context.Context, lines []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fails {
		return errors.New("not now")
	}
	for line := range strings.Lines(string(lines)) {
		a.lines = append(a.lines, line)
	}
	return nil
}

// take returns the sizes of the heads that were anchored since it was called last.
func (a *anchored) take(t *testing.T, vkey string) (sizes []uint64) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, line := range a.lines {
		var l struct {
			At                                time.Time
			Instance, Environment, Checkpoint string
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.At.IsZero() || l.Instance != "ins_test" ||
			l.Environment != "prod" {
			t.Errorf("%q: %v", line, err)
		}
		text, _, err := proof.Open(l.Checkpoint, []string{vkey})
		if err != nil {
			t.Fatal(err)
		}
		head, err := proof.ParseTreeHead(text)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, head.Size)
	}
	a.lines = nil
	return sizes
}

// TestAnchors has heads anchored each hour in which there was something new, when the server stops, and not again after
// a restart.
func TestAnchors(t *testing.T) {
	t.Parallel()
	testopen.Bubble(t, func(t *testing.T) {
		f := &fixture{store: testopen.Open(t, clock.System{}), clock: clock.NewManual(time.Now())}
		a := &anchored{}
		start := func() (stop func()) {
			logger := slog.New(slog.DiscardHandler)
			f.Service = envlog.New(envlog.Options{
				Store: f.store, Clock: clock.System{}, Worker: worker.New(clock.System{}, logger), Anchor: a.keep,
				Origin: func(j17.Tenant) (string, error) { return "test.example/prod", nil },
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- f.Run(ctx) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		pass := func(d time.Duration) {
			t.Helper()
			if err := (clock.System{}).Wait(t.Context(), time.Now().Add(d)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		expect := func(what string, want ...uint64) {
			t.Helper()
			keys, err := f.Keys(t.Context(), tenant)
			if err != nil {
				t.Fatal(err)
			}
			if got := a.take(t, keys[0].VKey); len(got) != len(want) || len(want) > 0 && got[0] != want[0] {
				t.Errorf("%s: anchored were %v, want %v", what, got, want)
			}
		}

		stop := start()
		pass(time.Minute)
		expect("nothing was written")
		f.write(t, 2, 1)
		pass(time.Hour)
		expect("after an hour", 2)
		pass(2 * time.Hour)
		expect("nothing was written since")
		f.write(t, 1, 1)
		stop()
		expect("at the end", 3)
		stop = start()
		pass(2 * time.Hour)
		expect("after a restart")

		// Where it fails it is tried again.
		a.mu.Lock()
		a.fails = true
		a.mu.Unlock()
		f.write(t, 1, 1)
		pass(2 * time.Hour)
		expect("it failed")
		a.mu.Lock()
		a.fails = false
		a.mu.Unlock()
		pass(10 * time.Minute)
		expect("it was tried again", 4)
		stop()
		expect("at the end there is nothing new")
	})
}

// TestAnEnvironmentThatCannotBeAnchoredHoldsUpNoOther has more of them than are looked at together, before one that
// can.
func TestAnEnvironmentThatCannotBeAnchoredHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	testopen.Bubble(t, func(t *testing.T) {
		f := &fixture{store: testopen.Open(t, clock.System{}), clock: clock.NewManual(time.Now())}
		for n := range 150 {
			event := store.NewEvent{
				Key: j17.Key{Type: "note", ID: "a"}, Type: "was_written", Data: []byte(`{}`), Metadata: []byte(`{}`),
			}
			if _, err := f.store.Append(t.Context(), j17.Tenant(fmt.Sprintf("ins_%d/prod", n)), []store.Append{
				{Events: []store.NewEvent{event}},
			}); err != nil {
				t.Fatal(err)
			}
		}
		f.write(t, 2, 1)
		a, logger := &anchored{}, slog.New(slog.DiscardHandler)
		f.Service = envlog.New(envlog.Options{
			Store: f.store, Clock: clock.System{}, Worker: worker.New(clock.System{}, logger), Anchor: a.keep,
			Origin: func(of j17.Tenant) (string, error) {
				if of != tenant {
					return "", errors.New("nobody knows its name")
				}
				return "test.example/prod", nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		if err := (clock.System{}).Wait(t.Context(), time.Now().Add(61*time.Minute)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		keys, err := f.Keys(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.take(t, keys[0].VKey); len(got) != 1 || got[0] != 2 {
			t.Errorf("anchored were %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
