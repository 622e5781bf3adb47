package container

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Archive is an uploaded file.
type Archive struct {
	// Reader yields the file. It is read only where the file has not been unpacked before.
	Reader io.Reader
	// SHA256 is the file's digest, which is checked.
	SHA256 [sha256.Size]byte
}

// unpackLimits bounds what comes out of an archive.
type unpackLimits struct {
	packed int64 // bytes of the archive
	bytes  int64 // bytes of all its files
	files  int   // files, folders and links
}

func defaultUnpackLimits() unpackLimits {
	return unpackLimits{packed: 2 << 30, bytes: 4 << 30, files: 200_000}
}

// save writes an archive to a file in dir, and checks its size and digest.
func (a Archive) save(dir string, limit int64) (*os.File, error) {
	file, err := os.Create(filepath.Join(dir, "archive")) //nolint:gosec // in a scratch folder of ours
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, hash), io.LimitReader(a.Reader, limit+1))
	switch {
	case err != nil:
	case n > limit:
		err = refuse("The archive is larger than %d MiB.", limit>>20)
	case [sha256.Size]byte(hash.Sum(nil)) != a.SHA256:
		err = fmt.Errorf("the archive's digest is %x and not %x", hash.Sum(nil), a.SHA256)
	default:
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// tree is a folder that archives are unpacked into. Nothing is ever written outside it.
type tree struct {
	root   *os.Root
	limits unpackLimits // what is left of them
	image  bool         // links may point anywhere and whiteouts count, as in the layers of an image
	layer  map[string]bool
}

// unpackError says that an entry of an archive cannot be unpacked.
func unpackError(name, why string) *Error {
	return refuse("The archive cannot be unpacked: its entry %q %s.", name, why)
}

// entry checks the name of an entry and makes room for it. An empty name stands for the folder itself.
func (t *tree) entry(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	t.limits.files--
	if strings.ContainsRune(name, 0) || !filepath.IsLocal(strings.TrimSuffix(name, "/")) {
		return "", unpackError(name, "lies outside the archive")
	}
	clean := path.Clean(name)
	if clean == "." {
		return "", nil
	}
	if _, err := t.root.Lstat(path.Dir(clean)); errors.Is(err, fs.ErrNotExist) {
		t.limits.files -= strings.Count(clean, "/") // the folders that are made implicitly
	}
	if t.limits.files < 0 {
		return "", refuse("The archive cannot be unpacked: it has too many entries.")
	}
	if err := t.root.MkdirAll(path.Dir(clean), 0o700); err != nil {
		return "", unpackError(name, "lies below a file or below a link out of the archive ("+reason(err)+")")
	}
	return clean, nil
}

// reason returns the part of an error that names no file of this machine.
func reason(err error) string {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err.Error()
	}
	return err.Error()
}

// clear removes what an entry replaces.
func (t *tree) clear(name string, folder bool) error {
	info, err := t.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && folder && info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	return t.root.RemoveAll(name)
}

func (t *tree) folder(name string) error {
	if err := t.clear(name, true); err != nil {
		return unpackError(name, "cannot be written ("+reason(err)+")")
	}
	if err := t.root.MkdirAll(name, 0o700); err != nil {
		return unpackError(name, "cannot be written ("+reason(err)+")")
	}
	return nil
}

func (t *tree) file(name string, content io.Reader, executable bool) error {
	if err := t.clear(name, false); err != nil {
		return unpackError(name, "cannot be written ("+reason(err)+")")
	}
	mode := fs.FileMode(0o600)
	if executable {
		mode = 0o700
	}
	file, err := t.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return unpackError(name, "cannot be written ("+reason(err)+")")
	}
	n, err := io.Copy(file, io.LimitReader(content, t.limits.bytes+1))
	err = errors.Join(err, file.Close())
	t.limits.bytes -= n
	if t.limits.bytes < 0 {
		return refuse("The archive cannot be unpacked: its files are too large in total.")
	}
	if err != nil {
		return unpackError(name, "cannot be read to its end ("+reason(err)+")")
	}
	return nil
}

func (t *tree) symlink(name, target string) error {
	if !t.image && (path.IsAbs(target) ||
		!filepath.IsLocal(path.Join(path.Dir(name), target)) && path.Join(path.Dir(name), target) != ".") {
		return unpackError(name, "is a link out of the archive")
	}
	if err := t.clear(name, false); err != nil {
		return unpackError(name, "cannot be written ("+reason(err)+")")
	}
	if err := t.root.Symlink(target, name); err != nil {
		return unpackError(name, "cannot be written ("+reason(err)+")")
	}
	return nil
}

func (t *tree) hardlink(name, target string) error {
	if !filepath.IsLocal(target) {
		return unpackError(name, "is a link out of the archive")
	}
	if path.Clean(target) == name {
		return unpackError(name, "is a link to itself")
	}
	if err := t.clear(name, false); err != nil {
		return unpackError(name, "cannot be written ("+reason(err)+")")
	}
	if err := t.root.Link(path.Clean(target), name); err != nil {
		return unpackError(name, "is a link to a file that is not there or out of the archive ("+reason(err)+")")
	}
	return nil
}

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// remove carries out a whiteout, which hides a file of the layers below.
func (t *tree) remove(name string) error {
	dir, base := path.Split(name)
	if base != opaque {
		target := path.Join(dir, strings.TrimPrefix(base, whiteout))
		if base == whiteout || target == path.Clean("./"+dir) || !filepath.IsLocal(target) {
			return unpackError(name, "hides nothing")
		}
		return t.root.RemoveAll(target)
	}
	folder, err := t.root.Open(path.Clean("./" + dir))
	if err != nil {
		return unpackError(name, "cannot be read ("+reason(err)+")")
	}
	names, err := folder.Readdirnames(-1)
	if err = errors.Join(err, folder.Close()); err != nil {
		return err
	}
	for _, child := range names {
		if path := path.Join(dir, child); !t.layer[path] {
			if err := t.root.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// untar unpacks a tar file, to its end. Devices, pipes and sockets are left out.
func (t *tree) untar(ctx context.Context, r io.Reader) error {
	t.layer = map[string]bool{}
	r = io.LimitReader(r, 2*t.limits.bytes+1<<20) // what is skipped counts too
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return &Error{Message: "The archive cannot be unpacked: it is damaged (" + err.Error() + ").", Err: err}
		}
		name, err := t.entry(ctx, header.Name)
		if err != nil {
			return err
		}
		if name == "" {
			continue
		}

		// A layer can remove files of the layers below.
		if t.image && strings.HasPrefix(path.Base(name), whiteout) {
			if err := t.remove(name); err != nil {
				return err
			}
			continue
		}

		switch header.Typeflag {
		case tar.TypeDir:
			err = t.folder(name)
		case tar.TypeReg, tar.TypeGNUSparse:
			err = t.file(name, archive, header.Mode&0o111 != 0)
		case tar.TypeSymlink:
			err = t.symlink(name, header.Linkname)
		case tar.TypeLink:
			err = t.hardlink(name, header.Linkname)
		}
		if err != nil {
			return err
		}

		for at := name; at != "." && !t.layer[at]; at = path.Dir(at) {
			t.layer[at] = true
		}
	}
}

// unzip unpacks a zip file.
func (t *tree) unzip(ctx context.Context, file io.ReaderAt, size int64) error {
	archive, err := zip.NewReader(file, size)
	if err != nil {
		return &Error{Message: "The archive cannot be unpacked: it is damaged (" + err.Error() + ").", Err: err}
	}
	for _, f := range archive.File {
		name, err := t.entry(ctx, f.Name)
		if err != nil {
			return err
		}
		mode := f.Mode()
		switch {
		case name == "":
			continue
		case mode.IsDir():
			err = t.folder(name)
		case mode.IsRegular(), mode&fs.ModeSymlink != 0:
			err = t.zipped(name, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) zipped(name string, f *zip.File) error {
	content, err := f.Open()
	if err != nil {
		return unpackError(name, "cannot be read ("+err.Error()+")")
	}
	defer func() { _ = content.Close() }()
	if f.Mode()&fs.ModeSymlink == 0 {
		return t.file(name, content, f.Mode()&0o111 != 0)
	}
	const longest = 4096
	target, err := io.ReadAll(io.LimitReader(content, longest))
	if err != nil {
		return unpackError(name, "cannot be read ("+err.Error()+")")
	}
	return t.symlink(name, string(target))
}

// open gives all that was unpacked the modes that the sandbox's user needs; no other bits remain.
func (t *tree) open() error {
	return fs.WalkDir(t.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		mode := fs.FileMode(0o755)
		if !d.IsDir() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			if info.Mode()&0o100 == 0 {
				mode = 0o644
			}
		}
		return t.root.Chmod(name, mode)
	})
}

// decompress returns the content of a file that may be compressed with gzip.
func decompress(r io.ReadSeeker) (io.Reader, error) {
	var magic [4]byte
	n, err := io.ReadFull(r, magic[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic[:n], []byte{0x1F, 0x8B}):
		content, err := gzip.NewReader(r)
		if err != nil {
			return nil, &Error{Message: "The archive cannot be unpacked: it is damaged (" + err.Error() + ").", Err: err}
		}
		return content, nil
	case bytes.Equal(magic[:n], []byte{0x28, 0xB5, 0x2F, 0xFD}):
		return nil, refuse("The archive is compressed with zstd. Use gzip, for example: docker buildx build --output type=oci,compression=gzip,force-compression=true.")
	default:
		return r, nil
	}
}
