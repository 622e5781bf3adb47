package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
)

// output is standard output. It remembers that a write has failed, in case callers do not check, and what the command
// had changed by then: a user who reads only of a failure would repeat the change.
type output struct {
	w   io.Writer
	err error
	// written is true once something was written.
	written bool
	// done is what has been changed, as the beginning of a sentence, "" for nothing; hint says what to do where the
	// result could not be printed.
	done, hint string
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	o.written = o.written || n > 0
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// Unwrap returns the stream itself.
func (o *output) Unwrap() io.Writer { return o.w }

// verdict adds to the result of a command an error of its output that the result does not have.
func (o *output) verdict(err error) error {
	switch {
	case o.err == nil:
		return err
	case o.done == "" && err == nil:
		return o.err
	case o.done == "":
		return err
	}
	unprinted := fmt.Errorf("%s, but this could not be printed: %w", o.done, pathless(o.err))
	if o.hint != "" {
		unprinted = fmt.Errorf("%w. %s", unprinted, o.hint)
	}
	if err == nil || errors.Is(err, o.err) {
		return unprinted
	}
	return errors.Join(unprinted, err)
}

// lenientWriter is standard error. Its writes never fail, since there is nowhere to report that.
type lenientWriter struct{ w io.Writer }

// Write implements io.Writer.
func (l lenientWriter) Write(p []byte) (int, error) {
	if len(p) > 0 {
		_, _ = l.w.Write(p)
	}
	return len(p), nil
}

// Unwrap returns the stream itself.
func (l lenientWriter) Unwrap() io.Writer { return l.w }

// startChange declares that the command is about to change something. From here on it goes on even if the reader of its
// output is gone.
func (e *env) startChange() { keepOnWithoutReader() }

// reportChange declares that the command has changed something, with the beginning of a sentence such as "the key is
// revoked", which is used where the result cannot be printed.
func (e *env) reportChange(format string, args ...any) {
	keepOnWithoutReader()
	if o, ok := e.out.(*output); ok {
		o.done, o.hint = fmt.Sprintf(format, args...), ""
	}
}

// hintUnprinted says what to do about a change whose result could not be printed.
func (e *env) hintUnprinted(format string, args ...any) {
	if o, ok := e.out.(*output); ok {
		o.hint = fmt.Sprintf(format, args...)
	}
}

// streamOf returns the stream below what this package puts around it.
func streamOf(stream any) any {
	for {
		around, ok := stream.(interface{ Unwrap() io.Writer })
		if !ok {
			return stream
		}
		stream = around.Unwrap()
	}
}

// shown returns a text of several lines with everything that terminals obey spelled out: control characters, escape
// sequences, and marks that change the direction of text. All messages go through it, whatever they repeat of files and
// of servers; cells of tables, which have one line, go through plain.
func shown(s string) string {
	obeyed := func(c rune) bool { return c != '\n' && c != '\t' && !unicode.IsPrint(c) }
	if !strings.ContainsFunc(s, obeyed) {
		return s
	}
	var b strings.Builder
	for _, c := range s {
		if obeyed(c) {
			quoted := strconv.QuoteRuneToASCII(c)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// terminalErr is standard error for code that has to know how wide the terminal is.
func (e *env) terminalErr() io.Writer {
	if f, ok := streamOf(e.err).(*os.File); ok {
		return f
	}
	return e.err
}

// readable explains an error of the output, whose own text has only the name of a device.
func readable(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok && path.Op == "write" && path.Path == os.Stdout.Name() &&
		err.Error() == path.Error() {
		return fmt.Errorf("the output cannot be written: %w", path.Err)
	}
	return err
}
