package place

// Bound makes a service look at less, for tests.
func (s *Service) Bound(few, enough int) { s.few, s.enough = few, enough }

// Crowded makes a service hold fewer groups of points, and look at less, for tests.
func (s *Service) Crowded(crowd, most int) { s.crowd, s.most = crowd, most }
