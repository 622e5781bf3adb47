package pebble

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// engineLogger passes on Pebble's messages. Errors that would end the process stop all writes instead.
type engineLogger struct {
	logger *slog.Logger
	fatal  func(error)
}

// Infof logs messages for developers of the store.
func (l *engineLogger) Infof(format string, args ...any) {
	l.logger.Debug("storage engine", slog.String("message", fmt.Sprintf(format, args...)))
}

// Errorf logs an error.
func (l *engineLogger) Errorf(format string, args ...any) {
	l.logger.Error("storage engine", slog.String("message", fmt.Sprintf(format, args...)))
}

// Fatalf stops all writes.
func (l *engineLogger) Fatalf(format string, args ...any) { l.fatal(fmt.Errorf(format, args...)) }

const (
	// sayAgain is the time after which a repeated message is logged again, and mostSaid bounds the messages whose last
	// time is remembered.
	sayAgain = time.Minute
	mostSaid = 64
)

// seldom limits how often a message is logged that comes thousands of times a second: Pebble retries failed work at
// once, for as long as it fails.
type seldom struct {
	clock clock.Clock
	mu    sync.Mutex
	said  map[string]saying
}

// saying is when a message was logged last, and how often it came since.
type saying struct {
	at    time.Time
	times int
}

// say logs a message, with how often it came since it was logged last, unless that was less than sayAgain ago.
func (s *seldom) say(what string, log func(since slog.Attr)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	last, known := s.said[what]
	if ago := now.Sub(last.at); known && ago >= 0 && ago < sayAgain {
		last.times++
		s.said[what] = last
		return
	}
	if s.said == nil || !known && len(s.said) >= mostSaid {
		s.said = map[string]saying{}
	}
	s.said[what] = saying{at: now}
	var since slog.Attr // the log does not show an empty one
	if last.times > 0 {
		since = slog.Int("times_since", last.times)
	}
	log(since)
}

// events lets goroutines wait until Pebble has changed its files.
type events struct {
	mu      sync.Mutex
	changed chan struct{}
	failed  chan struct{}
}

func newEvents() *events { return &events{changed: make(chan struct{}), failed: make(chan struct{})} }

// failing returns a channel that is closed at the next failure of background work.
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

// next returns a channel that is closed at the next change of files.
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

// listener returns the listener for Pebble's work. It also keeps the state of the disk up to date.
func (e *events) listener(logger *slog.Logger, now clock.Clock, d *disk) *pebble.EventListener {
	again := &seldom{clock: now}
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			e.fail()
			text := legible{err}.Error()
			again.say(text, func(since slog.Attr) {
				logger.Error("background work failed and is repeated", slog.String("error", text), since)
			})
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			// The text without the pages of a stack trace.
			text := info.Details.Error()
			again.say(info.Path+text, func(since slog.Attr) {
				logger.Error(
					"stored data are damaged", slog.String("file", info.Path), slog.String("error", text), since,
				)
			})
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			d.stalled.Store(true)
			d.merging.look()
			logger.Warn("writes wait for background work", slog.String("reason", info.Reason))
		},
		WriteStallEnd: func() {
			d.stalled.Store(false)
			logger.Info("writes go on")
		},
		FlushEnd: func(pebble.FlushInfo) {
			d.merging.look()
			e.broadcast()
		},
		CompactionEnd: func(pebble.CompactionInfo) { e.broadcast() },
		TableDeleted:  func(pebble.TableDeleteInfo) { e.broadcast() },
		TableIngested: func(pebble.TableIngestInfo) { e.broadcast() },
	}
}

// fault turns an error of Pebble into one that the store documents.
func fault(where string, err error) error {
	if pebble.IsCorruptionError(err) {
		return &store.CorruptionError{Where: where, Err: legible{err}}
	}
	if noDescriptors(err) {
		return fmt.Errorf("read %s: %w: %w", where, &store.LackError{Of: store.OfDescriptors}, err)
	}
	return fmt.Errorf("read %s: %w", where, err)
}

// corruption returns an error for inconsistent data. A read that failed for lack of a file descriptor is not
// corruption.
func corruption(err error, where string, args ...any) error {
	if noDescriptors(err) {
		return fault(fmt.Sprintf(where, args...), err)
	}
	return &store.CorruptionError{Where: fmt.Sprintf(where, args...), Err: legible{err}}
}

// legible is an error without the line that Pebble adds to the text of damage for programs only: it carries what says
// which file it is.
type legible struct{ error }

func (e legible) Error() string {
	return strings.ReplaceAll(e.error.Error(), "\n<corruption detail carrier>", "")
}

func (e legible) Unwrap() error { return e.error }
