package container

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"j17/internal/code/sandbox"
)

func TestSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, stop := context.WithCancel(t.Context())
		f := (&Runner{opts: Options{Workers: 1}.withDefaults(), life: life}).function(&job{})
		if err := f.slot(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Within the time there is one.
		go func() {
			<-time.After(busyTimeout - time.Nanosecond)
			f.free()
		}()
		if err := f.slot(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var fault *sandbox.Fault
		if err := f.slot(t.Context()); !errors.As(err, &fault) || fault.Kind != sandbox.Busy || fault.Hint == "" ||
			time.Since(begin) != busyTimeout {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		begin = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.slot(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		stop()
		if err := f.slot(t.Context()); !errors.Is(err, errClosed) {
			t.Error(err)
		}
	})
}

func TestMakeSafe(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root can make files of others")
	}
	top := t.TempDir()
	for _, dir := range []string{top, filepath.Dir(top)} {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	do := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	at := func(names ...string) string { return filepath.Join(append([]string{top}, names...)...) }
	do(os.Mkdir(at("closed"), 0o700), os.Mkdir(at("open"), 0o755), os.Mkdir(at("theirs"), 0o755),
		os.Mkdir(at("shared"), 0o755),
		os.Mkdir(at("sticky"), 0o755), os.Mkdir(at("group"), 0o755))
	do(os.Chown(at("theirs"), nobody, nobody), os.Chmod(at("shared"), 0o777),
		os.Chmod(at("sticky"), 0o777|os.ModeSticky), os.Chmod(at("group"), 0o775),
		os.Symlink(at("open"), at("link")), os.WriteFile(at("file"), nil, 0o755))
	for _, good := range []string{
		at("new"), at("new", "deeper"), at("open"), at("open", "a", "b"), at("sticky", "own"), at("new", "deeper"),
	} {
		if err := makeSafe(good); err != nil {
			t.Error(err)
		} else if info, err := os.Lstat(good); err != nil || !info.IsDir() ||
			good != at("open") && info.Mode().Perm() != 0o711 {
			t.Error(good, info, err)
		}
	}
	for _, bad := range []string{
		at("closed"), at("closed", "a"), at("theirs"), at("theirs", "a"), at("shared"), at("shared", "a"), at("sticky"),
		at("group"), at("group", "a"), at("link"), at("link", "a"), at("file"),
	} {
		if makeSafe(bad) == nil {
			t.Error(bad, "was accepted")
		}
	}
}

func TestNoPlaceIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, stop := context.WithCancel(t.Context())
		r := &Runner{opts: Options{}.withDefaults(), life: life, places: make(chan struct{}, 1)}
		if err := r.place(t.Context()); err != nil || r.tryPlace() {
			t.Fatal("there is one place", err)
		}
		// A place that is given back in time is taken, by the one who waits for it.
		go func() {
			<-time.After(busyTimeout - time.Nanosecond)
			<-r.places
		}()
		if err := r.place(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var fault *sandbox.Fault
		if err := r.place(t.Context()); !errors.As(err, &fault) || fault.Kind != sandbox.Busy || fault.Hint == "" ||
			time.Since(begin) != busyTimeout {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.place(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		stop()
		if err := r.place(t.Context()); !errors.Is(err, errClosed) {
			t.Error(err)
		}
	})
}

// TestAContainerThatEndsAtOnceHasStarted has runc write down the process and end right after it was looked for.
func TestAContainerThatEndsAtOnceHasStarted(t *testing.T) {
	for name, writes := range map[string]bool{"with a process": true, "without one": false} {
		over := false
		pid, err := written(
			t.Context(), func() bool { over = true; return true }, func() (int, bool) { return 7, over && writes },
		)
		if writes != (err == nil && pid == 7) {
			t.Errorf("%s: %d, %v", name, pid, err)
		}
	}
}

// TestLacksMemory writes in pieces, as a runtime does, what it says at its end.
func TestLacksMemory(t *testing.T) {
	for name, test := range map[string]struct {
		pieces []string
		lacks  bool
	}{
		"it says so": {
			[]string{"runtime: out of", " memory: cannot allocate", strings.Repeat("goroutine 7\n", 2000)}, true,
		},
		"the collector itself crashes": {[]string{
			"SIGSEGV: segmentation violation", "\n", "PC=", "0x43247d", " m=", "3",
			strings.Repeat("goroutine 7\n", 2000),
		}, true},
		"the program crashes":    {[]string{"panic: runtime error: invalid memory address\n", "[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4a1c20]\n"}, false},
		"it says something else": {[]string{"PC=1\n", "SIGSEGV"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var log tail
			for _, piece := range test.pieces {
				_, _ = log.Write([]byte(piece))
			}
			if log.lacksMemory() != test.lacks {
				t.Errorf("that it lacks memory is %v", !test.lacks)
			}
		})
	}
}

// TestAPanicEndsAStart lets the start of a worker panic, in the background: it is logged, and its slot and its place
// are given back.
func TestAPanicEndsAStart(t *testing.T) {
	var logged strings.Builder
	r := &Runner{
		opts: Options{Workers: 1, Logger: slog.New(slog.NewTextHandler(&logged, nil))}.withDefaults(),
		life: t.Context(), places: make(chan struct{}, 1),
	}
	f := r.function(&job{})
	r.opts.Clock = nil // which a start asks for the time
	for n := range 2 {
		if err := f.slot(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.startAhead()
		r.running.Wait()
		if len(f.slots) != 0 || len(r.places) != 0 {
			t.Fatalf("%d slots and %d places are taken", len(f.slots), len(r.places))
		}
		if got := strings.Count(logged.String(), `work="starting a container ahead"`); got != n+1 {
			t.Errorf("%d of %d panics were logged:\n%s", got, n+1, logged.String())
		}
	}
}
