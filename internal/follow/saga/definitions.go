package saga

import (
	"context"
	"errors"
	"slices"
	"sync"

	"j17"
	"j17/internal/lang/spec"
)

// maxDefinitions is how many specs are kept compiled for sagas.
const maxDefinitions = 32

// definitions compiles the specs that sagas were started with, each once.
type definitions struct {
	specs Specs

	mu    sync.Mutex
	known map[definition]*compiled
	// recent are the keys of known, the ones that were used last at the end.
	recent []definition
}

// definition names a version of an environment's spec.
type definition struct {
	tenant  j17.Tenant
	version int
}

// compiled is a spec, or why there is none. Both count once ready is closed.
type compiled struct {
	ready chan struct{}
	spec  *spec.Compiled
	err   error
}

// of returns the definition of a saga. The first caller compiles it, and others wait.
func (d *definitions) of(ctx context.Context, t j17.Tenant, version int) (*spec.Compiled, error) {
	// Find it, or be the one who makes it.
	key := definition{t, version}
	d.mu.Lock()
	c := d.known[key]
	mine := c == nil
	if mine {
		c = &compiled{ready: make(chan struct{})}
		d.known[key] = c
	}
	d.use(key)
	d.mu.Unlock()
	if !mine {
		select {
		case <-c.ready:
			return c.spec, c.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}

	// Make it. A failure, which is also what a panic leaves, is not kept: the next one tries again.
	c.err = errors.New("saga: the definition could not be made")
	defer func() {
		if c.err != nil {
			d.mu.Lock()
			if d.known[key] == c {
				delete(d.known, key)
				d.recent = slices.DeleteFunc(d.recent, func(k definition) bool { return k == key })
			}
			d.mu.Unlock()
		}
		close(c.ready)
	}()
	c.spec, c.err = d.specs.Compiled(ctx, t, version)
	return c.spec, c.err
}

// use makes a key the one that was used last, and forgets those beyond the limit. The caller holds mu.
func (d *definitions) use(key definition) {
	d.recent = append(slices.DeleteFunc(d.recent, func(k definition) bool { return k == key }), key)
	for len(d.recent) > maxDefinitions {
		delete(d.known, d.recent[0])
		d.recent = d.recent[1:]
	}
}
