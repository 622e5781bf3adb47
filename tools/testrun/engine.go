package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Pebble checks itself wherever the race detector is on, and keeps a stack for each iterator: that is two fifths of the
// time of what uses a store there. So the race detector gets a copy of it that does neither, and the tests of the store
// run once more with these checks, without the race detector.
const (
	engineModule = "github.com/cockroachdb/pebble/v2"
	engineUser   = "j17/internal/storage/pebble"
	checksTag    = "-tags=invariants"
)

// engineChanges are the lines of the engine, by file, that are others in the copy.
func engineChanges() map[string][2]string {
	return map[string][2]string{
		"internal/invariants/on.go":  {"//go:build invariants || race\n", "//go:build invariants\n"},
		"internal/invariants/off.go": {"//go:build !invariants && !race\n", "//go:build !invariants\n"},
		"internal/invariants/invariants.go": {
			"const Enabled = buildtags.Race || buildtags.Invariants\n\n// RaceEnabled is true if we were built with the \"race\" build tag.\nconst RaceEnabled = buildtags.Race\n",
			"const Enabled = buildtags.Invariants\n\n// RaceEnabled is true if we were built with the \"race\" build tag.\nconst RaceEnabled = buildtags.Race && Enabled\n",
		},
	}
}

// unchecked returns the flag by which packages are compiled with the copy of the engine. It makes the copy in .tools,
// beside go.mod, where there is none of this version.
func unchecked(ctx context.Context) (flag string, err error) {
	mod, err := answer(ctx, "env", "GOMOD")
	if err != nil {
		return "", err
	}
	of, err := answer(ctx, "list", "-m", "-f", "{{.Version}}\t{{.Dir}}", engineModule)
	if err != nil {
		return "", err
	}
	version, from, _ := strings.Cut(of, "\t")
	tools := filepath.Join(filepath.Dir(mod), ".tools")
	name := "pebble-" + version
	if _, err := os.Stat(filepath.Join(tools, name)); errors.Is(err, fs.ErrNotExist) {
		if err := copyEngine(from, filepath.Join(tools, name)); err != nil {
			return "", err
		}
	}

	// The module file with the copy, and the checksums beside it.
	text, err := os.ReadFile(mod) //nolint:gosec // the module that is tested
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(strings.TrimSuffix(mod, ".mod") + ".sum")
	if err != nil {
		return "", err
	}
	text = append(text, "\nreplace "+engineModule+" => ./.tools/"+name+"\n"...)
	file := filepath.Join(tools, "race.mod")
	//nolint:gosec // beside that module
	err = errors.Join(os.WriteFile(file, text, 0o600), os.WriteFile(filepath.Join(tools, "race.sum"), sums, 0o600))
	if err != nil {
		return "", err
	}
	return "-modfile=" + file, nil
}

// answer returns what the go command prints.
func answer(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // arguments of this program
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// copyEngine copies the engine, but for its tests, and changes what is to be another way. Nothing is at the place where
// it fails.
func copyEngine(from, to string) (err error) {
	fresh := to + ".new"
	if err := errors.Join(os.RemoveAll(fresh), os.MkdirAll(filepath.Dir(to), 0o750)); err != nil {
		return err
	}

	// Each file that is compiled, some with their changes.
	changes := engineChanges()
	err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "testdata":
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(fresh, name), 0o750)
		case strings.HasSuffix(name, "_test.go") || !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // a file of the module cache
		if err != nil {
			return err
		}
		if change, ok := changes[filepath.ToSlash(name)]; ok {
			if bytes.Count(text, []byte(change[0])) != 1 {
				return fmt.Errorf("%s of Pebble is not as it was: change tools/testrun/engine.go", name)
			}
			text = bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
			delete(changes, filepath.ToSlash(name))
		}
		return os.WriteFile(filepath.Join(fresh, name), text, 0o600) //nolint:gosec // a name of the module cache
	})

	// All changes, or no copy.
	if err == nil && len(changes) > 0 {
		err = errors.New("some files of Pebble are not where they were: change tools/testrun/engine.go")
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	return os.Rename(fresh, to)
}
