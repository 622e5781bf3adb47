//go:build linux || darwin || freebsd

package wasm

import "syscall"

// reserve returns n bytes of zeros that take no room until they are written to, and what gives them back.
func reserve(n uint64) (memory []byte, release func()) {
	b, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return make([]byte, n), nil
	}
	return b, func() { _ = syscall.Munmap(b) }
}
