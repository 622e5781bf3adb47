package repository

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"sync/atomic"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/store"
)

// ahead is how many parts are read and opened in advance.
const ahead = 2

// Reader reads the contents of a backup. A part is verified completely before any of it is returned.
type Reader struct {
	repository *Repository
	identities Identities
	manifest   Manifest
	names      []byte
	bytes      atomic.Int64
}

// File names the manifest for people.
func (x *Reader) File() string { return x.repository.String() + "/" + manifestFile(x.manifest.ID) }

// Bytes returns how much of the contents of the parts was read so far. It can be called at any time.
func (x *Reader) Bytes() int64 { return x.bytes.Load() }

// Read opens a backup, which has to be as Manifest returns it. It is an *IdentityError if it is encrypted to other
// recipients.
func (r *Repository) Read(m Manifest, identities Identities) (*Reader, error) {
	x := &Reader{repository: r, identities: identities, manifest: m}
	if !m.Encrypted() {
		return x, nil
	}
	var err error
	if x.names, err = identities.decrypt(m.SealedNames); err != nil {
		if of, ok := errors.AsType[*IdentityError](err); ok {
			of.Recipients = m.Recipients
			return nil, of
		}
		return nil, r.damaged(manifestFile(m.ID), fmt.Errorf("the key of the names cannot be decrypted: %w", err))
	}
	return x, nil
}

// Feed yields the events and notes of a tenant in their order. An entry is valid until the next step.
func (x *Reader) Feed(ctx context.Context, t *TenantManifest) iter.Seq2[*store.Archived, error] {
	return func(yield func(*store.Archived, error) bool) {
		wanted := make([]Part, len(t.Feed))
		for i := range t.Feed {
			wanted[i] = t.Feed[i].Part
		}
		i := 0
		for content, err := range x.contents(ctx, wanted) {
			if err == nil {
				err = x.segment(&t.Feed[i], content, func(e *store.Archived) bool { return yield(e, nil) })
			}
			if errors.Is(err, errEnough) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			i++
		}
	}
}

// errEnough ends a reading when the caller stops.
var errEnough = errors.New("enough")

// segment yields the entries of a segment and checks that they match the manifest.
func (x *Reader) segment(s *Segment, content []byte, yield func(*store.Archived) bool) error {
	var events uint64
	var last j17.StreamID
	err := readFeed(content, func(e *store.Archived) error {
		at := positionOf(e)
		if events == 0 && last.IsZero() && at != s.First || at.Compare(last) <= 0 || at.Compare(s.Last) > 0 {
			return fmt.Errorf("%s does not belong there", at)
		}
		last = at
		if e.Event != nil {
			events++
		}
		if !yield(e) {
			return errEnough
		}
		return nil
	})
	if err == nil && (last != s.Last || events != s.Events) {
		err = errors.New("it does not have the events that the manifest lists")
	}
	if err == nil || errors.Is(err, errEnough) {
		return err
	}
	return x.repository.damaged(partFile(s.Name), err)
}

// Items yields the side items of a tenant in the order of their spaces and keys.
func (x *Reader) Items(ctx context.Context, t *TenantManifest) iter.Seq2[store.ArchivedItem, error] {
	return linesOf(ctx, x, t.Items, parseItem)
}

// Commands yields the stored commands of a tenant.
func (x *Reader) Commands(ctx context.Context, t *TenantManifest) iter.Seq2[store.ArchivedCommand, error] {
	return linesOf(ctx, x, t.Commands, parseCommand)
}

func linesOf[T any](ctx context.Context, x *Reader, wanted []Part, parse func([]byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		i := 0
		var none T
		for content, err := range x.contents(ctx, wanted) {
			if err == nil {
				err = readLines(content, parse, func(v T) error {
					if !yield(v, nil) {
						return errEnough
					}
					return nil
				})
				if errors.Is(err, errEnough) {
					return
				}
				if err != nil {
					err = x.repository.damaged(partFile(wanted[i].Name), err)
				}
			}
			if err != nil {
				yield(none, err)
				return
			}
			i++
		}
	}
}

// opened is a part that was read, or the error of reading it.
type opened struct {
	content []byte
	err     error
}

// contents yields the contents of parts in their order. Some are read ahead, which ends with the iteration.
func (x *Reader) contents(ctx context.Context, wanted []Part) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		ctx, stop := context.WithCancel(ctx)

		// Each part is read on a goroutine of its own, some of them in advance.
		results := make(chan chan opened, ahead)
		defer func() {
			stop()
			for result := range results { // until the readers have ended
				<-result
			}
		}()
		go func() {
			defer close(results)
			for _, p := range wanted {
				result := make(chan opened, 1)
				select {
				case results <- result:
				case <-ctx.Done():
					return
				}
				go func() {
					var o opened
					o.err = panics.Caught(func() (err error) {
						o.content, err = x.Part(ctx, p)
						return err
					})
					result <- o
				}()
			}
		}()

		// The parts are yielded in their order.
		for range wanted {
			result, ok := <-results
			if !ok {
				yield(nil, ctx.Err())
				return
			}
			got := <-result
			if !yield(got.content, got.err) || got.err != nil {
				return
			}
		}
	}
}

// Part returns the content of a part. It is a *DamagedError if that is not what was stored.
func (x *Reader) Part(ctx context.Context, p Part) ([]byte, error) {
	s, name := x.repository.storage, partFile(p.Name)
	file, err := s.Get(ctx, name, maxFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errTooLarge) {
		return nil, x.repository.damaged(name, err)
	}
	if err != nil {
		return nil, describe(s, name, "read", err)
	}
	decoder, err := newDecoder()
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	content, err := x.identities.unpack(decoder, file, x.manifest.Encrypted(), p.Bytes)
	if of, ok := errors.AsType[*IdentityError](err); ok {
		// The key fits the manifest, so this is a file of another backup.
		err = errors.New("it is encrypted to somebody else (" + of.Error() + ")")
	}
	if err == nil && (int64(len(content)) != p.Bytes || nameOf(x.names, content) != p.Name) {
		err = errors.New("its content is not that which its name stands for")
	}
	if err != nil {
		return nil, x.repository.damaged(name, err)
	}
	x.bytes.Add(p.Bytes)
	return content, nil
}
