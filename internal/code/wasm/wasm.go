// Package wasm runs WebAssembly modules as custom code, with wazero.
//
// A module gets its input in a block of its memory that its export malloc has allocated, and answers with the place of
// its output, as one i64: the pointer in the upper half, the length in the lower. It can reach nothing but that: there
// is no clock, no randomness, no file, no network. Every call begins from the same memory and the same globals, those
// that the module had after it was started, so an answer depends on the input alone.
//
// Before a module is compiled it is instrumented so that it can be interrupted and put back; see
// (*instrument.Module).Instrument. The life of a call: (*Module).Run waits for a place (scheduler), takes an instance
// (pool) or makes one, calls malloc and the entry point (instance.call), copies the answer, puts the instance back into
// its first state and into the pool. An instance that was stopped, that trapped or whose memory grew is thrown away.
//
// The decisions behind it are in docs/internals/code.md.
package wasm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"j17/internal/base/clock"
	"j17/internal/code/sandbox"
	"j17/internal/code/wasm/instrument"
)

// Defaults and limits of calls.
const (
	// DefaultTimeout is how long a call may run where nothing else is said.
	DefaultTimeout = 100 * time.Millisecond
	// DefaultMemory is how many bytes of memory an instance may have.
	DefaultMemory = 64 << 20
	// MaxBinary is the most bytes that a module may have.
	MaxBinary = instrument.MaxBinary
	// MaxInput is the most bytes that go into a call.
	MaxInput = 16 << 20
	// MaxOutput is the most bytes that come out of it.
	MaxOutput = 16 << 20

	pageSize      = 64 << 10
	startTimeout  = 2 * time.Second  // in code time
	startPatience = 30 * time.Second // on a clock
	// compileTimeout is how long a compilation may take in real time, several times the most that the limits allow.
	compileTimeout = 2 * time.Minute
	defaultIdle    = 256 << 20
	defaultRunning = 1 << 30
	// callsOfModule is how many calls of one module may run or be parked at once. The others wait, so that long calls
	// of one module can take neither all memory nor the turns of the others.
	callsOfModule = 8
)

// Options configure a Runtime.
type Options struct {
	// CacheDir is the folder for machine code, which only the server may write to. "" keeps it in memory.
	CacheDir string
	// MemoryPages is how many pages of 64 KiB the memory of an instance may have, at most 32768; DefaultMemory if 0.
	MemoryPages uint32
	// IdleBytes is how much memory instances may take that wait for their next call, 256 MiB if 0.
	IdleBytes int64
	// RunningBytes is how much memory all calls that are running or waiting for their turn may take together, 1 GiB if
	// 0. A call waits for the memory that its module begins with; one that wants more than there is ends with a fault
	// of kind Busy.
	RunningBytes int64
	// Clock measures how long calls run: the machine's clock if nil, and never a clock that can be moved.
	Clock clock.Clock
	// Logger logs panics on goroutines of the runtime; nil discards them.
	Logger *slog.Logger
}

// Runtime compiles modules and shares the processors among their calls. It is safe for concurrent use.
type Runtime struct {
	pages  uint32
	logger *slog.Logger
	cache  cache
	sched  *scheduler
	pool   *pool
	memory *memories
	// quick and long are the places for compilations that take little time and for those that take more, so that no
	// small module waits for a large one.
	quick, long chan struct{}
}

// New returns a Runtime. It needs no closing; its modules do.
func New(o Options) (*Runtime, error) {
	if o.MemoryPages == 0 {
		o.MemoryPages = DefaultMemory / pageSize
	}
	if o.MemoryPages > 1<<15 {
		return nil, fmt.Errorf("a WebAssembly module can have at most 32768 pages of memory, not %d", o.MemoryPages)
	}
	if o.IdleBytes == 0 {
		o.IdleBytes = defaultIdle
	}
	if o.RunningBytes == 0 {
		o.RunningBytes = defaultRunning
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Runtime{
		pages: o.MemoryPages, logger: o.Logger, cache: cache{o.CacheDir}, pool: newPool(o.IdleBytes),
		memory: &memories{limit: o.RunningBytes},
		quick:  make(chan struct{}, 2), long: make(chan struct{}, 1),
		sched: newScheduler(o.Clock, runtime.GOMAXPROCS(0)),
	}, nil
}

// Module is a compiled module. It is safe for concurrent use.
type Module struct {
	rt       *Runtime
	parsed   *instrument.Module
	digest   [32]byte
	size     int64
	wz       wazero.Runtime
	cache    wazero.CompilationCache
	compiled wazero.CompiledModule
	exports  *instrument.Instrumented
	image    image
	calls    chan struct{}

	mu        sync.Mutex
	closed    bool
	refilling bool
	active    sync.WaitGroup

	idle []*instance // guarded by the pool
}

// Compile checks a binary, compiles it and starts it once. The module must have the exports malloc and memory; that
// there is an entry point is checked by Function. An error is a *sandbox.Fault of kind Start that says what is wrong
// with the binary, or the context's.
func (rt *Runtime) Compile(ctx context.Context, binary []byte) (*Module, error) {
	parsed, err := instrument.Parse(binary)
	if err != nil {
		return nil, invalid(err)
	}
	if fault := contract(parsed, rt.pages); fault != nil {
		return nil, fault
	}
	for _, i := range parsed.Imports {
		if _, err := offered(i); err != nil {
			f := invalid(err)
			f.Hint = "Custom code can use the functions of WASI preview 1 that need no outside world, and AssemblyScript's abort; build without the rest."
			return nil, f
		}
	}

	// What is compiled is the instrumented module.
	out, err := parsed.Instrument(rt.pages)
	if err != nil {
		return nil, invalid(err)
	}
	parsed.Release()

	m := &Module{
		rt: rt, parsed: parsed, digest: sha256.Sum256(binary), size: int64(len(binary)), exports: out,
		calls: make(chan struct{}, callsOfModule),
	}
	if err := m.compileInTurn(ctx); err != nil {
		return nil, errors.Join(err, m.Close(ctx))
	}
	out.Binary = nil

	// A module that cannot be started is refused now, and not at its first call.
	if err := m.start(ctx); err != nil {
		if fault, ok := errors.AsType[*sandbox.Fault](err); ok {
			err = fault // and nothing else that closing may add
			_ = m.Close(ctx)
			return nil, err
		}
		return nil, errors.Join(err, m.Close(ctx))
	}
	return m, nil
}

// quickCompiling is what a module may take to compile, as estimated, to count as a small one.
const quickCompiling = 500 * time.Millisecond

// compileInTurn compiles the module when there is a place for it. Starting the module needs no place of this kind.
func (m *Module) compileInTurn(ctx context.Context) error {
	lane := m.rt.long
	if m.exports.Compiling <= quickCompiling {
		lane = m.rt.quick
	}
	select {
	case lane <- struct{}{}:
		defer func() { <-lane }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return m.compile(ctx)
}

// compile turns the rewritten binary into machine code.
func (m *Module) compile(ctx context.Context) error {
	limited, stop := context.WithTimeout(ctx, compileTimeout)
	defer stop()
	// More than one worker, because a single one would not heed the context.
	limited = experimental.WithCompilationWorkers(limited, max(2, runtime.GOMAXPROCS(0)-1))
	disk, dir := m.rt.cache.open(sha256.Sum256(m.exports.Binary))
	err := m.compileWith(limited, disk)
	if err != nil && dir != "" && limited.Err() == nil {
		// The disk may be at fault: once more without it.
		err = m.compileWith(limited, wazero.NewCompilationCache())
		dir = ""
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return &sandbox.Fault{
			Kind: sandbox.Start, Detail: fmt.Sprintf("compiling the module took longer than %s", compileTimeout),
			Hint: "The server may be busy: try again. If it happens often, leave out what is not needed and build with optimisation for size.",
		}
	case err != nil:
		return invalid(firstLine(err))
	}
	m.rt.cache.seal(dir)
	return nil
}

func (m *Module) compileWith(ctx context.Context, cache wazero.CompilationCache) (err error) {
	defer func() {
		// The compiler validates first, so a panic is not expected; but the binary comes from outside.
		if p := recover(); p != nil {
			err = fmt.Errorf("the compiler failed: %v", p)
		}
	}()
	if m.wz != nil {
		_ = m.wz.Close(ctx)
		_ = m.cache.Close(ctx)
	}
	m.cache = cache
	m.wz = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCompilationCache(cache).
		WithMemoryLimitPages(m.rt.pages).
		WithDebugInfoEnabled(false))
	if err := provide(ctx, m.wz, m.parsed.Imports); err != nil {
		return err
	}
	m.compiled, err = m.wz.CompileModule(ctx, m.exports.Binary)
	return err
}

// Close waits for the calls that have begun and frees the module. Later calls fail.
func (m *Module) Close(ctx context.Context) error {
	m.mu.Lock()
	closed := m.closed
	m.closed = true
	m.mu.Unlock()
	if closed {
		return nil
	}
	m.active.Wait()
	for {
		i := m.rt.pool.take(m)
		if i == nil {
			break
		}
		i.close(ctx)
	}
	var err error
	if m.wz != nil {
		err = m.wz.Close(ctx)
	}
	if m.cache != nil {
		err = errors.Join(err, m.cache.Close(ctx))
	}
	return err
}

// enter reports whether the module is open and, if so, keeps it open until m.active.Done.
func (m *Module) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.active.Add(1)
	return true
}

// Bytes is how much memory the module takes between calls, beside its machine code and the instances that wait: its
// binary and the state that calls begin from, without the zeros in it.
func (m *Module) Bytes() int64 { return m.size + int64(len(m.image.blocks))*block }

// Entrypoints returns the names of the exports that can be called, sorted.
func (m *Module) Entrypoints() []string { return entrypoints(m.parsed) }

// entrypoints lists the exports that have the signature of an entry point, sorted.
func entrypoints(m *instrument.Module) []string {
	var names []string
	for _, e := range m.Exports {
		if sig, ok := m.Function(e.Index); ok && e.Kind == instrument.KindFunction && sig == entrySignature() {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return names
}

func entrySignature() instrument.Signature {
	return instrument.Signature{Params: "\x7f\x7f", Results: "\x7e"}
}

func mallocSignature() instrument.Signature {
	return instrument.Signature{Params: "\x7f", Results: "\x7f"}
}

// Function returns an entry point with a timeout for each of its calls; 0 is DefaultTimeout. The error is a
// *sandbox.Fault of kind Start where there is no such export or it has another signature.
func (m *Module) Function(entrypoint string, timeout time.Duration) (sandbox.Function, error) {
	if fault := checkFunction(m.parsed, entrypoint, entrySignature()); fault != nil {
		return nil, fault
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	f := &function{module: m, entrypoint: entrypoint, timeout: timeout}
	h := sha256.New()
	h.Write([]byte("wasm\x00"))
	h.Write(m.digest[:])
	h.Write([]byte(entrypoint))
	h.Sum(f.digest[:0])
	return f, nil
}

type function struct {
	module     *Module
	entrypoint string
	timeout    time.Duration
	digest     [32]byte
}

func (f *function) Call(ctx context.Context, input []byte) ([]byte, error) {
	result, err := f.module.Run(ctx, f.entrypoint, f.timeout, input)
	return result.Output, err
}

func (f *function) Digest() [32]byte { return f.digest }

// contract checks what every module needs to have.
func contract(m *instrument.Module, pages uint32) *sandbox.Fault {
	if _, ok := m.Export("memory", instrument.KindMemory); !ok || !m.HasMemory {
		return start("the module does not export a memory named memory"+has(m), "Export the memory: most linkers do so under that name unless told otherwise.")
	}
	if m.Memory.Min > pages {
		return start(fmt.Sprintf("the module wants %d MiB of memory to begin with, and may have %d MiB", m.Memory.Min/16, pages/16), "Lower the initial memory in the linker's options.")
	}
	return checkFunction(m, "malloc", mallocSignature())
}

// checkFunction looks for an exported function with a signature.
func checkFunction(m *instrument.Module, name string, want instrument.Signature) *sandbox.Fault {
	e, ok := m.Export(name, instrument.KindFunction)
	if !ok {
		hint := "Export it under exactly this name."
		if name != "malloc" {
			hint = "Export it under exactly this name, or name another export as the entry point."
		}
		return start(fmt.Sprintf("the module does not export a function named %s", name)+has(m), hint)
	}
	if sig, ok := m.Function(e.Index); ok && sig != want {
		return start(fmt.Sprintf("the export %s has the signature %s instead of %s", name, sig, want),
			"Declare it with exactly these types: pointers and lengths are i32, the packed result is i64.")
	}
	return nil
}

// has lists the exports for an error.
func has(m *instrument.Module) string {
	names := make([]string, 0, len(m.Exports))
	for _, e := range m.Exports {
		names = append(names, shown(e.Name))
	}
	slices.Sort(names)
	if len(names) == 0 {
		return "; it exports nothing"
	}
	more := ""
	if len(names) > 20 {
		names, more = names[:20], fmt.Sprintf(" and %d more", len(names)-20)
	}
	return "; it exports " + strings.Join(names, ", ") + more
}
