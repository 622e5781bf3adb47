package wasm_test

import (
	"sync"
	"testing"
	"time"

	"j17/internal/code/sandbox"
	"j17/internal/code/wasm"
)

// TestRunningMemoryIsLimited: a call that wants more than there is for all of them ends, whatever its code makes of
// that, and what it has taken is given back.
func TestRunningMemoryIsLimited(t *testing.T) {
	rt := runtime(t, wasm.Options{RunningBytes: 16 << 16})
	greedy := compile(t, rt, guest{entry: i32(20) + grow + drop + echo()}.binary())
	modest := compile(t, rt, guest{entry: i32(4) + grow + drop + echo()}.binary())
	large := compile(t, rt, guest{pages: 12, entry: echo()}.binary())
	f, err := greedy.Function("apply_handler", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		out, err := f.Call(t.Context(), []byte("{}"))
		if fault := faultOf(t, err); fault.Kind != sandbox.Busy || out != nil {
			t.Fatalf("%q, %#v", out, fault)
		}
		for _, m := range []*wasm.Module{modest, large} {
			if got := answer(t, m, `{"n":1}`); got != `{"n":1}` {
				t.Fatal(got)
			}
		}
	}
	// Calls that do not fit side by side wait for each other.
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() {
			if got := answer(t, large, `{"n":2}`); got != `{"n":2}` {
				t.Error(got)
			}
		})
	}
	calls.Wait()
}

// TestUnusedMemoryIsNotKept: a module that begins with a lot of zeros costs what is not zero.
func TestUnusedMemoryIsNotKept(t *testing.T) {
	m := compile(
		t, runtime(t, wasm.Options{}), guest{pages: 1000, entry: echo(), data: "not zero", dataAt: 999 << 16}.binary(),
	)
	if n := m.ImageBytes(); n == 0 || n > 64<<10 {
		t.Errorf("%d bytes are kept", n)
	}
	for range 2 {
		if got := answer(t, m, `{}`); got != `{}` {
			t.Error(got)
		}
	}
}

// BenchmarkGrow grows a memory page by page to the limit, and begins with a new instance each time.
func BenchmarkGrow(b *testing.B) {
	// Grow by a page until that is refused.
	m := compile(
		b, runtime(b, wasm.Options{}),
		guest{entry: "\x03\x40" + i32(1) + grow + i32(-1) + "\x47\x0d\x00" + end + echo()}.binary(),
	)
	for b.Loop() {
		if got := answer(b, m, "{}"); got != "{}" {
			b.Fatal(got)
		}
	}
}
