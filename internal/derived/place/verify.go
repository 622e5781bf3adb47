package place

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"j17"
	"j17/internal/base/work"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
)

// Progress counts the aggregates and entries compared, and about how many there are.
type Progress struct{ Done, Total uint64 }

// Verified is the result of a comparison of places with events.
type Verified struct {
	// Position is the position of the last page compared.
	Position j17.StreamID
	// Aggregates and Entries count what was compared: an aggregate once for each kind of places of its type.
	Aggregates, Entries uint64
	// Difference is the first difference, nil for none.
	Difference *Difference
}

// Described describes the places of one kind of an aggregate type.
type Described struct {
	// Type is the aggregate type, Geo the name of the geo type, Shape spec.Point or spec.Polygon.
	Type, Geo, Shape string
	Ready            bool
	// Build is the build for older events, nil if there were none.
	Build *build.Status
}

// verifications has the comparisons under way, at most one of each environment.
type verifications struct {
	mu  sync.Mutex
	all map[j17.Tenant]*Progress
}

// mostVerified is how many environments are compared at a time, each of which keeps a processor busy.
const mostVerified = 4

// ofCompared is the approximate cost of comparing an aggregate or an entry, in units of work.
const ofCompared = 1 << 9

// begin registers a comparison until over is called. The error is one of CodeConflict if the environment is being
// compared already, and of CodeBusy if mostVerified others are.
func (v *verifications) begin(t j17.Tenant) (over func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.all[t] != nil:
		return nil, j17.Errorf(j17.CodeConflict, "The places of this environment are being compared already: their 'verification' says how far that is. Wait until it is over.")
	case len(v.all) >= mostVerified:
		return nil, j17.Errorf(j17.CodeBusy, "The places of %d environments are being compared, as many as may be at a time. Try again when one of them is done.", mostVerified)
	}
	v.all[t] = &Progress{}
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.all, t)
	}, nil
}

// move sets the progress of a comparison.
func (v *verifications) move(t j17.Tenant, done, total uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*v.all[t] = Progress{done, max(done, total)}
}

// of returns the progress of the comparison of an environment, nil for none.
func (v *verifications) of(t j17.Tenant) *Progress {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all[t] == nil {
		return nil
	}
	return new(*v.all[t])
}

// Verify compares all places of an environment with its events, and all entries with the places: each page as of one
// position, so that concurrent writes do not matter. Places that differ are taken out of use and rebuilt. Errors are of
// CodeNoGeo if there are none, CodeIndexNotReady if some are being built, CodeConflict and CodeBusy.
func (s *Service) Verify(ctx context.Context, t j17.Tenant) (Verified, error) {
	// The slots to compare.
	s.known.Delete(t)
	k, err := s.present(ctx, t)
	if err != nil {
		return Verified{}, err
	}
	all := k.inOrder()
	if len(all) == 0 {
		return Verified{}, j17.Errorf(j17.CodeNoGeo, "There are no places to compare: no event has a \"geo\" in the spec of this environment.")
	}
	for _, sl := range all {
		if err := s.check(ctx, t, sl); err != nil {
			return Verified{}, err
		}
	}
	over, err := s.verifying.begin(t)
	if err != nil {
		return Verified{}, err
	}
	defer over()
	var done, total uint64
	for _, sl := range all {
		n, err := s.extent(ctx, t, sl)
		if err != nil {
			return Verified{}, store.UserError(err)
		}
		total += n
	}

	// One kind after the other.
	b := work.New(ctx, math.MaxInt64) // it takes as long as it takes, in turns with others
	var v Verified
	for _, sl := range all {
		c := comparison{s: s, t: t, k: k, slot: sl, pause: func(n int) error {
			done += uint64(n)
			s.verifying.move(t, done, total)
			if !b.Spend((n + 1) * ofCompared) {
				return b.Err()
			}
			return ctx.Err()
		}}
		found, err := c.all(ctx)
		v.Position, v.Aggregates, v.Entries = c.position, v.Aggregates+c.aggregates, v.Entries+c.entries
		var what string
		switch damage := damageOf(err); {
		case errors.Is(err, errMoved):
			return v, j17.Errorf(j17.CodeConflict, "The places were rebuilt meanwhile. Try again.").Because(err)
		case damage != nil:
			v.Difference, what = &Difference{Type: sl.typ, Geo: sl.place.Type.Name, What: Unreadable}, damage.Error()
		case err != nil:
			return v, store.UserError(err)
		case found != nil:
			v.Difference, what = found, found.Type+" "+found.ID+": "+found.What
		default:
			continue
		}
		return v, store.UserError(s.replace(ctx, t, []*slot{sl}, what))
	}
	return v, nil
}

// Unreadable is the text of the difference if data of places cannot be read.
const Unreadable = "some of their stored data can no longer be read, since its bytes on disk have changed"

// extent estimates how much is compared of a slot. Its records are stored among those of other slots of the type.
func (s *Service) extent(ctx context.Context, t j17.Tenant, sl *slot) (uint64, error) {
	entries, err := s.Store.Count(ctx, t, cells, store.Prefix(sl.ID+"/"), math.MaxInt)
	if err != nil {
		return 0, ignoreDamage(err)
	}
	records, err := s.Store.Count(ctx, t, places, store.Prefix(sl.typ+":"), math.MaxInt)
	return uint64(entries) + uint64(records), ignoreDamage(err)
}

// ignoreDamage leaves out damage, which the comparison finds.
func ignoreDamage(err error) error {
	if _, is := errors.AsType[*store.CorruptionError](err); is {
		return nil
	}
	return err
}

// inOrder returns all slots, by the names of aggregate types and then of geo types.
func (k *known) inOrder() (all []*slot) {
	var names []string
	for name := range k.slots {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		all = append(all, k.slots[name]...)
	}
	return all
}

// Describe describes the places that exist, by the names of aggregate types, and returns the progress of a comparison
// under way, nil for none.
func (s *Service) Describe(ctx context.Context, t j17.Tenant) ([]Described, *Progress, error) {
	k, err := s.present(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	var all []Described
	for _, sl := range k.inOrder() {
		d := Described{Type: sl.typ, Geo: sl.place.Type.Name, Shape: sl.place.Type.Shape, Ready: true}
		if sl.Built {
			status, err := s.Builds.Status(ctx, t, filling, sl.ID)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return nil, nil, store.UserError(err)
			}
			if err == nil {
				d.Build = &status
			}
			d.Ready = status.State == build.Done
		}
		all = append(all, d)
	}
	return all, s.verifying.of(t), nil
}
