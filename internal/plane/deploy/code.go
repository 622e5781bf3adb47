package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"j17"
	"j17/internal/base/value"
	"j17/internal/code/sandbox"
	"j17/internal/core/decider"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/plane/blob"
)

// Modules compiles WebAssembly.
type Modules interface {
	// Compile reads a module. The error is a *j17.Error, or a *sandbox.Fault if the module is at fault.
	Compile(ctx context.Context, binary []byte) (Module, error)
}

// Module is a compiled WebAssembly module.
type Module interface {
	// Entrypoints lists the exported functions that can be called.
	Entrypoints() []string
	// Function returns one of them with its time limit. The error is a *sandbox.Fault if there is none.
	Function(entrypoint string, timeout time.Duration) (sandbox.Function, error)
	// Bytes is how much memory the module takes while it is deployed.
	Bytes() int64
	// Close releases the module, which nothing calls any longer.
	Close() error
}

// Containers runs code in containers. Errors are *j17.Errors, or *sandbox.Faults if the upload or the machine's
// configuration is at fault.
type Containers interface {
	// Image returns the function of an image: of the uploaded archive, or if that is nil of the image that the server's
	// machine has under the reference.
	Image(ctx context.Context, reference string, archive *Archive) (sandbox.Function, error)
	// Source returns the function in a file of uploaded source code.
	Source(ctx context.Context, runtime, file string, archive *Archive) (sandbox.Function, error)
}

// Archive is an uploaded file that containers are made from.
type Archive struct {
	// SHA256 is the hash of the content in lower-case hexadecimal.
	SHA256 string
	Size   int64
	// Open returns the content from its start.
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// code is the custom code of a deployed spec.
type code struct {
	functions decider.Functions
	bindings  []binding
	// large reports that the modules take more memory than they may; not all of them were loaded then.
	large bool
}

// binding is a place in a spec that uses a blob.
type binding struct {
	// use points to the value that needs the blob, at to the text that names it.
	use, at diag.Pointer
	name    string
	// pinned is the version that the spec names, 0 for the latest.
	pinned int
	// version is the one in use, 0 if there is none.
	version int
}

// use is a place in a spec that needs custom code.
type use struct {
	code *spec.Code
	// at points to what names the code: a string or an object.
	at diag.Pointer
}

// kindOf returns the key under which a spec names code of a runtime.
func kindOf(r spec.Runtime) string {
	switch r {
	case spec.WASM:
		return "wasm"
	case spec.BinaryContainer:
		return "binary_container"
	case spec.NodeContainer, spec.ElixirContainer, spec.RubyContainer, spec.PythonContainer:
		return "runtime_container"
	default:
		return ""
	}
}

// defaultTimeout is how long a call may take unless the spec sets it.
const defaultTimeout = 100 * time.Millisecond

// imagePrefix starts the name of an image that was uploaded as a blob.
const imagePrefix = "blob:"

// RuntimeBlob returns the name of the blob that holds the source code for a runtime ("node", "python", "ruby",
// "elixir"): specs name files in it rather than the blob.
func RuntimeBlob(runtime string) string { return "runtime-" + runtime }

// blobOf returns the blob that a use needs and the version it is pinned to, 0 for the latest. It reports false for code
// that comes from elsewhere.
func (u use) blobOf() (name string, version int, ok bool) {
	switch u.code.Runtime {
	case spec.WASM:
		return u.code.Artifact, u.code.Version, true
	case spec.BinaryContainer:
		rest, ok := strings.CutPrefix(u.code.Artifact, imagePrefix)
		name, pin, pinned := strings.Cut(rest, ":v")
		if pinned {
			// A pin that is not a number matches no version.
			if version, _ = strconv.Atoi(pin); version < 1 {
				version = -1
			}
		}
		return name, version, ok
	case spec.NodeContainer, spec.ElixirContainer, spec.RubyContainer, spec.PythonContainer:
		return RuntimeBlob(string(u.code.Runtime)), 0, true
	default:
		return "", 0, false
	}
}

// loader loads the custom code of one spec.
type loader struct {
	s *Service
	e *environment
	c *spec.Compiled
	// new, if not nil, is used as the latest version of its blob.
	new *blob.Upload
	// list collects findings about missing code.
	list diag.List
	// modules holds those that were compiled for this spec, by hash, so that they live until it is deployed. bytes is
	// their memory, most its limit.
	modules     map[string]*module
	bytes, most int64
	// root is the parsed text of the spec, to find places in it.
	root value.Value
}

// maxModules is how many bytes of memory the modules of a spec may take together, beside their machine code, to be
// deployed.
const maxModules = 512 << 20

// load makes functions from all custom code of a spec, whose modules may take most bytes. new, if not nil, is used as
// the latest version of its blob. Code that cannot be loaded is returned as missing, with its place in the spec; the
// caller has to check the context for errors.
func (s *Service) load(
	ctx context.Context, e *environment, c *spec.Compiled, new *blob.Upload, most int64,
) (*code, []diag.Diagnostic) {
	l := loader{s: s, e: e, c: c, new: new, modules: map[string]*module{}, most: most}
	loaded := &code{}
	for _, needed := range c.CodeUses() {
		u := use{needed.Code, needed.Pointer.Key(kindOf(needed.Runtime))}
		f, b := l.function(ctx, u)
		if f != nil {
			if loaded.functions == nil {
				loaded.functions = decider.Functions{}
			}
			loaded.functions[u.code] = f
		}
		if b.name != "" {
			loaded.bindings = append(loaded.bindings, b)
		}
	}
	loaded.large = l.bytes > l.most
	missing := l.list.All()
	for i := range missing {
		missing[i].Line, missing[i].Column = c.Position(missing[i].Pointer)
	}
	slices.SortStableFunc(missing, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return loaded, missing
}

// function makes the function of one use, nil if it cannot.
func (l *loader) function(ctx context.Context, u use) (sandbox.Function, binding) {
	b := binding{use: u.at, at: u.at}
	name, version, needsBlob := u.blobOf()
	if needsBlob {
		b.at, b.name, b.pinned = l.nameOf(u), name, version
	}
	if u.code.Runtime != spec.WASM && l.s.containers == nil {
		l.list.Errorf(u.at, "containers are switched off on this server").
			Hintf("its operator can switch them on with the flag --containers of 'j17 serve' and 'j17 dev', or use WebAssembly")
		return nil, b
	}
	if u.code.Runtime == spec.WASM && l.s.modules.compiler == nil {
		l.list.Errorf(u.at, "this server cannot run WebAssembly")
		return nil, b
	}
	var found blob.Blob
	if needsBlob {
		var ok bool
		if found, ok = l.find(ctx, &b); !ok {
			return nil, b
		}
	}
	inner, keep, err := l.make(ctx, u, b, found)
	if err != nil {
		l.refused(ctx, b, err)
		return nil, b
	}
	if inner == nil {
		return nil, b
	}
	return &function{inner: inner, keep: keep, trace: &l.e.trace, at: u.at}, b
}

// nameOf returns the pointer to the text that names the blob of a use.
func (l *loader) nameOf(u use) diag.Pointer {
	switch u.code.Runtime {
	case spec.WASM:
		if l.root.IsMissing() {
			l.root, _ = value.ParseString(string(l.c.Source)) // it was compiled
		}
		v := l.root
		for _, step := range u.at.Steps() {
			if i, err := strconv.Atoi(step); err == nil && v.Kind() == value.Array {
				v = v.Index(i)
			} else {
				v = v.Get(step)
			}
		}
		if v.Kind() == value.Object {
			return u.at.Key("blob_name")
		}
		return u.at
	case spec.BinaryContainer:
		return u.at.Key("image")
	case spec.NodeContainer, spec.ElixirContainer, spec.RubyContainer, spec.PythonContainer:
		return u.at.Key("runtime")
	default:
		return u.at
	}
}

// find looks up the blob of a binding.
func (l *loader) find(ctx context.Context, b *binding) (blob.Blob, bool) {
	// The blob that is uploaded with this deployment, or a stored one.
	if l.new != nil && l.new.Name() == b.name && b.pinned == 0 {
		return l.new.Blob(), true
	}
	found, err := l.s.blobs.Find(ctx, l.e.tenant, b.name, b.pinned)
	switch {
	case err == nil:
		b.version = found.Version
		return found, true
	case !isNotFound(err):
		l.refused(ctx, *b, err)
		return blob.Blob{}, false
	}

	// The finding says what is missing, and suggests what may have been meant.
	d := l.list.Errorf(b.at, "there is no blob %s in %s", diag.Quote(b.name), l.e.env.LongName())
	if b.pinned != 0 {
		if latest, err := l.s.blobs.Find(ctx, l.e.tenant, b.name, 0); err == nil {
			d.Message = "the blob " + diag.Quote(b.name) + " has no such version in " + l.e.env.LongName()
			d.Hintf("the latest is v%d", latest.Version)
			return blob.Blob{}, false
		}
	}
	if all, err := l.s.blobs.List(ctx, l.e.tenant, 0, listedForHints); err == nil {
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Name
		}
		if near := diag.Nearest(b.name, names); near != "" {
			d.Hintf("did you mean %q?", near)
			return blob.Blob{}, false
		}
	}
	// Prod is named as well: a variable or the context may direct commands to another environment.
	d.Hintf("upload it first, to this environment: 'j17 blobs put FILE %s --env %s', or POST /_admin/blobs", b.name, l.e.env)
	return blob.Blob{}, false
}

// listedForHints is how many blobs are searched for a similar name.
const listedForHints = 200

// make makes the function of a use from its blob. keep must live as long as the function.
func (l *loader) make(
	ctx context.Context, u use, b binding, found blob.Blob,
) (_ sandbox.Function, keep *module, _ error) {
	switch u.code.Runtime {
	case spec.WASM:
		m, err := l.module(ctx, b, found)
		if err != nil {
			return nil, nil, err
		}
		f, err := m.Function(u.code.Entrypoint, cmp.Or(u.code.Timeout, defaultTimeout))
		if fault, ok := errors.AsType[*sandbox.Fault](err); ok {
			l.noFunction(u, b, fault, m.Entrypoints())
			return nil, nil, nil
		}
		return f, m, err
	case spec.BinaryContainer:
		if b.name == "" {
			f, err := l.s.containers.Image(ctx, u.code.Artifact, nil)
			return f, nil, err
		}
		f, err := l.s.containers.Image(ctx, u.code.Artifact, l.archive(b, found))
		return f, nil, err
	case spec.NodeContainer, spec.ElixirContainer, spec.RubyContainer, spec.PythonContainer:
		f, err := l.s.containers.Source(ctx, string(u.code.Runtime), u.code.Entrypoint, l.archive(b, found))
		return f, nil, err
	default:
		return nil, nil, errors.New("this version of the program does not know the runtime")
	}
}

// module compiles the module of a blob.
func (l *loader) module(ctx context.Context, b binding, found blob.Blob) (*module, error) {
	if m := l.modules[found.SHA256]; m != nil {
		return m, nil
	}
	if l.bytes > l.most {
		return nil, tooLarge(l.most)
	}
	release, err := l.s.modules.turn(ctx, l.e.instance)
	if err != nil {
		return nil, err
	}
	defer release()
	m, err := l.s.modules.get(ctx, found.SHA256, func() ([]byte, error) {
		if b.version == 0 {
			return l.new.Bytes(ctx)
		}
		_, content, err := l.s.blobs.Bytes(ctx, l.e.tenant, b.name, b.version)
		return content, err
	})
	if err != nil {
		return nil, err
	}
	l.modules[found.SHA256] = m
	if l.bytes += m.Bytes(); l.bytes > l.most {
		return nil, tooLarge(l.most)
	}
	return m, nil
}

// tooLarge is the fault of a module that would exceed the memory of all modules.
func tooLarge(most int64) error {
	return &sandbox.Fault{
		Kind: sandbox.Start, Detail: fmt.Sprintf("the modules of this spec take more than the %d MiB of memory that they may together", most>>20),
		Hint: "Let the modules keep less in memory when they are started, or put what several of them share into one module with several entry points.",
	}
}

// archive returns the content of a blob as an archive for containers.
func (l *loader) archive(b binding, found blob.Blob) *Archive {
	blobs, tenant, new := l.s.blobs, l.e.tenant, l.new
	return &Archive{SHA256: found.SHA256, Size: found.Size, Open: func(ctx context.Context) (io.ReadCloser, error) {
		if b.version == 0 {
			return newReader(new.Chunks(ctx)), nil
		}
		_, chunks, err := blobs.Open(ctx, tenant, b.name, b.version)
		if err != nil {
			return nil, err
		}
		return newReader(chunks), nil
	}}
}

// noFunction reports that a module does not have the required function.
func (l *loader) noFunction(u use, b binding, fault *sandbox.Fault, known []string) {
	d := l.list.Errorf(u.at, "the blob %s cannot be used: %s", diag.Quote(b.name), fault.Detail)
	d.Hint = strings.TrimSuffix(fault.Hint, ".")
	if near := diag.Nearest(u.code.Entrypoint, known); near != "" && near != u.code.Entrypoint {
		d.Hintf("did you mean %q?", near)
	}
}

// refused reports that no function could be made.
func (l *loader) refused(ctx context.Context, b binding, err error) {
	d := l.list.Errorf(b.at, "it cannot be loaded")
	if b.name != "" {
		d.Message = "the blob " + diag.Quote(b.name) + " cannot be loaded"
	}
	fault, isFault := errors.AsType[*sandbox.Fault](err)
	public, isPublic := errors.AsType[*j17.Error](err)
	switch {
	case isPublic: // it may have a fault as its cause, and says more
		d.Message += ": " + strings.TrimSuffix(public.Message, ".")
	case isFault:
		d.Message += ": " + fault.Detail
		d.Hint = strings.TrimSuffix(fault.Hint, ".")
	case ctx.Err() == nil:
		d.Hintf("it is no fault of yours: the server's log says more")
		l.s.logger.LogAttrs(ctx, slog.LevelError, "custom code cannot be loaded",
			slog.String("tenant", string(l.e.tenant)),
			slog.String("pointer", string(b.use)), slog.Any("error", err))
	}
}

// moduleCache compiles every module once for as long as any deployed spec uses it. It does not keep modules alive: the
// functions that may call them do, and a module is closed when the last of these is gone.
type moduleCache struct {
	compiler Modules
	mu       sync.Mutex
	compiled map[string]weak.Pointer[module] // by SHA-256
	// turns has an entry for each instance that compiles or waits to, with the number of these users.
	turns map[string]*turn
}

// turn lets an instance compile one module at a time, so that however many it has, another instance waits for at most
// one of them.
type turn struct {
	place chan struct{}
	users int // guarded by the cache's mutex
}

// turn waits for the instance's turn. The caller ends it by calling release.
func (c *moduleCache) turn(ctx context.Context, instance string) (release func(), err error) {
	c.mu.Lock()
	t := c.turns[instance]
	if t == nil {
		t = &turn{place: make(chan struct{}, 1)}
		c.turns[instance] = t
	}
	t.users++
	c.mu.Unlock()
	leave := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(c.turns, instance)
		}
	}
	select {
	case t.place <- struct{}{}:
		return func() { <-t.place; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// module is a compiled module that is closed when nothing refers to it any longer.
type module struct{ Module }

func newModuleCache(compiler Modules) *moduleCache {
	return &moduleCache{compiler: compiler, compiled: map[string]weak.Pointer[module]{}, turns: map[string]*turn{}}
}

// get returns the module with that hash. If there is none, it compiles the result of read.
func (c *moduleCache) get(ctx context.Context, hash string, read func() ([]byte, error)) (*module, error) {
	if m := c.lookUp(hash); m != nil {
		return m, nil
	}
	binary, err := read()
	if err != nil {
		return nil, err
	}
	inner, err := c.compiler.Compile(ctx, binary)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.compiled[hash].Value(); m != nil {
		return m, inner.Close() // another environment was faster
	}
	m := &module{inner}
	runtime.AddCleanup(m, func(inner Module) { _ = inner.Close() }, inner)
	c.compiled[hash] = weak.Make(m)
	return m, nil
}

// lookUp returns a module that is in use, and removes those that no longer are.
func (c *moduleCache) lookUp(hash string) *module {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.compiled, func(_ string, p weak.Pointer[module]) bool { return p.Value() == nil })
	return c.compiled[hash].Value()
}

// reader reads the pieces of a blob.
type reader struct {
	next func() ([]byte, error, bool)
	stop func()
	rest []byte
}

func newReader(chunks iter.Seq2[[]byte, error]) *reader {
	next, stop := iter.Pull2(chunks)
	return &reader{next: next, stop: stop}
}

// Read returns the rest of a piece, or the start of the next.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		chunk, err, ok := r.next()
		if !ok {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		r.rest = chunk
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close ends the reading.
func (r *reader) Close() error {
	r.stop()
	return nil
}
