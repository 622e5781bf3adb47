package repository

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// storage keeps files under names with slashes. A file that does not exist is fs.ErrNotExist.
type storage interface {
	// Put writes a file, replacing an existing one, as a whole or not at all.
	Put(ctx context.Context, name string, content []byte) error

	// Sync returns when all earlier Puts survive a loss of power.
	Sync(ctx context.Context) error

	// Get reads a file of at most limit bytes.
	Get(ctx context.Context, name string, limit int64) ([]byte, error)

	// List yields the files in a folder, or with that name, in no order.
	List(ctx context.Context, folder string) iter.Seq2[file, error]

	// Delete removes a file; it is not an error if the file does not exist.
	Delete(ctx context.Context, name string) error

	// Cheap reports that reading a file again costs no more than writing it.
	Cheap() bool

	// String names the storage, for people.
	String() string
}

// file is the entry of a file in a listing.
type file struct {
	Name  string
	Bytes int64
	// Modified is by the storage's own clock.
	Modified time.Time
}

// errTooLarge is the error of a file that j17 has not written, since it is larger than any that it writes.
var errTooLarge = errors.New("the file is larger than any that j17 writes")

// temporary is the folder of unfinished files.
const temporary = "tmp"

// folder is a storage in a folder of the machine.
type folder struct {
	path string
	// mu guards dirty, the folders whose entries were changed since the last Sync.
	mu    sync.Mutex
	dirty map[string]bool
}

// TryFolder tests whether files can be written to a folder, or the folder can be made. It leaves nothing behind. Its
// error names the folder.
func TryFolder(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	there := path
	for _, err = os.Stat(there); errors.Is(err, fs.ErrNotExist) &&
		filepath.Dir(there) != there; _, err = os.Stat(there) {
		there = filepath.Dir(there)
	}
	var tried string
	if err == nil {
		tried, err = os.MkdirTemp(there, ".j17-try-")
	}
	if err == nil {
		err = os.Remove(tried)
	}
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		err = file.Err
	}
	switch {
	case err == nil:
		return nil
	case there == path:
		return fmt.Errorf("%s cannot be written: %w", path, err)
	default:
		return fmt.Errorf("%s does not exist and cannot be made in %s: %w", path, there, err)
	}
}

func newFolder(path string) *folder { return &folder{path: path, dirty: map[string]bool{}} }

func (f *folder) String() string { return f.path }

func (f *folder) Cheap() bool { return true }

func (f *folder) at(name string) string { return filepath.Join(f.path, filepath.FromSlash(name)) }

// Put writes a temporary file, syncs it and renames it.
func (f *folder) Put(ctx context.Context, name string, content []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	target := f.at(name)
	for _, dir := range []string{f.at(temporary), filepath.Dir(target)} {
		if err := f.makeFolder(dir); err != nil {
			return err
		}
	}

	// The content, under a name that is ignored.
	tmp, err := os.CreateTemp(f.at(temporary), "new-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), target)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	f.touched(filepath.Dir(target))
	return nil
}

// makeFolder makes a folder and the missing ones above it.
func (f *folder) makeFolder(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	for above := dir; ; above = filepath.Dir(above) {
		f.touched(filepath.Dir(above))
		if _, err := os.Stat(filepath.Dir(above)); err == nil || filepath.Dir(above) == above {
			break
		}
	}
	return os.MkdirAll(dir, 0o700)
}

func (f *folder) touched(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty[dir] = true
}

func (f *folder) Sync(ctx context.Context) error {
	f.mu.Lock()
	dirty := f.dirty
	f.dirty = map[string]bool{}
	f.mu.Unlock()
	for dir := range dirty {
		err := ctx.Err()
		if err == nil {
			err = syncFolder(dir)
		}
		if err != nil {
			f.mu.Lock()
			for dir := range dirty {
				f.dirty[dir] = true
			}
			f.mu.Unlock()
			return err
		}
	}
	return nil
}

func syncFolder(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // a folder of the repository that the operator named
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (f *folder) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := os.Stat(f.at(name)) // before it is opened: opening a pipe waits for its writer
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a file")
	}
	in, err := os.Open(f.at(name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // it was only read
	return readBounded(in, info.Size(), limit)
}

// maxFirst is how much memory is allocated for a file before any of it has arrived: its stated size may be wrong.
const maxFirst = 16 << 20

// readBounded reads content that should have size bytes, and may have limit.
func readBounded(in io.Reader, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, errTooLarge
	}
	content := make([]byte, 0, min(size+1, maxFirst))
	for {
		if len(content) == cap(content) {
			content = append(content, 0)[:len(content)]
		}
		n, err := in.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		switch {
		case int64(len(content)) > limit:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return content, nil
		case err != nil:
			return nil, err
		}
	}
}

func (f *folder) List(ctx context.Context, dir string) iter.Seq2[file, error] {
	return func(yield func(file, error) bool) {
		err := filepath.WalkDir(f.at(dir), func(path string, entry fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			// Names of ours never begin with a dot, but files of systems and other programs do.
			hidden := err == nil && path != f.at(dir) && strings.HasPrefix(entry.Name(), ".")
			switch {
			case hidden && entry.IsDir():
				return fs.SkipDir
			case err != nil || hidden || entry.IsDir():
				return err
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed meanwhile
			}
			if err != nil {
				return err
			}
			name, err := filepath.Rel(f.path, path)
			if err != nil {
				return err
			}
			if !yield(file{Name: filepath.ToSlash(name), Bytes: info.Size(), Modified: info.ModTime()}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			yield(file{}, err)
		}
	}
}

func (f *folder) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := os.Remove(f.at(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		f.touched(filepath.Dir(f.at(name)))
	}
	return err
}

// plainName reports whether a text is a valid file name, since names that are read may come from others.
func plainName(s string) bool {
	return s != "" && len(s) <= 200 && s != "." && s != ".." && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == '/' || r == '\\' || r == 0x7f || r == 0xfffd
	})
}

// describe adds the name of the file to an error, unless the caller has ended the work.
func describe(s storage, name, what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("the file %s of the backups in %s could not be %s: %w", name, s, what, err)
}
