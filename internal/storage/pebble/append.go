package pebble

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// appender is the store in the role of store.Events.
type appender struct{ *core }

// Append commits units. See store.Store.
func (s *appender) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	if err := store.ValidAppend(t, units); err != nil {
		return nil, err
	}
	if len(units) == 0 {
		return []store.Result{}, nil
	}
	return s.queue.Append(ctx, t, units, queue.NeedOf(units))
}

// Command returns the result of a command. See store.Store.
func (s *appender) Command(_ context.Context, t j17.Tenant, id store.CommandID) (*store.Result, error) {
	r, err := s.read(t)
	if err != nil {
		return nil, err
	}
	defer r.close()
	result, expires, err := getCommand(r.snapshot, r.tenant, id)
	if err != nil || expired(expires, s.clock.Now().UnixNano()) {
		return nil, err
	}
	return result, nil
}

// getCommand returns the stored result of a command and when it expires, or nil.
func getCommand(from pebble.Reader, tenant uint32, id store.CommandID) (*store.Result, int64, error) {
	var key [tenantPrefix + 1 + len(id)]byte
	value, closer, err := from.Get(appendCommandKey(key[:0], tenant, id))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fault("a command", err)
	}
	result, expires, err := record.ParseCommand(value)
	if err = errors.Join(err, closer.Close()); err != nil {
		return nil, 0, corruption(err, "command %x", id)
	}
	return result, expires, nil
}
