package deploy_test

import (
	"context"
	"errors"
	"testing"

	"j17/internal/plane/deploy"
)

// leaving is the context of a client that goes away when it has been asked for a number of times.
type leaving struct {
	context.Context
	asked, after int
}

func (c *leaving) Err() error {
	if c.asked++; c.asked > c.after {
		return context.Canceled
	}
	return nil
}

// TestCheckEndsWithItsClient: what looks through a spec asks before each event type whether anybody waits for it, and
// is done soon where nobody does.
func TestCheckEndsWithItsClient(t *testing.T) {
	src := large(t, "orders", 100_000)
	var s *deploy.Service
	patient := &leaving{Context: t.Context(), after: 1_000_000}
	if checked, err := s.Check(patient, src); err != nil || !checked.Valid {
		t.Fatal(checked.Errors, err)
	}
	if patient.asked < 300 {
		t.Fatalf("a client is asked for %d times", patient.asked)
	}
	for after := 0; after < patient.asked; after += 29 {
		c := &leaving{Context: t.Context(), after: after}
		if checked, err := s.Check(c, src); !errors.Is(err, context.Canceled) || checked.Valid ||
			len(checked.Errors) > 0 {
			t.Fatalf("gone after %d of %d: %v, %v", after, patient.asked, checked, err)
		}
		if most := after + 20; c.asked > most {
			t.Fatalf("gone after %d: it is asked for %d times", after, c.asked)
		}
	}
}
