package server

import (
	"context"

	"j17/internal/custody/attention"
)

// openAttention creates the service that reports to operators what is going on.
func (s *Server) openAttention(ctx context.Context) {
	s.attention = attention.New(ctx, attention.Options{
		Store: s.store, Engine: s.engine, Registry: s.registry, Deploy: s.deploy, Usage: s.usage,
		Schedule: s.schedule, Sagas: s.sagas, Listeners: s.listeners, Projections: s.projections, Places: s.places,
		Tagging: s.tagging,
		Backups: s.backups, Checkpoints: s.checkpoints, Erasures: s.erasures, Scrub: s.scrub,
		Disk:  func() (free, total uint64, err error) { return freeSpace(s.storeFolder()) },
		Clock: s.options.Clock, Logger: s.options.Logger,
	})
}
