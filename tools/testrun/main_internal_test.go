package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	for name, tc := range map[string]struct{ events, want string }{
		"passes": {
			events: `{"Action":"start","Package":"j17/a"}
{"Action":"output","Package":"j17/a","Test":"TestX","Output":"=== RUN TestX\n"}
{"Action":"pass","Package":"j17/a","Test":"TestX"}
{"Action":"output","Package":"j17/a","Output":"ok  j17/a 2.5s\n"}
{"Action":"pass","Package":"j17/a","Elapsed":2.5}
{"Action":"output","Package":"j17/b","Output":"?   j17/b [no test files]\n"}
{"Action":"skip","Package":"j17/b","Elapsed":0}
`,
			want: "[1/3] ok       2.5 s  j17/a\n[2/3] none     0.0 s  j17/b\nThe slowest: j17/a 2 s.\n",
		},
		"a failure is shown with its own lines only": {
			events: `{"Action":"output","Package":"j17/a","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"j17/a","Test":"TestGood"}
{"Action":"output","Package":"j17/a","Test":"TestBad","Output":"a_test.go:1: wrong\n"}
{"Action":"fail","Package":"j17/a","Test":"TestBad"}
{"Action":"output","Package":"j17/a","Output":"FAIL\n"}
{"Action":"fail","Package":"j17/a","Elapsed":0.1}
`,
			want: "[1/3] FAIL     0.1 s  j17/a\n    a_test.go:1: wrong\n    FAIL\n1 of 3 packages failed: j17/a\n",
		},
		"a package that does not compile": {
			events: `{"Action":"build-output","ImportPath":"j17/a [j17/a.test]","Output":"a.go:1: undefined: x\n"}
{"Action":"build-fail","ImportPath":"j17/a [j17/a.test]"}
{"Action":"start","Package":"j17/a"}
{"Action":"fail","Package":"j17/a","Elapsed":0}
`,
			want: "[1/3] FAIL     0.0 s  j17/a\n    a.go:1: undefined: x\n1 of 3 packages failed: j17/a\n",
		},
		"a test that was cut off": {
			events: `{"Action":"output","Package":"j17/a","Test":"TestHangs","Output":"panic: test timed out after 20m0s\n"}
{"Action":"fail","Package":"j17/a","Elapsed":1200}
`,
			want: "[1/3] FAIL  1200.0 s  j17/a\n    panic: test timed out after 20m0s\nThe slowest: j17/a 1200 s.\n1 of 3 packages failed: j17/a\n",
		},
		"what is not installed": {
			events: `{"Action":"output","Package":"j17/a","Test":"TestX/y","Output":"    x.go:1: SKIPPED: there is no x: install it\n"}
{"Action":"skip","Package":"j17/a","Test":"TestX/y"}
{"Action":"output","Package":"j17/a","Test":"TestX/z","Output":"    x.go:1: SKIPPED: there is no x: install it\n"}
{"Action":"skip","Package":"j17/a","Test":"TestX/z"}
{"Action":"pass","Package":"j17/a","Test":"TestX"}
{"Action":"output","Package":"j17/a","Test":"TestW","Output":"    x.go:1: SKIPPED: there is no x: install it\n"}
{"Action":"skip","Package":"j17/a","Test":"TestW"}
{"Action":"output","Package":"j17/a","Test":"TestOther","Output":"    x.go:2: not on this system\n"}
{"Action":"skip","Package":"j17/a","Test":"TestOther"}
{"Action":"pass","Package":"j17/a","Elapsed":0.1}
{"Action":"output","Package":"j17/b","Output":"SKIPPED: all tests. They need y.\n"}
{"Action":"pass","Package":"j17/b","Elapsed":0.1}
`,
			want: "[1/3] ok       0.1 s  j17/a\n[2/3] ok       0.1 s  j17/b\n" +
				"Not tested: all tests. They need y.\n    j17/b: all\n" +
				"Not tested: there is no x: install it\n    j17/a: TestW, TestX\n",
		},
		"lines that are no events": {
			events: "go: downloading x\n",
			want:   "go: downloading x\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out, 3)
			for text := range strings.Lines(tc.events) {
				r.line(line{text: []byte(text)})
			}
			r.end()
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestQueuesRunSideBySide has a pass that does not end before one of the other queue has begun. A package is tested in
// both at a time.
func TestQueuesRunSideBySide(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	shell := func(script string) *exec.Cmd { return exec.CommandContext(t.Context(), "sh", "-c", script, pipe) }
	if err := shell(`mkfifo "$0"`).Run(); err != nil {
		t.Skip("there are no named pipes: ", err)
	}
	output := func(text string) string {
		return fmt.Sprintf(`printf '%%s\n' '{"Action":"output","Package":"j17/a","Test":"TestX","Output":"%s\n"}'`, text)
	}
	var out strings.Builder
	r := newReport(&out, 3)
	errs := r.follow(io.Discard,
		[]*exec.Cmd{
			shell(output("left") + ` && cat "$0" >/dev/null && echo '{"Action":"fail","Package":"j17/a"}' && exit 3`),
			shell(`echo '{"Action":"pass","Package":"j17/b"}'`),
		},
		[]*exec.Cmd{shell(output("right") + ` && echo '{"Action":"pass","Package":"j17/a"}' && echo >"$0"`)})
	failed := 0
	for _, err := range errs {
		if exitCode(err, io.Discard) == 3 {
			failed++
		}
	}
	if len(errs) != 3 || failed != 1 {
		t.Errorf("they have ended with %v", errs)
	}
	for _, want := range []string{
		"] ok       0.0 s  j17/a\n", "] FAIL     0.0 s  j17/a\n    left\n", "] ok       0.0 s  j17/b\n", "[3/3]",
	} {
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "right") {
			t.Errorf("there is no %q, or what a test has said that passed:\n%s", want, out.String())
		}
	}
}

// TestMinutes checks that a line says what is under way where no package has ended for a minute.
func TestMinutes(t *testing.T) {
	var out strings.Builder
	r := newReport(&out, 3)
	minute := func(n int) {
		for range n {
			r.minute()
		}
	}
	minute(2)
	r.event(event{Action: "start", Package: "j17/b"})
	r.event(event{Action: "run", Package: "j17/b", Test: "TestX"})
	r.event(event{Action: "run", Package: "j17/a", Test: "TestY"})
	minute(1)
	r.event(event{Action: "pass", Package: "j17/b", Elapsed: 70})
	minute(2)
	want := "[0/3] still compiling\n[0/3] still running j17/a, j17/b\n[1/3] ok      70.0 s  j17/b\n[1/3] still running j17/a\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestACrashOfTheRaceDetector runs a package again in which the race detector has crashed, once, and nothing else.
func TestACrashOfTheRaceDetector(t *testing.T) {
	const (
		fault = `=== RUN   TestX\nSIGSEGV: segmentation violation\nPC=0x1826299 m=3 sigcode=1 addr=0x0\n\ngoroutine 0 gp=0xc0000090e0 m=3 mp=0xc000065008 [idle]:\nruntime: g 0 gp=0xc0000090e0: unknown pc 0x1826299\n`
		check = `ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 \"((thr->fast_state.epoch())) == ((kEpochLast))\" (tid=7)\n`
		ours  = `SIGSEGV: segmentation violation\nPC=0x47bf39 m=3 sigcode=1 addr=0x0\n\ngoroutine 7 gp=0xc0000090e0 m=3 mp=0xc000065008 [running]:\nj17/a.f()\n`
		wrong = `--- FAIL: TestY (0.00s)\n`
	)
	for name, tc := range map[string]struct {
		first, then string
		runs, code  int
	}{
		"a nil pointer":                       {fault, "", 2, 0},
		"a check":                             {check, "", 2, 0},
		"twice":                               {fault, check, 2, 1},
		"then a test fails":                   {fault, wrong, 2, 1},
		"a test has failed before":            {wrong + fault, "", 1, 1},
		"a nil pointer in what is tested":     {ours, "", 1, 1},
		"a data race":                         {`WARNING: DATA RACE\n` + check, "", 1, 1},
		"it is a failure that is not a crash": {wrong, "", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			// A `go` that lists one package and has these outputs.
			dir := t.TempDir()
			outcome := func(output string) string {
				if output == "" {
					return `{"Action":"pass","Package":"j17/a"}` + "\n"
				}
				return fmt.Sprintf(`{"Action":"output","Package":"j17/a","Test":"TestX","Output":"%s"}`+"\n"+`{"Action":"fail","Package":"j17/a"}`+"\n", output)
			}
			for file, text := range map[string]string{
				"list": "j17/a\t/a\tx_test.go\t\n", "1": outcome(tc.first), "2": outcome(tc.then),
				"go": "#!/bin/sh\ncd '" + dir + "'\nif [ \"$1\" = list ]; then exec cat list; fi\n[ \"$1\" = env ] && exit 1 # so that there is no copy of the engine\necho run >> runs\nn=$(grep -c . runs)\ncat $n\n! grep -q fail $n\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))

			var out, errs strings.Builder
			code := run(t.Context(), []string{"-race", "j17/a"}, &out, &errs)
			runs, err := os.ReadFile(filepath.Join(dir, "runs"))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(runs), "run"); n != tc.runs || code != tc.code {
				t.Errorf("%d runs, exit code %d, want %d and %d\n%s%s", n, code, tc.runs, tc.code, out.String(), errs.String())
			}
			if failed := strings.Contains(out.String(), "1 of 1 packages failed"); failed != (tc.code != 0) ||
				!strings.Contains(out.String(), "[1/1]") {
				t.Errorf("%s", out.String())
			}
		})
	}
}

func TestInOrder(t *testing.T) {
	sizes := map[string]int64{"/a/x_test.go": 10, "/b/x_test.go": 20, "/b/y_test.go": 1, "/d/x_test.go": 10}
	got := inOrder("j17/a\t/a\tx_test.go\t\nj17/b\t/b\tx_test.go\ty_test.go\t\tw_test.go\nj17/c\t/c\t\nj17/d\t/d\tx_test.go\t\n", func(path string) int64 { return sizes[path] })
	if diff := cmp.Diff([]string{"j17/b", "j17/a", "j17/d", "j17/c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWithoutRaceDetector(t *testing.T) {
	files := map[string]string{
		"/a/x_test.go": "//go:build !race\n\npackage a\n\nfunc TestX(t *testing.T) {\n}\n\nfunc helper() {\n}\n\nfunc FuzzX(f *testing.F) {\n}\n",
		"/a/y_test.go": "//go:build !race\n\npackage a\n\nfunc TestY(t *testing.T) {\n}\n",
		"/b/x_test.go": "//go:build windows\n\npackage b\n\nfunc TestWindows(t *testing.T) {\n}\n",
		"/c/off.go":    "//go:build !race\n\npackage c\n",
		"/d/x_test.go": "//go:build !race\n\npackage d\n\nfunc TestX(t *testing.T) {\n}\n",
		"/e/x_test.go": "//go:build !race\n\npackage e\n\nfunc TestX(t *testing.T) {\n}\n",
		"/e/y_test.go": "//go:build !race\n\npackage e\n\nconst all = true\n",
	}
	list := "j17/a\t/a\tz_test.go\t\tx_test.go\ty_test.go\nj17/b\t/b\t\tx_test.go\nj17/c\t/c\t\toff.go\nj17/d\t/d\t\tx_test.go\tgone_test.go\nj17/e\t/e\tz_test.go\t\tx_test.go\ty_test.go\n"
	tests, packages, whole := withoutRaceDetector(list, func(path string) ([]byte, error) {
		text, found := files[path]
		if !found {
			return nil, fs.ErrNotExist
		}
		return []byte(text), nil
	})
	if diff := cmp.Diff([][]string{{"FuzzX", "TestX", "TestY"}, {"j17/a", "j17/d"}, {"j17/e"}}, [][]string{
		tests, packages, whole,
	}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRun(t *testing.T) {
	var out, errs strings.Builder
	if code := run(t.Context(), []string{"-run=^$", "j17/internal/base/work"}, &out, &errs); code != 0 ||
		!strings.Contains(out.String(), "[1/1]") {
		t.Errorf("exit code %d, %s%s", code, out.String(), errs.String())
	}
	if code := run(t.Context(), []string{"j17/internal/nowhere"}, &out, &errs); code == 0 {
		t.Error("a package that does not exist is no failure")
	}
}
