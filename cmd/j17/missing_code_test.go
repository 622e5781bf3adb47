package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestMissingCode checks that whoever has not uploaded what a spec needs learns of it for every environment, with
// commands that lead there.
func TestMissingCode(t *testing.T) {
	t.Parallel()
	p, specFile := started(t, `{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{},"handler":{"wasm":"n.wasm"}}}}}}`)
	p.err.await(deployedText, 1)
	said := p.err.String()
	for env, flag := range map[string]string{
		"production": " --env prod", "staging": " --env staging", "test": " --env test",
	} {
		if !strings.Contains(said, `warning: there is no blob "n.wasm" in `+env+"\n") || !strings.Contains(said, "'j17 blobs put FILE n.wasm"+flag+"'") {
			t.Errorf("nothing is said of %s:\n%s", env, said)
		}
	}

	// An event that needs it is refused, with what helps.
	var errs strings.Builder
	code := run(t.Context(), []string{
		"events", "post", "note/global", "was_written", "{}", "--actor", "user:global", "--env", "staging", "--data",
		filepath.Join(filepath.Dir(specFile), "data"),
	},
		func(string) string { return "" }, strings.NewReader(""), io.Discard, &errs)
	if code != exitFailure || !strings.Contains(errs.String(), "\n  = hint: Upload it to this environment with 'j17 blobs put FILE n.wasm --env ENVIRONMENT';") {
		t.Errorf("exit code %d\n%s", code, errs.String())
	}
}
