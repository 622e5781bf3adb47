package store

import "time"

// Figures are what an engine on a database has counted since it was opened, and what it has measured last.
type Figures struct {
	// Trips counts round trips to the database, except those that set up a connection or prepare a statement.
	Trips Trips
	// Batches counts commits, and Units the units and operations that were decided in them. Commits is how long these
	// commits took in all, until their outcome was known.
	Batches, Units uint64
	Commits        time.Duration
	// Waits counts the calls that a lane has taken, and Waited is how long they waited for that in all.
	Waits  uint64
	Waited time.Duration
	// Doubts counts the commits whose outcome the database did not tell.
	Doubts Doubts
	// Moments is how many snapshots are open, and MomentsRefused counts those that were refused because too many were.
	Moments        int
	MomentsRefused uint64
	// OldestSnapshot is the age of the oldest transaction, of any program, that keeps dead rows of the database from
	// being removed.
	OldestSnapshot time.Duration
	DeadRows       DeadRows
}

// Trips are numbers of round trips by what they are for: writes with the reads before them, look-ups of single items,
// all other reads of data, and the rest.
type Trips struct{ Write, Lookup, Read, Other uint64 }

// Doubts are numbers of commits by what was found out about them, and told to their callers: that everything or a part
// was written, that nothing was, or that it is not known (ErrUnknown).
type Doubts struct{ Committed, NotWritten, Unknown uint64 }

// DeadRows are estimates of how many rows of tables the database still has to remove.
type DeadRows struct{ Tenants, Events, Tags, Items, Commands, Other int64 }
