//go:build !race

package pebble

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"

	"j17/internal/base/clock"
)

// cutNumber is the number of logs that are cut.
const cutNumber = 7

// cutLog is a log in memory that knows after each write and sync what a crash may leave of it.
type cutLog struct {
	rng *rand.Rand

	mu      sync.Mutex
	content []byte
	synced  int
	crashes []crashedLog
}

// crashedLog is what a log had when the machine crashed, of which so many bytes were synced.
type crashedLog struct {
	content []byte
	synced  int
}

func (l *cutLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.content = append(l.content, b...)
	l.crashes = append(l.crashes, crashedLog{bytes.Clone(l.content), l.synced})
	return len(b), nil
}

// Sync takes a while, in which more may be written to the log's buffer.
func (l *cutLog) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range l.rng.IntN(50) {
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
	}
	l.synced = len(l.content)
	l.crashes = append(l.crashes, crashedLog{bytes.Clone(l.content), l.synced})
	return nil
}

func (l *cutLog) Close() error { return nil }

// written returns what crashes may leave of a log that the engine writes, some records at a time.
func written(t *testing.T, s *Store, seed uint64, atOnce int) []crashedLog {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	l := &cutLog{rng: rand.New(rand.NewPCG(seed, 1))}
	waiting := make(chan struct{}, record.SyncConcurrency)
	w := record.NewLogWriter(l, cutNumber, record.LogWriterConfig{
		// Without one it tells of no sync.
		WALFsyncLatency: s.db.Metrics().LogWriter.FsyncLatency, QueueSemChan: waiting,
		WriteWALSyncOffsets: func() bool { return true },
	})
	const records, small, large = 40, 400, 60_000
	var failed [records]error
	var stored [records]sync.WaitGroup
	for i := range records {
		size := rng.IntN(small)
		switch left := logBlockBytes - int(w.Size())%logBlockBytes - chunkHeader; rng.IntN(5) {
		case 0:
			size = rng.IntN(large)
		case 1:
			size = max(left-rng.IntN(chunkHeader), 0) // the block ends with what is too short for another one
		}
		stored[i].Add(1)
		waiting <- struct{}{}
		if _, err := w.SyncRecord(noiseOf(rng, size), &stored[i], &failed[i]); err != nil {
			t.Fatal(err)
		}
		if at := i - atOnce + 1; at >= 0 {
			stored[at].Wait()
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return l.crashes
}

func noiseOf(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestEndsOfLogs loses sectors of what was not synced, in any order, as a machine that loses its power does, with zeros
// or what stood there before in their places, and with what an older log has left behind the end: none of that is
// damage. A bit of what was synced long ago is, unless few writes came behind it.
func TestEndsOfLogs(t *testing.T) {
	t.Parallel()
	const sector, behind = 512, 40_000
	table := crc32.MakeTable(crc32.Castagnoli)
	look := func(content []byte) int64 {
		t.Helper()
		at, err := damagedAt(bytes.NewReader(content), cutNumber, table)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	s, _ := opened(t, clock.System{}) // for what it counts syncs with
	found, harmed := 0, 0
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 2))
		for _, c := range written(t, s, seed, 1+int(seed%3)) {
			for lost := range 5 { // of five sectors
				content := append(bytes.Clone(c.content), noiseOf(rng, rng.IntN(behind)*(lost%2))...)
				for at := c.synced / sector * sector; at < len(content); at += sector {
					some := content[max(at, c.synced):max(min(at+sector, len(content)), c.synced)]
					if rng.IntN(5) < lost {
						copy(some, make([]byte, sector))
					} else if rng.IntN(5) < lost {
						copy(some, noiseOf(rng, sector))
					}
				}
				if at := look(content); at >= 0 {
					t.Errorf("seed %d: a crash with %d of %d bytes synced is taken for damage at %d", seed, c.synced, len(content), at)
				}
			}
			if early := c.synced / 4; early > behind {
				content := bytes.Clone(c.content)
				content[rng.IntN(early)] ^= 1
				harmed++
				if look(content) >= 0 {
					found++
				}
			}
		}
	}
	if harmed < 20 || found < harmed*3/4 {
		t.Errorf("%d of %d changed bits were found", found, harmed)
	}
}
