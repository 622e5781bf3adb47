// Package container runs custom code in processes: binary images and source code in node, python, ruby or elixir. A
// Runner starts them with bubblewrap, runc, docker or podman, without network, on a read-only root, as an unprivileged
// user and within limits, and hands out sandbox.Functions.
//
// # Protocol
//
// The program of an image answers one call: it reads a request, a JSON text on one line, from its standard input, which
// ends there, writes the answer, a JSON text on as many lines as it likes, to its standard output, and ends with status
// 0. The process of the next call is started ahead and waits for its input.
//
// A worker answers many calls: it reads one request a line and writes one answer a line, in order, writes nothing else
// to standard output, and ends when its input does. Images with the label j17.calls=many are workers, and so is source
// code, for which a script of this package speaks the protocol.
//
// An answer that begins with "!" says that the call failed; a JSON string with the reason follows.
//
// The decisions behind it are in docs/internals/code.md.
package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"j17/internal/base/clock"
)

// Driver names the program that isolates the processes.
type Driver string

// The drivers. With Off, Image and Source fail with an *Error that says how to turn containers on.
const (
	Off        Driver = ""
	Bubblewrap Driver = "bubblewrap"
	Runc       Driver = "runc"
	Docker     Driver = "docker"
	Podman     Driver = "podman"
)

// Options says how containers run. Zero values stand for the defaults.
type Options struct {
	Driver Driver
	// Program is the driver's executable; the default is bwrap, runc, docker or podman on the PATH.
	Program string
	// Dir holds unpacked images and built source code, by digest. It is made where it does not exist.
	Dir string
	// Spare is the absolute path of a folder that takes the place of Dir where bubblewrap is started by root and its
	// containers' user cannot pass through the folders to Dir; "" for none. It is made where it does not exist, and not
	// used where others than root can change it.
	Spare string
	// Timeout bounds the processor time of a call on a running worker; 1 s. Ten times that on a clock ends the call as
	// well. docker and podman do not tell the processor time: there the clock counts. Starting a worker may take longer
	// (10 s), and so may the wait for one that is free (10 s).
	Timeout time.Duration
	// Memory bounds a worker, in bytes; 128 MiB.
	Memory int64
	// Tasks bounds the processes and threads of a worker; 64.
	Tasks int
	// CPUs bounds a worker's share of the processors, where there are control groups; 1.
	CPUs float64
	// Output bounds an answer, in bytes; 1 MiB.
	Output int
	// Workers bounds the processes of one function; 4.
	Workers int
	// Processes bounds the processes of all functions together, and so, times Memory, what they may hold; 16.
	Processes int
	// Content bounds what unpacked images and built source code take of the disk together, in bytes; 8 GiB. What no
	// function uses goes first.
	Content int64
	// Idle is how long a process without calls lives on; 1 minute.
	Idle time.Duration
	// BuildNetwork lets the step that installs the dependencies of source code, and nothing else, use the network.
	BuildNetwork bool
	// Cgroup is a folder of the cgroup v2 file system that this process may make groups in, for bubblewrap. Without
	// one, limits are those that a process can set, and a watch over the worker's memory.
	Cgroup string
	// Images are the images that docker and podman run source code in, by runtime ("node", "python", "ruby", "elixir").
	Images map[string]string
	// Clock paces the end of idle workers and the waits between crashes. Time limits of calls are real time.
	Clock clock.Clock
	// Logger logs panics on goroutines of the runner; nil discards them.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, time.Second)
	o.Memory = cmp.Or(o.Memory, 128<<20)
	o.Tasks = cmp.Or(o.Tasks, 64)
	o.CPUs = cmp.Or(o.CPUs, 1)
	o.Output = cmp.Or(o.Output, 1<<20)
	o.Workers = cmp.Or(o.Workers, 4)
	o.Processes = cmp.Or(o.Processes, 16)
	o.Content = cmp.Or(o.Content, 8<<30)
	o.Idle = cmp.Or(o.Idle, time.Minute)
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

const (
	startTimeout = 10 * time.Second
	busyTimeout  = 10 * time.Second // of the wait for a worker, which the time of a call does not count
	buildTimeout = 5 * time.Minute
	buildMemory  = 1 << 30
	buildTasks   = 256
	scratch      = 16 << 20 // size of a worker's /tmp, in bytes
)

// Error is a refusal that the operator or the author of the code can act on. All other errors of this package are
// failures of the machine.
type Error struct {
	// Message says in whole sentences what is wrong and what to do.
	Message string
	// Err is the cause, or nil.
	Err error
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(format string, args ...any) *Error { return &Error{Message: fmt.Sprintf(format, args...)} }

var errClosed = errors.New("the container runner is closed")

// Runner runs containers with one driver. It is safe for concurrent use.
type Runner struct {
	opts   Options
	driver driver // nil when off
	limits unpackLimits
	boot   string // folder with the bootstrap scripts and small files of /etc

	spare *os.File // the locked note of the spare folder; nil where that is not in use

	life    context.Context // ends with Close
	stop    context.CancelFunc
	watcher chan struct{} // closed when the watch has ended
	unpack  chan struct{} // held by the one who unpacks or builds
	places  chan struct{} // one for each worker there is
	wanting atomic.Int64  // calls that wait for a place

	mu      sync.Mutex
	closed  bool
	workers map[*worker]bool
	held    map[string]int // content in use, by the name of its folder below Dir
	running sync.WaitGroup // processes, and what starts them ahead
}

// New checks that the driver works and returns a Runner, which keeps the values of ctx but does not end with it. The
// error is an *Error where the machine or the options need a change.
func New(ctx context.Context, opts Options) (*Runner, error) {
	r := &Runner{
		opts: opts.withDefaults(), limits: defaultUnpackLimits(), unpack: make(chan struct{}, 1),
		workers: map[*worker]bool{}, held: map[string]int{}, watcher: make(chan struct{}),
	}
	r.places = make(chan struct{}, r.opts.Processes)
	r.life, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	if opts.Driver == Off {
		close(r.watcher)
		return r, nil
	}
	if err := r.prepareDir(); err != nil {
		r.stop()
		r.letGo()
		return nil, err
	}
	var err error
	if r.driver, err = newDriver(r); err == nil {
		err = r.driver.check(ctx)
	}
	if err != nil {
		r.stop()
		r.running.Wait()
		r.letGo()
		return nil, err
	}
	go r.watch()
	return r, nil
}

// writeShared writes the scripts that load source code, and what /etc consists of.
func writeShared(dir string) error {
	if err := makeFolder(dir); err != nil {
		return err
	}

	// What a system has in /etc.
	files := map[string][]byte{
		"passwd": []byte("nobody:x:65534:65534:nobody:/tmp:/usr/sbin/nologin\n"),
		"group":  []byte("nogroup:x:65534:\n"),
		"hosts":  []byte("127.0.0.1 localhost\n::1 localhost\n"),
	}
	resolv, err := os.ReadFile("/etc/resolv.conf") // often a link to a place that the sandbox does not have
	if err == nil {
		files["resolv.conf"] = resolv
	}

	// The scripts that load source code.
	scripts, err := bootstrap.ReadDir("bootstrap")
	if err != nil {
		return err
	}
	for _, script := range scripts {
		if files[script.Name()], err = bootstrap.ReadFile("bootstrap/" + script.Name()); err != nil {
			return err
		}
	}

	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // the sandbox's user must read it
			return err
		}
		if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // the sandbox's user must read it
			return err
		}
	}
	return nil
}

// Dir returns the folder in use, an absolute path: that of the options, or the spare one. It is "" when containers are
// off.
func (r *Runner) Dir() string {
	if r.driver == nil {
		return ""
	}
	return r.opts.Dir
}

// off returns the error for code that wants containers where there are none.
func (r *Runner) off() error {
	if r.driver != nil {
		return nil
	}
	return refuse("Containers are switched off on this server. Its operator can turn them on with the setting " +
		"container_driver, which is bubblewrap, runc, docker or podman.")
}

// Close ends all workers and leaves no process, mount, or control group behind. Calls that run fail.
func (r *Runner) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop() // ends the processes, through their contexts
	r.running.Wait()
	<-r.watcher
	r.letGo()
	return nil
}

// stage makes a scratch folder; done removes it.
func (r *Runner) stage() (dir string, done func(), err error) {
	dir, err = os.MkdirTemp(filepath.Join(r.opts.Dir, "staging"), "")
	if err == nil {
		err = os.Chmod(dir, 0o711) //nolint:gosec // the sandbox's user must pass through
	}
	if err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// bootstrapFor returns the name of the script that loads source code of a runtime.
func bootstrapFor(runtime string) string {
	switch runtime {
	case "node":
		return "worker.mjs"
	case "python":
		return "worker.py"
	case "ruby":
		return "worker.rb"
	default:
		return "worker.exs"
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
