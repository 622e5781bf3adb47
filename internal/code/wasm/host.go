package wasm

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"j17/internal/code/wasm/instrument"
)

// Error numbers of WASI.
const (
	wasiOK     = 0
	wasiBadf   = 8
	wasiFault  = 21
	wasiNosys  = 52
	wasiModule = "wasi_snapshot_preview1"
)

type runKey struct{}

func runOf(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}

// hostFunction is a function that a module may import. The stack holds the parameters and receives the result.
type hostFunction func(r *run, mod api.Module, stack []uint64)

const i32x4 = "\x7f\x7f\x7f\x7f"

// offered returns the host function for an import, or an error that names the import.
func offered(i instrument.Import) (hostFunction, error) {
	if i.Module == "env" && i.Name == "abort" && i.Signature == (instrument.Signature{Params: i32x4}) {
		return abort, nil
	}
	if i.Module != wasiModule {
		return nil, fmt.Errorf("the module imports the function %.60q of %.60q, which does not exist here", i.Name, i.Module)
	}
	f, sig := wasiFunction(i.Name)
	switch {
	case f != nil && i.Signature != sig:
		return nil, fmt.Errorf("the module imports %.60q of %.60q as %s, but it is %s", i.Name, i.Module, i.Signature, sig)
	case f != nil:
		return f, nil
	case slices.Contains(wasiRefused(), i.Name) && i.Signature.Results == "\x7f":
		return func(_ *run, _ api.Module, stack []uint64) { stack[0] = wasiNosys }, nil
	default:
		return nil, fmt.Errorf("the module imports %.60q of %.60q as %s, which is no function of WASI preview 1", i.Name, i.Module, i.Signature)
	}
}

// wasiRefused lists the functions of WASI that are offered only so that programs start, and that fail when called.
func wasiRefused() []string {
	return strings.Fields(`fd_advise fd_allocate fd_datasync fd_fdstat_set_rights fd_filestat_get fd_filestat_set_size
		fd_filestat_set_times fd_pread fd_pwrite fd_readdir fd_renumber fd_sync fd_tell path_create_directory path_filestat_get
		path_filestat_set_times path_link path_open path_readlink path_remove_directory path_rename path_symlink
		path_unlink_file proc_raise sock_accept sock_recv sock_send sock_shutdown`)
}

// wasiFunction returns a function of WASI that is implemented, with its signature. There are no arguments, no variables
// and no files except an empty standard input and an output that goes to the log. The clock stands still, and random
// bytes are zero, so that a module's answer depends on its input alone.
func wasiFunction(name string) (hostFunction, instrument.Signature) {
	i32s := func(n int) instrument.Signature {
		return instrument.Signature{Params: strings.Repeat("\x7f", n), Results: "\x7f"}
	}
	switch name {
	case "args_get", "environ_get":
		return constant(wasiOK), i32s(2)
	case "args_sizes_get", "environ_sizes_get":
		return func(_ *run, mod api.Module, stack []uint64) {
			ok := putU32(mod, stack[0], 0) && putU32(mod, stack[1], 0)
			stack[0] = errno(ok)
		}, i32s(2)
	case "clock_res_get":
		return func(_ *run, mod api.Module, stack []uint64) { stack[0] = errno(putU64(mod, stack[1], 1)) }, i32s(2)
	case "clock_time_get":
		// Zero would be a broken clock to Go.
		return func(_ *run, mod api.Module, stack []uint64) { stack[0] = errno(putU64(mod, stack[2], 1)) },
			instrument.Signature{Params: "\x7f\x7e\x7f", Results: "\x7f"}
	case "random_get":
		return func(r *run, mod api.Module, stack []uint64) {
			b, ok := mod.Memory().Read(uint32(stack[0]), uint32(stack[1]))
			r.spend(len(b) / instrument.BytesPerCost)
			clear(b)
			stack[0] = errno(ok)
		}, i32s(2)
	case "fd_write":
		return fdWrite, i32s(4)
	case "poll_oneoff":
		return poll, i32s(4)
	case "fd_read":
		return func(_ *run, mod api.Module, stack []uint64) {
			if uint32(stack[0]) != 0 {
				stack[0] = wasiBadf
				return
			}
			stack[0] = errno(putU32(mod, stack[3], 0))
		}, i32s(4)
	case "fd_fdstat_get":
		return func(_ *run, mod api.Module, stack []uint64) {
			if uint32(stack[0]) > 2 {
				stack[0] = wasiBadf
				return
			}
			b, ok := mod.Memory().Read(uint32(stack[1]), 24)
			clear(b)
			if ok {
				b[0] = 2 // a character device
			}
			stack[0] = errno(ok)
		}, i32s(2)
	case "fd_fdstat_set_flags":
		return constant(wasiOK), i32s(2)
	case "fd_close", "fd_prestat_get", "fd_prestat_dir_name", "fd_seek":
		sig := i32s(1)
		switch name {
		case "fd_prestat_get":
			sig = i32s(2)
		case "fd_prestat_dir_name":
			sig = i32s(3)
		case "fd_seek":
			sig = instrument.Signature{Params: "\x7f\x7e\x7f\x7f", Results: "\x7f"}
		}
		return constant(wasiBadf), sig
	case "sched_yield":
		return constant(wasiOK), i32s(0)
	case "proc_exit":
		return func(_ *run, _ api.Module, stack []uint64) { panic(exit{uint32(stack[0])}) },
			instrument.Signature{Params: "\x7f"}
	default:
		return nil, instrument.Signature{}
	}
}

func constant(errno uint64) hostFunction {
	return func(_ *run, _ api.Module, stack []uint64) { stack[0] = errno }
}

func errno(ok bool) uint64 {
	if ok {
		return wasiOK
	}
	return wasiFault
}

func putU32(mod api.Module, at uint64, v uint32) bool {
	return mod.Memory().WriteUint32Le(uint32(at), v)
}

func putU64(mod api.Module, at, v uint64) bool {
	return mod.Memory().WriteUint64Le(uint32(at), v)
}

// maxVectors is how many pieces one write may have, as in POSIX.
const maxVectors = 1024

// costOfVector is what one of them costs, in simple instructions.
const costOfVector = 64

// fdWrite puts what is written to standard output and standard error into the log.
func fdWrite(r *run, mod api.Module, stack []uint64) {
	if fd := uint32(stack[0]); fd != 1 && fd != 2 {
		stack[0] = wasiBadf
		return
	}
	at, n, total := uint32(stack[1]), uint32(stack[2]), uint32(0)
	mem := mod.Memory()
	for i := range min(n, maxVectors) {
		from, ok1 := mem.ReadUint32Le(at + 8*i)
		size, ok2 := mem.ReadUint32Le(at + 8*i + 4)
		b, ok3 := mem.Read(from, size)
		if !ok1 || !ok2 || !ok3 {
			stack[0] = wasiFault
			return
		}
		r.spend(costOfVector + min(len(b), maxLog)/instrument.BytesPerCost)
		r.log.write(b)
		total += size
	}
	stack[0] = errno(putU32(mod, stack[3], total))
}

// poll reports at once that all that was waited for has happened: there is nothing to wait for. Go does so before it
// reports a panic.
func poll(r *run, mod api.Module, stack []uint64) {
	in, out, n := uint32(stack[0]), uint32(stack[1]), uint32(stack[2])
	n = min(n, maxVectors)
	mem := mod.Memory()
	for i := range n {
		user, ok1 := mem.ReadUint64Le(in + 48*i)
		kind, ok2 := mem.ReadByte(in + 48*i + 8)
		event, ok3 := mem.Read(out+32*i, 32)
		if !ok1 || !ok2 || !ok3 {
			stack[0] = wasiFault
			return
		}
		r.spend(costOfVector)
		clear(event)
		binary.LittleEndian.PutUint64(event, user)
		event[10] = kind
	}
	stack[0] = errno(putU32(mod, stack[3], n))
}

// abort is how AssemblyScript ends: with a message, a file, a line and a column.
func abort(r *run, mod api.Module, stack []uint64) {
	text := func(param uint64) string {
		at := uint32(param)
		mem := mod.Memory()
		size, ok := mem.ReadUint32Le(at - 4)
		if at < 4 || !ok {
			return ""
		}
		b, ok := mem.Read(at, min(size, 1<<10))
		if !ok {
			return ""
		}
		units := make([]uint16, len(b)/2)
		for i := range units {
			units[i] = uint16(b[2*i]) | uint16(b[2*i+1])<<8
		}
		return string(utf16.Decode(units))
	}
	message, file := text(stack[0]), text(stack[1])
	if message == "" {
		message = "without a message"
	}
	r.abort = message
	if file != "" {
		r.abort += fmt.Sprintf(", at %s:%d:%d", file, uint32(stack[2]), uint32(stack[3]))
	}
	panic(exit{1})
}

// provide instantiates the functions that a module imports, and the tick that its rewritten form imports as well.
func provide(ctx context.Context, rt wazero.Runtime, imports []instrument.Import) error {
	functions := map[string]map[string]bool{}
	builders := map[string]wazero.HostModuleBuilder{}
	add := func(i instrument.Import, f hostFunction) {
		if builders[i.Module] == nil {
			builders[i.Module], functions[i.Module] = rt.NewHostModuleBuilder(i.Module), map[string]bool{}
		}
		if functions[i.Module][i.Name] {
			return
		}
		functions[i.Module][i.Name] = true
		call := api.GoModuleFunc(
			func(ctx context.Context, mod api.Module, stack []uint64) { f(runOf(ctx), mod, stack) },
		)
		builders[i.Module].NewFunctionBuilder().WithGoModuleFunction(
			call, valueTypes(i.Signature.Params), valueTypes(i.Signature.Results),
		).Export(i.Name)
	}

	// What the module asks for.
	for _, i := range imports {
		f, err := offered(i)
		if err != nil {
			return err
		}
		add(i, f)
	}

	// The tick, for every module.
	add(instrument.Import{Module: instrument.TickModule, Name: instrument.TickName},
		func(r *run, _ api.Module, _ []uint64) {
			if err := r.tick(); err != nil {
				panic(err)
			}
		})

	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}

// valueTypes returns types as the compiler names them: by the same numbers.
func valueTypes(types string) []api.ValueType { return []api.ValueType(types) }
