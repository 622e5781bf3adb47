package projection

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/decider"
	"j17/internal/spec"
	"j17/internal/spec/diag"
	"j17/internal/store"
)

// headSpace has one item, whose revision changes with every change of the definitions that were posted.
const (
	headSpace store.Space = "projections.head"
	headKey               = "head"
)

// inForce is all projections of an environment under one spec and one revision of the posted definitions. It is immutable.
type inForce struct {
	compiled *spec.Compiled
	rev      uint64
	all      map[string]*definition
}

// definition is a projection that is in force.
type definition struct {
	*spec.Projection
	// identified is the latest identity that was asked for.
	identified atomic.Pointer[identity]
}

// identity tells what decides a projection's values beside the events of its sources.
type identity struct {
	of  *decider.Decider
	sum [sha256.Size]byte
}

// identity changes whenever the same events may yield other values than before: with the definition, and with the handlers of the types
// that it reads.
func (d *definition) identity(of *decider.Decider) [sha256.Size]byte {
	if known := d.identified.Load(); known != nil && known.of == of {
		return known.sum
	}
	all := append([]byte(nil), d.Fingerprint[:]...)
	for _, name := range d.Types() {
		typ := of.Program(name).Fingerprint
		all = append(all, typ[:]...)
	}
	id := &identity{of, sha256.Sum256(all)}
	d.identified.Store(id)
	return id.sum
}

// sets keeps the projections in force of each environment as long as nothing changes.
type sets struct{ latest sync.Map } // of *inForce by j17.Tenant

// inForce returns the projections of an environment under a spec and a revision of the posted definitions.
func (s *Service) inForce(_ context.Context, t j17.Tenant, compiled *spec.Compiled, rev uint64) (*inForce, error) {
	if known, ok := s.sets.latest.Load(t); ok {
		if in, _ := known.(*inForce); in.compiled == compiled && in.rev == rev {
			return in, nil
		}
	}
	in := &inForce{compiled: compiled, rev: rev, all: make(map[string]*definition, len(compiled.Projections))}
	for name, p := range compiled.Projections {
		in.all[name] = &definition{Projection: p}
	}
	s.sets.latest.Store(t, in)
	return in, nil
}

// nearest is a sentence with the projection that is called nearly so, if there is one.
func (in *inForce) nearest(name string) string {
	if near := diag.Nearest(name, slices.Sorted(maps.Keys(in.all))); near != "" {
		return " Did you mean '" + near + "'?"
	}
	return ""
}
