package container_test

import (
	"os"
	"path/filepath"
	"testing"

	"j17/internal/code/container"
)

// TestSpareFolder runs containers as root with a folder that their user cannot get to.
func TestSpareFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root's containers run as somebody else")
	}
	need(t, "bwrap")
	closed := filepath.Join(filepath.Dir(folder(t)), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, spare := filepath.Join(closed, "containers"), folder(t)
	if _, err := container.New(t.Context(), container.Options{Driver: container.Bubblewrap, Dir: dir}); err == nil {
		t.Error("it works without a spare folder")
	} else {
		refused(t, err, "chmod o+x "+closed)
	}
	r := open(t, container.Options{Driver: container.Bubblewrap, Dir: dir, Spare: spare})
	if r.Dir() != spare {
		t.Error("it uses", r.Dir())
	}
	if got := call(t, program(t, r, "leave"), "1"); got != "2" {
		t.Error(got)
	}
	// A spare folder that is not safe is not used.
	if err := os.Chmod(spare, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := container.New(t.Context(), container.Options{Driver: container.Bubblewrap, Dir: dir, Spare: spare})
	refused(t, err, "chmod o+x "+closed)
	// Nor is one that is not needed.
	fine := folder(t)
	if r := open(t, container.Options{
		Driver: container.Bubblewrap, Dir: fine, Spare: filepath.Join(filepath.Dir(spare), "other"),
	}); r.Dir() != fine {
		t.Error("it uses", r.Dir())
	}
}
