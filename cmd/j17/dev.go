package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/decider"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/server"
)

func devCommand(e *env) *cobra.Command {
	var o server.DevOptions
	var asJSON, verbose, quiet bool
	cmd := &cobra.Command{
		Use:   "dev [SPEC]",
		Short: "Run a development server",
		Long: `Run a development server on this machine: one instance with the environments prod, staging and test, keys for each, and
the spec deployed to all of them. When the spec file changes, it is deployed again. Everything is kept in the data folder.

Each request is shown on a line of its own, on standard error; of many like each other that come at once, such as those of an
import, the first are shown and the others counted. Each one that fails is shown.`,
		Example: "  j17 dev spec.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("%s takes one spec file", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			// The settings, whose faults are reported all at once, and the spec, without which nothing is started.
			if len(args) == 1 {
				o.SpecFile = args[0]
			}
			stderr := &lockedWriter{w: e.err}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			problems := e.storeSettings(cmd.Flags(), &o.Store)
			problems = append(problems, o.Check()...)
			if problems = append(problems, devProblems(&o)...); len(problems) > 0 {
				return usageError{errors.Join(problems...)}
			}
			if usable, err := usableSpec(e, o.SpecFile); !usable {
				return err
			}

			// The log, and where it goes.
			o.Logger = slog.New(slog.NewTextHandler(stderr, logOptions(level)))
			o.Clock = clock.System{}
			o.Version = programVersion
			o.Deployed = func(d server.DeployAttempt) { reportDeployment(stderr, o.Clock, d) }
			var requests *requestLog
			if !quiet && !asJSON {
				requests = &requestLog{w: stderr, clock: o.Clock, colored: e.colored(e.err)}
				o.Observe = requests.observe
			}
			tuneRuntime(e.getenv, &o.Options)

			// The server is open before it reports that it is ready, and what it prints then works.
			d, err := server.OpenDev(cmd.Context(), o)
			if errors.Is(err, server.ErrInvalidSpec) {
				return silent{err}
			}
			if err != nil {
				return portTaken(err)
			}
			ready := d.Ready()
			ready.LoginLink, err = d.LoginLink(cmd.Context())
			switch {
			case err != nil:
			case asJSON:
				err = json.NewEncoder(e.out).Encode(ready)
			default:
				err = printReady(
					e.out, ready, dataOf(&o.Options),
					firstRequests(d.Spec(), specBeside(), d.URL(), ready.Keys[j17.Prod].Write),
				)
			}
			if err == nil {
				err = runDev(cmd.Context(), d, &o, requests, stderr)
			}
			return errors.Join(err, d.Close())
		},
	}

	cmd.AddCommand(devAdvanceCommand(e))
	dashboardFlags(cmd.Flags(), &o.Options)

	// Its flags.
	f := cmd.Flags()
	f.StringVar(&o.Dir, "data", "j17-data", "data `folder`")
	storeFlags(f, &o.Store)
	readsFlag(f, &o.Store)
	erasureFlag(f, &o.Options, 0)
	f.StringVar(&o.Listen, "listen", "127.0.0.1:17000", "public `address`")
	f.StringVar(&o.InternalListen, "internal-listen", "127.0.0.1:17001", "internal `address`: metrics and health")
	f.IntVar(&o.KeyRate, "rate-limit-per-key", 0, "requests a minute of each API key; 0 for no limit")
	f.IntVar(&o.AddressRate, "rate-limit-per-ip", 0, "requests a minute of each client address; 0 for no limit")
	limitFlags(f, &o.Options)
	containerFlags(f, &o.Options)
	proofFlags(f, &o.Options)
	f.BoolVar(&o.PrivateListeners, "allow-private-listeners", false, "let listeners of the spec be at addresses of this machine and of private networks")
	backupFlags(f, &o.Options)
	f.BoolVar(&asJSON, "json", false, "print one line of JSON when the server is ready, and show no requests")
	f.BoolVar(&quiet, "quiet", false, "show no requests")
	f.BoolVar(&verbose, "verbose", false, "log every request with all its details")
	return cmd
}

// usableSpec reports whether a server can start with a spec file, "" for none; faults are reported before there is a
// data folder.
func usableSpec(e *env, file string) (bool, error) {
	if file == "" {
		return true, nil
	}
	source, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return false, unreadable(file, err)
	}
	envelope, found := spec.Unwrap(source)
	if len(found) == 0 {
		var c *spec.Compiled
		if c, found = lint.Compile(envelope.Spec); c != nil {
			return true, nil
		}
	}
	err = e.invalidFile(file, source, found, server.ErrInvalidSpec.Error())
	e.note("%s was not deployed, and the server was not started\n", fileName(file))
	return false, err
}

// portTaken says what to do about an address that another program listens at.
func portTaken(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w. Another program has this port: end it, or choose others with --listen and --internal-listen (127.0.0.1:0 takes any)", err)
	}
	return err
}

// devProblems returns what is wrong with the flags of a development server.
func devProblems(o *server.DevOptions) []error {
	var found []error
	for _, a := range []struct{ flag, address string }{{"listen", o.Listen}, {"internal-listen", o.InternalListen}} {
		if _, port, err := net.SplitHostPort(a.address); err != nil || !isPort(port) {
			found = append(found, fmt.Errorf("--%s cannot be %q: it takes an address and a port, such as 127.0.0.1:17000", a.flag, a.address))
		}
	}
	for _, r := range []struct {
		flag string
		rate int
	}{{"rate-limit-per-key", o.KeyRate}, {"rate-limit-per-ip", o.AddressRate}} {
		if r.rate < 0 {
			found = append(found, fmt.Errorf("--%s cannot be %d: it takes a number of requests, or 0 for no limit", r.flag, r.rate))
		}
	}
	drivers := containerDrivers()
	if driver := string(o.Containers); driver != "" && !slices.Contains(drivers, driver) {
		hint := "it takes " + strings.Join(drivers, ", ")
		if near := diag.Nearest(driver, drivers); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		found = append(found, fmt.Errorf("--containers cannot be %q: %s", driver, hint))
	}
	return found
}

// containerDrivers are what can run containers.
func containerDrivers() []string { return []string{"bubblewrap", "runc", "docker", "podman"} }

// isPort reports whether a port can be listened on. Names of services are left to the system.
func isPort(port string) bool {
	n, err := strconv.Atoi(port)
	return port != "" && (err != nil || n >= 0 && n <= math.MaxUint16)
}

// runDev runs the server. It writes the counts of requests, if requests are shown, and one note when its spec file is
// gone.
func runDev(ctx context.Context, d *server.Dev, o *server.DevOptions, requests *requestLog, stderr io.Writer) error {
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	if o.SpecFile != "" {
		watch.Go(func() { watchGone(watching, o.Clock, o.SpecFile, stderr) })
	}
	if requests != nil {
		watch.Go(func() { requests.follow(watching) })
	}
	told := context.AfterFunc(ctx, func() {
		_, _ = fmt.Fprintf(stderr, "%s stopping: what is under way is answered first\n", timeOfDay(o.Clock))
	})
	err := d.Run(ctx)
	told()
	stop()
	watch.Wait()
	return err
}

// goneInterval is how often the spec file is looked for. It has to be missing twice in a row: some editors remove a
// file and write it again.
const goneInterval = time.Second

// watchGone notes when a file is removed, until the context ends.
func watchGone(ctx context.Context, c clock.Clock, file string, stderr io.Writer) {
	missing := 0
	for c.Wait(ctx, c.Now().Add(goneInterval)) == nil {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			missing = 0
			continue
		}
		if missing++; missing == 2 {
			_, _ = fmt.Fprintf(stderr, "%s %s is gone. The spec that was read from it last stays in place; once the file is there again, it is followed as before\n", timeOfDay(c), fileName(file))
		}
	}
}

// backupFlags say where backups go.
func backupFlags(f *pflag.FlagSet, o *server.Options) {
	f.StringVar(&o.Backups, "backups", "", "`folder` for backups; the data folder's name with -backups behind it if not given")
}

// limitFlags declares the flags that bound what events may set off, how long requests wait, and how much memory caches
// take.
func limitFlags(f *pflag.FlagSet, o *server.Options) {
	limitFlag(f, &o.ImplicationsMaxDepth, "implications-max-depth", decider.DefaultMaxDepth, "how many events long the chains may be that one event sets off")
	limitFlag(f, &o.ImplicationsMaxTotal, "implications-max-total", decider.DefaultMaxImplied, "how many events one event may imply in all")
	limitFlag(f, &o.SagasMax, "sagas-max-per-instance", server.DefaultSagasMax, "how many sagas of an instance run at once; the others queue")
	limitFlag(f, &o.SagasPerWrite, "sagas-max-per-write", server.DefaultSagasPerWrite, "how many sagas one write may start, with all that it implies")
	limitFlag(f, &o.ScheduledMaxPerInstance, "scheduled-max-per-instance", server.DefaultScheduledMax, "how many scheduled events of an instance may wait for their time")
	waitFlag(f, &o.WriteWait, "write-wait", server.DefaultWriteWait, "how long a write may wait for others that look at the same states")
	limitFlag(f, &o.StreamsPerKey, "streams-per-key", server.DefaultStreamsPerKey, "how many event streams an API key may have open")
	limitFlag(f, &o.Streams, "streams", server.DefaultStreams, "how many event streams may be open in all")
	limitFlag(f, &o.ProjectionCacheMiB, "projection-cache", server.DefaultProjectionCacheMiB, "how many `MiB` of memory the values of projections that are kept may take")
	limitFlag(f, &o.StoreCacheMiB, "store-cache", 0, fmt.Sprintf("how many `MiB` of memory blocks of stored data may take, with what was written lately (default 1/%d of the memory, %d to %d)",
		server.StoreCacheOf, server.LeastStoreCacheMiB, server.MostStoreCacheMiB))
	waitFlag(f, &o.ReadWait, "read-wait", server.DefaultReadWait, "how long a read may wait for a state that takes long to compute")
}

// proofFlags say where signed heads of logs are kept.
func proofFlags(f *pflag.FlagSet, o *server.Options) {
	f.BoolVar(&o.PrivateBackups, "allow-private-backups", false, "let S3 servers for backups, and anchors, be at addresses of this machine and of private networks")
	f.StringVar(&o.AuditAnchor, "audit-anchor", "", "`file or URL` that signed heads of the logs of environments are kept in, each hour and at the end")
}

// containerFlags declares the flags that switch containers on.
func containerFlags(f *pflag.FlagSet, o *server.Options) {
	f.StringVar((*string)(&o.Containers), "containers", "", "run custom code in containers with a `driver`: bubblewrap, runc, docker or podman")
	f.BoolVar(&o.ContainerBuildNetwork, "containers-build-network", false, "let the installation of dependencies of uploaded source code use the network")
	f.StringVar(&o.ContainerCgroup, "containers-cgroup", "", "`folder` of the cgroup v2 file system in which bubblewrap's containers get groups, and so shares of the processors")
	f.StringToStringVar(&o.ContainerImages, "containers-image", nil, "`RUNTIME=IMAGE` that docker and podman run source code in, such as node=node:24; can be repeated")
	f.Lookup("containers-image").DefValue = "" // which is not shown
	limitFlag(f, &o.ContainerProcesses, "containers-processes", 16, "how many processes all containers may have together, each of up to 128 MiB")
	limitFlag(f, &o.ContainerDiskMiB, "containers-disk", 8192, "how many `MiB` of the disk what containers consist of may take")
}

// reportDeployment reports what became of a spec file, and when.
func reportDeployment(w io.Writer, c clock.Clock, d server.DeployAttempt) {
	var b strings.Builder
	b.WriteString(diag.Render(d.File, d.Source, d.Found))
	file := timeOfDay(c) + " " + fileName(d.File)
	switch {
	case errors.Is(d.Err, server.ErrInvalidSpec):
		fmt.Fprintf(&b, "%s was not deployed; the spec before it, if any, stays in place\n", file)
	case d.Err != nil:
		fmt.Fprintf(&b, "%s was not deployed: %v\n", file, d.Err)
	default:
		if refused, _ := diag.Count(d.Incompatible); refused > 0 {
			b.WriteString("A real server would refuse these changes, because events that exist already may not survive them:\n")
		}
		if len(d.Incompatible) > 0 {
			b.WriteString(diag.Render(d.File, d.Source, d.Incompatible))
		}
		fmt.Fprintf(&b, "%s is deployed to prod, staging and test%s\n", file, changesOf(d))
		if len(d.Unreached) > 0 {
			fmt.Fprintf(&b, "Nothing is delivered to addresses of this machine, where the spec has listeners (%s), unless there is --allow-private-listeners.\n",
				strings.Join(d.Unreached, ", "))
		}
	}
	_, _ = io.WriteString(w, b.String())
}

// maxChangesShown is how many changes of a spec are named; the others are counted.
const maxChangesShown = 8

// changesOf says what a deployment has changed, "" where there was no spec before.
func changesOf(d server.DeployAttempt) string {
	if !d.Compared {
		return ""
	}
	if len(d.Changes) == 0 {
		return ": nothing in it has changed"
	}
	shown := d.Changes[:min(maxChangesShown, len(d.Changes))]
	var said []string
	for _, c := range shown {
		text := c.What
		if c.Name != "" {
			text += " " + c.Name
		}
		text += " " + string(c.Kind)
		if len(c.Keys) > 0 {
			text += " (" + strings.Join(c.Keys, ", ") + ")"
		}
		said = append(said, printable(text))
	}
	text := ": " + strings.Join(said, "; ")
	if more := len(d.Changes) - len(shown); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// dataOf says where a server has its data.
func dataOf(o *server.Options) string {
	if o.Store.Given() {
		return o.Store.String()
	}
	return o.Dir
}

// printReady shows a person how to use the server; first says what to try.
func printReady(out io.Writer, r server.Ready, data, first string) error {
	var b, rows strings.Builder
	fmt.Fprintf(&b, "\nj17 %s is ready. Its data is in %s.\n\n", r.Version, data)
	for _, env := range j17.Environments() {
		fmt.Fprintf(&rows, "  %s\t%s\n", env, r.URLs[string(env)])
		fmt.Fprintf(&rows, "\twrite key\t%s\n", r.Keys[env].Write)
		fmt.Fprintf(&rows, "\tread key\t%s\n", r.Keys[env].Read)
	}
	fmt.Fprintf(&rows, "  control\t%s\n", r.URLs["control"])
	fmt.Fprintf(&rows, "\toperator\t%s\n", r.Operator.Email)
	fmt.Fprintf(&rows, "\tpassword\t%s\n", r.Operator.Password)
	fmt.Fprintf(&rows, "  internal\t%s\n", r.URLs["internal"])
	if r.LoginLink != "" {
		fmt.Fprintf(&rows, "  dashboard\t%s\n", r.LoginLink)
		fmt.Fprintf(&rows, "\t(signs in once, within an hour; 'j17 dashboard' prints another one)\n")
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(t, rows.String()); err != nil {
		return err
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\n%s", first)
	b.WriteString("\nPress Ctrl-C to stop.\n\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// lockedWriter lets several goroutines write whole lines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes p without output of other goroutines in it.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
