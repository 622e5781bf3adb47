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

const (
	// sayAgain is after how long the log has again what goes on, and mostSaid of how many such messages it is known
	// when they were said.
	sayAgain = time.Minute
	mostSaid = 64
)

// seldom says once in a while what happens thousands of times a second: Pebble repeats what has failed at once, for as
// long as it fails.
type seldom struct {
	clock clock.Clock
	mu    sync.Mutex
	said  map[string]saying
}

// saying is when something was said last, and how often it came since.
type saying struct {
	at    time.Time
	times int
}

// say says something, with how often it came since it was said last, unless that is less than a minute ago.
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

// listener returns what Pebble tells of its work. What the disk knows of it is kept up to date.
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

// corruption reports data that contradict themselves. What could not be read for want of a descriptor says nothing of
// them.
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
