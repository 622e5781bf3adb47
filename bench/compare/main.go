// Command compare measures two versions of the program against each other: `compare [-rounds 10] [-each 2s] COMMIT`.
// Both are built in the same way, run at the same time and are measured in turns, so that what else the machine does
// hits both. For each path it prints the ratio of the working tree to the commit with its 95 % interval, and the
// processor time of a request. It ends with 1 where an interval lies below the path's bar as a whole. It needs Linux,
// git and go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

const data = `"customer_id":"550e8400-e29b-41d4-a716-446655440003","currency":"EUR","lines":[{"sku":"LAMP-2","title":"Desk lamp","unit_price":39.90,"quantity":1}]`

// long is the aggregate of a thousand events that a connection has for itself. Reads of one that come at the same time
// may share the work.
const long = "00000000-0000-4000-8000-000000CLIENT"

func paths() []path {
	const metadata = `"metadata":{"actor":{"type":"customer","id":"550e8400-e29b-41d4-a716-446655440003"}`
	plain := `{"data":{` + data + `},` + metadata + `}}`
	return []path{
		{name: "write, distinct aggregates", url: "/order/UUID/was_placed", body: plain, bar: 0.97},
		{
			name: "write, one aggregate", url: "/order/global/was_placed",
			body: `{"data":{` + data + `},` + metadata + `,"skip_occ":true}}`, bar: 0.97,
		},
		{name: "write that implies three", url: "/order/UUID/was_spread", body: `{"data":{"parts":["OTHER","OTHER","OTHER"],` + data + `},` + metadata + `}}`, bar: 0.97},
		{name: "read, cached", url: "/order/ABC123XYZ", bar: 0.97},
		{name: "read, cold, 1,000 events", url: "/order/" + long + "?synchronous=true", bar: 0.97},
		{name: "read, cold, 1,000 events, all of one aggregate", url: "/order/WXY987ZTV?synchronous=true", bar: 0.97},
	}
}

// part is a benchmark of one package. Its name is a pattern for each level of the benchmark's own.
type part struct {
	name, pkg, pattern string
	bar                float64
}

// folderIn returns the folder of the package below a checkout, whose commit may have it elsewhere.
func (p part) folderIn(source string) string {
	if _, err := os.Stat(filepath.Join(source, p.pkg)); err == nil {
		return p.pkg
	}
	elsewhere, _ := filepath.Glob(filepath.Join(source, "internal", "*", filepath.Base(p.pkg)))
	if len(elsewhere) != 1 {
		return p.pkg // the build says that it is not there
	}
	return "./internal/" + filepath.Base(filepath.Dir(elsewhere[0])) + "/" + filepath.Base(p.pkg)
}

func parts() []part {
	return []part{
		{"Tick, set of a literal", "./internal/lang/tick", "^BenchmarkOperation$/^set-literal$", 0.97},
		{"Tick, increment", "./internal/lang/tick", "^BenchmarkOperation$/^increment$", 0.90},
		{"schema check of an order", "./internal/lang/schema", "^BenchmarkValidate$/^order$", 0.97},
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	rounds := flags.Int("rounds", 10, "how many times each path is measured on both")
	each := flags.Duration("each", 2*time.Second, "how long one measurement takes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *rounds < 2 {
		return errors.New("usage: compare [-rounds 10] [-each 2s] COMMIT, with two rounds at least")
	}
	dir, err := os.MkdirTemp("", "j17-compare")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	base := filepath.Join(dir, "base")
	if err := command(ctx, stderr, "", "git", "worktree", "add", "--detach", base, flags.Arg(0)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, command(ctx, stderr, "", "git", "worktree", "remove", "--force", base)) }()
	sources := [2]string{base, "."}
	slow, err := comparePrograms(ctx, dir, sources, *rounds, *each, stdout, stderr)
	if err != nil {
		return err
	}
	slowParts, err := compareParts(ctx, dir, sources, *rounds, stdout, stderr)
	if err != nil {
		return err
	}
	if n := slow + slowParts; n > 0 {
		return fmt.Errorf("%d of the paths are slower than their bar allows", n)
	}
	return nil
}

func command(ctx context.Context, stderr io.Writer, dir, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...) //nolint:gosec // commands of this program
	c.Dir, c.Stdout, c.Stderr = dir, stderr, stderr
	c.Env = append(c.Environ(), "CGO_ENABLED=0")
	return c.Run()
}

// comparePrograms measures the paths, and returns how many are below their bar.
func comparePrograms(
	ctx context.Context, dir string, sources [2]string, rounds int, each time.Duration, stdout, stderr io.Writer,
) (slow int, err error) {
	// Build and start both.
	var programs [2]*target
	for i, source := range sources {
		name := filepath.Join(dir, "j17-"+strconv.Itoa(i))
		if err := command(ctx, stderr, source, "go", "build", "-trimpath", "-o", name, "./cmd/j17"); err != nil {
			return 0, err
		}
		// Both get the spec of the base: it may not know what this tree's spec declares.
		t, stop, err := start(
			ctx, name, filepath.Join(sources[0], "bench", "spec.json"), filepath.Join(dir, "data-"+strconv.Itoa(i)),
			stderr,
		)
		if err != nil {
			return 0, err
		}
		defer stop()
		if programs[i], err = t, t.prepare(); err != nil {
			return 0, err
		}
	}

	// Measure in turns. The one that goes first changes from round to round.
	_, _ = fmt.Fprintln(stdout, "| path | ratio, 95 % interval | requests a second | processor time a request, ratio |\n|---|---|---|---|")
	for _, p := range paths() {
		var rate, processor []float64
		var last [2]measured
		for round := range rounds {
			for turn := range 2 {
				i := (round + turn) % 2
				if last[i], err = programs[i].load(p, each); err != nil {
					return slow, err
				}
			}
			rate = append(rate, last[1].perSecond/last[0].perSecond)
			processor = append(processor, float64(max(1, last[1].processor))/float64(max(1, last[0].processor)))
		}
		r, c := ratios(rate), ratios(processor)
		_, _ = fmt.Fprintf(stdout, "| %s | %.3f (%.3f to %.3f)%s | %.0f, was %.0f | %v, was %v: %.3f (%.3f to %.3f) |\n", p.name, r.mean, r.low, r.high, verdict(r, p.bar, &slow),
			last[1].perSecond, last[0].perSecond, last[1].processor.Round(time.Microsecond),
			last[0].processor.Round(time.Microsecond), c.mean, c.low, c.high)
	}
	return slow, nil
}

// verdict says whether the whole interval is below the bar, and counts it.
func verdict(r interval, bar float64, slow *int) string {
	if r.high >= bar {
		return ""
	}
	*slow++
	return fmt.Sprintf(", BELOW %.2f", bar)
}

// start runs a development server with a spec until stop is called.
func start(ctx context.Context, program, spec, folder string, stderr io.Writer) (t *target, stop func(), err error) {
	var addresses [2]string
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
		if err != nil {
			return nil, nil, err
		}
		addresses[i] = l.Addr().String()
		if err := l.Close(); err != nil {
			return nil, nil, err
		}
	}
	//nolint:gosec // built above
	c := exec.CommandContext(
		ctx, program, "dev", spec, "--data", folder, "--listen", addresses[0], "--internal-listen", addresses[1],
		"--json",
	)
	c.Stderr = stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := c.Start(); err != nil {
		return nil, nil, err
	}
	stop = func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	}
	var ready struct {
		Keys struct {
			Prod struct{ Write string }
		}
	}
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&ready); err != nil {
		stop()
		return nil, nil, fmt.Errorf("%s did not start: %w", program, err)
	}
	return &target{address: addresses[0], key: ready.Keys.Prod.Write, pid: c.Process.Pid}, stop, nil
}

// prepare writes what is read later: one aggregate of one event, and some of a thousand.
func (t *target) prepare() error {
	event := `{"type":"was_placed","data":{` + data + `}}`
	const metadata = `"metadata":{"actor":{"type":"customer","id":"global"}}}`
	type aggregate struct {
		url            string
		client, events int
	}
	all := []aggregate{{"/order/ABC123XYZ", 0, 1}, {"/order/WXY987ZTV", 0, 1000}}
	for n := range connections {
		all = append(all, aggregate{"/order/" + long, n, 1000})
	}
	for _, a := range all {
		done := false
		p := path{
			name: "preparation", url: a.url,
			body: `{"events":[` + strings.TrimSuffix(strings.Repeat(event+",", a.events), ",") + `],` + metadata,
		}
		if _, err := t.client(p, a.client, func() bool { more := !done; done = true; return more }); err != nil {
			return err
		}
	}
	return nil
}

// compareParts measures benchmarks, and returns how many are below their bar.
func compareParts(
	ctx context.Context, dir string, sources [2]string, rounds int, stdout, stderr io.Writer,
) (slow int, err error) {
	_, _ = fmt.Fprintln(stdout, "\n| part | ratio, 95 % interval | ns, was |\n|---|---|---|")
	for n, p := range parts() {
		var programs [2]string
		for i, source := range sources {
			programs[i] = filepath.Join(dir, fmt.Sprintf("part-%d-%d", n, i))
			if err := command(
				ctx, stderr, source, "go", "test", "-c", "-o", programs[i], p.folderIn(source),
			); err != nil {
				return slow, err
			}
		}
		var all []float64
		var last [2]float64
		for round := range rounds {
			for turn := range 2 {
				i := (round + turn) % 2
				if last[i], err = benchmark(
					ctx, programs[i], filepath.Join(sources[i], p.folderIn(sources[i])), p.pattern,
				); err != nil {
					return slow, err
				}
			}
			all = append(all, last[0]/last[1])
		}
		r := ratios(all)
		_, _ = fmt.Fprintf(stdout, "| %s | %.3f (%.3f to %.3f)%s | %.4g, was %.4g |\n", p.name, r.mean, r.low, r.high, verdict(r, p.bar, &slow), last[1], last[0])
	}
	return slow, nil
}

// benchmark returns the nanoseconds of one operation.
func benchmark(ctx context.Context, program, folder, pattern string) (float64, error) {
	//nolint:gosec // built above
	c := exec.CommandContext(ctx, program, "-test.run=^$", "-test.bench="+pattern, "-test.benchtime=300ms")
	c.Dir = folder
	out, err := c.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", pattern, err, out)
	}
	return nanoseconds(string(out), pattern)
}

func nanoseconds(out, pattern string) (float64, error) {
	found := regexp.MustCompile(`\s([0-9.]+) ns/op`).FindStringSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("no benchmark matches %s:\n%s", pattern, out)
	}
	return strconv.ParseFloat(found[1], 64)
}
