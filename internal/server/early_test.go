package server_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/server"
)

// TestTheFirstListIsThere asks a server for a list, and for what needs one, as soon as it says that it is ready.
// Indexes of its first deployment are built before that is answered.
func TestTheFirstListIsThere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spec.json")
	if err := os.WriteFile(file, []byte(`{"agent_types": ["user"], "aggregate_types": {"item": {"events": {"was_made": {"schema": {}, "handler": []}}}},
		"projections": {"items": {"for_each": "item", "sources": {"i": "$key"}, "select": {"a": "$.i.a", "b": "$.i.b"}, "index": ["a", ["b", "a"]]},
			"others": {"for_each": "item", "sources": {"i": "$key", "all": {"type": "item", "query": "a = $.i.a"}}, "select": {"all": "$.all[*].a"}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	dev, err := server.OpenDev(t.Context(), server.DevOptions{Options: server.Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Version: "test", Clock: clock.System{},
		Logger: slog.New(slog.DiscardHandler),
	}, SpecFile: file})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- dev.Run(ctx) }()
	ask := func(env j17.Environment, key, method, path, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, dev.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		if r.Host = "app.localhost"; env != j17.Prod {
			r.Host = "app-" + string(env) + ".localhost"
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode/100 != 2 {
			t.Errorf("%s: %s %s: %s %s %v", env, method, path, resp.Status, answer, err)
		}
	}
	const id = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	for env, keys := range dev.Ready().Keys {
		ask(env, keys.Write, http.MethodPost, "/item/"+id+"/was_made", `{"data":{},"metadata":{"actor":{"type":"user","id":"`+id+`"}}}`)
		ask(env, keys.Read, http.MethodGet, "/_projections/others/"+id, "") // for which an index is asked
		ask(env, keys.Read, http.MethodGet, "/_projections/items?b=1&order=a", "")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
