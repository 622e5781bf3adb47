package pebble

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// mostSublevels is the depth of the top level up to which merges may be paused: twice the depth that begins a merge. A
// deeper one makes every read slower, and in the end writes would have to wait.
const mostSublevels = topLevelThreshold

// merging pauses merges of tables while they are deferred: a merge takes a processor for seconds, and may be done at
// any time as long as there are not too many tables.
type merging struct {
	// sublevels returns the depth of the top level. It is set when the store is open.
	sublevels func() int

	mu sync.Mutex
	// deferrals counts the callers that have deferred merges.
	deferrals int
	// changed is closed when paused merges have to check again.
	changed chan struct{}
}

func newMerging() *merging { return &merging{changed: make(chan struct{})} }

// DeferCompaction pauses merges of tables. See store.Compaction.
func (s *Store) DeferCompaction() (done func()) {
	m := s.disk.merging
	m.change(1)
	return sync.OnceFunc(func() { m.change(-1) })
}

// change adds to the count of deferrals, and lets paused merges check again.
func (m *merging) change(deferrals int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deferrals += deferrals
	close(m.changed)
	m.changed = make(chan struct{})
}

// look lets paused merges check again.
func (m *merging) look() { m.change(0) }

// back returns the channel that ends the pause of a merge, nil if it must not pause.
func (m *merging) back() <-chan struct{} {
	m.mu.Lock()
	deferrals, changed := m.deferrals, m.changed
	m.mu.Unlock()
	if deferrals == 0 || m.sublevels() > mostSublevels {
		return nil
	}
	return changed
}

// mergeCategory is Pebble's category for writes of merges.
const mergeCategory vfs.DiskWriteCategory = "pebble-compaction"

// standBackOf returns the function in which writers of a table of a category pause, nil if they do not.
func (d *disk) standBackOf(category vfs.DiskWriteCategory) func() {
	if category == mergeCategory {
		return d.standBack
	}
	return nil
}

// standBack pauses a merge while merges are deferred, unless writes wait for it or it makes room.
func (d *disk) standBack() {
	for d.phase.Load() == running && !d.stalled.Load() && !d.short.Load() {
		changed := d.merging.back()
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-d.life.Done():
			return
		}
	}
}
