package feed

import "j17"

// SetAheadEntries makes small what is asked of the store at a time while a feed is read ahead.
func (s *Subscriptions) SetAheadEntries(n int) { s.aheadEntries = n }

// Reachable reports whether what a set knows of a tenant that it holds can be looked at without waiting.
func (s *Subscriptions) Reachable(t j17.Tenant) bool {
	s.mu.Lock()
	h := s.held[t]
	s.mu.Unlock()
	if h == nil || !h.mu.TryLock() {
		return false
	}
	h.mu.Unlock()
	return true
}
