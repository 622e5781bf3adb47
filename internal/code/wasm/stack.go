package wasm

import (
	"context"
	"reflect"

	"github.com/tetratelabs/wazero/api"
)

// keptStacks is how many bytes of stacks an instance may keep for its next calls.
const keptStacks = 1 << 20

// freeStack is how much a stack may take before memory is acquired for it, so that no call with a small stack is
// refused.
const freeStack = 64 << 10

// mostStack is the most that a stack counts as.
const mostStack = 2 * 80 << 20

// stackBytes returns how much memory the stack of a function counts as: twice its size, since it is on the heap, which
// may grow to twice of what is in use. It grows with the depth of calls, to 80 MiB at most, and stays for the
// function's next call. wazero offers no access to it, so the field is read by its name; TestStacksAreLimited fails
// with a version of wazero that has no field of that name.
func stackBytes(f api.Function) int64 {
	v := reflect.Indirect(reflect.ValueOf(f))
	if v.Kind() != reflect.Struct {
		return 0
	}
	stack := v.FieldByName("stack")
	if stack.Kind() != reflect.Slice {
		return 0
	}
	return 2 * int64(stack.Cap()) * int64(stack.Type().Elem().Size())
}

// noRoom stops a run whose stack wants more memory than there is.
type noRoom struct{}

func (noRoom) Error() string { return "the memory for custom code is taken by other calls" }

// deepen acquires the memory by which the stack of the running function has grown.
func (r *run) deepen() error {
	if r.function == nil {
		return nil
	}
	grown := stackBytes(r.function) - r.stack
	if grown <= 0 {
		return nil
	}
	ahead := min(grown, r.ahead)
	if !r.extend(grown - ahead) {
		return noRoom{}
	}
	r.ahead -= ahead
	r.stack += grown
	return nil
}

// invoke calls a function of the module, whose stack counts as memory of the run from its first tick on.
func (i *instance) invoke(r *run, f api.Function, stack []uint64) error {
	r.function, r.stack = f, freeStack
	before := stackBytes(f)
	err := f.CallWithStack(context.WithValue(r.ctx, runKey{}, r), stack)
	i.stacks += stackBytes(f) - before
	if err == nil {
		err = r.deepen()
	}
	r.function = nil
	return err
}

// entry returns an entry point, nil where there is none of that name.
func (i *instance) entry(name string) api.Function {
	f := i.entries[name]
	if f == nil {
		if f = i.mod.ExportedFunction(name); f != nil {
			i.entries[name] = f
			i.stacks += stackBytes(f)
		}
	}
	return f
}

// forget drops the stacks if they take more than an instance may keep.
func (i *instance) forget() {
	if i.stacks > keptStacks {
		i.functions()
	}
}

// functions looks up malloc, and drops the entry points; each function has a stack of its own.
func (i *instance) functions() {
	i.malloc, i.entries = i.mod.ExportedFunction("malloc"), map[string]api.Function{}
	i.stacks = stackBytes(i.malloc)
}

// bytes is how much memory the instance takes while it waits for its next call.
func (i *instance) bytes() int64 { return int64(i.module.image.size) + i.stacks }
