package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"j17"
	"j17/internal/storage/store"
)

// list is a list of rows in the order in which they were added, with an index by id.
type list[T any] struct {
	store store.Sides
	// rows has them under their numbers and ids, ids the keys of these by id.
	rows, ids store.Space
}

// numbered is a row with its key.
type numbered[T any] struct {
	key string
	row T
}

// add returns the writes that add a row at the end. The caller holds the turn until they are written.
func (l *list[T]) add(ctx context.Context, t j17.Tenant, id string, row *T) ([]store.Side, error) {
	last, err := l.store.Scan(ctx, t, l.rows, store.Range{Backward: true}, 1)
	if err != nil {
		return nil, store.UserError(err)
	}
	number := uint64(1)
	if len(last) > 0 {
		text, _, _ := strings.Cut(last[0].Key, "/")
		n, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			return nil, store.UserError(l.damaged(last[0].Key, err))
		}
		number = n + 1
	}
	raw, err := json.Marshal(row)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%016x/%s", number, id)
	return []store.Side{
		{Op: store.Put, Space: l.rows, Key: key, Value: raw, Cond: store.IfAbsent},
		{Op: store.Put, Space: l.ids, Key: id, Value: []byte(key), Cond: store.IfAbsent},
	}, nil
}

// get returns a row by its id, nil if there is none.
func (l *list[T]) get(ctx context.Context, t j17.Tenant, id string) (*numbered[T], error) {
	if id == "" || len(id) > store.MaxNameBytes {
		return nil, nil //nolint:nilnil // stated
	}
	at, err := l.store.Get(ctx, t, l.ids, id)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
		return nil, nil //nolint:nilnil // stated
	}
	if err != nil {
		return nil, store.UserError(err)
	}
	item, err := l.store.Get(ctx, t, l.rows, string(at.Value))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil //nolint:nilnil // it was removed between the two looks
	}
	if err != nil {
		return nil, store.UserError(err)
	}
	return l.read(&item)
}

// remove returns the writes that remove a row.
func (l *list[T]) remove(key string) []store.Side {
	_, id, _ := strings.Cut(key, "/")
	return []store.Side{{Op: store.Delete, Space: l.rows, Key: key}, {Op: store.Delete, Space: l.ids, Key: id}}
}

// page returns up to limit rows after skipping offset of them, the newest first.
func (l *list[T]) page(ctx context.Context, t j17.Tenant, offset, limit int) ([]T, error) {
	page := []T{}
	err := l.each(ctx, t, func(n *numbered[T]) bool {
		if offset--; offset < 0 {
			page = append(page, n.row)
		}
		return len(page) < limit
	})
	return page, err
}

// each calls do with the rows, the newest first, until it returns false.
func (l *list[T]) each(ctx context.Context, t j17.Tenant, do func(*numbered[T]) bool) error {
	const most = 256
	for it, err := range store.Items(ctx, l.store, t, l.rows, store.Range{Backward: true}, most) {
		if err != nil {
			return store.UserError(err)
		}
		n, err := l.read(it)
		if err != nil || !do(n) {
			return err
		}
	}
	return nil
}

func (l *list[T]) read(item *store.Item) (*numbered[T], error) {
	n := &numbered[T]{key: item.Key}
	if err := json.Unmarshal(item.Value, &n.row); err != nil {
		return nil, store.UserError(l.damaged(item.Key, err))
	}
	return n, nil
}

func (l *list[T]) damaged(key string, err error) error {
	return &store.CorruptionError{Where: "the checkpoint " + string(l.rows) + "/" + key, Err: err}
}
