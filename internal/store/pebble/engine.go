package pebble

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"j17/internal/store"
)

// engineLogger passes Pebble's messages on. What would end the process stops all writes instead.
type engineLogger struct {
	logger *slog.Logger
	fatal  func(error)
}

// Infof logs what only a developer of the store wants to know.
func (l *engineLogger) Infof(format string, args ...any) {
	l.logger.Debug("storage engine", slog.String("message", fmt.Sprintf(format, args...)))
}

// Errorf logs an error.
func (l *engineLogger) Errorf(format string, args ...any) {
	l.logger.Error("storage engine", slog.String("message", fmt.Sprintf(format, args...)))
}

// Fatalf stops all writes.
func (l *engineLogger) Fatalf(format string, args ...any) { l.fatal(fmt.Errorf(format, args...)) }

// events lets goroutines wait until Pebble has changed its files.
type events struct {
	mu      sync.Mutex
	changed chan struct{}
	failed  chan struct{}
}

func newEvents() *events { return &events{changed: make(chan struct{}), failed: make(chan struct{})} }

// failing returns a channel that is closed when background work fails the next time.
func (e *events) failing() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed
}

func (e *events) fail() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.failed)
	e.failed = make(chan struct{})
}

// next returns a channel that is closed when files change the next time.
func (e *events) next() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

func (e *events) broadcast() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.changed)
	e.changed = make(chan struct{})
}

// listener returns what Pebble tells of its work. stalled is kept up to date.
func (e *events) listener(logger *slog.Logger, stalled *atomic.Bool) *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			e.fail()
			logger.Error("background work failed and is repeated", slog.Any("error", err))
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			// The text without the pages of a stack trace.
			logger.Error("stored data are damaged", slog.String("file", info.Path), slog.String("error", info.Details.Error()))
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			stalled.Store(true)
			logger.Warn("writes wait for background work", slog.String("reason", info.Reason))
		},
		WriteStallEnd: func() {
			stalled.Store(false)
			logger.Info("writes go on")
		},
		FlushEnd:      func(pebble.FlushInfo) { e.broadcast() },
		CompactionEnd: func(pebble.CompactionInfo) { e.broadcast() },
		TableDeleted:  func(pebble.TableDeleteInfo) { e.broadcast() },
		TableIngested: func(pebble.TableIngestInfo) { e.broadcast() },
	}
}

// fault gives an error of Pebble the type that the store promises.
func fault(where string, err error) error {
	if pebble.IsCorruptionError(err) {
		return &store.CorruptionError{Where: where, Err: legible{err}}
	}
	if noDescriptors(err) {
		return fmt.Errorf("read %s: %w: %w", where, store.ErrBusy, err)
	}
	return fmt.Errorf("read %s: %w", where, err)
}

// corruption reports data that contradict themselves. What could not be read for want of a descriptor says nothing of them.
func corruption(err error, where string, args ...any) error {
	if noDescriptors(err) {
		return fault(fmt.Sprintf(where, args...), err)
	}
	return &store.CorruptionError{Where: fmt.Sprintf(where, args...), Err: legible{err}}
}

// legible is an error without the line that Pebble adds to the text of damage for programs only: it carries what says which file it is.
type legible struct{ error }

func (e legible) Error() string {
	return strings.ReplaceAll(e.error.Error(), "\n<corruption detail carrier>", "")
}

func (e legible) Unwrap() error { return e.error }
