package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// forgetAtOnce is how many results of commands are removed in one commit, and searchedAtOnce how many rows are read in
// one round trip.
const (
	forgetAtOnce   = 1000
	searchedAtOnce = 1000
)

// ForgetCommands is part of store.Events.
func (e *eraser) ForgetCommands(ctx context.Context, t j17.Tenant, of []store.StreamPart) error {
	found, err := e.commandsOf(ctx, t, of)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(found, forgetAtOnce) {
		err := e.queue.DoFor(ctx, t, queue.Freeing, func(b *batch) error {
			of := e.tenant(t)
			if !of.named {
				return nil
			}
			for _, id := range some {
				needed{b, of}.Command(id)
			}
			if err := b.read(); err != nil {
				return err
			}
			for _, id := range some {
				if err := b.forget(of, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forget removes the result of a command. Of a command that expires, it keeps the record with an empty result.
func (b *batch) forget(t *tenant, id store.CommandID) error {
	r, expires, err := b.ReadCommand(t, id)
	if err != nil || r == nil {
		return err
	}
	b.units.Touch(t)
	if expires == 0 {
		b.w.stored.t = int32(t.next.Number)
		b.w.stored.forgotten = append(b.w.stored.forgotten, id[:])
		return nil
	}
	b.w.command(int32(t.next.Number), &unit.CommandRecord{ID: id, Result: &store.Result{}, Expires: expires})
	return nil
}

// commandsOf returns the commands that have appended the events of parts of streams.
func (e *eraser) commandsOf(
	ctx context.Context, t j17.Tenant, of []store.StreamPart,
) (found []store.CommandID, err error) {
	number, err := e.lookups.number(ctx, t)
	if err != nil || number == 0 {
		return nil, err
	}
	var positions []j17.StreamID
	for i := range of {
		if positions, err = e.positionsOf(ctx, number, &of[i], positions); err != nil {
			return nil, err
		}
	}
	if len(positions) == 0 {
		return nil, nil
	}
	slices.SortFunc(positions, j17.StreamID.Compare)

	// The positions of a command's events are consecutive in the feed, so the first and the last one suffice.
	last := []byte{}
	for more := true; more; {
		err := e.read(ctx, "the results of commands", func(conn reading) error {
			rows, err := conn.Query(
				ctx, `SELECT id, result FROM commands WHERE t = $1 AND id > $2 ORDER BY id LIMIT $3`, int32(number), last,
				searchedAtOnce,
			)
			if err != nil {
				return err
			}
			n := 0
			var id, value []byte
			_, err = pgx.ForEachRow(rows, []any{&id, &value}, func() error {
				n++
				last = append([]byte{}, id...)
				result, _, err := record.ParseCommand(value)
				if err != nil {
					return corruption(err, "command %x", id)
				}
				if len(result.IDs) == 0 {
					return nil
				}
				next, _ := slices.BinarySearchFunc(positions, result.IDs[0], j17.StreamID.Compare)
				if next < len(positions) && positions[next].Compare(result.IDs[len(result.IDs)-1]) <= 0 {
					found = append(found, store.CommandID(id))
				}
				return nil
			})
			more = n == searchedAtOnce
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

const selectPositions = `SELECT version, ms, n FROM events WHERE t = $1 AND stream = $2 AND kind = 0 AND version > $3
AND (ms, n) <= ($4, $5) ORDER BY version LIMIT $6`

// positionsOf appends the positions of the events of a part of a stream to positions.
func (e *eraser) positionsOf(
	ctx context.Context, number uint32, of *store.StreamPart, positions []j17.StreamID,
) ([]j17.StreamID, error) {
	var last int64
	for more := true; more; {
		err := e.read(ctx, "events of "+of.Key.String(), func(conn reading) error {
			rows, err := conn.Query(
				ctx, selectPositions, int32(number), record.Stream(of.Key), last, of.UpTo.Ms, int64(of.UpTo.Seq),
				searchedAtOnce,
			)
			if err != nil {
				return err
			}
			n := 0
			var id j17.StreamID
			var seq int64
			_, err = pgx.ForEachRow(rows, []any{&last, &id.Ms, &seq}, func() error {
				n++
				id.Seq = uint32(seq)
				positions = append(positions, id)
				return nil
			})
			more = n == searchedAtOnce
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return positions, nil
}
