package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// replace writes a file in one step: even after a failure, the old content or the new one is there. Files that are not
// regular, such as pipes, are written to directly. A new file gets the permissions perm.
func replace(name string, content []byte, perm fs.FileMode) error {
	target, err := linked(name)
	if err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}

	// Files that are not regular are written to directly.
	switch info, err := os.Stat(target); {
	case err == nil && !info.Mode().IsRegular():
		if err := os.WriteFile(target, content, perm); err != nil {
			return fmt.Errorf("cannot write: %w", err)
		}
		return nil
	case err == nil:
		perm = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cannot write: %w", err)
	}

	// For a regular file, a new one is written beside it and then takes its place.
	f, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+".*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", fileName(name), err)
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), target)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", fileName(name), errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// linked returns the file that a name leads to, so that a symbolic link remains one when its file is replaced. A name
// that is no link is returned as it is.
func linked(name string) (string, error) {
	target, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name, nil
	}
	return target, err
}

// sameFile reports whether two names lead to one file, which need not exist. "-" is the file that in is.
func (e *env) sameFile(a, b string) bool {
	infoA, errA := e.stat(a)
	infoB, errB := e.stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(infoA, infoB)
	}
	if a == "-" || b == "-" || errA == nil || errB == nil || filepath.Base(a) != filepath.Base(b) {
		return false
	}
	// Neither exists: they are the same if their folders are.
	infoA, errA = os.Stat(filepath.Dir(a))
	infoB, errB = os.Stat(filepath.Dir(b))
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func (e *env) stat(name string) (fs.FileInfo, error) {
	if name != "-" {
		return os.Stat(name)
	}
	if f, ok := e.in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return info, nil
		}
	}
	return nil, fs.ErrNotExist
}
