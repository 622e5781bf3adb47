package saga

import (
	"context"
	"errors"
	"slices"
	"sync"

	"j17"
	"j17/internal/lang/spec"
)

// maxDefinitions is how many compiled specs are cached.
const maxDefinitions = 32

// definitions compiles the specs that sagas were started with, and caches them.
type definitions struct {
	specs Specs

	mu    sync.Mutex
	known map[definition]*compiled
	// recent has the keys of known, the most recently used ones last.
	recent []definition
}

// definition identifies a version of an environment's spec.
type definition struct {
	tenant  j17.Tenant
	version int
}

// compiled is a spec, or the error of compiling it. Both are valid once ready is closed.
type compiled struct {
	ready chan struct{}
	spec  *spec.Compiled
	err   error
}

// of returns the spec of a saga. The first caller compiles it, and others wait.
func (d *definitions) of(ctx context.Context, t j17.Tenant, version int) (*spec.Compiled, error) {
	// It is cached, or this caller compiles it.
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

	// Compile it. A failure, which includes a panic, is not cached: the next caller tries again.
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

// use marks a key as most recently used, and drops those beyond the limit. The caller holds mu.
func (d *definitions) use(key definition) {
	d.recent = append(slices.DeleteFunc(d.recent, func(k definition) bool { return k == key }), key)
	for len(d.recent) > maxDefinitions {
		delete(d.known, d.recent[0])
		d.recent = d.recent[1:]
	}
}
