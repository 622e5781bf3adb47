package pebble

import (
	"context"
	"slices"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// forgetAtOnce is how many results of commands are forgotten in one commit.
const forgetAtOnce = 1000

// ForgetCommands forgets the results of commands that have written events of parts of streams. See store.Store.
func (s *appender) ForgetCommands(ctx context.Context, t j17.Tenant, of []store.StreamPart) error {
	found, err := s.commandsOf(ctx, t, of)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(found, forgetAtOnce) {
		err := s.queue.Do(ctx, queue.Freeing, func(b *batch) error {
			tn, replaced := b.tenant(t), make(map[string]uint64, len(some))
			for _, id := range some {
				r, expires, err := getCommand(s.db, tn.next.Number, id)
				if err != nil {
					return err
				}
				if r == nil {
					continue
				}
				b.units.Touch(tn)
				b.key = appendCommandKey(b.key[:0], tn.next.Number, id)
				if expires == 0 {
					b.remove(b.key)
				} else {
					b.put(b.key, record.AppendCommand(b.value[:0], expires, &store.Result{}, nil))
				}
				replaced[string(b.key)] = 1
			}
			b.stageReplaced(tn, replaced)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// commandsOf finds the commands that have written events of parts of streams.
func (s *appender) commandsOf(
	ctx context.Context, t j17.Tenant, of []store.StreamPart,
) (found []store.CommandID, err error) {
	r, err := s.read(t)
	if err != nil {
		return nil, err
	}
	defer r.close()
	prefix := appendPrefix(nil, r.tenant, kindCommand)
	if any, err := hasAny(r.snapshot, prefix, after(prefix)); err != nil || !any || r.tenant == 0 {
		return nil, err
	}
	positions, err := s.positionsOf(ctx, r, of)
	if err != nil || len(positions) == 0 {
		return nil, err
	}

	// The positions of a command are consecutive, so its first and last one are enough.
	it, err := r.iterate(prefix, after(prefix))
	if err != nil {
		return nil, err
	}
	defer closeIter(it, &err, "the results of commands")
	n := uint64(0)
	for it.First(); it.Valid(); it.Next() {
		n++
		if err := s.interrupted(ctx, n); err != nil {
			return nil, err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, fault("a command", err)
		}
		result, _, err := record.ParseCommand(v)
		if err != nil {
			return nil, corruption(err, "command %x", it.Key()[len(prefix):])
		}
		if len(result.IDs) == 0 {
			continue
		}
		next, _ := slices.BinarySearchFunc(positions, result.IDs[0], j17.StreamID.Compare)
		if next < len(positions) && positions[next].Compare(result.IDs[len(result.IDs)-1]) <= 0 {
			found = append(found, store.CommandID(it.Key()[len(prefix):]))
		}
	}
	return found, nil
}

// positionsOf returns the positions of the events of parts of streams, in order.
func (s *appender) positionsOf(
	ctx context.Context, r reader, of []store.StreamPart,
) (positions []j17.StreamID, err error) {
	for i := range of {
		if positions, err = s.appendPositions(ctx, positions, r, of[i].Key, of[i].UpTo); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(positions, j17.StreamID.Compare)
	return positions, nil
}

func (s *appender) appendPositions(
	ctx context.Context, all []j17.StreamID, r reader, key j17.Key, upTo j17.StreamID,
) (_ []j17.StreamID, err error) {
	prefix := appendEventPrefix(nil, r.tenant, key)
	it, err := r.iterate(prefix, after(prefix))
	if err != nil {
		return nil, err
	}
	defer closeIter(it, &err, key.String())
	var record eventRecord
	n := uint64(0)
	for it.First(); it.Valid(); it.Next() {
		n++
		if err := s.interrupted(ctx, n); err != nil {
			return nil, err
		}
		v, err := it.ValueAndErr()
		if err == nil {
			err = record.parse(v)
		}
		if err != nil {
			return nil, corruption(err, "an event of %s", key)
		}
		if record.id.Compare(upTo) <= 0 {
			all = append(all, record.id)
		}
	}
	return all, nil
}
