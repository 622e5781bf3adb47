package listener

// SetCountWork sets what requests may spend on counting.
func (s *Service) SetCountWork(units int64) { s.lagWork, s.source.countWork = units, units }

// SetListed bounds how many rows a page of deliveries may look at.
func (s *Service) SetListed(rows int64) { s.listWork = rows * lookWork }
