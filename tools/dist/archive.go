package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"slices"
	"time"
)

// archive packs a folder with the program and other files. Its bytes depend on the arguments alone.
func archive(folder string, modified time.Time, program []byte, files map[string][]byte) ([]byte, error) {
	var b bytes.Buffer
	zip, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(zip)
	add := func(name string, mode int64, content []byte) error {
		header := &tar.Header{
			Name: folder + "/" + name, Mode: mode, Size: int64(len(content)), ModTime: modified,
			Format: tar.FormatUSTAR,
		}
		if name == "" {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}

	if err := add("", 0o755, nil); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := add(name, 0o644, files[name]); err != nil {
			return nil, err
		}
	}
	if err := add("j17", 0o755, program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
