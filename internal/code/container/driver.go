package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// job describes the process of a container, whatever the driver.
type job struct {
	root      string // folder that becomes the root; "" for the programs of the machine, or the engine's image
	reference string // image of the local engine, for docker and podman
	mounts    []mount
	args      []string // empty to run what the engine's image says
	env       []string
	dir       string
	memory    int64
	tasks     int
	cpus      float64
	file      int64 // largest file, in bytes
	scratch   int64 // size of /tmp
	build     int64 // size of a writable /build that programs may be run from; 0 for none
	network   bool
}

// mount shows a file or folder in the container, read-only.
type mount struct{ source, target string }

// driver makes commands that run jobs isolated.
type driver interface {
	// check reports whether the driver works on this machine; the error says what to do.
	check(ctx context.Context) error
	// prepare returns the command of a job. Standard input and output are the caller's to set.
	prepare(j *job) (*launch, error)
}

// launch is a command to be started, with what goes with it. All functions may be nil.
type launch struct {
	cmd *exec.Cmd
	// Runs once the command has been started; root is the id of the first process within.
	begun func() (root int, err error)
	kill  func()      // ends all processes; the default is to kill the command
	oom   func() bool // tells, after the end, whether there was too little memory
	clean func()      // removes what was made for this job
}

func newDriver(r *Runner) (driver, error) {
	// The program of a driver, and the package of Debian that has it.
	var program, pkg string
	switch r.opts.Driver {
	case Bubblewrap:
		program, pkg = "bwrap", "bubblewrap"
	case Docker:
		program, pkg = "docker", "docker.io"
	case Runc, Podman:
		program, pkg = string(r.opts.Driver), string(r.opts.Driver)
	case Off:
	}
	if program == "" {
		return nil, refuse("There is no container driver %q. Choose bubblewrap, runc, docker or podman.", r.opts.Driver)
	}
	program = cmp.Or(r.opts.Program, program)
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, &Error{
			Message: fmt.Sprintf("The container driver %s needs the program %s, which is not installed or not on the PATH. Install it, for example with: apt-get install %s",
				r.opts.Driver, program, pkg),
			Err: err,
		}
	}

	switch r.opts.Driver {
	case Bubblewrap:
		return &bubblewrap{runner: r, program: path}, nil
	case Runc:
		return &runc{runner: r, program: path}, nil
	case Docker, Podman, Off:
	}
	return &engine{runner: r, program: path}, nil
}

// process is a started job.
type process struct {
	in   *os.File // its standard input
	out  *os.File // its standard output
	log  *tail    // the end of its standard error
	root int      // id of its first process, 0 where it is unknown
	kill func()
	life context.Context // without an end
	done chan struct{}   // closed when no process of the job is left

	command *os.Process // the driver's

	// Valid when done is closed.
	err error
	cpu time.Duration // of all processes that have been waited for, with the driver's
	oom bool

	mu     sync.Mutex
	killed killer
}

// killer is who ended a process.
type killer int

const (
	itself killer = iota
	caller
	memoryWatch
	cpuWatch
)

// killPatience is how long a driver's command may live on after the processes of its job were killed.
const killPatience = 2 * time.Second

// end kills the process and waits until it is gone. Only the first reason is kept.
func (p *process) end(why killer) {
	select {
	case <-p.done:
		return
	default:
	}
	p.mu.Lock()
	if p.killed == itself {
		p.killed = why
	}
	p.mu.Unlock()
	p.kill()
	p.close() // a driver that passes output on must not wait for a reader
	late, cancel := context.WithTimeout(p.life, killPatience)
	defer cancel()
	select {
	case <-p.done:
	case <-late.Done():
		_ = p.command.Kill()
		<-p.done
	}
}

func (p *process) killedBy() killer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// begin registers work that Close waits for, until running.Done; false means that the Runner is closed.
func (r *Runner) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.life.Err() != nil {
		return false
	}
	r.running.Add(1)
	return true
}

// spawn starts a job. The process ends with the Runner at the latest.
func (r *Runner) spawn(j *job) (*process, error) {
	if !r.begin() {
		return nil, errClosed
	}
	running := false
	defer func() {
		if !running {
			r.running.Done()
		}
	}()

	// Its standard input and output.
	inRead, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, outWrite, err := os.Pipe()
	if err != nil {
		_, _ = inRead.Close(), in.Close()
		return nil, err
	}

	l, err := r.driver.prepare(j)
	if err != nil {
		_, _, _, _ = inRead.Close(), in.Close(), out.Close(), outWrite.Close()
		return nil, err
	}

	p := &process{in: in, out: out, log: &tail{}, done: make(chan struct{}), life: context.WithoutCancel(r.life)}
	l.cmd.Stdin, l.cmd.Stdout, l.cmd.Stderr = inRead, outWrite, p.log
	l.cmd.WaitDelay = killPatience // after this the command itself is killed, and its standard error abandoned
	p.kill = func() {
		if l.kill != nil {
			l.kill()
		} else if l.cmd.Process != nil {
			_ = l.cmd.Process.Kill()
		}
	}
	l.cmd.Cancel = func() error {
		p.kill()
		p.close()
		return nil
	}

	// A goroutine of its own starts the command and waits for its end.
	started, looked := make(chan error), make(chan struct{})
	running = true
	go func() {
		defer r.running.Done()
		// The kernel kills the command when the thread that started it ends, so the goroutine keeps its thread until
		// then.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := l.cmd.Start()
		_, _ = inRead.Close(), outWrite.Close()
		started <- err
		if err == nil {
			p.err = l.cmd.Wait()
			if state := l.cmd.ProcessState; state != nil {
				p.cpu = state.UserTime() + state.SystemTime()
			}
			p.oom = l.oom != nil && l.oom()
			<-looked // at what clean removes
		}
		if l.clean != nil {
			l.clean()
		}
		if err == nil {
			close(p.done)
		}
	}()

	// It runs. What needs the process itself, such as limits, is done now.
	if err := <-started; err != nil {
		_, _ = in.Close(), out.Close()
		return nil, fmt.Errorf("start %s: %w", l.cmd.Path, err)
	}
	p.command = l.cmd.Process
	if l.begun != nil {
		p.root, err = l.begun()
	}
	close(looked)
	if err != nil {
		p.end(caller)
		return nil, fmt.Errorf("%w: %s", err, oneLine(p.log.String()))
	}
	return p, nil
}

// close releases the pipes to a process.
func (p *process) close() { _, _ = p.in.Close(), p.out.Close() }

// output runs a job to its end and passes its standard output to read.
func (r *Runner) output(
	ctx context.Context, j *job, timeout time.Duration, read func(io.Reader) error,
) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p, err := r.spawn(j)
	if err != nil {
		return "", err
	}
	defer p.close()
	defer context.AfterFunc(ctx, p.kill)()
	_ = p.in.Close()
	err = read(p.out)
	if err != nil {
		p.end(caller)
	}
	<-p.done
	switch {
	case ctx.Err() != nil:
		return p.log.String(), ctx.Err()
	case p.err != nil && (err == nil || p.killedBy() == itself):
		return p.log.String(), p.err
	}
	return p.log.String(), err
}

// tail keeps the end of what is written to it, and notes what runtimes say when they run out of memory.
type tail struct {
	mu      sync.Mutex
	text    []byte
	cut     bool
	starved bool
}

const tailSize = 4096

// Write takes text; it never fails.
func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const longestSign = 40
	before := t.text[max(0, len(t.text)-longestSign):]
	t.starved = t.starved || lacksMemory(string(before)+string(text))
	n := len(text)
	if len(text) > tailSize {
		text, t.cut = text[len(text)-tailSize:], true
	}
	if over := len(t.text) + len(text) - tailSize; over > 0 {
		t.text, t.cut = append(t.text[:0], t.text[over:]...), true
	}
	t.text = append(t.text, text...)
	return n, nil
}

// lacksMemory reports whether a runtime has run out of memory, as far as it says so.
func (t *tail) lacksMemory() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.starved
}

// String returns the end of the text, as valid UTF-8.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.text), "\uFFFD"))
	if t.cut {
		text = "… " + text
	}
	return text
}

// exitCode returns the status that a command ended with, 0 when it ended well, and -1 when it is not known.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		return -1
	}
}
