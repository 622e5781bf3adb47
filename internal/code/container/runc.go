package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"j17/internal/base/clock"
)

// runc runs jobs with runc, which puts them into control groups. It needs root.
type runc struct {
	runner  *Runner
	program string
}

func (d *runc) state() string { return filepath.Join(d.runner.opts.Dir, "runc") }

func (d *runc) check(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return refuse("The container driver runc needs a server that runs as root. Choose bubblewrap, which does not.")
	}
	if err := os.MkdirAll(d.state(), 0o700); err != nil {
		return err
	}
	left, err := os.ReadDir(d.state())
	if err != nil {
		return err
	}
	for _, entry := range left { // of a server that was killed
		d.remove(ctx, entry.Name())
	}
	var answer []byte
	log, err := d.runner.output(ctx, d.runner.hostJob([]string{"/bin/sh", "-c", "echo works"}), startTimeout,
		func(out io.Reader) (err error) {
			answer, err = io.ReadAll(io.LimitReader(out, 100))
			return err
		})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || string(answer) != "works\n" {
		return &Error{
			Message: fmt.Sprintf("runc cannot start a container on this machine (%s). See whether its control groups can be written to, or choose the container driver bubblewrap.",
				oneLine(fmt.Sprint(err)+" "+log)),
			Err: err,
		}
	}
	return nil
}

// remove deletes what runc knows of a container, and ends the container.
func (d *runc) remove(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	//nolint:gosec // running programs is the purpose
	_ = exec.CommandContext(ctx, d.program, "--root", d.state(), "delete", "--force", id).Run()
}

// removeGroups removes the control groups of a container that has ended. Where runc itself was killed while it started
// one, it leaves them, and no longer knows of them.
func (d *runc) removeGroups(id string) {
	own, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines("0::/\n" + string(own)) {
		// the groups of this process, below which runc makes its own
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} { // of version 2 and 1
			left, _ := filepath.Glob(filepath.Join(top, parts[2], id))
			for _, dir := range left {
				(&group{dir: dir}).remove(context.WithoutCancel(d.runner.life))
			}
		}
	}
}

func (d *runc) prepare(j *job) (*launch, error) {
	if len(j.args) == 0 {
		return nil, refuse("The image says neither by Entrypoint nor by Cmd what to run.")
	}

	// A bundle is a folder with the root and the configuration.
	bundle, done, err := d.runner.stage()
	if err != nil {
		return nil, err
	}
	id := "j17-" + filepath.Base(bundle)
	root := j.root
	if root == "" {
		root = filepath.Join(bundle, "root")
		err = makeFolder(root)
	}
	var config []byte
	if err == nil {
		config, err = json.Marshal(d.config(j, root, id))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600)
	}
	if err != nil {
		done()
		return nil, err
	}

	// The command, and what ends it.
	pidFile := filepath.Join(bundle, "pid")
	//nolint:gosec // running programs is the purpose
	cmd := exec.CommandContext(
		d.runner.life, d.program, "--root", d.state(), "run", "--bundle", bundle, "--pid-file", pidFile, id,
	)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{"PATH=" + os.DevNull}, "/", attributes(false)
	var mu sync.Mutex
	var first *os.Process

	return &launch{
		cmd: cmd,
		clean: func() {
			if _, err := os.Stat(filepath.Join(d.state(), id)); err == nil {
				d.remove(d.runner.life, id)
			}
			d.removeGroups(id)
			done()
		},
		begun: func() (int, error) {
			pid, err := d.waitFor(pidFile, cmd)
			if err != nil {
				return 0, err
			}
			p, err := os.FindProcess(pid)
			mu.Lock()
			first = p
			mu.Unlock()
			return pid, err
		},
		kill: func() {
			mu.Lock()
			p := first
			mu.Unlock()
			if p != nil && p.Kill() == nil {
				return // runc sees it and cleans up
			}
			_ = cmd.Process.Kill()
		},
	}, nil
}

// waitFor returns the id of the container's first process once runc has written it down.
func (d *runc) waitFor(pidFile string, cmd *exec.Cmd) (int, error) {
	ctx, cancel := context.WithTimeout(d.runner.life, startTimeout)
	defer cancel()
	ended := func() bool { return cmd.Process.Signal(syscall.Signal(0)) != nil }
	return written(ctx, ended, func() (int, bool) {
		text, err := os.ReadFile(pidFile) //nolint:gosec // a file that this driver has named
		if err != nil {
			return 0, false
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		return pid, err == nil
	})
}

// written reads a process id until it is there, or the process that is to write it has ended without.
func written(ctx context.Context, ended func() bool, read func() (pid int, found bool)) (int, error) {
	var real clock.System
	for {
		over := ended() // asked first: a container that does little has ended by the next look
		if pid, found := read(); found {
			return pid, nil
		}
		if over && ctx.Err() == nil {
			return 0, errors.New("runc did not start the container")
		}
		if err := real.Wait(ctx, real.Now().Add(2*time.Millisecond)); err != nil {
			return 0, fmt.Errorf("runc did not start the container: %w", err)
		}
	}
}

// config returns config.json of the OCI runtime specification.
func (d *runc) config(j *job, root, id string) map[string]any {
	type object = map[string]any
	mounts := []object{
		{"destination": "/proc", "type": "proc", "source": "proc", "options": []string{"nosuid", "noexec", "nodev"}},
		{
			"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
			"options": []string{"nosuid", "noexec", "mode=755", "size=65536"},
		},
		{
			"destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
			"options": []string{"nosuid", "nodev", "mode=1777", "size=" + strconv.FormatInt(j.scratch, 10)},
		},
	}

	if j.build > 0 {
		mounts = append(mounts, object{
			"destination": "/build", "type": "tmpfs", "source": "tmpfs",
			"options": []string{"nosuid", "nodev", "mode=1777", "size=" + strconv.FormatInt(j.build, 10)},
		})
	}

	// What it sees: the programs of the machine, if it has no image, and its code.
	bind := func(m mount) {
		mounts = append(mounts, object{
			"destination": m.target, "type": "bind", "source": m.source,
			"options": []string{"bind", "ro", "nosuid", "nodev"},
		})
	}
	if j.root == "" {
		for _, m := range hostPrograms() {
			if m.link != "" {
				m.source = m.target // the mount follows the link
			}
			bind(mount{m.source, m.target})
		}
		for _, m := range d.runner.hostFiles(j.network) {
			bind(m)
		}
	}
	for _, m := range j.mounts {
		bind(m)
	}

	// What it shares with nobody.
	namespaces := []object{{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "cgroup"}}
	if !j.network {
		namespaces = append(namespaces, object{"type": "network"})
	}
	limit := func(name string, value int64) object { return object{"type": name, "hard": value, "soft": value} }
	const period = 100_000 // microseconds

	// The specification: a process without rights, with limits.
	return object{
		"ociVersion": "1.0.2",
		"hostname":   "sandbox",
		"root":       object{"path": root, "readonly": true},
		"mounts":     mounts,
		"process": object{
			"terminal": false, "noNewPrivileges": true, "args": j.args, "env": j.env, "cwd": j.dir,
			"user": object{"uid": nobody, "gid": nobody},
			"capabilities": object{
				"bounding": []string{}, "effective": []string{}, "permitted": []string{}, "inheritable": []string{},
				"ambient": []string{},
			},
			"rlimits": []object{
				limit("RLIMIT_CORE", 0), limit("RLIMIT_NOFILE", 256), limit("RLIMIT_FSIZE", j.file),
				limit("RLIMIT_MEMLOCK", 65536),
			},
		},
		"linux": object{
			"cgroupsPath": id, // below the group of the server
			"namespaces":  namespaces,
			"maskedPaths": []string{
				"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
				"/proc/sched_debug", "/proc/scsi", "/sys/firmware",
			},
			"readonlyPaths": []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			"resources": object{
				"memory":  object{"limit": j.memory, "swap": j.memory},
				"pids":    object{"limit": j.tasks},
				"cpu":     object{"quota": int64(j.cpus * period), "period": period},
				"devices": []object{{"allow": false, "access": "rwm"}},
			},
			"seccomp": seccompRules(j.network),
		},
	}
}
