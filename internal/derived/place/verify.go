package place

import (
	"context"
	"errors"
	"math"
	"slices"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
)

// mostVerified is how many environments are compared at a time.
const mostVerified = 4

// ofCompared is the approximate cost of comparing an aggregate or an entry, in units of work.
const ofCompared = 1 << 9

// Verify compares all places of an environment with its events, and all entries with the places: each page as of one
// position, so that concurrent writes do not matter. Places that differ are taken out of use and rebuilt. Errors are of
// CodeNoGeo if there are none, CodeIndexNotReady if some are being built, CodeConflict and CodeBusy.
func (s *Service) Verify(ctx context.Context, t j17.Tenant) (v wire.VerifiedPlaces, err error) {
	// The slots to compare.
	s.known.Forget(t)
	k, _, err := s.known.Present(ctx, t)
	if err != nil {
		return v, err
	}
	all := k.inOrder()
	if len(all) == 0 {
		return v, j17.Errorf(j17.CodeNoGeo, "There are no places to compare: no event has a \"geo\" in the spec of this environment.")
	}
	for _, sl := range all {
		if err := s.check(ctx, t, sl); err != nil {
			return v, err
		}
	}
	move, over, err := s.comparisons.Begin(
		t, "",
		j17.Errorf(j17.CodeConflict, "The places of this environment are being compared already: their 'verification' says how far that is. Wait until it is over."),
		j17.Errorf(j17.CodeBusy, "The places of %d environments are being compared, as many as may be at a time. Try again when one of them is done.", mostVerified),
	)
	if err != nil {
		return v, err
	}
	defer over()
	var total uint64
	for _, sl := range all {
		n, err := s.extent(ctx, t, sl)
		if err != nil {
			return v, store.UserError(err)
		}
		total += n
	}

	// One kind after the other.
	v.Verified = true
	pause := build.InTurns(ctx, ofCompared, func(done uint64) { move(done, total) })
	for _, sl := range all {
		c := comparison{s: s, t: t, k: k, slot: sl}
		found, err := c.run(ctx, pause)
		v.Position, v.Aggregates, v.Entries = c.position.PositionText(), v.Aggregates+c.aggregates, v.Entries+c.entries
		if errors.Is(err, errMoved) {
			return v, j17.Errorf(j17.CodeConflict, "The places were rebuilt meanwhile. Try again.").Because(err)
		}
		if found != nil {
			v.Verified, v.Difference = false, &wire.PlaceDifference{
				Type: sl.typ, ID: found.ID, Geo: sl.place.Type.Name, What: found.What,
			}
			if found.Unreadable {
				v.Difference.What = Unreadable
			}
		}
		if found != nil || err != nil {
			return v, store.UserError(err)
		}
	}
	return v, nil
}

// Run checks all places at intervals, slowly, until the context ends. Places that differ from the events are taken out
// of use and rebuilt.
func (s *Service) Run(ctx context.Context) error {
	return s.Builds.Scrub(ctx, s.Clock, "place_scrub", s.Scrub, s.scrub)
}

// scrub checks the places of all environments that are known here.
func (s *Service) scrub(ctx context.Context, pause build.Pause) error {
	var errs []error
	for _, t := range s.known.Tenants() {
		errs = append(errs, s.scrubTenant(ctx, t, pause))
	}
	return errors.Join(errs...)
}

// scrubTenant checks the places of an environment, up to the first difference.
func (s *Service) scrubTenant(ctx context.Context, t j17.Tenant, pause build.Pause) error {
	s.known.Forget(t) // places begun again by another process are not compared before they are complete
	k, _, err := s.known.Present(ctx, t)
	if j17.CodeOf(err) == j17.CodeNoSpec {
		return nil
	}
	if err != nil {
		return err
	}
	for _, sl := range k.inOrder() {
		if s.check(ctx, t, sl) != nil {
			continue
		}
		c := comparison{s: s, t: t, k: k, slot: sl}
		found, err := c.run(ctx, pause)
		if errors.Is(err, errMoved) {
			return nil // the next check will tell
		}
		if found != nil || err != nil {
			return err
		}
	}
	return nil
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

// Describe describes the places that exist, by the names of aggregate types, and a comparison under way.
func (s *Service) Describe(ctx context.Context, t j17.Tenant) (wire.Places, error) {
	answer := wire.Places{Places: []wire.PlacesOfKind{}}
	k, _, err := s.known.Present(ctx, t)
	if err != nil {
		return answer, err
	}
	for _, sl := range k.inOrder() {
		d := wire.PlacesOfKind{
			Type: sl.typ, Geo: sl.place.Type.Name, Shape: sl.place.Type.Shape, Status: build.StatusReady,
		}
		if sl.Built {
			status, err := s.Builds.Status(ctx, t, filling, sl.ID)
			if err != nil {
				return answer, store.UserError(err)
			}
			if status.State != "" {
				d.Build = status.Wire()
			}
			if status.State != build.Done {
				d.Status = build.StatusBuilding
			}
		}
		answer.Places = append(answer.Places, d)
	}
	answer.Verification = s.comparisons.Of(t, "")
	return answer, nil
}
