package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"j17/internal/base/clock"
)

const removeTries = 100

// cgroup is a folder of the cgroup v2 file system that groups can be made in.
type cgroup struct{ dir string }

func openCgroup(dir string) (*cgroup, error) {
	control := filepath.Join(dir, "cgroup.subtree_control")
	text, err := os.ReadFile(control) //nolint:gosec // below a folder that the operator names
	if err != nil {
		return nil, &Error{Message: fmt.Sprintf("The folder %s is not part of the cgroup v2 file system, or cannot be read (%v). Correct --containers-cgroup.", dir, err), Err: err}
	}
	for _, name := range []string{"memory", "pids", "cpu"} {
		if strings.Contains(" "+oneLine(string(text))+" ", " "+name+" ") {
			continue
		}
		//nolint:gosec // a control file, it exists
		if err := os.WriteFile(control, []byte("+"+name), 0o644); err != nil {
			return nil, &Error{Message: fmt.Sprintf("The control group %s does not hand on the controller %s (%v). Give the server a group of its own with memory, pids and cpu, as with Delegate=yes in its systemd unit, that has no processes itself.", dir, name, err), Err: err}
		}
	}
	probe := &cgroup{dir: dir}
	g, err := probe.create(&job{memory: 1 << 20, tasks: 1, cpus: 1})
	if err != nil {
		return nil, &Error{Message: fmt.Sprintf("The server cannot make control groups in %s (%v). Make the folder its user's, or correct --containers-cgroup.", dir, err), Err: err}
	}
	_ = removeGroup(g.dir)
	return probe, nil
}

// group is the control group of one worker. A nil group does nothing.
type group struct{ dir string }

func (c *cgroup) create(j *job) (*group, error) {
	dir, err := os.MkdirTemp(c.dir, "j17-")
	if err != nil {
		return nil, err
	}
	g := &group{dir: dir}
	const period = 100_000 // microseconds
	for _, setting := range [][2]string{
		{"memory.max", strconv.FormatInt(j.memory, 10)},
		{"memory.swap.max", "0"},
		{"memory.oom.group", "1"},
		{"pids.max", strconv.Itoa(j.tasks + 1)},
		{"cpu.max", fmt.Sprintf("%d %d", int64(j.cpus*period), period)},
	} {
		err := os.WriteFile(filepath.Join(dir, setting[0]), []byte(setting[1]), 0o644) //nolint:gosec // a control file
		if err != nil && (setting[0] != "memory.swap.max" || !errors.Is(err, os.ErrNotExist)) {
			_ = removeGroup(dir)
			return nil, err
		}
	}
	return g, nil
}

func (g *group) add(pid int) error {
	//nolint:gosec // a control file
	return os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
}

// oom reports whether the kernel has killed a process of the group for its memory.
func (g *group) oom() bool {
	if g == nil {
		return false
	}
	text, _ := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	for line := range strings.Lines(string(text)) {
		if count, found := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); found {
			return count != "0"
		}
	}
	return false
}

// remove deletes the group. The kernel may need a moment after the last process has ended.
func (g *group) remove(ctx context.Context) {
	if g == nil {
		return
	}
	var real clock.System
	for range removeTries {
		if removeGroup(g.dir) == nil || real.Wait(ctx, real.Now().Add(10*time.Millisecond)) != nil {
			return
		}
	}
}

// removeGroup deletes a control group, whose files go with it.
func removeGroup(dir string) error {
	err := os.Remove(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
