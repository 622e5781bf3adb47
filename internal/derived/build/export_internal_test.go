package build

// Bound makes a service hold fewer items of a part, and commit smaller ones, for tests.
func (s *Service) Bound(held, bytes int) { s.heldSides, s.partBytes = held, bytes }
