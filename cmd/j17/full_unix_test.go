//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"j17"
)

// startOnVolume starts a development server for which a folder is a volume of its own, mounted with options of tmpfs.
// It returns the way to the volume from outside.
func startOnVolume(t *testing.T, dir, folder, options string, args ...string) (p *process, inside string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("a file system of its own needs Linux")
	}
	if err := startable(t, "unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt").Run(); err != nil {
		t.Skip("the system lets this user mount nothing: ", err)
	}
	mount := []string{"-rm", "sh", "-c", `mount -t tmpfs -o "$1" none "$0" && shift && exec "$@"`, folder, options, "j17"}
	p, err := startDevAs(startable(t, "unshare", append(mount, devArgs(args)...)...), dir)
	if err != nil {
		t.Fatal(err)
	}
	return p, filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "root", folder)
}

// TestWorkflowsOnAFullVolume fills the volume of the data folder while orders are placed of which a listener is told,
// each with a saga and a reminder. What is refused is refused in so many words, reads go on, and when there is room
// again all that was acknowledged is carried out.
func TestWorkflowsOnAFullVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hook, specFile := tellingOrders(t, dir)
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	p, inside := startOnVolume(t, dir, data, "size=256m", specFile, "--data", data, "--allow-private-listeners")
	var acked int64
	last := ""
	place := func() bool {
		t.Helper()
		id := uuid.New().String()
		status, body := askOf(http.DefaultClient, p, http.MethodPost, "prod", "/order/"+id+"/was_placed",
			p.ready.Keys["prod"].Write,
			`{"data":{},"metadata":{"actor":{"type":"user","id":"global"},"skip_occ":true}}`)
		var refused struct {
			Code j17.Code `json:"code"`
		}
		switch err := json.Unmarshal(body, &refused); {
		case status == http.StatusCreated:
			acked, last = acked+1, id
			return true
		case err != nil || status != http.StatusServiceUnavailable ||
			refused.Code != j17.CodeStorageFull && refused.Code != j17.CodeOutcomeUnknown:
			t.Fatalf("a write to a full volume: %d %s %v", status, body, err)
		}
		return false
	}
	for range 20 {
		if !place() {
			t.Fatal("a write was refused before the volume was full")
		}
	}

	// The volume runs full, with what has been placed still to be carried out.
	f, err := os.Create(filepath.Join(inside, "filling"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, zeros{})
	if err = errors.Join(err, f.Close()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	await(t, "the refusal of a write", func() bool { return !place() })
	if s := requested(t, p, "GET", "prod", "/order/"+last, p.ready.Keys["prod"].Read, "", nil); s != http.StatusOK {
		t.Errorf("a read: %d", s)
	}

	// There is room again.
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	await(t, "a write", place)
	settleWorkflows(t, p, hook, acked)
}

// zeros is a source of zeros that has no end.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
