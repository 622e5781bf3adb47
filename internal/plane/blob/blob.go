// Package blob keeps versioned files of an environment: WebAssembly modules, container images, source archives. Their
// content is in chunks in the store's side spaces, next to all other data of the environment, so it is backed up, moved
// and dropped with it.
package blob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// The side spaces of an environment. A file exists once its version is written, which happens last, together with the
// removal of its upload; an interrupted upload stays as an item by which Sweep finds the chunks.
const (
	// headSpace holds a head for every name that was ever used.
	headSpace store.Space = "blob.heads"
	// versionSpace holds the record of each version under "<name>/<version, 10 digits>".
	versionSpace store.Space = "blob.versions"
	// chunkSpace holds content under "<content>/<number, 6 digits>".
	chunkSpace store.Space = "blob.chunks"
	// uploadSpace names content that belongs to no version: not yet, or no longer. An item is due when its content may
	// be removed.
	uploadSpace store.Space = "blob.uploads"
)

// chunkBytes is the size of all chunks of a file but the last.
const chunkBytes = 1 << 20

// Sizes of files.
const (
	defaultMaxBytes       = 512 << 20
	defaultMaxModuleBytes = 32 << 20
	maxName               = 128
)

// Options configures a Store.
type Options struct {
	Store store.Sides
	Clock clock.Clock
	// MaxBytes is the size of the largest file; 0 means 512 MiB.
	MaxBytes int64
	// MaxModuleBytes is that of the largest WebAssembly module; 0 means 32 MiB.
	MaxModuleBytes int64
	// Worker runs the background work.
	Worker *worker.Kit
}

// Store keeps the files of all environments. It is safe for concurrent use.
type Store struct {
	store     store.Sides
	clock     clock.Clock
	mint      *ident.Minter
	maxBytes  int64
	maxModule int64
	sweeper   *worker.Queue
}

// Blob is one version of a file.
type Blob struct {
	Name string `json:"name"`
	// Version counts from 1. The number of a deleted version is not used again.
	Version int   `json:"version"`
	Size    int64 `json:"size"`
	// SHA256 is the hash of the content in lower-case hexadecimal.
	SHA256    string    `json:"sha256"`
	CreatedAt time.Time `json:"created_at"`
	// CreatedBy is the handle of the operator who uploaded it, "" for another node.
	CreatedBy string `json:"created_by,omitempty"`
}

// Named is the latest version of a file, and how many versions there are.
type Named struct {
	Blob
	Versions int `json:"versions"`
}

// versionRecord is a version as it is stored.
type versionRecord struct {
	Blob
	// Content identifies the chunks.
	Content string `json:"content"`
	// ChunkBytes is the size of each chunk but the last.
	ChunkBytes int64 `json:"chunk_bytes"`
}

// headRecord describes all versions of a name.
type headRecord struct {
	// Last is the last number that was given out, Latest that of the latest version that still exists, 0 for none.
	Last   int `json:"last"`
	Latest int `json:"latest"`
	Count  int `json:"count"`
}

// New returns a store of files within st.
func New(o Options) *Store {
	s := &Store{
		store: o.Store, clock: o.Clock, mint: ident.NewMinter(o.Clock.Now), maxBytes: o.MaxBytes,
		maxModule: o.MaxModuleBytes,
	}
	s.sweeper = o.Worker.Queue(s.sweeping())
	if s.maxBytes == 0 {
		s.maxBytes = defaultMaxBytes
	}
	if s.maxModule == 0 {
		s.maxModule = defaultMaxModuleBytes
	}
	return s
}

// MaxBytes returns the size of the largest file.
func (s *Store) MaxBytes() int64 { return s.maxBytes }

// CheckName reports whether name is valid for a file: 1 to 128 letters, digits, dots, hyphens and underscores, a letter
// or a digit first. The error is a *j17.Error of CodeInvalidField.
func CheckName(name string) error {
	ok := name != "" && len(name) <= maxName
	for i := 0; ok && i < len(name); i++ {
		b := name[i]
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
		ok = letter || i > 0 && strings.IndexByte("._-", b) >= 0
	}
	if !ok {
		return j17.Errorf(j17.CodeInvalidField, "A blob's name has 1 to %d letters, digits, dots, hyphens and underscores and starts with a letter or a digit, such as 'order-handler.wasm'. Versions are numbered by the server.", maxName).At("name")
	}
	return nil
}

// List returns up to limit files in order of their names, after skipping offset of them.
func (s *Store) List(ctx context.Context, t j17.Tenant, offset, limit int) ([]Named, error) {
	var all []Named
	for it, err := range store.Items(ctx, s.store, t, headSpace, store.Range{}, scanLimit) {
		if err != nil {
			return nil, failure(err)
		}

		// Names whose versions are all deleted still have a head.
		head, err := decode[headRecord](headSpace, it)
		switch {
		case err != nil:
			return nil, err
		case head.Latest == 0:
			continue
		case offset > 0:
			offset--
			continue
		case len(all) >= limit:
			return all, nil
		}

		v, err := s.version(ctx, t, it.Key, head.Latest)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Named{v.Blob, head.Count})
	}
	return all, nil
}

// scanLimit is the number of items that are read at once.
const scanLimit = 500

// Versions lists all versions of a file, the latest first. A name without any is a *j17.Error of CodeNotFound.
func (s *Store) Versions(ctx context.Context, t j17.Tenant, name string) ([]Blob, error) {
	records, err := s.versions(ctx, t, name)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, noBlob(name, 0)
	}
	all := make([]Blob, len(records))
	for i, v := range records {
		all[len(all)-1-i] = v.Blob
	}
	return all, nil
}

// Find returns the description of a version of a file, 0 for the latest. It is a *j17.Error of CodeNotFound if there is
// none.
func (s *Store) Find(ctx context.Context, t j17.Tenant, name string, version int) (Blob, error) {
	v, err := s.find(ctx, t, name, version)
	return v.Blob, err
}

// versions returns the records of all versions of a name, the oldest first.
func (s *Store) versions(ctx context.Context, t j17.Tenant, name string) ([]*versionRecord, error) {
	if CheckName(name) != nil {
		return nil, nil
	}
	var all []*versionRecord
	for it, err := range store.Items(ctx, s.store, t, versionSpace, store.Prefix(name+"/"), scanLimit) {
		if err != nil {
			return nil, failure(err)
		}
		v, err := decode[versionRecord](versionSpace, it)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func (s *Store) find(ctx context.Context, t j17.Tenant, name string, version int) (versionRecord, error) {
	if CheckName(name) != nil || version < 0 {
		return versionRecord{}, noBlob(name, version)
	}
	if version == 0 {
		return s.latest(ctx, t, name)
	}
	v, err := s.version(ctx, t, name, version)
	if errors.Is(err, store.ErrNotFound) {
		return versionRecord{}, noBlob(name, version)
	}
	if err != nil {
		return versionRecord{}, err
	}
	return *v, nil
}

// latest returns the latest version of a file. If its record is missing, the head is read again: it has changed if the
// version was deleted meanwhile, otherwise the store is damaged.
func (s *Store) latest(ctx context.Context, t j17.Tenant, name string) (versionRecord, error) {
	for before := uint64(0); ; {
		head, rev, err := s.head(ctx, t, name)
		if err != nil {
			return versionRecord{}, err
		}
		if head.Latest == 0 {
			return versionRecord{}, noBlob(name, 0)
		}
		v, err := s.version(ctx, t, name, head.Latest)
		switch {
		case err == nil:
			return *v, nil
		case !errors.Is(err, store.ErrNotFound):
			return versionRecord{}, err
		case rev == before:
			return versionRecord{}, failure(&store.CorruptionError{
				Where: string(versionSpace) + "/" + versionKey(name, head.Latest), Err: errors.New("it is missing"),
			})
		}
		before = rev
	}
}

// head returns the head of a name and its revision, the zero head if there is none.
func (s *Store) head(ctx context.Context, t j17.Tenant, name string) (headRecord, uint64, error) {
	it, err := s.store.Get(ctx, t, headSpace, name)
	if errors.Is(err, store.ErrNotFound) {
		return headRecord{}, 0, nil
	}
	if err != nil {
		return headRecord{}, 0, failure(err)
	}
	h, err := decode[headRecord](headSpace, &it)
	if err != nil {
		return headRecord{}, 0, err
	}
	return *h, it.Rev, nil
}

// version returns the record of a version; store.ErrNotFound if there is none.
func (s *Store) version(ctx context.Context, t j17.Tenant, name string, version int) (*versionRecord, error) {
	it, err := s.store.Get(ctx, t, versionSpace, versionKey(name, version))
	if errors.Is(err, store.ErrNotFound) {
		return nil, store.ErrNotFound
	}
	if err != nil {
		return nil, failure(err)
	}
	return decode[versionRecord](versionSpace, &it)
}

func versionKey(name string, version int) string { return fmt.Sprintf("%s/%010d", name, version) }

func chunkKey(content string, number int64) string { return fmt.Sprintf("%s/%06d", content, number) }

// put returns the write of an item on the condition that it still has revision rev, 0 for none.
func put(space store.Space, key string, v any, rev uint64) (store.Side, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return store.Side{}, err
	}
	return store.Side{Op: store.Put, Space: space, Key: key, Value: raw}.On(rev), nil
}

func decode[T any](space store.Space, it *store.Item) (*T, error) {
	v, err := store.Decode[T](space, it)
	if err != nil {
		return nil, failure(err)
	}
	return &v, nil
}

func noBlob(name string, version int) error {
	switch {
	case CheckName(name) != nil:
		return j17.Errorf(j17.CodeNotFound, "There is no blob of that name.")
	case version != 0:
		return j17.Errorf(j17.CodeNotFound, "There is no version %d of the blob '%s'.", version, name)
	default:
		return j17.Errorf(j17.CodeNotFound, "There is no blob named '%s'.", name)
	}
}

// failure turns an error of the store into one for users.
func failure(err error) error {
	var told *j17.Error
	_, public := errors.AsType[*j17.Error](err)
	_, conflict := errors.AsType[*store.SideConflict](err)
	_, corrupt := errors.AsType[*store.CorruptionError](err)
	switch {
	case public:
		return err
	case conflict:
		told = j17.Errorf(j17.CodeConflict, "Someone else changed the same blob at the same moment. Try again.")
	case corrupt:
		told = j17.Errorf(j17.CodeCorruption, "The stored blob is damaged. Delete this version and upload it again.")
	case errors.Is(err, store.ErrFull):
		told = j17.Errorf(j17.CodeStorageFull, "The server is short of disk space and accepts no blobs until there is room again.")
	case errors.Is(err, store.ErrClock):
		told = j17.Errorf(j17.CodeUnavailable, "The server's clock has jumped and is not believed. Nothing was changed; its operator has to set the clock right or confirm it.")
	case errors.Is(err, store.ErrBusy):
		told = j17.Errorf(j17.CodeBusy, "The server lacks %s for a moment. Nothing was changed; try again in a moment.", store.Lacking(err))
	case errors.Is(err, store.ErrUnknown):
		told = j17.Errorf(j17.CodeOutcomeUnknown, "It is not known whether the change was saved. List the blobs before you try again.")
	case errors.Is(err, store.ErrFailed):
		told = j17.Errorf(j17.CodeUnavailable, "The server's disk has failed. Nothing was changed; its operator has to restart the server on a sound disk.")
	case errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		told = j17.Errorf(j17.CodeUnavailable, "The request was given up, or the server is shutting down. Try again.")
	default:
		told = j17.Errorf(j17.CodeInternal, "The server could not read or write its blobs.")
	}
	return told.Because(err)
}
