package index

import "j17/internal/base/work"

// Hasten lets upkeep rest and work events off in bulk where a handful of them are behind.
func (s *Service) Hasten() {
	s.limits = limits{restFrom: 5, restEach: 16, restMost: 200, bulkFrom: 8, bulkMost: 150, bulkRows: 7}
}

// Hold sets how many ids a question holds in memory.
func (v *View) Hold(ids int) { v.held = ids }

// Places sets how many places there are for questions that hold many ids, half of them for one tenant.
func (s *Service) Places(places int64) { s.large = work.NewPool(places, places/2) }

// Many sets how many ids are many.
func (v *View) Many(ids int) { v.few = ids }

// Bulk sets how many events are worked off in bulk at a time, and how many rows in a commit.
func (s *Service) Bulk(events, rows int) { s.limits.bulkMost, s.limits.bulkRows = events, rows }
