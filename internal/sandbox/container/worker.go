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

	"j17/internal/sandbox"
)

// worker is a process that answers calls, one at a time.
type worker struct {
	function *function
	process  *process
	reader   *bufio.Reader
	answered int // calls

	idle time.Time // guarded by the function's mutex; zero while a call runs

	// Of the watch alone.
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
	delete(r.workers, w)
	r.mu.Unlock()
}

// errOver is the cause of an answer that is larger than allowed.
var errOver = errors.New("the answer is too large")

// exchange writes one line, if there is one, and reads one. The worker is of no more use after an error.
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
	if len(line) > 0 {
		if _, err := w.process.in.Write(line); err != nil && !errors.Is(err, syscall.EPIPE) {
			return nil, err
		}
	}
	if w.function.once {
		_ = w.process.in.Close()
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

// quiet tells whether the worker waits for a call: it has written nothing more and has not ended.
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

// awaitEnd gives a worker that has closed its output the moment that it needs to end.
func (w *worker) awaitEnd(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	select {
	case <-w.process.done:
	case <-ctx.Done():
	}
}

// failure turns what went wrong with a call, before or while the worker ended, into the error of the call. The worker
// has ended.
func (w *worker) failure(ctx context.Context, err error) error {
	p := w.process
	log := p.log.String()
	opts := w.function.runner.opts
	cause := context.Cause(ctx)
	switch {
	case cause != nil && !errors.Is(cause, errTimedOut):
		return cause
	case w.function.runner.life.Err() != nil:
		return errClosed
	case p.oom, p.killedBy() == memoryWatch, w.function.kernelKilled(p), p.log.lacksMemory():
		return memoryFault(opts.Memory, log)
	case cause != nil, errors.Is(err, os.ErrDeadlineExceeded):
		return &sandbox.Fault{
			Kind: sandbox.Timeout, Detail: fmt.Sprintf("no answer came within %v", opts.Timeout),
			Hint: "Look for loops that do not end, or do less in one call.", Log: log,
		}
	case errors.Is(err, errOver):
		return &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: fmt.Sprintf("the answer is larger than %d bytes", opts.Output),
			Hint: "Answer with less, and write nothing but the answer to standard output.", Log: log,
		}
	default:
		detail := fmt.Sprintf("the process ended with status %d instead of answering", exitCode(p.err))
		if p.err == nil {
			detail = "the process ended by itself instead of answering"
		}
		return &sandbox.Fault{Kind: sandbox.Exit, Detail: detail, Hint: "See the log for what it wrote to standard error; keep the process running and write one line for each line read.", Log: log}
	}
}

func memoryFault(limit int64, log string) *sandbox.Fault {
	return &sandbox.Fault{
		Kind: sandbox.Memory, Detail: fmt.Sprintf("the process asked for more than its %d MiB of memory", limit>>20),
		Hint: "Hold less data at once.", Log: log,
	}
}

// lacksMemory recognizes what runtimes say when they run out of memory.
func lacksMemory(text string) bool {
	for _, sign := range []string{
		"heap out of memory", "MemoryError", "NoMemoryError", "failed to allocate memory", "annot allocate memory",
		"bad_alloc", "eheap_alloc", "out of memory", "cannot map pages", "failed to reserve", "failed to create new OS thread", "Array buffer allocation failed",
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// answer checks a line that a worker has written.
func (f *function) answer(line []byte, log *tail) ([]byte, error) {
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
			Kind: sandbox.Trap, Detail: "the code failed: " + firstLine(text),
			Hint: "The log has the code's own account of it.", Log: text,
		}
	}
	if !json.Valid(line) {
		return nil, &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: "the answer is no JSON text",
			Hint: "Write one line of JSON for each request to standard output, and everything else to standard error.", Log: log.String(),
		}
	}
	return line, nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return strings.TrimRight(s, ". ")
}
