package httpapi_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// succeeded has the successes that answers of tests had.
var succeeded sync.Map

// TestMain runs all tests, and looks then whether each success that the documents describe was the answer to one of
// them: what no test has asked for may be other than described, or never come.
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

// unheld tells of the successes that no answer had.
func unheld() (complaints []string) {
	for _, of := range []func() (*promise, error){
		promised.control, promised.instance, promised.admin, promised.headnode, promised.worker,
	} {
		p, err := of()
		if err != nil {
			return []string{err.Error()}
		}
		for path, item := range p.document.Paths.PathItems.FromOldest() {
			for method, operation := range item.GetOperations().FromOldest() {
				for status := range operation.Responses.Codes.KeysFromOldest() {
					success := successOf(strings.ToUpper(method), path, status)
					if _, found := succeeded.Load(success); !found && strings.HasPrefix(status, "2") {
						complaints = append(complaints, success+": no test has this answer, so nothing holds it against the document")
					}
				}
			}
		}
	}
	slices.Sort(complaints)
	return slices.Compact(complaints)
}
