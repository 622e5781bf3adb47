package server

import (
	"context"
	"sync/atomic"
	"time"

	"j17/internal/core/worker"
)

const (
	// forgetEvery is the time between two checks whether something was erased. forgetRounds is how often memory is
	// overwritten afterwards: requests that were under way the first time have ended by the second.
	forgetEvery  = 10 * time.Second
	forgetRounds = 2
)

// forgetting removes erased data from the memory of the process. It runs apart from requests, once for everything that
// was erased since the last time.
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

// forget overwrites unreferenced memory if something was erased. After a failure it is tried again the next time.
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
