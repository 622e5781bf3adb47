package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"j17/internal/base/clock"
)

// TestKillEndsNoErasure kills a server again and again while it erases an aggregate: the erasure goes on by itself and,
// once it says that it is completed, nothing of what was erased is in the data folder.
func TestKillEndsNoErasure(t *testing.T) {
	dir := t.TempDir()
	specFile := filepath.Join(dir, "spec.json")
	text := `{"agent_types":["user"],"aggregate_types":{"user":{"events":{"had_visit":{"schema":{"type":"object"},"handler":[{"set":{"target":"","value":"$.data"}}]}}}}}`
	if err := os.WriteFile(specFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() *process {
		t.Helper()
		p, err := startDev(t, dir, specFile, "--data", filepath.Join(dir, "data"))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
	system := clock.System{}
	for round := range rounds(1, 20) {
		p := start()
		token := operatorToken(t, p)
		word := fmt.Sprintf("Quetzalcoatl%016x", rng.Uint64())
		path := fmt.Sprintf("/user/%08x-0000-4000-8000-000000000000", round+1)
		event := `{"type":"had_visit","data":{"word":"` + word + `","fill":"` + strings.Repeat("x", 200) + `"}}`
		body := `{"events":[` + strings.TrimSuffix(strings.Repeat(event+",", 500), ",") + `],"metadata":{"actor":{"type":"user","id":"550e8400-e29b-41d4-a716-446655440001"}}}`
		for range 3 {
			if s := requested(
				t, p, "POST", "prod", path, p.ready.Keys["prod"].Write, body, nil,
			); s != http.StatusCreated {
				t.Fatalf("a write: %d", s)
			}
		}
		if !inFolder(t, dir, word) {
			t.Fatal("the word was nowhere before it was erased")
		}
		at := askErasure(t, p, token, path)

		// Kill it at some moments.
		for range 3 {
			if err := system.Wait(
				t.Context(), system.Now().Add(time.Duration(rng.IntN(100))*time.Millisecond),
			); err != nil {
				t.Fatal(err)
			}
			_ = p.end(syscall.SIGKILL) // it ends by the signal
			p = start()
			token = operatorToken(t, p)
		}
		awaitErasure(t, p, token, at)
		if inFolder(t, dir, word) {
			t.Error("erased data are in the data folder")
		}
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
}

// inFolder reports whether a file below a folder holds a word.
func inFolder(t *testing.T, dir, word string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		found = found || bytes.Contains(content, []byte(word))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// askErasure has an aggregate erased at once, and returns the path of what says how far that is.
func askErasure(t *testing.T, p *process, token, path string) string {
	t.Helper()
	var asked struct{ Tombstone struct{ ID string } }
	if s := requested(t, p, "POST", "prod", "/_admin/tombstone"+path, token, `{}`, &asked); s != http.StatusCreated {
		t.Fatalf("a tombstone: %d", s)
	}
	at := "/_admin/tombstones/" + asked.Tombstone.ID
	if s := requested(t, p, "POST", "prod", at+"/execute", token, `{"force":true}`, nil); s != http.StatusAccepted {
		t.Fatalf("its execution: %d", s)
	}
	return at
}

// awaitErasure waits until an erasure is completed.
func awaitErasure(t *testing.T, p *process, token, at string) {
	t.Helper()
	var row struct{ Tombstone struct{ Status string } }
	system := clock.System{}
	for deadline := system.Now().Add(patience); row.Tombstone.Status != "completed"; {
		if s := requested(t, p, "GET", "prod", at, token, "", &row); s != http.StatusOK ||
			system.Now().After(deadline) {
			t.Fatalf("the erasure: %d, %+v", s, row)
		}
		if err := system.Wait(t.Context(), system.Now().Add(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
}
