package postgres_test

import (
	"context"
	"errors"
	"iter"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// machine is a node with its own clock, as on a machine that can be frozen.
type machine struct {
	*postgres.Node

	clock *steps
	o     postgres.Options
}

// steps is a clock that counts the goroutines that have begun to wait for it.
type steps struct {
	*clock.Manual

	mu     sync.Mutex
	begun  sync.Cond
	waited int
	passed int
	// waiting has a value when a goroutine has begun to wait and nobody has taken the value since.
	waiting chan struct{}
}

// Wait is part of clock.Clock.
func (s *steps) Wait(ctx context.Context, until time.Time) error {
	s.mu.Lock()
	s.waited++
	s.begun.Broadcast()
	s.mu.Unlock()
	select {
	case s.waiting <- struct{}{}:
	default:
	}
	return s.Manual.Wait(ctx, until)
}

// ready returns when a goroutine has begun to wait since the last second passed.
func (s *steps) ready() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waited <= s.passed {
		s.begun.Wait()
	}
}

// pass lets a second pass once a goroutine waits for it.
func (s *steps) pass() {
	s.ready()
	s.mu.Lock()
	s.passed = s.waited
	s.mu.Unlock()
	s.Advance(time.Second)
}

func join(t *testing.T, o postgres.Options, name string) *machine {
	t.Helper()
	return joinBy(t, o, name, postgres.Join)
}

// joinBy is join by a variant of postgres.Join.
func joinBy(
	t *testing.T, o postgres.Options, name string,
	join func(context.Context, postgres.Options, string, string, clock.Clock) (*postgres.Node, error),
) *machine {
	t.Helper()
	m := &machine{o: o, clock: &steps{
		Manual: clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), waiting: make(chan struct{}, 1),
	}}
	m.clock.begun.L = &m.clock.mu
	n, err := join(t.Context(), o, name, "http://"+name, m.clock)
	if err != nil {
		t.Fatal(err)
	}
	m.Node = n
	t.Cleanup(func() {
		if err := n.Leave(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return m
}

// await waits until the node is active, and lets a second pass each time it waits for one. It returns how many seconds
// have passed since its first look, or the first one after the last that failed, and the name of the node that was
// active before.
func (m *machine) await(t *testing.T) (seconds int, before string) {
	t.Helper()
	looked := make(chan string, 1)
	done := make(chan error, 1)
	go func() { done <- m.Await(t.Context(), func(w postgres.Worker) { looked <- w.Name }) }()
	for {
		select {
		case <-m.clock.waiting:
			if m.Term() != 0 {
				continue // it is active, and waits for its next beat
			}
			select {
			case before = <-looked:
				seconds++
			default:
				seconds = 0 // silence does not count while the database does not answer in time
			}
			m.clock.pass()
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return seconds, before
		}
	}
}

// store opens the node's store.
func (m *machine) store(t *testing.T) store.Store {
	t.Helper()
	o := m.o
	o.Node = m.Node
	s := store.Whole(open(t, o))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func options(t *testing.T) postgres.Options {
	t.Helper()
	server := pgtest.Shared(t)
	return postgres.Options{
		AllowSingle: true,
		Address:     server.Address(), Schema: server.Schema(t), Connections: postgres.LeastConnections,
	}
}

// change appends an event.
func change(t *testing.T, s store.Events) error {
	t.Helper()
	_, err := s.Append(t.Context(), j17.System, []store.Append{{Events: []store.NewEvent{{
		Key: j17.Key{Type: "order", ID: "a"}, Type: "was_changed", Data: []byte("1"), Metadata: []byte("{}"),
	}}}})
	return err
}

// TestTakeOver freezes the active node: another one takes over, and the first one does nothing when it wakes.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	o := options(t)
	first, second := join(t, o, "first"), join(t, o, "second")
	if seconds, _ := first.await(t); seconds != 0 {
		t.Fatalf("the first node waited for %d s", seconds)
	}
	one := first.store(t)
	if err := errors.Join(change(t, one), change(t, one)); err != nil {
		t.Fatal(err)
	}
	keys := []j17.Key{{Type: "order", ID: "a"}}
	next, stop := iter.Pull2(one.ReadStream(t.Context(), j17.System, keys[0], 1, 0))
	defer stop()
	if e, err, _ := next(); err != nil || e.Version != 1 {
		t.Fatal(e, err)
	}

	// The first machine is frozen.
	seconds, before := second.await(t)
	if before != "first" || seconds < 5 || seconds > 10 {
		t.Fatalf("the second node took over after %d s from %q", seconds, before)
	}
	two := second.store(t)
	if err := change(t, two); err != nil {
		t.Fatal(err)
	}

	// It wakes, and does not know yet that it was replaced.
	if err := change(t, one); !errors.Is(err, postgres.ErrReplaced) {
		t.Errorf("the first node writes: %v", err)
	}
	if extent, err := two.Extent(t.Context(), j17.System); err != nil || extent.Events != 3 {
		t.Errorf("there are %d events, %v", extent.Events, err)
	}
	first.clock.Advance(3 * time.Second)
	if _, err := one.Heads(t.Context(), j17.System, keys); !errors.Is(err, store.ErrBusy) {
		t.Errorf("the first node answers: %v", err)
	}
	if e, err, _ := next(); !errors.Is(err, store.ErrBusy) {
		t.Errorf("the first node hands out what may have been erased since: %v, %v", e, err)
	}
	select {
	case <-first.Lost():
	case <-t.Context().Done():
		t.Error("the first node does not find out that it was replaced")
	}
	if first.Works() || !second.Works() {
		t.Error("the wrong node works")
	}
}

// TestBeats checks that a node stays active as long as it beats, and may answer for three seconds without a beat.
func TestBeats(t *testing.T) {
	t.Parallel()
	o := options(t)
	first, second := join(t, o, "first"), join(t, o, "second")
	first.await(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- second.Await(ctx, nil) }()
	for range 20 {
		first.clock.pass()
		first.clock.ready() // the beat was committed
		second.clock.pass()
		if !first.Works() {
			t.Fatal("a node that beats does not work")
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the second node ends with %v", err)
	}
}

// TestLeave ends a node in order, and starts it again under its name: no node has to wait.
func TestLeave(t *testing.T) {
	t.Parallel()
	o := options(t)
	first, second := join(t, o, "first"), join(t, o, "second")
	first.await(t)
	if err := first.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first.Works() {
		t.Error("a node that has left works")
	}
	if seconds, _ := second.await(t); seconds != 0 {
		t.Errorf("the second node waited for %d s", seconds)
	}

	// A process of the same name has the addresses of the previous one, which has ended.
	again := join(t, o, "second")
	if seconds, _ := again.await(t); seconds != 0 {
		t.Errorf("a new process of the node waited for %d s", seconds)
	}
	if err := change(t, again.store(t)); err != nil {
		t.Error(err)
	}
}
