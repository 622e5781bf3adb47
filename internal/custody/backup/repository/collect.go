package repository

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"
)

// A marker shows that a backup is written, or that parts are collected. It is valid for markerLife, by the clock of the
// storage, and is renewed after markerRenewal.
const (
	markerLife    = time.Hour
	markerRenewal = 10 * time.Minute
	// markerLook is how often it is checked whether a collection still runs.
	markerLook = 200 * time.Millisecond
)

// marker is a marker of this repository's own.
type marker struct {
	repository *Repository
	name       string
	// mu guards renewed.
	mu      sync.Mutex
	renewed time.Time
}

func (m *marker) put(ctx context.Context) error {
	s := m.repository.storage
	m.renewed = m.repository.clock.Now()
	err := s.Put(ctx, m.name, nil) // it is empty, so that deleting works on a full disk too
	return describe(s, m.name, "stored", err)
}

// refresh renews the marker if it is due.
func (m *marker) refresh(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.repository.clock.Now().Sub(m.renewed) < markerRenewal {
		return nil
	}
	return m.put(ctx)
}

// removeWait is how long it may take to remove a marker.
const removeWait = 3 * time.Second

// remove removes the marker, without waiting long for a storage that does not answer. A marker that stays expires.
func (m *marker) remove(ctx context.Context) {
	if m != nil {
		ctx, stop := context.WithTimeout(ctx, removeWait)
		defer stop()
		_ = m.repository.storage.Delete(ctx, m.name)
	}
}

// mark puts a marker for a backup that is being written, and waits until no collection runs. A collection puts its
// marker before it looks for those of writers, so one of the two sees the other.
func (r *Repository) mark(ctx context.Context, id string) (*marker, error) {
	m := &marker{repository: r, name: writing + "/" + id}
	if err := m.put(ctx); err != nil {
		return nil, err
	}
	for {
		busy, err := r.live(ctx, collecting, m.name)
		if err == nil && busy {
			err = r.clock.Wait(ctx, r.clock.Now().Add(markerLook))
		}
		if err == nil {
			err = m.refresh(ctx) // keeps our time current, by which markers of a crash expire
		}
		if err != nil {
			m.remove(context.WithoutCancel(ctx))
			return nil, err
		}
		if !busy {
			return m, nil
		}
	}
}

// live reports whether a folder has a valid marker other than our own, whose time is taken as the current time of the
// storage.
func (r *Repository) live(ctx context.Context, folder, own string) (bool, error) {
	now, err := r.written(ctx, own)
	if err != nil {
		return false, err
	}
	for f, err := range r.storage.List(ctx, folder) {
		if err != nil {
			return false, describe(r.storage, folder, "listed", err)
		}
		if f.Name != own && now.Sub(f.Modified) < markerLife {
			return true, nil
		}
	}
	return false, nil
}

// written returns when a file was written, by the clock of the storage.
func (r *Repository) written(ctx context.Context, name string) (at time.Time, err error) {
	for f, err := range r.storage.List(ctx, name) {
		if err != nil {
			return at, describe(r.storage, name, "listed", err)
		}
		at = f.Modified
	}
	return at, nil
}

// Abandon removes the marker of the backup of that id, whose writer was interrupted.
func (r *Repository) Abandon(ctx context.Context, id string) error {
	if !plainName(id) {
		return nil
	}
	name := writing + "/" + id
	return describe(r.storage, name, "deleted", r.storage.Delete(ctx, name))
}

// Collect removes the parts that no backup has, and returns their number and size. While a backup is written it only
// returns ErrBusy. A manifest that cannot be read keeps all parts, since it is unknown which ones it lists.
func (r *Repository) Collect(ctx context.Context) (removed int, bytes int64, err error) {
	// Without parts there is nothing to do, and no place for a marker.
	empty := true
	for _, err := range r.storage.List(ctx, parts) {
		if err != nil {
			return 0, 0, describe(r.storage, parts, "listed", err)
		}
		empty = false
		break
	}
	if empty {
		return 0, 0, nil
	}

	own := &marker{repository: r, name: collecting + "/" + strings.ToLower(rand.Text())}
	if err := own.put(ctx); err != nil {
		return 0, 0, err
	}
	defer own.remove(context.WithoutCancel(ctx))
	for _, others := range []string{writing, collecting} {
		busy, err := r.live(ctx, others, own.name)
		if err != nil {
			return 0, 0, err
		}
		if busy {
			return 0, 0, ErrBusy
		}
	}

	used, err := r.used(ctx)
	if err != nil {
		return 0, 0, err
	}
	for f, err := range r.storage.List(ctx, parts) {
		if err == nil {
			err = own.refresh(ctx)
		}
		if err != nil {
			return removed, bytes, describe(r.storage, parts, "listed", err)
		}
		if used[f.Name[strings.LastIndexByte(f.Name, '/')+1:]] {
			continue
		}
		if err := r.storage.Delete(ctx, f.Name); err != nil {
			return removed, bytes, describe(r.storage, f.Name, "deleted", err)
		}
		removed++
		bytes += f.Bytes
	}
	return removed, bytes, errors.Join(r.sweep(ctx, own.name), r.storage.Sync(ctx))
}

// used returns the names of all parts that a backup has.
func (r *Repository) used(ctx context.Context) (map[string]bool, error) {
	used := map[string]bool{}
	for m, err := range r.each(ctx) {
		if err != nil {
			return nil, err
		}
		for i := range m.Tenants {
			for part := range m.Tenants[i].Parts() {
				used[part.Name] = true
			}
		}
	}
	return used, nil
}

// sweep removes unfinished files of interrupted writers.
func (r *Repository) sweep(ctx context.Context, own string) error {
	now, err := r.written(ctx, own)
	if err != nil {
		return err
	}
	for f, err := range r.storage.List(ctx, temporary) {
		if err == nil && now.Sub(f.Modified) > markerLife {
			err = r.storage.Delete(ctx, f.Name)
		}
		if err != nil {
			return describe(r.storage, temporary, "deleted", err)
		}
	}
	return nil
}
