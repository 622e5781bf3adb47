package wasm

import (
	"context"
	"runtime"
)

// Take takes memory as calls do; give gives it back.
func Take(ctx context.Context, rt *Runtime, n int64) (give func(), err error) {
	if err := rt.memory.acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { rt.memory.release(n) }, nil
}

// AwaitWaiting waits until somebody waits for memory, or until it is over.
func AwaitWaiting(rt *Runtime, over func() bool) {
	for waiting := false; !waiting && !over(); runtime.Gosched() {
		rt.memory.mu.Lock()
		waiting = rt.memory.freed != nil
		rt.memory.mu.Unlock()
	}
}
