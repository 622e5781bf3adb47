package postgres

import (
	"context"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// appender is the store in the role of store.Events.
type appender struct{ *core }

// Append is part of store.Events.
func (a *appender) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	if err := store.ValidAppend(t, units); err != nil {
		return nil, err
	}
	if len(units) == 0 {
		return []store.Result{}, nil
	}
	return a.queue.Append(ctx, t, units, queue.NeedOf(units))
}

// Command is part of store.Events.
func (l *lookups) Command(ctx context.Context, t j17.Tenant, id store.CommandID) (*store.Result, error) {
	if err := l.admits(t); err != nil {
		return nil, err
	}
	var at int
	q, err := l.ask(ctx, "a command", func(q *questions) { at = q.commands.add(t, id) })
	if err != nil || q.commands.results[at] == nil {
		return nil, err
	}
	result, expires, err := record.ParseCommand(q.commands.results[at])
	if err != nil {
		return nil, corruption(err, "command %x", id)
	}
	if expires != 0 && expires <= l.clock.Now().UnixNano() {
		return nil, nil
	}
	return result, nil
}

// Barrier is part of store.Health.
func (a *appender) Barrier(ctx context.Context) error {
	return a.unlessClosed(a.queue.Settled(ctx))
}
