package server_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"j17"
	"j17/internal/clock"
	"j17/internal/server"
)

// TestTheFirstListIsThere asks a server for a list as soon as it says that it is ready. Indexes of its first deployment are built before that is
// answered.
func TestTheFirstListIsThere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spec.json")
	if err := os.WriteFile(file, []byte(`{"agent_types": ["user"], "aggregate_types": {"item": {"events": {"was_made": {"schema": {}, "handler": []}}}},
		"projections": {"items": {"for_each": "item", "sources": {"i": "$key"}, "select": {"a": "$.i.a", "b": "$.i.b"}, "index": ["a", ["b", "a"]]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	dev, err := server.OpenDev(t.Context(), server.DevOptions{Options: server.Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Version: "test", Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler),
	}, SpecFile: file})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- dev.Run(ctx) }()
	for env, keys := range dev.Ready().Keys {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, dev.URL()+"/_projections/items?b=1&order=a", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+keys.Read)
		if r.Host = "app.localhost"; env != j17.Prod {
			r.Host = "app-" + string(env) + ".localhost"
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s %v", env, resp.Status, body, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
