package wasm_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"j17/internal/code/sandbox"
	"j17/internal/code/wasm"
)

// diary is a module that remembers all it can: each call adds its input to a sum in memory and to one in a global,
// appends it to the memory behind the last one, and answers with both sums and all that it remembers. A byte 'G' grows
// the memory, 'T' traps, 'L' never ends.
func diary(more func(*guest)) []byte {
	const sum, buffer = 2048, 4096
	first := get(0) + load8
	is := func(b byte) string { return first + i32(int64(b)) + "\x46\x04\x40" } // eq, if
	g := guest{
		globals: []int64{5, buffer},
		entry: is('G') + i32(1) + grow + drop + end +
			is('T') + unreachable + end +
			is('L') + endless + end +
			// sums
			i32(sum) + i32(sum) + load32 + first + "\x6a" + store32 +
			gget(0) + first + extend + i64add + gset(0) +
			i32(sum+4) + gget(0) + "\xa7" + store32 + // i32.wrap_i64
			// the size of the memory
			i32(sum+8) + "\x3f\x00" + store32 +
			// append
			gget(1) + "\xa7" + first + store8 +
			gget(1) + i64(1) + i64add + gset(1) +
			i64(sum<<32) + gget(1) + i64(-sum) + i64add + i64or,
		data: "\x07\x00\x00\x00",
	}
	if more != nil {
		more(&g)
	}
	return g.binary()
}

// TestPooledInstancesAnswerLikeFreshOnes makes random calls of one module and compares each with the answer of a module
// that has never been called.
func TestPooledInstancesAnswerLikeFreshOnes(t *testing.T) {
	// The second one fills a table when it is started and changes it, which only a new instance can undo.
	for name, more := range map[string]func(*guest){
		"memory and globals": nil,
		"tables": func(g *guest) {
			g.table = 2
			g.entry = "\xd0\x70" + i32(1) + "\xfc\x0f\x00" + i32(1) + "\x6a" + set(2) + // local 2 = 1 + table.grow 1
				i32(2052) + get(2) + store32 + g.entry
			g.locals = "\x7f"
			g.start, g.more = true, []string{i32(3000) + i32(9) + store32}
		},
	} {
		t.Run(name, func(t *testing.T) {
			binary := diary(more)
			pooled := compile(t, runtime(t, wasm.Options{}), binary)
			want := map[string]string{}
			for _, input := range []string{"a", "b", "G", "T", "L"} {
				want[input] = outcome(t, compile(t, runtime(t, wasm.Options{}), binary), input)
			}
			if want["a"] == want["b"] || want["a"] == want["G"] || want["T"] == want["L"] {
				t.Fatal(want)
			}
			rapid.Check(t, func(r *rapid.T) {
				for _, input := range rapid.SliceOfN(rapid.SampledFrom([]string{
					"a", "b", "a", "b", "G", "T", "L",
				}), 1, 20).Draw(r, "calls") {
					if got := outcome(t, pooled, input); got != want[input] {
						r.Fatalf("%s: got %q, want %q", input, got, want[input])
					}
				}
			})
		})
	}
}

// TestConcurrentCallsAnswerTheSame calls one module from many goroutines.
func TestConcurrentCallsAnswerTheSame(t *testing.T) {
	m := compile(t, runtime(t, wasm.Options{}), diary(nil))
	want := outcome(t, m, "a")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				if got := outcome(t, m, "a"); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
	wg.Wait()
}

func outcome(t *testing.T, m *wasm.Module, input string) string {
	t.Helper()
	timeout := 10 * time.Second
	if input == "L" {
		timeout = 3 * time.Millisecond
	}
	result, err := m.Run(t.Context(), "apply_handler", timeout, []byte(input))
	if err != nil {
		f := faultOf(t, err)
		return string(f.Kind) + ": " + f.Detail
	}
	return string(result.Output)
}

// TestIdleMemoryIsLimited compiles more modules than may keep an instance.
func TestIdleMemoryIsLimited(t *testing.T) {
	rt := runtime(t, wasm.Options{IdleBytes: 3 * 64 << 10})
	var all []*wasm.Module
	for range 6 {
		all = append(all, compile(t, rt, diary(nil)))
	}
	want := answer(t, all[0], "a")
	for range 3 {
		for _, m := range all {
			if got := answer(t, m, "a"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
}

// TestDigest tells code and entry points apart.
func TestDigest(t *testing.T) {
	rt := runtime(t, wasm.Options{})
	digest := func(binary []byte, name string, timeout time.Duration) [32]byte {
		f, err := compile(t, rt, binary).Function(name, timeout)
		if err != nil {
			t.Fatal(err)
		}
		return f.Digest()
	}
	a := digest(guest{entry: echo()}.binary(), "apply_handler", 0)
	if a != digest(guest{entry: echo()}.binary(), "apply_handler", time.Second) {
		t.Error("the digest depends on the timeout")
	}
	if a == digest(guest{entry: echo(), data: "x"}.binary(), "apply_handler", 0) {
		t.Error("other code has the same digest")
	}
	if a == digest(guest{entry: echo(), renamed: "other"}.binary(), "other", 0) {
		t.Error("another entry point has the same digest")
	}
}

// TestCacheSurvivesDamage damages each file of the cache in turn.
func TestCacheSurvivesDamage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	binary := guest{entry: echo()}.binary()
	compileAgain := func() {
		t.Helper()
		if got := answer(t, compile(t, runtime(t, wasm.Options{CacheDir: dir}), binary), `{"a":1}`); got != `{"a":1}` {
			t.Errorf("got %q", got)
		}
	}
	files := func() map[string][]byte {
		t.Helper()
		all := map[string][]byte{}
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				all[path], err = os.ReadFile(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	compileAgain()
	before := files()
	if len(before) != 2 {
		t.Fatalf("%d files", len(before))
	}
	for path, raw := range before {
		for what, damaged := range map[string][]byte{
			"empty": nil, "cut": raw[:len(raw)/2], "flipped": bytes.Map(func(r rune) rune { return r ^ 1 }, raw),
			"longer": append(slices.Clip(raw), 0),
		} {
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			compileAgain()
			if got := files(); !bytes.Equal(got[path], raw) {
				t.Errorf("%s %s: it is still there", what, filepath.Base(path))
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		compileAgain()
	}
	// A folder that cannot be used costs time, nothing else.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir = file
	compileAgain()
}

// TestLogKeepsTheEnd writes a lot to the standard error.
func TestLogKeepsTheEnd(t *testing.T) {
	write := func(at int64) string { return i32(2) + i32(at) + i32(1) + i32(3000) + call(0) + drop }
	m := compile(t, runtime(t, wasm.Options{}), guest{
		imports: []string{"wasi_snapshot_preview1 fd_write"}, importTypes: []string{"\x60\x04\x7f\x7f\x7f\x7f\x01\x7f"},
		// Ten times 2000 bytes, then the last words.
		entry: strings.Repeat(write(2048), 10) + write(2056) + unreachable,
		data:  "\x00\x10\x00\x00" + "\xd0\x07\x00\x00" + "\x10\x08\x00\x00" + "\x05\x00\x00\x00" + "last.",
	}.binary())
	_, err := m.Run(t.Context(), "apply_handler", 0, nil)
	f := faultOf(t, err)
	if f.Kind != sandbox.Trap || !strings.HasSuffix(f.Log, "last.") || !strings.HasPrefix(f.Log, "…") ||
		len(f.Log) > 8<<10+3 {
		t.Errorf("%s, a log of %d bytes", f.Kind, len(f.Log))
	}
}

// TestClosedModule calls a module that is closed.
func TestClosedModule(t *testing.T) {
	m := compile(t, runtime(t, wasm.Options{}), guest{entry: echo()}.binary())
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := m.Run(t.Context(), "apply_handler", 0, nil)
	if f := faultOf(t, err); f.Kind != sandbox.Start {
		t.Errorf("%#v", f)
	}
}
