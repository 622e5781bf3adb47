package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// errInterrupted is the error of a command that the user has stopped.
var errInterrupted = errors.New("interrupted")

// interruptibleReader reads from another reader. Its reads end with the context, though those of the other may go on:
// nothing else can end a read of a terminal or a pipe.
type interruptibleReader struct {
	ctx context.Context //nolint:containedctx // io.Reader has no place for it
	in  io.Reader
	// buffer belongs to the read under way; rest is what was read and not yet returned.
	buffer []byte
	rest   []byte
	err    error
}

type readResult struct {
	n   int
	err error
}

// Read implements io.Reader.
func (r *interruptibleReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.rest) == 0 && r.err == nil {
		r.fill()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// fill reads in once.
func (r *interruptibleReader) fill() {
	if r.ctx.Err() != nil {
		r.err = errInterrupted
		return
	}
	if r.buffer == nil {
		r.buffer = make([]byte, 1<<16)
	}
	done := make(chan readResult, 1)
	go func() {
		n, err := r.in.Read(r.buffer)
		done <- readResult{n, err}
	}()
	select {
	case got := <-done:
		r.rest, r.err = r.buffer[:got.n], got.err
	case <-r.ctx.Done():
		r.err = errInterrupted
	}
}

// lateFile is a file that is opened when it is first read: opening a named pipe can take as long as reading it.
type lateFile struct {
	name string
	file *os.File
}

// Read implements io.Reader. At the end, or after an error, the file is closed.
func (f *lateFile) Read(p []byte) (int, error) {
	if f.file == nil {
		var err error
		if f.file, err = os.Open(f.name); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Read(p)
	if err != nil {
		_ = f.file.Close() // it was only read
	}
	return n, err
}

// keepOnWithoutReader makes writes to a pipe that has lost its reader return errors. Without it they end the program,
// which is right for commands that only print.
func keepOnWithoutReader() { signal.Ignore(syscall.SIGPIPE) }
