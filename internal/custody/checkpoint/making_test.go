package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
)

// running runs the service until the test ends.
func (f *fixture) running(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// stopping is a store at which the making of a checkpoint waits when it is about to write its first states, so that
// somebody can look; it goes on when that is given free.
type stopping struct {
	*endingStore
	reached, free chan struct{}
}

func (f *fixture) stopping() *stopping {
	s := &stopping{endingStore: &endingStore{Storage: f.Store}, reached: make(chan struct{}), free: make(chan struct{})}
	s.atHeads = func() {
		close(s.reached)
		<-s.free
	}
	f.Service = f.checkpointsOn(s)
	return s
}

func background() wire.NewCheckpoint { return wire.NewCheckpoint{Name: new("slow"), Wait: new(bool)} }

// TestCheckpointsShowHowFarTheyAre has a checkpoint made in the background: it is listed with its progress, and is like
// any other one when it is completed.
func TestCheckpointsShowHowFarTheyAre(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 600)
	before := f.made(t, wire.NewCheckpoint{Key: new("counter:" + fmt.Sprintf("00000000-0000-4000-a000-%012d", 1))})
	s := f.stopping()
	f.running(t)
	begun, err := f.Start(t.Context(), enginetest.Tenant, background())
	if err != nil || begun.Status != "running" || begun.Scope != "environment" || *begun.Name != "slow" {
		t.Fatalf("begun was %+v, %v", begun, err)
	}
	<-s.reached
	all, err := f.List(t.Context(), enginetest.Tenant, 0, 10)
	if err != nil || len(all) != 2 || all[0].ID != begun.ID || all[0].Status != "running" || all[1].ID != before.ID ||
		all[1].Status != "completed" || all[1].Progress != nil {
		t.Fatalf("listed are %+v, %v", all, err)
	}
	if p := all[0].Progress; p == nil || p.Done != 500 || p.Total != 600 {
		t.Errorf("the progress is %+v", p)
	}
	for offset, want := range []string{begun.ID, before.ID} {
		if page, err := f.List(t.Context(), enginetest.Tenant, offset, 1); err != nil || len(page) != 1 ||
			page[0].ID != want {
			t.Errorf("page %d: %+v, %v", offset, page, err)
		}
	}
	close(s.free)
	for {
		got, err := f.Get(t.Context(), enginetest.Tenant, begun.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status == "running" {
			continue
		}
		want := f.made(t, wire.NewCheckpoint{})
		if got.Status != "completed" || got.Aggregates != 600 || got.StateHash != want.StateHash ||
			got.Progress != nil {
			t.Errorf("made was %+v, and is to be like %+v", got, want)
		}
		break
	}
}

// TestCheckpointsAreCancelled cancels checkpoints that are made, for somebody who waits and in the background, and one
// that waits for its turn: nothing is left of them.
func TestCheckpointsAreCancelled(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{true, false} {
		f := newFixture(t, enginetest.CounterSpec, engine.Options{})
		f.counted(t, 600)
		s := f.stopping()
		f.running(t)
		ended := make(chan error, 1)
		if wait {
			go func() {
				_, err := f.Service.Create(t.Context(), enginetest.Tenant, wire.NewCheckpoint{})
				ended <- err
			}()
		} else {
			if _, err := f.Start(t.Context(), enginetest.Tenant, background()); err != nil {
				t.Fatal(err)
			}
			ended <- nil
		}
		<-s.reached
		all, err := f.List(t.Context(), enginetest.Tenant, 0, 10)
		if err != nil || len(all) != 1 {
			t.Fatalf("listed are %+v, %v", all, err)
		}
		deleted := make(chan wire.Checkpoint)
		go func() {
			c, err := f.Delete(t.Context(), enginetest.Tenant, all[0].ID)
			if err != nil {
				t.Error(err)
			}
			deleted <- c
		}()
		close(s.free)
		if c := <-deleted; c.ID != all[0].ID || c.Status != "failed" || c.Error == "" {
			t.Errorf("deleted was %+v", c)
		}
		if err := <-ended; wait && j17.CodeOf(err) != j17.CodeConflict {
			t.Errorf("who waits gets %v", err)
		}
		if all, err = f.List(t.Context(), enginetest.Tenant, 0, 10); err != nil || len(all) > 0 {
			t.Errorf("listed are %+v, %v", all, err)
		}
		for _, q := range f.Queues() {
			if err := q.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if f.left(t) > 0 {
			t.Errorf("%d states are left", f.left(t))
		}
	}
}

// TestCheckpointsWaitForTheirTurn begins more than are made at a time, and more than may wait. One that waits is
// cancelled by itself.
func TestCheckpointsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 3)
	var begun []wire.Checkpoint // nobody runs the service
	for range 4 {
		c, err := f.Start(t.Context(), enginetest.Tenant, background())
		if err != nil {
			t.Fatal(err)
		}
		begun = append(begun, c)
	}
	if _, err := f.Start(t.Context(), enginetest.Tenant, background()); j17.CodeOf(err) != j17.CodeConflict {
		t.Errorf("a fifth one: %v", err)
	}
	if c, err := f.Delete(t.Context(), enginetest.Tenant, begun[3].ID); err != nil || c.Status != "failed" {
		t.Errorf("one that waits: %+v, %v", c, err)
	}
	if _, err := f.Get(t.Context(), enginetest.Tenant, begun[3].ID); j17.CodeOf(err) != j17.CodeNotFound {
		t.Errorf("it is there still: %v", err)
	}
	if _, err := f.Start(t.Context(), enginetest.Tenant, background()); err != nil {
		t.Errorf("in its place: %v", err)
	}
	if c := f.made(t, wire.NewCheckpoint{}); c.Status != "completed" {
		t.Errorf("who waits for it: %+v", c)
	}
}

// TestAFailedCheckpointTellsWhy has one fail in the background: it is listed with the reason until somebody deletes it.
func TestAFailedCheckpointTellsWhy(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 3)
	f.Service = f.checkpointsOn(&endingStore{Storage: f.Store, end: func() {}, broken: errors.New("the disk is gone")})
	f.running(t)
	begun, err := f.Start(t.Context(), enginetest.Tenant, background())
	if err != nil {
		t.Fatal(err)
	}
	got := begun
	for got.Status == "running" {
		if got, err = f.Get(t.Context(), enginetest.Tenant, begun.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got.Status != "failed" || got.Error == "" || got.Progress == nil {
		t.Errorf("it is %+v", got)
	}
	if _, err := f.Delete(t.Context(), enginetest.Tenant, begun.ID); err != nil {
		t.Error(err)
	}
	if _, err := f.Delete(t.Context(), enginetest.Tenant, begun.ID); j17.CodeOf(err) != j17.CodeNotFound {
		t.Errorf("twice: %v", err)
	}
}

// TestACheckpointThatDoesNotBegin: whoever asks for one that cannot begin hears of it at once, and it is not listed,
// also where several ask.
func TestACheckpointThatDoesNotBegin(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 3)
	f.Service = f.checkpointsOn(&endingStore{
		Storage: f.Store, refused: "checkpoint.jobs", broken: errors.New("the disk is gone"),
	})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for range 50 {
				if _, err := f.Start(t.Context(), enginetest.Tenant, background()); err == nil {
					t.Error("it has begun")
				}
			}
		})
	}
	asking.Wait()
	if all, err := f.List(t.Context(), enginetest.Tenant, 0, 10); err != nil || len(all) != 0 {
		t.Errorf("listed are %+v, %v", all, err)
	}
}

// TestAPanicEndsACheckpoint: one whose making panics has failed, and whoever cancels it does not wait for good.
func TestAPanicEndsACheckpoint(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 600)
	reached := make(chan struct{})
	f.Service = f.checkpointsOn(&endingStore{Storage: f.Store, atHeads: func() {
		close(reached)
		panic("a fault of the program")
	}})
	f.running(t)
	begun, err := f.Start(t.Context(), enginetest.Tenant, background())
	if err != nil {
		t.Fatal(err)
	}
	<-reached
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute) // it ends what would never end
	defer stop()
	if gone, err := f.Delete(ctx, enginetest.Tenant, begun.ID); err != nil || gone.Status != "failed" {
		t.Errorf("%+v, %v", gone, err)
	}
	if all, err := f.List(ctx, enginetest.Tenant, 0, 10); err != nil || len(all) != 0 {
		t.Errorf("listed are %+v, %v", all, err)
	}
}

// TestRestorationsShowHowFarTheyAre looks at a checkpoint while it is restored, ends that, and restores it again.
func TestRestorationsShowHowFarTheyAre(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 600)
	made := f.made(t, wire.NewCheckpoint{})
	s := f.stopping()
	stop := s.atHeads
	looks := 0
	var again func()
	again = func() { // three pages are compared first
		if looks++; looks == 4 {
			stop()
			return
		}
		s.atHeads = again
	}
	s.atHeads = again
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, _, err := f.Restore(ctx, enginetest.Tenant, made.ID)
		ended <- err
	}()
	<-s.reached
	got, err := f.Get(t.Context(), enginetest.Tenant, made.ID)
	if err != nil || got.Status != "completed" || got.Restoring == nil || got.Restoring.Done != 600 ||
		got.Restoring.Total != 1200 {
		t.Errorf("got %+v with %+v, %v", got, got.Restoring, err)
	}
	all, err := f.List(t.Context(), enginetest.Tenant, 0, 10)
	if err != nil || len(all) != 1 || all[0].Restoring == nil {
		t.Errorf("listed are %+v, %v", all, err)
	}

	// Whoever asks goes away.
	cancel()
	close(s.free)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the end of a restoration: %v", err)
	}
	n, from, err := f.Restore(t.Context(), enginetest.Tenant, made.ID)
	if err != nil || n != 600 || from.Restoring != nil {
		t.Errorf("restored again: %d, %+v, %v", n, from, err)
	}
	if got, err := f.Get(t.Context(), enginetest.Tenant, made.ID); err != nil || got.Restoring != nil {
		t.Errorf("at the end it is %+v, %v", got, err)
	}
}
