package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// standardLibrary is the name of the library that comes with Go, in the place of a module's path.
const standardLibrary = "std"

// module is a library that is linked into the program.
type module struct {
	path, version, sum string
	// needs are the paths of the modules that its packages import.
	needs []string
	// licences are the identifiers of the licences that its files are under, and files the texts by their paths in the
	// module.
	licences []string
	files    map[string][]byte
}

// imported is a package that the program is compiled from, as the Go command describes it.
type imported struct {
	ImportPath, Dir string
	Standard        bool
	Imports         []string
	Module          *struct {
		Path, Dir string
		Main      bool
	}
}

// linked lists the modules that are compiled into a program, by their paths, with the licences of the packages that
// are. It fails where a module has no licence, or one of a kind that nobody has looked at.
func (r *release) linked(ctx context.Context, goos, arch, program string) (map[string]*module, error) {
	// The modules, as the program says.
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	all := map[string]*module{
		"j17": {path: "j17", version: r.version, files: map[string][]byte{}},
		standardLibrary: {
			path: standardLibrary, version: strings.TrimPrefix(info.GoVersion, "go"), files: map[string][]byte{},
		},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			return nil, fmt.Errorf("the module %s is replaced, which a release cannot have", m.Path)
		}
		all[m.Path] = &module{path: m.Path, version: m.Version, sum: m.Sum, files: map[string][]byte{}}
	}

	// Their packages.
	out, err := r.command(ctx, goos, arch, "list", "-deps", "-json=ImportPath,Dir,Standard,Imports,Module", "./cmd/j17")
	if err != nil {
		return nil, err
	}
	root, err := r.command(ctx, goos, arch, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	owner, imports := map[string]*module{}, map[*module][]string{}
	for list := json.NewDecoder(bytes.NewReader(out)); list.More(); {
		var p imported
		if err := list.Decode(&p); err != nil {
			return nil, err
		}
		path, top := standardLibrary, strings.TrimSpace(string(root))
		if p.Module != nil {
			path, top = p.Module.Path, p.Module.Dir
		}
		m := all[path]
		if m == nil {
			return nil, fmt.Errorf("the package %s is of the module %s, which the program does not list", p.ImportPath, path)
		}
		owner[p.ImportPath] = m
		imports[m] = append(imports[m], p.Imports...)
		if err := m.addLicences(top, p.Dir); err != nil {
			return nil, err
		}
	}

	// What they need of each other.
	for m, packages := range imports {
		needs := map[string]bool{}
		for _, name := range packages {
			if of := owner[name]; of != nil && of != m {
				needs[of.path] = true
			}
		}
		m.needs = slices.Sorted(maps.Keys(needs))
		if len(m.licences) == 0 {
			return nil, fmt.Errorf("the module %s has no file with its licence", m.path)
		}
		slices.Sort(m.licences)
	}
	return all, nil
}

// addLicences adds the licences in the folder of a package and in those above it, up to the top of the module.
func (m *module) addLicences(top, folder string) error {
	named := regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice)`)
	for ; ; folder = filepath.Dir(folder) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if !entry.Type().IsRegular() || !named.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
				continue
			}
			path := filepath.Join(folder, entry.Name())
			text, err := os.ReadFile(path) //nolint:gosec // a file of the module cache
			if err != nil {
				return err
			}
			name, err := filepath.Rel(top, path)
			if err != nil {
				return err
			}
			if m.files[name] != nil {
				continue
			}
			m.files[name] = text
			found := kindsOf(string(text))
			if len(found) == 0 && !strings.HasPrefix(strings.ToLower(entry.Name()), "notice") {
				return fmt.Errorf("the module %s has a licence in %s that this program does not know. See whether j17 can be under it, and add it to kindsOf", m.path, name)
			}
			for _, kind := range found {
				if !slices.Contains(m.licences, kind) {
					m.licences = append(m.licences, kind)
				}
			}
		}
		if folder == top || len(folder) <= len(top) {
			return nil
		}
	}
}

// kindsOf lists the licences in a text by their SPDX identifiers.
func kindsOf(text string) []string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	var kinds []string
	for _, kind := range []struct{ id, has string }{
		{"Apache-2.0", "apache license"},
		{"BSD-3-Clause", "redistribution and use in source and binary forms"},
		{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose"},
		{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"},
		{"MPL-2.0", "mozilla public license"},
	} {
		if !strings.Contains(text, kind.has) {
			continue
		}
		if kind.id == "BSD-3-Clause" && !strings.Contains(text, "neither the name") {
			kind.id = "BSD-2-Clause" // without the third clause
		}
		kinds = append(kinds, kind.id)
	}
	return kinds
}

// texts returns the licences of all modules but the program's own, each with the name of its module.
func texts(linked map[string]*module) []byte {
	var b bytes.Buffer
	for _, path := range slices.Sorted(maps.Keys(linked)) {
		m := linked[path]
		if path == "j17" {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(m.files)) {
			fmt.Fprintf(
				&b, "=== %s %s: %s\n\n%s\n", m.path, m.version, filepath.ToSlash(name), bytes.TrimSpace(m.files[name]),
			)
		}
	}
	return b.Bytes()
}
