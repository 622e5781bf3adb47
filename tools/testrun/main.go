// Command testrun runs `go test` with the arguments it is given and tells of each package when it ends, with a running
// count; `go test` itself keeps results back until all packages before them have ended. Packages with more test code
// are begun earlier, so that in the end no long one runs alone. What failed is shown in full, and at the end the
// slowest packages, and tests that were skipped because something is not installed. It exits as `go test` does.
//
// With -race, the tests of files with the line "//go:build !race" run in a pass of their own, without the race
// detector: they compute for long in one goroutine, where it makes them many times slower and has nothing to find. A
// file with that line and without tests changes what the other tests of its package do, which all run in such a pass as
// well. What has no race detector is compiled as the program is, so that both share what they have compiled. These
// passes run one after the other, a package at a time, beside the one under the race detector, so that the processors
// have work while a test waits for its disk or its last goroutine.
//
// With -race, packages are compiled with a copy of Pebble, the engine of the store, that does not check itself; see
// unchecked.
//
// A package whose tests were cut short because the race detector itself has crashed runs a second time, and that
// counts; see ownCrash.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"j17/internal/base/clock"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code of `go test`, or 1 where it did not run at all.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !isFlag(arg) })
	//nolint:gosec // the packages that make names
	list := exec.CommandContext(ctx, "go", slices.Concat([]string{"list", "-f", listFormat},
		slices.DeleteFunc(slices.Clone(flags), func(flag string) bool { return flag != raceFlag }),
		slices.DeleteFunc(slices.Clone(args), isFlag))...)
	list.Stderr = stderr
	found, err := list.Output()
	if err != nil {
		return exitCode(err, stderr)
	}
	all := inOrder(string(found), sizeOf)

	// Under the race detector the engine of the store does not check itself.
	last := flags
	if slices.Contains(flags, raceFlag) {
		if flag, err := unchecked(ctx); err == nil {
			last = append(slices.Clone(flags), flag)
		} else {
			_, _ = fmt.Fprintln(stderr, "testrun: what uses a store takes longer, since the race detector makes Pebble check itself:", err)
		}
	}
	race := func(packages []string) *exec.Cmd { return goTest(ctx, last, packages) }

	var plainly []*exec.Cmd
	names, alone, whole := withoutRaceDetector(string(found), os.ReadFile)
	plain := slices.Concat(
		[]string{"-trimpath"},
		slices.DeleteFunc(slices.Clone(flags), func(flag string) bool { return flag == raceFlag }),
	)
	// Later flags count, so a -run of the caller is stronger.
	some := slices.Insert(slices.Clone(plain), 0, "-run=^("+strings.Join(names, "|")+")$")
	var checked []string
	if len(last) > len(flags) && slices.Contains(all, engineUser) {
		checked = []string{engineUser}
		alone = slices.DeleteFunc(alone, func(name string) bool { return name == engineUser }) // all of its tests run
	}
	for _, pass := range []struct{ flags, packages []string }{
		{some, alone}, {plain, whole}, {append([]string{checksTag}, plain...), checked},
	} {
		if len(pass.packages) > 0 {
			without := goTest(ctx, slices.Insert(pass.flags, 0, "-p=1"), pass.packages)
			without.Env = append(os.Environ(), "CGO_ENABLED=0")
			plainly = append(plainly, without)
		}
	}

	// What has failed only because the race detector has crashed runs a second time, and that counts.
	r := newReport(stdout, len(alone)+len(whole)+len(checked)+len(all))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go r.count(ctx, clock.System{})
	errs := r.follow(stderr, plainly, []*exec.Cmd{race(all)})
	if len(r.again) > 0 {
		again := race(r.again)
		if len(r.failed) == 0 { // code 1 is of tests that have failed
			errs = slices.DeleteFunc(errs, func(err error) bool { return exitCode(err, io.Discard) == 1 })
		}
		r.again, r.second = nil, true
		errs = append(errs, r.follow(stderr, []*exec.Cmd{again})...)
	}
	r.end()
	code := 0
	for _, err := range errs {
		code = cmp.Or(code, exitCode(err, stderr))
	}
	return code
}

// raceFlag turns the race detector on.
const raceFlag = "-race"

// listFormat makes lines with the name of a package, its folder, the names of its test files, and after an empty field
// those of files that are not built, with tabs between them.
const listFormat = `{{.ImportPath}}{{"\t"}}{{.Dir}}{{range .TestGoFiles}}{{"\t"}}{{.}}{{end}}{{range .XTestGoFiles}}{{"\t"}}{{.}}{{end}}{{"\t"}}{{range .IgnoredGoFiles}}{{"\t"}}{{.}}{{end}}`

func goTest(ctx context.Context, flags, packages []string) *exec.Cmd {
	//nolint:gosec // the arguments that make gives
	return exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json"}, flags, packages)...)
}

// isFlag tells flags and their values from names of packages.
func isFlag(arg string) bool { return !strings.HasPrefix(arg, ".") && !strings.HasPrefix(arg, "j17") }

// listed returns the name of a package, its test files and the files that are not built, of a line of the list.
func listed(line string) (name string, tests, not []string) {
	fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
	name, folder, files := fields[0], fields[1], fields[2:]
	for i, file := range files {
		files[i] = filepath.Join(folder, file)
	}
	end := slices.Index(files, folder)
	return name, files[:end], files[end+1:]
}

// inOrder returns the packages of a list, those with more test code first.
func inOrder(list string, size func(path string) int64) []string {
	sizes := map[string]int64{}
	for line := range strings.Lines(list) {
		name, tests, _ := listed(line)
		sizes[name] = 0
		for _, file := range tests {
			sizes[name] += size(file)
		}
	}
	return slices.SortedFunc(
		maps.Keys(sizes), func(a, b string) int { return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b)) },
	)
}

// withoutRaceDetector returns the tests of files that are built without the race detector only, and their packages; but
// for packages of which all tests run without it, because such a file has none. A file that cannot be read is for `go
// test` to tell of.
func withoutRaceDetector(list string, read func(path string) ([]byte, error)) (tests, packages, whole []string) {
	test := regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz)\w*)\(`)
	for line := range strings.Lines(list) {
		name, _, not := listed(line)
		for _, file := range not {
			text, err := read(file)
			if err != nil || !strings.HasSuffix(file, "_test.go") ||
				!strings.HasPrefix(string(text), "//go:build !race\n") {
				continue
			}
			found := test.FindAllStringSubmatch(string(text), -1)
			if found == nil {
				whole = append(whole, name)
			}
			for _, m := range found {
				tests = append(tests, m[1])
			}
			packages = append(packages, name)
		}
	}
	slices.Sort(tests)
	packages = slices.DeleteFunc(packages, func(name string) bool { return slices.Contains(whole, name) })
	return slices.Compact(tests), slices.Compact(packages), slices.Compact(whole)
}

// sizeOf returns how many bytes a file has; one that cannot be read is for `go test` to tell of.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exit.ExitCode()
	}
	_, _ = fmt.Fprintln(stderr, "testrun:", err)
	return 1
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
	queue                                     int // of passes, which the line comes from
}

// report turns events into lines.
type report struct {
	out        io.Writer
	ended, all int
	failed     []string
	// again are packages to be run a second time; second is set when they are.
	again   []string
	second  bool
	outputs map[tested]*output
	times   []timing
	// skipped are the tests that tell why they did not run: reasons, packages and names.
	skipped map[string]map[string]map[string]bool
	// minutes asks for a line about what is under way; quiet is how many came since a package ended.
	minutes chan struct{}
	quiet   int
}

// tested is a package, or what is built for it, in a queue of passes.
type tested struct {
	queue int
	pkg   string
}

type timing struct {
	pkg     string
	seconds float64
}

// output is what a package has printed: its own lines, and those of each test that has not passed yet.
type output struct {
	// started is set once tests of the package run.
	started bool
	own     strings.Builder
	tests   map[string]*strings.Builder
	order   []string
}

func newReport(out io.Writer, all int) *report {
	return &report{
		out: out, all: all, outputs: map[tested]*output{}, skipped: map[string]map[string]map[string]bool{},
		minutes: make(chan struct{}),
	}
}

// follow runs queues of `go test` side by side, those of a queue one after the other, and reports their packages. It
// returns how they have ended.
func (r *report) follow(stderr io.Writer, queues ...[]*exec.Cmd) []error {
	lines, ended := make(chan line), make(chan error)
	for n, queue := range queues {
		go func() {
			for _, test := range queue {
				test.Stderr = stderr
				ended <- follow(test, n, lines)
			}
		}()
	}
	var errs []error
	for len(errs) < len(slices.Concat(queues...)) {
		select {
		case l := <-lines:
			r.line(l)
		case <-r.minutes:
			r.minute()
		case err := <-ended:
			errs = append(errs, err)
		}
	}
	return errs
}

// line is what one of a queue of passes has printed.
type line struct {
	queue int
	text  []byte
}

// follow runs `go test` and passes on what it prints, line by line.
func follow(test *exec.Cmd, queue int, lines chan<- line) error {
	events, err := test.StdoutPipe()
	if err != nil {
		return err
	}
	if err := test.Start(); err != nil {
		return err
	}
	in := bufio.NewReader(events)
	for {
		text, err := in.ReadBytes('\n')
		if len(text) > 0 {
			lines <- line{queue, text}
		}
		if err != nil {
			return test.Wait()
		}
	}
}

// line takes a line. One that is no event is shown as it is.
func (r *report) line(l line) {
	e := event{queue: l.queue}
	if json.Unmarshal(l.text, &e) == nil && e.Action != "" {
		r.event(e)
	} else {
		_, _ = fmt.Fprintf(r.out, "%s", l.text)
	}
}

// count asks each minute for a line about what is under way, until ctx ends.
func (r *report) count(ctx context.Context, c clock.Clock) {
	for c.Wait(ctx, c.Now().Add(time.Minute)) == nil {
		select {
		case r.minutes <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

// minute says what is under way where no package has ended for a minute.
func (r *report) minute() {
	if r.quiet++; r.quiet == 1 {
		return // less than a whole minute, or a package ended in it
	}
	var running []string
	for of, o := range r.outputs {
		if o.started {
			running = append(running, of.pkg)
		}
	}
	slices.Sort(running)
	running = slices.Compact(running)
	what := "compiling"
	if len(running) > 0 {
		what = "running " + strings.Join(running, ", ")
	}
	_, _ = fmt.Fprintf(r.out, "[%*d/%d] still %s\n", len(fmt.Sprint(r.all)), r.ended, r.all, what)
}

func (r *report) event(e event) {
	pkg := e.Package
	if pkg == "" {
		pkg, _, _ = strings.Cut(e.ImportPath, " ") // "j17/x [j17/x.test]" is built for j17/x
	}
	of := tested{e.queue, pkg}
	o := r.outputs[of]
	if o == nil {
		o = &output{tests: map[string]*strings.Builder{}}
		r.outputs[of] = o
	}
	switch {
	case e.Action == "run":
		o.started = true
	case e.Action == "build-output" || e.Action == "output" && e.Test == "":
		o.own.WriteString(e.Output)
	case e.Action == "output":
		if o.tests[e.Test] == nil {
			o.tests[e.Test] = &strings.Builder{}
			o.order = append(o.order, e.Test)
		}
		o.tests[e.Test].WriteString(e.Output)
	case e.Test != "" && (e.Action == "pass" || e.Action == "skip"):
		if text := o.tests[e.Test]; text != nil && e.Action == "skip" {
			test, _, _ := strings.Cut(e.Test, "/")
			r.skip(pkg, test, text.String())
		}
		delete(o.tests, e.Test)
	case e.Test == "" && slices.Contains([]string{"pass", "fail", "skip"}, e.Action):
		r.packageEnded(pkg, e, o)
		delete(r.outputs, of)
	}
}

func (r *report) packageEnded(pkg string, e event, o *output) {
	r.ended++
	r.quiet = 0
	word := "ok  "
	switch {
	case e.Action == "fail" && !r.second && ownCrash(o):
		_, _ = fmt.Fprintf(r.out, "The race detector itself crashed in the tests of %s, which run a second time. It said:\n", pkg)
		r.again = append(r.again, pkg)
		r.ended-- // it is still to come
		_, _ = fmt.Fprint(r.out, indent(o.text()))
		return
	case e.Action == "fail":
		word = "FAIL"
		r.failed = append(r.failed, pkg)
	case strings.Contains(o.own.String(), "[no test files]"):
		word = "none"
	case strings.Contains(o.own.String(), "(cached)"):
		word = "same" // as in an earlier run
	}
	r.skip(pkg, "all", o.own.String())
	r.times = append(r.times, timing{pkg, e.Elapsed})
	_, _ = fmt.Fprintf(r.out, "[%*d/%d] %s %7.1f s  %s\n", len(fmt.Sprint(r.all)), r.ended, r.all, word, e.Elapsed, pkg)
	if e.Action == "fail" {
		_, _ = fmt.Fprint(r.out, indent(o.text()))
	}
}

// unmet is how tests begin what they say when they are skipped because something is not installed.
var unmet = regexp.MustCompile(`\b(?:SKIPPED|NOT TESTED): (.+)`)

// skip notes that a test was skipped, where it says that something is not installed.
func (r *report) skip(pkg, test, text string) {
	found := unmet.FindStringSubmatch(text)
	if found == nil {
		return
	}
	packages := r.skipped[found[1]]
	if packages == nil {
		packages = map[string]map[string]bool{}
		r.skipped[found[1]] = packages
	}
	if packages[pkg] == nil {
		packages[pkg] = map[string]bool{}
	}
	packages[pkg][test] = true
}

// text returns what tests that have not passed have printed, and the package itself.
func (o *output) text() string {
	var b strings.Builder
	for _, test := range o.order {
		if o.tests[test] != nil {
			b.WriteString(o.tests[test].String())
		}
	}
	b.WriteString(o.own.String())
	return b.String()
}

var (
	// detectorCheck is what the race detector says when it finds a fault in itself.
	detectorCheck = regexp.MustCompile(`ThreadSanitizer: CHECK failed: tsan_`)
	// detectorFault is how Go tells of a fault in C code that runs outside of all goroutines, as the race detector
	// does.
	detectorFault = regexp.MustCompile(`(?m)^SIGSEGV: [^\n]*\n[^\n]*addr=0x0\n(?s:.{0,400})^runtime: g 0( gp=0x[0-9a-f]+)?: unknown pc `)
	// failure is what tests that fail and data races say.
	failure = regexp.MustCompile(`(?m)^\s*--- FAIL|WARNING: DATA RACE`)
)

// ownCrash reports whether the race detector has crashed before any test had failed. It does so now and then in bubbles
// of testing/synctest, with a failed check or a nil pointer of its own (golang/go#78156, open for Go 1.26). That says
// nothing about the code that was tested.
func ownCrash(o *output) bool {
	text := o.text()
	return !failure.MatchString(text) && (detectorCheck.MatchString(text) || detectorFault.MatchString(text))
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}

// end says what was slow, what was skipped and what failed.
func (r *report) end() {
	slices.SortFunc(r.times, func(a, b timing) int { return cmp.Compare(b.seconds, a.seconds) })
	var slow []string
	for _, t := range r.times[:min(5, len(r.times))] {
		if t.seconds >= 1 {
			slow = append(slow, fmt.Sprintf("%s %.0f s", t.pkg, t.seconds))
		}
	}
	if len(slow) > 0 {
		_, _ = fmt.Fprintf(r.out, "The slowest: %s.\n", strings.Join(slow, ", "))
	}
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		_, _ = fmt.Fprintf(r.out, "Not tested: %s\n", reason)
		packages := r.skipped[reason]
		for _, pkg := range slices.Sorted(maps.Keys(packages)) {
			tests := slices.Sorted(maps.Keys(packages[pkg]))
			_, _ = fmt.Fprintf(r.out, "    %s: %s\n", pkg, strings.Join(tests, ", "))
		}
	}
	if len(r.failed) > 0 {
		_, _ = fmt.Fprintf(r.out, "%d of %d packages failed: %s\n", len(r.failed), r.all, strings.Join(r.failed, ", "))
	}
}
