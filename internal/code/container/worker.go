package container

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"j17/internal/code/sandbox"
)

// worker is a process that answers calls, one at a time.
type worker struct {
	function *function
	process  *process
	reader   *bufio.Reader
	answered int // calls

	idle time.Time // guarded by the function's mutex; zero while a call runs

	// Used by the watch only.
	baseline   time.Duration
	baselineAt time.Time
}

func (w *worker) idleSince() (time.Time, bool) {
	w.function.mu.Lock()
	defer w.function.mu.Unlock()
	return w.idle, !w.idle.IsZero()
}

// end kills the worker and waits until nothing is left of it.
func (w *worker) end(why killer) {
	w.process.end(why)
	w.process.close()
	r := w.function.runner
	r.mu.Lock()
	mine := r.workers[w]
	delete(r.workers, w)
	r.mu.Unlock()
	if mine {
		<-r.places
	}
}

// errOver is the cause of an answer that is larger than allowed.
var errOver = errors.New("the answer is too large")

// exchange writes one line, if there is one, and reads one. The worker is useless after an error.
func (w *worker) exchange(ctx context.Context, line []byte) ([]byte, error) {
	interrupted := context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		_, _ = w.process.in.SetDeadline(past), w.process.out.SetDeadline(past)
	})
	answer, err := w.transfer(line)
	if !interrupted() && err == nil {
		err = ctx.Err() // the deadline has been set, or is about to be
	}
	return answer, err
}

func (w *worker) transfer(line []byte) ([]byte, error) {
	if w.function.once {
		defer w.send(line)()
	} else if len(line) > 0 {
		if _, err := w.process.in.Write(line); err != nil && !errors.Is(err, syscall.EPIPE) {
			return nil, err
		}
	}
	var answer []byte
	for {
		part, err := w.reader.ReadSlice('\n')
		if len(answer)+len(part) > w.function.runner.opts.Output+1 {
			return nil, errOver
		}
		answer = append(answer, part...)
		switch {
		case err == nil && !w.function.once:
			return bytes.TrimRight(answer, "\r\n"), nil
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(answer) > 0 && w.function.once:
			return answer, nil
		default:
			return answer, err
		}
	}
}

// send writes the whole input of a worker that answers one call, while the worker may already be writing its answer.
// The worker need not read its input. The function returned gives up.
func (w *worker) send(line []byte) func() {
	in, done := w.process.in, make(chan struct{})
	go func() {
		defer close(done)
		_, _ = in.Write(line)
		_ = in.Close()
	}()
	return func() {
		_ = in.SetDeadline(time.Unix(1, 0))
		<-done
	}
}

// waits reports whether the worker can take a call.
func (w *worker) waits() bool {
	if !w.function.once {
		return w.quiet()
	}
	select {
	case <-w.process.done:
		return false
	default:
		return true // it may have begun with its answer
	}
}

// quiet reports whether the worker waits for a call: it has written nothing more and has not ended.
func (w *worker) quiet() bool {
	if w.reader.Buffered() > 0 {
		return false
	}
	raw, err := w.process.out.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	var one [1]byte
	err = raw.Read(func(fd uintptr) bool {
		_, err := syscall.Read(int(fd), one[:])
		quiet = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && quiet
}

// awaitEnd gives a worker that has closed its output the moment that it needs to end, and reports whether it has.
func (w *worker) awaitEnd(ctx context.Context) bool {
	if !w.function.once {
		moment, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		ctx = moment
	}
	select {
	case <-w.process.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// failure returns the error of a call that went wrong before or while the worker ended. The worker has ended.
func (w *worker) failure(ctx context.Context, err error, e *effort) error {
	p := w.process
	log := p.log.String()
	opts := w.function.runner.opts
	cause := context.Cause(ctx)
	switch {
	// The caller has gone, or the server ends.
	case cause != nil && !errors.Is(cause, errTimedOut) && !errors.Is(cause, errOverworked):
		return cause
	case w.function.runner.life.Err() != nil:
		return errClosed

	// Then the most certain reasons first.
	case p.oom, p.killedBy() == memoryWatch, w.function.kernelKilled(p), p.log.lacksMemory():
		return memoryFault(opts.Memory, log)
	case errors.Is(cause, errOverworked):
		return &sandbox.Fault{
			Kind: sandbox.Timeout, Detail: fmt.Sprintf("the call took more than %v of processor time", e.code),
			Hint: "Look for loops that do not end, or do less in one call.", Log: log,
		}
	case cause != nil, errors.Is(err, os.ErrDeadlineExceeded):
		detail, hint := "no answer came within %v", "Look for what the code waits for, or do less in one call."
		if w.function.once {
			detail, hint = "the program did not end within %v", "End the program after its answer, look for what it waits for, or do less in one call."
		}
		return &sandbox.Fault{Kind: sandbox.Timeout, Detail: fmt.Sprintf(detail, e.clock), Hint: hint, Log: log}
	case errors.Is(err, errOver):
		return &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: fmt.Sprintf("the answer is larger than %d bytes", opts.Output),
			Hint: "Answer with less, and write nothing but the answer to standard output.", Log: log,
		}

	// Nothing else is known: it ended.
	default:
		detail, hint := "the process ended by itself instead of answering", "Trace the calls to see what it wrote to standard error; keep the process running and write one line for each line read."
		if w.function.once {
			hint = "Trace the calls to see what it wrote to standard error; write the answer, one JSON text, to standard output, and end with status 0."
		}
		if code := exitCode(p.err); code != 0 {
			detail = fmt.Sprintf("the process ended with status %d instead of answering", code)
			if w.function.once {
				detail = fmt.Sprintf("the process ended with status %d", code)
			}
		}
		return &sandbox.Fault{Kind: sandbox.Exit, Detail: detail, Hint: hint, Log: log}
	}
}

func memoryFault(limit int64, log string) *sandbox.Fault {
	return &sandbox.Fault{
		Kind: sandbox.Memory, Detail: fmt.Sprintf("the process asked for more than its %d MiB of memory", limit>>20),
		Hint: "Hold less data at once.", Log: log,
	}
}

// lacksMemory recognizes what runtimes say when they run out of memory. The last sign is that of Go's collector
// crashing, which does not check whether it got the memory for its queues.
func lacksMemory(text string) bool {
	for _, sign := range []string{
		"heap out of memory", "MemoryError", "NoMemoryError", "failed to allocate memory", "annot allocate memory",
		"bad_alloc", "eheap_alloc", "out of memory", "cannot map pages", "cannot remap pages", "heap memory",
		"stack memory failed", "failed to reserve", "failed to create new OS thread", "Array buffer allocation failed",
		"SIGSEGV: segmentation violation\nPC=",
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// answer checks what a worker has written.
func (f *function) answer(line []byte, log *tail) ([]byte, error) {
	line = bytes.TrimSpace(line)
	if reason, failed := bytes.CutPrefix(line, []byte("!")); failed {
		var text string
		if json.Unmarshal(reason, &text) != nil {
			text = strings.ToValidUTF8(strings.TrimSpace(string(reason)), "\uFFFD")
		}
		if len(text) > tailSize {
			text = strings.ToValidUTF8(text[:tailSize], "") + " …"
		}
		if lacksMemory(text) {
			return nil, memoryFault(f.runner.opts.Memory, text)
		}
		return nil, &sandbox.Fault{
			Kind: sandbox.Trap, Detail: "the code failed: " + firstLine(text), Quotes: true,
			Hint: "Trace the calls to see the code's own account of it.", Log: text,
		}
	}
	if !json.Valid(line) {
		hint := "Write one line of JSON for each request to standard output, and everything else to standard error."
		if f.once {
			hint = "Write one JSON text to standard output, and everything else to standard error."
		}
		return nil, &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: "the answer is no JSON text", Hint: hint, Log: log.String(),
		}
	}
	return line, nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return strings.TrimRight(s, ". ")
}
