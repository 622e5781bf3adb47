package listener

// SetCountWork sets what requests may spend on counting.
func (s *Service) SetCountWork(units int64) { s.lagWork, s.countWork = units, units }
