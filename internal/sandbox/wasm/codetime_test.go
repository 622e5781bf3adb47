package wasm_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"j17/internal/sandbox"
	"j17/internal/sandbox/wasm"
)

// rounds answers its input after a number of rounds of a loop.
func rounds(n int64) guest {
	return guest{
		entry:  i64(n) + set(2) + "\x03\x40" + get(2) + i64(-1) + i64add + "\x22\x02" + "\x50\x45\x0d\x00" + end + echo(), // tee, eqz, eqz, br_if
		locals: "\x7e",
	}
}

// TestCodeTimeDoesNotDependOnTheLoad calls code that takes most of its time beside calls that take all the processors.
func TestCodeTimeDoesNotDependOnTheLoad(t *testing.T) {
	rt := runtime(t, wasm.Options{})
	m := compile(t, rt, rounds(5_000_000).binary())
	alone, err := m.Run(t.Context(), "apply_handler", time.Hour, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	limit := alone.Code + alone.Code/20
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	bad := compile(t, rt, guest{entry: endless + echo()}.binary())
	for range 4 {
		others.Go(func() {
			for ctx.Err() == nil {
				_, _ = bad.Run(ctx, "apply_handler", 100*time.Millisecond, []byte("{}"))
			}
		})
	}
	for range 5 {
		beside, err := m.Run(t.Context(), "apply_handler", limit, []byte("{}"))
		if err != nil {
			t.Errorf("beside others: %v", err)
		}
		if beside.Code != alone.Code {
			t.Errorf("the same call took %v of code time, and %v alone", beside.Code, alone.Code)
		}
	}
	stop()
	others.Wait()
	for range 3 {
		_, err := m.Run(t.Context(), "apply_handler", alone.Code-alone.Code/20, []byte("{}"))
		if f, ok := errors.AsType[*sandbox.Fault](err); !ok || f.Kind != sandbox.Timeout {
			t.Errorf("with too little code time: %v", err)
		}
	}
}

// TestReplayMayTakeMore calls code with too little time for a first call, and enough for a replay.
func TestReplayMayTakeMore(t *testing.T) {
	m := compile(t, runtime(t, stopped()), rounds(5_000_000).binary())
	alone, err := m.Run(t.Context(), "apply_handler", time.Hour, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("apply_handler", alone.Code/2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Call(t.Context(), []byte("{}")); faultOf(t, err).Kind != sandbox.Timeout {
		t.Error(err)
	}
	for range 20 { // a replay has no allowance for all calls together
		if _, err := f.Call(sandbox.ForReplay(t.Context()), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCommandHasOneAllowance calls code for one command until it has taken all that a command may take.
func TestCommandHasOneAllowance(t *testing.T) {
	m := compile(t, runtime(t, stopped()), rounds(5_000_000).binary())
	alone, err := m.Run(t.Context(), "apply_handler", time.Hour, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	most := int(sandbox.CommandTime/alone.Code) + 1
	for range 2 { // the next command has another one
		ctx := sandbox.ForCommand(t.Context())
		n := 0
		for ; err == nil && n <= most; n++ {
			_, err = m.Run(ctx, "apply_handler", 2*alone.Code, []byte("{}"))
		}
		if f := faultOf(t, err); f.Kind != sandbox.Exhausted || n < most-2 {
			t.Errorf("after %d calls of %v: %v", n, alone.Code, f)
		}
		err = nil
	}
	// One call that may take more by itself is not cut off by it.
	slow := compile(t, runtime(t, stopped()), rounds(5_000_000*int64(most+1)).binary())
	if _, err := slow.Run(sandbox.ForCommand(t.Context()), "apply_handler", 2*sandbox.CommandTime, []byte("{}")); err != nil {
		t.Error(err)
	}
}

// TestBytesCount passes much in and out of code that does nothing.
func TestBytesCount(t *testing.T) {
	m := compile(t, runtime(t, wasm.Options{}), guest{entry: echo(), pages: 200}.binary())
	ctx := sandbox.ForCommand(t.Context())
	input := []byte(strings.Repeat(" ", 10<<20))
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = m.Run(ctx, "apply_handler", time.Second, input)
	}
	if f := faultOf(t, err); f.Kind != sandbox.Exhausted || n > 20 {
		t.Errorf("after %d calls: %v", n, f)
	}
}

// TestHostFunctionsCount spends all the time in functions of the host.
func TestHostFunctionsCount(t *testing.T) {
	wasi := func(name, typ, args string) guest {
		return guest{
			pages: 1000, imports: []string{"wasi_snapshot_preview1 " + name}, importTypes: []string{typ},
			entry: "\x03\x40" + args + call(0) + drop + "\x0c\x00" + end + echo(),
		}
	}
	for name, g := range map[string]guest{
		"random_get": wasi("random_get", "\x60\x02\x7f\x7f\x01\x7f", i32(0)+i32(60<<20)),
		"fd_write":   wasi("fd_write", "\x60\x04\x7f\x7f\x7f\x7f\x01\x7f", i32(1)+i32(4096)+i32(1024)+i32(0)),
		"poll":       wasi("poll_oneoff", "\x60\x04\x7f\x7f\x7f\x7f\x01\x7f", i32(0)+i32(1<<20)+i32(1024)+i32(0)),
	} {
		t.Run(name, func(t *testing.T) {
			m := compile(t, runtime(t, wasm.Options{}), g.binary())
			r, err := m.Run(t.Context(), "apply_handler", 50*time.Millisecond, []byte("{}"))
			if f := faultOf(t, err); f.Kind != sandbox.Timeout {
				t.Error(f)
			}
			if r.Used > 5*time.Second {
				t.Errorf("50ms of code time took %v", r.Used)
			}
		})
	}
}
