//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/backup/repository"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
)

// smallBackup makes a backup of an environment with one event, and returns the file of its side items.
func smallBackup(t *testing.T, dir string, seal repository.Seal) string {
	t.Helper()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	w, err := repository.OpenFolder(dir, clock.System{}).NewBackup(t.Context(), repository.Head{
		ID: "bak_1", Scope: repository.OfEnvironment, Kind: repository.Full, CreatedAt: now, Seal: seal,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	raw, _ := j17.AppendEvent(
		nil, j17.StreamID{Ms: now.UnixMilli()}, j17.Key{Type: "note", ID: "a"}, "was_written", []byte(`{}`),
		[]byte(`{"actor":{"type":"user","id":"u"}}`), now.Unix(),
	)
	e, err := j17.ParseEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	e.Version = 1
	var tree proof.Tree
	tree.Add(e.Leaf())
	tw := w.Tenant(repository.TenantHead{
		Tenant: "ins_1/prod", Instance: "ins_1", Name: "app", InstanceCreatedAt: now, Environment: j17.Prod,
		Position: e.StreamID, Moment: e.StreamID, Time: now.UnixMilli(), Size: 1, Root: tree.Root(),
	})
	err = errors.Join(tw.Event(&e, nil), tw.Item(store.ArchivedItem{
		Space: "blob.heads", Item: store.Item{Key: "x", Rev: 1},
	}), tw.Close())
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.Finish(now)
	if err != nil {
		t.Fatal(err)
	}
	name := m.Tenants[0].Items[0].Name
	return filepath.Join(dir, "parts", name[:2], name)
}

// backupCommand runs a command about backups and returns how it ended and what it printed.
func backupCommand(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	cmd := startable(t, "j17", append([]string{"backup"}, args...)...)
	raw, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(raw)
}

// TestKillInARestore kills a restoration that waits for a file in the middle of it: nothing is there, and the same
// command does it again.
func TestKillInARestore(t *testing.T) {
	root := t.TempDir()
	backups, data := filepath.Join(root, "backups"), filepath.Join(root, "data")
	smallBackup(t, backups, repository.Seal{})

	// It is killed as soon as there is a folder that it works in, if it does not come to its end before.
	cmd := startable(t, "j17", "backup", "restore", backups, "--data", data)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for running := true; running; runtime.Gosched() {
		entries, err := os.ReadDir(root)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			ended <- err
			running = false
		default:
			running = len(entries) == 1
		}
	}
	_ = cmd.Cancel() // it may have ended
	err := <-ended

	// There is all of it, or nothing.
	switch _, missing := os.Stat(data); {
	case missing == nil:
		if _, err := os.Stat(filepath.Join(data, "store")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
	case !errors.Is(missing, fs.ErrNotExist) || err == nil:
		t.Fatal(missing, err)
	}

	if code, out := backupCommand(t, "restore", backups, "--data", data); code != exitOK {
		t.Fatal(code, out)
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 2 {
		t.Fatal(entries, err)
	}
}

// TestBackupExitCodes has each kind of failure end with its code and name what it is about.
func TestBackupExitCodes(t *testing.T) {
	root := t.TempDir()
	plain, sealed, identity := filepath.Join(root, "plain"), filepath.Join(root, "sealed"),
		filepath.Join(root, "identity")
	code, recipient := backupCommand(t, "keygen", "-o", identity)
	if code != exitOK || !strings.HasPrefix(recipient, "age1") {
		t.Fatal(code, recipient)
	}
	if info, err := os.Stat(identity); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	seal, err := repository.NewSeal([]string{strings.TrimSpace(recipient)}, []byte("s"))
	if err != nil {
		t.Fatal(err)
	}
	part := smallBackup(t, plain, repository.Seal{})
	smallBackup(t, sealed, seal)
	manifest := filepath.Join(plain, "manifests", "bak_1")
	newer := filepath.Join(root, "newer")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(newer, "manifests"), 0o700),
		os.WriteFile(filepath.Join(newer, "manifests", "bak_9"), []byte(`{"format":9,"id":"bak_9"}`+"\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}

	check := func(want int, says string, args ...string) {
		t.Helper()
		if code, out := backupCommand(t, args...); code != want || !strings.Contains(out, says) {
			t.Errorf("j17 backup %s: exit code %d, want %d and %q:\n%s", strings.Join(args, " "), code, want, says, out)
		}
	}
	data := filepath.Join(root, "data")
	check(exitOK, `"id":"bak_1"`, "list", plain, "--json")
	check(exitOK, "encrypted", "list", sealed)
	check(exitOK, "1 backup", "verify", plain)
	check(exitOK, "1 backup", "verify", sealed, "--identity", identity)
	check(exitAuth, "--identity", "verify", sealed)
	check(exitAuth, "--identity", "restore", sealed, "--data", data)
	check(exitNotFound, "no folder", "list", filepath.Join(root, "nothing"))
	check(exitNotFound, "no backup", "restore", root, "--data", data)
	check(exitNotFound, "no backup", "list", root)
	check(exitNotFound, "no backup", "verify", root)
	check(exitNotFound, "no backup", "verify", root, "--json")
	check(exitNotFound, "bak_2", "restore", plain, "--data", data, "--backup", "bak_2")
	check(exitNotFound, "reaches up to", "restore", plain, "--data", data, "--position", "9999999999999-0")
	check(exitUsage, "--position", "restore", plain, "--data", data, "--position", "x")
	check(exitUsage, "--at", "restore", plain, "--data", data, "--at", "yesterday")
	check(exitUsage, "one of them", "restore", plain, "--data", data, "--at", "1", "--position", "9999999999999-0")
	check(exitUsage, "--data", "restore", plain)
	check(exitFailure, "is there already", "keygen", "-o", identity)
	check(exitVerifyFails, "newer version of j17", "restore", newer, "--data", data)
	check(exitVerifyFails, "newer version of j17", "list", newer)
	check(exitUsage, "J17_S3_", "list", "s3://bucket/prefix", "--s3-endpoint", "http://127.0.0.1:1")

	if err := os.Truncate(part, 10); err != nil {
		t.Fatal(err)
	}
	check(exitVerifyFails, part, "verify", plain)
	check(exitVerifyFails, part, "restore", plain, "--data", data)
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifest, bytes.Replace(text, []byte("full"), []byte("fuli"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	check(exitVerifyFails, manifest, "list", plain)
	check(exitVerifyFails, manifest, "restore", plain, "--data", data)
	if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a data folder: %v", err)
	}
}

// TestTheNewestBackupMayBeOfAnEnvironment: who wanted a server back learns that this is none, and who has named the
// backup knows it.
func TestTheNewestBackupMayBeOfAnEnvironment(t *testing.T) {
	root := t.TempDir()
	backups := filepath.Join(root, "backups")
	smallBackup(t, backups, repository.Seal{})
	for about, args := range map[string][]string{"newest": nil, "named": {"--backup", "bak_1"}} {
		code, out := backupCommand(
			t, append([]string{"restore", backups, "--data", filepath.Join(root, about)}, args...)...,
		)
		if tells := strings.Contains(out, "of this environment alone"); code != exitOK || tells != (about == "newest") {
			t.Errorf("%s: exit code %d: %s", about, code, out)
		}
	}
}

// TestBackupsOfNothingHaveNoPosition: an environment without events has the position that the API says, which is none.
func TestBackupsOfNothingHaveNoPosition(t *testing.T) {
	empty := repository.TenantManifest{
		TenantHead: repository.TenantHead{Tenant: "ins_1/test", Instance: "ins_1", Environment: j17.Test},
	}
	for _, scope := range []repository.Scope{repository.OfEnvironment, repository.OfServer} {
		b := showBackup(&repository.Manifest{ID: "bak_1", Scope: scope, Tenants: []repository.TenantManifest{empty}})
		if text, err := json.Marshal(b); err != nil || b.Position != nil || b.Positions["ins_1"][j17.Test] != nil {
			t.Errorf("%s, %v", text, err)
		}
	}
}
