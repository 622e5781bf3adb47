package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// memory is where the data of servers are, if roomNeeded bytes are free there, and else in the folder for temporary
// files.
const (
	memory     = "/dev/shm"
	roomNeeded = 4 << 30
	pattern    = "j17-postgres-"
)

// home is where the servers of a test program have their data.
type home struct {
	programs string
	// folder holds one folder for each server, and the template, a database cluster of which they are copies.
	folder, template string
	// as is the user that servers run as; nil means the user that runs the tests.
	as *syscall.Credential
	// passwords of the superuser and of the role with few rights.
	superuser, role string
	// lifeline is closed with the test program: what reads its other end then stops the servers.
	lifeline io.Closer
	servers  int
	shared   *Server
	err      error
}

var (
	homeMu  sync.Mutex
	theHome *home
)

// cleanup waits for the end of the test program, which closes its input, stops all servers below the folder $0, and
// removes the folder. A server that was killed leaves its postmaster.pid, and the number in it may be that of another
// process by now, which does not have the folder among its arguments. A stopped process takes the signal when it goes
// on.
const cleanup = `exec 2>/dev/null
cat >/dev/null
runs() { { cat "/proc/$1/cmdline" || ps -o args= -p "$1"; } | grep -aqF "$2"; }
for file in "$0"/*/data/postmaster.pid; do
	{ read -r pid <"$file"; } && runs "$pid" "$0" || continue
	kill -QUIT "$pid"
	kill -CONT "$pid" $(cat "/proc/$pid/task/$pid/children")
	tries=100
	while runs "$pid" "$0" && [ $((tries -= 1)) -gt 0 ]; do sleep 0.1; done
done
rm -rf "$0"`

// atHome calls do with the home of the test program, which it makes at its first call; an error of that is returned by
// all calls.
func atHome(ctx context.Context, do func(h *home) error) error {
	homeMu.Lock()
	defer homeMu.Unlock()
	if theHome == nil {
		theHome = &home{}
		theHome.err = theHome.make(ctx)
	}
	if theHome.err != nil {
		return theHome.err
	}
	return do(theHome)
}

func (h *home) make(ctx context.Context) error {
	var err error
	if h.programs, err = programs(); err != nil {
		return err
	}
	if h.as, err = User(); err != nil {
		return err
	}

	// Make the folder, and begin the process that removes it. Its process group is its own, so that a signal to that of
	// the tests does not reach it.
	var room syscall.Statfs_t
	if syscall.Statfs(memory, &room) == nil && room.Bavail*uint64(room.Bsize) >= roomNeeded {
		h.folder, err = os.MkdirTemp(memory, pattern)
	}
	if h.folder == "" {
		h.folder, err = os.MkdirTemp("", pattern)
	}
	if err != nil {
		return err
	}
	if h.as != nil {
		if err := os.Chown(h.folder, int(h.as.Uid), int(h.as.Gid)); err != nil {
			return err
		}
	}
	end := exec.Command("/bin/sh", "-c", cleanup, h.folder)
	end.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if h.lifeline, err = end.StdinPipe(); err != nil {
		return err
	}
	if err := end.Start(); err != nil {
		return err
	}

	// Initialize a database cluster as others are: with texts in the order of a language, which must not matter.
	h.superuser, h.role = rand.Text(), rand.Text()
	h.template = filepath.Join(h.folder, "template")
	secret := filepath.Join(h.folder, "password") // nobody else can look into the folder
	if err := os.WriteFile(secret, []byte(h.superuser), 0o644); err != nil {
		return err
	}
	if _, err := h.run(
		ctx, "", "initdb", "-D", h.template, "-U", superuser, "--pwfile="+secret, "-A", "scram-sha-256",
		"-E", "UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en-US", "--data-checksums", "--no-sync",
		"--no-instructions",
	); err != nil {
		return err
	}
	out, err := h.run(ctx, strings.Join([]string{
		"CREATE ROLE j17 LOGIN PASSWORD '" + h.role + "'",
		"GRANT pg_monitor, pg_checkpoint TO j17",
		"GRANT EXECUTE ON FUNCTION pg_switch_wal() TO j17",
		"CREATE DATABASE j17",
		"GRANT CREATE ON DATABASE j17 TO j17",
	}, "\n")+"\n", "postgres", "--single", "-D", h.template, "template1")
	if err == nil && (strings.Contains(out, "ERROR:") || strings.Contains(out, "FATAL:")) {
		err = errors.New(out)
	}
	return err
}

// User returns a user that servers may run as, or nil for the user that runs the tests.
func User() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")
}

// command returns one of PostgreSQL's programs, or of the system's where the name is absolute. It runs as the user of
// the servers and knows nothing of the environment of the tests.
func (h *home) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	if !filepath.IsAbs(program) {
		program = filepath.Join(h.programs, program)
	}
	c := exec.CommandContext(ctx, program, args...)
	c.Dir, c.Env = h.folder, []string{"LC_ALL=C", "PATH=/usr/bin:/bin", "HOME=" + h.folder}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: h.as, Setpgid: true}
	return c
}

// run runs a program to its end and returns what it has printed.
func (h *home) run(ctx context.Context, input, program string, args ...string) (string, error) {
	c := h.command(ctx, program, args...)
	c.Stdin = strings.NewReader(input)
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, out)
	}
	return string(out), nil
}
