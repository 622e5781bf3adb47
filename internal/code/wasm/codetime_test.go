package wasm_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"j17/internal/code/sandbox"
	"j17/internal/code/wasm"
)

// rounds answers its input after a number of rounds of a loop.
func rounds(n int64) guest {
	return guest{
		// Tee, eqz, eqz, br_if.
		entry: i64(n) + set(2) + "\x03\x40" + get(2) + i64(-1) + i64add + "\x22\x02" + "\x50\x45\x0d\x00" + end +
			echo(),
		locals: "\x7e",
	}
}

// counting is a clock that goes on a little with each look at it: as code looks at it with each tick, it shows how much
// work was done by all calls together, however fast the machine is and whatever else it does.
type counting struct{ looks *atomic.Int64 }

const look = 200 * time.Microsecond // the code time of a tick

func (c counting) Now() time.Time { return time.Unix(1_700_000_000, c.looks.Add(1)*int64(look)) }

// Wait is not called.
func (c counting) Wait(ctx context.Context, _ time.Time) error { return ctx.Err() }

// counted is a runtime on such a clock.
func counted() (wasm.Options, counting) {
	c := counting{&atomic.Int64{}}
	return wasm.Options{Clock: c}, c
}

// TestCodeTimeDoesNotDependOnTheLoad calls code that takes most of its time beside calls that take all the processors.
func TestCodeTimeDoesNotDependOnTheLoad(t *testing.T) {
	options, _ := counted()
	rt := runtime(t, options)
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
	for done := 0; done < 5; {
		beside, err := m.Run(t.Context(), "apply_handler", limit, []byte("{}"))
		if f, ok := errors.AsType[*sandbox.Fault](err); ok && f.Kind == sandbox.Busy {
			continue // the others have done very much while the system did not let it run
		}
		if done++; err != nil {
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
	if _, err := slow.Run(
		sandbox.ForCommand(t.Context()), "apply_handler", 2*sandbox.CommandTime, []byte("{}"),
	); err != nil {
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

// TestHostFunctionsCount spends all the time in functions of the host. They cost what they do: a call of one is cut off
// for it, and takes at least the code time that a fast machine needs for it.
func TestHostFunctionsCount(t *testing.T) {
	for name, host := range map[string]struct {
		typ, args string
		least     time.Duration
	}{
		// 60 GB a second.
		"random_get": {"\x60\x02\x7f\x7f\x01\x7f", i32(0) + i32(60<<20), time.Millisecond},
		// Vectors.
		"fd_write": {
			"\x60\x04\x7f\x7f\x7f\x7f\x01\x7f", i32(1) + i32(4096) + i32(1024) + i32(0), 1024 * 10 * time.Nanosecond,
		},
		"poll_oneoff": {
			"\x60\x04\x7f\x7f\x7f\x7f\x01\x7f", i32(0) + i32(1<<20) + i32(1024) + i32(0), 1024 * 10 * time.Nanosecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			calling := func(before, again string) *wasm.Module {
				return compile(t, runtime(t, stopped()), guest{
					pages: 1000, imports: []string{"wasi_snapshot_preview1 " + name}, importTypes: []string{host.typ},
					locals: "\x7e",
					entry:  before + "\x03\x40" + host.args + call(0) + drop + again + "\x0d\x00" + end + echo(),
				}.binary())
			}
			const calls = 20
			some := calling(i64(calls)+set(2), get(2)+i64(-1)+i64add+"\x22\x02"+"\x50\x45") // tee, eqz, eqz
			r, err := some.Run(t.Context(), "apply_handler", time.Hour, []byte("{}"))
			if err != nil || r.Code < calls*host.least {
				t.Fatalf("%d calls took %v of code time, %v", calls, r.Code, err)
			}
			endless := calling("", i32(1))
			if _, err := endless.Run(
				t.Context(), "apply_handler", 50*time.Millisecond, []byte("{}"),
			); faultOf(t, err).Kind != sandbox.Timeout {
				t.Error(err)
			}
		})
	}
}
