package index

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"j17"
	"j17/internal/derived/build"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

const (
	// buildPage is how many rows a page of a build has.
	buildPage = 256
	// nearly is the largest lag in events at which a new slot begins to serve, catchUp how often that is checked.
	nearly  = 1000
	catchUp = 20 * time.Millisecond
)

// errUnknown makes a build wait for its definition.
var errUnknown = errors.New("the definition of the index is not known here yet")

// page computes the rows of a page and returns their entries.
func (s *Service) page(ctx context.Context, p *build.Page) ([]store.Side, error) {
	sl, err := s.slot(ctx, p.Tenant, p.Name)
	if err != nil {
		return nil, failedWithout(err)
	}
	d := s.definition(p.Tenant, sl)
	if d == nil {
		return nil, errUnknown
	}
	c := changes{slot: sl.name}
	for some := range slices.Chunk(p.IDs, slice) {
		rows, err := s.compute(ctx, p.Tenant, d, p.At, some)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			c.replace(rows[i].ID, nil, recordOf(&rows[i]))
		}
		if c.size > maxBytes && len(p.IDs) > 1 {
			return nil, build.ErrTooMuch
		}
	}
	s.counts.writes.Add(uint64(c.len()))
	return c.writes(), nil
}

// failedWithout turns the absence of a slot into a failure of the build, which is no longer needed.
func failedWithout(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return &build.Failure{Err: errors.New("the index was removed")}
	}
	return err
}

// slice is how many rows are computed before other goroutines may run.
const slice = 16

// compute calls a definition for rows and checks that it returns those asked for. It yields between slices, so that
// other work, such as writes, comes first.
func (s *Service) compute(
	ctx context.Context, t j17.Tenant, d *Definition, at j17.StreamID, ids []string,
) (rows []Row, err error) {
	rows = make([]Row, 0, len(ids))
	for some := range slices.Chunk(ids, slice) {
		runtime.Gosched()
		made, err := s.computeSome(ctx, t, d, at, some)
		if err != nil {
			return nil, err
		}
		rows = append(rows, made...)
	}
	return rows, nil
}

// computeSome is compute for one slice.
func (s *Service) computeSome(
	ctx context.Context, t j17.Tenant, d *Definition, at j17.StreamID, ids []string,
) ([]Row, error) {
	made, err := d.Rows(ctx, t, at, ids)
	if err != nil {
		return nil, err
	}
	if len(made) != len(ids) {
		return nil, fmt.Errorf("the definition of an index has given %d rows for %d ids", len(made), len(ids))
	}
	for i := range made {
		if made[i].ID != ids[i] {
			return nil, fmt.Errorf("the definition of an index has given the row %s in the place of %s", made[i].ID, ids[i])
		}
	}
	return made, nil
}

// built subscribes a slot to the feed when all of its rows are written, and puts it into service when it has caught up.
func (s *Service) built(ctx context.Context, j *build.Job) ([]store.Side, error) {
	sl, err := s.slot(ctx, j.Tenant, j.Name)
	if err != nil {
		return nil, failedWithout(err)
	}
	if err := s.o.Feed.Subscribe(ctx, j.Tenant, kind, sl.name, feed.After(j.At)); err != nil {
		return nil, err
	}
	s.deferrals.asked(ctx, j.Tenant, sl.name)
	status, err := s.o.Feed.Status(ctx, j.Tenant, kind, sl.name)
	if err != nil {
		return nil, err
	}
	if status.Lag > nearly {
		s.deferrals.resume(ctx, j.Tenant, sl.name) // it may rest in another process
	}
	if status.Lag > nearly || sl.Fanout != nil {
		return nil, build.Later{For: catchUp}
	}

	// The slot begins to serve. The previous one is removed with the end of the build; after a crash Done is called
	// again and removes it.
	h, err := s.head(ctx, j.Tenant, sl.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case h.Building != sl.name:
		return nil, &build.Failure{Err: errors.New("another build of the index was begun")}
	case h.Serving != sl.name:
		h.Serving = sl.name
		if err := s.o.Store.Write(ctx, j.Tenant, []store.Side{h.put(sl.ID)}, j.Fence()); err != nil {
			return nil, ignoreConflict(err)
		}
		s.waiters.wake(j.Tenant, sl.Old)
	}
	return s.drop(ctx, j.Tenant, sl.Old)
}

// ignoreConflict returns a build.Later for a conflict, and any other error unchanged.
func ignoreConflict(err error) error {
	if conflict(err) {
		return build.Later{For: catchUp}
	}
	return err
}
