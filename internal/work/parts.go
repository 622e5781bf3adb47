package work

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// Parts are parts of one piece of work that are done beside each other. Where one of them panics, so does whoever waits for them: a fault is
// told where all others of the piece are told, and the process goes on. The zero Parts has none.
type Parts struct {
	running sync.WaitGroup
	mu      sync.Mutex
	thrown  error
}

// Go does a part on a goroutine of its own.
func (p *Parts) Go(part func()) {
	p.running.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.thrown = fmt.Errorf("in a part of the work: %v\n%s", v, debug.Stack())
			}
		}()
		part()
	})
}

// Wait waits until all parts are done. It panics with an error where one of them has.
func (p *Parts) Wait() {
	p.running.Wait()
	if p.thrown != nil {
		panic(p.thrown)
	}
}
