// Package repository keeps backups in a folder or in a bucket of an S3 server: parts that are named after their
// content, so that nothing is stored twice, and a manifest for each backup that lists its parts. docs/storage-format.md
// describes the files.
//
// It needs no key to write, list and remove encrypted backups, and only the private key to read them.
package repository

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"

	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// Repository is a place with backups. It is safe for concurrent use, and so are several for the same place, even on
// different machines.
type Repository struct {
	storage storage
	clock   clock.Clock
}

// The errors that callers distinguish.
var (
	// ErrNotFound: there is no such backup.
	ErrNotFound = errors.New("there is no such backup")
	// ErrMissing: a part to be kept does not exist.
	ErrMissing = errors.New("the part no longer exists")
	// ErrBusy: a backup is being written, so nothing can be collected.
	ErrBusy = errors.New("a backup is being written")
	// ErrDoubt is wrapped by the error of Finish if the backup may exist nevertheless: it was stored without an answer,
	// and could not be removed.
	ErrDoubt = errors.New("whether the backup is there is not known")
)

// DamagedError reports that a file is not what was written, or cannot be understood by this program.
type DamagedError struct {
	// File is the file's path, or its name in the bucket.
	File   string
	Reason string
}

// Error names the file.
func (e *DamagedError) Error() string { return e.File + " cannot be used: " + e.Reason }

// OpenFolder returns the repository in a folder. Nothing is changed: the folder is made when something is written.
func OpenFolder(path string, c clock.Clock) *Repository {
	return &Repository{storage: newFolder(path), clock: c}
}

// String names the place, for people.
func (r *Repository) String() string { return r.storage.String() }

// damaged returns the error of an invalid file.
func (r *Repository) damaged(name string, err error) *DamagedError {
	reason := err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		reason = "it is missing"
	}
	return &DamagedError{File: r.storage.String() + "/" + name, Reason: reason}
}

// partBytes is the approximate size of a part's content, and smallPart the initial size of its buffer.
const (
	partBytes = 8 << 20
	smallPart = 1 << 20
)

// itemPartBytes is the approximate size of a part with side items. When one of them changes, its part is stored again.
const itemPartBytes = 1 << 20

// maxContent bounds the content of a part, which may exceed its size by the largest value in base64.
const maxContent = partBytes + store.MaxUnitBytes/3*4 + 1<<20

// maxFile bounds the file of a part; encryption and ineffective compression add at most this much.
const maxFile = maxContent + maxContent/64 + 1<<20

// Try tests whether backups can be written, read, listed and removed. It leaves nothing behind, unless removing fails.
func (r *Repository) Try(ctx context.Context) (err error) {
	name, content := temporary+"/try-"+rand.Text(), []byte("written to see whether backups can be\n")
	if err := r.storage.Put(ctx, name, content); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.storage.Delete(ctx, name)) }()
	if err := r.storage.Sync(ctx); err != nil {
		return err
	}
	got, err := r.storage.Get(ctx, name, int64(len(content)))
	if err != nil || !bytes.Equal(got, content) {
		return cmp.Or(err, errors.New("what was written comes back as something else"))
	}
	for f, err := range r.storage.List(ctx, temporary) {
		if err != nil || f.Name == name {
			return err
		}
	}
	return errors.New("what was written is not listed")
}
