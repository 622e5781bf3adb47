package pebble_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"j17/internal/storage/pebble"
)

// TestStartOnAFullVolume begins with logs that have to become tables, on a volume or within a quota that others have
// filled: what to do is said, and once it is done, all that was acknowledged is there.
func TestStartOnAFullVolume(t *testing.T) {
	t.Parallel()
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		t.Run(full.Error(), func(t *testing.T) {
			t.Parallel()
			base := vfs.NewCrashableMem()
			s := open(t, pebble.Options{Dir: "data", FS: base, Logger: quiet()})
			w := newWorkload(2000)
			for range 50 {
				if err := w.write(t, s); err != nil {
					t.Fatal(err)
				}
			}
			acked := w.acknowledged()
			clone := base.CrashClone(vfs.CrashCloneCfg{})
			f := fullDisk(writesTo(".sst"))
			f.err = full
			f.on.Store(true)
			_, err := pebble.Open(pebble.Options{Dir: "data", FS: errorfs.Wrap(clone, f), Logger: quiet()})
			if !errors.Is(err, full) || !strings.Contains(err.Error(), "open the data folder data: its volume is full") || !strings.Contains(err.Error(), "free 512 MiB there and start again") {
				t.Fatalf("got %v", err)
			}
			f.on.Store(false)
			w.checkKept(t, clone, acked)
		})
	}
}
