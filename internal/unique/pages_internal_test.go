package unique

// Pages makes the pages of fillings as small as a test needs them.
func (s *Service) Pages(events, items int) { s.pageEvents, s.pageItems = events, items }
