package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// joinToRestore makes a node that may restore to a schema.
func joinToRestore(t *testing.T, o postgres.Options, name string) *machine {
	t.Helper()
	return joinBy(t, o, name, postgres.JoinToRestore)
}

// fill restores to the schema of a node, without an end.
func (m *machine) fill(t *testing.T) {
	t.Helper()
	if err := m.BeginRestoration(t.Context()); err != nil {
		t.Fatal(err)
	}
	into := m.o
	into.Restoring, into.Node = true, m.Node
	s := open(t, into)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := s.Get(t.Context(), "a/prod", "x", "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("there is something left: %v", err)
	}
	if err := s.Write(t.Context(), "a/prod", []store.Side{{Space: "x", Key: "k", Op: store.Put}}); err != nil {
		t.Fatal(err)
	}
}

// TestRestoration fills schemas as a restoration does: until it has ended, nothing else can open them, and what an
// interrupted one has left is removed. A server waits meanwhile.
func TestRestoration(t *testing.T) {
	t.Parallel()
	o := options(t)
	server := pgtest.Shared(t)
	first := joinToRestore(t, o, "first")
	first.await(t)
	first.fill(t)
	refused(t, o, "has not come to its end", "j17 backup restore")

	// It is frozen. The next one works once that is certain, and begins anew; the first one can no longer end it.
	second := joinToRestore(t, o, "second")
	if seconds, before := second.await(t); before != "first" || seconds < 5 {
		t.Errorf("the second restoration began after %d s, and %q worked before", seconds, before)
	}
	second.fill(t)
	for what, end := range map[string]error{
		"finish": first.FinishRestoration(t.Context()), "discard": first.DiscardRestoration(t.Context()),
	} {
		if !errors.Is(end, postgres.ErrReplaced) {
			t.Errorf("%s of a restoration that was replaced ends with %v", what, end)
		}
	}

	// What is given up leaves nothing, and a server that waits is told so.
	waits := join(t, o, "waits")
	looked, ended := make(chan postgres.Worker), make(chan error, 1)
	go func() { ended <- waits.Await(t.Context(), func(w postgres.Worker) { looked <- w }) }()
	if w := <-looked; w.Name != "second" {
		t.Errorf("a server waits for %q", w.Name)
	}
	if err := second.DiscardRestoration(t.Context()); err != nil {
		t.Error(err)
	}
	if left := pgtest.Ask[int](t, server, "SELECT count(*)::int FROM pg_tables WHERE schemaname=$1", o.Schema); left != 0 {
		t.Errorf("%d tables are left", left)
	}
	waits.clock.pass()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "has no tables any longer") {
		t.Errorf("a server that has waited for a restoration that failed ends with %v", err)
	}

	// A server that waits works as soon as a restoration has ended.
	third := joinToRestore(t, o, "third")
	third.await(t)
	third.fill(t)
	next := join(t, o, "next")
	if err := errors.Join(third.FinishRestoration(t.Context()), third.Leave(t.Context())); err != nil {
		t.Fatal(err)
	}
	if seconds, _ := next.await(t); seconds != 0 {
		t.Errorf("a server waits for %d s after a restoration", seconds)
	}
	if _, err := next.store(t).Get(t.Context(), "a/prod", "x", "k"); err != nil {
		t.Error(err)
	}

	// A schema that holds data is left unchanged, and whose they are is told.
	_, err := postgres.JoinToRestore(t.Context(), o, "fourth", "", next.clock)
	if err == nil || !strings.Contains(err.Error(), "holds data, those of the server next at http://next") {
		t.Errorf("a restoration over data ends with %v", err)
	}
	if err := next.BeginRestoration(t.Context()); err == nil || !strings.Contains(err.Error(), "holds data") {
		t.Errorf("a restoration over new data ends with %v", err)
	}
	if err := next.DiscardRestoration(t.Context()); err != nil {
		t.Error(err)
	}
	if err := open(t, o).Close(); err != nil {
		t.Error(err)
	}
}
