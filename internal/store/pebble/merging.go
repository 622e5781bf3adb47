package pebble

import (
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// mostUnmerged is how many memory tables may have been written since the top level was merged for merges to stand back: twice as many as begin
// a merge. With more of them every read gets slower, and in the end writes would have to wait.
const mostUnmerged = topLevelThreshold

// merging lets merges of tables stand back while somebody is in a hurry: they take a processor for seconds, and nothing depends on when
// they are done as long as there are not too many tables.
type merging struct {
	mu sync.Mutex
	// hurries is how many are in a hurry, unmerged how many memory tables were written since the top level was merged.
	hurries, unmerged int
	// changed is closed when merges that stand back have to look again.
	changed chan struct{}
}

func newMerging() *merging { return &merging{changed: make(chan struct{})} }

// Hurry lets merges stand back. See store.Urgency.
func (s *Store) Hurry() (done func()) {
	m := s.disk.merging
	m.change(func() { m.hurries++ })
	return sync.OnceFunc(func() { m.change(func() { m.hurries-- }) })
}

// change changes what merges go by.
func (m *merging) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
	close(m.changed)
	m.changed = make(chan struct{})
}

// flushed notes that memory tables were written.
func (m *merging) flushed(info *pebble.FlushInfo) {
	if info.Err == nil {
		m.change(func() { m.unmerged += info.Input })
	}
}

// merged notes that tables were merged.
func (m *merging) merged(info *pebble.CompactionInfo) {
	top := func(level pebble.LevelInfo) bool { return level.Level == 0 }
	if info.Err == nil && slices.ContainsFunc(info.Input, top) {
		m.change(func() { m.unmerged = 0 })
	}
}

// look lets merges that stand back look again.
func (m *merging) look() { m.change(func() {}) }

// back returns what ends the wait of a merge that is to stand back, nil for one that is not.
func (m *merging) back() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hurries == 0 || m.unmerged >= mostUnmerged {
		return nil
	}
	return m.changed
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

// standBack is where a merge waits while somebody is in a hurry. Where writes wait for it, or it makes room, it does not.
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
