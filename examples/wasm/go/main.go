//go:build wasip1

// A handler and an implication for j17. The rules are in order.go, which knows nothing of WebAssembly and can be tested
// like any other Go code; this file is the way in and out.
package main

import (
	"encoding/json"
	"unsafe"
)

// main is not called: the module is built as a library (-buildmode=c-shared).
func main() {}

// init runs once, before the first call; all calls begin from the memory that it leaves. Running both functions here
// saves each call what encoding/json does when it meets a type for the first time.
func init() {
	for _, f := range []func([]byte) []byte{call(handle), call(imply)} {
		f([]byte(`{"state":{"lines":[{}]},"event":{"data":{"unit_price":1,"quantity":1,"items":[{"quantity":1}]}}}`))
		f([]byte(`{}`))
	}
}

// kept holds the blocks that j17 writes its input to, so that they are not collected. Memory is put back after each
// call.
var kept [][]byte

//go:wasmexport malloc
func malloc(size uint32) unsafe.Pointer {
	block := make([]byte, max(size, 1))
	kept = append(kept, block)
	return unsafe.Pointer(&block[0])
}

//go:wasmexport apply_handler
func applyHandler(ptr, size uint32) uint64 { return answer(ptr, size, call(handle)) }

//go:wasmexport compute_implications
func computeImplications(ptr, size uint32) uint64 { return answer(ptr, size, call(imply)) }

// answer passes the input to a function and returns where its output is.
func answer(ptr, size uint32, f func([]byte) []byte) uint64 {
	output := f(unsafe.Slice((*byte)(unsafe.Pointer(uintptr(ptr))), size))
	kept = append(kept, output)
	return uint64(uintptr(unsafe.Pointer(&output[0])))<<32 | uint64(len(output))
}

// call puts JSON around a function.
func call[In, Out any](f func(In) Out) func([]byte) []byte {
	return func(input []byte) []byte {
		var in In
		if err := json.Unmarshal(input, &in); err != nil {
			panic(err)
		}
		output, err := json.Marshal(f(in))
		if err != nil {
			panic(err)
		}
		return output
	}
}
