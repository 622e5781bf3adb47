package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"j17/internal/base/clock"
	"j17/internal/base/keyfile"
	"j17/internal/storage/pebble"
	"j17/internal/storage/postgres"
)

// workPlace is where a data folder is built before it takes its final place.
type workPlace struct {
	// target is the final folder, work the one in which it is built.
	target, work string
	// inside reports that target exists and cannot be replaced, for example because it is a mount point: its content is
	// then built inside it.
	inside bool
	// mode is that of the empty folder that target was, or 0 if it did not exist.
	mode fs.FileMode
}

// workPrefix begins the names of folders that hold an unfinished restoration.
const workPrefix = ".j17-restoring-"

// newWorkPlace makes a place for a data folder, whose target must be empty or not exist. Remains of interrupted
// restorations are removed.
func newWorkPlace(target string) (*workPlace, error) {
	target, err := filepath.Abs(target)
	if err != nil {
		return nil, err
	}
	if behind, err := filepath.EvalSymlinks(target); err == nil {
		target = behind // a link stays, and so does everything else where it leads
	}
	p := &workPlace{target: target}
	parent := filepath.Dir(target)
	prefix := workPrefix + filepath.Base(target) + "-"

	// What exists already.
	info, err := os.Stat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(parent, 0o700); err != nil {
			return nil, fmt.Errorf("the folder %s cannot be made: %w", parent, err)
		}
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is not a folder: name one that does not exist or is empty", target)
	default:
		if err := sweep(target, workPrefix); err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(target)
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			return nil, fmt.Errorf("%s cannot be restored to, since %w: name a folder that does not exist or is empty", target, errNotEmpty)
		}
		p.mode = info.Mode().Perm()
		p.inside = os.Remove(target) != nil
	}

	// A folder beside it, or in it, on the same file system.
	if p.inside {
		parent = target
	} else if err := sweep(parent, prefix); err != nil {
		return nil, err
	}
	p.work, err = os.MkdirTemp(parent, prefix)
	return p, err
}

// schemaPlace is a schema of PostgreSQL that is being filled.
type schemaPlace struct {
	// store is what the schema is opened with meanwhile, temp a temporary folder.
	store StoreOptions
	temp  string
	// ctx is that of the restoration; what it has left is removed even when that has ended.
	ctx  context.Context //nolint:containedctx // see above
	node *postgres.Node
}

// newSchemaPlace makes a place for what is restored to PostgreSQL. Remains of an interrupted restoration are removed.
// The restoration is the active node of the schema: servers wait for its end, and a second one is refused.
func newSchemaPlace(ctx context.Context, r *restoring) (p *schemaPlace, err error) {
	p = &schemaPlace{store: r.Store, ctx: ctx}
	if p.store.keys == nil {
		if _, err := makeFolder(r.Dir); err != nil {
			return nil, fmt.Errorf("the folder for the key file cannot be made: %w", err)
		}
		p.store.keys = []*keyfile.File{keyfile.At(keyFileOf(r.Dir))}
	}
	if p.temp, err = os.MkdirTemp("", "j17-restore-*"); err != nil {
		return nil, fmt.Errorf("there is no room for a temporary folder, name another one by TMPDIR: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown machine"
	}
	name := fmt.Sprintf("backup restore (process %d)", os.Getpid())
	o := p.store.postgres(r.Clock, r.Logger, nil)
	if p.node, err = postgres.JoinToRestore(ctx, o, name, host, clock.System{}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.temp))
	}
	if err := awaitAlone(ctx, p.node); err != nil {
		return nil, errors.Join(err, p.leave())
	}
	if err := p.node.BeginRestoration(ctx); err != nil {
		return nil, errors.Join(err, p.leave())
	}
	p.store.node = p.node
	return p, nil
}

// leave ends the node, and lets the next one work.
func (p *schemaPlace) leave() error {
	end, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), leaveTime)
	defer cancel()
	return errors.Join(p.node.Leave(end), os.RemoveAll(p.temp))
}

// discard leaves an empty schema.
func (p *schemaPlace) discard() error {
	return errors.Join(p.node.DiscardRestoration(context.WithoutCancel(p.ctx)), p.leave())
}

// finish makes the schema that of a store.
func (p *schemaPlace) finish() error {
	return errors.Join(p.node.FinishRestoration(context.WithoutCancel(p.ctx)), p.leave())
}

// sweep removes the folders with this prefix that no process uses any longer.
func sweep(dir, prefix string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) || pebble.InUse(filepath.Join(name, "store")) {
			continue
		}
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("what a restoration has left behind cannot be removed: %w", err)
		}
	}
	return nil
}

// discard leaves everything as it was.
func (p *workPlace) discard() error {
	err := os.RemoveAll(p.work)
	if p.mode != 0 && !p.inside {
		err = errors.Join(err, os.Mkdir(p.target, p.mode))
	}
	return err
}

// finish moves the result into place as the data folder.
func (p *workPlace) finish() error {
	if p.inside {
		// The store is all that a folder needs, and one rename moves it.
		if err := os.Rename(filepath.Join(p.work, "store"), filepath.Join(p.target, "store")); err != nil {
			return errors.Join(err, p.discard())
		}
		return errors.Join(syncFolder(p.target), os.RemoveAll(p.work))
	}
	if err := os.Rename(p.work, p.target); err != nil {
		return errors.Join(fmt.Errorf("the restored folder could not be named %s: %w", p.target, err), p.discard())
	}
	return syncFolder(filepath.Dir(p.target))
}

func syncFolder(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the folder that the operator has named
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
