package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"j17"
	"j17/internal/code/container"
	"j17/internal/code/sandbox"
	"j17/internal/plane/deploy"
)

// constantModule is a WebAssembly module whose apply_handler always answers the same.
func constantModule(answer string) []byte {
	section := func(id byte, content ...byte) []byte { return append([]byte{id, byte(len(content))}, content...) }
	export := func(name string, kind, index byte) []byte {
		return append(append([]byte{byte(len(name))}, name...), kind, index)
	}
	body := func(code ...byte) []byte { return append([]byte{byte(len(code) + 2), 0}, append(code, 0x0b)...) }
	signed := func(v int64) []byte { // LEB128
		var b []byte
		for {
			c := byte(v & 0x7f)
			v >>= 7
			if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
				return append(b, c)
			}
			b = append(b, c|0x80)
		}
	}
	const at = 2048
	module := binary.LittleEndian.AppendUint32([]byte("\x00asm"), 1)
	// (i32) i32, (i32, i32) i64.
	module = append(module, section(1, 2, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 2, 0x7f, 0x7f, 1, 0x7e)...)
	module = append(module, section(3, 2, 0, 1)...)
	module = append(module, section(5, 1, 0, 1)...)
	exports := append([]byte{3}, export("memory", 2, 0)...)
	exports = append(append(exports, export("malloc", 0, 0)...), export("apply_handler", 0, 1)...)
	module = append(module, section(7, exports...)...)
	code := append([]byte{2}, body(append([]byte{0x41}, signed(at/2)...)...)...)
	code = append(code, body(append([]byte{0x42}, signed(at<<32|int64(len(answer)))...)...)...)
	module = append(module, section(10, code...)...)
	data := append([]byte{1, 0, 0x41}, signed(at)...)
	data = append(append(data, 0x0b, byte(len(answer))), answer...)
	return append(module, section(11, data...)...)
}

func TestModules(t *testing.T) {
	s := &Server{options: Options{Dir: t.TempDir()}}
	modules, containers, err := s.openCode(t.Context())
	if err != nil || containers != nil {
		t.Fatal(containers, err)
	}
	const answer = `{"state":{"a":1}}`
	// The context of a request ends with it; its module lives on.
	ctx, cancel := context.WithCancel(t.Context())
	m, err := modules.Compile(ctx, constantModule(answer))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	f, err := m.Function("apply_handler", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Call(t.Context(), []byte(`{}`)); err != nil || string(got) != answer {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := m.Function("other", 0); !isFault(err) {
		t.Errorf("no such function: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Call(t.Context(), []byte(`{}`)); err == nil {
		t.Error("a closed module answers")
	}
	if _, err := modules.Compile(t.Context(), []byte("text")); !isFault(err) {
		t.Errorf("no module: %v", err)
	}
	if cached, err := filepath.Glob(filepath.Join(s.options.Dir, "cache", "wasm", "*")); err != nil ||
		len(cached) == 0 {
		t.Errorf("machine code is not kept: %v", err)
	}
}

func isFault(err error) bool {
	_, ok := errors.AsType[*sandbox.Fault](err)
	return ok
}

func TestContainerOptions(t *testing.T) {
	s := &Server{options: Options{Dir: t.TempDir(), Containers: "rocket"}}
	if _, _, err := s.openCode(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "bubblewrap, runc, docker or podman") {
		t.Errorf("%v", err)
	}
}

// TestSpareFolder starts containers as root on a fresh data folder, which is closed to their user.
func TestSpareFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root's containers run as somebody else")
	}
	if _, err := exec.LookPath("bwrap"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("THIS TEST NEEDS THE PROGRAM bwrap, which is not installed; install it with: make container-tools")
		}
		t.Skip("NOT TESTED: the program bwrap is not installed; install it with: make container-tools")
	}
	data := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	spare := spareFolder(filepath.Join(data, "cache", "containers"))
	t.Cleanup(func() {
		if err := os.RemoveAll(filepath.Dir(spare)); err != nil {
			t.Error(err)
		}
	})
	var log strings.Builder
	s := &Server{
		options: Options{Dir: data, Containers: container.Bubblewrap, Logger: slog.New(slog.NewTextHandler(&log, nil))},
	}
	if _, _, err := s.openCode(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.runner.Close(); err != nil {
		t.Error(err)
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "level=INFO") ||
		!strings.Contains(log.String(), "folder="+spare) {
		t.Errorf("the log is %q", log.String())
	}
	for dir := spare; dir != "/var/cache"; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err != nil || info.Mode() != os.ModeDir|0o711 {
			t.Error(dir, info, err)
		}
	}
	if other := spareFolder(filepath.Join(t.TempDir(), "cache", "containers")); other == spare {
		t.Error("two data folders share a folder")
	}
	// Where everybody can pass through the data folder, nothing is kept elsewhere.
	open := t.TempDir()
	for _, dir := range []string{open, filepath.Dir(open)} {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	s = &Server{options: Options{Dir: open, Containers: container.Bubblewrap}}
	if _, _, err := s.openCode(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.runner.Close(); err != nil {
		t.Error(err)
	}
	if got := s.runner.Dir(); got != filepath.Join(open, "cache", "containers") {
		t.Error("it uses", got)
	}
}

func TestWithArchive(t *testing.T) {
	closed := false
	archive := &deploy.Archive{SHA256: strings.Repeat("ab", 32), Open: func(context.Context) (io.ReadCloser, error) {
		return closer{strings.NewReader("content"), &closed}, nil
	}}
	_, err := withArchive(t.Context(), archive, func(a container.Archive) (sandbox.Function, error) {
		content, err := io.ReadAll(a.Reader)
		if err != nil || string(content) != "content" || a.SHA256[31] != 0xab || closed {
			t.Errorf("%q %x %v", content, a.SHA256, err)
		}
		return nil, &container.Error{Message: "The archive has no file."}
	})
	if e, ok := errors.AsType[*j17.Error](err); !ok || e.Message != "The archive has no file." || !closed {
		t.Errorf("%v, closed %v", err, closed)
	}
	archive.SHA256 = "ab"
	if _, err := withArchive(t.Context(), archive, nil); err == nil {
		t.Error("a hash of one byte was accepted")
	}
	trouble := errors.New("the disk is full")
	if err := public(trouble); !errors.Is(err, trouble) || j17.CodeOf(err) != j17.CodeInternal {
		t.Errorf("%v", err)
	}
}

type closer struct {
	io.Reader
	closed *bool
}

func (c closer) Close() error {
	*c.closed = true
	return nil
}
