package server

import (
	"maps"

	"j17/internal/checkpoint"
	"j17/internal/envlog"
	"j17/internal/scrub"
	"j17/internal/unique"
)

// openScrub makes what looks for damage.
func (s *Server) openScrub() {
	o := &s.options
	checks := envlog.Checks()
	maps.Copy(checks, checkpoint.Checks())
	s.scrub = scrub.New(scrub.Options{
		Store: s.store, Log: s.logs, Clock: o.Clock, Logger: o.Logger, Worker: s.worker,
		Committed: func() uint64 { return s.engine.Stats().Events }, Checks: checks, Void: unique.Void(),
	})
}
