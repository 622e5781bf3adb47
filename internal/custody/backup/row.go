package backup

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"j17"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

// The side spaces. Backups of an environment are listed in its own tenant, those of the server in that of the registry.
const (
	// rowSpace holds a Backup under a UUIDv7, idSpace that under the backup's handle.
	rowSpace store.Space = "backup.rows"
	idSpace  store.Space = "backup.ids"
	// unfinishedSpace, of the registry's tenant, names the tenants that may have unfinished backups.
	unfinishedSpace store.Space = "backup.unfinished"
)

// Status is the status of a backup.
type Status string

// The statuses.
const (
	Running   Status = "running"
	Completed Status = "completed"
	Failed    Status = "failed"
)

// Backup is a backup of an environment, or of the whole server.
type Backup struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	// Scope is its tenant; j17.System stands for the whole server.
	Scope j17.Tenant      `json:"scope"`
	Kind  repository.Kind `json:"kind"`
	// Parent is the backup that an incremental one continues from; "" for none.
	Parent    string `json:"parent,omitempty"`
	Encrypted bool   `json:"encrypted,omitempty"`
	// Bytes is how many bytes were newly stored.
	Bytes int64 `json:"bytes,omitempty"`
	// Done and Total count the events that were processed, and all of them.
	Done  uint64 `json:"done,omitempty"`
	Total uint64 `json:"total,omitempty"`
	// Error says why it has failed.
	Error       string    `json:"error,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
	CompletedAt time.Time `json:"completed_at,omitzero"`
	// Moments are the extents of its tenants, without that of the registry.
	Moments []Moment `json:"moments,omitempty"`
	// Place is where it is.
	Place place `json:"place"`
	// Left reports that a failed one may have left files at its place, which have to be removed.
	Left bool `json:"left,omitempty"`

	// key is that of its item, rev its revision when it was read.
	key string
	rev uint64
}

// Moment is the extent of a tenant's events in a backup.
type Moment struct {
	Tenant j17.Tenant `json:"tenant"`
	// Position is that of the last event, Size the number of events, Root that of the log.
	Position j17.StreamID `json:"position"`
	Size     uint64       `json:"size"`
	Root     []byte       `json:"root"`
}

// Of returns the instance and the environment of the backup; "" for the whole server.
func (b *Backup) Of() (instance string, env j17.Environment) { return split(b.Scope) }

// Of returns the instance and the environment of the tenant.
func (m *Moment) Of() (instance string, env j17.Environment) { return split(m.Tenant) }

// Storage returns where the backup is, for people.
func (b *Backup) Storage() string { return b.Place.String() }

// put is the write that stores the backup as it is now.
func (b *Backup) put() (store.Side, error) {
	raw, err := json.Marshal(b)
	return store.Side{Op: store.Put, Space: rowSpace, Key: b.key, Value: raw}, err
}

// rowOf reads the item of a backup.
func rowOf(it *store.Item) (*Backup, error) {
	b := &Backup{key: it.Key, rev: it.Rev}
	if err := json.Unmarshal(it.Value, b); err != nil {
		return nil, &store.CorruptionError{Where: string(rowSpace) + "/" + it.Key, Err: err}
	}
	return b, nil
}

// List returns up to limit backups of a tenant, the newest first, after skipping offset of them.
func (s *Service) List(ctx context.Context, t j17.Tenant, offset, limit int) ([]Backup, error) {
	all := make([]Backup, 0, min(limit, rowPage))
	err := s.rows.each(ctx, t, func(b *Backup) bool {
		if offset > 0 {
			offset--
			return true
		}
		all = append(all, *s.present(b))
		return len(all) < limit
	})
	return all, failure(err)
}

// rowPage is how many backups are read at a time.
const rowPage = 200

// rows are the listed backups.
type rows struct{ store Storage }

// each calls do with the backups of a tenant, the newest first, until it returns false.
func (r rows) each(ctx context.Context, t j17.Tenant, do func(*Backup) bool) error {
	for it, err := range store.Items(ctx, r.store, t, rowSpace, store.Range{Backward: true}, rowPage) {
		if err != nil {
			return err
		}
		b, err := rowOf(it)
		if err != nil || !do(b) {
			return err
		}
	}
	return nil
}

// Get returns a backup of a tenant; CodeNotFound if there is none of that id.
func (s *Service) Get(ctx context.Context, t j17.Tenant, id string) (Backup, error) {
	b, err := s.rows.find(ctx, t, id)
	if err != nil {
		return Backup{}, failure(err)
	}
	return *s.present(b), nil
}

func (r rows) find(ctx context.Context, t j17.Tenant, id string) (*Backup, error) {
	it, err := r.store.Get(ctx, t, idSpace, id)
	if err == nil {
		it, err = r.store.Get(ctx, t, rowSpace, string(it.Value))
	}
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
		return nil, j17.Errorf(j17.CodeNotFound, "There is no backup %s here. GET backups lists those of an environment, GET /api/backups those of the whole server.", j17.Printable(id))
	}
	if err != nil {
		return nil, err
	}
	return rowOf(&it)
}

// present fills in the progress of a backup.
func (s *Service) present(b *Backup) *Backup {
	if b.Status != Running {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range append(slices.Clone(s.waiting), s.active[b.Scope]) {
		if j != nil && j.row.ID == b.ID {
			b.Done, b.Total, b.Bytes = j.done.Load(), j.total.Load(), j.bytes.Load()
		}
	}
	return b
}

// removed are the writes that remove a backup from the list.
func (b *Backup) removed() []store.Side {
	return []store.Side{{Op: store.Delete, Space: rowSpace, Key: b.key}, {Op: store.Delete, Space: idSpace, Key: b.ID}}
}
