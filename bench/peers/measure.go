package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const ours = "**j17**"

// round is what one measurement of one party gave.
type round struct {
	perSecond, p50, p99 float64 // milliseconds
	processor           float64 // microseconds of a write
}

// usage is what a party has taken so far.
type usage struct {
	processor time.Duration
	memory    int64 // bytes
	disk      int64 // bytes
}

// measure measures all in turns. Who comes first changes from round to round.
func (p *parties) measure(ctx context.Context, o options, stderr io.Writer) (err error) {
	for _, one := range p.list {
		if one.before, err = one.usage(ctx); err != nil {
			return err
		}
	}
	for n := range o.rounds {
		fmt.Fprintf(stderr, "round %d of %d\n", n+1, o.rounds)
		for i := range p.list {
			if err := p.list[(i+n)%len(p.list)].load(ctx, o); err != nil {
				return err
			}
		}
	}
	for _, one := range p.list {
		if one.after, err = one.usage(ctx); err != nil {
			return err
		}
	}
	if err := sleep(ctx, 10*time.Second); err != nil {
		return err
	}
	for _, one := range p.list {
		if one.settled, err = one.disk(ctx); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, long time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(long):
		return nil
	}
}

// load measures a party once. What it does in the rest after that counts as processor time of the writes.
func (p *party) load(ctx context.Context, o options) error {
	before, err := processes(p.processes)
	if err != nil {
		return err
	}
	wrk := exec.CommandContext(
		ctx, "wrk", "-t1", "-c64", "-d"+strconv.Itoa(int(o.each.Seconds()))+"s", "--timeout", "20s", "--latency", "-s",
		"bench/write.lua", "http://"+p.address,
	)
	wrk.Env = append(os.Environ(), p.env...)
	out, err := wrk.Output()
	if err != nil {
		return fmt.Errorf("%s: wrk: %w\n%s", p.name, err, out)
	}
	r, answers, wrong, err := read(string(out))
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, err, out)
	}
	if err := sleep(ctx, o.rest); err != nil {
		return err
	}
	after, err := processes(p.processes)
	if err != nil {
		return err
	}
	r.processor = float64((after.processor - before.processor).Microseconds()) / float64(answers)
	p.rounds = append(p.rounds, r)
	p.answers += answers
	p.wrong += wrong
	return nil
}

// read reads what wrk prints: the number of answers, and that of those which were no success or did not come.
func read(out string) (r round, answers, wrong int, err error) {
	number := func(pattern string) (n int) {
		found := regexp.MustCompile(pattern).FindStringSubmatch(out)
		for _, s := range found[min(1, len(found)):] {
			more, _ := strconv.Atoi(s) // the pattern has digits only
			n += more
		}
		return n
	}
	milliseconds := func(pattern string) float64 {
		found := regexp.MustCompile(pattern).FindStringSubmatch(out)
		if found == nil {
			return 0
		}
		d, _ := time.ParseDuration(found[1])
		return float64(d.Microseconds()) / 1000
	}
	if found := regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`).FindStringSubmatch(out); found != nil {
		r.perSecond, err = strconv.ParseFloat(found[1], 64)
	}
	r.p50, r.p99 = milliseconds(`(?m)^\s+50%\s+(\S+)`), milliseconds(`(?m)^\s+99%\s+(\S+)`)
	answers = number(`(\d+) requests in`)
	wrong = number(`Non-2xx or 3xx responses: (\d+)`) + number(`Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
	if r.perSecond == 0 || r.p50 == 0 || r.p99 == 0 || answers == 0 {
		return r, 0, 0, errors.New("wrk has printed something else than expected")
	}
	return r, answers, wrong, err
}

func (p *party) usage(ctx context.Context) (usage, error) {
	u, err := processes(p.processes)
	if err != nil {
		return u, err
	}
	u.disk, err = p.disk(ctx)
	return u, err
}

// processes returns what some processes and all below them have used: processor time, with that of children that have
// ended, and memory, of which they share some and of which each has its part.
func processes(roots []int) (u usage, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return u, err
	}
	children := map[int][]int{}
	ticks := map[int]int{}
	for _, name := range stats {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		text := string(raw)
		pid, _ := strconv.Atoi(text[:strings.IndexByte(text, ' ')])
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
		for _, f := range fields[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.Atoi(f)
			ticks[pid] += n
		}
	}
	todo := slices.Clone(roots)
	for len(todo) > 0 {
		pid := todo[0]
		todo = append(todo[1:], children[pid]...)
		if _, ok := ticks[pid]; !ok {
			return u, fmt.Errorf("process %d has ended", pid)
		}
		u.processor += time.Duration(ticks[pid]) * 10 * time.Millisecond
		u.memory += memory(pid)
	}
	return u, nil
}

// memory returns the part of a process in what it has in memory (Pss), in bytes; 0 when it has just ended.
func memory(pid int) int64 {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(raw), "\nPss:")
	text, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kilobytes, _ := strconv.ParseInt(text, 10, 64) // 0 when the line is missing
	return kilobytes << 10
}

// occupied returns what files take on the disk.
func occupied(paths ...string) (n int64, err error) {
	for _, path := range paths {
		err := filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed meanwhile
			}
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return nil //nolint:nilerr // removed meanwhile
			}
			if s, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
				n += s.Blocks * 512
			}
			return nil
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "unknown"
}

// print prints the tables in the form that docs/performance.md has them.
func (p *parties) print(out io.Writer) error {
	fmt.Fprintf(out, "PostgreSQL %s, Redis %s, PocketBase %s, %s, %d processors. %d rounds, in turns.\n\n",
		p.version["PostgreSQL"], p.version["Redis"], p.version["PocketBase"], runtime.Version(), runtime.NumCPU(),
		len(p.list[0].rounds))
	fmt.Fprintln(out, "| | writes a second | p50, ms | p99, ms | processor, µs a write | memory, MB, idle / after | disk, bytes an event, at once / 10 s later | writes refused or failed |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	var own *party
	for _, one := range p.list {
		if one.name == ours {
			own = one
		}
		column := func(f func(round) float64) []float64 { return each(one.rounds, f) }
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %d / %d | %s | %d of %d |\n", one.name,
			spread(column(round.rate), "%.0f"), spread(column(round.median), "%.1f"),
			spread(column(round.late), "%.1f"), spread(column(round.cost), "%.0f"),
			one.before.memory>>20, one.after.memory>>20, one.bytes(), one.wrong, one.answers)
	}
	if own == nil {
		return errors.New("j17 was not measured")
	}
	fmt.Fprintf(out, "\n| j17 to | writes a second | p99 | processor time a write |\n|---|---|---|---|\n")
	for _, one := range p.list {
		if one == own {
			continue
		}
		ratio := func(f func(round) float64) string {
			var all []float64
			for n, r := range own.rounds {
				all = append(all, f(r)/f(one.rounds[n]))
			}
			return spread(all, "%.2f")
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", one.name, ratio(round.rate), ratio(round.late), ratio(round.cost))
	}
	return nil
}

func (r round) rate() float64   { return r.perSecond }
func (r round) median() float64 { return r.p50 }
func (r round) late() float64   { return r.p99 }
func (r round) cost() float64   { return max(1, r.processor) }

// bytes is what a stored event takes on the disk, as text.
func (p *party) bytes() string {
	stored := int64(max(1, p.answers-p.wrong))
	return fmt.Sprintf("%d / %d", (p.after.disk-p.before.disk)/stored, (p.settled-p.before.disk)/stored)
}

func each(rounds []round, f func(round) float64) []float64 {
	var all []float64
	for _, r := range rounds {
		all = append(all, f(r))
	}
	return all
}

// spread is the median of some numbers, and the least and the greatest.
func spread(all []float64, format string) string {
	all = slices.Sorted(slices.Values(all))
	median := all[len(all)/2]
	if len(all)%2 == 0 {
		median = (all[len(all)/2-1] + median) / 2
	}
	return fmt.Sprintf(format+" ("+format+" to "+format+")", median, all[0], all[len(all)-1])
}
