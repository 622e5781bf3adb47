package pebble

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// mostSublevels is how deep the top level may be for merges to stand back: twice as deep as begins a merge. A deeper
// one makes every read slower, and in the end writes would have to wait.
const mostSublevels = topLevelThreshold

// merging pauses merges of tables while somebody has deferred them: a merge takes a processor for seconds, and nothing
// depends on when it is done as long as there are not too many tables.
type merging struct {
	// sublevels tells how deep the top level is. It is set when the store is open.
	sublevels func() int

	mu sync.Mutex
	// deferrals is how many have deferred merges.
	deferrals int
	// changed is closed when merges that stand back have to look again.
	changed chan struct{}
}

func newMerging() *merging { return &merging{changed: make(chan struct{})} }

// DeferCompaction pauses merges of tables. See store.Compaction.
func (s *Store) DeferCompaction() (done func()) {
	m := s.disk.merging
	m.change(1)
	return sync.OnceFunc(func() { m.change(-1) })
}

// change changes how many have deferred merges, and lets paused ones look again.
func (m *merging) change(deferrals int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deferrals += deferrals
	close(m.changed)
	m.changed = make(chan struct{})
}

// look lets merges that stand back look again.
func (m *merging) look() { m.change(0) }

// back returns what ends the wait of a merge that is to stand back, nil for one that is not.
func (m *merging) back() <-chan struct{} {
	m.mu.Lock()
	deferrals, changed := m.deferrals, m.changed
	m.mu.Unlock()
	if deferrals == 0 || m.sublevels() > mostSublevels {
		return nil
	}
	return changed
}

// mergeCategory is what Pebble calls what it writes when it merges tables.
const mergeCategory vfs.DiskWriteCategory = "pebble-compaction"

// standBackOf returns where who writes a table of a category waits, nil where he does not.
func (d *disk) standBackOf(category vfs.DiskWriteCategory) func() {
	if category == mergeCategory {
		return d.standBack
	}
	return nil
}

// standBack is where a merge waits while somebody has deferred it. Where writes wait for it, or it makes room, it does
// not.
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
