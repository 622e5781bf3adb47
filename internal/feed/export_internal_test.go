package feed

// SetAheadEntries makes small what is asked of the store at a time while a feed is read ahead.
func (s *Subscriptions) SetAheadEntries(n int) { s.aheadEntries = n }
