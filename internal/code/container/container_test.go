package container_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"j17/internal/code/container"
	"j17/internal/code/sandbox"
)

// need says loudly that a program is missing. On CI that is a failure.
func need(tb testing.TB, program string) {
	tb.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	const advice = "install it with: make container-tools"
	if os.Getenv("CI") != "" {
		tb.Fatalf("THIS TEST NEEDS THE PROGRAM %s, which is not installed; %s", program, advice)
	}
	tb.Skipf("NOT TESTED: the program %s is not installed; %s", program, advice)
}

// folder returns a folder that the sandbox's user can pass through.
func folder(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, path := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(path, 0o711); err != nil {
			tb.Fatal(err)
		}
	}
	return filepath.Join(dir, "containers")
}

// open returns a runner that closes with the test.
func open(tb testing.TB, opts container.Options) *container.Runner {
	tb.Helper()
	switch opts.Driver {
	case container.Bubblewrap:
		need(tb, "bwrap")
	case container.Runc:
		need(tb, "runc")
	case container.Docker, container.Podman, container.Off:
	}
	if opts.Dir == "" {
		opts.Dir = folder(tb)
	}
	r, err := container.New(tb.Context(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.Close(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

func archiveOf(content []byte) container.Archive {
	return container.Archive{Reader: bytes.NewReader(content), SHA256: sha256.Sum256(content)}
}

type entry struct {
	tar.Header
	content string
}

func file(name, content string) entry {
	return entry{Header: tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}, content: content}
}

func tarOf(tb testing.TB, entries ...entry) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.Typeflag == tar.TypeReg && e.Size == 0 {
			e.Size = int64(len(e.content))
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write([]byte(e.content)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func gzipOf(tb testing.TB, content []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// sources returns an archive of source code.
func sources(tb testing.TB, files map[string]string) container.Archive {
	tb.Helper()
	var entries []entry
	for _, name := range slices.Sorted(maps.Keys(files)) {
		entries = append(entries, file(name, files[name]))
	}
	return archiveOf(gzipOf(tb, tarOf(tb, entries...)))
}

type object = map[string]any

// image returns an OCI archive with layers, which are tar files, and a configuration.
func image(tb testing.TB, config object, layers ...[]byte) []byte {
	tb.Helper()
	var entries []entry
	blob := func(content []byte) object {
		sum := sha256.Sum256(content)
		name := hex.EncodeToString(sum[:])
		entries = append(entries, file("blobs/sha256/"+name, string(content)))
		return object{"digest": "sha256:" + name, "size": len(content)}
	}
	encode := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			tb.Fatal(err)
		}
		return text
	}
	described := []object{}
	for _, layer := range layers {
		described = append(described, blob(layer))
	}
	manifest := blob(encode(object{
		"schemaVersion": 2, "layers": described,
		"config": blob(encode(object{"os": "linux", "architecture": runtime.GOARCH, "config": config})),
	}))
	entries = append(entries, file("oci-layout", `{"imageLayoutVersion":"1.0.0"}`),
		file("index.json", string(encode(object{"schemaVersion": 2, "manifests": []object{manifest}}))))
	return tarOf(tb, entries...)
}

// builtGuest builds the program of testdata/guest, once a test run, and fails where that is not possible.
func builtGuest() func(testing.TB) string {
	var program string
	var err error
	var once sync.Once
	return func(tb testing.TB) string {
		tb.Helper()
		once.Do(func() {
			out := filepath.Join(tb.TempDir(), "guest")
			// The flags are those of make build, so that what it has compiled of the standard library is used.
			build := exec.Command("go", "build", "-trimpath", "-o", out, "./testdata/guest")
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if _, err = build.Output(); err != nil {
				return
			}
			var content []byte
			content, err = os.ReadFile(out)
			program = string(content)
		})
		if err != nil {
			tb.Fatal(err)
		}
		return program
	}
}

// guestProgram is built once, used by tests and benchmarks.
var guestProgram = builtGuest()

// guest returns the layer with the program of testdata/guest as /bin/guest.
func guest(tb testing.TB) []byte {
	tb.Helper()
	return tarOf(tb, entry{
		Header: tar.Header{Name: "bin/guest", Mode: 0o755, Typeflag: tar.TypeReg}, content: guestProgram(tb),
	})
}

func call(tb testing.TB, f sandbox.Function, input string) string {
	tb.Helper()
	answer, err := f.Call(tb.Context(), []byte(input))
	if err != nil {
		tb.Fatalf("%.200s: %v%s", input, err, logOf(err))
	}
	return string(answer)
}

func logOf(err error) string {
	var fault *sandbox.Fault
	if errors.As(err, &fault) && fault.Log != "" {
		return "\n" + fault.Log
	}
	return ""
}

// fails expects a call to fail with a fault of one of some kinds, and returns the fault.
func fails(tb testing.TB, f sandbox.Function, input string, kinds ...sandbox.Kind) *sandbox.Fault {
	tb.Helper()
	answer, err := f.Call(tb.Context(), []byte(input))
	var fault *sandbox.Fault
	if !errors.As(err, &fault) || !slices.Contains(kinds, fault.Kind) || fault.Detail == "" || fault.Hint == "" {
		tb.Fatalf("%.200s: got %.200q and %#v, want a fault of the kinds %s", input, answer, err, kinds)
	}
	return fault
}

func decode(s string, v any) error { return json.Unmarshal([]byte(s), v) }
