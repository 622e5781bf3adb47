package unique

// Pages makes the pages of fillings as small as a test needs them.
func (s *Service) Pages(events, items int) { s.pageEvents, s.pageItems = events, items }

// LookAt makes trials look at no more than that many elements of the feed.
func (s *Service) LookAt(most uint64) { s.maxLooked = most }
