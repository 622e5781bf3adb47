package repository

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// sized is a folder of which nothing more can be stored when it has so many bytes, as on a full disk: an empty file
// needs none.
type sized struct {
	*folder
	mu   sync.Mutex
	left int
}

// Put stores a file where there is room.
func (s *sized) Put(ctx context.Context, name string, content []byte) error {
	s.mu.Lock()
	s.left -= len(content)
	full := s.left < 0 && len(content) > 0
	s.mu.Unlock()
	if full {
		return syscall.ENOSPC
	}
	return s.folder.Put(ctx, name, content)
}

// A backup on a full disk fails, and what it has stored is removed although the disk is full, so that the next one has
// room.
func TestFullDisk(t *testing.T) {
	s := &sized{folder: newFolder(t.TempDir()), left: 1 << 40}
	r := &Repository{storage: s, clock: clock.System{}}
	write := func(id string, items int) error {
		w, err := r.NewBackup(t.Context(), Head{ID: id, Scope: OfEnvironment, Kind: Full, CreatedAt: time.Unix(0, 0)})
		if err != nil {
			return err
		}
		defer w.Abort()
		tw := w.Tenant(TenantHead{Tenant: j17.Tenant("ins_1/prod")})
		for i := range items {
			// Each ends a part, and none is like another one.
			value := []byte(strings.Repeat(fmt.Sprint(i), itemPartBytes))
			if err := tw.Item(store.ArchivedItem{
				Space: "s", Item: store.Item{Key: fmt.Sprintf("%09d", i), Value: value},
			}); err != nil {
				return err
			}
		}
		if err := tw.Close(); err != nil {
			return err
		}
		_, err = w.Finish(time.Unix(1, 0))
		return err
	}
	parts := func() (n int) {
		for _, err := range s.List(t.Context(), parts) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	if err := write("bak_1", 2); err != nil {
		t.Fatal(err)
	}
	before := parts()

	s.left = 500
	if err := write("bak_2", 8); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), s.path) {
		t.Errorf("on a full disk: %v", err)
	}
	if parts() == before {
		t.Error("it has stored nothing: the disk was full too soon")
	}
	removed, _, err := r.Collect(t.Context())
	if err != nil || removed == 0 || parts() != before {
		t.Errorf("%d parts were removed, %d are there, %v", removed, parts(), err)
	}
	all, damaged, err := r.Manifests(t.Context())
	if err != nil || len(all) != 1 || len(damaged) != 0 {
		t.Error(all, damaged, err)
	}
	s.left = 1 << 40
	if err := write("bak_2", 8); err != nil {
		t.Error(err)
	}
}

// passing is a clock whose time passes while somebody waits; often, if not nil, is called each time.
type passing struct {
	*clock.Manual
	often func()
}

// Wait lets the time pass.
func (p *passing) Wait(ctx context.Context, t time.Time) error {
	p.Set(t)
	p.often()
	return ctx.Err()
}

// dated is a folder whose files are dated by a clock.
type dated struct {
	*folder
	clock clock.Clock
	times map[string]time.Time
}

// Put stores a file.
func (d *dated) Put(ctx context.Context, name string, content []byte) error {
	d.times[name] = d.clock.Now()
	return d.folder.Put(ctx, name, content)
}

// List yields files with their times.
func (d *dated) List(ctx context.Context, dir string) iter.Seq2[file, error] {
	return func(yield func(file, error) bool) {
		for f, err := range d.folder.List(ctx, dir) {
			if f.Modified = d.times[f.Name]; !yield(f, err) {
				return
			}
		}
	}
}

// TestWhatACrashOfACollectorLeavesEnds: the marker of one that has ended without removing it holds up a backup no
// longer than it counts.
func TestWhatACrashOfACollectorLeavesEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Unix(1_700_000_000, 0)
	now := &passing{Manual: clock.NewManual(began)}
	now.often = func() {
		if now.Now().Sub(began) > 3*markerLife {
			stop()
		}
	}
	s := &dated{folder: newFolder(t.TempDir()), clock: now, times: map[string]time.Time{}}
	r := &Repository{storage: s, clock: now}
	if err := s.Put(ctx, collecting+"/ended", nil); err != nil {
		t.Fatal(err)
	}
	now.Advance(markerLife / 2)
	m, err := r.mark(ctx, "bak_1")
	if err != nil {
		t.Fatalf("after %s: %v", now.Now().Sub(began), err)
	}
	if waited := now.Now().Sub(began); waited < markerLife {
		t.Errorf("it has waited for %s only", waited)
	}
	m.remove(ctx)
}

// unheard is a folder in which a manifest is stored, and whoever has stored it does not hear of that.
type unheard struct{ *folder }

// Put stores a file.
func (u unheard) Put(ctx context.Context, name string, content []byte) error {
	err := u.folder.Put(ctx, name, content)
	if err == nil && strings.HasPrefix(name, manifests+"/") {
		err = syscall.EIO
	}
	return err
}

// TestABackupThatHasFailedIsNotThere: where nobody knows whether the manifest is stored the backup has failed, and so
// there is none.
func TestABackupThatHasFailedIsNotThere(t *testing.T) {
	r := &Repository{storage: unheard{newFolder(t.TempDir())}, clock: clock.System{}}
	w, err := r.NewBackup(t.Context(), Head{ID: "bak_1", Scope: OfEnvironment, Kind: Full, CreatedAt: time.Unix(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Tenant(TenantHead{Tenant: j17.Tenant("ins_1/prod")}).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(time.Unix(1, 0)); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if all, damaged, err := r.Manifests(t.Context()); len(all)+len(damaged) > 0 || err != nil {
		t.Errorf("there is %+v, %v, %v", all, damaged, err)
	}
}
