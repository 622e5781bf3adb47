package server_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"j17/internal/base/clock"
	"j17/internal/server"
)

// TestListenersOfThisMachine deploys listeners of all kinds of addresses: those that a development server does not
// reach are told.
func TestListenersOfThisMachine(t *testing.T) {
	const text = `{"agent_types": ["user"], "aggregate_types": {"note": {"events": {"was_written": {"schema": {}, "handler": []}}}}, "listeners": {
		"search": {"url": {"prod": "https://search.example.com", "test": "http://[::1]:9/hooks"}, "events": ["note.*"]},
		"bank": {"url": "http://localhost:9/hooks", "events": ["note.*"]},
		"books": {"url": "https://books.example.com/hooks", "events": ["note.*"]}
	}}`
	for _, private := range []bool{false, true} {
		dir := t.TempDir()
		file := filepath.Join(dir, "spec.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		dev, err := server.OpenDev(t.Context(), server.DevOptions{
			Options: server.Options{
				Dir: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0",
				PrivateListeners: private,
				Clock:            clock.System{}, Logger: slog.New(slog.DiscardHandler),
			},
			SpecFile: file, Deployed: func(d server.DeployAttempt) { got = d.Unreached },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		want := []string{"bank", "search"}
		if private {
			want = nil
		}
		if !slices.Equal(got, want) {
			t.Errorf("with private listeners %t: %v, not %v", private, got, want)
		}
	}
}
