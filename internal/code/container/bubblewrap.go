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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// bubblewrap runs jobs with bwrap, in a user namespace of their own. It needs no privileges.
type bubblewrap struct {
	runner  *Runner
	program string
	cgroup  *cgroup // nil without control groups
	prlimit string
}

func (b *bubblewrap) check(ctx context.Context) error {
	var err error

	// What it needs: two programs, and a way to contain processes that multiply.
	if b.prlimit, err = exec.LookPath("prlimit"); err != nil {
		return &Error{Message: "The container driver bubblewrap needs the program prlimit. Install the package util-linux.", Err: err}
	}
	if dir := b.runner.opts.Cgroup; dir != "" {
		if b.cgroup, err = openCgroup(dir); err != nil {
			return err
		}
	} else if !atLeast(kernelRelease(), 5, 14) {
		return refuse("The container driver bubblewrap needs Linux 5.14 or newer, or a folder of the cgroup v2 file system named with --containers-cgroup, to contain processes that multiply. This is Linux %q.", kernelRelease())
	}

	// The sandbox's user must be able to reach the folder.
	if barrier, err := b.runner.barrier(); err != nil {
		return err
	} else if barrier != "" {
		return refuse("The user nobody, as whom containers run when the server is started by root, cannot pass through the folder %s to the containers' folder %s. Run the server as a user of its own (better), choose another folder, or allow it with: chmod o+x %s", barrier, b.runner.opts.Dir, barrier)
	}

	// Only a try can tell whether the kernel permits it.
	j := b.runner.hostJob([]string{"/bin/sh", "-c", "echo works"})
	var answer []byte
	log, err := b.runner.output(ctx, j, startTimeout, func(out io.Reader) (err error) {
		answer, err = io.ReadAll(io.LimitReader(out, 100))
		return err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || string(answer) != "works\n" {
		return &Error{
			Message: fmt.Sprintf("Bubblewrap cannot start a sandbox on this machine (%s). The kernel must let ordinary users make user namespaces: see the sysctl settings user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns; in a container they also have to be allowed by its seccomp profile. Otherwise choose the container driver runc, docker or podman.",
				oneLine(fmt.Sprint(err)+" "+log)),
			Err: err,
		}
	}
	return nil
}

// hostJob returns a job that runs one of the machine's programs with the limits of a worker.
func (r *Runner) hostJob(args []string) *job {
	return &job{
		args: args, env: environment(), dir: "/", memory: r.opts.Memory, tasks: r.opts.Tasks, cpus: r.opts.CPUs,
		file: scratch, scratch: scratch,
	}
}

// environment returns the variables that every container has.
func environment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "LANG=C.UTF-8"}
}

// override returns variables with those of another list put in their place or added.
func override(base []string, with ...string) []string {
	name := func(v string) string { return v[:strings.IndexByte(v, '=')+1] }
	all := slices.DeleteFunc(slices.Clone(base), func(v string) bool {
		return slices.ContainsFunc(with, func(w string) bool { return name(v) == name(w) })
	})
	return append(all, with...)
}

func (b *bubblewrap) arguments(j *job) []string {
	args := []string{
		"--unshare-all", "--unshare-user", "--uid", strconv.Itoa(nobody), "--gid", strconv.Itoa(nobody), "--hostname",
		"sandbox",
		"--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv",
	}
	if j.network {
		args = append(args, "--share-net")
	}

	// The programs: an image's, or the machine's.
	if j.root != "" {
		args = append(args, "--ro-bind", j.root, "/")
	} else {
		for _, m := range hostPrograms() {
			if m.link != "" {
				args = append(args, "--symlink", m.link, m.target)
			} else {
				args = append(args, "--ro-bind", m.source, m.target)
			}
		}
		for _, m := range b.runner.hostFiles(j.network) {
			args = append(args, "--ro-bind", m.source, m.target)
		}
	}

	// What can be written to.
	args = append(args, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev",
		"--perms", "1777", "--size", strconv.FormatInt(j.scratch, 10), "--tmpfs", "/tmp")
	if j.build > 0 {
		args = append(args, "--perms", "0755", "--size", strconv.FormatInt(j.build, 10), "--tmpfs", "/build")
	}

	// The code itself.
	for _, m := range j.mounts {
		args = append(args, "--ro-bind", m.source, m.target)
	}
	args = append(args, "--remount-ro", "/")

	// What it finds around it.
	for _, v := range j.env {
		name, value, _ := strings.Cut(v, "=")
		args = append(args, "--setenv", name, value)
	}
	return append(args, "--chdir", j.dir)
}

// hostMount is a part of the machine's file system; link is set where it is a symbolic link.
type hostMount struct{ source, target, link string }

// hostPrograms returns the folders with programs and libraries.
func hostPrograms() []hostMount {
	all := []hostMount{{source: "/usr", target: "/usr"}}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if link, err := os.Readlink(dir); err == nil {
			all = append(all, hostMount{target: dir, link: link})
		} else if _, err := os.Stat(dir); err == nil {
			all = append(all, hostMount{source: dir, target: dir})
		}
	}
	return all
}

// hostFiles returns what /etc consists of beside the machine's programs.
func (r *Runner) hostFiles(network bool) []mount {
	all := []mount{
		{filepath.Join(r.boot, "passwd"), "/etc/passwd"},
		{filepath.Join(r.boot, "group"), "/etc/group"},
		{filepath.Join(r.boot, "hosts"), "/etc/hosts"},
	}
	optional := []mount{{"/etc/ld.so.cache", "/etc/ld.so.cache"}, {"/etc/alternatives", "/etc/alternatives"}}
	if network {
		optional = append(optional, mount{filepath.Join(r.boot, "resolv.conf"), "/etc/resolv.conf"},
			mount{"/etc/nsswitch.conf", "/etc/nsswitch.conf"}, mount{"/etc/ssl/certs", "/etc/ssl/certs"},
			mount{"/etc/ca-certificates", "/etc/ca-certificates"}, mount{"/etc/pki", "/etc/pki"})
	}
	for _, m := range optional {
		if _, err := os.Stat(m.source); err == nil {
			all = append(all, m)
		}
	}
	return all
}

// prepare makes the command. bwrap builds the sandbox and then waits, so that limits can be put on the process that is
// about to become the worker: earlier, they would apply to bwrap's own work and to the other processes of this user.
func (b *bubblewrap) prepare(j *job) (*launch, error) {
	if len(j.args) == 0 {
		return nil, refuse("The image says neither by Entrypoint nor by Cmd what to run.")
	}

	// The group of the cgroup file system, if there is one.
	var group *group
	var err error
	if b.cgroup != nil {
		if group, err = b.cgroup.create(j); err != nil {
			return nil, err
		}
	}

	// Three pipes: for the filter, for the gate that the sandbox waits at, and for bubblewrap's report of it.
	pipes := make([]*os.File, 0, 6)
	closeAll := func() {
		for _, f := range pipes {
			_ = f.Close()
		}
	}
	for range 3 {
		read, write, err := os.Pipe()
		if err != nil {
			closeAll()
			group.remove(context.WithoutCancel(b.runner.life))
			return nil, err
		}
		pipes = append(pipes, read, write)
	}

	// What bubblewrap is called with, and the files that it inherits.
	filter, filterWrite, gate, gateWrite, status, statusWrite := pipes[0], pipes[1], pipes[2], pipes[3], pipes[4],
		pipes[5]
	args := append(b.arguments(j), "--block-fd", "3", "--json-status-fd", "4")
	inherited := []*os.File{gate, statusWrite}
	if program := seccompFilter(j.network); program != nil {
		if _, err := filterWrite.Write(program); err != nil { // smaller than a pipe's buffer
			closeAll()
			group.remove(context.WithoutCancel(b.runner.life))
			return nil, err
		}
		args, inherited = append(args, "--seccomp", "5"), append(inherited, filter)
	}
	_ = filterWrite.Close()

	// The command, which begins only when the gate is opened.
	args = append(append(args, "--"), j.args...)

	cmd := exec.CommandContext(b.runner.life, b.program, args...) //nolint:gosec // running programs is the purpose
	cmd.Env, cmd.Dir, cmd.ExtraFiles, cmd.SysProcAttr = []string{}, "/", inherited, attributes(true)
	var mu sync.Mutex
	var root *os.Process // refers to the process itself, not to its number
	l := &launch{cmd: cmd, clean: func() {
		closeAll()
		group.remove(context.WithoutCancel(b.runner.life))
	}}

	// Once bubblewrap has reported the process, limits are set, and the gate opens.
	l.begun = func() (int, error) {
		_, _, _ = filter.Close(), gate.Close(), statusWrite.Close()
		var begun struct {
			Child int `json:"child-pid"`
		}
		err := json.NewDecoder(status).Decode(&begun)
		if err != nil || begun.Child <= 0 {
			return 0, errors.New("bubblewrap did not start the sandbox")
		}
		p, err := os.FindProcess(begun.Child)
		if err != nil {
			return 0, err
		}
		mu.Lock()
		root = p
		mu.Unlock()
		if err := b.limit(j, begun.Child, group); err != nil {
			return 0, err
		}
		_, err = gateWrite.Write([]byte{1})
		return begun.Child, err
	}

	l.kill = func() {
		mu.Lock()
		p := root
		mu.Unlock()
		if p != nil && p.Kill() == nil {
			return // it is the first of its process namespace: all others end with it, then bwrap does
		}
		if cmd.Process != nil {
			killUnbegun(cmd.Process)
		}
	}
	l.oom = group.oom
	return l, nil
}

// killUnbegun kills a bwrap that has not yet reported the first process of its sandbox. That process waits for a word
// from bwrap and would wait forever, so it is killed first, while bwrap is stopped and can neither start nor reap any.
func killUnbegun(bwrap *os.Process) {
	_ = bwrap.Signal(syscall.SIGSTOP)
	for _, child := range descendants(bwrap.Pid)[1:] {
		if p, err := os.FindProcess(child); err == nil {
			_ = p.Kill()
		}
	}
	_ = bwrap.Kill()
}

// dataAllowance is what the runtimes need in private memory that they reserve without using it.
const dataAllowance = 64 << 20

// limit bounds the process that waits to become the worker, and so all that it starts. The count of processes is per
// user namespace, hence per worker.
func (b *bubblewrap) limit(j *job, pid int, group *group) error {
	args := []string{
		"--pid", strconv.Itoa(pid), "--core=0", "--nofile=256", "--memlock=65536", "--msgqueue=0",
		"--nproc=" + strconv.Itoa(j.tasks+1), // and bwrap's own, which collects the dead
		"--fsize=" + strconv.FormatInt(j.file, 10),
	}
	if group == nil {
		args = append(args, "--data="+strconv.FormatInt(j.memory+dataAllowance, 10))
	}
	ctx, cancel := context.WithTimeout(b.runner.life, startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.prlimit, args...) //nolint:gosec // running programs is the purpose
	cmd.Env = []string{}
	cmd.SysProcAttr = attributes(true) // as the user whose process it is
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("limit the sandbox: %w: %s", err, oneLine(string(text)))
	}
	if group != nil {
		return group.add(pid)
	}
	return nil
}

// atLeast reports whether a kernel's release is major.minor or newer.
func atLeast(release string, major, minor int) bool {
	first, rest, _ := strings.Cut(release, ".")
	second := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	a, err1 := strconv.Atoi(first)
	b, err2 := strconv.Atoi(second)
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}
