package projection

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"j17"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

// settleTime is how long the answer to a change of definitions waits for the indexes that it needs.
const settleTime = 2 * time.Second

// needs returns the indexes that a projection needs: that of its rows, and those of its queries, which other
// projections may share.
func (s *Service) needs(r *reading, d *definition) []*index.Definition {
	var all []*index.Definition
	if s.indexes == nil {
		return nil
	}
	if x := s.rowIndex(r, d); x != nil {
		all = append(all, x)
	}
	for _, q := range d.Queries() {
		all = append(all, s.lookups.queryIndex(r.m, q))
	}
	return all
}

// turns serializes the changes to the indexes of each environment.
type turns struct{ all sync.Map } // of *sync.Mutex by j17.Tenant

func (t *turns) take(tenant j17.Tenant) (done func()) {
	found, _ := t.all.LoadOrStore(tenant, &sync.Mutex{})
	mu, _ := found.(*sync.Mutex)
	mu.Lock()
	return mu.Unlock
}

// Adopted brings the indexes of an environment in line with its deployment: missing ones are built in the background,
// those no longer needed are removed. A failure is logged.
func (s *Service) Adopted(ctx context.Context, t j17.Tenant) {
	if err := s.adopted(ctx, t); err != nil {
		s.logger.LogAttrs(ctx, slog.LevelError, "the indexes of an environment could not be brought in line with its projections; deploy its spec again, or restart the server",
			slog.String("tenant", string(t)), slog.Any("error", err))
	}
}

// adopted is Adopted, and returns the error.
func (s *Service) adopted(ctx context.Context, t j17.Tenant) error {
	err := s.adopt(ctx, t)
	if s.changed != nil {
		s.changed(t)
	}
	return err
}

func (s *Service) adopt(ctx context.Context, t j17.Tenant) error {
	if s.indexes == nil || s.engine.Spec(t) == nil {
		return nil
	}
	defer s.adopting.take(t)()

	// The indexes needed by projections in force and by prepared ones.
	v, err := s.survey(ctx, t)
	if err != nil {
		return err
	}
	wanted := map[string]*index.Definition{}
	for _, d := range v.in.all {
		for _, x := range s.needs(v.reading, d) {
			wanted[x.ID] = x
		}
	}
	for _, p := range v.prepared {
		if p.definition != nil {
			for _, x := range s.needs(v.reading, p.definition) {
				wanted[x.ID] = x
			}
		}
	}
	next := s.specs.needs(s, t)
	for _, x := range next {
		if wanted[x.ID] == nil {
			wanted[x.ID] = x
		}
	}
	keep := false
	if next == nil { // after a start the needs of a prepared spec are not known yet
		if keep, err = s.specPrepared(ctx, t); err != nil {
			return err
		}
	}

	// Missing indexes, and those no longer needed.
	var errs []error
	for _, x := range wanted {
		if _, err := s.indexes.Ensure(ctx, t, x); err != nil {
			errs = append(errs, err)
		}
	}
	for id := range v.statuses {
		if wanted[id] == nil && !keep {
			errs = append(errs, s.indexes.Remove(ctx, t, id))
		}
	}
	return errors.Join(errs...)
}

// Settled waits for a limited time for the indexes of an environment that are being built.
func (s *Service) Settled(ctx context.Context, t j17.Tenant) {
	if s.indexes == nil {
		return
	}
	wait, cancel := context.WithTimeout(ctx, s.settle)
	defer cancel()
	there, err := s.indexes.List(wait, t)
	for i := 0; i < len(there) && err == nil; i++ {
		if b := there[i].Build; b != nil && b.State == build.Running {
			_, err = s.indexes.Await(wait, t, there[i].ID) // readers get an error if it takes longer
		}
	}
}

// await is Settled, for a deployment.
func (s *Service) await(ctx context.Context, t j17.Tenant) error {
	s.Settled(ctx, t)
	return nil
}

// Rebuild builds the indexes of a projection again. The present ones serve until the new ones have caught up.
func (s *Service) Rebuild(ctx context.Context, t j17.Tenant, name string) error {
	var err error
	for range maxChanges {
		if err = s.rebuild(ctx, t, name); !errors.Is(err, store.ErrNotFound) {
			return failure(err)
		}
	}
	return j17.Errorf(j17.CodeBusy, "The projections of the environment are being changed by others. Try again in a moment.").Because(err)
}

// rebuild is Rebuild. It returns store.ErrNotFound if an index has gone meanwhile: then others are needed.
func (s *Service) rebuild(ctx context.Context, t j17.Tenant, name string) error {
	v, err := s.survey(ctx, t)
	if err != nil {
		return err
	}
	if v == nil || v.in.all[name] == nil {
		return unknown(v, name)
	}
	if s.indexes == nil {
		return nil
	}
	for _, x := range s.needs(v.reading, v.in.all[name]) {
		_, err := s.indexes.Ensure(ctx, t, x)
		if err == nil {
			err = s.indexes.Rebuild(ctx, t, x.ID)
		}
		if err != nil {
			return err
		}
	}

	// Builds that begin after the projections have changed would never be removed.
	over, err := s.lookups.isOver(ctx, v.reading)
	if err != nil || !over {
		return err
	}
	s.Adopted(ctx, t)
	return store.ErrNotFound
}

// CancelBuild cancels what is being built for a projection: a prepared definition, or a rebuild of its indexes. Errors
// are *j17.Errors: CodeConflict if no build can be canceled.
func (s *Service) CancelBuild(ctx context.Context, t j17.Tenant, name string) error {
	v, err := s.survey(ctx, t)
	if err != nil {
		return err
	}
	if v == nil || v.in.all[name] == nil && v.prepared[name] == nil {
		return unknown(v, name)
	}

	// A prepared definition is removed, with the indexes that only it needs.
	if p := v.prepared[name]; p != nil {
		err := s.store.Write(ctx, t, []store.Side{
			{Op: store.Delete, Space: preparedSpace, Key: name, Cond: store.IfRev, Rev: p.rev},
		})
		if _, over := errors.AsType[*store.SideConflict](err); !over {
			if err == nil {
				err = s.adopt(context.WithoutCancel(ctx), t)
			}
			return store.UserError(err)
		}
	}

	// A rebuild ends, and the present index continues to serve.
	canceled := false
	if d := v.in.all[name]; d != nil && s.indexes != nil {
		for _, x := range s.needs(v.reading, d) {
			if !v.statuses[x.ID].Ready {
				continue // the first build is not canceled: without it there would be no index
			}
			err := s.indexes.Cancel(ctx, t, x.ID)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return store.UserError(err)
			}
			canceled = canceled || err == nil
		}
	}
	if !canceled {
		return j17.Errorf(j17.CodeConflict, "Nothing is being built for the projection '%s' that could be given up.", j17.Printable(name))
	}
	return nil
}
