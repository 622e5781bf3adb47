//go:build unix

package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"j17/internal/base/clock"
)

// startS3 starts the S3 server that "make tools" has built, with a bucket "backups", and returns the socket where it
// listens.
func startS3(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("../../.tools/versitygw-*")
	if err != nil || len(found) == 0 {
		if os.Getenv("J17_ALL_TOOLS") != "" {
			t.Fatal("there is no S3 server in .tools: run \"make tools\"")
		}
		t.Skip("SKIPPED: there is no S3 server in .tools: run \"make tools\"")
	}
	dir, err := os.MkdirTemp("", "j17s3-") //nolint:usetesting // names of sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	for _, folder := range []string{"root/backups", "meta"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	program, err := filepath.Abs(found[len(found)-1])
	if err != nil {
		t.Fatal(err)
	}
	cmd := startable(t, program, "--port", socket, "--access", "the-key", "--secret", "the-secret", "--region",
		"us-east-1",
		"posix", "--sidecar", filepath.Join(dir, "meta"), filepath.Join(dir, "root"))
	out, err := said(cmd.StdoutPipe)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	// It says where it listens once it does.
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), socket) {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return socket
		}
	}
	t.Fatal("the S3 server did not start")
	return ""
}

// shaky is a network in front of a server: it passes bytes on until it has passed so many, and then breaks or stands
// still.
type shaky struct {
	url string

	mu sync.Mutex
	// left is how many bytes it passes on; once tells that it does again when it has broken.
	left        int
	stall, once bool
	conns       map[net.Conn]bool
	// reached is closed when it has passed them all, goOn when it is to go on.
	reached, goOn chan struct{}
}

// newShaky returns a network that is not shaky yet.
func newShaky(t *testing.T, socket string) *shaky {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &shaky{url: "http://" + l.Addr().String(), conns: map[net.Conn]bool{}}
	s.be(1<<40, false, false)
	t.Cleanup(func() {
		_ = l.Close()
		s.be(0, false, false)
	})
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", socket)
			if err != nil {
				_ = from.Close()
				continue
			}
			s.mu.Lock()
			s.conns[from], s.conns[to] = true, true
			s.mu.Unlock()
			go s.pass(from, to)
			go s.pass(to, from)
		}
	}()
	return s
}

// be makes the network pass so many bytes from now on. All connections are new.
func (s *shaky) be(left int, stall, once bool) (reached chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	if s.goOn != nil {
		close(s.goOn)
	}
	s.left, s.stall, s.once, s.reached, s.goOn = left, stall, once, make(chan struct{}), make(chan struct{})
	return s.reached
}

// drop closes all connections. s.mu is held.
func (s *shaky) drop() {
	for c := range s.conns {
		_ = c.Close()
	}
	clear(s.conns)
}

// pass passes on what comes from one side.
func (s *shaky) pass(from, to net.Conn) {
	defer func() {
		_, _ = from.Close(), to.Close()
		s.mu.Lock()
		delete(s.conns, from)
		delete(s.conns, to)
		s.mu.Unlock()
	}()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil || !s.may(n) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// may reports whether so many bytes are passed on, at once or never.
func (s *shaky) may(n int) bool {
	s.mu.Lock()
	s.left -= n
	if s.left >= 0 {
		s.mu.Unlock()
		return true
	}
	select {
	case <-s.reached:
	default:
		close(s.reached)
	}
	if s.once {
		s.left = 1 << 40
	}
	goOn := s.goOn
	if !s.stall {
		s.drop()
	}
	stall := s.stall
	s.mu.Unlock()
	if stall {
		<-goOn
	}
	return false
}

// noise is an event whose text cannot be compressed.
func noise(n int) string {
	raw := make([]byte, n/2)
	for i := range raw {
		raw[i] = byte(rand.Uint32())
	}
	return `{"type":"was_written","data":{"text":"` + hex.EncodeToString(raw) + `"}}`
}

// fillNotes stores events with so many bytes each.
func fillNotes(t *testing.T, p *process, events, bytes int) {
	t.Helper()
	some := make([]string, events)
	for i := range some {
		some[i] = noise(bytes)
	}
	body := `{"events":[` + strings.Join(some, ",") + `],"metadata":{"actor":{"type":"user","id":"550e8400-e29b-41d4-a716-446655440001"}}}`
	if s := requested(
		t, p, "POST", "prod", "/note/global", p.ready.Keys["prod"].Write, body, nil,
	); s != http.StatusCreated {
		t.Fatalf("a write: %d", s)
	}
}

// askBackup begins a backup of the environment prod.
func askBackup(t *testing.T, p *process, token string) string {
	t.Helper()
	var asked struct {
		Backup backupShown `json:"backup"`
	}
	if s := requested(
		t, p, "POST", "prod", "/_admin/backups", token, `{"kind":"full"}`, &asked,
	); s != http.StatusAccepted {
		t.Fatalf("a backup: %d", s)
	}
	return asked.Backup.ID
}

// endOfBackup waits until a backup has ended.
func endOfBackup(t *testing.T, p *process, token, id string) (b backupShown) {
	t.Helper()
	system := clock.System{}
	for deadline := system.Now().Add(patience); ; {
		var shown struct {
			Backup backupShown `json:"backup"`
		}
		if s := requested(t, p, "GET", "prod", "/_admin/backups/"+id, token, "", &shown); s != http.StatusOK ||
			system.Now().After(deadline) {
			t.Fatalf("the backup: %d, %+v", s, shown)
		}
		if shown.Backup.Status != "running" {
			return shown.Backup
		}
		if err := system.Wait(t.Context(), system.Now().Add(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
}

// noteServer starts a server whose notes are backed up.
func noteServer(t *testing.T, dir string, args ...string) (p *process, token string) {
	t.Helper()
	specFile := filepath.Join(dir, "spec.json")
	if err := os.WriteFile(specFile, []byte(plainSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := startDev(t, dir, append([]string{specFile, "--data", filepath.Join(dir, "data")}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return p, operatorToken(t, p)
}

// TestSettingsTryTheBucket gives a wrong key of a bucket, which is refused at once, and then the right one.
func TestSettingsTryTheBucket(t *testing.T) {
	t.Parallel()
	network := newShaky(t, startS3(t))
	dir := t.TempDir()
	p, _ := noteServer(t, dir, "--allow-private-backups")
	t.Cleanup(func() { _ = p.end(syscall.SIGTERM) })
	settings := func(secret string, args ...string) (code int, out string) {
		t.Helper()
		cmd := startable(
			t, "j17", append([]string{"backup", "settings", "--data", filepath.Join(dir, "data")}, args...)...,
		)
		cmd.Env = append(cmd.Env, "J17_S3_ACCESS_KEY=the-key", "J17_S3_SECRET_KEY="+secret)
		raw, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(raw)
	}
	to := []string{
		"--s3", "s3://backups/j17", "--s3-endpoint", network.url, "--s3-region", "us-east-1", "--every-hours", "6",
	}
	code, out := settings("wrong", to...)
	if code != exitFailure || !strings.Contains(out, "No backup can be written to the bucket, so nothing was changed: the server refuses the access key") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out = settings(""); code != exitOK || !strings.Contains(out, "the server's folder") ||
		!strings.Contains(out, "none by the clock") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out = settings("the-secret", append(to, "--json")...); code != exitOK ||
		!strings.Contains(out, `"secret_key_set":true`) || strings.Contains(out, "the-secret") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out = settings("", "--keep-last", "3"); code != exitOK ||
		!strings.Contains(out, "s3://backups/j17 at "+network.url+", with the access key the-key") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out = settings("", "--s3", "none", "--every-hours", "0"); code != exitOK ||
		!strings.Contains(out, "the server's folder") || !strings.Contains(out, "none by the clock") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestBackupsToAShakyStore makes backups to a bucket, and restores them, while the network in front of it breaks and
// stands still.
func TestBackupsToAShakyStore(t *testing.T) {
	t.Parallel()
	network := newShaky(t, startS3(t))
	dir := t.TempDir()
	p, token := noteServer(t, dir, "--allow-private-backups")
	settings := `{"s3":{"endpoint":"` + network.url + `","bucket":"backups","prefix":"j17","region":"us-east-1","access_key":"the-key","secret_key":"the-secret"}}`
	if s := requested(
		t, p, "PUT", "control", "/api/instances/"+p.ready.Instance.ID+"/backup_settings", token, settings, nil,
	); s != http.StatusOK {
		t.Fatalf("the settings: %d", s)
	}
	for range 5 {
		fillNotes(t, p, 100, 1000)
	}
	tool := func(args ...string) (code int, out string) {
		t.Helper()
		cmd := startable(t, "j17", append([]string{"backup"}, args...)...)
		cmd.Env = append(
			cmd.Env, "J17_S3_ACCESS_KEY=the-key", "J17_S3_SECRET_KEY=the-secret", "AWS_ENDPOINT_URL="+network.url,
			"AWS_REGION=us-east-1",
		)
		raw, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(raw)
	}
	const bucket = "s3://backups/j17"

	// The network goes away in the middle: the backup has failed and says so, and there is none.
	network.be(100_000, false, false)
	b := endOfBackup(t, p, token, askBackup(t, p, token))
	if b.Status != "failed" || !strings.Contains(b.Error, bucket) ||
		!strings.Contains(b.Error, "broken the connection off") {
		t.Errorf("%+v", b)
	}
	network.be(1<<40, false, false)
	if code, out := tool("list", bucket); code != exitNotFound {
		t.Errorf("exit code %d: %s", code, out)
	}

	// It breaks once: the backup does not mind.
	network.be(100_000, false, true)
	if b := endOfBackup(t, p, token, askBackup(t, p, token)); b.Status != "completed" {
		t.Errorf("%+v", b)
	}

	// It stands still: the backup can be cancelled, and the server be stopped.
	fillNotes(t, p, 300, 1000)
	reached := network.be(100_000, true, false)
	id := askBackup(t, p, token)
	<-reached
	if s := requested(t, p, "DELETE", "prod", "/_admin/backups/"+id, token, "", nil); s != http.StatusOK {
		t.Errorf("a backup that stands still cannot be cancelled: %d", s)
	}
	reached = network.be(100_000, true, false)
	id = askBackup(t, p, token)
	<-reached
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	network.be(1<<40, false, false)
	p, token = noteServer(t, dir, "--allow-private-backups")
	if b := endOfBackup(t, p, token, id); b.Status != "failed" || !strings.Contains(b.Error, "stopped") {
		t.Errorf("%+v", b)
	}

	// A restoration that is broken off leaves nothing; it can be done again.
	data := filepath.Join(dir, "restored", "data")
	if err := os.Mkdir(filepath.Dir(data), 0o700); err != nil {
		t.Fatal(err)
	}
	network.be(200_000, false, false)
	code, out := tool("restore", bucket, "--data", data)
	if code != exitFailure || !strings.Contains(out, bucket) {
		t.Errorf("exit code %d: %s", code, out)
	}
	if left, err := os.ReadDir(filepath.Dir(data)); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	network.be(1<<40, false, false)
	for _, args := range [][]string{{"restore", bucket, "--data", data}, {"verify", bucket}} {
		if code, out := tool(args...); code != exitOK {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
}

// TestTwoServersOneFolderOfBackups has two servers make backups in the same folder at the same time, and remove some.
func TestTwoServersOneFolderOfBackups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := filepath.Join(dir, "backups")
	type running struct {
		*process
		token string
		ids   []string
	}
	var servers []*running
	for _, name := range []string{"one", "two"} {
		of := filepath.Join(dir, name)
		if err := os.Mkdir(of, 0o700); err != nil {
			t.Fatal(err)
		}
		p, token := noteServer(t, of, "--backups", folder)
		servers = append(servers, &running{p, token, nil})
	}
	for range 3 {
		for _, s := range servers {
			fillNotes(t, s.process, 50, 1000)
			s.ids = append(s.ids, askBackup(t, s.process, s.token))
		}
		for _, s := range servers {
			if b := endOfBackup(t, s.process, s.token, s.ids[len(s.ids)-1]); b.Status != "completed" {
				t.Errorf("%+v", b)
			}
		}
		// The older ones go while the next are made.
		for _, s := range servers {
			if n := len(s.ids); n > 1 {
				if code := requested(
					t, s.process, "DELETE", "prod", "/_admin/backups/"+s.ids[n-2], s.token, "", nil,
				); code != http.StatusOK {
					t.Errorf("a deletion: %d", code)
				}
			}
		}
	}
	for _, s := range servers {
		if err := s.end(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := backupCommand(t, "verify", folder); code != exitOK || !strings.Contains(out, "2 backups") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestBackupsOnAFullFileSystem makes a backup to a file system on which nothing more can be stored in the middle of it.
func TestBackupsOnAFullFileSystem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	specFile, folder := filepath.Join(dir, "spec.json"), filepath.Join(dir, "backups")
	if err := errors.Join(os.WriteFile(specFile, []byte(plainSpec), 0o600), os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	p, inside := startOnVolume(
		t, dir, folder, "size=1g,nr_inodes=300", specFile, "--data", filepath.Join(dir, "data"), "--backups", folder,
	)
	token := operatorToken(t, p)
	files := func() (n int) {
		err := filepath.WalkDir(filepath.Join(inside, "parts"), func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				n++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// One backup, and one that was removed.
	var ids []string
	for range 2 {
		fillNotes(t, p, 10, 1000)
		ids = append(ids, askBackup(t, p, token))
		if b := endOfBackup(t, p, token, ids[len(ids)-1]); b.Status != "completed" {
			t.Fatalf("%+v", b)
		}
	}
	if s := requested(t, p, "DELETE", "prod", "/_admin/backups/"+ids[0], token, "", nil); s != http.StatusOK {
		t.Fatalf("a deletion: %d", s)
	}
	await(t, "the removal of parts", func() bool {
		entries, err := os.ReadDir(filepath.Join(inside, "collecting"))
		return err == nil && len(entries) == 0
	})
	before := files()

	// There is room for some more files, and no more.
	var filling []string
	var err error
	for err == nil {
		name := filepath.Join(inside, fmt.Sprintf("filling-%d", len(filling)))
		if err = os.WriteFile(name, nil, 0o600); err == nil {
			filling = append(filling, name)
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || len(filling) < 10 {
		t.Fatal(err, len(filling))
	}
	remove := func(names []string) {
		for _, name := range names {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove(filling[:6])
	for range 25 { // what is there is cut anew
		fillNotes(t, p, 100, 10_000)
	}
	b := endOfBackup(t, p, token, askBackup(t, p, token))
	if b.Status != "failed" || !strings.Contains(b.Error, "no space left") {
		t.Errorf("%+v", b)
	}

	// What it has left goes, and the next one finds room as soon as there is some.
	await(t, "the removal of what it has left", func() bool { return files() == before })
	remove(filling[6:])
	if b := endOfBackup(t, p, token, askBackup(t, p, token)); b.Status != "completed" {
		t.Errorf("%+v", b)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}
