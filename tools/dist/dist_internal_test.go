package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestArchive reads an archive, whose bytes are the same for the same content.
func TestArchive(t *testing.T) {
	pack := func() []byte {
		packed, err := archive("j17_1", time.Unix(1_700_000_000, 0), []byte("the program"), map[string][]byte{
			"b": []byte("B"), "a": nil, "C": []byte("c"),
		})
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	first := pack()
	if !bytes.Equal(first, pack()) {
		t.Error("a second archive has other bytes")
	}
	zip, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil || !zip.ModTime.IsZero() || zip.Name != "" {
		t.Fatal(zip, err)
	}
	type entry struct {
		name    string
		mode    int64
		content string
	}
	var got []entry
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		content, err := io.ReadAll(r)
		if err != nil || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(time.Unix(1_700_000_000, 0)) {
			t.Fatal(h, err)
		}
		got = append(got, entry{h.Name, h.Mode, string(content)})
	}
	want := []entry{
		{"j17_1/", 0o755, ""},
		{"j17_1/C", 0o644, "c"},
		{"j17_1/a", 0o644, ""},
		{"j17_1/b", 0o644, "B"},
		{"j17_1/j17", 0o755, "the program"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); diff != "" {
		t.Error(diff)
	}
}

// TestLicences looks for the licences of a package in its folder and in those above it.
func TestLicences(t *testing.T) {
	const mit = "Permission is hereby granted, free of charge, to any\nperson obtaining a copy of this software"
	for name, c := range map[string]struct {
		files map[string]string
		kinds []string
		err   string
	}{
		"one": {map[string]string{"LICENSE": mit, "other/LICENSE": "not of this package"}, []string{"MIT"}, ""},
		"several": {map[string]string{
			"LICENCE.md": "Apache License\nVersion 2.0", "NOTICE": "by A.", "p/COPYING": mit,
			"licenses.go": "package x",
		}, []string{"MIT", "Apache-2.0"}, ""},
		"none":    {map[string]string{"README": mit}, nil, ""},
		"unknown": {map[string]string{"LICENSE": "Pay first."}, nil, "has a licence in LICENSE that this program does not know"},
	} {
		top := t.TempDir()
		for path, text := range c.files {
			if err := errors.Join(
				os.MkdirAll(filepath.Join(top, filepath.Dir(path)), 0o700),
				os.WriteFile(filepath.Join(top, path), []byte(text), 0o600),
			); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(top, "p", "q"), 0o700); err != nil {
			t.Fatal(err)
		}
		m := &module{path: "example.com/m", files: map[string][]byte{}}
		err := m.addLicences(top, filepath.Join(top, "p", "q"))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.kinds, m.licences); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestKindsOfLicences tells licences apart that begin with the same words.
func TestKindsOfLicences(t *testing.T) {
	const bsd = "Redistribution and use in source and  binary forms, with or without modification, are permitted."
	for text, want := range map[string]string{
		bsd: "BSD-2-Clause", bsd + " Neither the name of the author": "BSD-3-Clause",
		"Mozilla Public License Version 2.0": "MPL-2.0", "GNU General Public License": "",
	} {
		if got := strings.Join(kindsOf(text), " "); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestBill reads a bill of materials, which is the same for the same program.
func TestBill(t *testing.T) {
	r := &release{version: "1.2.3", revision: "abc", modified: time.Unix(1_700_000_000, 0)}
	linked := map[string]*module{
		"j17": {
			path: "j17", version: "1.2.3", licences: []string{"Apache-2.0"}, needs: []string{"example.com/a", "std"},
		},
		"example.com/a": {
			path: "example.com/a", version: "v1.0.0", sum: "h1:x", licences: []string{"BSD-3-Clause", "MIT"},
			needs: []string{"std"},
		},
		"std": {path: "std", version: "1.26.8", licences: []string{"BSD-3-Clause"}},
	}
	raw, err := r.bill("linux/amd64", [32]byte{1}, linked)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.bill("linux/amd64", [32]byte{1}, linked); err != nil || !bytes.Equal(raw, again) {
		t.Errorf("a second one is other: %v\n%s", err, again)
	}
	var got struct {
		BOMFormat, SpecVersion, SerialNumber string
		Metadata                             struct {
			Timestamp string
			Component struct {
				Hashes []struct{ Content string }
			}
		}
		Components   []struct{ PURL string }
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.BOMFormat != "CycloneDX" || got.Metadata.Timestamp != "2023-11-14T22:13:20Z" || len(got.Components) != 2 ||
		got.Components[0].PURL != "pkg:golang/example.com/a@v1.0.0" ||
		len(got.Dependencies) != 3 || len(got.Dependencies[1].DependsOn) != 2 ||
		!strings.HasPrefix(got.SerialNumber, "urn:uuid:") || len(got.Metadata.Component.Hashes) != 1 {
		t.Errorf("%s", raw)
	}
	if other, err := r.bill("linux/amd64", [32]byte{2}, linked); err != nil ||
		bytes.Contains(other, []byte(got.SerialNumber)) {
		t.Errorf("that of another program has the same number: %v", err)
	}
	if !strings.Contains(string(raw), `"expression": "BSD-3-Clause AND MIT"`) {
		t.Error("two licences are not both named")
	}
}
