package server

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/custody/backup"
)

// keyFileOf is the file in a data folder with the key that seals what must not be readable in the store.
func keyFileOf(dir string) string { return filepath.Join(dir, "backup.key") }

// DefaultBackups is the folder for the backups of a data folder, unless another is set.
func DefaultBackups(data string) string {
	return strings.TrimRight(filepath.Clean(data), "/\\") + "-backups"
}

// backupFolder is the folder for backups.
func (o *Options) backupFolder() string { return cmp.Or(o.Backups, DefaultBackups(o.Dir)) }

// openBackups creates the backup service.
func (s *Server) openBackups(ctx context.Context) (err error) {
	o := &s.options
	folder, err := filepath.Abs(o.backupFolder())
	if err != nil {
		return err
	}
	s.backups, err = backup.New(ctx, backup.Options{
		Store: s.store, Registry: s.registry, Clock: o.Clock, Worker: s.worker, Logger: o.Logger,
		Head: s.headOf, Spaces: spaces(),
		Folder: folder, Key: s.key, Private: o.PrivateBackups, Program: o.Version,
		Free: freeSpace, ByDefault: o.backupsByDefault,
		Committed: s.committed,
	})
	return err
}

// freeSpace returns the free and total space at a folder, or, if it does not exist yet, where it will be.
func freeSpace(folder string) (free, total uint64, err error) {
	for {
		usage, err := vfs.Default.GetDiskUsage(folder)
		if parent := filepath.Dir(folder); err != nil && parent != folder {
			folder = parent
			continue
		}
		return usage.AvailBytes, usage.TotalBytes, err
	}
}

// headOf returns the size and the root of an environment's log up to a position.
func (s *Server) headOf(ctx context.Context, t j17.Tenant, upTo j17.StreamID) (size uint64, root [32]byte, err error) {
	head, err := s.logs.HeadAt(ctx, t, upTo)
	return head.Size, head.Root, err
}
