package server

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// ownFiles are the files with secrets that the server makes in a data folder; the store restricts its own files.
func ownFiles(dir string) []string {
	files, _ := filepath.Glob(filepath.Join(dir, "acme", "*")) // the pattern is a valid one
	return append(
		files, keyFileOf(dir), filepath.Join(dir, setupFile), filepath.Join(dir, credentialsFile),
		filepath.Join(dir, identityFile),
	)
}

// closeToOthers removes the read permission of other users, which a copy may have granted, from files of the data
// folder.
func closeToOthers(dir string, logger *slog.Logger) {
	const ownerOnly, others = 0o600, fs.FileMode(0o077)
	for _, name := range ownFiles(dir) {
		info, err := os.Lstat(name)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&others == 0 {
			continue // most of them need not be there
		}
		if err := os.Chmod(name, ownerOnly); err != nil {
			logger.Warn("a file of the data folder could not be closed to others", slog.Any("error", err))
		}
	}
}
