//go:build unix

package main

import (
	"fmt"
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

// backupShown is a backup as the server shows it.
type backupShown struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Error  string `json:"error"`
}

// TestKillInABackup kills a server again and again while it makes a backup: what it was at has failed then, those that
// are completed hold, and the next one is made.
func TestKillInABackup(t *testing.T) {
	dir := t.TempDir()
	specFile := filepath.Join(dir, "spec.json")
	if err := os.WriteFile(specFile, []byte(plainSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() (p *process, token string) {
		t.Helper()
		p, err := startDev(t, dir, specFile, "--data", filepath.Join(dir, "data"))
		if err != nil {
			t.Fatal(err)
		}
		return p, operatorToken(t, p)
	}
	const path = "/_admin/backups"
	create := func(p *process, token string) (b backupShown) {
		t.Helper()
		var asked struct {
			Backup backupShown `json:"backup"`
		}
		if s := requested(t, p, "POST", "prod", path, token, `{"kind":"full"}`, &asked); s != http.StatusAccepted {
			t.Fatalf("a backup: %d", s)
		}
		return asked.Backup
	}
	rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
	system := clock.System{}
	p, token := start()
	for round := range rounds(2, 50) {
		event := `{"type":"was_written","data":{"round":` + fmt.Sprint(round) + `,"fill":"` + strings.Repeat("x", 500) + `"}}`
		body := `{"events":[` + strings.TrimSuffix(strings.Repeat(event+",", 400), ",") + `],"metadata":{"actor":{"type":"user","id":"550e8400-e29b-41d4-a716-446655440001"}}}`
		if s := requested(
			t, p, "POST", "prod", "/note/global", p.ready.Keys["prod"].Write, body, nil,
		); s != http.StatusCreated {
			t.Fatalf("a write: %d", s)
		}
		create(p, token)
		if err := system.Wait(t.Context(), system.Now().Add(time.Duration(rng.IntN(60))*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_ = p.end(syscall.SIGKILL) // it ends by the signal
		p, token = start()
	}

	// The next one is made, and nothing is left that says that it is being made.
	last := create(p, token)
	var all struct {
		Backups []backupShown `json:"backups"`
	}
	for deadline := system.Now().Add(patience); ; {
		if s := requested(t, p, "GET", "prod", path, token, "", &all); s != http.StatusOK ||
			system.Now().After(deadline) {
			t.Fatalf("the backups: %d, %+v", s, all)
		}
		if all.Backups[0].ID != last.ID {
			t.Fatalf("the newest is %+v, want %s", all.Backups[0], last.ID)
		}
		if all.Backups[0].Status != "running" {
			break
		}
		if err := system.Wait(t.Context(), system.Now().Add(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	for i, b := range all.Backups {
		if b.Status != "completed" && (i == 0 || b.Status != "failed" || b.Error == "") {
			t.Errorf("after the kills there is %+v", b)
		}
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, out := backupCommand(t, "verify", filepath.Join(dir, "data-backups")); code != exitOK {
		t.Errorf("exit code %d: %s", code, out)
	}
}
