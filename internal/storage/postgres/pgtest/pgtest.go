// Package pgtest starts servers of PostgreSQL for tests: one that all tests of a program share, and servers that belong
// to a single test, which may kill and change them.
//
// The servers are those of the PostgreSQL that is installed, version 15 or later. They listen on 127.0.0.1 only, run as
// an unprivileged user where the tests run as root, and keep their data in memory where there is room for it. When the
// test program ends, however it does, they are stopped and their data are removed.
package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// oldest is the first version of PostgreSQL that can be used.
const oldest = 15

// Available reports whether a usable PostgreSQL is installed.
func Available() bool {
	_, err := programs()
	return err == nil
}

// Skip skips a test where no usable PostgreSQL is installed. In "make check" the test fails instead.
func Skip(tb testing.TB) {
	tb.Helper()
	_, err := programs()
	if err != nil && os.Getenv("J17_ALL_TOOLS") != "" {
		tb.Fatal(err)
	}
	if err != nil {
		tb.Skip("SKIPPED:", err)
	}
}

// Programs returns the folder with the programs of the newest PostgreSQL that is installed. Without PostgreSQL the test
// is skipped; see Skip.
func Programs(tb testing.TB) string {
	tb.Helper()
	Skip(tb)
	folder, err := programs()
	if err != nil {
		tb.Fatal(err)
	}
	return folder
}

// programs returns the folder with the programs of the newest PostgreSQL: those of Debian's packages, and the one that
// PATH leads to.
var programs = sync.OnceValues(func() (string, error) {
	folders, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	if program, err := exec.LookPath("postgres"); err == nil {
		folders = append(folders, filepath.Dir(program))
	}
	folder, newest := "", oldest-1
	for _, candidate := range folders {
		out, err := exec.Command(filepath.Join(candidate, "postgres"), "--version").Output()
		var version int
		if _, scan := fmt.Sscanf(string(out), "postgres (PostgreSQL) %d", &version); err == nil && scan == nil &&
			version > newest {
			folder, newest = candidate, version
		}
	}
	if folder == "" {
		return "", errors.New("PostgreSQL 15 or later is not installed. Install it: apt-get install postgresql (Debian's name)")
	}
	return folder, nil
})
