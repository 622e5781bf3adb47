package erasure

// SetPart makes long streams of those with more than n events.
func (s *Service) SetPart(n uint64) { s.part = n }

// SetKept has everybody told of streams when n were rewritten.
func (s *Service) SetKept(n uint64) { s.kept = n }

// SetPurged has old bytes removed of n streams at a time, with some more.
func (s *Service) SetPurged(n int) { s.purged = n }

// Lease is how long one try may take, unless it is renewed.
const Lease = lease
