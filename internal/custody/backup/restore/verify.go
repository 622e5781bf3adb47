package restore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"j17"
	"j17/internal/custody/backup/repository"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
)

// Verifier checks that backups match their manifests, without restoring them. A part that several backups share is read
// once.
type Verifier struct {
	// leaves is a file with the leaf hashes of the segments read so far, feeds has their places by part. others are the
	// other parts read so far.
	leaves *os.File
	size   int64
	feeds  map[string]span
	others map[string]bool
}

// span is the place of bytes in a file.
type span struct {
	at     int64
	length int
}

// NewVerifier returns a verifier that keeps its temporary file in a folder.
func NewVerifier(temp string) (*Verifier, error) {
	leaves, err := os.CreateTemp(temp, "leaves-*")
	if err != nil {
		return nil, err
	}
	return &Verifier{leaves: leaves, feeds: map[string]span{}, others: map[string]bool{}}, nil
}

// Close removes the temporary file.
func (v *Verifier) Close() {
	_ = v.leaves.Close() // a temporary file
	_ = os.Remove(v.leaves.Name())
}

// Backup checks one backup: each part, and the root of each log. Damage is a *repository.DamagedError.
func (v *Verifier) Backup(ctx context.Context, x *repository.Reader, m *repository.Manifest) error {
	for i := range m.Tenants {
		t := &m.Tenants[i]
		if err := v.feed(ctx, x, t); err != nil {
			return err
		}
		if err := v.rest(ctx, x, t); err != nil {
			return err
		}
		root, err := v.root(t)
		if err != nil {
			return err
		}
		if root != t.Root {
			return &repository.DamagedError{File: x.File(), Reason: fmt.Sprintf("the %d events of %s have the root %x, and that of the log was %x", t.Size, t.Tenant, root, t.Root)}
		}
	}
	return nil
}

// feed reads the segments that were not read before.
func (v *Verifier) feed(ctx context.Context, x *repository.Reader, t *repository.TenantManifest) error {
	unread := *t
	unread.Feed = nil
	for _, s := range t.Feed {
		if _, known := v.feeds[s.Name]; !known {
			unread.Feed = append(unread.Feed, s)
		}
	}
	segments, begin := unread.Feed, v.size
	end := func() {
		v.feeds[segments[0].Name] = span{begin, int(v.size - begin)}
		segments, begin = segments[1:], v.size
	}
	for entry, err := range x.Feed(ctx, &unread) {
		if err != nil {
			return err
		}
		at := entry.Note
		if at == nil {
			leaf := entry.Event.Leaf()
			if _, err := v.leaves.WriteAt(leaf[:], v.size); err != nil {
				return err
			}
			v.size += sha256.Size
		}
		if last := segments[0].Last; at != nil && at.Position == last || at == nil && entry.Event.StreamID == last {
			end()
		}
	}
	return nil
}

// rest reads the other parts that were not read before.
func (v *Verifier) rest(ctx context.Context, x *repository.Reader, t *repository.TenantManifest) error {
	unread := *t
	unread.Items, unread.Commands = v.unread(t.Items), v.unread(t.Commands)
	for _, err := range x.Items(ctx, &unread) {
		if err != nil {
			return err
		}
	}
	for _, err := range x.Commands(ctx, &unread) {
		if err != nil {
			return err
		}
	}
	for _, p := range append(unread.Items, unread.Commands...) {
		v.others[p.Name] = true
	}
	return nil
}

func (v *Verifier) unread(all []repository.Part) (unread []repository.Part) {
	for _, p := range all {
		if !v.others[p.Name] {
			unread = append(unread, p)
		}
	}
	return unread
}

// root computes the root of a log.
func (v *Verifier) root(t *repository.TenantManifest) ([sha256.Size]byte, error) {
	var tree proof.Tree
	buffer := make([]byte, 1024*sha256.Size)
	for _, s := range t.Feed {
		where := v.feeds[s.Name]
		in := io.NewSectionReader(v.leaves, where.at, int64(where.length))
		for {
			n, err := io.ReadFull(in, buffer)
			for i := 0; i+sha256.Size <= n; i += sha256.Size {
				tree.Add([sha256.Size]byte(buffer[i:]))
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				break
			}
			if err != nil {
				return [sha256.Size]byte{}, err
			}
		}
	}
	return tree.Root(), nil
}

// Same checks that a store has the log of a backup.
func Same(ctx context.Context, feed store.Feed, x *repository.Reader, t *repository.TenantManifest) error {
	var tree proof.Tree
	for e, err := range feed.ReadFeed(ctx, t.Tenant, j17.StreamID{}, int(t.Size)+1) {
		if err != nil {
			return err
		}
		tree.Add(e.Leaf())
	}
	if root := tree.Root(); root != t.Root || tree.Size() != t.Size {
		return &repository.DamagedError{File: x.File(), Reason: fmt.Sprintf("what was restored of %s has %d events and the root %x, and the log had %d and %x", t.Tenant, tree.Size(), root, t.Size, t.Root)}
	}
	return nil
}
