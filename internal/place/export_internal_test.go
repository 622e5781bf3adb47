package place

// Bound makes a service look at less, for tests.
func (s *Service) Bound(few, enough int) { s.few, s.enough = few, enough }
