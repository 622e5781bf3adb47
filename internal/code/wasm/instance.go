package wasm

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"j17/internal/base/panics"
	"j17/internal/code/sandbox"
	"j17/internal/code/wasm/instrument"
)

// image is the state that every call begins from: that of an instance after its start.
type image struct {
	// size is that of the memory, blocks are those parts of it that are not all zeros, in the order of their places.
	size    int
	blocks  []imageBlock
	globals []uint64
}

type imageBlock struct {
	at      int
	content []byte
}

// instance is one running copy of a module. It serves one call at a time.
type instance struct {
	module  *Module
	mod     api.Module
	globals []api.MutableGlobal
	memory  *linear
	refused api.Global
	counter api.Global
	malloc  api.Function
	entries map[string]api.Function
	// stacks is how many bytes the stacks of malloc and of the entries take.
	stacks int64
	// inPool and held, what it counts with there, are guarded by the pool.
	inPool *list.Element
	held   int64
}

// Result is what a call has led to.
type Result struct {
	// Output is the answer, nil if there was an error.
	Output []byte
	// Log is the end of what the code wrote to its standard output and error, up to 8 KiB.
	Log string
	// Used is how long the code ran, without waiting for its turn, Code its code time (sandbox.Allow).
	Used, Code time.Duration
	// Memory is how many bytes of memory the instance had at the end.
	Memory uint32
}

// Run calls an entry point, which must be one of m.Entrypoints. The timeout is code time (sandbox.Allow), which is
// counted by the instructions that run; 0 is DefaultTimeout. Errors are those of sandbox.Function.
func (m *Module) Run(ctx context.Context, entrypoint string, timeout time.Duration, input []byte) (Result, error) {
	if len(input) > MaxInput {
		return Result{}, &sandbox.Fault{
			Kind: sandbox.Memory, Detail: fmt.Sprintf("the input has %d bytes, more than the %d MiB that code can be given", len(input), MaxInput>>20),
			Hint: "Keep the state of the aggregate smaller.",
		}
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	allowed, err := sandbox.Allow(ctx, timeout)
	if err != nil {
		return Result{}, err
	}

	// A place among the calls of the module, memory, and a processor.
	if !m.enter() {
		return Result{}, start("the module has been replaced or removed", "Try again.")
	}
	defer m.active.Done()
	select {
	case m.calls <- struct{}{}:
		defer func() { <-m.calls }()
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
	r := &run{ctx: ctx, sched: m.rt.sched, memory: m.rt.memory}
	defer r.end()
	if err := r.acquire(max(int64(m.image.size), int64(m.parsed.Memory.Min)*pageSize)); err != nil {
		return Result{}, err
	}
	if err := r.begin(); err != nil {
		return Result{}, err
	}
	r.may(startTimeout, startPatience)

	// The call itself, and what it has taken.
	i, err := m.instance(r)
	switch {
	case r.denied:
		return Result{}, busy(r)
	case err != nil:
		return Result{}, err
	}
	i.memory.run = r
	r.may(allowed.Code, allowed.Real) // making an instance is not the code's time
	before := i.counted()
	output, err := i.call(r, entrypoint, input)
	now := m.rt.sched.clock.Now()
	result := Result{Output: output, Log: r.log.text(), Used: r.used, Memory: i.mod.Memory().Size()}
	result.Code = time.Duration(
		float64(r.work*instrument.Budget+int64(r.host)+before-i.counted()) / instrument.Budget * float64(tickTime),
	)
	// Comparing the memory with the image and putting it back takes time as well.
	allowed.Spend(result.Code+time.Duration(result.Memory/bytesPerNanosecond), len(input)+len(output))

	if f, ok := errors.AsType[*sandbox.Fault](err); ok && f.Kind == sandbox.Timeout {
		err = allowed.Over(f)
	}
	if r.lane != nil {
		result.Used += now.Sub(r.since)
	}

	// The instance serves the next call, if it can be put back.
	i.memory.run = nil
	if r.denied { // whatever the code has done after the refusal
		result.Output, err = nil, busy(r)
	}
	if err == nil && !m.parsed.Disposable && i.reset() {
		m.rt.pool.put(ctx, i)
		return result, nil
	}
	i.close(ctx)
	m.refill(ctx)
	return result, err
}

// bytesPerNanosecond is how fast memory is compared.
const bytesPerNanosecond = 10

// counted is what is left of the budget of the instructions that run.
func (i *instance) counted() int64 {
	return int64(int32(uint32(i.counter.Get())))
}

func busy(r *run) error {
	return &sandbox.Fault{
		Kind: sandbox.Busy, Detail: "the memory for custom code is taken by other calls", Hint: "Try again, or let the code get by with less memory.", Log: r.log.text(),
	}
}

// start runs the module's initialization once and keeps the state that it leaves. If other calls hold the memory that
// its stack needs, it waits for as much as a stack may take, as far as there is that much, and begins again.
func (m *Module) start(ctx context.Context) error {
	denied, err := m.startWith(ctx, 0)
	if ahead := min(mostStack, m.rt.memory.limit-int64(m.rt.pages)*pageSize); denied && ahead > 0 && ctx.Err() == nil {
		_, err = m.startWith(ctx, ahead)
	}
	return err
}

// startWith is start with memory for stacks that is taken in advance. denied reports that the run wanted more memory
// than there was.
func (m *Module) startWith(ctx context.Context, ahead int64) (denied bool, err error) {
	r := &run{ctx: ctx, sched: m.rt.sched, memory: m.rt.memory, ahead: ahead}
	defer r.end()
	defer func() { denied = r.denied }()
	if err := r.acquire(int64(m.rt.pages)*pageSize + ahead); err != nil {
		return false, err
	}
	if err := r.begin(); err != nil {
		return false, err
	}

	r.may(startTimeout, startPatience)
	i, err := m.boot(r)
	if err != nil {
		return false, err
	}
	if m.parsed.Disposable {
		m.image.size = int(i.mod.Memory().Size()) // what every call begins with
		i.close(ctx)
		return false, nil
	}

	m.image = i.snapshot()
	// Some allocators, such as that of Rust, get their first page on first use. In a call, that would keep the instance
	// from serving a second one, so it happens here.
	stack := [1]uint64{1}
	err = i.invoke(r, i.malloc, stack[:])
	if grown := i.snapshot(); err == nil && grown.size > m.image.size {
		m.image = grown
	}

	if err != nil || !i.reset() {
		i.close(ctx)
		return false, ctx.Err()
	}
	m.rt.pool.put(ctx, i)
	return false, nil
}

// snapshot copies the state of the instance.
func (i *instance) snapshot() image {
	mem, _ := i.mod.Memory().Read(0, i.mod.Memory().Size())
	s := image{size: len(mem)}
	var zeros [block]byte
	for at := 0; at < len(mem); at += block {
		if b := mem[at : at+block]; !bytes.Equal(b, zeros[:]) {
			s.blocks = append(s.blocks, imageBlock{at, bytes.Clone(b)})
		}
	}
	for _, g := range i.globals {
		s.globals = append(s.globals, g.Get())
	}
	return s
}

// boot instantiates the module and runs its start function and its _initialize.
func (m *Module) boot(r *run) (*instance, error) {
	i, err := m.instantiate(r.ctx)
	if err != nil {
		return nil, err
	}
	var functions []string
	if m.exports.Start != "" {
		functions = append(functions, m.exports.Start)
	}
	if e, ok := m.parsed.Export("_initialize", instrument.KindFunction); ok {
		if sig, _ := m.parsed.Function(e.Index); sig == (instrument.Signature{}) {
			functions = append(functions, e.Name)
		}
	}
	for _, name := range functions {
		if err := i.invoke(r, i.mod.ExportedFunction(name), nil); err != nil {
			err = m.fault(r, err, i.refused.Get() != 0)
			i.close(r.ctx)
			if f, ok := errors.AsType[*sandbox.Fault](err); ok {
				f.Kind, f.Detail = sandbox.Start, "the module could not be started: "+f.Detail
				f.Hint = strings.Replace(f.Hint, ", or raise timeout_ms", "", 1)
			}
			return nil, err
		}
	}
	return i, nil
}

// instance returns an instance in its first state: one from the pool, or a new one.
func (m *Module) instance(r *run) (*instance, error) {
	if m.parsed.Disposable {
		return m.boot(r)
	}
	if i := m.rt.pool.take(m); i != nil {
		return i, nil
	}
	return m.fresh(r.ctx)
}

// fresh makes an instance from the image.
func (m *Module) fresh(ctx context.Context) (*instance, error) {
	i, err := m.instantiate(ctx)
	if err != nil {
		return nil, err
	}
	mem := i.mod.Memory()
	if missing := uint32(m.image.size) - mem.Size(); missing > 0 {
		mem.Grow(missing / pageSize)
	}
	if !i.reset() {
		i.close(ctx)
		return nil, start("a new instance of the module could not be made", "Try again.")
	}
	return i, nil
}

func (m *Module) instantiate(ctx context.Context) (*instance, error) {
	var memory *linear
	mod, err := m.wz.InstantiateModule(
		withLinear(ctx, &memory), m.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions(),
	)
	if err != nil {
		if memory != nil {
			memory.Free()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, start("the module could not be started: "+firstLine(err).Error(), "Check the places of its data and element segments.")
	}
	i := &instance{module: m, mod: mod, memory: memory}
	i.functions()
	i.refused, i.counter = mod.ExportedGlobal(m.exports.Refused), mod.ExportedGlobal(m.exports.Counter)
	for _, name := range m.exports.Globals {
		if g, ok := mod.ExportedGlobal(name).(api.MutableGlobal); ok {
			i.globals = append(i.globals, g)
		}
	}
	return i, nil
}

func (i *instance) close(ctx context.Context) { _ = i.mod.Close(context.WithoutCancel(ctx)) }

// block is how much of the memory is compared and put back at once, in bytes.
const block = 4 << 10

// reset puts the instance back into its first state and reports whether that was possible. Memory cannot shrink.
func (i *instance) reset() bool {
	image := &i.module.image
	mem, ok := i.mod.Memory().Read(0, i.mod.Memory().Size())
	if !ok || len(mem) != image.size || len(i.globals) != len(image.globals) {
		return false
	}
	blocks := image.blocks
	var zeros [block]byte
	for at := 0; at < len(mem); at += block {
		is, was := mem[at:at+block], zeros[:]
		if len(blocks) > 0 && blocks[0].at == at {
			was, blocks = blocks[0].content, blocks[1:]
		}
		if !bytes.Equal(is, was) {
			copy(is, was)
		}
	}
	for n, g := range i.globals {
		g.Set(image.globals[n])
	}
	return true
}

// call passes the input in and copies the output out.
func (i *instance) call(r *run, entrypoint string, input []byte) ([]byte, error) {
	f := i.entry(entrypoint)
	if f == nil {
		return nil, checkFunction(i.module.parsed, entrypoint, entrySignature())
	}

	// A block for the input.
	mem := i.mod.Memory()
	var stack [2]uint64
	stack[0] = uint64(len(input))
	if err := i.invoke(r, i.malloc, stack[:]); err != nil {
		return nil, i.module.fault(r, err, i.refused.Get() != 0)
	}
	at := uint32(stack[0])
	if at == 0 {
		return nil, &sandbox.Fault{
			Kind: sandbox.Memory, Detail: fmt.Sprintf("malloc had no room for the %d bytes of the input", len(input)),
			Hint: "Let malloc return a block of the size it is asked for; 0 means that there is none.", Log: r.log.text(),
		}
	}

	if !mem.Write(at, input) {
		return nil, &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: fmt.Sprintf("malloc answered a block of %d bytes at %d, but the memory has %d bytes", len(input), at, mem.Size()),
			Hint: "Let malloc return a block inside the memory, and grow the memory if there is none.", Log: r.log.text(),
		}
	}

	// The entry point.
	stack[0], stack[1] = uint64(at), uint64(len(input))
	if err := i.invoke(r, f, stack[:]); err != nil {
		return nil, i.module.fault(r, err, i.refused.Get() != 0)
	}
	at, size := uint32(stack[0]>>32), uint32(stack[0])

	// A copy of the output, since the memory is put back.
	var bad string
	hint := "Return the pointer in the upper and the length in the lower 32 bits: (ptr << 32) | len, both taken as unsigned."
	b, ok := mem.Read(at, size)
	switch {
	case size == 0:
		bad = fmt.Sprintf("%s answered an empty output (pointer %d, length 0)", entrypoint, at)
	case size > MaxOutput:
		bad = fmt.Sprintf("%s answered an output of %d bytes, more than the %d MiB that are allowed", entrypoint, size, MaxOutput>>20)
	case !ok:
		bad = fmt.Sprintf("%s answered an output of %d bytes at %d, but the memory has %d bytes", entrypoint, size, at, mem.Size())
	default:
		return bytes.Clone(b), nil
	}
	return nil, &sandbox.Fault{Kind: sandbox.InvalidOutput, Detail: bad, Hint: hint, Log: r.log.text()}
}

// refill makes an instance in the background, for the next call.
func (m *Module) refill(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parsed.Disposable || m.closed || m.refilling || m.rt.pool.has(m) {
		return
	}
	m.refilling = true
	m.active.Go(func() {
		ctx := context.WithoutCancel(ctx)
		_ = panics.Logged(ctx, m.rt.logger, "starting a WebAssembly module ahead", func() error {
			i, err := m.fresh(ctx)
			if err == nil {
				m.rt.pool.put(ctx, i)
			}
			return err // the next call gets the same error
		})
		m.mu.Lock()
		m.refilling = false
		m.mu.Unlock()
	})
}

// pool keeps instances that wait for their next call, all of them in their first state. When they take too much memory,
// those that have waited longest go, whatever their module.
type pool struct {
	mu    sync.Mutex
	limit int64
	bytes int64
	order list.List // of *instance, the longest waiting first
}

func newPool(limit int64) *pool { return &pool{limit: limit} }

func (p *pool) take(m *Module) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(m.idle)
	if n == 0 {
		return nil
	}
	return p.remove(m, n-1)
}

func (p *pool) has(m *Module) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(m.idle) > 0
}

func (p *pool) remove(m *Module, n int) *instance {
	i := m.idle[n]
	m.idle = append(m.idle[:n], m.idle[n+1:]...)
	p.order.Remove(i.inPool)
	p.bytes -= i.held
	return i
}

func (p *pool) put(ctx context.Context, i *instance) {
	i.forget()
	p.mu.Lock()
	i.inPool = p.order.PushBack(i)
	i.module.idle = append(i.module.idle, i)
	i.held = i.bytes()
	p.bytes += i.held
	var out []*instance
	for p.bytes > p.limit && p.order.Len() > 0 {
		oldest, _ := p.order.Front().Value.(*instance)
		for n, i := range oldest.module.idle {
			if i == oldest {
				out = append(out, p.remove(oldest.module, n))
				break
			}
		}
	}
	p.mu.Unlock()
	for _, i := range out {
		i.close(ctx)
	}
}
