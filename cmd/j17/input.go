package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/server"
)

// read returns the text of a spec, see readAll.
func (e *env) read(name string) ([]byte, error) {
	raw, err := e.readText(name, spec.MaxSize, "Split the application into several instances, or move large constants into events.")
	if _, ok := errors.AsType[tooLarge](err); ok {
		return nil, notASpec{err}
	}
	if err == nil && len(bytes.TrimSpace(raw)) == 0 {
		return nil, notASpec{fmt.Errorf("%s is empty. 'j17 spec new' prints a spec to start from", fileName(name))}
	}
	return raw, err
}

// stdinOnce refuses a call in which several arguments or flags, given by name, are standard input.
func stdinOnce(named map[string]string) error {
	var from []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if named[name] == "-" {
			from = append(from, name)
		}
	}
	if len(from) < 2 {
		return nil
	}
	return usageError{fmt.Errorf("only one of %s can be standard input", strings.Join(from, " and "))}
}

// notASpec is the error of a file that cannot be a spec.
type notASpec struct{ error }

// Is makes it an invalid spec.
func (notASpec) Is(target error) bool { return target == server.ErrInvalidSpec }

// tooLarge is the error of a file of more bytes than are accepted.
type tooLarge struct{ error }

// readAll returns the content of a file, or of standard input for "-". One of more than limit bytes is refused; hint
// says what to do then.
func (e *env) readAll(name string, limit int64, hint string) ([]byte, error) {
	in := e.in
	if name != "-" {
		in = &lateFile{name: name}
	}
	raw, err := io.ReadAll(io.LimitReader(e.interruptible(in), limit+1))
	if err != nil {
		return nil, unreadable(name, err)
	}
	if int64(len(raw)) > limit {
		return nil, tooLarge{fmt.Errorf("%s is too large: it has more than %d MiB. %s", fileName(name), limit>>20, hint)}
	}
	return raw, nil
}

// readText is readAll for a text in UTF-8, without the byte order mark that it may start with.
func (e *env) readText(name string, limit int64, hint string) ([]byte, error) {
	raw, err := e.readAll(name, limit, hint)
	if err != nil {
		return nil, err
	}
	if isUTF16(raw) {
		if name == "-" {
			name = "standard input"
		}
		return nil, j17.Errorf(j17.CodeSchemaViolation, "%s is in UTF-16: save it as UTF-8", fileName(name))
	}
	return bytes.TrimPrefix(raw, []byte("\uFEFF")), nil
}

// notUTF16 is the error of an open file that is in UTF-16.
func notUTF16(f io.ReaderAt, name string) error {
	var head [64]byte
	if n, _ := f.ReadAt(head[:], 0); isUTF16(head[:n&^1]) {
		return j17.Errorf(j17.CodeSchemaViolation, "%s is in UTF-16: save it as UTF-8", fileName(name))
	}
	return nil
}

// isUTF16 reports whether a text that starts with ASCII, or with a byte order mark, is in UTF-16.
func isUTF16(raw []byte) bool {
	if len(raw) < 2 {
		return false
	}
	a, b := raw[0], raw[1]
	return a == 0xFF && b == 0xFE || a == 0xFE && b == 0xFF ||
		len(raw)%2 == 0 && (a == 0) != (b == 0) && a|b < utf8.RuneSelf
}

// unreadable is the error of a file that cannot be read.
func unreadable(name string, err error) error {
	if errors.Is(err, errInterrupted) {
		return errInterrupted
	}
	if name == "-" {
		name = "standard input"
	}
	return fmt.Errorf("cannot read %s: %w", fileName(name), pathless(err))
}

// pathless is an error of the system without the name of its file, which the message has already.
func pathless(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err
	}
	return err
}

// fileName is the name of a file for messages: in quotes where it is empty or has characters that are not to be seen.
func fileName(name string) string {
	if name == "" ||
		strings.ContainsFunc(name, func(c rune) bool { return c == utf8.RuneError || !unicode.IsPrint(c) }) {
		return strconv.Quote(name)
	}
	return name
}

// compile reads and compiles a spec. It reports everything that makes a spec invalid; warnings are left to "spec
// validate".
func (e *env) compile(name string) (*spec.Compiled, []byte, error) {
	source, err := e.read(name)
	if err != nil {
		return nil, nil, err
	}
	var c *spec.Compiled
	envelope, found := spec.Unwrap(source)
	if len(found) == 0 {
		c, found = lint.Compile(envelope.Spec)
	}
	if c != nil {
		return c, source, nil
	}
	return nil, nil, e.invalidFile(name, source, found, server.ErrInvalidSpec.Error())
}

// printJSON prints a value on one line.
func (e *env) printJSON(v any) error {
	enc := json.NewEncoder(e.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// specThenEvents completes a spec file, and a file of events after it.
func specThenEvents(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return []string{"json", "jsonl", "ndjson"}, cobra.ShellCompDirectiveFilterFileExt
}

// jsonFiles completes files of JSON.
func jsonFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
}
