package container

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"syscall"
	"time"

	"j17/internal/base/panics"
	"j17/internal/code/sandbox"
)

// function is one entry point with its workers.
type function struct {
	runner *Runner
	job    *job
	digest [sha256.Size]byte
	once   bool // a worker answers one call, at the end of its input
	greets bool // a worker announces by a first line that it is ready

	slots chan struct{} // one for each worker that starts or answers

	mu       sync.Mutex
	idle     []*worker // the one used last is at the end
	failures int       // workers in a row that ended without an answer
	resume   time.Time // no worker starts before
}

func (r *Runner) function(j *job, names ...string) *function {
	hash := sha256.New()
	for _, part := range names {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	f := &function{runner: r, job: j, slots: make(chan struct{}, r.opts.Workers)}
	hash.Sum(f.digest[:0])
	return f
}

// holds ties the content that a function runs to the function: it is released once nothing refers to the function.
func (f *function) holds(release func()) {
	runtime.AddCleanup(f, func(release func()) { release() }, release)
}

// Digest identifies the code and the entry point.
func (f *function) Digest() [sha256.Size]byte { return f.digest }

// errTimedOut is the cause of a context that ends with the time of a call.
var errTimedOut = errors.New("the time of the call is over")

// Call passes one request to a worker. Where a worker has ended by itself between calls, another one answers. Where
// workers answer one call each, the worker of the next call is started once the answer is known.
func (f *function) Call(ctx context.Context, input []byte) ([]byte, error) {
	line, err := oneLineJSON(input)
	if err != nil {
		return nil, err
	}
	if err := f.slot(ctx); err != nil {
		return nil, err
	}
	for {
		w, err := f.worker(ctx)
		if err != nil {
			f.free()
			return nil, err
		}
		answer, err := f.call(ctx, w, line)
		if errors.Is(err, errLeft) {
			continue
		}
		if f.once && sound(err) {
			f.startAhead()
		} else {
			f.free()
		}
		return answer, err
	}
}

// slot waits for a slot, which every process that starts or answers needs.
func (f *function) slot(ctx context.Context) error {
	select {
	case f.slots <- struct{}{}:
		return nil
	default:
	}
	waiting, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	select {
	case f.slots <- struct{}{}:
		return nil
	case <-f.runner.life.Done():
		return errClosed
	case <-waiting.Done():
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &sandbox.Fault{
			Kind: sandbox.Busy, Detail: fmt.Sprintf("all %d workers were busy with other calls for %v", f.runner.opts.Workers, busyTimeout),
			Hint: "Try again; if it happens often, make the calls shorter.",
		}
	}
}

func (f *function) free() { <-f.slots }

// startAhead starts the worker of a later call in the background. It gives back the caller's slot when it is done, so
// that waiting and working workers together never exceed the slots.
func (f *function) startAhead() {
	if !f.runner.begin() {
		f.free()
		return
	}
	go func() {
		defer f.runner.running.Done()
		defer f.free()
		if !f.runner.tryPlace() {
			return
		}
		_ = panics.Logged(f.runner.life, f.runner.opts.Logger, "starting a container ahead", func() error {
			w, err := f.startIn(f.runner.life)
			if err == nil {
				f.keep(w)
			}
			return err // the next call gets the same error
		})
	}()
}

// oneLineJSON returns a JSON text as a line.
func oneLineJSON(input []byte) ([]byte, error) {
	if bytes.ContainsAny(input, "\n\r") {
		var compact bytes.Buffer
		if err := json.Compact(&compact, input); err != nil {
			return nil, fmt.Errorf("the request is no JSON text: %w", err)
		}
		input = compact.Bytes()
	}
	return append(append(make([]byte, 0, len(input)+1), input...), '\n'), nil
}

// worker returns a waiting worker, or starts one.
func (f *function) worker(ctx context.Context) (*worker, error) {
	for {
		var w *worker
		f.mu.Lock()
		if n := len(f.idle); n > 0 {
			w = f.idle[n-1]
			f.idle = f.idle[:n-1]
			w.idle = time.Time{}
		}
		f.mu.Unlock()
		if w == nil {
			return f.startWorker(ctx)
		}
		if w.waits() {
			return w, nil
		}
		w.end(caller)
	}
}

// take removes a worker from the waiting ones; false means that it was not among them.
func (f *function) take(w *worker) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.idle {
		if f.idle[i] == w {
			f.idle = append(f.idle[:i], f.idle[i+1:]...)
			w.idle = time.Time{}
			return true
		}
	}
	return false
}

const (
	freeFailures = 3 // workers that may fail in a row before the next one has to wait
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
)

// failed counts a worker that ended without an answer.
func (f *function) failed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failures++; f.failures >= freeFailures {
		pause := longestPause
		if shift := f.failures - freeFailures; shift < 16 {
			pause = min(pause, firstPause<<shift)
		}
		f.resume = f.runner.opts.Clock.Now().Add(pause)
	}
}

// startWorker waits for a place and starts a worker there.
func (f *function) startWorker(ctx context.Context) (*worker, error) {
	if err := f.runner.place(ctx); err != nil {
		return nil, err
	}
	return f.startIn(ctx)
}

// pause returns how many workers in a row have ended without an answer, and how long the next one has to wait for that
// reason.
func (f *function) pause() (failures int, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failures, f.resume.Sub(f.runner.opts.Clock.Now())
}

// startIn starts a worker in a place that the caller has taken.
func (f *function) startIn(ctx context.Context) (*worker, error) {
	used := false
	defer func() {
		if !used {
			<-f.runner.places
		}
	}()

	// Code that keeps ending is not started again at once.
	failures, wait := f.pause()
	if failures >= freeFailures && wait > 0 {
		return nil, &sandbox.Fault{
			Kind: sandbox.Start, Detail: fmt.Sprintf("the last %d workers ended without an answer; the next one starts in %v", failures, wait.Round(time.Millisecond)),
			Hint: "See the faults before this one, and correct the code.",
		}
	}

	p, err := f.runner.spawn(f.job)
	if errors.Is(err, errClosed) || ctx.Err() != nil {
		if p != nil {
			p.end(caller)
		}
		return nil, errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		f.failed()
		return nil, &sandbox.Fault{Kind: sandbox.Start, Detail: "the process could not be started: " + err.Error(), Hint: "This is for the operator of the server: see whether the container driver works."}
	}

	// From here on the worker has the place.
	w := &worker{function: f, process: p, reader: bufio.NewReaderSize(p.out, 64<<10), baseline: -1}
	f.runner.mu.Lock()
	f.runner.workers[w] = true
	f.runner.mu.Unlock()
	used = true // until the worker ends

	// Source code reports when it is loaded.
	if !f.greets {
		return w, nil
	}
	starting, cancel := context.WithTimeoutCause(ctx, startTimeout, errTimedOut)
	defer cancel()
	greeting, err := w.exchange(starting, nil)
	if err == nil && string(greeting) == ready {
		return w, nil
	}

	// It did not, and the fault says why.
	w.end(caller)
	f.failed()
	if err == nil {
		_, err = f.answer(greeting, p.log)
	} else {
		err = w.failure(starting, err, &effort{clock: startTimeout})
	}
	var fault *sandbox.Fault
	if errors.As(err, &fault) && fault.Kind != sandbox.Memory {
		if fault.Kind == sandbox.Timeout {
			fault.Detail = fmt.Sprintf("the code was not loaded within %v", startTimeout)
		}
		fault.Kind = sandbox.Start
	}
	if err == nil {
		err = &sandbox.Fault{Kind: sandbox.Start, Detail: "the code wrote to standard output while it was loaded", Hint: "Write to standard error instead."}
	}
	return nil, err
}

// ready is the first line of a worker that has loaded the author's file.
const ready = `"ready"`

// errLeft is the cause of a call that its worker never saw, because the worker ended after the call before.
var errLeft = errors.New("the worker has left")

// call runs one call on a worker and then keeps or ends the worker.
func (f *function) call(ctx context.Context, w *worker, line []byte) ([]byte, error) {
	allowed, err := sandbox.Allow(ctx, f.runner.opts.Timeout)
	if err != nil {
		f.keep(w)
		return nil, err
	}
	timed, e := w.begin(ctx, allowed)
	defer e.stop(nil)
	answer, err := f.exchange(timed, w, line, e)
	allowed.Spend(e.spent, len(line)+len(answer))
	if fault, ok := errors.AsType[*sandbox.Fault](err); ok && fault.Kind == sandbox.Timeout {
		err = allowed.Over(fault)
	}
	return answer, err
}

// exchange runs the call within its allowance.
func (f *function) exchange(timed context.Context, w *worker, line []byte, e *effort) ([]byte, error) {
	said, err := w.exchange(timed, line)
	ended := errors.Is(err, io.EOF) || f.once && err == nil
	if ended && !w.awaitEnd(timed) && f.once {
		err = context.Cause(timed)
	}

	// The time counts, whatever the answer.
	if e.spent = e.used(); err == nil && e.measured && e.spent > e.code {
		e.stop(errOverworked)
		err = errOverworked
	}

	// A worker that has failed is not used again.
	if err != nil || ended && exitCode(w.process.err) != 0 {
		w.end(caller)
		if ended && len(said) == 0 && w.answered > 0 && w.process.killedBy() == itself && w.process.err == nil {
			return nil, errLeft
		}
		err = w.failure(timed, err, e)
		if fault := (*sandbox.Fault)(nil); errors.As(err, &fault) {
			f.failed()
		}
		return nil, err
	}

	// Nor is a worker whose answer is not sound, or that writes more than its answer.
	w.answered++
	answer, err := f.answer(said, w.process.log)
	broken := !sound(err)
	if broken || f.once || w.reader.Buffered() > 0 {
		w.end(caller)
		if broken {
			f.failed()
		}
	} else {
		f.keep(w)
	}
	if !broken {
		f.mu.Lock()
		f.failures = 0
		f.mu.Unlock()
	}
	return answer, err
}

// sound reports whether the outcome of a call shows that the code works, even if it refused the request.
func sound(err error) bool {
	fault, ok := errors.AsType[*sandbox.Fault](err)
	return err == nil || ok && fault.Kind == sandbox.Trap
}

// keep makes a worker wait for the next call, or ends it where other functions wait for its place.
func (f *function) keep(w *worker) {
	f.mu.Lock()
	w.idle = f.runner.opts.Clock.Now()
	f.idle = append(f.idle, w)
	f.mu.Unlock()
	if f.runner.wanting.Load() > 0 && f.take(w) {
		w.end(caller)
	}
}

// kernelKilled reports whether the kernel has killed the process for its memory, as far as its status shows. It matters
// with drivers that leave the control groups to another program.
func (f *function) kernelKilled(p *process) bool {
	const killed = 128 + int(syscall.SIGKILL)
	return f.runner.opts.Driver != Bubblewrap && p.killedBy() == itself && exitCode(p.err) == killed
}
