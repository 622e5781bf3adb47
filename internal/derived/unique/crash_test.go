package unique_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// crashes takes a copy of what would be on disk, before some of the writes to it.
type crashes struct {
	fs     *vfs.MemFS
	r      *rand.Rand
	mu     sync.Mutex
	writes int
	copies []crash
	// acknowledged is how many events have been.
	acknowledged atomic.Int64
}

// crash is what is on disk, and how many events had been acknowledged then.
type crash struct {
	fs           *vfs.MemFS
	acknowledged int64
}

func (c *crashes) String() string { return "crashes" }

// MaybeError is called before each operation.
func (c *crashes) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes++; c.writes%6 == 0 {
		acknowledged := c.acknowledged.Load()
		c.copies = append(c.copies, crash{
			c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.r.IntN(101), RNG: c.r}), acknowledged,
		})
	}
	return nil
}

// TestCrashes takes the power away while users take addresses, transfer them, and sets are deployed over what they
// have: whatever is on disk then, all that was acknowledged is there, and those hold values who do by the events. It is
// the disk of the embedded store, of which copies can be taken.
func TestCrashes(t *testing.T) {
	const looked = 100
	c := &crashes{fs: vfs.NewCrashableMem(), r: rand.New(rand.NewPCG(7, 7))}
	h := &house{tb: t, Fixture: enginetest.NewOn(t, testopen.Embedded(errorfs.Wrap(c.fs, c)), engine.Options{})}
	h.open()
	h.unique.Pages(5, 3)
	r := rand.New(rand.NewPCG(8, 8))
	for _, src := range []string{plain, unlike, plain, unlike} {
		if err := h.deploy(src, true); err != nil {
			t.Fatal(err)
		}
		h.settle()
		for range 30 {
			n, email := r.IntN(6), fmt.Sprint("a", r.IntN(5))
			var err error
			switch r.IntN(5) {
			case 0:
				err = h.post(n, "was_deleted", `{}`)
			case 1: // what one gives back the other one takes
				if err = h.post(n, "was_deleted", `{}`); err == nil {
					c.acknowledged.Add(1)
				}
				fallthrough
			default:
				err = h.post((n+1)%6, "was_registered", `{"email":"`+email+`"}`)
			}
			if _, no := refused(t, err); !no {
				c.acknowledged.Add(1)
			}
		}
	}
	if err := h.Store.Close(); err != nil {
		t.Fatal(err)
	}

	// Some of the copies, each opened as after a crash.
	c.r.Shuffle(len(c.copies), func(i, j int) { c.copies[i], c.copies[j] = c.copies[j], c.copies[i] })
	enforced := 0
	for i, at := range c.copies[:min(len(c.copies), looked)] {
		again := &house{tb: t, Fixture: enginetest.NewOn(t, testopen.Embedded(at.fs), engine.Options{})}
		again.Clock.Advance(100 * time.Second) // leases are over
		again.open()
		err := again.adopt()
		if errors.Is(err, store.ErrNotFound) {
			_ = again.Store.Close()
			continue // nothing was deployed yet
		}
		if err == nil {
			err = again.unique.Adopt(t.Context(), enginetest.Tenant)
		}
		if err != nil {
			t.Fatal(err)
		}
		again.settle()
		extent, err := again.Store.Extent(t.Context(), enginetest.Tenant)
		if err != nil || int64(extent.Events) < at.acknowledged {
			t.Fatalf("copy %d has %d events, and %d were acknowledged: %v", i, extent.Events, at.acknowledged, err)
		}
		if left := again.items("unique.fillings"); len(left) > 0 {
			t.Fatalf("copy %d: there is still %v", i, left)
		}
		if len(again.generations()) > 0 {
			enforced++
			held, _ := again.replay()
			again.check(held, fmt.Sprint("copy ", i))
			for email, n := range held {
				if holder, no := refused(t, again.post(9, "was_registered", `{"email":"`+email+`"}`)); !no ||
					holder != "user:"+id(n) {
					t.Fatalf("copy %d: %s is refused for %q, and %d holds it", i, email, holder, n)
				}
			}
		} else if left := again.items("unique.held"); len(left) > 0 {
			t.Fatalf("copy %d: nothing is unique, and there is still %v", i, left)
		}
		if err := again.Store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if enforced < 3 {
		t.Errorf("only %d of %d copies have sets in force", enforced, len(c.copies))
	}
}

// TestSetsThatAreMissing puts sets into force that what is deployed should have: as after a restoration to an earlier
// moment, which brings no items along. Until then nothing is written that would take a value.
func TestSetsThatAreMissing(t *testing.T) {
	h := newHouse(t, unlike)
	h.must(1, "was_registered", `{"email":"a"}`)
	h.must(2, "was_registered", `{"email":"b"}`)
	for _, space := range []store.Space{"unique.sets", "unique.value", "unique.held"} {
		for key := range h.items(space) {
			if err := h.Store.Write(t.Context(), enginetest.Tenant, []store.Side{
				{Op: store.Delete, Space: space, Key: key},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := h.adopt(); err != nil {
		t.Fatal(err)
	}
	if err := h.post(3, "was_registered", `{"email":"a"}`); j17.CodeOf(err) != j17.CodeIndexNotReady {
		t.Fatalf("before it is known who holds what: %v", err)
	}
	h.must(3, "had_note", `{}`)

	// What has failed succeeds when it is tried again.
	ended, end := context.WithCancel(t.Context())
	end()
	if err := h.unique.Adopt(ended, enginetest.Tenant); !errors.Is(err, context.Canceled) {
		t.Fatalf("without time: %v", err)
	}
	for range 2 {
		if err := h.unique.Adopt(t.Context(), enginetest.Tenant); err != nil {
			t.Fatal(err)
		}
		h.check(map[string]int{"a": 1, "b": 2}, "adopted")
	}
	if holder, no := refused(t, h.post(3, "was_registered", `{"email":"a"}`)); !no || holder != "user:"+id(1) {
		t.Fatalf("refused for %q", holder)
	}
}
