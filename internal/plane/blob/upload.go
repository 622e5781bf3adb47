package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"slices"
	"time"

	"j17"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

const (
	// uploadTime is how long an upload may take. An unfinished one may be removed after that.
	uploadTime = time.Hour
	// sweepLease is how long one sweep has for the content that it found.
	sweepLease = 10 * time.Minute
	// sweepAtOnce is how many environments are swept at a time.
	sweepAtOnce = 4
	// removeAtOnce is how many chunks are removed in one step.
	removeAtOnce = 8
)

// moduleMagic starts every WebAssembly module.
const moduleMagic = "\x00asm"

// Upload is content that has arrived but is no version of a file yet. Commit makes it one; otherwise Discard must be
// called.
type Upload struct {
	s       *Store
	tenant  j17.Tenant
	content string
	rev     uint64
	blob    Blob
}

// Upload reads a file to its end. It is a *j17.Error of CodeInvalidField for an invalid name and for an empty file, and
// of CodePayloadTooLarge for a file that is too large. Errors of r are returned unchanged.
func (s *Store) Upload(ctx context.Context, t j17.Tenant, name, by string, r io.Reader) (_ *Upload, err error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	u := &Upload{s: s, tenant: t, content: s.mint.UUIDv7(), blob: Blob{Name: name, CreatedBy: by}}
	until := s.clock.Now().Add(uploadTime)
	if err := s.store.Write(ctx, t, []store.Side{
		{Op: store.Put, Space: uploadSpace, Key: u.content, Due: until, Cond: store.IfAbsent},
	}); err != nil {
		return nil, failure(err)
	}
	defer func() {
		if err != nil {
			u.Discard(ctx)
		}
	}()
	it, err := s.store.Get(ctx, t, uploadSpace, u.content)
	if err != nil {
		return nil, failure(err)
	}
	u.rev = it.Rev
	if err := u.receive(ctx, r); err != nil {
		return nil, err
	}
	return u, nil
}

// receive stores the content of r, chunk by chunk.
func (u *Upload) receive(ctx context.Context, r io.Reader) error {
	sum := sha256.New()
	limit, chunk := u.s.maxBytes, make([]byte, chunkBytes)
	for number := int64(0); ; number++ {
		n, err := fill(chunk, r)
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return err
		}
		if number == 0 {
			if n == 0 {
				return j17.Errorf(j17.CodeInvalidField, "The file is empty.").At("file")
			}
			if bytes.HasPrefix(chunk[:n], []byte(moduleMagic)) {
				limit = min(limit, u.s.maxModule)
			}
		}
		if u.blob.Size += int64(n); u.blob.Size > limit {
			return j17.Errorf(j17.CodePayloadTooLarge, "The file is larger than %d bytes.", limit).At("file")
		}
		if n > 0 {
			sum.Write(chunk[:n])
			if err := u.write(ctx, store.Side{
				Op: store.Put, Space: chunkSpace, Key: chunkKey(u.content, number), Value: chunk[:n],
			}); err != nil {
				return err
			}
		}
		if ended {
			u.blob.SHA256 = hex.EncodeToString(sum.Sum(nil))
			return nil
		}
	}
}

// fill reads until p is full or r has ended. Unlike with io.ReadFull, the end of a file can be told from one that was
// cut off (io.ErrUnexpectedEOF).
func fill(p []byte, r io.Reader) (n int, err error) {
	for n < len(p) && err == nil {
		var more int
		more, err = r.Read(p[n:])
		n += more
	}
	return n, err
}

// write writes on condition that the upload has not been swept, so that no chunk is left behind that cannot be found.
func (u *Upload) write(ctx context.Context, side store.Side) error {
	owned := store.Fence{Space: uploadSpace, Key: u.content, Rev: u.rev}
	err := u.s.store.Write(ctx, u.tenant, []store.Side{side}, owned)
	if _, ok := errors.AsType[*store.SideConflict](err); ok {
		return tooSlow()
	}
	if err != nil {
		return failure(err)
	}
	return nil
}

func tooSlow() error {
	return j17.Errorf(j17.CodeUnavailable, "The upload took longer than %s and was given up. Try again.", uploadTime)
}

// Name returns the name that the content was uploaded under.
func (u *Upload) Name() string { return u.blob.Name }

// Blob returns the description of the content. It has no version and no date yet.
func (u *Upload) Blob() Blob { return u.blob }

// Chunks yields the content in pieces.
func (u *Upload) Chunks(ctx context.Context) iter.Seq2[[]byte, error] {
	return u.s.chunks(ctx, u.tenant, versionRecord{Blob: u.blob, Content: u.content, ChunkBytes: chunkBytes})
}

// Bytes returns the whole content.
func (u *Upload) Bytes(ctx context.Context) ([]byte, error) {
	return u.s.bytes(ctx, u.tenant, versionRecord{Blob: u.blob, Content: u.content, ChunkBytes: chunkBytes})
}

// Commit makes the content the next version of its file. If the latest version has the same content, it reports false,
// keeps nothing and returns that version. The upload is over either way; after an error it must be discarded.
func (u *Upload) Commit(ctx context.Context) (Blob, bool, error) {
	s := u.s
	for {
		// Content that the file has already needs no new version.
		head, rev, err := s.head(ctx, u.tenant, u.blob.Name)
		if err != nil {
			return Blob{}, false, err
		}
		if head.Latest != 0 {
			latest, err := s.version(ctx, u.tenant, u.blob.Name, head.Latest)
			switch {
			case errors.Is(err, store.ErrNotFound):
				// Deleted meanwhile; then the head has changed as well.
			case err != nil:
				return Blob{}, false, err
			case latest.SHA256 == u.blob.SHA256:
				u.Discard(ctx)
				return latest.Blob, false, nil
			}
		}

		// One commit increments the head, writes the version and removes the mark for the sweep.
		head.Last++
		head.Latest = head.Last
		head.Count++
		u.blob.Version = head.Last
		u.blob.CreatedAt = s.clock.Now().UTC().Truncate(time.Second)
		first, err := put(headSpace, u.blob.Name, head, rev)
		if err != nil {
			return Blob{}, false, err
		}
		second, err := put(
			versionSpace, versionKey(u.blob.Name, head.Last), versionRecord{u.blob, u.content, chunkBytes}, 0,
		)
		if err != nil {
			return Blob{}, false, err
		}
		err = s.store.Write(ctx, u.tenant, []store.Side{
			first, second, {Op: store.Delete, Space: uploadSpace, Key: u.content, Cond: store.IfRev, Rev: u.rev},
		})
		conflict, ok := errors.AsType[*store.SideConflict](err)
		switch {
		case err == nil:
			return u.blob, true, nil
		case ok && conflict.Space == uploadSpace:
			return Blob{}, false, tooSlow()
		case ok:
			// Another upload of the same name was first.
		default:
			return Blob{}, false, failure(err)
		}
	}
}

// Discard removes the content, unless it is a version after all, since the outcome of a Commit may be unknown. What
// cannot be removed now is removed by Sweep.
func (u *Upload) Discard(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	fence := store.Side{
		Op: store.Put, Space: uploadSpace, Key: u.content, Due: u.s.clock.Now(), Cond: store.IfRev, Rev: u.rev,
	}
	if u.s.store.WriteFreeing(ctx, u.tenant, []store.Side{fence}) == nil {
		_ = u.s.remove(ctx, u.tenant, u.content)
	}
}

// Delete removes a version of a file, or all of them if version is 0. It is a *j17.Error of CodeNotFound if there is
// none. The caller has to check that they are not in use.
func (s *Store) Delete(ctx context.Context, t j17.Tenant, name string, version int) error {
	for {
		// The versions to remove, and the new head.
		head, rev, err := s.head(ctx, t, name)
		if err != nil {
			return err
		}
		all, err := s.versions(ctx, t, name)
		if err != nil {
			return err
		}
		gone := all
		if version != 0 {
			gone = slices.DeleteFunc(slices.Clone(all), func(v *versionRecord) bool { return v.Version != version })
		}
		if len(gone) == 0 {
			return noBlob(name, version)
		}
		head.Latest, head.Count = 0, len(all)-len(gone)
		for _, v := range all {
			if version != 0 && v.Version != version {
				head.Latest = v.Version
			}
		}

		// Versions and head are written in one commit, which marks the content for the sweep in case its removal below
		// does not happen.
		side, err := put(headSpace, name, head, rev)
		if err != nil {
			return err
		}
		sides := []store.Side{side}
		for _, v := range gone {
			sides = append(
				sides,
				store.Side{Op: store.Delete, Space: versionSpace, Key: versionKey(name, v.Version)},
				store.Side{Op: store.Put, Space: uploadSpace, Key: v.Content, Due: s.clock.Now()},
			)
		}
		err = s.store.WriteFreeing(ctx, t, sides)
		if _, ok := errors.AsType[*store.SideConflict](err); ok {
			continue // the head has changed meanwhile
		}
		if err != nil {
			return failure(err)
		}
		// The versions are gone. Content that cannot be removed now is swept later.
		for _, v := range gone {
			_ = s.remove(context.WithoutCancel(ctx), t, v.Content)
		}
		return nil
	}
}

// Open returns the description of a version of a file, 0 for the latest, and its content in pieces. If the version is
// deleted while it is read, or its content is damaged, the pieces end with an error.
func (s *Store) Open(
	ctx context.Context, t j17.Tenant, name string, version int,
) (Blob, iter.Seq2[[]byte, error], error) {
	v, err := s.find(ctx, t, name, version)
	if err != nil {
		return Blob{}, nil, err
	}
	return v.Blob, s.chunks(ctx, t, v), nil
}

// Bytes returns a version of a file, 0 for the latest, with its whole content.
func (s *Store) Bytes(ctx context.Context, t j17.Tenant, name string, version int) (Blob, []byte, error) {
	v, err := s.find(ctx, t, name, version)
	if err != nil {
		return Blob{}, nil, err
	}
	content, err := s.bytes(ctx, t, v)
	return v.Blob, content, err
}

func (s *Store) bytes(ctx context.Context, t j17.Tenant, v versionRecord) ([]byte, error) {
	content := make([]byte, 0, v.Size)
	for chunk, err := range s.chunks(ctx, t, v) {
		if err != nil {
			return nil, err
		}
		content = append(content, chunk...)
	}
	return content, nil
}

// chunks yields the content of a version and checks it against the hash at the end.
func (s *Store) chunks(ctx context.Context, t j17.Tenant, v versionRecord) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		sum := sha256.New()
		damaged := &store.CorruptionError{Where: string(versionSpace) + "/" + versionKey(v.Name, v.Version)}

		// Part by part.
		for left, number := v.Size, int64(0); left > 0; number++ {
			it, err := s.store.Get(ctx, t, chunkSpace, chunkKey(v.Content, number))

			// A missing part is damage, unless the version was deleted meanwhile.
			switch {
			case errors.Is(err, store.ErrNotFound):
				if _, gone := s.version(ctx, t, v.Name, v.Version); errors.Is(gone, store.ErrNotFound) {
					yield(nil, noBlob(v.Name, v.Version))
					return
				}
				damaged.Err = errors.New("a part is missing")
				yield(nil, failure(damaged))
				return
			case err != nil:
				yield(nil, failure(err))
				return
			case int64(len(it.Value)) != min(left, v.ChunkBytes):
				damaged.Err = errors.New("a part has the wrong size")
				yield(nil, failure(damaged))
				return
			}

			// The last part is held back until the hash has been checked.
			sum.Write(it.Value)
			left -= int64(len(it.Value))
			if left == 0 && hex.EncodeToString(sum.Sum(nil)) != v.SHA256 {
				damaged.Err = errors.New("the content has another hash")
				yield(nil, failure(damaged))
				return
			}
			if !yield(it.Value, nil) {
				return
			}
		}
	}
}

// sweeping is the work that removes content which belongs to no version: of uploads that were interrupted an hour ago
// or more, and of deletions. It matters most on a full disk.
func (s *Store) sweeping() worker.Work {
	return worker.Work{
		Name: "blob_sweep", Store: s.store, Space: uploadSpace, Lease: sweepLease, AtOnce: sweepAtOnce, Freeing: true,
		Do: func(ctx context.Context, c *worker.Claim) error { return s.remove(ctx, c.Tenant, c.Key) },
	}
}

// Sweep does now what Run would do, in all environments. Content that cannot be removed does not block the rest; it is
// tried again later.
func (s *Store) Sweep(ctx context.Context) error { return s.sweeper.Settle(ctx) }

// Run removes content that belongs to no version when it is due, until the context ends.
func (s *Store) Run(ctx context.Context) error { return s.sweeper.Run(ctx) }

// remove deletes chunks and then the upload that names them. The caller has changed the upload, so that it can no
// longer be committed. Concurrent calls for the same content are safe.
func (s *Store) remove(ctx context.Context, t j17.Tenant, content string) error {
	for {
		items, err := s.store.Scan(ctx, t, chunkSpace, store.Prefix(content+"/"), removeAtOnce)
		if err != nil {
			return failure(err)
		}
		sides := make([]store.Side, 0, removeAtOnce)
		for _, it := range items {
			sides = append(sides, store.Side{Op: store.Delete, Space: chunkSpace, Key: it.Key})
		}
		last := len(items) < removeAtOnce
		if last {
			sides = append(sides, store.Side{Op: store.Delete, Space: uploadSpace, Key: content})
		}
		if err := s.store.Write(ctx, t, sides); err != nil {
			return failure(err)
		}
		if last {
			return nil
		}
	}
}
