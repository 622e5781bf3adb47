package wasm

import (
	"context"
	"sync"

	"github.com/tetratelabs/wazero/experimental"
)

// memories bounds the memory that all running calls take together.
type memories struct {
	limit int64

	mu    sync.Mutex
	taken int64
	// freed, if not nil, is closed when some memory is given back.
	freed chan struct{}
}

// acquire waits until n bytes are free. A call that is alone may have more than there are.
func (m *memories) acquire(ctx context.Context, n int64) error {
	for {
		m.mu.Lock()
		if m.taken == 0 || m.taken+n <= m.limit {
			m.taken += n
			m.mu.Unlock()
			return nil
		}
		if m.freed == nil {
			m.freed = make(chan struct{})
		}
		freed := m.freed
		m.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// extend takes n more bytes for a call that already has some, if they are free. It does not wait: calls that wait for
// each other's memory would do so forever.
func (m *memories) extend(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken+n > m.limit {
		return false
	}
	m.taken += n
	return true
}

func (m *memories) release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken -= n
	if m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
}

// linear is the memory of one instance. All that it can ever grow to is reserved at once, so growing moves nothing; the
// system provides a page when it is first written to, and has all of them back when the instance is closed.
type linear struct {
	reserved []byte
	release  func()
	size     uint64
	// run is the call that the instance serves, nil between calls.
	run *run
}

// newLinear is a wazero allocator.
func newLinear(most uint64) *linear {
	l := &linear{}
	l.reserved, l.release = reserve(most)
	return l
}

// Reallocate returns the memory with another size, or nil where there is no room for it.
func (l *linear) Reallocate(size uint64) []byte {
	if size > uint64(len(l.reserved)) {
		return nil
	}
	if l.run != nil && size > l.size && !l.run.extend(int64(size-l.size)) {
		return nil
	}
	l.size = size
	return l.reserved[:size:size]
}

// Free gives the memory back.
func (l *linear) Free() {
	if l.release != nil {
		l.release()
	}
	l.reserved, l.release = nil, nil
}

// withLinear makes the next instance that is made with the context have a memory that is put into place.
func withLinear(ctx context.Context, place **linear) context.Context {
	return experimental.WithMemoryAllocator(ctx,
		experimental.MemoryAllocatorFunc(func(_, most uint64) experimental.LinearMemory {
			*place = newLinear(most)
			return *place
		}))
}
