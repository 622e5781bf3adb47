package wasm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tetratelabs/wazero"
)

// maxCache is how many bytes of machine code are kept on disk. The oldest go first.
const maxCache = 1 << 30

// sumFile lists the hashes of the files of an entry, in the form that sha256sum writes.
const sumFile = "SHA256SUMS"

// cache keeps machine code on disk, in a folder for each module. Machine code is run as it is read, so it is used only
// if its hash is right; a damaged entry is rebuilt. The folder must be writable by nobody else.
type cache struct{ dir string }

// open returns the cache for one module, empty if there is nothing usable. Without a folder, or where it cannot be
// used, it is in memory.
func (c cache) open(digest [32]byte) (_ wazero.CompilationCache, dir string) {
	if c.dir == "" {
		return wazero.NewCompilationCache(), ""
	}
	dir = filepath.Join(c.dir, hex.EncodeToString(digest[:]))
	if !intact(dir) {
		if err := os.RemoveAll(dir); err != nil {
			return wazero.NewCompilationCache(), ""
		}
	}
	disk, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return wazero.NewCompilationCache(), ""
	}
	return disk, dir
}

// sums hashes all files of an entry.
func sums(dir string) ([]byte, error) {
	var out bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == sumFile {
			return err
		}
		raw, err := os.ReadFile(path) //nolint:gosec // a file of the cache
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(raw), filepath.ToSlash(rel))
		return nil
	})
	return out.Bytes(), err
}

func intact(dir string) bool {
	want, err := os.ReadFile(filepath.Join(dir, sumFile)) //nolint:gosec // a file of the cache
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) && isEmpty(dir)
	}
	got, err := sums(dir)
	return err == nil && bytes.Equal(got, want)
}

func isEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0
}

// seal records the hashes of a new entry and makes room for it. The module is compiled in any case, so a failure only
// slows the next start.
func (c cache) seal(dir string) {
	if _, err := os.Stat(filepath.Join(dir, sumFile)); dir == "" || err == nil {
		return
	}
	text, err := sums(dir)
	if err == nil {
		tmp := filepath.Join(dir, sumFile+".tmp")
		if err = os.WriteFile(tmp, text, 0o600); err == nil {
			err = os.Rename(tmp, filepath.Join(dir, sumFile))
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir) // an entry without hashes is not used in any case
	}
	c.prune(dir)
}

// prune removes the oldest entries beyond the limit, but not the one to keep.
func (c cache) prune(keep string) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	type entry struct {
		path string
		info fs.FileInfo
		size int64
	}

	// All entries with their sizes.
	var all []entry
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		path := filepath.Join(c.dir, e.Name())
		if _, errName := hex.DecodeString(e.Name()); err != nil || errName != nil || len(e.Name()) != 64 || !e.IsDir() {
			continue
		}
		size := int64(0)
		_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil //nolint:nilerr // an entry that another process removes has no size
			}
			if info, err := d.Info(); err == nil {
				size += info.Size()
			}
			return nil
		})
		total += size
		all = append(all, entry{path, info, size})
	}

	// The oldest go first, until the rest fits.
	slices.SortFunc(all, func(a, b entry) int { return a.info.ModTime().Compare(b.info.ModTime()) })
	for _, e := range all {
		if total <= maxCache {
			return
		}
		if e.path != keep && os.RemoveAll(e.path) == nil {
			total -= e.size
		}
	}
}
