package wasm_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/code/sandbox"
	"j17/internal/code/wasm"
)

func faultOf(t *testing.T, err error) *sandbox.Fault {
	t.Helper()
	f, ok := errors.AsType[*sandbox.Fault](err)
	if !ok {
		t.Fatalf("got %v, want a fault", err)
	}
	if f.Detail == "" || f.Hint == "" || strings.HasSuffix(f.Detail, ".") || !strings.HasSuffix(f.Hint, ".") {
		t.Errorf("detail %q, hint %q", f.Detail, f.Hint)
	}
	return f
}

// stopped is a runtime whose clock stands still: code is stopped for what it has done alone, however busy the
// processors are.
func stopped() wasm.Options { return wasm.Options{Clock: clock.NewManual(time.Unix(1_700_000_000, 0))} }

// fib is the body of a function that calls itself twice: it has no loop, ends some day, and nobody waits for it.
func fib() string {
	// global 0 counts the depth: if it is below 60, go down twice.
	return gget(0) + i64(1) + i64add + gset(0) +
		gget(0) + i64(60) + "\x53\x04\x40" + call(2) + call(2) + end + // i64.lt_s, if
		gget(0) + i64(-1) + i64add + gset(0)
}

// TestHostileCalls calls modules that compile and then misbehave.
func TestHostileCalls(t *testing.T) {
	growMore := i32(1) + grow + drop
	for name, test := range map[string]struct {
		guest  guest
		kind   sandbox.Kind
		detail string
	}{
		"endless loop":   {guest{entry: endless + echo()}, sandbox.Timeout, "the code did not answer within 50ms"},
		"endless malloc": {guest{malloc: endless + i32(1024), entry: echo()}, sandbox.Timeout, "within 50ms"},
		"recursion, no loop": {
			guest{entry: call(2) + echo(), more: []string{fib()}, globals: []int64{0}}, sandbox.Timeout, "within 50ms",
		},
		"deep recursion": {
			guest{entry: call(2) + echo(), more: []string{call(2)}}, sandbox.Trap, "stack overflow",
		},
		"endless memory.fill": {guest{
			pages: 1000,
			entry: "\x03\x40" + i32(0) + i32(7) + i32(1000<<16) + "\xfc\x0b\x00" + "\x0c\x00" + end + echo(),
		}, sandbox.Timeout, "within 50ms"},
		"endless memory.copy": {guest{
			pages: 1000,
			entry: "\x03\x40" + i32(0) + i32(1<<16) + i32(999<<16) + "\xfc\x0a\x00\x00" + "\x0c\x00" + end + echo(),
		}, sandbox.Timeout, "within 50ms"},
		// Ne, br_if.
		"memory bomb": {
			guest{entry: "\x03\x40" + i32(1) + grow + i32(-1) + "\x47\x0d\x00" + end + unreachable},
			sandbox.Memory,
			"more than the 64 MiB",
		},
		"endless growth": {
			guest{entry: "\x03\x40" + growMore + "\x0c\x00" + end + echo()}, sandbox.Timeout, "within 50ms",
		},
		"table bomb": {
			guest{table: 1, entry: "\x03\x40\xd0\x70" + i32(1000) + "\xfc\x0f\x00" + drop + "\x0c\x00" + end + echo()},
			sandbox.Timeout, "within 50ms",
		},
		"unreachable": {guest{entry: unreachable}, sandbox.Trap, "unreachable"},
		"division by zero": {
			guest{entry: i32(1) + i32(0) + "\x6d" + drop + echo()}, sandbox.Trap, "integer divide by zero",
		},
		"wild write": {
			guest{entry: i32(1<<20) + i32(1) + store32 + echo()}, sandbox.Trap, "out of bounds memory access",
		},
		"no output":      {guest{entry: packed(1024, 0)}, sandbox.InvalidOutput, "an empty output (pointer 1024, length 0)"},
		"output outside": {guest{entry: packed(65530, 100)}, sandbox.InvalidOutput, "an output of 100 bytes at 65530, but the memory has 65536 bytes"},
		"output wraps": {
			guest{entry: packed(0xfffffff0, 0x20)}, sandbox.InvalidOutput, "an output of 32 bytes at 4294967280",
		},
		"huge output": {
			guest{pages: 1000, entry: packed(0, 60<<20)}, sandbox.InvalidOutput, "more than the 16 MiB",
		},
		"malloc has none": {guest{malloc: i32(0), entry: echo()}, sandbox.Memory, "no room for the 2 bytes"},
		"malloc lies": {
			guest{malloc: i32(-1), entry: echo()}, sandbox.InvalidOutput, "a block of 2 bytes at 4294967295",
		},
		"exit": {guest{
			entry: i32(3) + call(0) + echo(), imports: []string{"wasi_snapshot_preview1 proc_exit"},
			importTypes: []string{"\x60\x01\x7f\x00"},
		}, sandbox.Exit, "status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			m := compile(t, runtime(t, stopped()), test.guest.binary())
			timeout := 50 * time.Millisecond
			if test.kind != sandbox.Timeout {
				timeout = 10 * time.Second // filling a large stack takes its time
			}
			f, err := m.Function("apply_handler", timeout)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second one gets another instance
				out, err := f.Call(t.Context(), []byte("{}"))
				fault := faultOf(t, err)
				if fault.Kind != test.kind || !strings.Contains(fault.Detail, test.detail) || out != nil {
					t.Errorf("%q, %#v", out, fault)
				}
			}
		})
	}
}

// TestHostileModules compiles binaries that are refused.
func TestHostileModules(t *testing.T) {
	good := guest{entry: echo()}.binary()
	for name, test := range map[string]struct {
		binary []byte
		detail string
	}{
		"nothing":         {nil, "not a WebAssembly binary"},
		"text":            {[]byte("(module)"), "not a WebAssembly binary"},
		"a component":     {[]byte("\x00asm\x0d\x00\x01\x00"), "component"},
		"another version": {[]byte("\x00asm\x02\x00\x00\x00"), "version 1"},
		"empty":           {[]byte("\x00asm\x01\x00\x00\x00"), "does not export a memory named memory; it exports nothing"},
		"cut off":         {good[:len(good)-5], "ends in the middle"},
		"junk after it":   {append(slices.Clip(good), 0xff, 0x00), "section 255 is unknown"},
		"too large":       {make([]byte, 33<<20), "larger than 32 MiB"},
		"no malloc":       {guest{entry: echo(), noMalloc: true}.binary(), "does not export a function named malloc; it exports apply_handler, memory"},
		"no memory":       {guest{entry: echo(), noMemory: true}.binary(), "does not export a memory named memory; it exports apply_handler, malloc"},
		"much memory":     {guest{entry: echo(), pages: 2000}.binary(), "wants 125 MiB of memory to begin with, and may have 64 MiB"},
		"large table":     {guest{entry: echo(), table: 1 << 30}.binary(), "tables have 1073741824 entries"},
		"unknown import": {
			guest{entry: echo(), imports: []string{"env fetch"}}.binary(), `imports the function "fetch" of "env"`,
		},
		"long names": {
			guest{entry: echo(), imports: []string{"env " + strings.Repeat("x", 1<<20)}}.binary(),
			`xxxx" of "env", which`,
		},
		"deep loops": {
			guest{entry: strings.Repeat("\x03\x40", 600) + strings.Repeat(end, 600) + echo()}.binary(),
			"loops are nested more than 500 deep",
		},
		"deep blocks": {
			guest{entry: strings.Repeat("\x02\x40", 10_001) + strings.Repeat(end, 10_001) + echo()}.binary(),
			"nested more than 10000 deep",
		},
		"locals, blocks": {
			guest{locals: strings.Repeat("\x7f", 9_000), entry: strings.Repeat("\x02\x40\x0b", 300) + echo()}.binary(),
			"9000 local variables and 300 blocks",
		},
		"own tick": {
			guest{entry: echo(), imports: []string{"j17 tick"}}.binary(), `imports the function "tick" of "j17"`,
		},
		"unknown wasi": {
			guest{entry: echo(), imports: []string{"wasi_snapshot_preview1 fly"}}.binary(),
			"no function of WASI preview 1",
		},
		"other wasi type": {
			guest{entry: echo(), imports: []string{"wasi_snapshot_preview1 random_get"}}.binary(),
			"as (), but it is (i32, i32) -> i32",
		},
		"wrong types":  {guest{entry: i32(1)}.binary(), "the module is not valid"},
		"unknown code": {guest{entry: "\xff"}.binary(), "instruction 0xff is not supported"},
		"data outside": {guest{entry: echo(), data: "x", dataAt: 1 << 20}.binary(), "could not be started"},
		"start traps":  {guest{entry: echo(), more: []string{unreachable}, start: true}.binary(), "could not be started: the code has stopped: unreachable"},
		"start loops":  {guest{entry: echo(), more: []string{endless}, start: true}.binary(), "could not be started: the code did not answer within 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := runtime(t, wasm.Options{}).Compile(t.Context(), test.binary)
			fault := faultOf(t, err)
			if m != nil || len(fault.Detail) > 1000 || fault.Kind != sandbox.Start ||
				!strings.Contains(fault.Detail, test.detail) {
				t.Errorf("%#v", fault)
			}
		})
	}
}

// TestFunctionNeedsTheSignature asks for entry points that are none.
func TestFunctionNeedsTheSignature(t *testing.T) {
	m := compile(t, runtime(t, wasm.Options{}), guest{entry: get(0), entryType: 4, renamed: "handle"}.binary())
	for name, detail := range map[string]string{
		"handle":        "the export handle has the signature (i32, i32) -> i32 instead of (i32, i32) -> i64",
		"apply_handler": "does not export a function named apply_handler; it exports handle, malloc, memory",
		"memory":        "does not export a function named memory",
	} {
		_, err := m.Function(name, 0)
		if f := faultOf(t, err); f.Kind != sandbox.Start || !strings.Contains(f.Detail, detail) {
			t.Errorf("%s: %#v", name, f)
		}
	}
	if got := m.Entrypoints(); len(got) != 0 {
		t.Error(got)
	}
}

// TestOthersStayFast calls a good module while several bad ones use up their time, and counts how much all of them do
// until it has answered.
func TestOthersStayFast(t *testing.T) {
	options, clk := counted()
	rt := runtime(t, options)
	good := compile(t, rt, guest{entry: echo()}.binary())
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	started := make(chan struct{}, 100)
	for range 3 {
		bad := compile(t, rt, guest{entry: endless + echo()}.binary())
		for range 10 {
			wg.Go(func() {
				for ctx.Err() == nil {
					started <- struct{}{}
					_, err := bad.Run(ctx, "apply_handler", 100*time.Millisecond, []byte("{}"))
					f, ok := errors.AsType[*sandbox.Fault](err)
					if ctx.Err() == nil && (!ok || f.Kind != sandbox.Timeout && f.Kind != sandbox.Busy) {
						t.Error(err)
					}
				}
			})
		}
		for range 10 {
			<-started
		}
		go func() {
			for range started {
			}
		}()
	}
	const calls = 200
	before := clk.looks.Load()
	for range calls {
		answer(t, good, "{}")
	}
	mean := time.Duration((clk.looks.Load()-before)/calls) * look
	stop()
	wg.Wait()
	close(started)
	// Sharing one lane, a call would wait for all loops before it: 3 s. As it is, it waits for what is left of the
	// quick time of some of them.
	if t.Logf("mean %s", mean); mean > 600*time.Millisecond {
		t.Errorf("the others had %s of code time during a call, on average", mean)
	}
}

// TestSmallModulesDoNotWait compiles a small module while a place for large ones is taken.
func TestSmallModulesDoNotWait(t *testing.T) {
	rt := runtime(t, wasm.Options{})
	large := guest{
		entry: echo(), more: strings.Split(strings.Repeat(strings.Repeat("\x03\x40"+end, 1000)+",", 60)+"\x01", ","),
	}.binary()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := rt.Compile(ctx, large)
			ended <- err
		}()
	}
	compile(t, rt, guest{entry: echo()}.binary())
	select {
	case err := <-ended:
		t.Fatalf("the large modules were done before the small one: %v", err)
	default:
	}
	// Whoever leaves does not have to wait for the rest of the module.
	leave()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestCancelledCalls ends calls by their context, while they run and while they wait.
func TestCancelledCalls(t *testing.T) {
	m := compile(t, runtime(t, wasm.Options{}), guest{entry: endless + echo()}.binary())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			ctx, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer stop()
			if _, err := m.Run(ctx, "apply_handler", time.Hour, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func FuzzCompile(f *testing.F) {
	f.Add(guest{entry: echo()}.binary())
	f.Add(guest{
		entry: call(2) + echo(), more: []string{fib()}, globals: []int64{0}, table: 3, data: "abc", start: true,
	}.binary())
	f.Add(guest{
		entry: echo(), imports: []string{"wasi_snapshot_preview1 sched_yield"},
		importTypes: []string{"\x60\x00\x01\x7f"},
	}.binary())
	f.Fuzz(func(t *testing.T, binary []byte) {
		m, err := runtime(t, wasm.Options{MemoryPages: 16}).Compile(t.Context(), binary)
		if err != nil {
			if f, ok := errors.AsType[*sandbox.Fault](err); !ok || f.Kind != sandbox.Start {
				t.Errorf("%v: %#v", err, err)
			}
			return
		}
		for _, name := range m.Entrypoints() {
			_, err := m.Run(t.Context(), name, 5*time.Millisecond, []byte("{}"))
			if _, ok := errors.AsType[*sandbox.Fault](err); err != nil && !ok {
				t.Errorf("%v: %#v", err, err)
			}
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
