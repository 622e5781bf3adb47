package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/custody/backup/repository"
	"j17/internal/custody/backup/restore"
	"j17/internal/plane/control"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

// RestoreOptions says which backup becomes which data folder.
type RestoreOptions struct {
	Repository *repository.Repository
	Identities repository.Identities
	// Backup is the id of one; "" means the newest.
	Backup string
	// Environment restores one environment of a server's backup alone, named by the id or the name of its instance, a
	// slash and its own; "" restores what the backup holds.
	Environment string
	// Until is where the restored feeds end.
	Until Until
	// Dir is the data folder, which must not exist or be empty.
	Dir    string
	Clock  clock.Clock
	Logger *slog.Logger
	// Progress, if not nil, is called now and then with how many bytes were read, of how many.
	Progress func(done, total int64)
}

// Until is a moment, or a position, at which what is restored ends; the zero Until is the backup's own.
type Until struct {
	Position j17.StreamID
	// Time is in Unix milliseconds. Events of that millisecond are restored.
	Time int64
}

func (u Until) cut() *restore.Cut {
	switch {
	case u.Time > 0:
		return restore.AtTime(u.Time)
	case !u.Position.IsZero():
		return &restore.Cut{Position: u.Position}
	default:
		return nil
	}
}

// Restored tells what Restore has done.
type Restored struct {
	Backup repository.Manifest
	// Tenants are what was restored, in the order of the backup.
	Tenants []restore.Report
}

// errNotEmpty is the error of a data folder that something is in.
var errNotEmpty = errors.New("it is not empty")

// Restore makes a data folder of a backup. The folder is there when all of it is, or as it was before.
func Restore(ctx context.Context, o RestoreOptions) (Restored, error) {
	// What is restored. Mistakes are found before anything is made.
	m, err := chosen(ctx, o.Repository, o.Backup)
	if err != nil {
		return Restored{}, err
	}
	if err := wanted(&m, o.Environment, o.Until.cut()); err != nil {
		return Restored{}, err
	}
	reader, err := o.Repository.Read(m, o.Identities)
	if err != nil {
		return Restored{}, err
	}

	// It is made beside the folder, and takes its place as a whole.
	place, err := newWorkPlace(o.Dir)
	if err != nil {
		return Restored{}, err
	}
	r := restoring{RestoreOptions: o, manifest: &m, reader: reader, dir: place.work}
	out, err := r.run(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Restored{}, errors.Join(err, place.discard())
	}
	return out, place.finish()
}

// chosen returns the manifest of a backup, or of the newest one.
func chosen(ctx context.Context, r *repository.Repository, id string) (repository.Manifest, error) {
	if id == "" {
		all, damaged, err := r.Manifests(ctx)
		if err != nil {
			return repository.Manifest{}, err
		}
		if len(damaged) > 0 {
			return repository.Manifest{}, fmt.Errorf("which backup is the newest cannot be told, name one with --backup: %w", damaged[0])
		}
		if len(all) == 0 {
			return repository.Manifest{}, j17.Errorf(j17.CodeNotFound, "There is no backup in %s.", r)
		}
		id = all[0].ID
	}
	m, err := r.Manifest(ctx, id)
	if errors.Is(err, repository.ErrNotFound) {
		return repository.Manifest{}, j17.Errorf(j17.CodeNotFound, "There is no backup %s in %s.", id, r)
	}
	return m, err
}

// wanted leaves in a manifest what is to be restored, and checks that there is something up to the cut, and that the
// backup reaches it.
func wanted(m *repository.Manifest, only string, cut *restore.Cut) error {
	if only != "" {
		i := slices.IndexFunc(m.Tenants, func(t repository.TenantManifest) bool {
			return t.Tenant != j17.System && (string(t.Tenant) == only || t.Name+"/"+string(t.Environment) == only)
		})
		if i < 0 {
			return j17.Errorf(j17.CodeNotFound, "The backup %s does not have the environment %s. Name it as in INSTANCE/prod.", m.ID, only)
		}
		m.Tenants = m.Tenants[i : i+1]
	}
	if cut == nil {
		return nil
	}

	any, reached, end := false, false, ""
	for i := range m.Tenants {
		t := &m.Tenants[i]
		if t.Tenant == j17.System {
			continue
		}
		any = any || !cut.Empty(t)
		if cut.Time > 0 {
			reached = reached || cut.Time <= max(t.Time, m.CompletedAt.UnixMilli())
			end = max(end, time.UnixMilli(t.Time).UTC().Format(time.RFC3339))
		} else {
			reached = reached || cut.Position.Compare(t.Position) <= 0
			end = max(end, t.Position.PositionText())
		}
	}
	if !reached {
		return j17.Errorf(j17.CodeNotFound, "The backup %s reaches up to %s only. Choose an earlier moment, or a later backup.", m.ID, end)
	}
	if !any {
		return j17.Errorf(j17.CodeNotFound, "The backup %s has no event of that time: all are later.", m.ID)
	}
	return nil
}

// restoring is a restoration under way.
type restoring struct {
	RestoreOptions
	manifest *repository.Manifest
	reader   *repository.Reader
	dir      string
}

func (r *restoring) run(ctx context.Context) (Restored, error) {
	out := Restored{Backup: *r.manifest}
	st, err := pebble.Open(pebble.Options{
		Dir: filepath.Join(r.dir, "store"), Clock: r.Clock, Logger: r.Logger, Sealed: sealedSpaces(),
		KeyFile: keyFileOf(r.dir),
	})
	if err != nil {
		return out, err
	}
	total := r.manifest.Contents()
	options := restore.Options{
		Backup: r.reader, Store: st, Temp: r.dir,
		Erasures: func(ctx context.Context, t j17.Tenant, after j17.StreamID) iter.Seq2[*repository.Erasure, error] {
			return r.Repository.Erasures(ctx, t, after, r.Identities)
		},
		Progress: func() {
			if r.Progress != nil {
				r.Progress(r.reader.Bytes(), total)
			}
		},
	}
	for i := range r.manifest.Tenants {
		report, err := restore.Tenant(ctx, options, &r.manifest.Tenants[i], r.Until.cut())
		if err != nil {
			return out, errors.Join(err, st.Close())
		}
		out.Tenants = append(out.Tenants, report)
	}

	// An environment by itself gets its instance.
	if r.manifest.Of(j17.System) == nil {
		if err := r.register(ctx, st); err != nil {
			return out, errors.Join(err, st.Close())
		}
	}
	if err := st.Close(); err != nil {
		return out, err
	}
	return out, r.forget(ctx, out.Tenants)
}

// forgottenAtOnce is how many aggregates are forgotten at a time: some of those who keep anything go through all that
// they have each time. purgedAtOnce is of how many old bytes are removed at a time: tables are written again each time.
const (
	forgottenAtOnce = 1000
	purgedAtOnce    = 1 << 16
)

// forget has all parts that keep data beside events remove what was erased after the backup, as they do when it is
// erased.
func (r *restoring) forget(ctx context.Context, reports []restore.Report) (err error) {
	if !slices.ContainsFunc(reports, func(t restore.Report) bool { return t.Erased > 0 }) {
		return nil
	}
	s := newServer(Options{Dir: r.dir, Clock: r.Clock, Logger: r.Logger, BaseDomain: devBaseDomain})
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.restoreAll(ctx); err != nil {
		return err
	}

	// Indexes are to be rebuilt, and nobody builds here. What is kept of those that were is not restored.
	var erases []func(context.Context, j17.Tenant, part.Erased) error
	var spaces []store.Declared
	for _, p := range s.parts() {
		if p.Erase.Streams != nil && !p.Erase.Waits {
			erases, spaces = append(erases, p.Erase.Streams), append(spaces, part.Declared(p.Spaces)...)
		}
	}
	for i := range reports {
		if reports[i].Erased == 0 {
			continue
		}
		t := &r.manifest.Tenants[i]
		var forgotten []j17.Key
		purge := func() error {
			err := s.store.Purge(ctx, t.Tenant, forgotten, spaces, nil)
			forgotten = nil
			return err
		}
		forget := func(keys []j17.Key) error {
			gone := part.Erased{Keys: keys, Note: reports[i].Note, At: r.Clock.Now()}
			for _, erase := range erases {
				if err := erase(ctx, t.Tenant, gone); err != nil {
					return specless(t, err)
				}
			}
			if forgotten = append(forgotten, keys...); len(forgotten) < purgedAtOnce {
				return nil
			}
			return purge()
		}

		// All that were noted: there is nothing of those that are not there.
		var keys []j17.Key
		for e, err := range r.Repository.Erasures(ctx, t.Tenant, t.Moment, r.Identities) {
			if err != nil {
				return err
			}
			for _, g := range e.Note.Streams {
				if n := len(keys); n == 0 || keys[n-1] != g.Key {
					keys = append(keys, g.Key)
				}
			}
			if len(keys) >= forgottenAtOnce {
				if err := forget(keys); err != nil {
					return err
				}
				keys = nil
			}
		}
		if err := forget(keys); err != nil {
			return err
		}
		if err := purge(); err != nil {
			return err
		}
	}
	return nil
}

// specless explains an error of code that needs the spec to know what is kept of an aggregate.
func specless(t *repository.TenantManifest, err error) error {
	if j17.CodeOf(err) != j17.CodeNoSpec {
		return err
	}
	return j17.Errorf(j17.CodeNoSpec, "The spec of %s/%s in the backup is not valid for this version of j17. Without it what was erased after the backup cannot be taken out of all that the backup holds, so nothing is restored. "+
		"Restore with the version of j17 that made the backup, or one that takes the spec.", t.Name, t.Environment).Because(err)
}

// register makes the instances that restored environments are in.
func (r *restoring) register(ctx context.Context, st *pebble.Store) error {
	registry, err := control.Open(ctx, control.Options{Store: st, Clock: r.Clock, Logger: r.Logger})
	if err != nil {
		return err
	}
	for i := range r.manifest.Tenants {
		t := &r.manifest.Tenants[i]
		if _, ok := registry.Instances.ByID(t.Instance); ok {
			continue
		}
		err := registry.Instances.Restore(ctx, control.Instance{
			ID: t.Instance, Name: t.Name, Plan: t.Plan, CreatedAt: t.InstanceCreatedAt,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// VerifyOptions says which backups are verified.
type VerifyOptions struct {
	Repository *repository.Repository
	Identities repository.Identities
	// Backup is the id of one; "" means all.
	Backup string
	// Temp is a folder for what is restored meanwhile.
	Temp   string
	Clock  clock.Clock
	Logger *slog.Logger
	// Verified, if not nil, is called with each backup before it is looked at.
	Verified func(id string)
	// Progress, if not nil, is called now and then with how many bytes of that one were read, of how many.
	Progress func(done, total int64)
}

// Verify checks backups: that each part holds what was stored, and that the events have the roots that the logs had.
// The newest one of the server, and of each environment, is restored into a temporary folder. It returns those that
// were verified, the newest first.
func Verify(ctx context.Context, o VerifyOptions) ([]repository.Manifest, error) {
	// Which.
	all, damaged, err := o.Repository.Manifests(ctx)
	if err != nil {
		return nil, err
	}
	if o.Backup != "" {
		m, err := chosen(ctx, o.Repository, o.Backup)
		if err != nil {
			return nil, err
		}
		all, damaged = []repository.Manifest{m}, nil
	}
	if len(damaged) > 0 {
		return nil, damaged[0]
	}

	// Room to work.
	temp, err := os.MkdirTemp(o.Temp, "j17-verify-*")
	if err != nil {
		return nil, fmt.Errorf("there is no room for a temporary folder, name another one with --temp: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }() // a temporary folder
	v, err := restore.NewVerifier(temp)
	if err != nil {
		return nil, err
	}
	defer v.Close()

	// Each of them, and the newest of a kind as a whole.
	var restored []string
	for i := range all {
		m, err := o.Repository.Manifest(ctx, all[i].ID)
		if errors.Is(err, repository.ErrNotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if o.Verified != nil {
			o.Verified(m.ID)
		}
		reader, err := o.Repository.Read(m, o.Identities)
		if err != nil {
			return nil, err
		}
		if err := v.Backup(ctx, reader, &m); err != nil {
			return nil, err
		}
		of := string(m.Scope)
		if m.Scope == repository.OfEnvironment && len(m.Tenants) > 0 {
			of = string(m.Tenants[0].Tenant)
		}
		if slices.Contains(restored, of) {
			continue
		}
		restored = append(restored, of)
		if err := o.trial(ctx, m, reader, filepath.Join(temp, m.ID)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// trial restores a backup into a folder, compares the logs, and removes it.
func (o *VerifyOptions) trial(
	ctx context.Context, m repository.Manifest, reader *repository.Reader, dir string,
) (err error) {
	r := restoring{
		RestoreOptions: RestoreOptions{
			Repository: o.Repository, Identities: o.Identities, Clock: o.Clock, Logger: o.Logger, Progress: o.Progress,
		},
		manifest: &m, reader: reader, dir: dir,
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := r.run(ctx); err != nil {
		return err
	}
	st, err := pebble.Open(pebble.Options{
		Dir: filepath.Join(dir, "store"), Clock: o.Clock, Logger: o.Logger, Sealed: sealedSpaces(),
		KeyFile: keyFileOf(dir),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	for i := range m.Tenants {
		if m.Tenants[i].Size == 0 || m.Tenants[i].Tenant == j17.System {
			continue // what the registry has recorded since is behind it
		}
		if err := restore.Same(ctx, st, reader, &m.Tenants[i]); err != nil {
			return err
		}
	}
	return nil
}
