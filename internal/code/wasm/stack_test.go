package wasm_test

import (
	"strings"
	"testing"
	"time"

	"j17/internal/code/sandbox"
	"j17/internal/code/wasm"
)

// deep is a module whose calls go down as many functions as it is said, and come back.
func deep(functions int64) guest {
	// I64.lt_s, if.
	down := gget(0) + i64(1) + i64add + gset(0) + gget(0) + i64(functions) + "\x53\x04\x40" + call(2) + end
	return guest{entry: call(2) + echo(), more: []string{down}, globals: []int64{0}}
}

// TestStacksAreLimited: the stack of a call is memory as all other, and an instance that waits for its next call has no
// large one.
func TestStacksAreLimited(t *testing.T) {
	options := stopped()
	options.RunningBytes = 4 << 20
	small := runtime(t, options)
	modest := compile(t, small, deep(1_000).binary())
	f, err := compile(t, small, deep(200_000).binary()).Function("apply_handler", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		out, err := f.Call(t.Context(), []byte("{}"))
		if fault := faultOf(t, err); fault.Kind != sandbox.Busy || out != nil {
			t.Fatalf("%q, %#v", out, fault)
		}
		if got := answer(t, modest, `{"n":1}`); got != `{"n":1}` {
			t.Fatal(got)
		}
	}

	// Where there is room, it answers, and nothing of that stays.
	rt := runtime(t, stopped())
	m := compile(t, rt, deep(200_000).binary())
	for range 3 {
		if got := answer(t, m, `{}`); got != `{}` {
			t.Fatal(got)
		}
	}
	if n := rt.Idle(); n < 64<<10 || n > 2<<20 {
		t.Errorf("instances keep %d bytes", n)
	}
}

// TestStacksOfStart: what a module does when it is started has the memory that calls have.
func TestStacksOfStart(t *testing.T) {
	options := stopped()
	options.RunningBytes = 4 << 20
	g := deep(200_000)
	g.start = true
	_, err := runtime(t, options).Compile(t.Context(), g.binary())
	if fault := faultOf(t, err); fault.Kind != sandbox.Start ||
		!strings.Contains(fault.Detail, "the memory for custom code") {
		t.Errorf("%#v", fault)
	}
}

// TestStartsWaitForMemory: a module that is started while calls of others have the memory that its stack needs waits
// for these, and is started then.
func TestStartsWaitForMemory(t *testing.T) {
	options := stopped()
	options.RunningBytes = 300 << 20
	rt := runtime(t, options)
	taken, err := wasm.Take(t.Context(), rt, options.RunningBytes-(64<<20)-(1<<10))
	if err != nil {
		t.Fatal(err)
	}
	g := deep(200_000)
	g.start = true
	ended := make(chan error, 1)
	go func() {
		_, err := rt.Compile(t.Context(), g.binary())
		ended <- err
	}()
	wasm.AwaitWaiting(rt, func() bool { return len(ended) > 0 })
	taken()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestMemoryOfStartIsCounted: a module that is started again for each call begins it with the memory that it has taken
// then.
func TestMemoryOfStartIsCounted(t *testing.T) {
	options := wasm.Options{Clock: stopped().Clock, RunningBytes: 16 << 16}
	call := func(more int64) error {
		g := guest{
			table: 1, start: true, more: []string{i32(10) + grow + drop},
			// Table.grow: no instance serves twice.
			entry: "\xd0\x70" + i32(1) + "\xfc\x0f\x00" + drop + i32(more) + grow + drop + echo(),
		}
		_, err := compile(t, runtime(t, options), g.binary()).Run(
			t.Context(), "apply_handler", time.Second, []byte("{}"),
		)
		return err
	}
	if err := call(5); err != nil {
		t.Errorf("16 of 16 pages: %v", err)
	}
	if fault := faultOf(t, call(6)); fault.Kind != sandbox.Busy {
		t.Errorf("17 of 16 pages: %#v", fault)
	}
}
