package postgres_test

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// smallDisk mounts a file system of some megabytes, in which a server can have tables.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "j17-disk-") //nolint:usetesting // the servers' user cannot read the test's folder
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", "mode=0777,size="+size, "tmpfs", dir).CombinedOutput()
	if err != nil {
		_ = os.Remove(dir)
		t.Skipf("SKIPPED: a file system of its own cannot be mounted for the test, which needs root with CAP_SYS_ADMIN: %s", out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
		_ = os.Remove(dir)
	})
	return dir
}

// TestDiskFull fills the disk of a server: writes fail with ErrFull, reads and calls that free space go on, and writes
// resume by themselves once there is space again.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	pgtest.Skip(t)
	disk := smallDisk(t, "64m")
	server := pgtest.Start(t)
	dir := filepath.Join(disk, "tables")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chown", "postgres", dir).CombinedOutput(); err != nil && os.Geteuid() == 0 {
		t.Fatalf("%s", out)
	}
	server.Exec(t, "CREATE TABLESPACE small LOCATION '"+dir+"'")
	server.Exec(t, "GRANT CREATE ON TABLESPACE small TO j17; ALTER ROLE j17 SET default_tablespace = small")
	s := open(t, postgres.Options{
		Address: server.Address(), AllowSingle: true, Connections: postgres.LeastConnections,
	})
	defer closeStore(t, s)
	l := newLoad(t, s)
	l.start(6, 2)
	put := store.Append{Side: []store.Side{{Op: store.Put, Space: "notes", Key: "large", Value: make([]byte, 300<<10)}}}
	if _, err := rand.Read(put.Side[0].Value); err != nil {
		t.Fatal(err)
	}
	for range rounds(2, 4) {
		if _, err := s.Append(t.Context(), "large", []store.Append{put}); err != nil {
			t.Fatal(err)
		}
		l.more(50)

		// Other files fill the disk.
		ballast := filepath.Join(disk, "ballast")
		fill(t, ballast)
		for {
			_, err := s.Append(t.Context(), "large", []store.Append{put})
			if errors.Is(err, store.ErrFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		l.await("refusals", func() bool { return l.full > 0 })
		if is := s.Status(); is.Writable || !strings.Contains(is.Reason, "space") {
			t.Errorf("the store says %+v", is)
		}

		// Reads go on, and so do calls that free space.
		l.mu.Lock()
		looked := l.looked
		l.mu.Unlock()
		l.await("reads", func() bool { return l.looked > looked+20 })
		remove := store.Append{Side: []store.Side{{Op: store.Delete, Space: "notes", Key: "large"}}}
		if _, err := s.Append(t.Context(), "large", []store.Append{remove}); err != nil {
			t.Errorf("a removal: %v", err)
		}

		// There is space again.
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		l.more(1)
		t.Logf("writes went on after %s", time.Since(begun))
		if !s.Status().Writable {
			t.Error("the store still says that it cannot be written to")
		}
		l.mu.Lock()
		l.full = 0
		l.mu.Unlock()
	}
	l.check(server)
	if _, busy, unknown := l.counts(); busy+unknown > 0 {
		t.Errorf("%d busy and %d unknown: a full disk is told as such", busy, unknown)
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}
