package httpapi_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// unheldFile lists the successes that no test asks for, most of them of services that belong to a server as a whole. It is there to
// become shorter.
const unheldFile = "testdata/unheld.txt"

// succeeded has the successes that answers of tests had.
var succeeded sync.Map

// TestMain runs all tests, and looks then whether each success that the documents describe was the answer to one of them: what no test has
// asked for may be other than described, or never come.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 && held && allRun() {
		for _, complaint := range unheld() {
			code = 1
			_, _ = fmt.Fprintln(os.Stderr, complaint)
		}
	}
	os.Exit(code)
}

// allRun reports whether no flag has chosen some of the tests.
func allRun() bool {
	for _, name := range []string{"run", "skip", "list", "fuzz"} {
		if f := flag.Lookup("test." + name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}

// successOf names a status of an operation. What is administered is described once for all hosts that have it.
func successOf(method, path, status string) string {
	for _, mount := range []string{"/_admin/", "/api/instances/{instance}/ops/{environment}/", "/internal/instances/{instance}/{environment}/"} {
		if rest, found := strings.CutPrefix(path, mount); found {
			path = rest
		}
	}
	return method + " " + path + " " + status
}

// unheld tells where the successes that no answer had are not those of the list.
func unheld() (complaints []string) {
	raw, err := os.ReadFile(unheldFile)
	if err != nil {
		return []string{err.Error()}
	}
	missing, listed := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		listed[strings.TrimSuffix(line, "\n")] = true
	}
	for _, of := range []func() (*promise, error){promised.control, promised.instance, promised.headnode, promised.worker} {
		p, err := of()
		if err != nil {
			return []string{err.Error()}
		}
		for path, item := range p.document.Paths.PathItems.FromOldest() {
			for method, operation := range item.GetOperations().FromOldest() {
				for status := range operation.Responses.Codes.KeysFromOldest() {
					success := successOf(strings.ToUpper(method), path, status)
					if _, found := succeeded.Load(success); !found && strings.HasPrefix(status, "2") {
						missing[success] = true
					}
				}
			}
		}
	}
	for _, success := range slices.Sorted(maps.Keys(missing)) {
		if !listed[success] {
			complaints = append(complaints, success+": no test has this answer, so nothing holds it against the document")
		}
	}
	for _, success := range slices.Sorted(maps.Keys(listed)) {
		if !missing[success] {
			complaints = append(complaints, success+": a test has this answer, or no document describes it: remove the line from "+unheldFile)
		}
	}
	return complaints
}
