package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// noteFile is the name of the file in a spare folder that names the folder it stands in for. A server keeps it locked.
const noteFile = "in-place-of"

// ownSpare notes which folder the spare folder stands in for, and removes the spare folders beside it that nobody will
// use again.
func (r *Runner) ownSpare(instead string) error {
	at := filepath.Join(r.opts.Spare, noteFile)
	note, err := os.OpenFile(at, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // a file of ours
	if err != nil {
		return err
	}
	r.spare = note
	// Without the lock, which another server may hold, the folder is merely not known to be in use.
	_ = lock(note)
	if err := os.WriteFile(at, []byte(instead), 0o600); err != nil {
		return err
	}
	// The folder is called /var/cache/j17/HASH/containers: those of other data folders stand one further up.
	own := filepath.Dir(r.opts.Spare)
	siblings, err := os.ReadDir(filepath.Dir(own))
	if err != nil {
		return nil //nolint:nilerr // what cannot be listed is not tidied
	}
	for _, sibling := range siblings {
		if dir := filepath.Join(filepath.Dir(own), sibling.Name()); sibling.IsDir() && dir != own {
			// A folder that cannot be removed is no reason not to start.
			_ = removeSpare(filepath.Join(dir, filepath.Base(r.opts.Spare)))
		}
	}
	return nil
}

// letGo unlocks the note of the spare folder.
func (r *Runner) letGo() {
	if r.spare != nil {
		_ = r.spare.Close()
		r.spare = nil
	}
}

// removeSpare removes a spare folder whose data folder is gone. It has to be certain that a server has made it, that no
// server uses it, and that nothing else is in it; otherwise it stays.
func removeSpare(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || ownerOf(info) != os.Geteuid() {
		return err
	}
	at := filepath.Join(dir, noteFile)
	if info, err = os.Lstat(at); err != nil || !info.Mode().IsRegular() || ownerOf(info) != os.Geteuid() {
		return err
	}

	// A note of ours, which no server holds.
	note, err := os.OpenFile(at, os.O_RDWR, 0) //nolint:gosec // a file of ours
	if err != nil {
		return err
	}
	defer func() { _ = note.Close() }()
	if !lock(note) {
		return errors.New("a server uses it")
	}
	text, err := os.ReadFile(at) //nolint:gosec // a file of ours
	if err != nil {
		return err
	}

	// The data folder is two levels above that of the containers. Where the folder above the data folder is gone too, a
	// disk may be unmounted.
	instead := string(text)
	data := filepath.Dir(filepath.Dir(instead))
	if !filepath.IsAbs(instead) || !gone(data) || gone(filepath.Dir(data)) {
		return nil
	}

	// Nothing but what a server puts there.
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}

	for _, entry := range entries {
		if !slices.Contains([]string{"images", "sources", "staging", "shared", noteFile}, entry.Name()) {
			return fmt.Errorf("there is %s in it", entry.Name())
		}
	}
	// The note goes last, so that the rest is still recognised after a crash.
	for _, entry := range entries {
		if entry.Name() != noteFile {
			if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return errors.Join(os.Remove(at), os.Remove(dir), os.Remove(filepath.Dir(dir)))
}

// gone reports whether it is certain that nothing has the name.
func gone(path string) bool {
	_, err := os.Lstat(path) //nolint:gosec // looked at, not opened
	return errors.Is(err, fs.ErrNotExist)
}
