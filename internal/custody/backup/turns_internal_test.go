package backup

import (
	"context"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
)

// TestTurnsDoNotEndInARow has three backups go to their object stores for longer than their turns, and one wait: one of
// them has to, and the other two go on until that one has waited for a turn itself.
func TestTurnsDoNotEndInARow(t *testing.T) {
	now := clock.NewManual(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	s := &Service{
		Options: Options{Clock: now}, active: map[j17.Tenant]*job{}, turns: map[string]uint64{},
		more: make(chan struct{}, 1),
	}
	works := map[*job]context.Context{}
	begins := func(scope j17.Tenant) {
		t.Helper()
		j, work, _ := s.take(t.Context())
		if j == nil || j.row.Scope != scope {
			t.Fatalf("%+v has begun, not %s", j, scope)
		}
		works[j] = work
	}
	cut := func() (all []*job) {
		for j, work := range works {
			if work.Err() != nil {
				all = append(all, j)
			}
		}
		return all
	}
	wait := func(j *job) {
		t.Helper()
		if delete(works, j); !s.waitAgain(t.Context(), j) {
			t.Fatal("it does not wait")
		}
	}
	for _, scope := range []j17.Tenant{"a/prod", "b/prod", "c/prod", "d/prod"} {
		s.waiting = append(s.waiting, &job{row: &Backup{Scope: scope}, remote: true})
		if scope != "d/prod" {
			begins(scope)
			now.Advance(slowAfter)
		}
	}

	// The first one waits, and the one that has waited begins.
	now.Advance(turnTime)
	if j, _, _ := s.take(t.Context()); j != nil {
		t.Fatalf("%+v has begun", j)
	}
	first := cut()
	if len(first) != 1 || first[0].row.Scope != "a/prod" {
		t.Fatalf("the turns of %+v are over", first)
	}
	wait(first[0])
	begins("d/prod")

	// The others go on until it has waited long enough.
	j, _, again := s.take(t.Context())
	if more := cut(); j != nil || len(more) > 0 || !again.Equal(now.Now().Add(turnTime)) {
		t.Fatalf("%+v has begun, the turns of %d more are over, and the next one ends at %v", j, len(more), again)
	}
	now.Advance(turnTime)
	_, _, _ = s.take(t.Context())
	second := cut()
	if len(second) != 1 || second[0].row.Scope != "b/prod" {
		t.Fatalf("the turns of %+v are over", second)
	}
	wait(second[0])
	begins("a/prod")
}
