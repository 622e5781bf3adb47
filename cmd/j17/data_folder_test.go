//go:build unix

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTheDataFolderIsClosed looks through all files of a data folder for secrets and headers of listeners, and at who
// may read the files, also after a copy that has opened them to others.
func TestTheDataFolderIsClosed(t *testing.T) {
	const word = "value-of-a-header"
	withListener := strings.Replace(plainSpec, "{", `{"listeners":{"sink":{"url":"https://example.invalid/","events":["*"],"headers":{"X-Token":"`+word+`"}}},`, 1)
	p, specFile := started(t, withListener)
	data := filepath.Join(filepath.Dir(specFile), "data")
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	each := func(do func(path string, content []byte, mode fs.FileMode)) {
		t.Helper()
		err := filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			content, err := os.ReadFile(path)
			do(path, content, info.Mode().Perm())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	look := func(path string, content []byte, mode fs.FileMode) {
		for _, text := range []string{"whsec_", word} {
			if bytes.Contains(content, []byte(text)) {
				t.Errorf("%s contains %s", path, text)
			}
		}
		if mode&0o077 != 0 {
			t.Errorf("%s has the mode %o", path, mode)
		}
	}
	each(look)
	each(func(path string, _ []byte, _ fs.FileMode) {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	})
	again, err := startDev(t, filepath.Dir(specFile), specFile, "--data", data)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	each(look)
}
