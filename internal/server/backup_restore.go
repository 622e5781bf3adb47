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
	"j17/internal/storage/store"
)

// RestoreOptions says which backup to restore, and into which data folder.
type RestoreOptions struct {
	Repository *repository.Repository
	Identities repository.Identities
	// Backup is the id of a backup; "" means the newest.
	Backup string
	// Environment restores a single environment of a server's backup, named by the id or the name of its instance, a
	// slash and its own name; "" restores everything in the backup.
	Environment string
	// Until is where the restored feeds end.
	Until Until
	// Dir is the data folder, which must be empty or not exist. With Store, which has been checked, it is the one of
	// the key file, and may be missing where there is a node secret.
	Dir    string
	Store  StoreOptions
	Clock  clock.Clock
	Logger *slog.Logger
	// Progress, if not nil, is called now and then with the bytes read so far and their total.
	Progress func(done, total int64)
}

// Check returns everything that is wrong with where the backup is to go.
func (o *RestoreOptions) Check() []error {
	var c checks
	c.store(&o.Store)
	c.dataBeside(&Options{Dir: o.Dir, Store: o.Store})
	switch {
	case !o.Store.Given() && o.Dir == "":
		c.add("name the data folder to make with --data, or a PostgreSQL with --store")
	case o.Store.Given() && o.Dir == "" && o.Store.NodeSecretFile == "":
		c.add("give the secret of the servers on that store with --node-secret-file, or with --data the folder in which its key is kept")
	}
	return c.found
}

// Until is the time or the position at which the restored data ends; the zero Until is the end of the backup.
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

// Restored reports what Restore has done.
type Restored struct {
	Backup repository.Manifest
	// Tenants are the restored tenants, in the order of the backup.
	Tenants []restore.Report
}

// errNotEmpty is the error of a data folder that is not empty.
var errNotEmpty = errors.New("it is not empty")

// Restore makes a data folder, or a schema, from a backup. It is either complete, or as it was before.
func Restore(ctx context.Context, o RestoreOptions) (Restored, error) {
	// Select what to restore. Mistakes are found before anything is written.
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

	// A folder is built beside the one that is named, and replaces it as a whole. A schema is not one of a store before
	// it is complete.
	var place interface {
		finish() error
		discard() error
	}
	r := restoring{RestoreOptions: o, manifest: &m, reader: reader}
	if o.Store.Given() {
		var at *schemaPlace
		if at, err = newSchemaPlace(ctx, &r); err == nil {
			place, r.Store, r.dir = at, at.store, at.temp
		}
	} else {
		var at *workPlace
		if at, err = newWorkPlace(o.Dir); err == nil {
			place, r.dir = at, at.work
		}
	}
	if err != nil {
		return Restored{}, err
	}
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

// wanted reduces a manifest to what is to be restored. It checks that there is something up to the cut, and that the
// backup reaches the cut.
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
	st, _, err := r.options().openStore(ctx, nil)
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

	// An environment restored alone needs its instance registered.
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

// options are those of a server on what is being restored.
func (r *restoring) options() *Options {
	return &Options{Dir: r.dir, Store: r.Store, Clock: r.Clock, Logger: r.Logger, BaseDomain: devBaseDomain}
}

// forgottenAtOnce is how many aggregates are forgotten at a time: some parts go through all their data each time.
// purgedAtOnce is for how many aggregates the old bytes are removed at a time: tables are rewritten each time.
const (
	forgottenAtOnce = 1000
	purgedAtOnce    = 1 << 16
)

// forget makes all parts that keep data beside events remove what was erased after the backup, just as an erasure does.
func (r *restoring) forget(ctx context.Context, reports []restore.Report) (err error) {
	if !slices.ContainsFunc(reports, func(t restore.Report) bool { return t.Erased > 0 }) {
		return nil
	}
	s := newServer(*r.options())
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.restoreAll(ctx); err != nil {
		return err
	}

	// Parts whose erasure waits for background work are left out, since none is done here: they keep indexes, which are
	// rebuilt and not restored.
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
			_, err := s.store.Purge(ctx, t.Tenant, forgotten, spaces, nil)
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

		// All noted aggregates are passed on; for those that are not there, nothing is removed.
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

// specless explains an error of code that needs the spec to know which data is kept of an aggregate.
func specless(t *repository.TenantManifest, err error) error {
	if j17.CodeOf(err) != j17.CodeNoSpec {
		return err
	}
	return j17.Errorf(j17.CodeNoSpec, "The spec of %s/%s in the backup is not valid for this version of j17. Without it what was erased after the backup cannot be taken out of all that the backup holds, so nothing is restored. "+
		"Restore with the version of j17 that made the backup, or one that takes the spec.", t.Name, t.Environment).Because(err)
}

// register creates the instances of the restored environments.
func (r *restoring) register(ctx context.Context, st store.Store) error {
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

// VerifyOptions says which backups to verify.
type VerifyOptions struct {
	Repository *repository.Repository
	Identities repository.Identities
	// Backup is the id of a backup; "" means all.
	Backup string
	// Temp is the folder for trial restorations.
	Temp   string
	Clock  clock.Clock
	Logger *slog.Logger
	// Verified, if not nil, is called with each backup before it is checked.
	Verified func(id string)
	// Progress, if not nil, is called now and then with the bytes of that backup read so far and their total.
	Progress func(done, total int64)
}

// Verify checks that each part of the backups holds what was stored, and that the events have the roots that the logs
// had. The newest backup of the server, and of each environment, is also restored into a temporary folder. It returns
// the backups that were verified, newest first.
func Verify(ctx context.Context, o VerifyOptions) ([]repository.Manifest, error) {
	// Which backups.
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

	// A folder to work in.
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

	// Check each backup, and restore the newest of each kind completely.
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
	st, _, err := r.options().openStore(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	for i := range m.Tenants {
		if m.Tenants[i].Size == 0 || m.Tenants[i].Tenant == j17.System {
			continue // its log may have more records by now
		}
		if err := restore.Same(ctx, st, reader, &m.Tenants[i]); err != nil {
			return err
		}
	}
	return nil
}
