package projection

import "time"

// SettleIn sets how long a change of definitions waits for the indexes that it needs.
func (s *Service) SettleIn(d time.Duration) { s.settle = d }
