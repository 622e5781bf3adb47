package loading

// SetWhole bounds how many events a file has that is stored in one commit.
func (l *Loader) SetWhole(events int) { l.most = events }
