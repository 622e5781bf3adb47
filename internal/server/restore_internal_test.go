package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"j17"
	"j17/internal/clock"
)

// TestOneEnvironmentDoesNotHoldUpOthers lets one fail twice and another be gone.
func TestOneEnvironmentDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tried, first []string
		failures, all := 2, 0
		h := &handover{clock: clock.System{}, logger: slog.New(slog.DiscardHandler)}
		h.hand = func(_ context.Context, instance string, _ j17.Environment) error {
			tried = append(tried, instance)
			switch {
			case instance == "gone":
				return j17.Errorf(j17.CodeNotFound, "There is no such instance")
			case instance == "bad" && failures > 0:
				failures--
				return errors.New("cannot be read")
			}
			return nil
		}
		h.tried = func(e environment) { first = append(first, e.instance) }
		h.all = func() { all++ }
		h.run(t.Context(), []environment{{"bad", j17.Prod}, {"gone", j17.Prod}, {"good", j17.Prod}})
		if want := []string{"bad", "gone", "good", "bad", "bad"}; !slices.Equal(tried, want) {
			t.Errorf("tried %v, want %v", tried, want)
		}
		if want := []string{"bad", "gone", "good"}; !slices.Equal(first, want) || all != 1 {
			t.Errorf("first attempts %v, told %d times that these are all", first, all)
		}
	})
}

func TestHandingOverEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := &handover{clock: clock.System{}, logger: slog.New(slog.DiscardHandler)}
		h.hand = func(context.Context, string, j17.Environment) error { return fmt.Errorf("never") }
		done := make(chan struct{})
		go func() { defer close(done); h.run(ctx, []environment{{"bad", j17.Prod}}) }()
		synctest.Wait()
		cancel()
		<-done
	})
}
