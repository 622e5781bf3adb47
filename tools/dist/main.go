// Command dist builds a release into the folder dist: an archive for each platform with the program and all licences, a
// list of what is linked in (CycloneDX), llms-full.txt, and the checksums of these files:
//
//	dist [OS/ARCHITECTURE ...]
//
// The same commit gives the same bytes with the same version of Go, wherever it is built: paths are trimmed, and files
// have the commit's time, fixed modes, no owner and a fixed order. It runs in the root of the repository.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxProgram is what the program may take, in bytes. CONTRIBUTING.md says what it is made of, and how to find out.
const maxProgram = 44 << 20

// release is what is built.
type release struct {
	version string
	// revision is the commit, "" outside of a clone. Its end says where files have been changed since.
	revision string
	modified time.Time
	// env are the variables of the Go command, without what a user's settings could change in the program.
	env []string
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run returns the exit code.
func run(ctx context.Context, platforms, env []string, stdout, stderr io.Writer) int {
	if len(platforms) == 0 {
		platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}
	}
	if err := build(ctx, platforms, env, stdout, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func build(ctx context.Context, platforms, env []string, stdout, stderr io.Writer) error {
	// What is built, into an empty folder.
	r, err := current(ctx, env)
	if err != nil {
		return err
	}
	if err := os.RemoveAll("dist"); err != nil {
		return err
	}
	if err := os.Mkdir("dist", 0o755); err != nil { //nolint:gosec // for everybody to read
		return err
	}

	for _, platform := range platforms {
		goos, arch, ok := strings.Cut(platform, "/")
		if !ok {
			return fmt.Errorf("%q is no platform. Name it as linux/amd64", platform)
		}
		if err := r.platform(ctx, goos, arch, stderr); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}

	pages, err := r.command(
		ctx, runtime.GOOS, runtime.GOARCH, "run", "-trimpath", "-buildvcs=false", "./cmd/j17", "docs", "--llms-full",
	)
	if err != nil {
		return err
	}
	if err := r.write("llms-full.txt", pages); err != nil {
		return err
	}
	sums, err := checksums("dist")
	if err != nil {
		return err
	}
	_, _ = stdout.Write(sums)
	return r.write("SHA256SUMS", sums)
}

// current describes the release that the repository's files are.
func current(ctx context.Context, env []string) (*release, error) {
	source, err := os.ReadFile("cmd/j17/version.go")
	if err != nil {
		return nil, err
	}
	found := regexp.MustCompile(`(?m)^const programVersion = "(.*)"$`).FindSubmatch(source)
	if found == nil {
		return nil, fmt.Errorf("cmd/j17/version.go does not say the version")
	}
	r := &release{version: string(found[1]), modified: time.Unix(946684800, 0)}

	// Flags and architecture levels of a user's own would change the program.
	r.env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{
			"GOFLAGS", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140", "CGO_ENABLED", "GOWORK",
		}, name)
	})
	r.env = append(r.env, "CGO_ENABLED=0", "GOENV=off", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0")

	// The commit and its time. Outside of a clone all files get one and the same time.
	about, err := r.output(ctx, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return r, nil //nolint:nilerr // the source may have come without its history
	}
	commit, at, _ := strings.Cut(strings.TrimSpace(string(about)), " ")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return nil, err
	}
	r.revision, r.modified = commit, time.Unix(seconds, 0)
	changed, err := r.output(ctx, "git", "status", "--porcelain")
	if len(changed) > 0 {
		r.revision += "+modified"
	}
	return r, err
}

// platform builds the archive for a platform, and the list of what is linked into its program.
func (r *release) platform(ctx context.Context, goos, arch string, stderr io.Writer) error {
	name := fmt.Sprintf("j17_%s_%s_%s", r.version, goos, arch)
	_, _ = fmt.Fprintln(stderr, "building", name)

	// The program.
	work, err := os.MkdirTemp("", "j17-dist-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	file := filepath.Join(work, "j17")
	flags := "-s -w -buildid= -X main.revision=" + r.revision
	if _, err := r.command(
		ctx, goos, arch, "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", file, "./cmd/j17",
	); err != nil {
		return err
	}
	program, err := os.ReadFile(file) //nolint:gosec // the file that was just made
	if err != nil {
		return err
	}
	if len(program) > maxProgram {
		return fmt.Errorf("the program takes %d bytes, of at most %d. CONTRIBUTING.md says how to find out what it is made of", len(program), maxProgram)
	}

	// What is linked in, and under which licences.
	linked, err := r.linked(ctx, goos, arch, file)
	if err != nil {
		return err
	}
	bill, err := r.bill(goos+"/"+arch, sha256.Sum256(program), linked)
	if err != nil {
		return err
	}
	if err := r.write(name+".cdx.json", bill); err != nil {
		return err
	}

	// The archive.
	files := map[string][]byte{"THIRD_PARTY_LICENSES": texts(linked)}
	more := []string{"LICENSE", "README.md", "CHANGELOG.md"}
	if goos == "linux" {
		more = append(more, "packaging/j17.service")
	}
	for _, path := range more {
		//nolint:gosec // the repository's own files
		if files[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			return err
		}
	}
	packed, err := archive(name, r.modified, program, files)
	if err != nil {
		return err
	}
	return r.write(name+".tar.gz", packed)
}

// write makes a file of the release.
func (*release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join("dist", name), content, 0o644) //nolint:gosec // for everybody to read
}

// checksums lists the checksums of the files in a folder as sha256sum does.
func checksums(folder string) ([]byte, error) {
	entries, err := os.ReadDir(folder) // in the order of their names
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(folder, entry.Name())) //nolint:gosec // a file of the release
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return b.Bytes(), nil
}

// command runs the Go command for a platform, and returns what it prints.
func (r *release) command(ctx context.Context, goos, arch string, args ...string) ([]byte, error) {
	on := *r
	on.env = append(slices.Clone(r.env), "GOOS="+goos, "GOARCH="+arch)
	return on.output(ctx, "go", args...)
}

// output runs a program and returns what it prints.
func (r *release) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // git, and the Go command
	cmd.Env = r.env
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, args[0], err, cmp.Or(errs.String(), "It printed nothing."))
	}
	return out, nil
}
