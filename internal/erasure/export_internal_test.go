package erasure

// SetPart makes long streams of those with more than n events.
func (s *Service) SetPart(n uint64) { s.part = n }
