//go:build !race

package wasm_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"j17/internal/base/work/worktest"
	"j17/internal/code/sandbox"
	"j17/internal/code/wasm"
)

// costly are the shapes of functions that take a compiler longer than their length lets expect, with n parts.
func costly() map[string]func(n int) guest {
	times := strings.Repeat
	return map[string]func(n int) guest{
		"ifs": func(n int) guest { return guest{entry: times(get(0)+"\x04\x40"+end, n) + echo()} },
		"if, else": func(n int) guest {
			return guest{
				locals: "\x7f", entry: times(get(0)+"\x04\x40"+get(0)+set(2)+"\x05"+get(1)+set(2)+end, n) + echo(),
			}
		},
		"nested ifs":   func(n int) guest { return guest{entry: times(get(0)+"\x04\x40", n) + times(end, n) + echo()} },
		"blocks":       func(n int) guest { return guest{entry: times("\x02\x40"+end, n) + echo()} },
		"loops":        func(n int) guest { return guest{entry: times("\x03\x40"+end, n) + echo()} },
		"loops, br_if": func(n int) guest { return guest{entry: times("\x03\x40"+get(0)+"\x0d\x00"+end, n) + echo()} },
		"nested loops": func(n int) guest {
			return guest{entry: times(times("\x03\x40", 400)+times(end, 400), n/400) + echo()}
		},
		"br_if": func(n int) guest { return guest{entry: "\x02\x40" + times(get(0)+"\x0d\x00", n) + end + echo()} },
		"nested br_if": func(n int) guest {
			var b strings.Builder
			for i := range n {
				b.WriteString(get(0) + "\x0d" + uleb(uint64(n-1-i)) + end)
			}
			return guest{entry: times("\x02\x40", n) + b.String() + echo()}
		},
		"returns": func(n int) guest {
			return guest{entry: times(get(0)+"\x04\x40"+i64(0)+"\x0f"+end, n) + echo()}
		},
		"unreachable": func(n int) guest { return guest{entry: times(get(0)+"\x04\x40"+unreachable+end, n) + echo()} },
		"br_table": func(n int) guest {
			return guest{
				entry: "\x02\x40" + get(0) + "\x0e" + uleb(uint64(n)) + times("\x00", n) + "\x00" + end + echo(),
			}
		},
		"many br_table": func(n int) guest {
			return guest{entry: times("\x02\x40"+get(0)+"\x0e"+uleb(100)+times("\x00", 100)+"\x00"+end, n/100) + echo()}
		},
		"loads": func(n int) guest { return guest{entry: get(0) + times(load32, n) + set(0) + echo()} },
		"calls": func(n int) guest { return guest{entry: times(call(2), n) + echo(), more: []string{"\x01"}} },
		"live values": func(n int) guest {
			return guest{entry: times(get(0)+i32(1)+"\x6a", n) + times("\x6a", n-1) + set(0) + echo()}
		},
		"divisions": func(n int) guest { return guest{entry: get(0) + times(i32(3)+"\x6d", n) + set(0) + echo()} },
		"locals, loops": func(n int) guest {
			return guest{
				locals: times("\x7f", 100),
				entry:  times("\x03\x40"+get(20)+i32(1)+"\x6a"+"\x22\x15"+"\x0d\x00"+end, n) + echo(),
			}
		},
		"functions": func(n int) guest {
			return guest{entry: echo(), more: strings.Split(times("\x01,", n)+"\x01", ",")}
		},
		"large functions": func(n int) guest {
			return guest{entry: echo(), more: strings.Split(times(times("\x03\x40"+end, 2000)+",", n/2000)+"\x01", ",")}
		},
	}
}

// TestCompileLimits refuses what would take long before it is compiled.
func TestCompileLimits(t *testing.T) {
	rt := runtime(t, wasm.Options{})
	for name, shape := range costly() {
		t.Run(name, func(t *testing.T) {
			_, err := rt.Compile(t.Context(), shape(200_000).binary())
			if f := faultOf(t, err); f.Kind != sandbox.Start || !strings.Contains(f.Detail, "allowed") &&
				!strings.Contains(f.Detail, "to be compiled in time") && !strings.Contains(f.Detail, "deep") {
				t.Errorf("%#v", f)
			}
		})
	}
}

// TestLargestFunctionsCompileInTime compiles functions that are almost as costly as allowed.
func TestLargestFunctionsCompileInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for a while")
	}
	rt := runtime(t, wasm.Options{})
	for _, name := range []string{"loops, br_if", "nested br_if", "unreachable", "many br_table"} {
		shape := costly()[name]
		least, most := 100, 200_000
		for most-least > most/10 { // find the limit from above, by what is refused without being compiled
			n := (least + most) / 2
			ctx, stop := context.WithCancel(t.Context())
			stop()
			if _, err := rt.Compile(ctx, shape(n).binary()); errors.Is(err, context.Canceled) {
				least = n
			} else {
				most = n
			}
		}
		before := worktest.ProcessorTime(t)
		m, err := rt.Compile(t.Context(), shape(least).binary())
		if err != nil {
			t.Fatalf("%s x %d: %v", name, least, err)
		}
		took := worktest.Since(t, before)
		t.Logf("%s x %d: %v", name, least, took)
		if took > 20*time.Second { // as a rule it is a tenth of it; without limits it is minutes
			t.Errorf("%s x %d took %v to compile", name, least, took)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
