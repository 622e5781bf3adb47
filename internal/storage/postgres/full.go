package postgres

import (
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"j17/internal/base/panics"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
)

const (
	// probeInterval is the time between two checks whether a server without disk space has some again.
	probeInterval = time.Second
	// probeBytes is the size of the value that has to fit in then.
	probeBytes = 1 << 20
)

// fullness records whether the server has no disk space left. After the first write that fails for that, only calls
// that free space are tried, until a probe fits in.
type fullness struct {
	core *core

	mu   sync.Mutex
	full bool
}

// admit returns the error of calls that would fail, nil for others.
func (f *fullness) admit(need queue.Need) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full && need == queue.Ordinary {
		return store.ErrFull
	}
	return nil
}

// note records that the server has refused a write for lack of space. Lanes call it.
func (f *fullness) note() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full {
		return
	}
	f.full = true
	f.core.logger.Error("the database has no disk space left: writes are refused until it has some")
	f.core.working.Go(func() {
		_ = panics.Logged(f.core.ending, f.core.logger, "the wait for disk space", func() error {
			f.await()
			return nil
		})
	})
}

// await returns when there is space again, or when the store ends.
func (f *fullness) await() {
	for wait(f.core.ending, probeInterval) == nil {
		if err := f.probe(); err != nil {
			f.core.logger.Debug("a probe was not written", slog.Any("error", err))
			continue
		}
		f.mu.Lock()
		f.full = false
		f.mu.Unlock()
		f.core.logger.Warn("the database has disk space again")
		return
	}
}

const writeProbe = `INSERT INTO meta (key, value) VALUES ('probe', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value`

// probe commits something that needs space, and removes it again.
func (f *fullness) probe() error {
	value := make([]byte, probeBytes)
	if _, err := rand.Read(value); err != nil {
		return err
	}
	for _, value := range [][]byte{value, {}} {
		err := f.core.read(f.core.ending, "a probe", func(conn reading) error {
			rows, err := conn.Query(f.core.ending, writeProbe, value)
			if err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}
