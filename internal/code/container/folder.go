package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// prepareDir makes the folder with what all containers share, and removes what an earlier process left half done.
func (r *Runner) prepareDir() error {
	if r.opts.Dir == "" {
		return refuse("Containers need a folder for unpacked images and built code. Set one.")
	}

	dir, err := filepath.Abs(r.opts.Dir)
	if err != nil {
		return err
	}
	r.opts.Dir = dir
	if err := makeFolder(dir); err != nil {
		return err
	}
	if barrier, err := r.barrier(); err != nil {
		return err
	} else if barrier != "" {
		// If no spare folder can be used, the driver's check refuses to start.
		if r.opts.Spare != "" && makeSafe(r.opts.Spare) == nil {
			_ = os.Remove(dir) // it stays where it is in use
			r.opts.Dir = r.opts.Spare
			if err := r.ownSpare(dir); err != nil {
				return err
			}
		}
	}

	// What a server that was killed has left half done.
	if err := os.RemoveAll(filepath.Join(r.opts.Dir, "staging")); err != nil {
		return err
	}
	for _, name := range []string{"images", "sources", "staging"} {
		if err := makeFolder(filepath.Join(r.opts.Dir, name)); err != nil {
			return err
		}
	}

	// What all containers see.
	r.boot = filepath.Join(r.opts.Dir, "shared")
	return writeShared(r.boot)
}

// barrier returns the folder on the way to Dir that the sandbox's user cannot pass through, "" where there is none or
// where that user need not pass: only bubblewrap drops root's privileges before it mounts what is in Dir.
func (r *Runner) barrier() (string, error) {
	if r.opts.Driver != Bubblewrap || os.Geteuid() != 0 {
		return "", nil
	}
	for dir := r.opts.Dir; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return "", err
		}
		if info.Mode()&1 == 0 {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", nil
		}
	}
}

// makeFolder makes a folder that the sandbox's user can pass through but not list.
func makeFolder(path string) error {
	if err := os.MkdirAll(path, 0o711); err != nil { //nolint:gosec // the sandbox's user must pass through
		return err
	}
	return os.Chmod(path, 0o711) //nolint:gosec // the sandbox's user must pass through
}

// makeSafe makes a folder with an absolute path that everybody can pass through, and that nobody but root and this
// process's user can replace, nor any folder above it. Existing folders are not changed.
func makeSafe(path string) error {
	root := string(filepath.Separator)
	at := root
	for _, name := range append([]string{""}, strings.Split(strings.Trim(filepath.Clean(path), root), root)...) {
		// It is made if it is not there.
		at = filepath.Join(at, name)
		err := os.Mkdir(at, 0o711) //nolint:gosec // the sandbox's user must pass through
		if err == nil {
			err = os.Chmod(at, 0o711) //nolint:gosec // the umask may have taken rights away
		} else if errors.Is(err, os.ErrExist) {
			err = nil
		}
		if err != nil {
			return err
		}

		// Anybody who can change it can put other code in its place.
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		const others = 0o022
		owner := ownerOf(info)
		switch {
		case !info.IsDir():
			return fmt.Errorf("%s is no folder", at)
		case info.Mode()&1 == 0:
			return fmt.Errorf("not everybody can pass through %s", at)
		case owner != 0 && owner != os.Geteuid():
			return fmt.Errorf("%s belongs to the user %d", at, owner)
		case info.Mode()&others != 0 && (info.Mode()&os.ModeSticky == 0 || at == path):
			return fmt.Errorf("others can write to %s", at)
		}
	}
	return nil
}
