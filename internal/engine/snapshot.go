package engine

import (
	"context"
	"encoding/binary"
	"errors"

	"j17"
	"j17/internal/store"
	"j17/internal/value"
)

// snapshots is the space of snapshots: the latest state of a stream that is long enough to deserve one, under the
// stream's key. A snapshot is a derived thing: it is ignored when the handlers have changed, and whoever rewrites a
// stream removes it.
const snapshots store.Space = "snapshot"

// snapshotFormat is the first byte of a snapshot. Behind it stand the fingerprint of the handlers, the length and the
// timestamp of the first event as varints, and the state as JSON.
const snapshotFormat = 1

func encodeSnapshot(f *folded) []byte {
	b := append(make([]byte, 0, 64+len(f.json)), snapshotFormat)
	b = append(b, f.fingerprint[:]...)
	b = binary.AppendUvarint(b, f.length)
	b = binary.AppendVarint(b, f.created)
	return append(b, f.json...)
}

// decodeSnapshot reports false for a snapshot that other handlers or another version of this program made.
func decodeSnapshot(b []byte, typ *program) (*folded, bool) {
	if len(b) < 1+len(typ.fingerprint) || b[0] != snapshotFormat || [32]byte(b[1:]) != typ.fingerprint {
		return nil, false
	}
	f := &folded{fingerprint: typ.fingerprint}
	b = b[1+len(typ.fingerprint):]
	var n, m int
	if f.length, n = binary.Uvarint(b); n <= 0 {
		return nil, false
	}
	if f.created, m = binary.Varint(b[n:]); m <= 0 {
		return nil, false
	}
	f.json = b[n+m:]
	f.snapshot = f.length
	var err error
	f.data, err = value.ParseStored(string(f.json))
	return f, err == nil
}

// snapshot returns the stored snapshot if it is of the type's present handlers and not longer than length; else the
// state before the first event.
func (e *Engine) snapshot(ctx context.Context, t store.Tenant, typ *program, key j17.Key, length uint64) (*folded, error) {
	empty := typ.first()
	if length < e.every {
		return empty, nil
	}
	item, err := e.store.Get(ctx, t, snapshots, key.String())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return empty, nil
	case err != nil:
		return nil, err
	}
	if f, ok := decodeSnapshot(item.Value, typ); ok && f.length <= length {
		return f, nil
	}
	return empty, nil
}

// enqueue asks for an aggregate's state to be folded in the background, and for a snapshot if one is due. It drops the
// job when there are too many: the next read or the next write that is due makes up for it.
func (e *Engine) enqueue(job stateKey) {
	select {
	case e.refresh <- job:
	default:
	}
}

func (e *Engine) refreshOne(ctx context.Context, job stateKey) error {
	d := e.present(job.tenant)
	if d == nil || d.spec.Types[job.key.Type] == nil {
		return nil
	}
	heads, err := e.store.Heads(ctx, job.tenant, []j17.Key{job.key})
	if err != nil || heads[0].Length == 0 {
		return err
	}
	f, err := e.stateOf(ctx, job.tenant, d, job.key, heads[0].Length, false, false)
	if err != nil || f.length-f.snapshot < e.every {
		return err
	}
	err = e.store.Write(ctx, job.tenant, []store.Side{{Op: store.Put, Space: snapshots, Key: job.key.String(), Value: encodeSnapshot(f)}})
	if err != nil {
		return err
	}
	e.counts.snapshots.Add(1)
	kept := *f
	kept.snapshot = f.length
	e.cache.put(job, &kept)
	return nil
}
