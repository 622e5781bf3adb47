package container

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	watchEvery = 100 * time.Millisecond
	// A worker without calls may use idleCPU and then one part in idleShare of the time.
	idleCPU   = 500 * time.Millisecond
	idleShare = 20
	// aheadCPU is the processor time in which a process that was started ahead gets ready.
	aheadCPU = 2 * time.Second
	// tick is the unit of processor time in /proc; Linux shows it as 1/100 s on all machines.
	tick = 10 * time.Millisecond
)

// watch watches the workers until the Runner closes: it ends those that were idle for long, those that keep working
// without a call, and, where no control group does it, those that use too much memory.
func (r *Runner) watch() {
	defer close(r.watcher)
	for r.opts.Clock.Wait(r.life, r.opts.Clock.Now().Add(watchEvery)) == nil {
		r.mu.Lock()
		workers := make([]*worker, 0, len(r.workers))
		for w := range r.workers {
			workers = append(workers, w)
		}
		r.mu.Unlock()
		now := r.opts.Clock.Now()
		for _, w := range workers {
			r.inspect(w, now)
		}
	}
}

func (r *Runner) inspect(w *worker, now time.Time) {
	since, idle := w.idleSince()
	if idle && now.Sub(since) >= r.opts.Idle {
		if w.function.take(w) {
			w.end(caller)
		}
		return
	}
	if w.process.root == 0 {
		return
	}
	all := descendants(w.process.root)
	if r.opts.Driver == Bubblewrap && r.opts.Cgroup == "" && memoryOf(all, false) > r.opts.Memory &&
		memoryOf(all, true) > r.opts.Memory {
		w.function.take(w)
		w.end(memoryWatch)
		return
	}
	cpu, allowance := cpuOf(all), idleCPU
	if w.function.once {
		allowance = aheadCPU
	}
	switch {
	case !idle:
		w.baseline = -1
	case w.baseline < 0 || !w.baselineAt.Equal(since):
		w.baseline, w.baselineAt = cpu, since
	case cpu-w.baseline > allowance+now.Sub(since)/idleShare && w.function.take(w):
		w.end(cpuWatch)
	}
}

// descendants returns a process and all that it has started.
func descendants(root int) []int {
	all := []int{root}
	for i := 0; i < len(all); i++ {
		tasks := filepath.Join("/proc", strconv.Itoa(all[i]), "task")
		threads, _ := os.ReadDir(tasks)
		for _, thread := range threads {
			children, _ := os.ReadFile(filepath.Join(tasks, thread.Name(), "children")) //nolint:gosec // below /proc
			for child := range strings.FieldsSeq(string(children)) {
				if id, err := strconv.Atoi(child); err == nil {
					all = append(all, id)
				}
			}
		}
	}
	return all
}

// memoryOf returns the private and shared memory of processes in bytes, without the files that they map. Memory that
// several of them share counts for each, unless exact is set, which takes the kernel longer.
func memoryOf(processes []int, exact bool) int64 {
	file, names := "status", []string{"RssAnon", "RssShmem"}
	if exact {
		file, names = "smaps_rollup", []string{"Pss_Anon", "Pss_Shmem"}
	}
	var total int64
	for _, pid := range processes {
		text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			if slices.Contains(names, name) {
				kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
				total += kb << 10
			}
		}
	}
	return total
}

// cpuOf returns the processor time that processes and their ended children have used.
func cpuOf(processes []int) time.Duration {
	var cpu time.Duration
	for _, pid := range processes {
		stat, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		// The name in parentheses may contain anything; utime, stime, cutime and cstime are the 12th to 15th after it.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 15 {
			continue
		}
		for _, field := range fields[11:15] {
			ticks, _ := strconv.ParseInt(field, 10, 64)
			cpu += time.Duration(ticks) * tick
		}
	}
	return cpu
}
