package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"j17/internal/server"
	"j17/internal/spec"
	"j17/internal/spec/diag"
)

// read returns the text of a spec, see readAll.
func (e *env) read(name string) ([]byte, error) { return e.readAll(name, spec.MaxSize+1) }

// readAll returns the content of a file, or up to limit bytes of standard input for "-"; 0 is no limit.
func (e *env) readAll(name string, limit int64) ([]byte, error) {
	var raw []byte
	var err error
	switch {
	case name != "-":
		raw, err = os.ReadFile(name) //nolint:gosec // the caller names the file
	case limit > 0:
		raw, err = io.ReadAll(io.LimitReader(e.in, limit))
	default:
		raw, err = io.ReadAll(e.in)
	}
	if path, ok := errors.AsType[*os.PathError](err); ok {
		err = path.Err
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return raw, nil
}

// compile reads and compiles a spec. Of a spec that is not valid everything is reported that is wrong with it; warnings
// are what "spec validate" is for.
func (e *env) compile(name string) (*spec.Compiled, []byte, error) {
	source, err := e.read(name)
	if err != nil {
		return nil, nil, err
	}
	var c *spec.Compiled
	envelope, found := spec.Unwrap(source)
	if len(found) == 0 {
		c, found = spec.Compile(envelope.Spec)
	}
	if c != nil {
		return c, source, nil
	}
	if _, err := io.WriteString(e.err, diag.Render(name, source, found)); err != nil {
		return nil, nil, err
	}
	return nil, nil, silent{server.ErrInvalidSpec}
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
