package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// content returns the folder with the content of a key, and fills it where it does not exist yet. The folder stays
// until release is called, which the caller must do unless there is an error.
func (r *Runner) content(
	ctx context.Context, kind, key string, fill func(ctx context.Context, dir string) error,
) (dir string, release func(), err error) {
	// What is held is not removed to make room.
	name := filepath.Join(kind, key)
	held := r.hold(name)
	defer func() {
		if err != nil {
			held()
		}
	}()

	// It may be there, from another call or another start.
	final := filepath.Join(r.opts.Dir, name)
	if r.touch(final) == nil {
		return final, held, nil
	}

	// One call at a time unpacks; the others then look again.
	select {
	case r.unpack <- struct{}{}:
		defer func() { <-r.unpack }()
	case <-ctx.Done():
		return "", nil, ctx.Err()
	case <-r.life.Done():
		return "", nil, errClosed
	}
	if r.touch(final) == nil {
		return final, held, nil
	}

	// It is filled beside its place and moved there whole.
	dir, done, err := r.stage()
	if err != nil {
		return "", nil, err
	}
	defer done()
	if err := fill(ctx, dir); err != nil {
		return "", nil, err
	}
	if err := r.makeRoom(ctx, dir); err != nil {
		return "", nil, err
	}
	syncDisk() // or a crash after the rename could leave a folder that looks whole
	if err := os.Rename(dir, final); err != nil {
		return "", nil, err
	}
	return final, held, r.touch(final)
}

// touch marks a folder as used now. The error reports that it does not exist.
func (r *Runner) touch(dir string) error {
	now := r.opts.Clock.Now()
	return os.Chtimes(dir, now, now)
}

// hold keeps content from being removed until release is called.
func (r *Runner) hold(name string) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[name]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.held[name]--; r.held[name] == 0 {
			delete(r.held, name)
		}
	}
}

// sizeFile is the name of the file in which a folder of content has its own size.
const sizeFile = "size"

// makeRoom makes room for new content, which is in a folder already: the least recently used content that is not in use
// goes first. The caller holds r.unpack.
func (r *Runner) makeRoom(ctx context.Context, dir string) error {
	size, err := sizeOf(ctx, dir)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, sizeFile), []byte(strconv.FormatInt(size, 10)), 0o600); err != nil {
		return err
	}

	// What is there now, the least recently used first.
	all, err := r.contents(ctx)
	if err != nil {
		return err
	}
	total := size

	for _, c := range all {
		total += c.size
	}
	for _, c := range all {
		if total <= r.opts.Content {
			return nil
		}
		removed, err := r.discard(c.name)
		if err != nil {
			return err
		}
		if removed {
			total -= c.size
		}
	}

	// What is left is in use.
	if total > r.opts.Content {
		return refuse("There is no room for this code: the images and the source code that are in use, with this one, would take %d MiB of the %d MiB that the server has for them. Deploy specs that use less, or make the archive smaller.",
			total>>20, r.opts.Content>>20)
	}
	return nil
}

// stored is a folder of content.
type stored struct {
	name string // below Dir
	size int64
	used time.Time
}

// contents returns what there is, in the order of its last use.
func (r *Runner) contents(ctx context.Context) ([]stored, error) {
	var all []stored
	for _, kind := range []string{"images", "sources"} {
		entries, err := os.ReadDir(filepath.Join(r.opts.Dir, kind))
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			info, err := entry.Info()
			if err != nil {
				return nil, err
			}
			c := stored{name: filepath.Join(kind, entry.Name()), used: info.ModTime()}
			if c.size, err = r.storedSize(ctx, filepath.Join(r.opts.Dir, c.name)); err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b stored) int { return a.used.Compare(b.used) })
	return all, nil
}

// storedSize returns the size of a folder of content, which is in a file of it unless an older version made the folder.
func (r *Runner) storedSize(ctx context.Context, dir string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(dir, sizeFile)) //nolint:gosec // a file of ours
	if err == nil {
		if size, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			return size, nil
		}
	}
	return sizeOf(ctx, dir)
}

// sizeOf returns what a folder takes of the disk, about.
func sizeOf(ctx context.Context, dir string) (int64, error) {
	const block = 4096
	var size int64
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		size += block
		if info.Mode().IsRegular() {
			size += info.Size() / block * block
		}
		return ctx.Err()
	})
	return size, err
}

// discard removes content that is not in use, and reports whether it has. It first moves the content to where the next
// start removes it, so that a crash never leaves half of it in place.
func (r *Runner) discard(name string) (bool, error) {
	dir, done, err := r.stage()
	if err != nil {
		return false, err
	}
	defer done()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[name] > 0 {
		return false, nil
	}
	err = os.Rename(filepath.Join(r.opts.Dir, name), filepath.Join(dir, "old"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err == nil, err
}
