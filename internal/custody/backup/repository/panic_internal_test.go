package repository

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// broken is a folder that panics at each part that is stored or read.
type broken struct {
	*folder
	puts, gets atomic.Bool
}

// Put stores a file.
func (b *broken) Put(ctx context.Context, name string, content []byte) error {
	if b.puts.Load() && strings.HasPrefix(name, parts) {
		panic("a fault")
	}
	return b.folder.Put(ctx, name, content)
}

// Get reads a file.
func (b *broken) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	if b.gets.Load() && strings.HasPrefix(name, parts) {
		panic("a fault")
	}
	return b.folder.Get(ctx, name, limit)
}

// TestAPanicEndsTheBackup lets the storing and the reading of parts panic, on goroutines of their own: the backup, and
// the reading of one, end with an error, and nothing hangs.
func TestAPanicEndsTheBackup(t *testing.T) {
	s := &broken{folder: newFolder(t.TempDir())}
	r := &Repository{storage: s, clock: clock.System{}}
	write := func(id string) (Manifest, error) {
		w, err := r.NewBackup(t.Context(), Head{
			ID: id, Scope: OfEnvironment, Kind: Incremental, CreatedAt: time.Unix(0, 0),
		})
		if err != nil {
			return Manifest{}, err
		}
		defer w.Abort()
		tw := w.Tenant(TenantHead{Tenant: j17.Tenant("ins_1/prod")})
		for i := range 20 {
			text := id + fmt.Sprint(i)
			value := []byte(strings.Repeat(text, itemPartBytes/len(text)+1)) // ends a part
			if err := tw.Item(store.ArchivedItem{
				Space: "s", Item: store.Item{Key: fmt.Sprintf("%09d", i), Value: value},
			}); err != nil {
				return Manifest{}, err
			}
		}
		if err := tw.Close(); err != nil {
			return Manifest{}, err
		}
		return w.Finish(time.Unix(1, 0))
	}
	s.puts.Store(true)
	if _, err := write("bak_1"); err == nil || !strings.Contains(err.Error(), "a fault, in repository/panic_internal_test.go:") {
		t.Errorf("the backup ended with %v", err)
	}
	s.puts.Store(false)
	m, err := write("bak_2")
	if err != nil {
		t.Fatal(err)
	}

	// What was stored is read.
	read := func() (n int, err error) {
		x := &Reader{repository: r, manifest: m}
		for _, err := range x.Items(t.Context(), &m.Tenants[0]) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	if n, err := read(); n != 20 || err != nil {
		t.Fatalf("%d items, %v", n, err)
	}
	s.gets.Store(true)
	if n, err := read(); n != 0 || err == nil || !strings.Contains(err.Error(), "a fault") {
		t.Errorf("with parts that cannot be read: %d items, %v", n, err)
	}
}
