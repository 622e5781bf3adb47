package server

import "j17/internal/custody/checkpoint"

// openCheckpoints makes what keeps states of aggregates, and roots of logs.
func (s *Server) openCheckpoints() {
	o := &s.options
	s.checkpoints = checkpoint.New(checkpoint.Options{Store: s.store, Engine: s.engine, Log: s.logs, Clock: o.Clock, Logger: o.Logger, Worker: s.worker})
	for _, q := range s.checkpoints.Queues() {
		s.timed = append(s.timed, q)
	}
}
