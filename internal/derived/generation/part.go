package generation

import (
	"context"
	"time"

	"j17"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Part returns what trials are to the rest of the program.
func (s *Service) Part() part.Part {
	spaces := part.Spaces(trials, counts, waiting)
	for i := range spaces[:2] {
		spaces[i].Derived = true
	}
	return part.Part{
		Name: "generation",
		// Keys of events that have failed.
		Spaces: append(spaces, part.Space{Declared: store.Declared{Space: failures, Whole: true}, Derived: true}),
		Deploy: part.Deploy{Try: s.Try, Ready: s.Ready, Fill: s.Fill, Adopt: s.Adopt, Forget: s.Forget},
		Erase:  part.Erase{Streams: s.Erase},
		Work:   part.Work{Run: s.Run, NextDue: s.NextDue, Settle: s.Settle},
	}
}

// Run tries events in the background until the context ends.
func (s *Service) Run(ctx context.Context) error { return s.work.Run(ctx) }

// Settle carries out what can be done now.
func (s *Service) Settle(ctx context.Context) error { return s.work.Settle(ctx) }

// NextDue returns when the next trial is due, the zero time for none.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.work.NextDue(ctx) }

// Forget drops the turn of a tenant that is gone.
func (s *Service) Forget(t j17.Tenant) { s.turns.Delete(t) }

// Erase removes what is kept of the aggregate types of rewritten streams: it is tried and counted again when somebody
// needs it.
func (s *Service) Erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	done := map[string]bool{}
	for _, key := range e.Keys {
		if done[key.Type] {
			continue
		}
		done[key.Type] = true
		if err := s.reset(ctx, t, key.Type); err != nil {
			return store.UserError(err)
		}
	}
	return nil
}
