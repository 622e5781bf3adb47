package projection

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// inForce has all projections of an environment under one spec and one revision of the posted definitions. It is
// immutable.
type inForce struct {
	compiled *spec.Compiled
	posted   *postings
	all      map[string]*definition
	// invalid has the reasons why posted definitions are invalid under the spec; they are not in force. No deployment
	// leaves such definitions behind, but another version of the program may reject them.
	invalid map[string]string
	// deployed reports that it was read from the environment, and is neither tried nor prepared.
	deployed bool
	// key returns the Key of Declared.
	key func() string
}

// definition is a projection that is in force.
type definition struct {
	*spec.Projection
	// posted is its posting, nil if the spec declares it.
	posted *posting
	// identified caches the latest identity.
	identified atomic.Pointer[identity]
}

// identity has what determines a projection's values, besides the events of its sources.
type identity struct {
	of  *decider.Decider
	sum [sha256.Size]byte
}

// identity returns a digest that changes whenever the same events may give other values: with the definition, and with
// the handlers of the types that it reads.
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

// sets caches the projections in force of each environment while nothing changes.
type sets struct{ latest sync.Map } // of *inForce by j17.Tenant

// of returns the projections of an environment that were last read, nil if there are none.
func (s *sets) of(t j17.Tenant) *inForce {
	found, _ := s.latest.Load(t)
	in, _ := found.(*inForce)
	return in
}

// inForce returns the projections of an environment under a spec, with those posted in a moment of the store.
func (s *readings) inForce(t j17.Tenant, compiled *spec.Compiled, sm store.Moment) (*inForce, error) {
	head, err := sm.Get(headSpace, headKey)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	known := s.sets.of(t)
	if known != nil && known.compiled == compiled && known.posted.rev == head.Rev {
		return known, nil
	}
	posted, err := postedAt(sm)
	if err != nil {
		return nil, err
	}
	in := newInForce(compiled, posted, known)
	in.deployed = true
	s.sets.latest.Store(t, in)
	return in, nil
}

// newInForce compiles posted definitions. Definitions that an earlier set has compiled from the same text are reused.
func newInForce(compiled *spec.Compiled, posted *postings, known *inForce) *inForce {
	in := &inForce{
		compiled: compiled, posted: posted,
		all: make(map[string]*definition, len(compiled.Projections)+len(posted.all)), invalid: map[string]string{},
	}
	in.key = sync.OnceValue(in.digest)
	if known != nil && known.compiled != compiled {
		known = nil
	}
	for name, p := range compiled.Projections {
		if known != nil {
			in.all[name] = known.all[name]
		} else {
			in.all[name] = &definition{Projection: p}
		}
	}
	for i := range posted.all {
		p := &posted.all[i]
		if compiled.Projections[p.Name] != nil {
			continue // the spec has taken it over
		}
		if known != nil {
			if old := known.all[p.Name]; old != nil && bytes.Equal(old.posted.Definition, p.Definition) {
				in.all[p.Name] = old
				continue
			}
		}
		made, found := spec.CompileProjection(p.Definition, compiled)
		if made == nil {
			in.invalid[p.Name] = firstError(found)
			continue
		}
		in.all[p.Name] = &definition{Projection: made, posted: p}
	}
	return in
}

// digest returns the key of Declared.
func (in *inForce) digest() string {
	if len(in.posted.all) == 0 {
		return in.compiled.Hash
	}
	h := sha256.New()
	for i := range in.posted.all {
		p := &in.posted.all[i]
		_, _ = fmt.Fprintf(h, "%q %d %s", p.Name, len(p.Definition), p.Definition) // never fails
	}
	return in.compiled.Hash + " " + hex.EncodeToString(h.Sum(nil))
}

// Declared is what an environment has: its spec, and the projections in force, those of the spec and posted ones.
type Declared struct {
	Spec        *spec.Compiled
	Projections map[string]*spec.Projection
	// Key is equal exactly for the same spec with the same posted definitions.
	Key string
}

// Declared returns what an environment has now; CodeNoSpec if no spec is deployed to it.
func (s *Service) Declared(ctx context.Context, t j17.Tenant) (Declared, error) {
	r, err := s.readings.now(ctx, t)
	if err != nil {
		return Declared{}, err
	}
	d := Declared{r.in.compiled, make(map[string]*spec.Projection, len(r.in.all)), r.in.key()}
	for name, of := range r.in.all {
		d.Projections[name] = of.Projection
	}
	return d, nil
}

// firstError returns the message of the first error.
func firstError(found []diag.Diagnostic) string {
	for _, d := range found {
		if d.Severity == diag.Error {
			return string(d.Pointer) + ": " + d.Message
		}
	}
	return ""
}

// names returns the names of the projections in the order of lists: the spec's in the order of its text, then the
// posted ones.
func (in *inForce) names() ([]string, error) {
	declared, err := spec.DeclaredProjections(in.compiled.Source)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range declared {
		if in.compiled.Projections[d.Name] != nil {
			names = append(names, d.Name)
		}
	}
	for i := range in.posted.all {
		if name := in.posted.all[i].Name; in.compiled.Projections[name] == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// nearest returns a sentence with the projection of the most similar name or, if there is none and they are few, with
// all of them.
func (in *inForce) nearest(name string) string {
	const few = 12
	all := slices.Sorted(maps.Keys(in.all))
	near := diag.Nearest(name, all)
	switch {
	case near != "":
		return " Did you mean '" + near + "'?"
	case len(all) == 0:
		return " It has none."
	case len(all) <= few:
		return " It has '" + strings.Join(all, "', '") + "'."
	}
	return ""
}

// Forget drops the cached projections of a tenant that is gone.
func (s *Service) Forget(t j17.Tenant) {
	s.readings.sets.latest.Delete(t)
	s.specs.all.Delete(t)
	s.values.kept.drop(t)
}
