package loading

// SetWhole bounds how many events a file has that is stored in one commit.
func (l *Loader) SetWhole(events int) { l.most = events }

// Remember takes room from what all files have for unique values; Remembered is how much is taken, holders and keepers
// counted by themselves.
func (l *Loader) Remember(n int64) { l.remembered.Add(n) }

func (l *Loader) Remembered() int64 { return l.remembered.Load() }

// Room is all of it.
const Room = 2 * allValues
