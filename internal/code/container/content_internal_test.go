package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"j17/internal/base/clock"
)

// filled returns a function that makes content of a size.
func filled(size int) func(context.Context, string) error {
	return func(_ context.Context, dir string) error {
		return os.WriteFile(filepath.Join(dir, "content"), make([]byte, size), 0o600)
	}
}

// keeper is a Runner that can keep content, and nothing else.
func keeper(t *testing.T, content int64) (*Runner, *clock.Manual) {
	t.Helper()
	now := clock.NewManual(time.Unix(1_700_000_000, 0))
	r := &Runner{
		opts: Options{Dir: t.TempDir(), Content: content, Clock: now}.withDefaults(), life: t.Context(),
		unpack: make(chan struct{}, 1), held: map[string]int{},
	}
	for _, name := range []string{"images", "sources", "staging"} {
		if err := os.Mkdir(filepath.Join(r.opts.Dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r, now
}

func (r *Runner) names(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, kind := range []string{"images", "sources", "staging"} {
		entries, err := os.ReadDir(filepath.Join(r.opts.Dir, kind))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			names = append(names, kind+"/"+entry.Name())
		}
	}
	return names
}

// TestContentIsBounded adds content beyond the bound: what was used least lately goes, what is in use stays.
func TestContentIsBounded(t *testing.T) {
	const piece = 1 << 20
	r, now := keeper(t, 3*piece+piece/2)
	add := func(kind, key string, size int) (func(), error) {
		now.Advance(time.Minute)
		_, release, err := r.content(t.Context(), kind, key, filled(size))
		return release, err
	}
	must := func(kind, key string) func() {
		t.Helper()
		release, err := add(kind, key, piece)
		if err != nil {
			t.Fatal(err)
		}
		return release
	}
	want := func(names ...string) {
		t.Helper()
		if got := r.names(t); !slices.Equal(got, names) {
			t.Errorf("there is %q, want %q", got, names)
		}
	}
	a, b, c := must("images", "a"), must("sources", "b"), must("images", "c")
	b()
	c()
	must("sources", "b")() // used again
	must("images", "d")()
	want("images/a", "images/d", "sources/b")
	must("images", "e")()
	want("images/a", "images/d", "images/e")
	// Where all is in use there is no room, and nothing of the new content stays.
	d, e := must("images", "d"), must("images", "e")
	var refusal *Error
	if _, err := add("sources", "f", piece); !errors.As(err, &refusal) {
		t.Errorf("got %v", err)
	}
	want("images/a", "images/d", "images/e")
	a()
	d()
	e()
	if len(r.held) != 0 {
		t.Error(r.held)
	}
	must("sources", "f")()
	want("images/d", "images/e", "sources/f")
}

// TestFunctionsHoldTheirContent drops the last reference to a function.
func TestFunctionsHoldTheirContent(t *testing.T) {
	r, _ := keeper(t, 1)
	released := make(chan struct{})
	f := r.function(&job{})
	f.holds(func() { close(released) })
	runtime.GC()
	select {
	case <-released:
		t.Error("released while there is the function")
	default:
	}
	runtime.KeepAlive(f)
	for {
		runtime.GC()
		select {
		case <-released:
			return
		case <-t.Context().Done():
			t.Fatal("never released")
		default:
		}
	}
}

func TestSpareFoldersOfGoneServers(t *testing.T) {
	top := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{top}, names...)...) }
	do := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	do(os.MkdirAll(at("alive", "cache", "containers"), 0o700))
	spare := func(name, data string) string {
		t.Helper()
		dir := at("cache", name, "containers")
		do(os.MkdirAll(filepath.Join(dir, "images", "one"), 0o711))
		if data != "" {
			do(os.WriteFile(filepath.Join(dir, noteFile), []byte(filepath.Join(data, "cache", "containers")), 0o600))
		}
		return dir
	}
	removed := spare("gone", at("gone"))
	kept := []string{
		spare("alive", at("alive")), spare("away", at("disk", "data")), spare("unknown", ""), spare("relative", "gone"),
		spare("other", at("gone")), spare("used", at("gone")),
	}
	do(os.WriteFile(filepath.Join(kept[4], "letters"), nil, 0o600))
	used, err := os.OpenFile(filepath.Join(kept[5], noteFile), os.O_RDWR, 0)
	if err != nil || !lock(used) {
		t.Fatal("no lock", err)
	}
	defer func() { _ = used.Close() }()

	r := &Runner{opts: Options{Spare: spare("own", "")}}
	do(r.ownSpare(at("alive", "cache", "containers")))
	defer r.letGo()
	if !gone(filepath.Dir(removed)) {
		t.Error("the folder of a server that is gone stays")
	}
	for _, dir := range append(kept, r.opts.Spare) {
		if gone(filepath.Join(dir, "images", "one")) {
			t.Error(dir, "was removed")
		}
	}
	if text, err := os.ReadFile(filepath.Join(r.opts.Spare, noteFile)); err != nil ||
		string(text) != at("alive", "cache", "containers") {
		t.Errorf("%q, %v", text, err)
	}
	// A server that is removed itself is known by the next one.
	if err := removeSpare(r.opts.Spare); err == nil {
		t.Error("the folder of a server that runs is not locked")
	}
}
