package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"j17/internal/code/sandbox"
)

// runtimes returns the program of each runtime.
func programOf(runtime string) string {
	switch runtime {
	case "python":
		return "python3"
	case "node", "ruby", "elixir":
		return runtime
	default:
		return ""
	}
}

// Source returns the function of a file in an archive of source code (tar, tar.gz or zip) for a runtime: "node",
// "python", "ruby" or "elixir". The dependencies that a lockfile names are installed once for each archive. The file is
// loaded once to see that it can be. The error is an *Error where the archive or the options are at fault.
func (r *Runner) Source(
	ctx context.Context, runtime string, archive Archive, entrypoint string,
) (sandbox.Function, error) {
	if err := r.off(); err != nil {
		return nil, err
	}
	if programOf(runtime) == "" {
		return nil, refuse("There is no runtime %q. Choose node, python, ruby or elixir.", runtime)
	}
	if !filepath.IsLocal(entrypoint) || path.Clean(entrypoint) != entrypoint || entrypoint == "." {
		return nil, refuse("The entry point %q is no path of a file in the archive. Write it as in \"implications/order.js\".", entrypoint)
	}

	j, err := r.runtimeJob(runtime)
	if err != nil {
		return nil, err
	}

	// The same archive is built once for each runtime.
	sum := sha256.Sum256([]byte(runtime + "\n" + string(archive.SHA256[:])))
	key := hex.EncodeToString(sum[:])
	dir, release, err := r.content(ctx, "sources", key, func(ctx context.Context, dir string) error {
		return r.buildSource(ctx, runtime, archive, dir)
	})
	if err != nil {
		return nil, err
	}

	app := filepath.Join(dir, "app")
	if err := isFile(app, entrypoint); err != nil {
		release()
		return nil, err
	}

	// The script of the runtime loads the entry point.
	j.mounts = append(j.mounts, mount{app, "/app"})
	j.dir = "/app"
	j.args = append(j.args, "/j17/"+bootstrapFor(runtime), "/app/"+entrypoint)
	if runtime == "node" { // which cannot do that itself
		j.args = append([]string{"/bin/sh", "-c", `exec "$@" 3<&0 4>&1 </dev/null >&2`, "sh"}, j.args...)
	}

	f := r.function(j, "source", runtime, key, entrypoint)
	f.greets = true
	f.holds(release)
	return f, f.loadOnce(ctx, filepath.Join(dir, "loads-"+hex.EncodeToString(f.digest[:])), runtime, entrypoint)
}

// contract says what a file of source code has to have.
func contract(runtime string) string {
	also := ""
	if runtime == "node" {
		also = " or a default export,"
	}
	return "The file needs a function compute_implications(input) or handler(input)," + also +
		" which is called for every event and returns the answer; nothing comes through standard input."
}

// isFile reports whether a name stands for a file in a folder, with an *Error where it does not.
func isFile(dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if info, err := root.Stat(name); err != nil || !info.Mode().IsRegular() {
		return refuse("The archive has no file %q, which the spec names as the entry point.", name)
	}
	return nil
}

// loadOnce starts a worker to see whether the code can be loaded, unless the file marker is there.
func (f *function) loadOnce(ctx context.Context, marker, runtime, entrypoint string) error {
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	w, err := f.startWorker(ctx)
	if fault, ok := errors.AsType[*sandbox.Fault](err); ok && fault.Kind != sandbox.Busy {
		return &Error{Message: strings.TrimSpace(fmt.Sprintf("The entry point %q cannot be loaded: %s. %s %s\n%s", entrypoint, fault.Detail, fault.Hint, contract(runtime), fault.Log)), Err: err}
	}
	if err != nil {
		return err
	}
	f.keep(w)
	return os.WriteFile(marker, nil, 0o600)
}

// runtimeJob returns a job that runs a runtime's program.
func (r *Runner) runtimeJob(runtime string) (*job, error) {
	program := programOf(runtime)
	j := r.hostJob(nil)

	// Where the program is: in an image of the engine, or on this machine.
	if e, ok := r.driver.(*engine); ok {
		reference := r.opts.Images[runtime]
		if reference == "" {
			return nil, refuse("The container driver %s needs an image to run %s in. The operator names one with --containers-image %s=IMAGE.", r.opts.Driver, runtime, runtime)
		}
		id, _, err := e.inspect(context.WithoutCancel(r.life), reference)
		if err != nil {
			return nil, err
		}
		j.reference = id
	} else {
		at, err := hostProgram(program)
		if err != nil {
			return nil, &Error{Message: fmt.Sprintf("The runtime %s is not installed on this server: there is no program %s below /usr. Install it, for example with: apt-get install %s",
				runtime, program, map[string]string{
					"node": "nodejs", "python": "python3", "ruby": "ruby", "elixir": "elixir",
				}[runtime]), Err: err}
		}
		program = at
	}

	// How the runtime is called.
	j.mounts = []mount{{r.boot, "/j17"}}
	j.args = []string{program}
	switch runtime {
	case "node":
		j.args = append(j.args, "--max-old-space-size="+strconv.FormatInt(max(16, r.opts.Memory>>20*3/4), 10))
		j.env = append(j.env, "NODE_ENV=production")
	case "python":
		j.args = append(j.args, "-I", "-B", "-S")
	case "ruby":
		j.env = append(
			j.env, "BUNDLE_GEMFILE=/app/Gemfile", "BUNDLE_PATH=/app/vendor/bundle", "BUNDLE_FROZEN=true",
			"BUNDLE_APP_CONFIG=/tmp/.bundle",
		)
	default:
		// A single scheduler, without busy waiting.
		j.env = append(j.env, "MIX_ENV=prod", "ELIXIR_ERL_OPTIONS=+S 1:1 +SDio 1 +A 1 +sbwt none +sbwtdcpu none +sbwtdio none +fnu")
	}
	return j, nil
}

// hostProgram returns the path of a program in the folders that a sandbox sees.
func hostProgram(name string) (string, error) {
	for _, dir := range []string{"/usr/local/bin", "/usr/bin"} {
		at := filepath.Join(dir, name)
		real, err := filepath.EvalSymlinks(at)
		if err == nil && strings.HasPrefix(real, "/usr/") {
			return at, nil
		}
	}
	return "", exec.ErrNotFound
}

// buildSource makes dir/app from an archive of source code.
func (r *Runner) buildSource(ctx context.Context, runtime string, archive Archive, dir string) error {
	scratch, done, err := r.stage()
	if err != nil {
		return err
	}
	defer done()
	file, err := archive.save(scratch, r.limits.packed)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()

	// All writes go through an os.Root, which no name in the archive can escape.
	app := filepath.Join(dir, "app")
	if err := makeFolder(app); err != nil {
		return err
	}
	root, err := os.OpenRoot(app)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()

	t := &tree{root: root, limits: r.limits}
	if err := t.unpackSource(ctx, file); err != nil {
		return err
	}
	if err := t.open(); err != nil {
		return err
	}

	// What it depends on is installed by the package manager of the runtime, if it is not in the archive.
	script, err := buildScript(runtime, root, r.opts.BuildNetwork)
	if err != nil || script == "" {
		return err
	}
	if err := r.build(ctx, runtime, app, script, t); err != nil {
		return err
	}
	return t.open()
}

func (t *tree) unpackSource(ctx context.Context, file *os.File) error {
	var magic [4]byte
	if n, err := file.ReadAt(magic[:], 0); n == len(magic) && string(magic[:]) == "PK\x03\x04" {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		return t.unzip(ctx, file, info.Size())
	} else if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	content, err := decompress(file)
	if err != nil {
		return err
	}
	return t.untar(ctx, content)
}

// buildScript returns the commands that install what the lockfile of an application names, "" where there is nothing to
// install. They run in a writable copy of the application and write their result, as a tar file, to standard output.
// Without a network they do not try to reach one.
func buildScript(runtime string, root *os.Root, network bool) (string, error) {
	has := func(name string) bool {
		_, err := root.Lstat(name)
		return err == nil
	}

	npmOffline, pipOffline := " --offline", " --no-index"
	if network {
		npmOffline, pipOffline = "", ""
	}

	// Locked dependencies only: those that the author has tested are installed.
	switch runtime {
	case "node":
		switch {
		case has("node_modules"):
			return "", nil
		case has("package-lock.json"), has("npm-shrinkwrap.json"):
			return "npm ci --ignore-scripts --omit=dev --no-audit --no-fund --no-update-notifier --cache /build/.npm" + npmOffline + " >&2 && mkdir -p node_modules && tar -cf - node_modules", nil
		case has("yarn.lock"), has("pnpm-lock.yaml"):
			return "", refuse("The archive locks its dependencies for yarn or pnpm. Add a package-lock.json (npm install --package-lock-only), or the folder node_modules.")
		}
	case "python":
		for _, lock := range []string{"requirements.lock", "requirements.txt"} {
			if has(lock) {
				return "python3 -m pip install --disable-pip-version-check --no-cache-dir --no-compile --only-binary :all: --require-hashes --target .packages -r " + lock + pipOffline +
					" >&2 && mkdir -p .packages && tar -cf - .packages", nil
			}
		}
	case "ruby":
		if has("Gemfile.lock") && !has("vendor/bundle") {
			return "BUNDLE_GEMFILE=/build/src/Gemfile BUNDLE_PATH=/build/src/vendor/bundle BUNDLE_FROZEN=true bundle install >&2 && tar -cf - vendor/bundle", nil
		}
	case "elixir":
		if has("mix.lock") && !has("_build") {
			return "mix local.hex --force --if-missing >&2 && mix local.rebar --force --if-missing >&2 && mix deps.get --only prod --check-locked >&2 && mix compile >&2 && tar -chf - _build", nil
		}
	}
	return "", nil
}

// build runs a script on a copy of the application in a sandbox, and adds what it has made to the application.
func (r *Runner) build(ctx context.Context, runtime, app, script string, t *tree) error {
	j, err := r.runtimeJob(runtime)
	if err != nil {
		return err
	}
	j.mounts, j.network = []mount{{app, "/app"}}, r.opts.BuildNetwork
	j.memory, j.tasks, j.file, j.build = buildMemory, buildTasks, buildMemory, buildMemory
	j.dir = "/build"
	j.env = override(j.env, "HOME=/build", "TMPDIR=/build")
	j.args = []string{"/bin/sh", "-c", "mkdir src && cp -R /app/. src && cd src && " + script}
	log, err := r.output(ctx, j, buildTimeout, func(out io.Reader) error { return t.untar(ctx, out) })
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var refused *Error
	if errors.As(err, &refused) && !isExit(err) && log == "" {
		return err
	}
	hint := ""
	if !r.opts.BuildNetwork {
		hint = " The build has no network on this server; its operator can give it one with the setting container_build_network, or the archive can bring its dependencies along."
	}
	if errors.Is(err, context.DeadlineExceeded) {
		log = fmt.Sprintf("it took longer than %v\n%s", buildTimeout, log)
	}
	return &Error{Message: fmt.Sprintf("The dependencies of the %s code cannot be installed.%s The build wrote:\n%s", runtime, hint, log), Err: err}
}

func isExit(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit)
}
