package server

import (
	"context"
	"sync/atomic"
	"time"

	"j17/internal/core/worker"
)

const (
	// forgetEvery is the time between two looks whether something was erased, and forgetRounds how often memory is
	// overwritten afterwards: what was under way the first time has ended the second time.
	forgetEvery  = 10 * time.Second
	forgetRounds = 2
)

// forgetting removes from the memory of the process what was erased, apart from requests, and together for all that was
// erased since the last time.
type forgetting struct {
	rounds atomic.Int32
}

// completed reports that something was erased.
func (f *forgetting) completed() { f.rounds.Store(forgetRounds) }

// runForgetting overwrites memory when something was erased, until the context ends.
func (s *Server) runForgetting(ctx context.Context) error {
	s.worker.Every(ctx, worker.Loop{Name: "forgetting", Every: forgetEvery, Do: s.forget})
	return nil
}

// forget removes from memory what is no longer referred to, where something was erased. If that fails it is done the
// next time.
func (s *Server) forget(ctx context.Context) error {
	left := s.forgetting.rounds.Load()
	if left == 0 {
		return nil
	}
	s.connections.endIdle()
	if err := s.store.Forget(ctx); err != nil {
		return err
	}
	forgetHeap()
	s.forgetting.rounds.CompareAndSwap(left, left-1) // unless more was erased meanwhile
	return nil
}
