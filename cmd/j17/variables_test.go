package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func serveFlagSet() *pflag.FlagSet { return serveCommand((&env{})).Flags() }

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	environ := []string{
		"J17_BASE_DOMIAN=x", "J17_BACKUP=/x", "J17_CHECK=true", "J17_PORT=8080", "J17=1", "HOME=/root",
		// These have an effect.
		"J17_BASE_DOMAIN=example.com", "J17_CONFIG=j17.json", "J17_TOKEN_FILE=token",
		// These Kubernetes sets for the services j17 and j17-headnode.
		"J17_SERVICE_HOST=10.0.0.1", "J17_SERVICE_PORT=443", "J17_SERVICE_PORT_HTTPS=443",
		"J17_PORT=tcp://10.0.0.1:443",
		"J17_PORT_443_TCP=tcp://10.0.0.1:443", "J17_PORT_443_TCP_PROTO=tcp", "J17_PORT_443_TCP_PORT=443",
		"J17_PORT_443_TCP_ADDR=10.0.0.1",
		"J17_HEADNODE_SERVICE_HOST=10.0.0.1", "J17_HEADNODE_PORT=tcp://10.0.0.1:443",
	}
	var got []string
	for _, err := range unknownVariables(environ, serveFlagSet()) {
		got = append(got, err.Error())
	}
	want := []string{
		"there is no variable J17_BACKUP; did you mean J17_BACKUPS?",
		"there is no variable J17_BASE_DOMIAN; did you mean J17_BASE_DOMAIN?",
		"there is no variable J17_CHECK",
		"there is no variable J17_PORT",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestAllVariablesAreKnown looks for names of variables wherever something may read or set one.
func TestAllVariablesAreKnown(t *testing.T) {
	t.Parallel()
	names := map[string]string{}
	name := regexp.MustCompile(`\bJ17_[A-Z][A-Z0-9_]*[A-Z0-9]\b`)
	// These have names that do not exist, on purpose.
	invented := []string{"variables_test.go", "serve.txtar", "failures.txtar"}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if base := filepath.Base(path); err == nil &&
				(base == ".git" || base == ".tools" || base == "bin" || base == "node_modules") {
				return fs.SkipDir
			}
			return err
		}
		kind := filepath.Ext(path)
		if slices.Contains(invented, filepath.Base(path)) ||
			!slices.Contains([]string{"", ".go", ".md", ".sh", ".txtar", ".yaml", ".yml", ".service", ".py"}, kind) {
			return nil
		}
		raw, err := os.ReadFile(path)
		for _, n := range name.FindAllString(string(raw), -1) {
			names[n] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var environ []string
	for n := range names {
		environ = append(environ, n+"=x")
	}
	for _, unknown := range unknownVariables(environ, serveFlagSet()) {
		t.Errorf("%v (%s)", unknown, names[name.FindString(unknown.Error())])
	}
	if len(names) < 20 {
		t.Errorf("only %d variables were found", len(names))
	}
}
