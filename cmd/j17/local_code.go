package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/code/sandbox"
	"j17/internal/code/wasm"
	"j17/internal/core/decider"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
)

// localBlobs are files that stand for the blobs of an environment, as the values of a flag: NAME=FILE. The first file
// of a name is its version 1, the next one version 2.
type localBlobs []localBlob

type localBlob struct{ name, file string }

// flag declares --blob.
func (l *localBlobs) flag(f *pflag.FlagSet, usage string) {
	f.Var(l, "blob", usage+", `NAME=FILE`; can be given several times")
}

// Set adds one. Together with Type and String it makes a flag.
func (l *localBlobs) Set(text string) error {
	name, file, ok := strings.Cut(text, "=")
	if !ok || name == "" || file == "" {
		return errors.New("it does not have the form NAME=FILE")
	}
	*l = append(*l, localBlob{name, file})
	return nil
}

// Type returns the placeholder of the flag's value.
func (l *localBlobs) Type() string { return blobFlagType }

const blobFlagType = "NAME=FILE"

// String returns "", the value of a flag that was not given.
func (l *localBlobs) String() string { return "" }

// find returns the file of a version, or with 0 that of the latest.
func (l localBlobs) find(name string, version int) (string, bool) {
	file := ""
	for _, b := range l {
		if b.name == name {
			file = b.file
			if version--; version == 0 {
				break
			}
		}
	}
	return file, file != "" && version <= 0
}

// blobHint says how to run custom code that was not run.
const blobHint = "--blob NAME=FILE brings a WebAssembly module along"

// blobHelp is what the help of commands that try custom code says about it.
const blobHelp = `Custom code in WebAssembly runs where --blob NAME=FILE says which file is the module of that name; the second file of a name is its
version 2. Other code is not run, and code in containers never is.`

// hinted adds blobHint to warnings about code that was not run.
func hinted(c *spec.Compiled, found []diag.Diagnostic) []diag.Diagnostic {
	for _, u := range c.CodeUses() {
		for i := range found {
			if found[i].Pointer == u.Pointer && u.Runtime == spec.WASM {
				found[i].Hint = blobHint
			}
		}
	}
	return found
}

// localCode is the custom code of a spec from files.
type localCode struct {
	functions decider.Functions
	modules   map[string]*wasm.Module
}

// close frees the modules.
func (l *localCode) close(ctx context.Context) {
	for _, m := range l.modules {
		_ = m.Close(ctx) // the program ends anyway
	}
}

// loadCode compiles the modules that a spec names and that there are files of. Modules that cannot be used are reported
// with their places in the spec, all at once.
func loadCode(
	ctx context.Context, e *env, c *spec.Compiled, specName string, source []byte, blobs localBlobs,
) (*localCode, error) {
	l := &localCode{functions: decider.Functions{}, modules: map[string]*wasm.Module{}}
	if len(blobs) == 0 {
		return l, nil
	}
	rt, err := wasm.New(wasm.Options{Clock: clock.System{}})
	if err != nil {
		return nil, err
	}

	// A fault of one module does not keep the others from being checked.
	var bad []diag.Diagnostic
	for _, u := range c.CodeUses() {
		file, ok := blobs.find(u.Artifact, u.Version)
		if !ok || u.Runtime != spec.WASM {
			continue
		}
		f, err := l.function(ctx, e, rt, u, file)
		fault, ok := errors.AsType[*sandbox.Fault](err)
		switch {
		case ok:
			line, column := c.Position(u.Pointer)
			bad = append(bad, diag.Diagnostic{
				Pointer: u.Pointer, Line: line, Column: column, Hint: fault.Hint,
				Message: fmt.Sprintf("the module %s cannot be used: %s", fileName(file), fault.Detail),
			})
		case err != nil:
			l.close(ctx)
			return nil, err
		default:
			l.functions[u.Code] = f
		}
	}

	if len(bad) == 0 {
		return l, nil
	}
	l.close(ctx)
	if _, err := io.WriteString(e.err, diag.Render(specName, source, bad)); err != nil {
		return nil, err
	}
	return nil, silent{j17.Errorf(j17.CodeInvalidSpec, "Some modules cannot be used")}
}

// function returns the function of a use, and compiles its module if no other has needed it before.
func (l *localCode) function(
	ctx context.Context, e *env, rt *wasm.Runtime, u spec.CodeUse, file string,
) (sandbox.Function, error) {
	m := l.modules[file]
	if m == nil {
		binary, err := e.readAll(file, wasm.MaxBinary, "Leave out what the module does not need, and build with optimisation for size.")
		if err != nil {
			return nil, fmt.Errorf("%w. It is the custom code of %s in the spec", err, u.Pointer)
		}
		if m, err = rt.Compile(ctx, binary); err != nil {
			return nil, err
		}
		l.modules[file] = m
	}
	return m.Function(u.Entrypoint, cmp.Or(u.Timeout, wasm.DefaultTimeout))
}

// reportFault shows what the author of custom code can do about a fault of it; the error itself is reported by the
// caller.
func reportFault(e *env, err error) {
	fault, ok := errors.AsType[*sandbox.Fault](err)
	if !ok {
		return
	}
	if fault.Log != "" {
		e.note("The log of the code ends with:\n%s\n", fault.Log)
	}
	if fault.Hint != "" {
		e.note("%s\n", fault.Hint)
	}
}
