package server

import (
	"maps"

	"j17/internal/custody/checkpoint"
	"j17/internal/custody/envlog"
	"j17/internal/custody/scrub"
	"j17/internal/derived/unique"
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
