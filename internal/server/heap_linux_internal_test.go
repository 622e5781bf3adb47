package server

import (
	"bytes"
	"os"
	"reflect"
	"runtime"
	"testing"
)

// TestForgetHeap frees most objects of pages of several sizes, whose others stay in use, and looks at the memory where
// they were.
func TestForgetHeap(t *testing.T) {
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Skip("the memory of the process cannot be read here:", err)
	}
	defer func() { _ = mem.Close() }()
	word := []byte("Quetzalcoatl")
	const each, keptOf = 2000, 50
	for _, size := range []int{32, 288, 640, 1280, 2688} {
		// The objects, and where those are that go.
		var kept [][]byte
		var gone []uintptr
		for i := range each {
			b := append(make([]byte, 0, size), word...)
			if i%keptOf == 0 {
				kept = append(kept, b)
			} else {
				gone = append(gone, reflect.ValueOf(b).Pointer())
			}
		}
		forgetHeap()

		found, read := 0, make([]byte, len(word))
		for _, at := range gone {
			if _, err := mem.ReadAt(read, int64(at)); err == nil && bytes.Equal(read, word) {
				found++
			}
		}
		if found > each/20 { // the runtime may take some pages for something else meanwhile
			t.Errorf("%d of %d objects of %d bytes have their content", found, len(gone), size)
		}
		for _, b := range kept {
			if !bytes.Equal(b, word) {
				t.Fatalf("an object of %d bytes that is in use has lost its content", size)
			}
		}
		runtime.KeepAlive(kept)
	}
}
