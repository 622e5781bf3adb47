package pebble

import "github.com/cockroachdb/pebble/v2/vfs"

// gatherBytes is how many bytes of a table are handed to the system at a time.
const gatherBytes = 256 << 10

// unfinishedTable is a table that is being written. Pebble hands over each of its blocks in two calls, and a call of
// the system for each of these costs more than what it copies: what is written is gathered here. Whoever syncs or
// closes the file has all of it written.
type unfinishedTable struct {
	vfs.File

	gathered []byte
	// standBack, if not nil, is called before anything is written.
	standBack func()
	// err is that of the first write that failed: what came behind it is not to be written in its place.
	err error
}

// Write appends p, sooner or later.
func (f *unfinishedTable) Write(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	if f.gathered == nil {
		f.gathered = make([]byte, 0, gatherBytes)
	}
	if len(f.gathered)+len(p) > gatherBytes {
		if err := f.flush(); err != nil {
			return 0, err
		}
	}
	if len(p) >= gatherBytes {
		f.wait()
		n, err := f.File.Write(p)
		f.err = err
		return n, err
	}
	f.gathered = append(f.gathered, p...)
	return len(p), nil
}

// wait waits where others are to have the processors.
func (f *unfinishedTable) wait() {
	if f.standBack != nil {
		f.standBack()
	}
}

// flush writes what was gathered.
func (f *unfinishedTable) flush() error {
	if f.err == nil && len(f.gathered) > 0 {
		f.wait()
		_, f.err = f.File.Write(f.gathered)
		f.gathered = f.gathered[:0]
	}
	return f.err
}

// Sync makes the file durable.
func (f *unfinishedTable) Sync() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData makes the file's data durable.
func (f *unfinishedTable) SyncData() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.File.SyncData()
}

// SyncTo starts to make a part of the file durable.
func (f *unfinishedTable) SyncTo(length int64) (full bool, err error) {
	if err := f.flush(); err != nil {
		return false, err
	}
	return f.File.SyncTo(length)
}

// Close closes the file. That a write failed is the error of a sync before: a table that was not synced is of no use.
func (f *unfinishedTable) Close() error {
	_ = f.flush()
	return f.File.Close()
}
