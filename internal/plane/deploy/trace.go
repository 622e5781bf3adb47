package deploy

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/code/sandbox"
	"j17/internal/lang/diag"
)

// MaxTrace is the longest time for which the calls of custom code are traced.
const MaxTrace = time.Hour

// maxTraced is how many bytes of an input and of an output a log line holds.
const maxTraced = 4 << 10

// trace reports whether an environment's calls of custom code are written to the log.
type trace struct {
	// until is when it ends, in Unix nanoseconds; 0 if it is off.
	until       atomic.Int64
	clock       clock.Clock
	logger      *slog.Logger
	instance    string
	environment j17.Environment
}

// Trace writes the input and the output of every call of an environment's custom code, cut to 4 KiB each, and the
// messages of failing code to the log, for the given time, at most MaxTrace; 0 ends it. All of it is event data, which
// is otherwise in no log. It returns when tracing ends, the zero time for off.
func (s *Service) Trace(ctx context.Context, instance string, env j17.Environment, d time.Duration) (time.Time, error) {
	e, err := s.environment(instance, env)
	if err != nil {
		return time.Time{}, err
	}
	until := int64(0)
	if d > 0 {
		until = s.clock.Now().Add(min(d, MaxTrace)).UnixNano()
	}
	if e.trace.until.Swap(until) != 0 || until != 0 {
		s.logger.LogAttrs(ctx, slog.LevelInfo, "tracing of custom code was switched", slog.String("instance", instance),
			slog.String("environment", string(env)), slog.Bool("on", until != 0))
	}
	return s.Tracing(instance, env)
}

// Tracing returns when the tracing of an environment's custom code ends, the zero time if it is off.
func (s *Service) Tracing(instance string, env j17.Environment) (time.Time, error) {
	e, err := s.environment(instance, env)
	if err != nil || !e.trace.on() {
		return time.Time{}, err
	}
	return time.Unix(0, e.trace.until.Load()).UTC().Truncate(time.Second), nil
}

// on reports whether calls are traced now.
func (t *trace) on() bool {
	until := t.until.Load()
	if until == 0 {
		return false
	}
	if t.clock.Now().UnixNano() < until {
		return true
	}
	t.until.CompareAndSwap(until, 0)
	return false
}

// function is custom code as passed to the engine.
type function struct {
	inner sandbox.Function
	// keep is the module that inner belongs to, nil if there is none.
	keep  *module
	trace *trace
	// at is the place in the spec that needs it.
	at diag.Pointer
}

// Digest identifies the code and the entry point.
func (f *function) Digest() [32]byte { return f.inner.Digest() }

// Call calls the code.
func (f *function) Call(ctx context.Context, input []byte) ([]byte, error) {
	defer runtime.KeepAlive(f.keep)
	if !f.trace.on() {
		return f.inner.Call(ctx, input)
	}
	stopwatch := clock.System{} // real durations, whatever the server's clock shows
	start := stopwatch.Now()
	output, err := f.inner.Call(ctx, input)
	attrs := []slog.Attr{
		slog.String("instance", f.trace.instance), slog.String("environment", string(f.trace.environment)),
		slog.String("pointer", string(f.at)),
		slog.Duration("duration", stopwatch.Now().Sub(start)), slog.String("input", cut(input)),
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
		if fault, ok := errors.AsType[*sandbox.Fault](err); ok && fault.Log != "" {
			attrs = append(attrs, slog.String("log", fault.Log))
		}
	} else {
		attrs = append(attrs, slog.String("output", cut(output)))
	}
	f.trace.logger.LogAttrs(ctx, slog.LevelInfo, "custom code was called", attrs...)
	return output, err
}

// cut returns the start of a text.
func cut(b []byte) string {
	if len(b) <= maxTraced {
		return strings.ToValidUTF8(string(b), "?")
	}
	const mark = " [cut]"
	return strings.ToValidUTF8(string(b[:maxTraced-len(mark)]), "") + mark
}
